"""Random bits by address, and the Boltzmann factor of a field, for all kernels."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, uint32

from ..random import KEY_STEPS, MASK, MULTIPLIERS
from .compiling import PartCompiler
from .functions import evens_first, exp2_nonpositive, high_half, low_half
from .vector import minus_absolute, splat

CALLED = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
    "pipeline_class": PartCompiler,
}
INLINE = {**CALLED, "forceinline": True}
TILE = 4  # Units per call of Philox.
FLUSH = 16  # Tiles per logarithm; a product of 64 factors in [1, 2] stays in the range of float32.
_M0, _M1 = (np.uint64(m) for m in MULTIPLIERS)
_W0, _W1 = (np.uint64(w) for w in KEY_STEPS)
LOW, WORD = np.uint64(MASK), np.uint64(32)  # The mask of the low 32 bits, and the shift to the high ones.
TWICE_LOG2_E = 2.0 / math.log(2.0)


@njit(**INLINE)
def philox(chain, step, group, side, k0, k1):
    """Return Philox-4x32-10 at the counters (chain, step, group, side); only `chain` differs between lanes.

    The first two rounds are unrolled: values that are the same in all lanes are scalars there, and the compiler moves
    the two products that depend only on the chain out of the loops over steps and units.
    """
    p0 = (evens_first(chain) & LOW) * _M0
    s1 = group * _M1
    s0 = ((s1 >> WORD) ^ step ^ k0) * _M0
    p1 = (((p0 >> WORD) ^ (side ^ k1)) & LOW) * _M1
    k0, k1 = (k0 + _W0) & LOW, (k1 + _W1) & LOW
    c0 = (p1 >> WORD) ^ ((s1 & LOW) ^ k0)
    c1 = p1
    c2 = (p0 & LOW) ^ ((s0 >> WORD) ^ k1)
    c3 = splat(s0)
    for _ in range(7):
        k0, k1 = (k0 + _W0) & LOW, (k1 + _W1) & LOW
        p0 = (c0 & LOW) * _M0
        p1 = (c2 & LOW) * _M1
        c0 = (p1 >> WORD) ^ c1 ^ k0
        c2 = (p0 >> WORD) ^ c3 ^ k1
        c1 = p1
        c3 = p0
    k0, k1 = (k0 + _W0) & LOW, (k1 + _W1) & LOW
    p0 = (c0 & LOW) * _M0
    p1 = (c2 & LOW) * _M1
    return (
        high_half(p1) ^ low_half(c1) ^ uint32(k0),
        low_half(p1),
        high_half(p0) ^ low_half(c3) ^ uint32(k1),
        low_half(p0),
    )


@njit(**INLINE)
def boltzmann(a):
    """Return exp(−2|a|)."""
    return exp2_nonpositive(minus_absolute(a) * TWICE_LOG2_E)
