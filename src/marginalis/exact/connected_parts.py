"""Connected parts of a model: isolated variables in closed form, the other parts as models of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..models.forms import Indices
from ..models.model import MRF
from ..models.units import Units


def submodel(model: MRF, visible: Any, hidden: Any) -> MRF:
    """Return the model of the variables chosen by two masks, without the offset."""
    rows, columns = features_of(model, visible, hidden)
    return MRF(
        _whole(model.weights[rows][:, columns]),
        model.visible_bias[rows],
        model.hidden_bias[columns],
        model.visible_units.take(np.flatnonzero(visible)),
        model.hidden_units.take(np.flatnonzero(hidden)),
        model.temperature,
        lateral=None if model.lateral is None or not len(rows) else model.lateral[rows][:, rows],
    )


def _whole(matrix: Any) -> Any:
    """Return a matrix, possibly without entries, in a form that a model accepts."""
    return matrix if 0 not in matrix.shape else sp.csr_array(matrix.shape)


def features_of(model: MRF, visible: Any, hidden: Any) -> tuple[Indices, Indices]:
    """Return the indices of the features of the variables chosen by two masks."""
    return (
        np.flatnonzero(visible[model.visible_units.owners(len(model.visible_bias))]),
        np.flatnonzero(hidden[model.hidden_units.owners(len(model.hidden_bias))]),
    )


def isolated(model: MRF) -> tuple[Any, Any]:
    """Return masks of the visible and of the hidden variables without couplings."""
    visible, hidden = np.ones(model.n_visible, dtype=bool), np.ones(model.n_hidden, dtype=bool)
    visible[model.edges[:, 0]] = hidden[model.edges[:, 1]] = False
    visible[model.lateral_edges.ravel()] = False
    return visible, hidden


def log_z_of_isolated(model: MRF, visible: Any, hidden: Any) -> tuple[float, float]:
    """Return ln Z of the uncoupled variables chosen by two masks, and the total size of its terms."""
    natural = model.natural
    rows, columns = features_of(model, visible, hidden)
    value = size = 0.0
    for units, chosen, fields in (
        (natural.visible_units, visible, natural.visible_bias[rows]),
        (natural.hidden_units, hidden, natural.hidden_bias[columns]),
    ):
        if len(fields):
            side = units.take(np.flatnonzero(chosen))
            value += float(side.log_normaliser(fields[None])[0])
            size += side.size(fields)
    return value, size


def pieces(model: MRF) -> Iterator[MRF]:
    """Yield every connected part as a model, without the offset.

    The variables are first sorted by part, so that a part is a range of rows and columns.
    """
    visible, hidden, count = model.connected_parts
    order_v, order_h = np.argsort(visible, kind="stable"), np.argsort(hidden, kind="stable")
    rows, row_ends = _by_part(model.visible_units, len(model.visible_bias), visible, order_v, count)
    columns, column_ends = _by_part(model.hidden_units, len(model.hidden_bias), hidden, order_h, count)
    ends_v, ends_h = (np.append(0, np.cumsum(np.bincount(x, minlength=count))) for x in (visible, hidden))
    weights, b, c = model.weights[rows][:, columns], model.visible_bias[rows], model.hidden_bias[columns]
    lateral = None if model.lateral is None else model.lateral[rows][:, rows]
    for part in range(count):
        v, h = slice(*row_ends[part : part + 2]), slice(*column_ends[part : part + 2])
        yield MRF(
            _whole(_block(weights, v, h)),
            b[v],
            c[h],
            model.visible_units.take(order_v[slice(*ends_v[part : part + 2])]),
            model.hidden_units.take(order_h[slice(*ends_h[part : part + 2])]),
            model.temperature,
            lateral=None if lateral is None or v.start == v.stop else _block(lateral, v, v),
        )


def _by_part(units: Units, features: int, part: Indices, order: Indices, count: int) -> tuple[Indices, Indices]:
    """Return the features of a side in the order of its variables, and the end of the features of each part."""
    owners = units.owners(features)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    ends = np.cumsum(np.bincount(part[owners], minlength=count))
    return np.argsort(rank[owners], kind="stable"), np.append(0, ends)


def _block(matrix: Any, rows: slice, columns: slice) -> Any:
    return sp.csr_array(matrix[rows])[:, columns] if sp.issparse(matrix) else matrix[rows, columns]
