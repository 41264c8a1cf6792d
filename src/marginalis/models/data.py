"""Validated rows of data and samples: visible features, all features in the caller's order, or states."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..checks import dense, one_line, plain_array, shown, sparse_matrix
from .forms import Layers
from .labelled import Labelled, in_order, labelled_rows
from .layered import as_model
from .model import MRF
from .units import Array, Units


def visible_rows(model: MRF, data: Any, argument: str = "data") -> Array:
    """Return the visible side of the data as a dense array with a row per sample, checked for allowed values."""
    table = visible_table(model, data, argument)
    rows = np.asarray(dense(table), dtype=np.float64)
    return split_rows(model, rows, argument=argument)[0]


def split_rows(model: MRF, rows: Array, first: int = 0, argument: str = "data") -> tuple[Array, Array | None]:
    """Return the features of the visible side of some rows, and of the hidden side if the rows have it, checked.

    Rows have a column per visible feature, per feature of all variables in the caller's order, or per variable, visible
    or all. A column per variable holds the state numbers of categorical units.
    """
    width = rows.shape[1]
    if width == len(model.visible_bias):
        try:
            model.visible_units.check_rows(rows, first, argument)
        except ValueError as error:
            if width != model.n_variables or not _has_states(model):
                raise
            raise ValueError(
                f"{error}. {width} columns could be {width} visible features or the states of {width} variables: give "
                f"all {model.n_features} features or the {model.n_visible} visible states"
            ) from None
        return rows, None
    if width == model.n_features:
        sides = model.by_side(rows, argument)
    elif width == model.n_visible:
        return features_of(model.visible_units, rows, len(model.visible_bias), first, argument), None
    else:
        sides = rows[:, model.split.visible], rows[:, model.split.hidden]
    columns = (model.split.visible, model.split.hidden) if width == model.n_variables else (None, None)
    return (
        features_of(model.visible_units, sides[0], len(model.visible_bias), first, argument, columns[0]),
        features_of(model.hidden_units, sides[1], len(model.hidden_bias), first, argument, columns[1]),
    )


def features_of(
    units: Units, rows: Array, features: int, first: int = 0, argument: str = "data", columns: Any = None
) -> Array:
    """Return rows of features or of state numbers of one side as features, checked.

    `columns` are names or numbers of the variables for messages.
    """
    if rows.shape[1] == features or not units.is_one_hot:
        if rows.shape[1]:
            units.check_rows(rows, first, argument, columns)
        return rows
    counts = np.bincount(units.owners(features))
    wrong = np.argwhere((rows != np.floor(rows)) | (rows < 0.0) | (rows >= counts))
    if len(wrong):
        row, place = wrong[0]
        column = place if columns is None else columns[place]
        raise ValueError(
            f"{argument}[{first + row}, {column}] is {rows[row, place]:g}; the states of that variable are numbered "
            f"from 0 to {counts[place] - 1}"
        )
    one_hot = np.zeros((len(rows), features))
    one_hot[np.arange(len(rows))[:, None], np.cumsum(counts) - counts + rows.astype(np.int64)] = 1.0
    return one_hot


def states(model: Any, rows: Any) -> NDArray[np.int64]:
    """Return rows of features as state numbers, with a column per variable.

    States of categorical variables are numbered from 0; the lower value of a spin or binary unit is state 0 and the
    higher value state 1.

    Parameters
    ----------
    model
        The model, which knows the kinds of its units.
    rows
        Rows of all features, as those of `sample` or those that a function of `expectations` receives.
    """
    model = as_model(model)
    table = visible_table(model, rows, "rows")
    visible, hidden = split_rows(model, np.asarray(dense(table), dtype=np.float64), argument="rows")
    v = model.visible_units.states_of(visible)
    if hidden is None:
        return v
    found = np.empty((len(v), model.n_variables), dtype=np.int64)
    found[:, model.split.visible] = v
    found[:, model.split.hidden] = model.hidden_units.states_of(hidden)
    return found


def _has_states(model: MRF) -> bool:
    return any(units.is_one_hot for units in (model.visible_units, model.hidden_units))


def visible_table(model: MRF, data: Any, argument: str = "data") -> Any:
    """Return the data as a two-dimensional array or CSR matrix of real numbers, with the columns of the model.

    Columns without names are in the order of the model's labels; columns with names may have any order.
    """
    named = None if sp.issparse(data) else labelled_rows(data, argument)
    if named is not None:
        data = _features_by_label(model, named, argument)
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
    by_states = (model.n_visible, model.n_variables) if _has_states(model) else ()
    if table.shape[1] not in (wanted, model.n_features, *by_states):
        raise ValueError(
            f"{argument} has {table.shape[1]} columns; the model has {wanted} visible features"
            f"{_what_columns_are(model)}, and {model.n_features} in all"
            + (f" (or {model.n_variables} columns of states)" if by_states else "")
            + ". Columns are in the order of model.labels; a dimod SampleSet or a DataFrame is taken by label"
        )
    return sparse_matrix(table, argument) if sp.issparse(table) else table


def _features_by_label(model: MRF, named: Labelled, argument: str) -> Array:
    """Return rows of all features in the caller's order, or of the visible features if the data has only these."""
    visible, hidden = in_order(model, named, argument)
    names = [[shown(model.labels[i]) for i in side.tolist()] for side in (model.split.visible, model.split.hidden)]
    v = features_of(model.visible_units, visible, len(model.visible_bias), 0, argument, names[0])
    if hidden is None:
        return v
    h = features_of(model.hidden_units, hidden, len(model.hidden_bias), 0, argument, names[1])
    return model.in_callers_order(v, h)


def _what_columns_are(model: MRF) -> str:
    if isinstance(model.layout, Layers) and len(model.layout.sizes) > 2:
        return (
            ": the visible side of a deep Boltzmann machine is all its even layers (model.split.visible), and rows "
            "must cover them; ln p of the first layer alone has no closed form"
        )
    if model.visible_units.is_one_hot:
        return f" ({model.n_visible} variables one-hot, or {model.n_visible} columns of states)"
    return ""
