"""Possible effect on mean values of unseen states: states that no chain has visited.

Such states may have a probability of about one over the effective number of chains. A variable that has the same state
in all chains may have another one there. The effect on the means of other variables follows from their fields, and the
effect on a function from its values at other states.
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

_FEW = 5.0  # If fewer chains have another value of a function, their spread does not show how rare it is.
_MISSED = math.sqrt(2.0)  # Widening of the error of a small count by two counts, as in Wilson's interval.
_ROUNDS = 2  # A change of a constant variable is followed along this many couplings.
_LARGEST = 1e3  # Changes of a field are cut off at this size, beyond which means no longer change.
_RANDOM = 64  # A function is evaluated at this many random states.
_CHANGED = 4096  # Limit of enumerated states, and of states with one variable changed, for a function.
_SAME = 1e-9  # Values of a function count as equal within this fraction of the largest.


def reaches_of_means(states: FinalStates, what: Features, means: Array) -> Array:
    """Return the largest distance of each feature from its mean in unseen states.

    It is the whole range of a feature whose mean is at an end of the range, within one over the effective number of
    chains. Other features move as far as the fields of such neighbours can move their means.
    """
    natural, (at_v, at_h) = states.model.natural, states.model.callers_features()
    low, high = what.values.T
    width = high - low  # NaN for a real variable, which is never constant.
    at_end = _is_at_end(states, means, low, high)
    reach = np.where(at_end, width, 0.0)
    if not at_end.any():
        return reach
    sizes, inside = states.model.coupling_sizes
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
    """Return the largest change of the mean of each feature if its field changes by `by` up or down."""
    by = np.minimum(by, _LARGEST)
    if units.is_one_hot:  # The fields of the other states may change in the opposite direction.
        owners = units.owners(len(by))
        most = np.zeros(owners[-1] + 1 if len(owners) else 0)
        np.maximum.at(most, owners, by)
        p = units.mean(fields[None])[0]
        odds = np.exp(-by - most[owners])
        return np.asarray(np.maximum(p - p * odds / (1.0 - p + p * odds), p / (p + (1.0 - p) * odds) - p))
    now = units.mean(fields[None])[0]
    return np.maximum(*(np.abs(units.mean((fields + sign * by)[None])[0] - now) for sign in (-1.0, 1.0)))


def reaches_of_products(states: FinalStates, what: Features, means: Array, reach: Array, products: Array) -> Array:
    """Return the largest distance of the product of each pair from its mean, from the distances of its factors.

    As for features, it is the whole range if the mean is close enough to an end of the range.
    """
    ends = np.fmax(np.abs(what.values).max(axis=1), np.abs(means) + reach)
    a, b = what.pairs.T
    both = (what.values[a, :, None] * what.values[b, None, :]).reshape(-1, 4)
    low, high = both.min(axis=1), both.max(axis=1)
    return np.where(
        _is_at_end(states, products, low, high),
        high - low,
        np.fmin(reach[a] * ends[b] + reach[b] * ends[a], high - low),
    )


def widened(states: FinalStates, errors: Array, reach: Array) -> Array:
    """Return errors of functions, increased by the possible effect of unseen states.

    The increase is that of a count of chains; means and products use the fields of single variables instead.
    """
    return np.where(reach > 0.0, np.hypot(errors, _MISSED * states.once * reach), errors)


def _is_at_end(states: FinalStates, means: Array, low: Array, high: Array) -> Array:
    """Whether means are so close to an end of their range that all chains may be there; False without a range."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.minimum(means - low, high - means) < states.once * (high - low))


def reach_of_function(
    states: FinalStates, what: Features, function: Function, name: str, values: Array, rows: Array
) -> Array:
    """Return the largest distance of each number of a function from its mean, if all chains but a few agree on it.

    `values` are those at the states of the chains, [number, move, chain], and `rows` are those after the last move. The
    function is evaluated at all states of a small model. Otherwise it is evaluated at random states, at states of
    chains with all variables changed, and at the state of one chain with each variable changed in turn.
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
    except Exception:  # A function need not be defined at these states.
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
    """Return further states, visited or not, as rows of all features in the caller's order."""
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
    random = states.model.in_callers_order(*sides)
    some = rows[np.linspace(0, len(rows) - 1, min(len(rows), _RANDOM)).astype(np.int64)]
    changed = np.where(np.isnan(what.values[:, 0]), random[: len(some)], what.values.sum(axis=1) - some)
    if (what.states >= 0).any():  # Each categorical variable takes its next state.
        last = np.append(np.diff(what.owners) != 0, True)
        start = np.searchsorted(what.owners, what.owners)
        onward = np.where(last, start, np.minimum(np.arange(len(last)) + 1, len(last) - 1))
        changed = np.where(what.states >= 0, some[:, onward], changed)
    n = int(what.owners.max()) + 1
    turned = np.linspace(0, n - 1, min(n, _CHANGED)).astype(np.int64)
    one_by_one = np.where(what.owners == turned[:, None], changed[0], some[0])
    return np.concatenate([random, changed, one_by_one])
