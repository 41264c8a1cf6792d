"""The inner sum of `enumeration`: lanes are states of the lower units, and four upper states are summed together."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from ..checks import Array
from ..simd.cache import kernel
from ..simd.draws import INLINE
from ..simd.functions import exp2_nonpositive
from ..simd.vector import LANES, absolute, aligned, exponent_and_mantissa, fma, load, maximum, splat, store

_LOG2_E = 1.0 / math.log(2.0)


class Lower(NamedTuple):
    """Tables over the states of the lower units."""

    factors: np.ndarray  # e^{−2a} or its binary logarithm, indexed by vector of states, unit and lane.
    mantissas: np.ndarray  # The factor with an exponent linear in the units is 2^exponent·mantissa.
    exponents: np.ndarray

    def shifted(self, exponent: Array) -> Lower:
        """Return the tables with an additional exponent for each state."""
        exponents = aligned(exponent.shape, np.float64)
        exponents[:] = self.exponents + _powers(exponent)
        return self._replace(exponents=exponents)


def pack_cross(cross: Array) -> Array:
    """Arrange the exponents cross[upper state, lower state] in the layout of the kernel."""
    packed = aligned(cross.shape, np.float64)
    packed[:] = _powers(cross)
    return packed


def pack_lower(table: Array, linear: Array, in_logs: bool) -> Lower:
    """Arrange table[state, unit] and the linear exponent of each state in the layout of the kernel."""
    states, units = table.shape
    factors = aligned((states // LANES, units, LANES), np.float64)
    values = _powers(table) if in_logs else np.exp(table)
    factors[:] = values.reshape(-1, LANES, units).transpose(0, 2, 1)
    mantissas, exponents = (aligned((states,), np.float64) for _ in range(2))
    exponents[:] = np.floor(_powers(linear))
    mantissas[:] = np.exp2(_powers(linear) - exponents)
    return Lower(factors, mantissas, exponents)


def _powers(x: Array) -> Array:
    """Return log2 e^x, bounded from below, because a difference of two values −∞ would be NaN."""
    return np.maximum(_LOG2_E * x, -1e307)


def sum_states(
    low: Lower, high: Array, linear: Array, cross: Array | None, in_logs: bool, flush: int
) -> tuple[Array, Array]:
    """Sum over all lower states and the given upper ones; the result is Σ S·2^X over LANES pairs (S, X).

    `cross` is the result of `pack_cross` for the couplings between them, or None if there are none.
    """
    upper, units = high.shape
    values = _powers(high) if in_logs else np.exp(high)
    tiles = np.ascontiguousarray(values.reshape(upper // 4, 4, units).transpose(0, 2, 1))
    exponents = np.floor(_powers(linear))
    mantissas = np.exp2(_powers(linear) - exponents)
    out = aligned((2, LANES), np.float64)
    _sum(True if in_logs else None, *low, tiles, mantissas, exponents, cross, flush, out)
    return out[0], out[1]


@njit(**INLINE)
def _times(in_logs, product, exponent, low, high):
    """Return product·(1 + e^{−2a}) with e^{−2a} = low·high; with logarithms, 2^exponent holds the large part."""
    if in_logs is None:
        return fma(low, high, 1.0) * product, exponent
    x = low + high
    size = absolute(x)
    return fma(exp2_nonpositive(size * -1.0), product, product), exponent + (x + size) * 0.5


@njit(**INLINE)
def _add(total, scale, mantissa, exponent):
    """Return (total, scale) + (mantissa, exponent), where a pair stands for mantissa·2^exponent."""
    top = maximum(scale, exponent)
    return fma(total, exp2_nonpositive(scale - top), mantissa * exp2_nonpositive(exponent - top)), top


@kernel(error_model="numpy")
def _sum(in_logs, factors, low_mantissas, low_exponents, tiles, high_mantissas, high_exponents, cross, flush, out):
    units = factors.shape[1]
    zero = splat(0.0)
    total, scale = zero, zero - 1e300
    for tile in range(tiles.shape[0]):
        for lane in range(factors.shape[0]):
            p0 = p1 = p2 = p3 = zero + 1.0
            x0 = x1 = x2 = x3 = zero
            for start in range(0, units, flush):
                for j in range(start, min(start + flush, units)):
                    low = load(factors, (lane * units + j) * LANES)
                    p0, x0 = _times(in_logs, p0, x0, low, tiles[tile, j, 0])
                    p1, x1 = _times(in_logs, p1, x1, low, tiles[tile, j, 1])
                    p2, x2 = _times(in_logs, p2, x2, low, tiles[tile, j, 2])
                    p3, x3 = _times(in_logs, p3, x3, low, tiles[tile, j, 3])
                y0, p0 = exponent_and_mantissa(p0)
                y1, p1 = exponent_and_mantissa(p1)
                y2, p2 = exponent_and_mantissa(p2)
                y3, p3 = exponent_and_mantissa(p3)
                x0, x1, x2, x3 = x0 + y0, x1 + y1, x2 + y2, x3 + y3
            m = load(low_mantissas, lane * LANES)
            x = load(low_exponents, lane * LANES)
            q = 4 * tile
            if cross is not None:
                at = q * cross.shape[1] + lane * LANES
                x0 = x0 + load(cross, at)
                x1 = x1 + load(cross, at + cross.shape[1])
                x2 = x2 + load(cross, at + 2 * cross.shape[1])
                x3 = x3 + load(cross, at + 3 * cross.shape[1])
            total, scale = _add(total, scale, p0 * m * high_mantissas[q], x0 + x + high_exponents[q])
            total, scale = _add(total, scale, p1 * m * high_mantissas[q + 1], x1 + x + high_exponents[q + 1])
            total, scale = _add(total, scale, p2 * m * high_mantissas[q + 2], x2 + x + high_exponents[q + 2])
            total, scale = _add(total, scale, p3 * m * high_mantissas[q + 3], x3 + x + high_exponents[q + 3])
    store(out, 0, total)
    store(out, LANES, scale)
