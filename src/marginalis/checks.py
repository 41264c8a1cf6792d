"""Validation at the door: a value of the right kind, or a ValueError that names the argument."""

from __future__ import annotations

import operator
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from .units import Array


def whole(value: object, argument: str, low: int, high: int) -> int:
    """Return `value` as an int in [low, high], or raise a ValueError that names the argument."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        if not (isinstance(value, float | np.floating) and float(value).is_integer()):
            raise ValueError(f"{argument} is {value!r}; it must be a whole number") from None
        number = int(value)
    if isinstance(value, bool | np.bool_):
        raise ValueError(f"{argument} is {value!r}; it must be a whole number")
    if not low <= number <= high:
        bound = f"at least {low}" if number < low else f"at most {high}"
        raise ValueError(f"{argument} is {value!r}; it must be {bound}")
    return number


def real_array(value: object, argument: str, ndim: Literal[1, 2] | None) -> Array:
    """Return a read-only float64 copy of `value`, or raise a ValueError that names the argument."""
    try:
        if np.ma.is_masked(value):
            raise ValueError(f"{argument} has masked entries")
        array = np.asarray(value)
    except ValueError as error:
        if "masked" in str(error):
            raise
        raise ValueError(f"{argument} is not a rectangular array of numbers") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{argument} has dtype {array.dtype}; it must hold real numbers")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{argument} has {array.ndim} dimensions; it must have {ndim}")
    if array.size == 0:
        raise ValueError(f"{argument} is empty")
    array = np.array(array, dtype=np.float64, order="C")
    if not np.isfinite(array).all():
        raise ValueError(f"{argument} holds NaN or infinite values")
    array.flags.writeable = False
    return array


def real_number(value: Any, argument: str) -> float:
    """Return `value` as a finite float, or raise a ValueError that names the argument."""
    array = np.asarray(value)
    if array.ndim != 0 or array.dtype.kind not in "fiu":
        raise ValueError(f"{argument} is {value!r}; it must be one real number")
    if not np.isfinite(array):
        raise ValueError(f"{argument} is {float(array)!r}; it must be finite")
    return float(array)


def coupling_matrix(weights: Any) -> Any:
    """Return `weights` as a read-only float64 array or, if it is sparse, as a canonical CSR matrix."""
    if not sp.issparse(weights):
        return real_array(weights, "weights", 2)
    if weights.ndim != 2 or not any(weights.shape):
        raise ValueError(f"weights has shape {weights.shape}; it must have two dimensions and not be empty")
    if weights.dtype.kind not in "fiub":
        raise ValueError(f"weights has dtype {weights.dtype}; it must hold real numbers")
    matrix = sp.csr_array(weights, copy=True, dtype=np.float64)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not np.isfinite(matrix.data).all():
        raise ValueError("weights holds NaN or infinite values")
    matrix.data.flags.writeable = False
    return matrix


def bias_vector(value: Any, length: int, argument: str, what: str) -> Array:
    """Return a bias as long as the rows or columns of the weights (`what`)."""
    if length == 0 and np.size(value) == 0:  # variables without any edge may leave the other side empty
        return np.zeros(0)
    array = real_array(value, argument, 1)
    if len(array) != length:
        raise ValueError(f"{argument} has length {len(array)}, but weights has {length} {what}")
    return array


def precision_vector(value: object, length: int, argument: str) -> Array | None:
    """Return the precisions of a side: None, one number, or one per variable."""
    if value is None:
        return None
    array = real_array(value, argument, None)
    if array.shape not in ((), (1,), (length,)):
        raise ValueError(f"{argument} has shape {array.shape}; it must be one number or {length} of them")
    return array
