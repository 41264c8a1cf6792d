"""Bases that hold variables in a state which the model may not share: seen before the run, and not in its weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import Array
from ..models.forms import Natural, highest, less
from ..models.model import MRF
from ..models.units import Units
from .base import Base

_HELD = 6.0  # log-odds of a state outside of which hardly a chain starts,
_CONTESTED = 20.0  # and of another one in the model for chains not to get there on the way
_ROUNDS = 20


def unseen_share(model: MRF | None, base: Base, chains: int) -> float:
    """Return about what share of the mean weight states may have that none of the chains has met.

    N chains may have missed what weighs 1/N. It can add to the mean weight or take from it as far as its weight can
    differ from those of the others, which the range of the change of −E along the path bounds. The uniform base starts
    in all states alike, and a mixture keeps a share of it: there the spread of the weights shows what there is.
    """
    if model is None or base.is_uniform:
        return 0.0
    return math.expm1(min(range_of_change(model, base), math.log(2.0))) / chains


def range_of_change(model: MRF, base: Base) -> float:
    """Return an upper bound of the range of −E of the model less that of the base; ∞ for Gaussians."""
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

    return highest_of(1.0) + highest_of(-1.0)


@np.errstate(over="ignore", invalid="ignore")  # beyond the largest number is far enough
def held_variables(model: MRF, base: Base) -> int:
    """Count the variables that P_0 holds in one state and the model may hold in another.

    All chains start with such a variable in the same state, and on a cold model they stay in its part of the space:
    their weights agree with each other, whatever lies elsewhere. Fields of the model range between ends that follow
    from the ends of the other side's mean-field averages, and those from its fields in turn. Bases on weak or warm
    couplings, or with strong fields of the model's own, are found harmless in this way. How the two limits do on models
    that they were not chosen on is in docs/how-sure.md.
    """
    if 2.0 * max(np.abs(x).max(initial=0.0) for x in (base.visible, base.hidden)) <= _HELD:
        return 0
    if not model.visible_units.is_discrete:
        if not (model.hidden_units.is_discrete and model.is_bipartite):
            return 0
        model, base = model.transposed(), base.transposed()
    natural = model.natural
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
    return _held(v_units, base.visible, *v_fields) + _held(h_units, base.hidden, *h_fields)


def _signs(w: Any) -> tuple[Any, Any]:
    """Return the positive and the negative part of a matrix."""
    return (w.maximum(0.0), w.minimum(0.0)) if sp.issparse(w) else (np.maximum(w, 0.0), np.minimum(w, 0.0))


def _field_ends(own: Array, means: tuple[Array, Array], weights: tuple[Array, Array]) -> tuple[Array, Array]:
    """Least and largest fields of a side, from those of the means of the other and positive and negative weights."""
    (low, high), (positive, negative) = means, weights
    return own + low @ positive + high @ negative, own + high @ positive + low @ negative


def _held(units: Units, start: Array, low: Array, high: Array) -> int:
    """Count the variables of a side that fields `start` hold in a state, and some between the ends in another."""
    held = units.is_held(start, low, high, _HELD, _CONTESTED)
    return len(np.unique(units.owners(len(start))[held]))
