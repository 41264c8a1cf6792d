"""Units drawn by halves (`random`): one Philox call serves eight of them, and 16 bits decide nearly every draw.

A unit goes against its field where u(1+e) < e. The words of a call serve two tiles of four units, the first as they are
and the second shifted by 16 bits: below the upper bits of a unit lie those of another, in the place of its own lower
ones. So u is off by less than 2^-16, which matters to no draw with |u(1+e) − e| > 2^-15. A tile in which one comes
nearer is drawn once more, with all 32 bits.

`halves` is None where units are drawn by words; then nothing of this is compiled.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types, uint32, uint64
from numba.core import cgutils
from numba.extending import intrinsic

from ..random import HALVES, HALVES_REST
from .draws import INLINE, philox
from .functions import HAS_AVX512
from .numbers import uniform
from .vector import LANES, call, constant, fma, splat

_NEAR = 1.05 * 2.0**17  # in 2^-32, rounding included
_UPPER = uint32(0xFFFF0000)
_REST = uint64(HALVES_REST - HALVES)  # the sides that kernels are given have HALVES added


@njit(**INLINE)
def no_words():
    """Return what stands for the words of a tile before the first."""
    z = splat(uint32(0))
    return z, z, z, z


@njit(**INLINE)
def tile_words(halves, words, chain, step, tile, side, k0, k1):
    """Return the random bits of the four units of a tile; `words` are those of the tile before."""
    if halves is None:
        return philox(chain, step, uint64(tile), side, k0, k1)
    if tile % 2 == 1:
        return _shifted(words)
    return philox(chain, step, uint64(tile // 2), side, k0, k1)


@njit(**INLINE)
def all_bits(halves, chain, step, tile, side, k0, k1):
    """Return the random bits of a tile, the lower 16 of each unit included."""
    if halves is None:
        return philox(chain, step, uint64(tile), side, k0, k1)
    high, low = (
        philox(chain, step, uint64(tile // 2), side, k0, k1),
        philox(chain, step, uint64(tile // 2), side + _REST, k0, k1),
    )
    if tile % 2 == 1:
        high, low = _shifted(high), _shifted(low)
    return _with(high[0], low[0]), _with(high[1], low[1]), _with(high[2], low[2]), _with(high[3], low[3])


@njit(**INLINE)
def _shifted(w):
    return w[0] << 16, w[1] << 16, w[2] << 16, w[3] << 16


@njit(**INLINE)
def _with(high, low):
    return high & _UPPER ^ low >> 16


@njit(**INLINE)
def margin_of(halves, e, word):
    """Return u(1+e) − e, or, by halves, 2^32 times about that: a unit goes against its field where it is negative."""
    if halves is None:
        u = uniform(word, e)
        return fma(u, e, u) - e
    x = as_float(word, e)
    return fma(e, -(2.0**32), fma(x, e, x))


@intrinsic
def as_float(typingctx: Any, word: Any, like: Any) -> Any:
    """Return 32 bits as a number of the kind of `like`."""
    return like(word, like), lambda context, builder, sig, args: builder.uitofp(args[0], args[1].type)


@intrinsic
def nearer(typingctx: Any, nearest: Any, margin: Any) -> Any:
    """Return the smaller of `nearest`, which is not negative, and |margin|; AVX-512 has an instruction for it."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = args[0].type
        if HAS_AVX512 and isinstance(vector.element, ir.FloatType):
            i32, full = ir.IntType(32), ir.Constant(ir.IntType(16), -1)
            kind = ir.FunctionType(vector, [vector, vector, i32, vector, full.type, i32])
            instruction = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.mask.range.ps.512")
            return builder.call(
                instruction, (*args, i32(0b1010), args[0], full, i32(4))
            )  # 10: smaller size, 10: no sign
        size = call(builder, "fabs", args[1])
        return builder.select(builder.fcmp_ordered("<", size, args[0]), size, args[0])

    return nearest(nearest, margin), emit


@intrinsic
def is_open(typingctx: Any, nearest: Any) -> Any:
    """Whether lower bits may decide a draw of any chain."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        mask = ir.IntType(LANES)
        near = builder.fcmp_ordered("<", args[0], constant(args[0].type, _NEAR))
        return builder.icmp_unsigned("!=", builder.bitcast(near, mask), mask(0))

    return types.boolean(nearest), emit
