"""The search for phases: states from many sources, and one mixture with fields on both sides fitted to all of them.

No single source of states finds every phase. Sweeps at the model's own temperature start from random states, from
random shares of summed-out units that are on, and from states in which all variables of a side have the same value.
Further states are the weighted final states of short paths from the uniform base and from the biases, and rows of data
if there are any. All states are clustered together. The uniform base and the biases remain components of the mixture,
as a protection against phases that no state shows. Pilots then refit the shares of the components, but never their
fields: a mixture that is fitted to the final states of its own chains loses the phases that these have not visited, and
nothing shows the loss. A longer search adds components that are fitted to such final states (see `grown`), and keeps
all earlier ones with a smallest share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..checks import Array
from ..engines.plan import Plan
from ..engines.recorder import Recorder
from ..models.units import Units
from ..paths.mixture import Mixture, fit_both_sides
from ..random import MIXTURE, QUENCH, TARGET, VISIBLE, stream, uniforms
from ..running.session import Session
from ..statistics.confidence import effective_size
from .tuning import TUNING

_ENOUGH_ROWS = 4096  # Maximal number of rows of a fit.


@dataclass(frozen=True, eq=False)
class States:
    """States of the sampled side with log-weights; the weights add up to the number of rows that they count as."""

    rows: Array
    log_weights: Array


@dataclass(frozen=True, eq=False)
class Found:
    """Weighted final states of a pilot, and a value that ln Z almost certainly exceeds by this pilot."""

    rows: Array
    log_weights: Array
    log_z: float


def alike(rows: Array) -> States:
    """Return states that all have the same weight."""
    return States(rows, np.zeros(len(rows)))


def ends_of_pilot(rows: Array, log_weights: Array) -> States:
    """Return the final states of a pilot with their weights; they count as more rows if more of them are effective."""
    count = min(float(len(rows)), TUNING.rows_per_effective * effective_size(log_weights))
    return States(rows, log_weights - logsumexp(log_weights) + math.log(count))


def resampled(rows: Array, log_weights: Array, count: int) -> Array:
    """Return so many rows, each drawn in proportion to its weight by systematic resampling."""
    below = np.cumsum(np.exp(log_weights - logsumexp(log_weights)))
    at = np.searchsorted(below, (np.arange(count) + 0.5) / count * below[-1])
    return rows[np.minimum(at, len(rows) - 1)]


def sweep(plan: Plan, session: Session, starts: Array, sweeps: int, purpose: int = 0) -> Array:
    """Return the states of the sampled side after a number of sweeps at β = 1 from given states."""
    uniform = replace(plan, path=plan.path.without_mixture()).placed(draws="words")
    cold = uniform.pilot(QUENCH, len(starts), np.ones(sweeps + 2), first=purpose, start=starts).on_engine("auto")
    recorder = Recorder.of_final_states(cold)
    session.pilot(cold, recorder)
    return recorder.values[0]


def starts_from_many_sides(plan: Plan, chains: int) -> Array:
    """Return random states of the sampled side and states of equal values, about as many as there are chains."""
    model = plan.path.end
    natural, seed = model.natural, stream(plan.chains.seed, QUENCH)
    hidden_units = natural.hidden_units
    from_h = _equal_states(hidden_units, len(natural.hidden_bias), chains // 4)
    from_v = _equal_states(natural.visible_units, len(natural.visible_bias), chains // 4)
    few = max(1, chains // (2 * max(1, len(from_h) + len(from_v))))
    half = (chains - few * (len(from_h) + len(from_v))) // 2
    numbers = np.arange(chains, dtype=np.uint64)
    u = uniforms(seed, numbers, 0, VISIBLE, model.n_visible)
    at_random = natural.visible_units.draw(np.zeros((half, len(natural.visible_bias))), u[:half])
    rest = numbers[half : 2 * half]
    choice = uniforms(seed, rest, 0, TARGET, model.n_hidden + 1)
    if hidden_units.values is not None:  # Random v rarely lead to modes in which many hidden units are on together.
        low, high = hidden_units.values
        h = np.where(choice[:, 1:] < choice[:, :1], high, low)
    else:
        h = hidden_units.draw(np.zeros((len(rest), len(natural.hidden_bias))), choice[:, 1:])
    h = np.concatenate([h, *(np.tile(x, (few, 1)) for x in from_h)])
    given_h = natural.visible_units.draw(natural.visible_bias + h @ natural.weights.T, u[half : half + len(h)])
    return np.concatenate([at_random, given_h, *(np.tile(x, (few, 1)) for x in from_v)])


def _equal_states(units: Units, features: int, most: int) -> list[Array]:
    """Return states in which all variables have the same value, evenly chosen if there are more than `most`."""
    found = units.equal_states(features) if features else []
    return found[:: -(-len(found) // most)] if len(found) > most else found


def states_of_rows(plan: Plan, rows: Array) -> Array:
    """Return states of the sampled side for rows of the visible side."""
    if not plan.path.is_turned:
        return rows
    natural = plan.path.model.natural
    chains = np.arange(len(rows), dtype=np.uint64)
    u = uniforms(stream(plan.chains.seed, QUENCH), chains, 1, TARGET, plan.path.model.n_hidden)
    return natural.hidden_units.draw(natural.hidden_bias + rows @ natural.weights, u)


def mixture_of(plan: Plan, sources: list[States], components: int) -> Mixture:
    """Return a mixture with fields on both sides, fitted to pooled states, with the uniform base and the biases."""
    natural = plan.path.end.natural
    biases = np.concatenate([natural.visible_bias, natural.hidden_bias])
    defence = np.stack([np.zeros_like(biases), biases]) if biases.any() else np.zeros((1, len(biases)))
    n = len(natural.visible_bias)
    alone = Mixture(np.zeros(len(defence)), defence[:, :n], defence[:, n:])
    alone = alone.with_shares(np.zeros(len(defence)), (natural.visible_units, natural.hidden_units))
    return _fitted(plan, sources, components, alone, TUNING.defence * len(defence))


def grown(plan: Plan, mixture: Mixture, sources: list[States], components: int) -> Mixture:
    """Return the mixture with more components, fitted to pooled states; all earlier components remain.

    The final states of the mixture's own chains may be among the states: they add descriptions of what the mixture has
    described too coarsely, and take none away.
    """
    return _fitted(plan, sources, components, mixture, 1.0 - TUNING.grown)


def _fitted(plan: Plan, sources: list[States], components: int, kept: Mixture, share: float) -> Mixture:
    """Return a mixture of kept components, which have this share, and of others that are fitted to pooled states."""
    rows, log_weights = (np.concatenate(x) for x in zip(*((s.rows, s.log_weights) for s in sources), strict=True))
    if len(rows) > _ENOUGH_ROWS:
        some = np.linspace(0, len(rows) - 1, _ENOUGH_ROWS).astype(np.int64)
        rows, log_weights = rows[some], log_weights[some]
    natural = plan.path.end.natural
    means = natural.hidden_units.mean(plan.path.end.hidden_fields(rows))
    return fit_both_sides(
        (natural.visible_units, natural.hidden_units),
        (rows, means),
        log_weights,
        components,
        kept,
        share,
        stream(plan.chains.seed, QUENCH),
        clip=TUNING.clip,
        shrinkage=TUNING.shrinkage,
    )


def with_refitted_shares(pilot: Plan, log_z: float, log_weights: Array, found: list[Found]) -> Mixture:
    """Return the mixture of a pilot with the shares that pilots ask for; every component keeps some.

    A component's share is what its chains brought of the weight, or what any of the paths found in its cell (the states
    that it describes best), whichever is more: E[W·1(x ∈ c)] = Z_c/Z_0 on every path.
    """
    mixture, natural = pilot.path.mixture, pilot.path.end.natural
    assert mixture is not None
    units = natural.visible_units, natural.hidden_units
    started = mixture.start(*units, uniforms(pilot.chains.seed, pilot.chains.numbers, 0, MIXTURE, 1)[:, 0])
    most = _by_component(started, log_z, log_weights, mixture.components)
    densities = mixture.with_shares(np.zeros(mixture.components), units)
    assert densities.hidden is not None
    for states in found:
        means = natural.hidden_units.mean(pilot.path.end.hidden_fields(states.rows))
        cell = (densities.logits(states.rows) + means @ densities.hidden.T).argmax(axis=1)
        most = np.maximum(most, _by_component(cell, states.log_z, states.log_weights, mixture.components))
    brought = np.exp(most - logsumexp(most))
    size = effective_size(log_weights)
    new = TUNING.brought * size / (size + TUNING.few_effective)
    logs = mixture.log_shares(*units)
    old = np.exp(logs - logsumexp(logs))
    kept = TUNING.kept / (1.0 - TUNING.brought) * (1.0 - new)
    shares = new * brought + kept * old + (1.0 - new - kept) / mixture.components
    return mixture.with_shares(np.log(shares), units)


def _by_component(component: NDArray[np.int64], log_z: float, log_weights: Array, components: int) -> Array:
    """Return the part of ln Z that chains have found in each component."""
    weights = np.exp(log_weights - logsumexp(log_weights))
    with np.errstate(divide="ignore"):
        return np.asarray(log_z + np.log(np.bincount(component, weights, components)))
