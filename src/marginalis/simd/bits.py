"""Logic on vectors of words, which hold one bit for each of 32 chains.

With AVX-512 any function of three bits is one instruction; otherwise it takes a few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from .compiling import intrinsic
from .functions import HAS_AVX512
from .vector import LANES, constant

_I32 = ir.IntType(32)
_WORDS = ir.VectorType(_I32, LANES)


def _of_three(function: Callable[[int, int, int], int]) -> Any:
    """Return the function of three vectors that applies `function` to each bit."""
    table = [function(i >> 2 & 1, i >> 1 & 1, i & 1) & 1 for i in range(8)]

    @intrinsic
    def bitwise(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            if HAS_AVX512:
                kind = ir.FunctionType(_WORDS, [_WORDS, _WORDS, _WORDS, _I32])
                name = "llvm.x86.avx512.pternlog.d.512"
                instruction = cgutils.get_or_insert_function(builder.module, kind, name)
                return builder.call(instruction, (*args, _I32(sum(bit << i for i, bit in enumerate(table)))))
            found = constant(_WORDS, 0)
            for i, bit in enumerate(table):
                if bit:
                    terms = [x if i >> 2 - j & 1 else builder.not_(x) for j, x in enumerate(args)]
                    found = builder.or_(found, builder.and_(builder.and_(terms[0], terms[1]), terms[2]))
            return found

        return a(a, b, c), emit

    return bitwise


parity = _of_three(lambda a, b, c: a ^ b ^ c)
majority = _of_three(lambda a, b, c: a + b + c >> 1)
plus_product = _of_three(lambda a, b, c: a ^ b & c)  # a + b·c modulo two.
or_both = _of_three(lambda a, b, c: a | b & c)
less_so_far = _of_three(lambda a, b, less: b if a ^ b else less)  # a < b, given the result `less` for the lower bits.
same_so_far = _of_three(lambda a, b, same: same & (1 ^ a ^ b))


@intrinsic
def any_bit(typingctx: Any, x: Any) -> Any:
    """Whether a bit is set in any lane."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lanes = builder.icmp_unsigned("!=", args[0], constant(_WORDS, 0))
        return builder.icmp_unsigned("!=", builder.bitcast(lanes, ir.IntType(LANES)), ir.Constant(ir.IntType(LANES), 0))

    return types.boolean(x), emit
