"""Exact sums of small connected parts of a model, which are then not sampled and add no variance."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..exact import eliminate, exact_log_z
from ..exact.connected_parts import features_of, pieces, submodel
from ..models.model import MRF
from .base import Base

# A connected part is small if one of its sides has at most 2^12 states.
_SMALL_STATES = 12.0
# A part that is nearly a tree is small if elimination needs tables of at most 2^14 entries.
_SMALL_TABLES = 14.0
# A Gaussian part is small if at most this many variables are left after one side is integrated out.
_SMALL_GAUSSIAN = 2000


def sum_small_parts(model: MRF, base: Base) -> tuple[MRF | None, Base, float]:
    """Sum out exactly the isolated variables and the small connected parts of a model that has several parts.

    Returns the model that is left to be annealed (None if nothing is left), its base, and the exact ln(Z/Z_0) of the
    parts that were summed, offset included.
    """
    visible, hidden, count = model.connected_parts
    alone = np.bincount(visible, minlength=count) + np.bincount(hidden, minlength=count) == 1
    exact = model.natural.offset + _free_log_ratio(model, base, alone[visible], alone[hidden])
    left = ~alone
    if left.sum() > 1:
        small = left & _small_parts(model)
        if small.any():
            chosen = small[visible], small[hidden]
            rest = submodel(model, *chosen)
            exact += _log_z_of_small(rest) - _subbase(model, base, *chosen).log_z(rest)
            left &= ~small
    if not left.any():
        return None, base, exact
    keep = left[visible], left[hidden]
    return submodel(model, *keep), _subbase(model, base, *keep), exact


def _small_parts(model: MRF) -> Any:
    """Return for each connected part whether it is small enough to be summed exactly."""
    visible, hidden, count = model.connected_parts
    per_variable = (
        model.visible_units.log2_states(len(visible)),
        model.hidden_units.log2_states(len(hidden)),
    )
    sides = [
        np.bincount(side, weights=states, minlength=count)
        for side, states in zip((visible, hidden), per_variable, strict=True)
    ]
    edges = np.bincount(visible[model.edges[:, 0]], minlength=count)
    edges += np.bincount(visible[model.lateral_edges[:, 0]], minlength=count)
    variables = np.bincount(visible, minlength=count) + np.bincount(hidden, minlength=count)
    v, h = (side.precisions is not None for side in (model.visible_units, model.hidden_units))
    if v and h:  # The sum has a closed form.
        own = np.bincount(visible, minlength=count)
        return (own if not model.is_bipartite else np.minimum(own, variables - own)) <= _SMALL_GAUSSIAN
    largest = max(np.max(states, initial=0.0) for states in per_variable)  # Bits of one variable.
    # The largest table of an elimination has at most two variables more than the part has independent cycles.
    width = (edges - variables + 3) * largest
    states = np.minimum(*sides) if model.is_bipartite or v else sides[0]  # Gaussians can be integrated out anyway
    return (states <= _SMALL_STATES) | (width <= _SMALL_TABLES)


def _log_z_of_small(rest: MRF) -> float:
    """Return ln Z of a model of small parts, by one elimination if it is discrete and part by part otherwise."""
    together = eliminate(rest)
    if together is not None:
        return together
    return sum(exact_log_z(piece, threads=1) for piece in pieces(rest))


def _subbase(model: MRF, base: Base, visible: Any, hidden: Any) -> Base:
    rows, columns = features_of(model, visible, hidden)
    return Base(base.visible[rows], base.hidden[columns])


def _free_log_ratio(model: MRF, base: Base, visible: Any, hidden: Any) -> float:
    """Return ln(Z/Z_0) of variables without couplings."""
    rows, columns = features_of(model, visible, hidden)
    natural = model.natural
    total = 0.0
    for units, chosen, at, own, start in (
        (natural.visible_units, visible, rows, natural.visible_bias, base.visible),
        (natural.hidden_units, hidden, columns, natural.hidden_bias, base.hidden),
    ):
        if len(at):
            side = units.take(np.flatnonzero(chosen))
            fields = np.stack([own[at], start[at]])
            target, initial = side.log_normaliser(fields)
            total += float(target - initial)
    return total
