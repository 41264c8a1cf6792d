"""Data and samples: rows of visible features, or of all features in the caller's order, validated."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import one_line, plain_array, sparse_matrix
from .forms import Layers
from .model import MRF
from .units import Array, Categorical, Gaussian, TwoState, Units


def visible_rows(model: MRF, data: Any, argument: str = "data") -> Array:
    """Return the visible side of the data as one dense array, a row per sample, every entry one its unit can have."""
    table = visible_table(model, data, argument)
    rows = np.asarray(table.toarray() if sp.issparse(table) else table, dtype=np.float64)
    return split_rows(model, rows, argument=argument)[0]


def split_rows(model: MRF, rows: Array, first: int = 0, argument: str = "data") -> tuple[Array, Array | None]:
    """Return the visible side of some rows, and the hidden one if they have it, checked."""
    if rows.shape[1] == len(model.visible_bias):
        check_rows(model.visible_units, rows, first, argument)
        return rows, None
    v, h = model.by_side(rows, argument)
    for units, side in ((model.visible_units, v), (model.hidden_units, h)):
        if side.shape[1]:
            check_rows(units, side, first, argument)
    return v, h


def visible_table(model: MRF, data: Any, argument: str = "data") -> Any:
    """Return the data as a two-dimensional array or CSR matrix of real numbers with the right columns."""
    table = data if sp.issparse(data) else plain_array(data, argument)
    if table.dtype.kind not in "fiub":
        raise ValueError(f"{argument} has dtype {one_line(table.dtype, 80)}; it must hold real numbers")
    if table.ndim == 1:
        table = (sparse_matrix(table, argument) if sp.issparse(table) else table).reshape(1, -1)
    if table.ndim != 2:
        raise ValueError(f"{argument} has {table.ndim} dimensions; it must have 2, samples x visible features")
    if 0 in table.shape:
        raise ValueError(f"{argument} is empty")
    wanted = len(model.visible_bias)
    if table.shape[1] not in (wanted, model.n_features):
        raise ValueError(
            f"{argument} has {table.shape[1]} columns; the model has {wanted} visible features"
            f"{_what_columns_are(model)}, and {model.n_features} in all"
        )
    return sparse_matrix(table, argument) if sp.issparse(table) else table


def _what_columns_are(model: MRF) -> str:
    if isinstance(model.layout, Layers) and len(model.layout.sizes) > 2:
        return (
            ": the visible side of a deep Boltzmann machine is all its even layers (model.split.visible), and rows "
            "must cover them; ln p of the first layer alone has no closed form"
        )
    if isinstance(model.visible_units, Categorical):
        return f": {model.n_visible} variables as one-hot features, variable by variable"
    return ""


def check_rows(units: Units, rows: Array, first: int = 0, argument: str = "data") -> None:
    """Raise a ValueError that names the first entry that no unit can have; rows are numbered from `first`."""
    if isinstance(units, Gaussian):
        allowed, wanted = np.isfinite(rows), "Gaussian units want finite numbers"
    elif isinstance(units, TwoState):
        allowed = np.abs(rows - units.offset) == units.scale
        wanted = (
            "binary units are 0 or 1: binarise real values, as in data > 0.5"
            if units.name == "binary"
            else "spin units are -1 or +1: 0/1 values become spins by 2*data - 1"
        )
    else:
        allowed, wanted = (rows == 0.0) | (rows == 1.0), "categorical units are one-hot features, 0 or 1"
    if not allowed.all():
        row, column = np.argwhere(~allowed)[0]
        raise ValueError(f"{argument}[{first + row}, {column}] is {rows[row, column]:g}; {wanted}")
    if isinstance(units, Categorical):
        counts = units.counts(rows.shape[1])
        chosen = np.add.reduceat(rows, np.cumsum(counts) - counts, axis=1)
        if (chosen != 1.0).any():
            row, variable = np.argwhere(chosen != 1.0)[0]
            raise ValueError(
                f"{argument}[{first + row}] gives variable {variable} {chosen[row, variable]:g} states; "
                "categorical units are one-hot features, exactly one of them 1"
            )
