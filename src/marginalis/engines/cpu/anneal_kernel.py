"""The fast kernel: blocks of LANES chains annealed from β = 0 to β = 1 inside the cache.

A block's state is laid out [unit][lane], so a unit's spins over the chains of a block are one SIMD vector.
Units come in tiles of four: four fields are accumulated in registers, and one Philox call serves their four
draws. With e = exp(−2|a|) computed once per unit the draw needs no division, and ln 2cosh a = |a| + ln(1+e)
needs only the product of (1+e), of which one logarithm is taken per 64 units.

All two-state units are spins here (`BipartiteMRF.spin_form`); the arithmetic is that of `annealing`.
"""

from __future__ import annotations

from numba import njit, uint64
from numba.extending import overload

from ...random import JOINT
from ...simd.cache import kernel
from ...simd.draws import FLUSH, INLINE, LOW, TILE, WORD, boltzmann, philox
from ...simd.functions import draw_spin, log, rise
from ...simd.vector import LANES, absolute, fma, lane_numbers, load, scalar, splat, store, widen
from .metropolis_kernel import sweep_flips


def _fields(coupling, state, offset, tile, start):
    """Fields of the four units of a tile: start + Σ weight·state of the other side."""
    raise NotImplementedError


@overload(_fields, jit_options=INLINE)
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
        a0 = fma(scalar(data, p), x, a0)
        a1 = fma(scalar(data, p + 1), x, a1)
        a2 = fma(scalar(data, p + 2), x, a2)
        a3 = fma(scalar(data, p + 3), x, a3)
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


@njit(**INLINE)
def _row(coupling, state, offset, unit, start):
    indptr, indices, data = coupling
    a = splat(start[unit])
    for p in range(indptr[unit], indptr[unit + 1]):
        a = fma(scalar(data, p), load(state, offset + scalar(indices, p) * LANES), a)
    return a


@njit(**INLINE)
def _under(base, beta, gap, unit):
    """Return base + β·gap, the field of a unit under β. (The added zero keeps −0 from deciding a sign.)"""
    if base is None:
        return fma(gap, beta, 0.0)
    return fma(gap, beta, splat(base[unit]))


@njit(**INLINE)
def _rise(base, now, before, gap, per_step):
    """(|a_k| − |a_{k−1}|)/(β_k − β_{k−1})."""
    if base is None:
        return absolute(gap)
    return rise(now, before, gap, per_step)


@njit(**INLINE)
def _words(joint, chain, step, tile, k0, k1):
    """Random bits for the h of the joint state, drawn at the end of the step before."""
    if joint is None:
        z = splat(uint64(0))
        return z, z, z, z
    return philox(chain, step, tile, uint64(JOINT), k0, k1)


@njit(**INLINE)
def _draw_all(v, block, chain, step, side, k0, k1):
    """Replace the fields in v by spins drawn from them."""
    for tile in range(v.shape[1] // TILE):
        words = philox(chain, step, uint64(tile), side, k0, k1)
        for m in range(TILE):
            at = (block * v.shape[1] + TILE * tile + m) * LANES
            a = load(v, at)
            store(v, at, draw_spin(a, boltzmann(a), words[m]))


@kernel(error_model="numpy")
def anneal_blocks(
    flips, sweeps, up, down, gap_v, gap_h, base_v, base_h, betas, differences, seed, sides, first_chain,
    v, h, log_weights, joint, span,
):  # fmt: skip
    """Carry the blocks in v, h, log_weights and joint from step span[0] to step span[1] of 0 … K.

    v is first drawn from the base if span[2] is not zero.

    `up` holds the weights into the summed-out side, `down` those into the sampled one, `flips` the former
    again as the Metropolis sweeps read them. `log_weights` are those of mAIS; `joint`, of the same shape,
    takes those of AIS along the same path. `flips`, bases and `joint` are None or not at compile time.
    """
    steps = len(betas) - 1
    k0, k1 = seed & LOW, seed >> WORD
    side_v, side_h = uint64(sides[0]), uint64(sides[1])
    zero = splat(betas[0] - betas[0])  # of the right type
    one = zero + 1.0
    together = 1 if flips is None else 2  # blocks carried side by side
    for first in range(0, v.shape[0], together):
        for block in range(first, first + together):
            if span[2]:
                chain = lane_numbers() + uint64(first_chain + block * LANES)
                for unit in range(v.shape[1]):
                    store(v, (block * v.shape[1] + unit) * LANES, _under(base_v, betas[0], zero, unit))
                _draw_all(v, block, chain, uint64(0), side_v, k0, k1)
        for k in range(span[0] + 1, span[1] + 1):
            beta, beta_before, difference = betas[k], betas[k - 1], differences[k - 1]
            per_step = 1.0 / difference
            for block in range(first, first + together):
                chain = lane_numbers() + uint64(first_chain + block * LANES)
                at_v, at_h = block * v.shape[1] * LANES, block * h.shape[1] * LANES
                weight = load(log_weights, block * LANES)
                linear, top, bottom = zero, one, one
                rise_v = widen(zero)
                for i in range(len(gap_v)):
                    linear = fma(gap_v[i], load(v, at_v + i * LANES), linear)
                    if i % (TILE * FLUSH) == TILE * FLUSH - 1:
                        rise_v, linear = rise_v + widen(linear), zero
                rise_v = (rise_v + widen(linear)) * difference
                weight, linear, drawn = weight + rise_v, zero, zero
                for tile in range(h.shape[1] // TILE):
                    gaps = _fields(up, v, at_v, tile, gap_h)
                    earlier = _words(joint, chain, uint64(k - 1), uint64(tile), k0, k1)
                    words = philox(chain, uint64(k), uint64(tile), side_h, k0, k1)
                    for m in range(TILE):
                        unit = TILE * tile + m
                        now, before = (
                            _under(base_h, beta, gaps[m], unit),
                            _under(base_h, beta_before, gaps[m], unit),
                        )
                        e, e_before = boltzmann(now), boltzmann(before)
                        # mAIS: ln 2cosh a_k − ln 2cosh a_{k−1}
                        linear = linear + _rise(base_h, now, before, gaps[m], per_step)
                        top, bottom = fma(top, e, top), fma(bottom, e_before, bottom)
                        if joint is not None:  # AIS: h·gap, with h from P_{k−1}(h|v)
                            drawn = fma(draw_spin(before, e_before, earlier[m]), gaps[m], drawn)
                        store(h, at_h + unit * LANES, draw_spin(now, e, words[m]))
                    if tile % FLUSH == FLUSH - 1:
                        weight = weight + widen(linear) * difference + widen(log(top / bottom))
                        linear, top, bottom = zero, one, one
                        if joint is not None:
                            rise_v, drawn = rise_v + widen(drawn) * difference, zero
                weight = weight + widen(linear) * difference + widen(log(top / bottom))
                store(log_weights, block * LANES, weight)
                if joint is not None:
                    rise_v = rise_v + widen(drawn) * difference
                    store(joint, block * LANES, load(joint, block * LANES) + rise_v)
                if k < steps:  # the fields of v take the place of its spins, which have done their part
                    for tile in range(v.shape[1] // TILE):
                        gaps = _fields(down, h, at_h, tile, gap_v)
                        for m in range(TILE):
                            unit = TILE * tile + m
                            store(v, at_v + unit * LANES, _under(base_v, beta, gaps[m], unit))
            if k < steps:
                if flips is not None:
                    chain = lane_numbers() + uint64(first_chain + first * LANES)
                    chains = (chain, chain + uint64(LANES))
                    at_v = (first * v.shape[1] * LANES, (first + 1) * v.shape[1] * LANES)
                    at_h = (first * h.shape[1] * LANES, (first + 1) * h.shape[1] * LANES)
                    for sweep in range(sweeps):
                        sweep_flips(flips, sweep, base_h, gap_h, beta, chains, uint64(k), k0, k1, v, at_v, h, at_h)
                for block in range(first, first + together):
                    chain = lane_numbers() + uint64(first_chain + block * LANES)
                    _draw_all(v, block, chain, uint64(k), side_v, k0, k1)
