"""Models with some variables held at given values, as evidence, classes or conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import Array, real_number, shown, whole
from .forms import Indices, Split
from .units import Units

if TYPE_CHECKING:
    from .model import MRF


def held_at(model: MRF, held: Mapping[Any, Any]) -> MRF:
    """Return the model of the other variables, given values of some by label; its ln Z sums over the others only."""
    if not isinstance(held, Mapping):
        raise ValueError(f"held is {shown(held)}; it must map labels to values")
    number = {label: i for i, label in enumerate(model.labels)}
    values: dict[int, Any] = {}
    for label, value in held.items():
        if label not in number:
            raise ValueError(f"held names the variable {shown(label)}, which the model does not have")
        values[number[label]] = value
    if len(values) == model.n_variables:
        raise ValueError("held names all variables of the model: nothing is left to sum")
    v = _Side(model, model.visible_units, model.split.visible, len(model.visible_bias), values)
    h = _Side(model, model.hidden_units, model.split.hidden, len(model.hidden_bias), values)
    weights = sp.csr_array(model.weights) if sp.issparse(model.weights) else model.weights
    from_h, from_v = weights @ h.row, v.row @ weights
    offset = model.offset + v.own + h.own + model.visible_bias @ v.row + model.hidden_bias @ h.row + v.row @ from_h
    visible = model.visible_bias + from_h
    lateral = model.lateral
    if lateral is not None:
        lateral = sp.csr_array(lateral) if sp.issparse(lateral) else lateral
        pull = lateral @ v.row
        visible, offset = visible + pull, offset + 0.5 * (v.row @ pull)
        lateral = lateral[v.left][:, v.left]
        lateral = lateral if len(v.left) and abs(lateral).sum() else None
    left = np.sort(np.concatenate([v.callers, h.callers]))
    block = weights[v.left][:, h.left]
    visible_units, hidden_units = model.visible_units.take(v.variables), model.hidden_units.take(h.variables)
    none = np.zeros(0, dtype=np.int64)
    if not len(v.left):  # A side without variables takes the kind of the other side.
        visible_units = model.hidden_units.take(none)
    if not len(h.left):
        hidden_units = model.visible_units.take(none)
    found = replace(
        model,
        weights=block if 0 not in block.shape else sp.csr_array(block.shape),
        visible_bias=visible[v.left],
        hidden_bias=(model.hidden_bias + from_v)[h.left],
        visible_units=visible_units,
        hidden_units=hidden_units,
        offset=float(offset),
        split=Split(np.searchsorted(left, v.callers), np.searchsorted(left, h.callers)),
        layout=None,
        lateral=lateral,
        labels=[model.labels[i] for i in left.tolist()],
    )
    return found if len(v.left) else found.transposed()


class _Side:
    """The variables left on a side, their features, and a row of all features with zeros for those left."""

    def __init__(self, model: MRF, units: Units, callers: Indices, features: int, values: Mapping[int, Any]) -> None:
        owners = units.owners(features)
        is_held = np.array([i in values for i in callers.tolist()], dtype=bool)
        self.variables = np.flatnonzero(~is_held)
        self.callers = callers[self.variables]
        self.left = np.flatnonzero(~is_held[owners]) if features else np.zeros(0, dtype=np.int64)
        self.row = np.zeros(features)
        self.own = 0.0
        held = np.flatnonzero(is_held)
        if not len(held):
            return
        for k in held.tolist():
            label, value = model.labels[callers[k]], values[int(callers[k])]
            own = np.flatnonzero(owners == k)
            self.row[own] = _features(units.take(np.array([k])), len(own), value, f"the value of {shown(label)}")
        self.own = float(units.take(held).own_terms(self.row[is_held[owners]][None])[0])


def _features(units: Units, features: int, value: Any, argument: str) -> Array:
    """Return the features of one variable at a value, which is a state number for categorical variables."""
    if units.is_one_hot:
        return np.eye(features)[whole(value, argument, 0, features - 1)]
    row = np.array([real_number(value, argument)])
    allowed, wanted = units.allows(row[None])
    if not allowed.all():
        raise ValueError(f"{argument} is {row[0]:g}; {wanted}")
    return row
