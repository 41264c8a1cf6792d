"""The one class of model, and the constructors that make it.

Every model is a Markov random field on a bipartite graph with energy

    E(v, h) = −(b·v + c·h + vᵀWh)/T,    P(v, h) = exp(−E(v, h))/Z

(the paper's eq. RBM, and with one-hot features its general bipartite energy, eq. bipartite_energy_k).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from .units import SPIN, Array, TwoState, Units, parse_units

Coupling = Any  # a float64 array or a scipy.sparse.csr_array


@dataclass(frozen=True, eq=False)
class BipartiteMRF:
    """Visible variables v, hidden variables h, and the coupling between the two sides.

    Parameters
    ----------
    weights
        Coupling w_ij, |V| × |H|: an array, or any ``scipy.sparse`` matrix, which stays sparse.
    visible_bias, hidden_bias
        Fields b_i and c_j.
    visible_units, hidden_units
        The kind of the variables of each side.
    temperature
        T > 0, divides the whole energy.
    """

    weights: Coupling
    visible_bias: Array
    hidden_bias: Array
    visible_units: Units = SPIN
    hidden_units: Units = SPIN
    temperature: float = 1.0
    natural: Natural = field(init=False, repr=False)

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "weights", _coupling(self.weights))
        rows, columns = self.weights.shape
        set_(self, "visible_bias", _bias(self.visible_bias, rows, "visible_bias", "rows"))
        set_(self, "hidden_bias", _bias(self.hidden_bias, columns, "hidden_bias", "columns"))
        set_(self, "temperature", _temperature(self.temperature))
        with np.errstate(over="ignore"):
            scaled = [x / self.temperature for x in (self.weights, self.visible_bias, self.hidden_bias)]
        if not all(np.isfinite(x.data if sp.issparse(x) else x).all() for x in scaled):
            raise ValueError(f"temperature is {self.temperature!r}: the parameters divided by it overflow")
        set_(self, "natural", Natural(*scaled))

    @property
    def n_visible(self) -> int:
        """Number of visible variables, |V|."""
        return self.visible_units.variables(len(self.visible_bias))

    @property
    def n_hidden(self) -> int:
        """Number of hidden variables, |H|."""
        return self.hidden_units.variables(len(self.hidden_bias))

    @property
    def n_variables(self) -> int:
        """Number of all variables, n = |V| + |H|."""
        return self.n_visible + self.n_hidden

    @property
    def is_sparse(self) -> bool:
        """Whether the coupling is stored as a sparse matrix."""
        return sp.issparse(self.weights)

    def transposed(self) -> BipartiteMRF:
        """Return the same model with the names of the two sides exchanged: mAIS-H is mAIS-V of this."""
        return BipartiteMRF(
            self.weights.T,
            self.hidden_bias,
            self.visible_bias,
            self.hidden_units,
            self.visible_units,
            self.temperature,
        )

    @cached_property
    def spin_form(self) -> SpinForm | None:
        """The equivalent model of ±1 spins, or None if a side is not made of two-state units."""
        v, h = self.visible_units, self.hidden_units
        if not (isinstance(v, TwoState) and isinstance(h, TwoState)):
            return None
        w, b, c = self.natural
        w_rows, w_columns = np.asarray(w.sum(axis=1)).ravel(), np.asarray(w.sum(axis=0)).ravel()
        return SpinForm(
            weights=w * (v.scale * h.scale),
            visible_bias=v.scale * (b + h.offset * w_rows),
            hidden_bias=h.scale * (c + v.offset * w_columns),
            constant=v.offset * math.fsum(b) + h.offset * math.fsum(c) + v.offset * h.offset * w_rows.sum(),
        )


@dataclass(frozen=True)
class Natural:
    """Parameters of the exponent itself: everything divided by the temperature."""

    weights: Coupling
    visible_bias: Array
    hidden_bias: Array

    def __iter__(self) -> Any:
        return iter((self.weights, self.visible_bias, self.hidden_bias))


@dataclass(frozen=True)
class SpinForm(Natural):
    """Natural parameters in ±1 spins; −E of the original model is theirs plus `constant`."""

    constant: float


def rbm(
    weights: ArrayLike | Any,
    visible_bias: ArrayLike,
    hidden_bias: ArrayLike,
    *,
    units: str | Sequence[str] = "spin",
    temperature: float = 1.0,
) -> BipartiteMRF:
    """Restricted Boltzmann machine with weights of shape |V| × |H|.

    `units` is ``"spin"`` (−1, +1) or ``"binary"`` (0, 1), or a pair (visible, hidden).
    """
    pair = (units, units) if isinstance(units, str) else tuple(units)
    if len(pair) != 2:
        raise ValueError(f"units is {units!r}; it must be one word or a pair (visible, hidden)")
    return BipartiteMRF(
        weights,
        visible_bias,  # type: ignore[arg-type]  # validated and converted at this door
        hidden_bias,  # type: ignore[arg-type]
        parse_units(pair[0], "visible units"),
        parse_units(pair[1], "hidden units"),
        temperature,
    )


def real_array(value: object, argument: str, ndim: Literal[1, 2]) -> Array:
    """Return a read-only float64 copy of `value`, or raise a ValueError that names the argument."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{argument} is not a rectangular array of numbers") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{argument} has dtype {array.dtype}; it must hold real numbers")
    if array.ndim != ndim:
        raise ValueError(f"{argument} has {array.ndim} dimensions; it must have {ndim}")
    if array.size == 0:
        raise ValueError(f"{argument} is empty")
    array = np.array(array, dtype=np.float64, order="C")
    if not np.isfinite(array).all():
        raise ValueError(f"{argument} holds NaN or infinite values")
    array.flags.writeable = False
    return array


def _coupling(weights: Any) -> Coupling:
    if not sp.issparse(weights):
        return real_array(weights, "weights", 2)
    if weights.ndim != 2 or 0 in weights.shape:
        raise ValueError(f"weights has shape {weights.shape}; it must have two dimensions and not be empty")
    matrix = sp.csr_array(weights, copy=True)
    matrix.sum_duplicates()
    if matrix.nnz:
        matrix.data = real_array(matrix.data, "weights", 1)
    else:
        matrix = matrix.astype(np.float64)
    return matrix


def _bias(value: object, length: int, argument: str, what: str) -> Array:
    array = real_array(value, argument, 1)
    if len(array) != length:
        raise ValueError(f"{argument} has length {len(array)}, but weights has {length} {what}")
    return array


def _temperature(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number | np.ndarray):
        raise ValueError(f"temperature is {value!r}; it must be a positive number")
    if np.ndim(value) != 0 or not np.isreal(value):
        raise ValueError(f"temperature is {value!r}; it must be one real number")
    temperature = float(np.real(value))
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature is {temperature!r}; it must be positive and finite")
    return temperature
