"""Functions of vectors: powers of two, logarithms, spins from random bits. Lanes are independent."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config

from .compiling import intrinsic
from .vector import LANES, Vector, broadcast, call, constant, float_format

_I32 = ir.IntType(32)
llvm.initialize_native_asmparser()
_features = llvm.get_host_cpu_features()
# Whether Numba compiles for AVX-512; its target may have fewer features than the processor.
HAS_AVX512 = (
    config.CPU_NAME in (None, "host")
    and config.CPU_FEATURES is None
    and bool(config.ENABLE_AVX)
    and all(_features.get(name) for name in ("avx512f", "avx512dq"))
)


def polynomial(builder: Any, x: Any, coefficients: Any) -> Any:
    """Return a polynomial by Horner's rule; coefficients start with the lowest."""
    *rest, value = (constant(x.type, float(c)) for c in coefficients)
    for c in reversed(rest):
        value = call(builder, "fma", value, x, c)
    return value


@intrinsic
def evaluate(typingctx: Any, x: Any, coefficients: Any) -> Any:
    """Return a polynomial whose coefficients, lowest first, are a tuple of constants."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        scalars = cgutils.unpack_tuple(builder, args[1])
        scalars = [context.cast(builder, c, types.float64, sig.args[0].elem) for c in scalars]
        *rest, value = (broadcast(builder, c) for c in scalars)
        for c in reversed(rest):
            value = call(builder, "fma", value, args[0], c)
        return value

    return x(x, coefficients), emit


def _exp2_coefficients(degree: int, low: float) -> Any:
    """Return the coefficients, lowest first, of a near-minimax polynomial for 2^x on [low, low + 1]."""
    fit = np.polynomial.Chebyshev.interpolate(np.exp2, degree, domain=[low, low + 1.0])
    return fit.convert(kind=np.polynomial.Polynomial).coef


_DEGREE = {32: 5, 64: 11}  # Degree of the polynomial for 2^x, by the bits of a float.
SMALL = 0.5  # Largest x of `times_exp2`.


@intrinsic
def exp2_nonpositive(typingctx: Any, x: Any) -> Any:
    """Return 2^x for x ≤ 0; subnormal results are replaced by the smallest normal number."""
    return x(x), lambda context, builder, sig, args: _exp2_nonpositive(builder, args[0])


@intrinsic
def times_exp2(typingctx: Any, e: Any, x: Any) -> Any:
    """Return e·2^x in single precision for 0 ≤ x ≤ SMALL, as e + e·x·q(x), whose error decreases with x."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        e, x = args
        fit = np.polynomial.Chebyshev.interpolate(lambda y: np.expm1(y * math.log(2.0)) / y, 4, domain=[0.0, SMALL])
        q = polynomial(builder, x, fit.convert(kind=np.polynomial.Polynomial).coef)
        return call(builder, "fma", e, builder.fmul(x, q), e)

    return e(e, x), emit


def _exp2_nonpositive(builder: Any, x: Any) -> Any:
    integers, mantissa, lowest = float_format(x.type)
    degree = _DEGREE[integers.element.width]
    if HAS_AVX512 and mantissa == 23:
        return _exp2_avx512(builder, x, degree)
    low = constant(x.type, float(lowest))
    x = builder.select(builder.fcmp_ordered(">", x, low), x, low)
    whole = call(builder, "rint", x)
    power = polynomial(builder, builder.fsub(x, whole), _exp2_coefficients(degree, -0.5))
    exponent = builder.shl(builder.fptosi(whole, integers), constant(integers, mantissa))
    return builder.bitcast(builder.add(builder.bitcast(power, integers), exponent), x.type)


def _exp2_avx512(builder: Any, x: Any, degree: int) -> Any:
    """Return 2^x = 2^floor(x) · 2^(x − floor(x)) by two special instructions."""
    full, default = ir.Constant(ir.IntType(16), -1), _I32(4)

    def instruction(name: str, second: Any) -> Any:
        kinds = [x.type, second.type, x.type, full.type, _I32]
        function = ir.FunctionType(x.type, kinds)
        name = f"llvm.x86.avx512.mask.{name}.ps.512"
        return lambda first: builder.call(
            cgutils.get_or_insert_function(builder.module, function, name), (first, second, x, full, default)
        )

    fraction = instruction("reduce", _I32(1))(x)  # The argument 1 means rounding towards −∞.
    return instruction("scalef", x)(polynomial(builder, fraction, _exp2_coefficients(degree, 0.0)))


@intrinsic
def log(typingctx: Any, x: Any) -> Any:
    """Return the natural logarithm of positive normal numbers: x = 2^n·m, ln m = 2 artanh((m−1)/(m+1))."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        (x,) = args
        integers, mantissa, _ = float_format(x.type)
        one = constant(x.type, 1.0)
        low = builder.bitcast(constant(x.type, math.sqrt(0.5)), integers)
        shifted = builder.sub(builder.bitcast(x, integers), low)
        n = builder.sitofp(builder.ashr(shifted, constant(integers, mantissa)), x.type)
        m = builder.bitcast(builder.add(builder.and_(shifted, constant(integers, (1 << mantissa) - 1)), low), x.type)
        s = builder.fdiv(builder.fsub(m, one), builder.fadd(m, one))
        series = [2.0 / (2 * i + 1) for i in range(5 if mantissa == 23 else 12)]
        ln_m = builder.fmul(s, polynomial(builder, builder.fmul(s, s), series))
        return call(builder, "fma", n, constant(x.type, math.log(2.0)), ln_m)

    return x(x), emit


@intrinsic
def reciprocal(typingctx: Any, x: Any) -> Any:
    """Return 1/x for normal numbers, in single precision with an error of up to two units in the last place."""
    return x(x), lambda context, builder, sig, args: _reciprocal(builder, args[0])


def _reciprocal(builder: Any, x: Any) -> Any:
    if not (HAS_AVX512 and isinstance(x.type.element, ir.FloatType)):
        return builder.fdiv(constant(x.type, 1.0), x)
    # 14 bits by an instruction, all by one step of Newton's method: a division takes as long as 20 multiply-adds.
    full = ir.Constant(ir.IntType(16), -1)
    function = ir.FunctionType(x.type, [x.type, x.type, full.type])
    function = cgutils.get_or_insert_function(builder.module, function, "llvm.x86.avx512.rcp14.ps.512")
    near = builder.call(function, (x, x, full))
    error = call(builder, "fma", builder.fneg(x), near, constant(x.type, 1.0))
    return call(builder, "fma", near, error, near)


_CENTRE = 3.75  # The c of the variable (x − c)/(x + c) of the polynomial of erfcx; it minimizes the degree.
_ERFCX_DEGREE = {32: 10, 64: 22}  # Degree of the polynomial for erfcx, by the bits of a float.


@cache
def _erfcx_coefficients(degree: int) -> Any:
    """Return the coefficients, lowest first, of a near-minimax polynomial for (1 + 2x)·erfcx(x) in (x − c)/(x + c)."""
    from scipy.special import erfcx  # Imported here because it is slow to load.

    def scaled(t: Any) -> Any:
        x = _CENTRE * (1.0 + t) / (1.0 - t)
        return (1.0 + 2.0 * x) * erfcx(x)

    fit = np.polynomial.Chebyshev.interpolate(scaled, degree)
    return fit.convert(kind=np.polynomial.Polynomial).coef


@intrinsic
def erfcx(typingctx: Any, x: Any) -> Any:
    """Return exp(x²)·erfc(x) for x ≥ 0."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        (x,) = args
        integers, _, _ = float_format(x.type)
        one, centre = constant(x.type, 1.0), constant(x.type, _CENTRE)
        scale, beyond = call(builder, "fma", x, constant(x.type, 2.0), one), builder.fadd(x, centre)
        inverse = _reciprocal(builder, builder.fmul(scale, beyond))
        coefficients = _erfcx_coefficients(_ERFCX_DEGREE[integers.element.width])
        t = builder.fmul(builder.fmul(builder.fsub(x, centre), scale), inverse)
        value = polynomial(builder, t, coefficients)
        return builder.fmul(value, builder.fmul(beyond, inverse))

    return x(x), emit


def _halves(builder: Any, words: Any, place: int) -> Any:
    """Return the low (0) or high (1) 32 bits, in the order of the lanes, of words in the order of `evens_first`."""
    halves = ir.VectorType(_I32, LANES)
    if not HAS_AVX512:
        return builder.trunc(builder.lshr(words, constant(words.type, 32 * place)) if place else words, halves)
    ends = []
    for start in (0, LANES // 2):
        places = ir.Constant(ir.VectorType(_I32, LANES // 2), list(range(start, start + LANES // 2)))
        ends.append(builder.bitcast(builder.shuffle_vector(words, words, places), halves))
    mixed = [i // 2 * 2 + place + i % 2 * LANES for i in range(LANES)]
    return builder.shuffle_vector(*ends, ir.Constant(halves, mixed))


@intrinsic
def low_half(typingctx: Any, words: Any) -> Any:
    """Return the low 32 bits, in the order of the lanes, of words in the order of `evens_first`."""
    return Vector(types.uint32)(words), lambda context, builder, sig, args: _halves(builder, args[0], 0)


@intrinsic
def high_half(typingctx: Any, words: Any) -> Any:
    """Return the high 32 bits, in the order of the lanes, of words in the order of `evens_first`."""
    return Vector(types.uint32)(words), lambda context, builder, sig, args: _halves(builder, args[0], 1)


@intrinsic
def evens_first(typingctx: Any, words: Any) -> Any:
    """Return words in the order in which their halves are extracted fastest: with AVX-512 those of even lanes first.

    With AVX-512, 16 words of 64 bits fill two registers; in this order, extracting the low or high halves of all words
    shifts only one of the two.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        order = [*range(0, LANES, 2), *range(1, LANES, 2)] if HAS_AVX512 else list(range(LANES))
        return builder.shuffle_vector(args[0], args[0], ir.Constant(ir.VectorType(_I32, LANES), order))

    return words(words), emit


def uniform_of(builder: Any, word: Any, vector: Any) -> Any:
    """Return (w + ½)/2^32 for 32 random bits w."""
    return call(builder, "fma", builder.uitofp(word, vector), constant(vector, 2.0**-32), constant(vector, 2.0**-33))


@intrinsic
def draw_spin(typingctx: Any, a: Any, e: Any, word: Any) -> Any:
    """Return sign(a) with probability 1/(1+e), else −sign(a), where e = exp(−2|a|); `word` is 32 random bits."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, e, word = args
        u = uniform_of(builder, word, a.type)
        against = builder.fcmp_ordered("<", call(builder, "fma", u, e, u), e)
        likelier = call(builder, "copysign", constant(a.type, 1.0), a)
        return builder.select(against, builder.fneg(likelier), likelier)

    return a(a, e, word), emit


@intrinsic
def accept(typingctx: Any, gain: Any, top: Any, bottom: Any, word: Any) -> Any:
    """Whether u < 2^gain·top/bottom, lane by lane; neither side of the comparison overflows."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        gain, top, bottom, word = args
        small = _exp2_nonpositive(builder, builder.fneg(call(builder, "fabs", gain)))
        one = constant(gain.type, 1.0)
        up = builder.fcmp_ordered(">", gain, constant(gain.type, 0.0))
        left = builder.fmul(uniform_of(builder, word, gain.type), bottom)
        left = builder.fmul(left, builder.select(up, small, one))
        right = builder.fmul(top, builder.select(up, one, small))
        return builder.fcmp_ordered("<", left, right)

    return Vector(types.boolean)(gain, top, bottom, word), emit


@intrinsic
def below_zero(typingctx: Any, x: Any) -> Any:
    """Return −|x| in single precision by one AVX-512 instruction, which LLVM does not split where |x| is used, too."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        (x,) = args
        function = ir.FunctionType(x.type, [x.type] * 2)
        return builder.asm(function, "vorps $2, $1, $0", "=v,v,v", (x, constant(x.type, -0.0)), False)

    return x(x), emit


@intrinsic
def select(typingctx: Any, mask: Any, x: Any, y: Any) -> Any:
    """Return x where the mask is true, else y."""
    return x(mask, x, y), lambda context, builder, sig, args: builder.select(*args)


@intrinsic
def rise(typingctx: Any, now: Any, before: Any, slope: Any, per_step: Any) -> Any:
    """Return (|now| − |before|)·per_step, where now − before = slope/per_step; equal signs cause no cancellation."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        now, before, slope = args[:3]
        scale = broadcast(builder, context.cast(builder, args[3], sig.args[3], sig.args[0].elem))
        integers, _, _ = float_format(now.type)
        differ = builder.xor(builder.bitcast(now, integers), builder.bitcast(before, integers))
        alike = builder.icmp_signed(">=", differ, constant(integers, 0))
        signed = builder.fmul(slope, call(builder, "copysign", constant(now.type, 1.0), now))
        across = builder.fsub(call(builder, "fabs", now), call(builder, "fabs", before))
        return builder.select(alike, signed, builder.fmul(across, scale))

    return now(now, before, slope, per_step), emit
