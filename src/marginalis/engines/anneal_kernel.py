"""The fast kernel: blocks of LANES chains annealed from β = 0 to β = 1 inside the cache.

A block's state is laid out [unit][lane], so a unit's spins over the chains of a block are one SIMD vector.
Units come in tiles of four: four fields are accumulated in registers, and one Philox call serves their four
draws. With e = exp(−2|a|) computed once per unit the draw needs no division, and ln 2cosh a = |a| + ln(1+e)
needs only the product of (1+e), of which one logarithm is taken per 64 units.

All two-state units are spins here (`BipartiteMRF.spin_form`); the arithmetic is that of `annealing`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, uint64
from numba.extending import overload

from ..random import JOINT, KEY_STEPS, MASK, MULTIPLIERS
from .simd import (
    LANES,
    absolute,
    draw_spin,
    exp2_nonpositive,
    fma,
    lane_numbers,
    load,
    log,
    rise,
    splat,
    store,
    widen,
)

TILE = 4  # units per Philox call
FLUSH = 16  # tiles per logarithm: a product of 64 factors in [1, 2] stays in float32 range
_M0, _M1 = (np.uint64(m) for m in MULTIPLIERS)
_W0, _W1 = (np.uint64(w) for w in KEY_STEPS)
_LOW, _32 = np.uint64(MASK), np.uint64(32)
_MINUS_2_LOG2_E = -2.0 / math.log(2.0)
_INLINE = {"nogil": True, "error_model": "numpy", "forceinline": True}


@njit(**_INLINE)
def _philox(chain, step, group, side, k0, k1):
    """Philox-4x32-10 at the counters (chain, step, group, side); only `chain` differs between lanes.

    The first two rounds are spelled out: what is the same in all lanes is scalar there, and the two
    products that depend on the chain alone leave the loops over steps and units.
    """
    p0 = (chain & _LOW) * _M0
    s1 = group * _M1
    s0 = ((s1 >> _32) ^ step ^ k0) * _M0
    p1 = (((p0 >> _32) ^ (side ^ k1)) & _LOW) * _M1
    k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    c0 = (p1 >> _32) ^ ((s1 & _LOW) ^ k0)
    c1 = p1
    c2 = (p0 & _LOW) ^ ((s0 >> _32) ^ k1)
    c3 = splat(s0)
    for _ in range(8):
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
        p0 = (c0 & _LOW) * _M0
        p1 = (c2 & _LOW) * _M1
        c0 = (p1 >> _32) ^ c1 ^ k0
        c2 = (p0 >> _32) ^ c3 ^ k1
        c1 = p1
        c3 = p0
    return c0, c1, c2, c3


def _fields(coupling, state, offset, tile, start):
    """Fields of the four units of a tile: start + Σ weight·state of the other side."""
    raise NotImplementedError


@overload(_fields, jit_options=_INLINE)
def _fields_overload(coupling, state, offset, tile, start):
    return _fields_sparse if len(coupling) == 3 else _fields_band


def _fields_band(coupling, state, offset, tile, start):
    # The inputs of a tile are a range of the other side's units: all of them in an RBM, the two
    # neighbouring layers in a DBM. Weights lie in the order of use: [tile][input][unit in tile].
    data, first, last, begin = coupling
    a0, a1 = splat(start[TILE * tile]), splat(start[TILE * tile + 1])
    a2, a3 = splat(start[TILE * tile + 2]), splat(start[TILE * tile + 3])
    p = begin[tile]
    for i in range(first[tile], last[tile]):
        x = load(state, offset + i * LANES)
        a0 = fma(data[p], x, a0)
        a1 = fma(data[p + 1], x, a1)
        a2 = fma(data[p + 2], x, a2)
        a3 = fma(data[p + 3], x, a3)
        p += TILE
    return a0, a1, a2, a3


def _fields_sparse(coupling, state, offset, tile, start):
    unit = TILE * tile
    return (
        _row(coupling, state, offset, unit, start),
        _row(coupling, state, offset, unit + 1, start),
        _row(coupling, state, offset, unit + 2, start),
        _row(coupling, state, offset, unit + 3, start),
    )


@njit(**_INLINE)
def _row(coupling, state, offset, unit, start):
    indptr, indices, data = coupling
    a = splat(start[unit])
    for p in range(indptr[unit], indptr[unit + 1]):
        a = fma(data[p], load(state, offset + indices[p] * LANES), a)
    return a


@njit(**_INLINE)
def _under(base, beta, gap, unit):
    """Return base + β·gap, the field of a unit under β. (The added zero keeps −0 from deciding a sign.)"""
    if base is None:
        return fma(gap, beta, 0.0)
    return fma(gap, beta, splat(base[unit]))


@njit(**_INLINE)
def _boltzmann(a):
    """e = exp(−2|a|)."""
    return exp2_nonpositive(absolute(a) * _MINUS_2_LOG2_E)


@njit(**_INLINE)
def _rise(base, now, before, gap, per_step):
    """(|a_k| − |a_{k−1}|)/(β_k − β_{k−1})."""
    if base is None:
        return absolute(gap)
    return rise(now, before, gap, per_step)


@njit(**_INLINE)
def _weigh(joint, base, beta, beta_before, per_step, gap, unit, word, linear, top, bottom):
    """Add one summed-out unit to the weight of step k. Returns its field under β_k, e, and the sums.

    mAIS adds ln 2cosh a_k − ln 2cosh a_{k−1}; AIS draws h from P_{k−1}(h|v) and adds h·gap.
    """
    now = _under(base, beta, gap, unit)
    before = _under(base, beta_before, gap, unit)
    e = _boltzmann(now)
    e_before = _boltzmann(before)
    if joint is None:
        linear = linear + _rise(base, now, before, gap, per_step)
        top = fma(top, e, top)
        bottom = fma(bottom, e_before, bottom)
    else:
        linear = fma(draw_spin(before, e_before, word), gap, linear)
    return now, e, linear, top, bottom


@njit(**_INLINE)
def _words(joint, chain, step, tile, k0, k1):
    """Random bits for the h of the joint state, drawn at the end of the step before."""
    if joint is None:
        z = splat(uint64(0))
        return z, z, z, z
    return _philox(chain, step, tile, uint64(JOINT), k0, k1)


@njit(nogil=True, error_model="numpy", cache=True)
def anneal_blocks(
    joint,
    up,
    down,
    gap_v,
    gap_h,
    base_v,
    base_h,
    betas,
    differences,
    seed,
    sides,
    first_chain,
    v,
    h,
    log_weights,
    span,
):
    """Carry the blocks in v, h and log_weights from step span[0] to step span[1] of 0 … K.

    `up` holds the weights into the summed-out side, `down` those into the sampled one. `joint` and the
    bases are None or not at compile time: mAIS or AIS, uniform base or fields.
    """
    steps = len(betas) - 1
    k0, k1 = seed & _LOW, seed >> _32
    side_v, side_h = uint64(sides[0]), uint64(sides[1])
    zero = splat(betas[0])
    one = zero + 1.0
    for block in range(v.shape[0]):
        chain = lane_numbers() + uint64(first_chain + block * LANES)
        at_v, at_h, at_w = block * v.shape[1] * LANES, block * h.shape[1] * LANES, block * LANES
        if span[0] == 0:
            for tile in range(v.shape[1] // TILE):
                words = _philox(chain, uint64(0), uint64(tile), side_v, k0, k1)
                for m in range(TILE):
                    unit = TILE * tile + m
                    a = _under(base_v, betas[0], zero, unit)
                    store(v, at_v + unit * LANES, draw_spin(a, _boltzmann(a), words[m]))
        for k in range(span[0] + 1, span[1] + 1):
            beta, beta_before, difference = betas[k], betas[k - 1], differences[k - 1]
            per_step = 1.0 / difference
            weight = load(log_weights, at_w)
            linear, top, bottom = zero, one, one
            for i in range(len(gap_v)):
                linear = fma(gap_v[i], load(v, at_v + i * LANES), linear)
                if i % (TILE * FLUSH) == TILE * FLUSH - 1:
                    weight = weight + widen(linear) * difference
                    linear = zero
            for tile in range(h.shape[1] // TILE):
                gaps = _fields(up, v, at_v, tile, gap_h)
                earlier = _words(joint, chain, uint64(k - 1), uint64(tile), k0, k1)
                words = _philox(chain, uint64(k), uint64(tile), side_h, k0, k1)
                for m in range(TILE):
                    unit = TILE * tile + m
                    a, e, linear, top, bottom = _weigh(
                        joint,
                        base_h,
                        beta,
                        beta_before,
                        per_step,
                        gaps[m],
                        unit,
                        earlier[m],
                        linear,
                        top,
                        bottom,
                    )
                    store(h, at_h + unit * LANES, draw_spin(a, e, words[m]))
                if tile % FLUSH == FLUSH - 1:
                    weight = weight + widen(linear) * difference + widen(log(top / bottom))
                    linear, top, bottom = zero, one, one
            store(log_weights, at_w, weight + widen(linear) * difference + widen(log(top / bottom)))
            if k < steps:
                for tile in range(v.shape[1] // TILE):
                    gaps = _fields(down, h, at_h, tile, gap_v)
                    words = _philox(chain, uint64(k), uint64(tile), side_v, k0, k1)
                    for m in range(TILE):
                        unit = TILE * tile + m
                        a = _under(base_v, beta, gaps[m], unit)
                        store(v, at_v + unit * LANES, draw_spin(a, _boltzmann(a), words[m]))
