"""What the states that no chain has met may do to mean values: they weigh about one in the effective number of chains.

A variable that all chains hold in one state may be in another one in those states. What that does to the means of
others follows from their fields, and what it does to a function from its values at states that lie elsewhere.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..checks import Array
from ..models.units import Units
from .features import Features, Function, evaluated
from .final_states import FinalStates

_FEW = 5.0  # Chains with another value of a function, up to which the spread does not tell how rare that is.
_MISSED = math.sqrt(2.0)  # Chains by whose root the error of a count of so few is widened, as in Wilson's interval.
_ROUNDS = 2  # Couplings along which a change is followed, from the variables that are held.
_LARGEST = 1e3  # Change of a field beyond which its size does not matter.
_RANDOM = 64  # Random states at which a function is evaluated.
_CHANGED = 4096  # States at which a function is evaluated, at most: all of them, or those with one variable changed.
_SAME = 1e-9  # Values of a function, relative to the largest of them, that are taken as equal.


def reaches_of_means(states: FinalStates, what: Features, means: Array) -> Array:
    """Return how far from its mean each feature may be in states that no chain has met.

    The whole range for a feature whose mean lies within one in the effective number of chains of an end of it; for
    others as far as the fields of such neighbours can move them.
    """
    natural, (at_v, at_h) = states.model.natural, states.model.callers_features()
    low, high = what.values.T
    width = high - low  # NaN for a real variable, which nothing holds
    held = _is_held(states, means, low, high)
    reach = np.where(held, width, 0.0)
    if not held.any():
        return reach
    sizes = abs(natural.weights)
    inside = None if natural.lateral is None else abs(natural.lateral)
    fields_v, fields_h = states.mean_fields()
    for _ in range(_ROUNDS):
        v, h = reach[at_v], reach[at_h]
        by_v, by_h = sizes @ h, v @ sizes
        if inside is not None:
            by_v = by_v + v @ inside
        reach[at_v] = np.maximum(v, _moved(natural.visible_units, fields_v, by_v))
        reach[at_h] = np.maximum(h, _moved(natural.hidden_units, fields_h, by_h))
        reach = np.fmin(reach, width)
    return reach


def _moved(units: Units, fields: Array, by: Array) -> Array:
    """Return how far the mean of each feature goes when its field changes by so much either way."""
    by = np.minimum(by, _LARGEST)
    if units.is_one_hot:  # each state against all others, whose fields may go the other way
        owners = units.owners(len(by))
        most = np.zeros(owners[-1] + 1 if len(owners) else 0)
        np.maximum.at(most, owners, by)
        p = units.mean(fields[None])[0]
        odds = np.exp(-by - most[owners])
        return np.asarray(np.maximum(p - p * odds / (1.0 - p + p * odds), p / (p + (1.0 - p) * odds) - p))
    now = units.mean(fields[None])[0]
    return np.maximum(*(np.abs(units.mean((fields + sign * by)[None])[0] - now) for sign in (-1.0, 1.0)))


def reaches_of_products(states: FinalStates, what: Features, means: Array, reach: Array, products: Array) -> Array:
    """Return how far from its mean the product of each pair may be, given how far its factors may.

    As for features, that is the whole range where the mean lies close enough to an end of it.
    """
    ends = np.fmax(np.abs(what.values).max(axis=1), np.abs(means) + reach)
    a, b = what.pairs.T
    both = (what.values[a, :, None] * what.values[b, None, :]).reshape(-1, 4)
    low, high = both.min(axis=1), both.max(axis=1)
    return np.where(
        _is_held(states, products, low, high), high - low, np.fmin(reach[a] * ends[b] + reach[b] * ends[a], high - low)
    )


def widened(states: FinalStates, errors: Array, reach: Array) -> Array:
    """Return errors of functions, and what states that no chain has met may add to them.

    A function counts chains, while means and products have the part of single variables from their fields.
    """
    return np.where(reach > 0.0, np.hypot(errors, _MISSED * states.once * reach), errors)


def _is_held(states: FinalStates, means: Array, low: Array, high: Array) -> Array:
    """Whether means lie so close to an end of their range that all chains may have been there; not without an end."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.minimum(means - low, high - means) < states.once * (high - low))


def reach_of_function(
    states: FinalStates, what: Features, function: Function, name: str, values: Array, rows: Array
) -> Array:
    """Return how far from its mean a function may be, number by number, where all chains but a few agree on it.

    `values` are those at the states of the chains, [number, move, chain], and `rows` the states after the last move. It
    is evaluated at all states of a small model, else at random ones, at those of the chains with all variables changed,
    and at one chain's with each variable changed in turn.
    """
    flat, weights = values.reshape(len(values), -1), states.weights.ravel()
    common = _weighted_medians(flat, weights)
    away = np.abs(flat - common[:, None]) > _SAME * np.abs(flat).max(axis=1, keepdims=True)
    agreed = away @ weights < _FEW * states.once
    if not agreed.any():
        return np.zeros(len(values))
    found = [flat]
    try:
        with np.errstate(all="ignore"):
            found.append(evaluated(function, name, _elsewhere(states, what, rows)).reshape(-1, len(values)).T)
    except Exception:  # what a function does where it was not meant to be evaluated is its own affair
        pass
    everywhere = np.concatenate(found, axis=1)
    return np.where(agreed, np.abs(everywhere - common[:, None]).max(axis=1), 0.0)


def _weighted_medians(values: Array, weights: Array) -> Array:
    """Return the weighted median of each row."""
    order = np.argsort(values, axis=1)
    below = np.cumsum(weights[order], axis=1)
    at = np.argmax(below >= 0.5 * below[:, -1:], axis=1)
    return np.take_along_axis(values, np.take_along_axis(order, at[:, None], axis=1), axis=1)[:, 0]


def _values_of_variables(what: Features) -> Iterator[Array]:
    """Yield the states of each variable as rows of its features."""
    starts = np.flatnonzero(np.diff(what.owners, prepend=-1))
    for first, end in zip(starts, [*starts[1:], len(what.owners)], strict=True):
        yield what.values[first][:, None] if what.states[first] < 0 else np.eye(end - first)


def _elsewhere(states: FinalStates, what: Features, rows: Array) -> Array:
    """Return states that the chains need not have met, rows of all features in the caller's order."""
    natural = states.model.natural
    values = [list(x) for x in _values_of_variables(what)]
    if not np.isnan(what.values).any() and math.prod(map(len, values)) <= _CHANGED:
        return np.array([np.concatenate(x) for x in itertools.product(*values)])
    rng = np.random.default_rng(0)
    sides: list[Any] = []
    for units, bias, n in (
        (natural.visible_units, natural.visible_bias, states.model.n_visible),
        (natural.hidden_units, natural.hidden_bias, states.model.n_hidden),
    ):
        sides.append(units.draw(np.zeros((_RANDOM, len(bias))), rng.random((_RANDOM, n))))
    random = states.in_order(*sides)
    some = rows[np.linspace(0, len(rows) - 1, min(len(rows), _RANDOM)).astype(np.int64)]
    changed = np.where(np.isnan(what.values[:, 0]), random[: len(some)], what.values.sum(axis=1) - some)
    if (what.states >= 0).any():  # the next state of each categorical variable
        last = np.append(np.diff(what.owners) != 0, True)
        start = np.searchsorted(what.owners, what.owners)
        onward = np.where(last, start, np.minimum(np.arange(len(last)) + 1, len(last) - 1))
        changed = np.where(what.states >= 0, some[:, onward], changed)
    n = int(what.owners.max()) + 1
    turned = np.linspace(0, n - 1, min(n, _CHANGED)).astype(np.int64)
    one_by_one = np.where(what.owners == turned[:, None], changed[0], some[0])
    return np.concatenate([random, changed, one_by_one])
