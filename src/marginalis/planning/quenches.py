"""Where the modes are: short runs at the model's own temperature from random states, and the mixture fitted to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..checks import Array
from ..engines.plan import Plan
from ..engines.recorder import Recorder, the_states
from ..paths.mixture import Mixture, fit_mixture
from ..random import QUENCH, TARGET, VISIBLE, stream, uniforms
from ..running.session import Session

QUENCHES = 512
_SWEEPS = 30
_COMPONENTS = 32
_MOST_ROWS = 4096
_UNIFORM = 0.1  # share of the mixture that is kept uniform


def quench(plan: Plan, session: Session) -> Array:
    """Return the states of the sampled side in which runs of a few sweeps at β = 1 end.

    Half of them start from random v; half from random h, of which a random share is on: features that the data
    switch on together are rarely found by v alone.
    """
    start = _random_starts(plan, stream(plan.chains.seed, QUENCH))
    uniform = replace(plan, path=replace(plan.path, mixture=None))
    cold = uniform.pilot(QUENCH, QUENCHES, np.ones(_SWEEPS + 2), start=start).on_engine("auto")
    recorder = Recorder([cold.steps], QUENCHES, the_states, start.shape[1])
    session.pilot(cold, recorder)
    return recorder.values[0]


def _random_starts(plan: Plan, seed: int) -> Array:
    model = plan.path.end
    natural = model.natural
    half = QUENCHES // 2
    chains = np.arange(QUENCHES, dtype=np.uint64)
    u = uniforms(seed, chains, 0, VISIBLE, model.n_visible)
    v = natural.visible_units.draw(np.zeros((half, len(natural.visible_bias))), u[:half])
    choice = uniforms(seed, chains[half:], 0, TARGET, model.n_hidden + 1)
    share, rest = choice[:, :1], choice[:, 1:]
    if natural.hidden_units.values is not None:
        low, high = natural.hidden_units.values
        h = np.where(rest < share, high, low)
    else:
        h = natural.hidden_units.draw(np.zeros((len(rest), len(natural.hidden_bias))), rest)
    fields = natural.visible_bias + h @ natural.weights.T
    return np.concatenate([v, natural.visible_units.draw(fields, u[half:])])


def quenched_mixture(plan: Plan, session: Session) -> Mixture | None:
    """Return a mixture fitted to quenches, or None where there is nothing to sample."""
    if plan.path.part is None:
        return None
    return mixture_of_rows(plan, quench(plan, session))


def mixture_of_rows(plan: Plan, rows: Array, log_weights: Array | None = None) -> Mixture:
    """Return a mixture fitted to rows of the sampled side, with their weights, evenly chosen where there are many."""
    units = plan.path.end.natural.visible_units
    some = np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(np.int64)
    weights = None if log_weights is None else log_weights[some]
    return fit_mixture(units, rows[some], _COMPONENTS, _UNIFORM, stream(plan.chains.seed, QUENCH), weights)
