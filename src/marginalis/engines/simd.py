"""A vector of LANES chains as a Numba value.

Inside a jitted function ``load`` yields LANES numbers at once and ``+ - *`` act on all of them, so a kernel
reads like scalar code while its accumulators stay in SIMD registers; nothing is left to an auto-vectoriser.
LLVM splits the vectors into whatever registers the machine has. Lanes never mix: what a lane computes does
not depend on which lane it is, nor on what the others do.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 16
ALIGNMENT = 64

_IR = {
    types.float32: ir.FloatType(),
    types.float64: ir.DoubleType(),
    types.uint32: ir.IntType(32),
    types.uint64: ir.IntType(64),
    types.boolean: ir.IntType(1),
}
_I32 = ir.IntType(32)

_features = llvm.get_host_cpu_features()
HAS_AVX512 = (
    config.CPU_NAME in (None, "host")
    and config.CPU_FEATURES is None
    and all(_features.get(name) for name in ("avx512f", "avx512dq"))
)

# Numba's cache on disk looks only at the file of the function it caches. Kernels close over this number,
# which is part of the key, so that a change in any of their files is seen.
SOURCES = zlib.crc32(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))


class Vector(types.Type):
    """LANES numbers of one scalar type."""

    def __init__(self, elem: types.Type) -> None:
        self.elem = elem
        super().__init__(f"Vector({LANES} x {elem})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Vector) -> None:
        super().__init__(dmm, fe_type, _ir_type(fe_type.elem))


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return zeros whose first element lies on a vector boundary, as `load` and `store` expect."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


# ---------------------------------------------------------------- pieces of LLVM


def _ir_type(elem: types.Type) -> ir.VectorType:
    return ir.VectorType(_IR[elem], LANES)


def _splat(builder: Any, scalar: Any) -> Any:
    vector = ir.VectorType(scalar.type, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, _I32(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_I32, LANES), None))


def _constant(vector: Any, value: float) -> ir.Constant:
    return ir.Constant(vector, [value] * LANES)


def _call(builder: Any, name: str, *args: Any) -> Any:
    vector = args[0].type
    bits = 32 if isinstance(vector.element, ir.FloatType) else 64
    function = ir.FunctionType(vector, [vector] * len(args))
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.v{LANES}f{bits}"), args)


def _polynomial(builder: Any, x: Any, coefficients: Any) -> Any:
    """Horner's rule, lowest coefficient first."""
    *rest, value = (_constant(x.type, float(c)) for c in coefficients)
    for c in reversed(rest):
        value = _call(builder, "fma", value, x, c)
    return value


def _float_format(vector: Any) -> tuple[ir.VectorType, int, int]:
    """Integer vector type, mantissa bits and lowest normal exponent of a float vector."""
    if isinstance(vector.element, ir.FloatType):
        return ir.VectorType(_I32, LANES), 23, -126
    return ir.VectorType(ir.IntType(64), LANES), 52, -1022


# ---------------------------------------------------------------- operators


def _operator(op: Any, on_float: Callable | None, on_int: Callable | None) -> None:
    """Teach Numba `op` for two vectors, or a vector and a scalar."""

    @infer_global(op)
    class _Typing(AbstractTemplate):
        key = op

        def generic(self, args: Any, kws: Any) -> Any:
            vectors = [t for t in args if isinstance(t, Vector)]
            if len(args) == 2 and vectors and all(t == vectors[0] or isinstance(t, types.Number) for t in args):
                return signature(vectors[0], *args)
            return None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        emit = on_float if isinstance(sig.return_type.elem, types.Float) else on_int
        if emit is None:
            raise TypeError(f"{op} is not defined for {sig.return_type}")
        return emit(builder, *_as_vectors(context, builder, sig.return_type, sig.args, args))

    for pair in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(op, *pair)(lower)


def _as_vectors(context: Any, builder: Any, vector: Vector, kinds: Any, values: Any) -> list[Any]:
    return [
        x if isinstance(kind, Vector) else _splat(builder, context.cast(builder, x, kind, vector.elem))
        for kind, x in zip(kinds, values, strict=True)
    ]


_operator(operator.add, lambda b, x, y: b.fadd(x, y), lambda b, x, y: b.add(x, y))
_operator(operator.sub, lambda b, x, y: b.fsub(x, y), lambda b, x, y: b.sub(x, y))
_operator(operator.mul, lambda b, x, y: b.fmul(x, y), lambda b, x, y: b.mul(x, y))
_operator(operator.truediv, lambda b, x, y: b.fdiv(x, y), None)
_operator(operator.xor, None, lambda b, x, y: b.xor(x, y))
_operator(operator.and_, None, lambda b, x, y: b.and_(x, y))
_operator(operator.rshift, None, lambda b, x, y: b.lshr(x, y))


# ---------------------------------------------------------------- functions


@intrinsic
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """LANES elements from flat position `index` (a multiple of LANES) of an aligned contiguous array."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, sig, args), align=ALIGNMENT)

    return Vector(array.dtype)(array, index), emit


@intrinsic
def scalar(typingctx: Any, array: Any, index: Any) -> Any:
    """Return one element, from a flat position known not to be negative."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        return builder.load(builder.gep(data, [context.cast(builder, args[1], sig.args[1], types.intp)]))

    return array.dtype(array, index), emit


@intrinsic
def store(typingctx: Any, array: Any, index: Any, vector: Any) -> Any:
    """Write LANES elements to flat position `index` of an aligned contiguous array."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, sig, args), align=ALIGNMENT)
        return context.get_dummy_value()

    return types.void(array, index, vector), emit


def _pointer(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    array = context.make_array(sig.args[0])(context, builder, args[0])
    index = context.cast(builder, args[1], sig.args[1], types.intp)
    return builder.bitcast(builder.gep(array.data, [index]), _ir_type(sig.args[0].dtype).as_pointer())


@intrinsic
def splat(typingctx: Any, scalar: Any) -> Any:
    """Return the same number in every lane."""
    return Vector(scalar)(scalar), lambda context, builder, sig, args: _splat(builder, args[0])


@intrinsic
def lane_numbers(typingctx: Any) -> Any:
    """0, 1, …, LANES−1 as uint64."""
    return Vector(types.uint64)(), lambda context, builder, sig, args: ir.Constant(
        _ir_type(types.uint64), list(range(LANES))
    )


@intrinsic
def fma(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """x·y + z with one rounding; scalars are spread over the lanes."""
    vector = next(t for t in (x, y, z) if isinstance(t, Vector))

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _call(builder, "fma", *_as_vectors(context, builder, vector, sig.args, args))

    return vector(x, y, z), emit


@intrinsic
def absolute(typingctx: Any, x: Any) -> Any:
    """|x|."""
    return x(x), lambda context, builder, sig, args: _call(builder, "fabs", args[0])


@intrinsic
def minus_absolute(typingctx: Any, x: Any) -> Any:
    """−|x|."""
    return x(x), lambda context, builder, sig, args: builder.fneg(_call(builder, "fabs", args[0]))


@intrinsic
def maximum(typingctx: Any, x: Any, y: Any) -> Any:
    """Return the larger of x and y, lane by lane."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return x(x, y), emit


@intrinsic
def exponent_and_mantissa(typingctx: Any, x: Any) -> Any:
    """Return n and m with x = 2^n·m and 1 ≤ m < 2, for positive normal x."""
    both = types.UniTuple(x, 2)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        integers, mantissa, lowest = _float_format(args[0].type)
        bits = builder.bitcast(args[0], integers)
        n = builder.sub(builder.lshr(bits, _constant(integers, mantissa)), _constant(integers, 1 - lowest))
        fraction = builder.and_(bits, _constant(integers, (1 << mantissa) - 1))
        m = builder.or_(fraction, _constant(integers, (1 - lowest) << mantissa))
        return context.make_tuple(builder, both, [builder.sitofp(n, args[0].type), builder.bitcast(m, args[0].type)])

    return both(x), emit


@intrinsic
def widen(typingctx: Any, x: Any) -> Any:
    """Return x in double precision."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return args[0] if x.elem == types.float64 else builder.fpext(args[0], _ir_type(types.float64))

    return Vector(types.float64)(x), emit


def _exp2_coefficients(degree: int, low: float) -> Any:
    """Near-minimax polynomial for 2^x on [low, low + 1], lowest coefficient first."""
    fit = np.polynomial.Chebyshev.interpolate(np.exp2, degree, domain=[low, low + 1.0])
    return fit.convert(kind=np.polynomial.Polynomial).coef


_DEGREE = {32: 5, 64: 11}


@intrinsic
def exp2_nonpositive(typingctx: Any, x: Any) -> Any:
    """2^x for x ≤ 0; what would be subnormal comes out as the smallest normal number."""
    return x(x), lambda context, builder, sig, args: _exp2_nonpositive(builder, args[0])


def _exp2_nonpositive(builder: Any, x: Any) -> Any:
    integers, mantissa, lowest = _float_format(x.type)
    degree = _DEGREE[integers.element.width]
    if HAS_AVX512 and mantissa == 23:
        return _exp2_avx512(builder, x, degree)
    low = _constant(x.type, float(lowest))
    x = builder.select(builder.fcmp_ordered(">", x, low), x, low)
    whole = _call(builder, "rint", x)
    power = _polynomial(builder, builder.fsub(x, whole), _exp2_coefficients(degree, -0.5))
    exponent = builder.shl(builder.fptosi(whole, integers), _constant(integers, mantissa))
    return builder.bitcast(builder.add(builder.bitcast(power, integers), exponent), x.type)


def _exp2_avx512(builder: Any, x: Any, degree: int) -> Any:
    """2^x = 2^floor(x) · 2^(x − floor(x)) with the two instructions made for it."""
    full, default = ir.Constant(ir.IntType(16), -1), _I32(4)

    def instruction(name: str, second: Any) -> Any:
        kinds = [x.type, second.type, x.type, full.type, _I32]
        function = ir.FunctionType(x.type, kinds)
        name = f"llvm.x86.avx512.mask.{name}.ps.512"
        return lambda first: builder.call(
            cgutils.get_or_insert_function(builder.module, function, name), (first, second, x, full, default)
        )

    fraction = instruction("reduce", _I32(1))(x)  # 1: round towards −∞
    return instruction("scalef", x)(_polynomial(builder, fraction, _exp2_coefficients(degree, 0.0)))


@intrinsic
def log(typingctx: Any, x: Any) -> Any:
    """Natural logarithm of positive normal numbers: x = 2^n·m, ln m = 2 artanh((m−1)/(m+1))."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        (x,) = args
        integers, mantissa, _ = _float_format(x.type)
        one = _constant(x.type, 1.0)
        low = builder.bitcast(_constant(x.type, math.sqrt(0.5)), integers)
        shifted = builder.sub(builder.bitcast(x, integers), low)
        n = builder.sitofp(builder.ashr(shifted, _constant(integers, mantissa)), x.type)
        m = builder.bitcast(builder.add(builder.and_(shifted, _constant(integers, (1 << mantissa) - 1)), low), x.type)
        s = builder.fdiv(builder.fsub(m, one), builder.fadd(m, one))
        series = [2.0 / (2 * i + 1) for i in range(5 if mantissa == 23 else 12)]
        ln_m = builder.fmul(s, _polynomial(builder, builder.fmul(s, s), series))
        return _call(builder, "fma", n, _constant(x.type, math.log(2.0)), ln_m)

    return x(x), emit


def _uniform(builder: Any, word: Any, vector: Any) -> Any:
    """(w + ½)/2^32, where w is the low 32 bits of the word."""
    w = builder.uitofp(builder.trunc(word, ir.VectorType(_I32, LANES)), vector)
    return _call(builder, "fma", w, _constant(vector, 2.0**-32), _constant(vector, 2.0**-33))


@intrinsic
def draw_spin(typingctx: Any, a: Any, e: Any, word: Any) -> Any:
    """sign(a) with probability 1/(1+e), else −sign(a), where e = exp(−2|a|); `word` is 32 random bits."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, e, word = args
        u = _uniform(builder, word, a.type)
        against = builder.fcmp_ordered("<", _call(builder, "fma", u, e, u), e)
        likelier = _call(builder, "copysign", _constant(a.type, 1.0), a)
        return builder.select(against, builder.fneg(likelier), likelier)

    return a(a, e, word), emit


@intrinsic
def accept(typingctx: Any, gain: Any, top: Any, bottom: Any, word: Any) -> Any:
    """Whether u < 2^gain·top/bottom, lane by lane; neither side of the comparison overflows."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        gain, top, bottom, word = args
        small = _exp2_nonpositive(builder, builder.fneg(_call(builder, "fabs", gain)))
        one = _constant(gain.type, 1.0)
        up = builder.fcmp_ordered(">", gain, _constant(gain.type, 0.0))
        left = builder.fmul(_uniform(builder, word, gain.type), bottom)
        left = builder.fmul(left, builder.select(up, small, one))
        right = builder.fmul(top, builder.select(up, one, small))
        return builder.fcmp_ordered("<", left, right)

    return Vector(types.boolean)(gain, top, bottom, word), emit


@intrinsic
def select(typingctx: Any, mask: Any, x: Any, y: Any) -> Any:
    """Return x where the mask holds, else y."""
    return x(mask, x, y), lambda context, builder, sig, args: builder.select(*args)


@intrinsic
def rise(typingctx: Any, now: Any, before: Any, gap: Any, per_step: Any) -> Any:
    """(|now| − |before|)·per_step, where now − before = gap/per_step; no cancellation for like signs."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        now, before, gap = args[:3]
        scale = _splat(builder, context.cast(builder, args[3], sig.args[3], sig.args[0].elem))
        integers, _, _ = _float_format(now.type)
        differ = builder.xor(builder.bitcast(now, integers), builder.bitcast(before, integers))
        alike = builder.icmp_signed(">=", differ, _constant(integers, 0))
        signed = builder.fmul(gap, _call(builder, "copysign", _constant(now.type, 1.0), now))
        across = builder.fsub(_call(builder, "fabs", now), _call(builder, "fabs", before))
        return builder.select(alike, signed, builder.fmul(across, scale))

    return now(now, before, gap, per_step), emit
