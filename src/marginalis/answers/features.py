"""The features of a model in the caller's order: their variables, and the coupled pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import real_array, shown
from ..models.forms import Indices
from ..models.model import MRF
from ..models.units import Array

Function = Callable[[Array], Any]


@dataclass(frozen=True, eq=False)
class Features:
    """Description of each feature, in the caller's order of variables, not that of the two sides.

    `values` are the two values of a two-state variable, 0 and 1 for a state of a categorical variable, and NaN for a
    Gaussian variable.
    """

    labels: Sequence[Any]  # Labels of the variables.
    owners: Indices  # Variable of each feature.
    states: Indices  # State that a one-hot feature represents; -1 for other features.
    values: Array  # The two values of each feature, [feature, 2].
    pairs: Indices  # Numbers a < b of coupled features, sorted.

    @classmethod
    def of(cls, model: MRF) -> Features:
        """Return the features of a model."""
        n = model.n_features
        owners, states = np.zeros(n, dtype=np.int64), np.full(n, -1, dtype=np.int64)
        values = np.zeros((n, 2))
        v, h = model.callers_features()
        for units, at, variables in (
            (model.visible_units, v, model.split.visible),
            (model.hidden_units, h, model.split.hidden),
        ):
            own = units.owners(len(at))
            owners[at] = variables[own]
            values[at] = np.nan if units.bounds is None else units.bounds
            if units.is_one_hot:
                states[at] = np.arange(len(at)) - np.searchsorted(own, own)
        return cls(model.labels, owners, states, values, _pairs(model, v, h))

    def name(self, feature: int) -> Any:
        """Return the name of a feature: the label of its variable, together with the state for a one-hot feature."""
        label, state = self.labels[self.owners[feature]], int(self.states[feature])
        return label if state < 0 else (label, state)


def _pairs(model: MRF, v: Indices, h: Indices) -> Indices:
    found = [np.zeros((0, 2), dtype=np.int64)]
    for block, one, two in ((model.weights, v, h), (model.lateral, v, v)):
        if block is not None:
            links = sp.coo_array(block)
            a, b = (side[at[links.data != 0]] for side, at in zip((one, two), links.coords, strict=True))
            found.append(np.stack([np.minimum(a, b), np.maximum(a, b)], axis=1))
    return np.unique(np.concatenate(found), axis=0)


def named_functions(functions: Any) -> dict[str, Function]:
    """Return the given functions by name; they may be one function, a list, or a mapping from names."""
    if functions is None:
        return {}
    if callable(functions):
        functions = [functions]
    if not isinstance(functions, dict):
        if not isinstance(functions, list | tuple):
            raise ValueError(f"functions is {shown(functions)}; it must be a function, a list or a dict of them")
        names = [getattr(f, "__name__", "function") for f in functions]
        plain = len(set(names)) == len(names) and "<lambda>" not in names
        functions = {name if plain else f"function {i}": f for i, (name, f) in enumerate(zip(names, functions))}  # noqa: B905
    for name, function in functions.items():
        if not callable(function):
            raise ValueError(f"functions[{shown(name)}] is {shown(function)}; it must be a function of rows of states")
    return {str(name): function for name, function in functions.items()}


def evaluated(function: Function, name: str, rows: Array) -> Array:
    """Return the values of a function at rows of states: numbers [row], or several of them [row, number]."""
    values = real_array(function(rows), f"functions[{name!r}] of the states", None)
    if values.ndim not in (1, 2) or len(values) != len(rows):
        raise ValueError(
            f"functions[{name!r}] gives an array of shape {values.shape} for {len(rows)} rows of states; "
            "it must be one number per row, or one row of numbers"
        )
    return values
