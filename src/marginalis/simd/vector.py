"""A vector of LANES chains as a Numba value.

Inside a compiled function ``load`` returns LANES numbers at once, and ``+ - *`` act on all of them. A kernel therefore
reads like scalar code while its accumulators stay in SIMD registers, independently of the auto-vectorizer. LLVM splits
the vectors into the registers of the machine. Lanes are independent: the result of a lane depends neither on its number
nor on the other lanes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

from .compiling import intrinsic

LANES = 16  # Chains per vector.
ALIGNMENT = 64  # Alignment of arrays in bytes: a cache line, and a register of AVX-512.

_IR = {
    types.uint8: ir.IntType(8),
    types.float32: ir.FloatType(),
    types.float64: ir.DoubleType(),
    types.uint32: ir.IntType(32),
    types.uint64: ir.IntType(64),
    types.boolean: ir.IntType(1),
}
_I32 = ir.IntType(32)


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


def broadcast(builder: Any, scalar: Any) -> Any:
    vector = ir.VectorType(scalar.type, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, _I32(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_I32, LANES), None))


def constant(vector: Any, value: float) -> ir.Constant:
    return ir.Constant(vector, [value] * LANES)


def call(builder: Any, name: str, *args: Any) -> Any:
    vector = args[0].type
    bits = 32 if isinstance(vector.element, ir.FloatType) else 64
    function = ir.FunctionType(vector, [vector] * len(args))
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.v{LANES}f{bits}"), args)


def float_format(vector: Any) -> tuple[ir.VectorType, int, int]:
    """Return the integer vector type, mantissa bits and lowest normal exponent of a float vector type."""
    if isinstance(vector.element, ir.FloatType):
        return ir.VectorType(_I32, LANES), 23, -126
    return ir.VectorType(ir.IntType(64), LANES), 52, -1022


# ---------------------------------------------------------------- operators


def _operator(op: Any, on_float: Callable | None, on_int: Callable | None) -> None:
    """Define `op` in Numba for two vectors, or a vector and a scalar."""

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
        x if isinstance(kind, Vector) else broadcast(builder, context.cast(builder, x, kind, vector.elem))
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
    """Return LANES elements from flat position `index` (a multiple of LANES) of an aligned contiguous array."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, sig, args)
        return builder.load(pointer, align=_alignment(array), typ=_ir_type(array.dtype))

    return Vector(array.dtype)(array, index), emit


@intrinsic
def scalar(typingctx: Any, array: Any, index: Any) -> Any:
    """Return one element, from a flat position that must not be negative."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = _IR[array.dtype] if array.dtype in _IR else context.get_data_type(array.dtype)
        return builder.load(element_of(context, builder, sig, args, kind), typ=kind)

    return array.dtype(array, index), emit


@intrinsic
def store(typingctx: Any, array: Any, index: Any, vector: Any) -> Any:
    """Write LANES elements to flat position `index` of an aligned contiguous array."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, sig, args), align=_alignment(array))
        return context.get_dummy_value()

    return types.void(array, index, vector), emit


def _alignment(array: Any) -> int:
    return int(min(ALIGNMENT, LANES * array.dtype.bitwidth // 8))


def _pointer(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    start = element_of(context, builder, sig, args, _IR[sig.args[0].dtype])
    return builder.bitcast(start, _ir_type(sig.args[0].dtype).as_pointer())


def element_of(context: Any, builder: Any, sig: Any, args: Any, kind: Any) -> Any:
    """Return a pointer to the element of an array at a flat index, of type `kind`; LLVM's pointers have no type."""
    data = context.make_array(sig.args[0])(context, builder, args[0]).data
    return builder.gep(data, [context.cast(builder, args[1], sig.args[1], types.intp)], source_etype=kind)


@intrinsic
def splat(typingctx: Any, scalar: Any) -> Any:
    """Return the same number in every lane."""
    return Vector(scalar)(scalar), lambda context, builder, sig, args: broadcast(builder, args[0])


@intrinsic
def lane_numbers(typingctx: Any) -> Any:
    """Return 0, 1, …, LANES−1 as uint64."""
    return Vector(types.uint64)(), lambda context, builder, sig, args: ir.Constant(
        _ir_type(types.uint64), list(range(LANES))
    )


@intrinsic
def fma(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x·y + z with one rounding; scalars are repeated in all lanes."""
    vector = next(t for t in (x, y, z) if isinstance(t, Vector))

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return call(builder, "fma", *_as_vectors(context, builder, vector, sig.args, args))

    return vector(x, y, z), emit


@intrinsic
def absolute(typingctx: Any, x: Any) -> Any:
    """Return |x|."""
    return x(x), lambda context, builder, sig, args: call(builder, "fabs", args[0])


@intrinsic
def minus_absolute(typingctx: Any, x: Any) -> Any:
    """Return −|x|."""
    return x(x), lambda context, builder, sig, args: builder.fneg(call(builder, "fabs", args[0]))


@intrinsic
def maximum(typingctx: Any, x: Any, y: Any) -> Any:
    """Return the larger of x and y, lane by lane."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return x(x, y), emit


def _chosen(sign: str) -> Any:
    """Return a function that chooses one of two numbers, floats or signed integers, by comparing them.

    Numba's own ``min`` and ``max`` are compiled anew in every process that compiles a kernel.
    """

    @intrinsic
    def chosen(typingctx: Any, x: Any, y: Any) -> Any:
        kind = typingctx.unify_types(types.unliteral(x), types.unliteral(y))

        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            is_float = isinstance(kind, types.Float)
            compare = builder.fcmp_ordered if is_float else builder.icmp_signed
            return builder.select(compare(sign, *args), *args)

        return kind(kind, kind), emit

    return chosen


smaller, larger = _chosen("<"), _chosen(">")


@intrinsic
def exponent_and_mantissa(typingctx: Any, x: Any) -> Any:
    """Return n and m with x = 2^n·m and 1 ≤ m < 2, for positive normal x."""
    both = types.UniTuple(x, 2)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        integers, mantissa, lowest = float_format(args[0].type)
        bits = builder.bitcast(args[0], integers)
        n = builder.sub(builder.lshr(bits, constant(integers, mantissa)), constant(integers, 1 - lowest))
        fraction = builder.and_(bits, constant(integers, (1 << mantissa) - 1))
        m = builder.or_(fraction, constant(integers, (1 - lowest) << mantissa))
        return context.make_tuple(builder, both, [builder.sitofp(n, args[0].type), builder.bitcast(m, args[0].type)])

    return both(x), emit


@intrinsic
def widen(typingctx: Any, x: Any) -> Any:
    """Return x in double precision."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return args[0] if x.elem == types.float64 else builder.fpext(args[0], _ir_type(types.float64))

    return Vector(types.float64)(x), emit
