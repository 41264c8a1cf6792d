"""Rows with named columns, put into the order of a model: sample sets of dimod, data frames, states by label.

This module does not import dimod or pandas: a sample set is recognised by its attributes ``variables`` and ``record``,
a data frame by ``columns``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..checks import Array, check_room, one_line, plain_array, shown
from .model import MRF

# Columns that dimod adds to the data frame of a sample set.
_COUNTS = "num_occurrences"
_RECORDED = frozenset({_COUNTS, "energy", "chain_break_fraction"})


class Labelled(NamedTuple):
    """Rows of the states of variables, a column per label."""

    labels: list[Any]
    rows: Any
    vartype: str = ""  # "SPIN" or "BINARY" if the data declares its values.


def labelled_rows(data: Any, argument: str) -> Labelled | None:
    """Return the labels and rows of data with named columns; None for other data.

    A sample that occurs several times in a sample set gives as many rows; `in_order` does the same with the data frame
    of a sample set. A data frame whose columns are only numbered counts as data without names.
    """
    if isinstance(data, Labelled):
        return data
    if hasattr(data, "variables") and hasattr(data, "record"):
        rows = repeated(np.asarray(data.record.sample), data.record.num_occurrences, argument)
        return Labelled(list(data.variables), rows, getattr(getattr(data, "vartype", None), "name", ""))
    if hasattr(data, "columns") and callable(getattr(data, "to_numpy", None)):
        labels = list(data.columns)
        return None if labels == list(range(len(labels))) else Labelled(labels, plain_array(data.to_numpy(), argument))
    if isinstance(data, tuple) and len(data) == 2 and _are_labels(data[1]):
        rows = plain_array(data[0], argument)
        return Labelled(list(data[1]), rows.reshape(1, -1) if rows.ndim == 1 else rows)
    states = [data] if isinstance(data, Mapping) else data
    if isinstance(states, list | tuple) and states and all(isinstance(row, Mapping) for row in states):
        labels = list(states[0])
        if any(row.keys() != states[0].keys() for row in states):
            raise ValueError(f"{argument} holds states of different variables")
        return Labelled(labels, plain_array([[row[label] for label in labels] for row in states], argument))
    return None


def repeated(rows: Array, counts: Any, argument: str) -> Array:
    """Return every row as often as it occurred."""
    times = np.asarray(counts)
    if times.shape != (len(rows),) or times.dtype.kind not in "iuf" or (times != np.floor(times)).any():
        raise ValueError(f"{argument} has a column {_COUNTS!r} whose entries are no whole numbers, one for each row")
    if len(times) and not 0 <= times.min() <= times.max() < 2.0**53:
        raise ValueError(f"{argument} has a column {_COUNTS!r} with entries below 0 or above 2^53")
    total = int(times.sum())
    if total == 0:
        raise ValueError(f"{argument} is empty")
    check_room(16 * total * max(1, rows.shape[1]), f"number of {argument}", total)
    return np.repeat(rows, times.astype(np.int64), axis=0)


def _without_record(model: MRF, found: Labelled, argument: str) -> Labelled:
    """Return the rows of a sample set's data frame without its other columns, each as often as it occurred."""
    known = set(model.labels)
    other = {x for x in found.labels if isinstance(x, str) and x in _RECORDED and x not in known}
    if _COUNTS not in other:
        return found
    kept = [i for i, label in enumerate(found.labels) if label not in other]
    rows = repeated(found.rows[:, kept], found.rows[:, found.labels.index(_COUNTS)], argument)
    return Labelled([found.labels[i] for i in kept], rows, found.vartype)


def _are_labels(value: Any) -> bool:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return False
    return not any(isinstance(label, list | np.ndarray) for label in value)


def in_order(model: MRF, found: Labelled, argument: str) -> tuple[Array, Array | None]:
    """Return the columns of the visible and of the hidden variables, each in the order of its side.

    The labels must be those of all variables, in any order, or those of the visible variables; then the second result
    is None.
    """
    rows = found.rows
    if rows.ndim != 2 or rows.shape[1] != len(found.labels):
        raise ValueError(f"{argument} has shape {rows.shape}; its {len(found.labels)} labels need as many columns")
    if rows.dtype.kind not in "fiub":
        raise ValueError(f"{argument} has dtype {one_line(rows.dtype, 80)}; it must hold real numbers")
    if 0 in rows.shape:
        raise ValueError(f"{argument} is empty")
    try:
        different = len(set(found.labels))
    except TypeError:
        raise ValueError(f"{argument} has labels that are lists or the like") from None
    if different < len(found.labels):
        raise ValueError(f"{argument} names a variable twice")
    found = _without_record(model, found, argument)
    place = {label: column for column, label in enumerate(found.labels)}
    known = set(model.labels)
    strange = [label for label in found.labels if label not in known]
    if strange:
        raise ValueError(
            f"{argument} has a column {shown(strange[0])}, which is no label of the model: "
            f"{one_line(', '.join(map(str, list(model.labels)[:20])), 80)}"
        )
    values = _converted(model, found.rows.astype(np.float64), found.vartype)
    v, h = (
        [place.get(model.labels[i], -1) for i in side.tolist()] for side in (model.split.visible, model.split.hidden)
    )
    if -1 in v or (-1 in h and len(place) > len(v)):
        missing = next(label for label in model.labels if label not in place)
        raise ValueError(f"{argument} has no column for the variable {shown(missing)}")
    return values[:, v], (None if -1 in h else values[:, h])


def _converted(model: MRF, values: Array, vartype: str) -> Array:
    """Return spins as 0/1 for a model of binaries, and 0/1 as spins for one of spins, if the data declares them."""
    kinds = [units for units, n in ((model.visible_units, model.n_visible), (model.hidden_units, model.n_hidden)) if n]
    if vartype in ("SPIN", "BINARY") and all(units.values is not None for units in kinds):
        names = {units.name for units in kinds}
        if names == {"binary"} and vartype == "SPIN":
            return (values + 1.0) / 2.0
        if names == {"spin"} and vartype == "BINARY":
            return 2.0 * values - 1.0
    return values
