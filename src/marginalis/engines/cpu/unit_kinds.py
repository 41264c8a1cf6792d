"""The kinds of variable in the general kernel: their normalisers, and how they are drawn.

Spins are ±1, categorical variables one-hot features, Gaussian ones real numbers; two-state units of any other kind
are spins by `MRF.signed_form`. Each function has one body per kind, chosen when the kernel is compiled.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload

from ...simd.draws import CALLED, INLINE, boltzmann
from ...simd.functions import draw_spin, erfcx, exp2_nonpositive, log, rise, select
from ...simd.numbers import LOG2_E, above, normal, square_root, tail_quantile, uniform
from ...simd.vector import LANES, absolute, fma, load, maximum, store

_SQRT_HALF, _SQRT_TWO_OVER_PI, _SQRT_HALF_PI = math.sqrt(0.5), math.sqrt(2.0 / math.pi), math.sqrt(math.pi / 2.0)
_TINY = 1e-37  # Lower bound of tail probabilities, which must not be zero.


class Spins(NamedTuple):
    """Spins ±1."""

    units: int


class Normals(NamedTuple):
    """Gaussian units, with their 1/γ and 1/√γ."""

    variance: np.ndarray
    deviation: np.ndarray


class States(NamedTuple):
    """Categorical variables; variable i has the one-hot features from starts[i] to starts[i + 1]."""

    starts: np.ndarray


class Half(NamedTuple):
    """One side of zero of rectified units: the bias θ, positive away from zero, and 1/√γ."""

    theta: np.ndarray
    width: np.ndarray


class Halves(NamedTuple):
    """Rectified units; the negative side is None where there is none."""

    plus: Half
    minus: Half | None


def summed(side, unit, now, before, slope, per_step, linear, top, bottom):
    """Add ln Z_unit(β_k) − ln Z_unit(β_{k−1}) of a unit as Δβ·linear + ln(top/bottom); return also e for the draw."""
    raise NotImplementedError


@overload(summed, jit_options=INLINE)
def _summed_overload(side, unit, now, before, slope, per_step, linear, top, bottom):
    if side.instance_class is Spins:
        return _summed_spin
    return _summed_halves if side.instance_class is Halves else _summed_normal


def _summed_spin(side, unit, now, before, slope, per_step, linear, top, bottom):
    # ln 2cosh a = |a| + ln(1 + e) with e = exp(−2|a|)
    e, e_before = boltzmann(now), boltzmann(before)
    linear = linear + rise(now, before, slope, per_step)
    return linear, fma(top, e, top), fma(bottom, e_before, bottom), e, e_before


def _summed_normal(side, unit, now, before, slope, per_step, linear, top, bottom):
    # (a_k² − a_{k−1}²)/2γ
    linear = fma(slope * (now + before), side.variance[unit] * 0.5, linear)
    return linear, top, bottom, now, before


def _summed_halves(side, unit, now, before, slope, per_step, linear, top, bottom):
    plus, minus, exponent = pieces(side, unit, now)
    plus0, minus0, exponent0 = pieces(side, unit, before)
    linear = fma(exponent - exponent0, per_step, linear)
    top = top * ((plus[2] + minus[2]) / (plus0[2] + minus0[2]))
    return linear, top, bottom, (plus, minus), (plus0, minus0)


def draw(side, unit, field, e, word):
    """Draw one unit given its field; `e` is the value from `summed` or `factor`."""
    raise NotImplementedError


@overload(draw, jit_options=INLINE)
def _draw_overload(side, unit, field, e, word):
    if side.instance_class is Spins:
        return lambda side, unit, field, e, word: draw_spin(field, e, word)
    if side.instance_class is Halves:
        return _draw_piece if isinstance(e, types.BaseTuple) else _draw_halves
    return _draw_normal


def _draw_normal(side, unit, field, e, word):
    return fma(field, side.variance[unit], normal(word, field) * side.deviation[unit])


def _draw_piece(side, unit, field, e, word):
    return draw_rectified(side, unit, e[0], e[1], word)


def _draw_halves(side, unit, field, e, word):
    plus, minus, _ = pieces(side, unit, field)
    return draw_rectified(side, unit, plus, minus, word)


def pieces(side, unit, field):
    """Return α, the scaled integral and the share of both sides of zero, and the exponent taken out of the integrals.

    With α = −slope/√γ the integral over a side is exp(m)·g/√γ, up to a common factor: for α > 0, g = erfcx(α/√2) and
    m = 0; otherwise g = 2 − exp(−α²/2)·erfcx(|α|/√2) and m = α²/2.
    """
    raise NotImplementedError


@overload(pieces, jit_options=CALLED)
def _pieces_overload(side, unit, field):
    return _one_piece if isinstance(side.types[1], types.NoneType) else _two_pieces


@njit(**INLINE)
def _piece(half, unit, field):
    alpha = (field + half.theta[unit]) * half.width[unit] * -1.0
    x = absolute(alpha) * _SQRT_HALF
    square, e = x * x, erfcx(x)
    zero = x - x
    is_body = above(zero, alpha)
    g = select(is_body, fma(exp2_nonpositive(square * -LOG2_E) * -1.0, e, zero + 2.0), e)
    return alpha, g, select(is_body, square, zero)


def _one_piece(side, unit, field):
    alpha, g, m = _piece(side.plus, unit, field)
    zero = g - g
    return (alpha, g, g), (zero, zero + 1.0, zero), m


def _two_pieces(side, unit, field):
    alpha, g, m = _piece(side.plus, unit, field)
    alpha_minus, g_minus, m_minus = _piece(side.minus, unit, field * -1.0)
    top = maximum(m, m_minus)
    share = g * exp2_nonpositive((m - top) * LOG2_E) * side.plus.width[unit]
    share_minus = g_minus * exp2_nonpositive((m_minus - top) * LOG2_E) * side.minus.width[unit]
    return (alpha, g, share), (alpha_minus, g_minus, share_minus), top


def draw_rectified(side, unit, plus, minus, word):
    """Draw a rectified unit: its side of zero, and then its distance from zero."""
    raise NotImplementedError


@overload(draw_rectified, jit_options=CALLED)
def _draw_rectified_overload(side, unit, plus, minus, word):
    return _draw_one if isinstance(side.types[1], types.NoneType) else _draw_two


def _draw_one(side, unit, plus, minus, word):
    return _beyond(plus[0], plus[1], uniform(word, plus[0]) * -1.0 + 1.0) * side.plus.width[unit]


def _draw_two(side, unit, plus, minus, word):
    u, total = uniform(word, plus[0]), plus[2] + minus[2]
    is_minus = above(minus[2], u * total)
    share = select(is_minus, minus[2], plus[2])
    tail = select(is_minus, u, u * -1.0 + 1.0) * total / share
    x = _beyond(select(is_minus, minus[0], plus[0]), select(is_minus, minus[1], plus[1]), tail)
    return select(is_minus, x * side.minus.width[unit] * -1.0, x * side.plus.width[unit])


@njit(**INLINE)
def _beyond(alpha, g, tail):
    """Return the x ≥ 0 above which the density exp(−αx − x²/2) on x ≥ 0 has the fraction `tail` of its mass."""
    zero = g - g
    one = zero + 1.0
    tail = select(above(tail, one), one, tail)
    # For α ≤ 0, x is a quantile of the normal distribution, whose mass above α is g/2.
    p = tail * g * 0.5
    rest = one - p
    is_upper = above(p, rest)
    z = tail_quantile(maximum(select(is_upper, rest, p), zero + _TINY))
    body = select(is_upper, z * -1.0, z) - alpha
    # For α > 0, Newton's method starts where the integral of a linear hazard, with its slope at 0, reaches t.
    t = log(tail) * -1.0
    hazard = _SQRT_TWO_OVER_PI / g
    x = t * 2.0 / (hazard + square_root(hazard * (hazard + (hazard - alpha) * t * 2.0)))
    for _ in range(3):
        e = erfcx((alpha + x) * _SQRT_HALF)
        excess = x * fma(x, 0.5, alpha) - log(e / g) - t
        x = maximum(x - excess * e * _SQRT_HALF_PI, zero)
    return maximum(select(above(alpha, zero), x, body), zero)


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
    threshold = uniform(word, total) * total
    zero = total - total
    below, passed = zero, zero
    for f in range(first, last):
        a = fma(load(values, at + f * LANES), beta, load(starts, at_starts + f * LANES))
        below = below + exp2_nonpositive((a - top) * LOG2_E)
        # The last state also takes the remainder from rounding.
        now = select(above(below, threshold), zero + 1.0, zero) if f < last - 1 else zero + 1.0
        store(out, at_out + f * LANES, now - passed)
        passed = now
