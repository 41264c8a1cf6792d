"""Rectified units in the general kernel: the integrals over both sides of zero, and draws by inversion.

A side of zero is given by α = −slope/√γ; with x ≥ 0 in units of 1/√γ its density is exp(−αx − x²/2). The integral over
the side is exp(m)·g/√γ, up to a constant factor: for α > 0, g = erfcx(α/√2) and m = 0; otherwise
g = 2 − exp(−α²/2)·erfcx(|α|/√2) and m = α²/2.

A draw solves Q(α + x) = tail·Q(α), where Q is the tail of the normal distribution. For α up to `_FAR`, α + x is a
quantile of the normal distribution, which a rational function of ln(4Q(1 − Q)) approximates; beyond, x follows from a
series in 1/α². Double precision adds a step of Newton's method to both.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload

from ...simd.draws import INLINE
from ...simd.functions import erfcx, evaluate, exp2_nonpositive, log, reciprocal, select
from ...simd.numbers import LOG2_E, above, any_lane, square_root, uniform, uniform_rest
from ...simd.vector import absolute, exponent_and_mantissa, fma, maximum

_SQRT_HALF, _SQRT_TWO_OVER_PI, _SQRT_HALF_PI = math.sqrt(0.5), math.sqrt(2.0 / math.pi), math.sqrt(math.pi / 2.0)
_TINY = 1e-37  # Lower bound of tail probabilities, which must not be zero.
_FAR = 5.0  # Least α of the series: smaller values lose less than three digits in the difference (α + x) − α.

# z/(1 − 2p) for the quantile z that is exceeded with probability p, as a ratio of polynomials in w = −ln(4p(1 − p)),
# lowest coefficients first. The relative error is at most 1.2e-7 up to w = _WIDEST (least squares, reweighted until the
# errors were level).
_TOP = (
    1.253314283933815, 0.4579265342842831, 0.0939445886276542, 0.012982356648991947, 1.1854931617697611e-3,
    5.333497986633317e-5, 1.5678369968424804e-7,
)  # fmt: skip
_BOTTOM = (
    1.0, 0.10357571988311164, 0.03479992807958226, 2.543999762127496e-3, 2.3728911850389277e-4, 3.19930919745005e-6,
)  # fmt: skip
_WIDEST = 37.0

# Near-minimax polynomial for ln(3/2 + x) with |x| ≤ ½, lowest coefficients first; its error is 3e-8.
_FIT = np.polynomial.Chebyshev.interpolate(lambda x: np.log(1.5 + x), 8, domain=[-0.5, 0.5])
_LOG = tuple(_FIT.convert(kind=np.polynomial.Polynomial).coef.tolist())

# (ln E)/v for v = 1/α² up to 1/_FAR², where E = α·√(π/2)·erfcx(α/√2); lowest coefficients first. The error is 3e-8.
_SERIES = -0.9999994047833795, 2.4992214801244397, -12.166332559260514, 75.05835248529243, -334.47707047422


class Half(NamedTuple):
    """One side of zero of rectified units: the bias θ, positive away from zero, and 1/√γ."""

    theta: np.ndarray
    width: np.ndarray


class Halves(NamedTuple):
    """Rectified units; the negative side is None where there is none."""

    plus: Half
    minus: Half | None


class Side(NamedTuple):
    """One side of zero under a field, and its share of the integral."""

    alpha: object
    g: object
    erfcx: object  # At |α|/√2.
    bulk: object  # exp(−α²/2)
    share: object


@njit(**INLINE)
def _side_under(half, unit, field):
    """Return a side with g as its share, and √m."""
    alpha = (field + half.theta[unit]) * half.width[unit] * -1.0
    x = absolute(alpha) * _SQRT_HALF
    zero = x - x
    e, bulk = erfcx(x), exp2_nonpositive(x * x * -LOG2_E)
    is_body = above(zero, alpha)
    g = select(is_body, fma(bulk * -1.0, e, zero + 2.0), e)
    return Side(alpha, g, e, bulk, g), select(is_body, x, zero)


def sides(side, unit, field):
    """Return both sides of zero under a field, and the root of the exponent m that was taken out of their shares.

    m is the larger one of the exponents of both sides; the root is negative if it belongs to the negative side.
    """
    raise NotImplementedError


@overload(sides, jit_options=INLINE)
def _sides_overload(side, unit, field):
    return _one_side if _is_one(side) else _two_sides


def _is_one(side):
    return isinstance(side.types[1], types.NoneType)


def _one_side(side, unit, field):
    plus, root = _side_under(side.plus, unit, field)
    return plus, plus, root


def _two_sides(side, unit, field):
    plus, root_plus = _side_under(side.plus, unit, field)
    minus, root_minus = _side_under(side.minus, unit, field * -1.0)
    one = root_plus - root_plus + 1.0
    down = exp2_nonpositive(absolute(root_plus - root_minus) * (root_plus + root_minus) * -LOG2_E)
    is_plus = above(root_plus, root_minus)
    share = plus.g * select(is_plus, one, down) * side.plus.width[unit]
    share_minus = minus.g * select(is_plus, down, one) * side.minus.width[unit]
    return (
        Side(plus.alpha, plus.g, plus.erfcx, plus.bulk, share),
        Side(minus.alpha, minus.g, minus.erfcx, minus.bulk, share_minus),
        select(is_plus, root_plus, root_minus * -1.0),
    )


def rise_of_exponent(side, unit, now, before, slope, per_step):
    """Return (m − m_before)·per_step from the roots of both; equal signs cause no cancellation."""
    raise NotImplementedError


@overload(rise_of_exponent, jit_options=INLINE)
def _rise_overload(side, unit, now, before, slope, per_step):
    return _rise_of_one if _is_one(side) else _rise_of_two


def _rise_of_one(side, unit, now, before, slope, per_step):
    change = select(
        above(now * before, now - now), slope * side.plus.width[unit] * _SQRT_HALF, (now - before) * per_step
    )
    return change * (now + before)


def _rise_of_two(side, unit, now, before, slope, per_step):
    zero = now - now
    width = select(above(now, zero), zero + side.plus.width[unit], zero + side.minus.width[unit])
    change = select(above(now * before, zero), slope * width * _SQRT_HALF, (now - before) * per_step)
    return change * (now + before)


def shares(side, plus, minus):
    """Return the sum of the shares of both sides."""
    raise NotImplementedError


@overload(shares, jit_options=INLINE)
def _shares_overload(side, plus, minus):
    if _is_one(side):
        return lambda side, plus, minus: plus.share
    return lambda side, plus, minus: plus.share + minus.share


def draw_rectified(side, unit, plus, minus, word):
    """Draw a rectified unit: its side of zero, and then its distance from zero."""
    raise NotImplementedError


@overload(draw_rectified, jit_options=INLINE)
def _draw_rectified_overload(side, unit, plus, minus, word):
    return _draw_one if _is_one(side) else _draw_two


def _draw_one(side, unit, plus, minus, word):
    x = _beyond(plus.alpha, plus.erfcx, plus.bulk, uniform_rest(word, plus.alpha), uniform(word, plus.alpha))
    return x * side.plus.width[unit]


def _draw_two(side, unit, plus, minus, word):
    u, rest = uniform(word, plus.alpha), uniform_rest(word, plus.alpha)
    total = plus.share + minus.share
    over = u * total - minus.share
    is_minus = above(over - over, over)
    zero = over - over
    inverse = reciprocal(select(is_minus, minus.share, plus.share))
    one = zero + 1.0
    tail = select(is_minus, u, rest) * total * inverse
    tail = select(above(tail, one), one, tail)
    x = _beyond(
        select(is_minus, minus.alpha, plus.alpha),
        select(is_minus, minus.erfcx, plus.erfcx),
        select(is_minus, minus.bulk, plus.bulk),
        tail,
        absolute(over) * inverse,
    )
    return select(is_minus, x * side.minus.width[unit] * -1.0, x * side.plus.width[unit])


@njit(**INLINE)
def _beyond(alpha, e, bulk, tail, rest):
    """Return the x ≥ 0 above which the density exp(−αx − x²/2) has the fraction `tail` = 1 − `rest` of its mass.

    `e` is erfcx(|α|/√2) and `bulk` exp(−α²/2).
    """
    zero = alpha - alpha
    x = _near(alpha, e, bulk, tail, rest)
    is_far = above(alpha, zero + _FAR)
    if any_lane(is_far):
        x = select(is_far, _far(maximum(alpha, zero + _FAR), e, tail), x)
    return maximum(x, zero)


@njit(**INLINE)
def _near(alpha, e, bulk, tail, rest):
    """Return x where α ≤ _FAR; p = Q(α + x), q = 1 − p, and p is stored without the factor exp(−α²/2) for α > 0."""
    zero = alpha - alpha
    one = zero + 1.0
    is_body = above(zero, alpha)
    half, other = e * 0.5, bulk * e * 0.5
    scaled = tail * select(is_body, one - other, half)
    p = select(is_body, scaled, scaled * bulk)
    q = select(is_body, fma(tail, other, rest), one - p)
    exponent = select(is_body, zero, alpha * alpha * 0.5)
    w = exponent - _log(maximum(scaled * q * 4.0, zero + _TINY))
    w = select(above(w, zero + _WIDEST), zero + _WIDEST, maximum(w, zero))
    z = (q - p) * evaluate(w, _TOP) * reciprocal(evaluate(w, _BOTTOM))
    return _polished(z, p, q, scaled, exponent) - alpha


@njit(**INLINE)
def _log(x):
    """Return ln x with an absolute error of 1e-7, without a division."""
    n, m = exponent_and_mantissa(x)
    m = m - 1.5
    return fma(n, math.log(2.0), evaluate(m, _LOG))


def _polished(z, p, q, scaled, exponent):
    """Return z after a step of Newton's method for Q(z) = p in double precision, and unchanged in single."""
    raise NotImplementedError


@overload(_polished, jit_options=INLINE)
def _polished_overload(z, p, q, scaled, exponent):
    if z.elem == types.float32:
        return lambda z, p, q, scaled, exponent: z
    return _newton


def _newton(z, p, q, scaled, exponent):
    s, zero = absolute(z), z - z
    is_lower = above(p, q)
    least = maximum(select(is_lower, q, scaled), zero + _TINY)
    e = erfcx(s * _SQRT_HALF)
    excess = select(is_lower, zero, exponent) - s * s * 0.5 + log(e / (least + least))
    s = fma(excess * e, zero + _SQRT_HALF_PI, s)
    return select(is_lower, s * -1.0, s)


@njit(**INLINE)
def _log_series(v):
    """Return ln E at v = 1/α²."""
    return evaluate(v, _SERIES) * v


@njit(**INLINE)
def _far(alpha, e, tail):
    """Return x where α ≥ _FAR, from y = αx + x²/2.

    y solves y + ½ln(1 + 2vy) − ln E(v/(1 + 2vy)) + ln E(v) = t with v = 1/α² and t = −ln(tail). The step from y = t is
    of third order.
    """
    zero = alpha - alpha
    one = zero + 1.0
    t = log(tail) * -1.0
    inverse = one / alpha
    v = inverse * inverse
    scale = fma(t * 2.0, v, one)
    beyond = v / scale
    low = _log_series(beyond)
    slope = fma(low * low, zero + 0.5, low) + 1.0  # E to second order.
    step = (log(scale) * 0.5 - low + _log_series(v)) * slope
    y = maximum(fma(step * beyond, step * beyond, t - step), zero)
    x = y * 2.0 * inverse / (square_root(fma(y * 2.0, v, one)) + 1.0)
    return _far_polished(alpha, e, t, x)


def _far_polished(alpha, e, t, x):
    """Return x after a step of Newton's method in double precision, and unchanged in single."""
    raise NotImplementedError


@overload(_far_polished, jit_options=INLINE)
def _far_polished_overload(alpha, e, t, x):
    if x.elem == types.float32:
        return lambda alpha, e, t, x: x
    return _far_newton


def _far_newton(alpha, e, t, x):
    here = erfcx((alpha + x) * _SQRT_HALF)
    excess = x * fma(x, alpha - alpha + 0.5, alpha) - log(here / e) - t
    return x - excess * here * _SQRT_HALF_PI
