"""Metropolis sweeps over the summed-out side (`reference.moves.metropolis`), based on the fields of the sampled side.

P_k(h) ∝ exp(c_k·h) Π_i 2cosh x_i, so if the fields x_i are known, a flip of h_j costs one multiply-add for the new
field, one exponential, one product and one sum of |x| for each of its weights.
"""

from __future__ import annotations

import math

from numba import njit, uint64
from numba.extending import overload

from ...random import METROPOLIS
from ...simd.draws import FLUSH, INLINE, TILE, boltzmann, philox
from ...simd.functions import accept, exp2_nonpositive, log, select
from ...simd.vector import LANES, absolute, fma, load, minus_absolute, scalar, smaller, store

_CHUNK = TILE * FLUSH  # Number of factors whose product stays in range before its logarithm is taken.
_LOG2_E = 1.0 / math.log(2.0)
_TWICE_LOG2_E = 2.0 * _LOG2_E
_HALF_LN_2 = 0.5 * math.log(2.0)


def sweep_flips(flips, sweep, base, slope, beta, chain, step, k0, k1, x, at_x, h, at_h):
    """Propose to flip every unit of h in order, in the two blocks at `at_x` and `at_h`.

    x holds the fields of the other side, h the spins. Each proposal depends on the result of the previous one, so two
    independent blocks are processed together to keep the processor busy.
    """
    raise NotImplementedError


@overload(sweep_flips, jit_options=INLINE)
def _sweep_flips_overload(flips, sweep, base, slope, beta, chain, step, k0, k1, x, at_x, h, at_h):
    return _sweep_lists if len(flips) == 3 else _sweep_full


@njit(**INLINE)
def _field(base, slope, beta, unit):
    """Return the unit's own field under β."""
    if base is None:
        return beta * slope[unit]
    return base[unit] + beta * slope[unit]


@njit(**INLINE)
def _factor(y, linear, product):
    """Multiply 2cosh x = 2^{|y|/2}(1 + 2^−|y|) into the pair (linear, product), where y = 2 log2(e)·x."""
    below = minus_absolute(y)
    return linear - below, fma(product, exp2_nonpositive(below), product)


@njit(**INLINE)
def _fold(linear, product):
    """Move the logarithm of the product into the linear part before the product overflows."""
    return fma(log(product), _TWICE_LOG2_E, linear), product - product + 1.0


@njit(**INLINE)
def _scale(x, at_x, n, factor):
    """Multiply the fields by a factor; return (linear, product) of the result."""
    linear = load(x, at_x) - load(x, at_x)
    product = linear + 1.0
    for start in range(0, n, _CHUNK):
        if start > 0:
            linear, product = _fold(linear, product)
        for i in range(start, smaller(start + _CHUNK, n)):
            y = load(x, at_x + i * LANES) * factor
            store(x, at_x + i * LANES, y)
            linear, product = _factor(y, linear, product)
    return linear, product


@njit(**INLINE)
def _catch_up(data, p_owed, p, i, owed, step, x, at_x):
    """Bring field i up to date; return its value after the proposed flip."""
    y = fma(scalar(data, p_owed + i * TILE), owed, load(x, at_x + i * LANES))
    store(x, at_x + i * LANES, y)
    return fma(scalar(data, p + i * TILE), step, y)


@njit(**INLINE)
def _flip_full(data, p_owed, p, own, change, x, at_x, n, h, at_spin, word, linear, product, owed):
    """Propose one flip: bring the fields up to date, compute the weight of the flipped state, and decide.

    Return (linear, product) of the resulting state, and the change of h that is not yet in the fields.
    """
    spin = load(h, at_spin)
    zero = spin - spin
    step = spin * change
    new_linear, new_product = zero, zero + 1.0
    for start in range(0, n, _CHUNK):
        if start > 0:
            new_linear, new_product = _fold(new_linear, new_product)
        stop = smaller(start + _CHUNK, n)
        fours = stop - (stop - start) % 4
        for i in range(start, fours, 4):  # Unrolled, so that constants are loaded once for four fields.
            y0 = _catch_up(data, p_owed, p, i, owed, step, x, at_x)
            y1 = _catch_up(data, p_owed, p, i + 1, owed, step, x, at_x)
            y2 = _catch_up(data, p_owed, p, i + 2, owed, step, x, at_x)
            y3 = _catch_up(data, p_owed, p, i + 3, owed, step, x, at_x)
            new_linear, new_product = _factor(y0, new_linear, new_product)
            new_linear, new_product = _factor(y1, new_linear, new_product)
            new_linear, new_product = _factor(y2, new_linear, new_product)
            new_linear, new_product = _factor(y3, new_linear, new_product)
        for i in range(fours, stop):
            y = _catch_up(data, p_owed, p, i, owed, step, x, at_x)
            new_linear, new_product = _factor(y, new_linear, new_product)
    yes = accept(fma(spin, own, (new_linear - linear) * 0.5), new_product, product, word)
    store(h, at_spin, select(yes, zero - spin, spin))
    return select(yes, new_linear, linear), select(yes, new_product, product), select(yes, step, zero)


def _sweep_full(flips, sweep, base, slope, beta, chain, step, k0, k1, x, at_x, h, at_h):
    # Every flip changes every field. The kernel keeps (linear, product) of the present state, and applies the last
    # accepted flip to the fields while it computes the weight of the next one.
    data, _, last, begin = flips
    n = last[0]
    linear_a, product_a = _scale(x, at_x[0], n, _TWICE_LOG2_E)
    linear_b, product_b = _scale(x, at_x[1], n, _TWICE_LOG2_E)
    owed_a = load(h, at_h[0]) - load(h, at_h[0])
    owed_b, p_owed = owed_a, 0
    change = -2.0 * _TWICE_LOG2_E * beta
    for tile in range(len(begin) - 1):
        words_a = philox(chain[0], step, uint64(tile), uint64(METROPOLIS + sweep), k0, k1)
        words_b = philox(chain[1], step, uint64(tile), uint64(METROPOLIS + sweep), k0, k1)
        for m in range(TILE):
            unit, p = TILE * tile + m, begin[tile] + m
            own = -2.0 * _LOG2_E * _field(base, slope, beta, unit)
            at = at_h[0] + unit * LANES
            linear_a, product_a, owed_a = _flip_full(
                data, p_owed, p, own, change, x, at_x[0], n, h, at, words_a[m], linear_a, product_a, owed_a
            )
            at = at_h[1] + unit * LANES
            linear_b, product_b, owed_b = _flip_full(
                data, p_owed, p, own, change, x, at_x[1], n, h, at, words_b[m], linear_b, product_b, owed_b
            )
            p_owed = p
    for i in range(n):
        w = scalar(data, p_owed + i * TILE)
        store(x, at_x[0] + i * LANES, fma(w, owed_a, load(x, at_x[0] + i * LANES)) * _HALF_LN_2)
        store(x, at_x[1] + i * LANES, fma(w, owed_b, load(x, at_x[1] + i * LANES)) * _HALF_LN_2)


def _sweep_lists(flips, sweep, base, slope, beta, chain, step, k0, k1, x, at_x, h, at_h):
    # A flip changes the fields of a few neighbours only, so only their factors are compared.
    indptr = flips[0]
    for tile in range((len(indptr) - 1) // TILE):
        words_a = philox(chain[0], step, uint64(tile), uint64(METROPOLIS + sweep), k0, k1)
        words_b = philox(chain[1], step, uint64(tile), uint64(METROPOLIS + sweep), k0, k1)
        for m in range(TILE):
            unit = TILE * tile + m
            own = _field(base, slope, beta, unit)
            _propose(flips, unit, own, beta, words_a[m], x, at_x[0], h, at_h[0] + unit * LANES)
            _propose(flips, unit, own, beta, words_b[m], x, at_x[1], h, at_h[1] + unit * LANES)


@njit(**INLINE)
def _propose(flips, unit, own, beta, word, x, at_x, h, at_spin):
    """Propose to flip one unit, given the fields of its neighbours."""
    indptr, indices, data = flips
    spin = load(h, at_spin)
    zero = spin - spin
    change = spin * (-2.0 * beta)
    gain, top, bottom = spin * (-2.0 * own), zero + 1.0, zero + 1.0
    for start in range(indptr[unit], indptr[unit + 1], _CHUNK):
        if start > indptr[unit]:
            gain, top, bottom = gain + log(top / bottom), zero + 1.0, zero + 1.0
        for p in range(start, smaller(start + _CHUNK, indptr[unit + 1])):
            a = load(x, at_x + scalar(indices, p) * LANES)
            new = fma(scalar(data, p), change, a)
            gain = gain + (absolute(new) - absolute(a))
            top, bottom = fma(top, boltzmann(new), top), fma(bottom, boltzmann(a), bottom)
    yes = accept(gain * _LOG2_E, top, bottom, word)
    store(h, at_spin, select(yes, zero - spin, spin))
    owed = select(yes, change, zero)
    for p in range(indptr[unit], indptr[unit + 1]):
        at = at_x + scalar(indices, p) * LANES
        store(x, at, fma(scalar(data, p), owed, load(x, at)))
