"""Tables for lattices, whose spins have few possible fields: probabilities of draws, and changes of ln 2cosh per step.

All engines make them here, so that they draw the same spins and use the same numbers for the weights.
"""

from __future__ import annotations

import numpy as np

from ..checks import Array

_GAIN_BITS = 24  # Bits of the largest gain; sums over 64 sites then fit into 32 bits.


def thresholds(fields: Array) -> np.ndarray:
    """Return how many of the 2^32 words set a spin against its field: those with u·(1 + e) < e, e = exp(−2|field|)."""
    e = np.exp(-2.0 * np.abs(fields))
    return np.maximum(np.ceil(np.ldexp(e / (1.0 + e), 32) - 0.5), 0.0).astype(np.uint32)


def gains(fields: Array) -> Array:
    """Return the change of ln 2cosh from each step to the next, for fields [step, …]."""
    a = np.abs(fields)
    return np.diff(a + np.log1p(np.exp(-2.0 * a)), axis=0)


def whole_gains(of: Array) -> tuple[Array, Array]:
    """Return gains [step, …] as whole numbers, whose sums are exact in any order, and the unit of each step."""
    rest = tuple(range(1, of.ndim))
    exponent = _GAIN_BITS - np.frexp(np.abs(of).max(axis=rest))[1]
    return np.rint(np.ldexp(of, np.expand_dims(exponent, rest))), np.ldexp(1.0, -exponent)


def in_products(values: np.ndarray, less: np.ufunc) -> np.ndarray:
    """Return the coefficients of functions of a few binary digits in their products 1, d0, d1, d0·d1, d2, …"""
    out = np.array(values)
    for half in 2 ** np.arange(out.shape[-1].bit_length() - 1):
        pairs = out.reshape(*out.shape[:-1], -1, 2, half)
        less(pairs[..., 1, :], pairs[..., 0, :], out=pairs[..., 1, :])
    return out
