"""The search for phases: states from many sides, and one mixture with fields on both sides fitted to all of them.

No single source of states finds every phase. Sweeps at the model's own temperature start from random states, from
random shares of summed-out units that are on, and from polarised ones (every variable of a side in the same state); the
weighted ends of short paths from the uniform base and from the biases find what lies off these, and rows of data know
more still. All of them are pooled and clustered together. The uniform base and the biases remain components of the
mixture, against phases that no state shows. Pilots then refit the shares of the components, but never their fields: a
mixture fitted to its own ends loses, without a sign, whatever these chains have not seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..checks import Array
from ..engines.plan import Plan
from ..engines.recorder import Recorder, the_states
from ..models.units import Categorical, Gaussian, TwoState, Units
from ..paths.mixture import Mixture, fit_both_sides
from ..random import MIXTURE, QUENCH, TARGET, VISIBLE, stream, uniforms
from ..running.session import Session
from ..statistics.confidence import effective_size
from .tuning import TUNING

_ENOUGH_ROWS = 4096  # of a fit
_FAR = 2.0  # standard deviations from zero at which Gaussian variables are polarised


@dataclass(frozen=True, eq=False)
class States:
    """States of the sampled side with logarithms of weights, which add up to the rows that they count for."""

    rows: Array
    log_weights: Array


@dataclass(frozen=True, eq=False)
class Found:
    """Weighted ends of a pilot, and the ln Z that it vouches for."""

    rows: Array
    log_weights: Array
    log_z: float


def alike(rows: Array) -> States:
    """Return states that count alike."""
    return States(rows, np.zeros(len(rows)))


def ends_of_pilot(rows: Array, log_weights: Array) -> States:
    """Return the ends of chains with their weights; a few effective ones count for a few rows."""
    count = min(float(len(rows)), TUNING.rows_per_effective * effective_size(log_weights))
    return States(rows, log_weights - logsumexp(log_weights) + math.log(count))


def sweep(plan: Plan, session: Session, starts: Array, sweeps: int, purpose: int = 0) -> Array:
    """Return where chains end that take so many sweeps at β = 1 from given states of the sampled side."""
    uniform = replace(plan, path=plan.path.without_mixture()).placed(draws="words")
    cold = uniform.pilot(QUENCH, len(starts), np.ones(sweeps + 2), first=purpose, start=starts).on_engine("auto")
    recorder = Recorder([cold.steps], len(starts), the_states, starts.shape[1])
    session.pilot(cold, recorder)
    return recorder.values[0]


def starts_from_many_sides(plan: Plan, chains: int) -> Array:
    """Return random and polarised states of the sampled side, as many as there are chains, about."""
    model = plan.path.end
    natural, seed = model.natural, stream(plan.chains.seed, QUENCH)
    hidden_units = natural.hidden_units
    from_h = _some(_polarised(hidden_units, len(natural.hidden_bias)), chains // 4)
    from_v = _some(_polarised(natural.visible_units, len(natural.visible_bias)), chains // 4)
    few = max(1, chains // (2 * max(1, len(from_h) + len(from_v))))
    half = (chains - few * (len(from_h) + len(from_v))) // 2
    numbers = np.arange(chains, dtype=np.uint64)
    u = uniforms(seed, numbers, 0, VISIBLE, model.n_visible)
    at_random = natural.visible_units.draw(np.zeros((half, len(natural.visible_bias))), u[:half])
    rest = numbers[half : 2 * half]
    choice = uniforms(seed, rest, 0, TARGET, model.n_hidden + 1)
    if isinstance(hidden_units, TwoState):  # features that the data switch on together are rarely found by v alone
        signs = np.where(choice[:, 1:] < choice[:, :1], 1.0, -1.0)
        h = hidden_units.offset + hidden_units.scale * signs
    else:
        h = hidden_units.draw(np.zeros((len(rest), len(natural.hidden_bias))), choice[:, 1:])
    h = np.concatenate([h, *(np.tile(x, (few, 1)) for x in from_h)])
    given_h = natural.visible_units.draw(natural.visible_bias + h @ natural.weights.T, u[half : half + len(h)])
    return np.concatenate([at_random, given_h, *(np.tile(x, (few, 1)) for x in from_v)])


def _some(states: Iterator[Array], most: int) -> list[Array]:
    """Return states, evenly chosen if there are more than `most`."""
    found = list(states)
    return found[:: -(-len(found) // most)] if len(found) > most else found


def _polarised(units: Units, features: int) -> Iterator[Array]:
    """Yield states in which all variables of a side are alike."""
    if not features:
        return
    if isinstance(units, TwoState):
        yield from (np.full(features, units.offset + sign * units.scale) for sign in (-1.0, 1.0))
    elif isinstance(units, Categorical):
        counts = units.counts(features)
        first = np.cumsum(counts) - counts
        for state in range(int(counts.max())):
            x = np.zeros(features)
            x[first + np.minimum(state, counts - 1)] = 1.0
            yield x
    elif isinstance(units, Gaussian):
        yield from (sign * _FAR / np.sqrt(units.gamma) * np.ones(features) for sign in (-1.0, 1.0))


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
    rows, log_weights = (np.concatenate(x) for x in zip(*((s.rows, s.log_weights) for s in sources), strict=True))
    if len(rows) > _ENOUGH_ROWS:
        some = np.linspace(0, len(rows) - 1, _ENOUGH_ROWS).astype(np.int64)
        rows, log_weights = rows[some], log_weights[some]
    natural = plan.path.end.natural
    means = natural.hidden_units.mean(plan.path.end.hidden_fields(rows))
    biases = np.concatenate([natural.visible_bias, natural.hidden_bias])
    defence = [(TUNING.defence, np.zeros_like(biases))]
    if biases.any():
        defence.append((TUNING.defence, biases))
    return fit_both_sides(
        (natural.visible_units, natural.hidden_units),
        (rows, means),
        log_weights,
        components,
        defence,
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
