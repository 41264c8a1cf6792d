"""Models of factors in the package's own model files: version 3, with tables one after the other.

The keys are `factor_states` (the number of states of each variable), `factor_sizes` (of each factor the number of its
variables), `factor_variables` (these variables, numbered from 0), `factor_tables` (logarithms, −∞ for forbidden states,
the last variable changing fastest), `offset` and `labels`.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from ..models.factors import FactorModel
from .archive import Header

VERSION = 3
KEYS = ("factor_states", "factor_sizes", "factor_variables", "factor_tables")


def arrays_of_factors(model: FactorModel) -> dict[str, Any]:
    """Return the keys and arrays of the file of a model, without the labels."""
    none: Any = np.zeros(0)
    return {
        "version": VERSION,
        "factor_states": np.array(model.cards, dtype=np.int64),
        "factor_sizes": np.array([len(scope) for scope in model.scopes], dtype=np.int64),
        "factor_variables": np.array([v for scope in model.scopes for v in scope], dtype=np.int64),
        "factor_tables": np.concatenate([none, *(table.ravel() for table in model.tables)]),
        "offset": model.offset,
    }


def check_factors(headers: dict[str, Header]) -> None:
    """Raise a ValueError if the headers are not those of factors."""
    for key in KEYS:
        if key not in headers:
            raise ValueError(f"lacks the key {key!r}; a model of factors has {', '.join(KEYS)}")
        if len(headers[key].shape) != 1:
            raise ValueError(f"{key} has {len(headers[key].shape)} dimensions; it must have 1")
    if "labels" in headers:
        text, variables = headers["labels"], headers["factor_states"].size
        if text.size != 1 or text.bytes > 4096 * (variables + 1):
            raise ValueError("key 'labels' must hold one text, a JSON list")


def read_factors(arrays: dict[str, Any], offset: float, labels: Any) -> FactorModel:
    """Return the model of the arrays of a file; raise a ValueError that names the problem if they do not fit."""
    for key in KEYS[:3]:
        if arrays[key].dtype.kind not in "iu":
            raise ValueError(f"{key} must hold whole numbers")
    states, sizes, variables, tables = (arrays[key] for key in KEYS)
    if (states < 1).any() or (sizes < 0).any():
        raise ValueError("factor_states must be at least 1, and factor_sizes at least 0")
    if len(variables) != sum(sizes.tolist()) or ((variables < 0) | (variables >= len(states))).any():
        raise ValueError("factor_variables does not fit factor_sizes and factor_states")
    ends = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    scopes = [tuple(variables[a:b].tolist()) for a, b in pairwise(ends)]
    shapes = [tuple(int(states[v]) for v in scope) for scope in scopes]
    starts = [0]
    for shape in shapes:
        starts.append(starts[-1] + math.prod(shape))
    if starts[-1] != len(tables):
        raise ValueError(f"factor_tables has {len(tables)} numbers; the factors need {starts[-1]}")
    flat = tables.astype(np.float64)
    found = tuple(flat[a:b].reshape(shape).copy() for (a, b), shape in zip(pairwise(starts), shapes, strict=True))
    if any(np.isneginf(table).all() for table in found):
        raise ValueError("Z = 0: a table holds zeros only")
    return FactorModel(tuple(states.tolist()), tuple(scopes), found, offset, labels)
