"""The kinds of variable in the general kernel: their normalisers, and how they are drawn.

Spins are ±1, categorical variables one-hot features, Gaussian ones real numbers; two-state units of any other kind
are spins by `MRF.partial_spin_form`. Each function has one body per kind, chosen when the kernel is compiled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload

from ...simd.draws import INLINE, boltzmann
from ...simd.functions import draw_spin, exp2_nonpositive, rise, select
from ...simd.numbers import LOG2_E, above, normal, share_of
from ...simd.vector import LANES, fma, load, maximum, store
from .rectified import Halves, draw_rectified, rise_of_exponent, shares, sides


class Spins(NamedTuple):
    """Spins ±1."""

    units: int


class Normals(NamedTuple):
    """Gaussian units, with their 1/γ and 1/√γ."""

    variance: np.ndarray
    deviation: np.ndarray


class OneHot(NamedTuple):
    """Categorical variables; variable i has the one-hot features from starts[i] to starts[i + 1]."""

    starts: np.ndarray


def summed(side, unit, now, before, slope, per_step, linear, top, bottom):
    """Add ln Z_unit(β_k) − ln Z_unit(β_{k−1}) of a unit as Δβ·linear + ln(top/bottom); return also e for the draw."""
    raise NotImplementedError


@overload(summed, jit_options=INLINE)
def _summed_overload(side, unit, now, before, slope, per_step, linear, top, bottom):
    if side.instance_class is Spins:
        return _summed_spin
    return _summed_rectified if side.instance_class is Halves else _summed_normal


def _summed_spin(side, unit, now, before, slope, per_step, linear, top, bottom):
    # ln 2cosh a = |a| + ln(1 + e) with e = exp(−2|a|)
    e, e_before = boltzmann(now), boltzmann(before)
    linear = linear + rise(now, before, slope, per_step)
    return linear, fma(top, e, top), fma(bottom, e_before, bottom), e, e_before


def _summed_normal(side, unit, now, before, slope, per_step, linear, top, bottom):
    # (a_k² − a_{k−1}²)/2γ
    linear = fma(slope * (now + before), side.variance[unit] * 0.5, linear)
    return linear, top, bottom, now, before


def _summed_rectified(side, unit, now, before, slope, per_step, linear, top, bottom):
    plus, minus, root = sides(side, unit, now)
    plus0, minus0, root0 = sides(side, unit, before)
    linear = linear + rise_of_exponent(side, unit, root, root0, slope, per_step)
    return linear, top * shares(side, plus, minus), bottom * shares(side, plus0, minus0), (plus, minus), (plus0, minus0)


def draw(side, unit, field, e, word):
    """Draw one unit given its field; `e` is the value from `summed` or `factor`."""
    raise NotImplementedError


@overload(draw, jit_options=INLINE)
def _draw_overload(side, unit, field, e, word):
    if side.instance_class is Spins:
        return lambda side, unit, field, e, word: draw_spin(field, e, word)
    if side.instance_class is Halves:
        return _draw_from_sides if isinstance(e, types.BaseTuple) else _draw_from_field
    return _draw_normal


def _draw_normal(side, unit, field, e, word):
    return fma(field, side.variance[unit], normal(word, field) * side.deviation[unit])


def _draw_from_sides(side, unit, field, e, word):
    return draw_rectified(side, unit, e[0], e[1], word)


def _draw_from_field(side, unit, field, e, word):
    plus, minus, _ = sides(side, unit, field)
    return draw_rectified(side, unit, plus, minus, word)


def rescaled(side, top, bottom):
    """Return top and bottom with the same quotient after the units of a tile, before their products underflow."""
    raise NotImplementedError


@overload(rescaled, jit_options=INLINE)
def _rescaled_overload(side, top, bottom):
    if side.instance_class is Halves:
        return lambda side, top, bottom: (top / bottom, top - top + 1.0)
    return lambda side, top, bottom: (top, bottom)


def factor(side, field):
    """Return the argument `e` of `draw` for a given field."""
    raise NotImplementedError


@overload(factor, jit_options=INLINE)
def _factor_overload(side, field):
    if side.instance_class is Spins:
        return lambda side, field: boltzmann(field)
    return lambda side, field: field


@njit(**INLINE)
def log_sum(values, at, first, last, beta, starts, at_starts):
    """Return max and Σ exp(a − max) of a = start + β·value over the features of a variable."""
    top = fma(load(values, at + first * LANES), beta, load(starts, at_starts + first * LANES))
    for f in range(first + 1, last):
        top = maximum(top, fma(load(values, at + f * LANES), beta, load(starts, at_starts + f * LANES)))
    total = top - top
    for f in range(first, last):
        a = fma(load(values, at + f * LANES), beta, load(starts, at_starts + f * LANES))
        total = total + exp2_nonpositive((a - top) * LOG2_E)
    return top, total


@njit(**INLINE)
def draw_state(values, at, first, last, beta, starts, at_starts, top, total, word, out, at_out):
    """Draw the state of a categorical variable, one-hot, into `out`: the first whose cumulative sum exceeds u·total."""
    threshold = share_of(word, total)
    zero = total - total
    below, passed = zero, zero
    for f in range(first, last):
        a = fma(load(values, at + f * LANES), beta, load(starts, at_starts + f * LANES))
        below = below + exp2_nonpositive((a - top) * LOG2_E)
        # The last state also takes the remainder from rounding.
        now = select(above(below, threshold), zero + 1.0, zero) if f < last - 1 else zero + 1.0
        store(out, at_out + f * LANES, now - passed)
        passed = now
