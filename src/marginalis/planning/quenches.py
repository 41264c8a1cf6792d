"""The mixture that `base="quenches"` names, fitted to the final states of short runs at the model's own temperature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..checks import Array
from ..engines.plan import Plan
from ..engines.recorder import Recorder
from ..paths.mixture import Mixture, fit_mixture
from ..random import QUENCH, TARGET, VISIBLE, stream, uniforms
from ..running.session import Session
from . import tuning


def quench(plan: Plan, session: Session) -> Array:
    """Return the states of the sampled side after a few sweeps at β = 1 from random states.

    Half of the runs start from random v, and half from random h of which a random share is in the upper state. The
    second half finds modes in which many hidden units are on together; random v rarely lead there.
    """
    start = _random_starts(plan, stream(plan.chains.seed, QUENCH))
    uniform = replace(plan, path=replace(plan.path, mixture=None))
    cold = uniform.pilot(QUENCH, len(start), np.ones(tuning.QUENCHES.sweeps + 2), start=start).on_engine("auto")
    recorder = Recorder.of_final_states(cold)
    session.pilot(cold, recorder)
    return recorder.values[0]


def _random_starts(plan: Plan, seed: int) -> Array:
    model = plan.path.end
    natural = model.natural
    half = tuning.QUENCHES.chains // 2
    chains = np.arange(tuning.QUENCHES.chains, dtype=np.uint64)
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
    """Return a mixture fitted to the final states of quenches, or None if the whole model is summed exactly."""
    if plan.path.is_exact:
        return None
    return mixture_of_rows(plan, quench(plan, session))


def mixture_of_rows(plan: Plan, rows: Array, log_weights: Array | None = None) -> Mixture:
    """Return a mixture fitted to weighted states of the sampled side; of many states an even selection is used."""
    units = plan.path.end.natural.visible_units
    numbers = tuning.QUENCHES
    some = np.linspace(0, len(rows) - 1, min(len(rows), numbers.most_rows)).astype(np.int64)
    weights = None if log_weights is None else log_weights[some]
    seed = stream(plan.chains.seed, QUENCH)
    return fit_mixture(units, rows[some], numbers.components, numbers.uniform, seed, weights)
