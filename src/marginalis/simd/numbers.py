"""Uniform and normal numbers from random bits, and comparisons. Lanes are independent."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import njit, types

from .compiling import intrinsic
from .draws import INLINE
from .functions import log, select, uniform_of
from .vector import LANES, Vector, call, constant, fma


@intrinsic
def uniform(typingctx: Any, word: Any, like: Any) -> Any:
    """Return (w + ½)/2^32 from the low 32 bits w of a word, in the type of `like`."""
    return like(word, like), lambda context, builder, sig, args: uniform_of(builder, args[0], args[1].type)


@intrinsic
def uniform_rest(typingctx: Any, word: Any, like: Any) -> Any:
    """Return 1 − (w + ½)/2^32 from the low 32 bits w of a word, with full relative accuracy."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return uniform_of(builder, builder.not_(args[0]), args[1].type)

    return like(word, like), emit


@intrinsic
def nearer_tail(typingctx: Any, word: Any, like: Any) -> Any:
    """Return the smaller of u and 1 − u, with full relative accuracy, and the sign of u − ½."""
    both = types.UniTuple(like, 2)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = args[1].type
        w = args[0]
        other = builder.not_(w)
        low = builder.icmp_unsigned("<", w, other)
        tail = builder.uitofp(builder.select(low, w, other), vector)
        p = call(builder, "fma", tail, constant(vector, 2.0**-32), constant(vector, 2.0**-33))
        sign = builder.select(low, constant(vector, -1.0), constant(vector, 1.0))
        return context.make_tuple(builder, both, [p, sign])

    return both(word, like), emit


@intrinsic
def above(typingctx: Any, x: Any, y: Any) -> Any:
    """Whether x > y, lane by lane."""
    return Vector(types.boolean)(x, y), lambda context, builder, sig, args: builder.fcmp_ordered(">", *args)


@intrinsic
def any_lane(typingctx: Any, mask: Any) -> Any:
    """Whether a comparison is true in any lane."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = ir.IntType(LANES)
        return builder.icmp_unsigned("!=", builder.bitcast(args[0], bits), ir.Constant(bits, 0))

    return types.boolean(mask), emit


@intrinsic
def same(typingctx: Any, x: Any, y: Any) -> Any:
    """Whether two words are equal, lane by lane."""
    return Vector(types.boolean)(x, y), lambda context, builder, sig, args: builder.icmp_unsigned("==", *args)


@intrinsic
def as_index(typingctx: Any, x: Any) -> Any:
    """Return numbers that are whole and not negative as words."""
    words = ir.VectorType(ir.IntType(32), LANES)
    return Vector(types.uint32)(x), lambda context, builder, sig, args: builder.fptoui(args[0], words)


@intrinsic
def square_root(typingctx: Any, x: Any) -> Any:
    """Return √x."""
    return x(x), lambda context, builder, sig, args: call(builder, "sqrt", args[0])


# Coefficients of Wichura, Algorithm AS 241, Applied Statistics 37, 477 (1988), highest first.
_NEAR_TOP = (
    2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
    1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0,
)  # fmt: skip
_NEAR_BOTTOM = (
    5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
    5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0,
)  # fmt: skip
_FAR_TOP = (
    7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
    3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0,
)  # fmt: skip
_FAR_BOTTOM = (
    1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
    6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0,
)  # fmt: skip


@njit(**INLINE)
def _horner(x, c):
    value = fma(x, c[0], c[1])
    value = fma(value, x, c[2])
    value = fma(value, x, c[3])
    value = fma(value, x, c[4])
    value = fma(value, x, c[5])
    value = fma(value, x, c[6])
    return fma(value, x, c[7])


@njit(**INLINE)
def normal(word, like):
    """Return a standard normal number: the inverse of the distribution function at the uniform of a word.

    A uniform of 32 bits is never so close to 0 or 1 that the third branch of the algorithm is needed.
    """
    p, sign = nearer_tail(word, like)
    return sign * tail_quantile(p)


@njit(**INLINE)
def tail_quantile(p):
    """Return the z ≥ 0 that a standard normal number exceeds with probability p ≤ 1/2."""
    q = p - 0.5
    r = fma(q * q, -1.0, 0.180625)
    near = q * (_horner(r, _NEAR_TOP) / _horner(r, _NEAR_BOTTOM))
    t = square_root(log(p) * -1.0) - 1.6
    far = (_horner(t, _FAR_TOP) / _horner(t, _FAR_BOTTOM)) * -1.0
    return select(above(q * -1.0, q - q + 0.425), far, near) * -1.0


LOG2_E = 1.0 / math.log(2.0)


@njit(**INLINE)
def share_of(word, total):
    """Return u·total for the uniform u of a word, always below the total.

    In single precision u may be rounded to 1. Of several states the one whose cumulative sum first exceeds u·total is
    drawn, so that a last state of probability zero would be drawn then.
    """
    share = uniform(word, total) * total
    return select(above(total, share), share, total * (1.0 - 2.0**-24))
