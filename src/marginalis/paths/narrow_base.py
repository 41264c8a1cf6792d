"""Checks of a base before the run: whether its chains may miss states of the model, which the weights do not show."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import Array
from ..models.forms import Natural, highest, less
from ..models.interacting import range_of_terms
from ..models.model import MRF
from ..models.units import Units
from .base import Base

# A base fixes a variable in a state if the log-odds of the state exceed this.
_FIXING_LOG_ODDS = 6.0
# Chains may fail to reach another state if its log-odds in the model may exceed this.
_REACHABLE_LOG_ODDS = 20.0
# Maximal number of rounds that narrow the ranges of the fields.
_ROUNDS = 20


def unseen_share(model: MRF | None, base: Base, chains: int) -> float:
    """Return roughly the share of the mean weight that may come from states that no chain has visited.

    N chains may miss states of total probability 1/N. These change the mean weight at most as far as their weights
    differ from the others, and the range of the change of −E along the path bounds this difference. The share is 0 for
    the uniform base, which all mixtures contain: it starts in all states with equal probability, so that the spread of
    the weights is reliable.
    """
    if model is None or base.is_uniform:
        return 0.0
    return math.expm1(min(range_of_change(model, base), math.log(2.0))) / chains


def range_of_change(model: MRF, base: Base) -> float:
    """Return an upper bound of the range of −E of the model minus −E of the base; ∞ for Gaussians."""
    end = model.natural

    def highest_of(sign: float) -> float:
        """Return an upper bound of the change, or of its negative."""
        w, lateral = (less(x, y) for x, y in ((end.weights, base.weights), (end.lateral, base.lateral)))
        return highest(
            Natural(
                sign * w,
                sign * (end.visible_bias - base.visible),
                sign * (end.hidden_bias - base.hidden),
                end.visible_units,
                end.hidden_units,
                0.0,
                None if lateral is None else sign * lateral,
            )
        )

    found = highest_of(1.0) + highest_of(-1.0)
    return found + sum(range_of_terms(x) for x in (model, base) if x.has_terms)


@np.errstate(over="ignore", invalid="ignore")  # An infinite range is a valid bound.
def count_fixed_variables(model: MRF, base: Base) -> int:
    """Count the variables that P_0 fixes in one state and the model may put into another.

    All chains start with such a variable in the same state. On a cold model they stay in that part of the space, and
    their weights agree with each other whatever the weight of the rest. The range of the model's fields follows from
    the range of the mean-field averages of the other side, and that range from its fields in turn. Bases on weak
    couplings, or with strong fields of the model itself, pass this test. docs/how-sure.md shows how well the two limits
    work on models other than those they were chosen on.
    """
    if 2.0 * max(np.abs(x).max(initial=0.0) for x in (base.visible, base.hidden)) <= _FIXING_LOG_ODDS:
        return 0
    if not model.visible_units.is_discrete:
        if not (model.hidden_units.is_discrete and model.is_bipartite):
            return 0
        model, base = model.transposed(), base.transposed()
    natural = model.natural
    if model.has_terms:  # The fields of a variable lie within the reach of its terms.
        sides = zip(
            (natural.visible_units, natural.hidden_units),
            (base.visible, base.hidden),
            (natural.visible_bias, natural.hidden_bias),
            model.partial_spin_form.reach,
            strict=True,
        )
        return sum(_count_fixed(units, start, own - reach, own + reach) for units, start, own, reach in sides)
    w, v_units, h_units = natural.weights, natural.visible_units, natural.hidden_units
    parts = _signs(w)
    back = parts[0].T, parts[1].T
    inside = None if natural.lateral is None else _signs(natural.lateral)
    endless = np.full_like(natural.visible_bias, np.inf)
    v = v_units.mean_ends(-endless, endless)
    for _ in range(_ROUNDS):
        before = v
        h_fields = _field_ends(natural.hidden_bias, v, parts)
        v_fields = _field_ends(natural.visible_bias, h_units.mean_ends(*h_fields), back)
        if inside is not None:
            low, high = _field_ends(np.zeros_like(natural.visible_bias), v, inside)
            v_fields = v_fields[0] + low, v_fields[1] + high
        v = v_units.mean_ends(*v_fields)
        if np.allclose(v, before, rtol=0.0, atol=1e-6):
            break
    return _count_fixed(v_units, base.visible, *v_fields) + _count_fixed(h_units, base.hidden, *h_fields)


def _signs(w: Any) -> tuple[Any, Any]:
    """Return the positive and the negative part of a matrix."""
    return (w.maximum(0.0), w.minimum(0.0)) if sp.issparse(w) else (np.maximum(w, 0.0), np.minimum(w, 0.0))


def _field_ends(own: Array, means: tuple[Array, Array], weights: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the least and largest fields of a side, from the ranges of the other side's means and the weights."""
    (low, high), (positive, negative) = means, weights
    return own + low @ positive + high @ negative, own + high @ positive + low @ negative


def _count_fixed(units: Units, start: Array, low: Array, high: Array) -> int:
    """Count the variables that the fields `start` fix in one state and fields in the range may put into another."""
    missed = units.may_be_missed(start, low, high, _FIXING_LOG_ODDS, _REACHABLE_LOG_ODDS)
    return len(np.unique(units.owners(len(start))[missed]))
