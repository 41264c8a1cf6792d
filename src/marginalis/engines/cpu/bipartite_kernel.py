"""The kernel for spins on a bipartite graph: it anneals blocks of LANES chains inside the cache.

A block's state is laid out [unit][lane], so a unit's spins over the chains of a block are one SIMD vector.
Units come in tiles of four: four fields are accumulated in registers, and one Philox call serves their four
draws. With e = exp(−2|a|) computed once per unit the draw needs no division, and ln 2cosh a = |a| + ln(1+e)
needs only the product of (1+e), of which one logarithm is taken per 64 units.

All two-state units are spins here (`MRF.spin_form`); the formulas are those of `reference.loop`.
"""

from __future__ import annotations

from numba import njit, uint32, uint64

from ...random import JOINT
from ...simd.cache import kernel
from ...simd.draws import FLUSH, INLINE, LOW, TILE, WORD, boltzmann, philox
from ...simd.functions import draw_spin, log, rise
from ...simd.vector import LANES, absolute, fma, lane_numbers, load, splat, store, widen
from .fields import fields, four
from .metropolis_kernel import sweep_flips


@njit(**INLINE)
def under(base, beta, slope, unit):
    """Return base + β·slope, the field of a unit under β. The added zero turns −0 into 0, whose sign is used."""
    if base is None:
        return fma(slope, beta, 0.0)
    return fma(slope, beta, splat(base[unit]))


@njit(**INLINE)
def rise_of(base, now, before, slope, per_step):
    """(|a_k| − |a_{k−1}|)/(β_k − β_{k−1})."""
    if base is None:
        return absolute(slope)
    return rise(now, before, slope, per_step)


@njit(**INLINE)
def random_words(joint, chain, step, tile, k0, k1):
    """Return random bits for the h of the joint state, at the address of the end of the previous step."""
    if joint is None:
        z = splat(uint32(0))
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


@kernel(plain=True, error_model="numpy")
def anneal_blocks(
    up, down, slope_v, slope_h, base_v, base_h, betas, differences, seed, sides, flips, sweeps,
    first_chain, v, h, log_weights, joint, from_step, to_step, fresh,
):  # fmt: skip
    """Advance the blocks in v, h, log_weights and joint from one step of 0 … K to another.

    The first line of arguments is a `BipartiteArguments`; each field is a separate argument, so that the code for
    fields that are None is left out. If `fresh` is 1, v is first drawn from the base. `log_weights` are those of mAIS;
    `joint` has the same shape and receives those of AIS along the same path, or is None.
    """
    steps = len(betas) - 1
    k0, k1 = seed & LOW, seed >> WORD
    side_v, side_h = uint64(sides[0]), uint64(sides[1])
    zero = splat(betas[0] - betas[0])  # The subtraction makes it the type of the betas.
    one = zero + 1.0
    together = 1 if flips is None else 2  # Blocks advanced side by side.
    for first in range(0, v.shape[0], together):
        for block in range(first, first + together):
            if fresh == 1:
                chain = lane_numbers() + uint64(first_chain + block * LANES)
                for unit in range(v.shape[1]):
                    store(v, (block * v.shape[1] + unit) * LANES, under(base_v, betas[0], zero, unit))
                _draw_all(v, block, chain, uint64(0), side_v, k0, k1)
        for k in range(from_step + 1, to_step + 1):
            beta, beta_before, difference = betas[k], betas[k - 1], differences[k - 1]
            per_step = 1.0 / difference
            for block in range(first, first + together):
                chain = lane_numbers() + uint64(first_chain + block * LANES)
                at_v, at_h = block * v.shape[1] * LANES, block * h.shape[1] * LANES
                weight = load(log_weights, block * LANES)
                linear, top, bottom = zero, one, one
                rise_v = widen(zero)
                for i in range(len(slope_v)):
                    linear = fma(slope_v[i], load(v, at_v + i * LANES), linear)
                    if i % (TILE * FLUSH) == TILE * FLUSH - 1:
                        rise_v, linear = rise_v + widen(linear), zero
                rise_v = (rise_v + widen(linear)) * difference
                weight, linear, drawn = weight + rise_v, zero, zero
                for tile in range(h.shape[1] // TILE):
                    slopes = fields(up, v, at_v, tile, four(slope_h, tile))
                    earlier = random_words(joint, chain, uint64(k - 1), uint64(tile), k0, k1)
                    words = philox(chain, uint64(k), uint64(tile), side_h, k0, k1)
                    for m in range(TILE):
                        unit = TILE * tile + m
                        now, before = (
                            under(base_h, beta, slopes[m], unit),
                            under(base_h, beta_before, slopes[m], unit),
                        )
                        e, e_before = boltzmann(now), boltzmann(before)
                        # mAIS: ln 2cosh a_k − ln 2cosh a_{k−1}
                        linear = linear + rise_of(base_h, now, before, slopes[m], per_step)
                        top, bottom = fma(top, e, top), fma(bottom, e_before, bottom)
                        if joint is not None:  # AIS: h·slope, with h from P_{k−1}(h|v)
                            drawn = fma(draw_spin(before, e_before, earlier[m]), slopes[m], drawn)
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
                if k < steps:  # The fields of v overwrite its spins, which are not needed any more.
                    for tile in range(v.shape[1] // TILE):
                        slopes = fields(down, h, at_h, tile, four(slope_v, tile))
                        for m in range(TILE):
                            unit = TILE * tile + m
                            store(v, at_v + unit * LANES, under(base_v, beta, slopes[m], unit))
            if k < steps:
                if flips is not None:
                    chain = lane_numbers() + uint64(first_chain + first * LANES)
                    chains = (chain, chain + uint64(LANES))
                    at_v = (first * v.shape[1] * LANES, (first + 1) * v.shape[1] * LANES)
                    at_h = (first * h.shape[1] * LANES, (first + 1) * h.shape[1] * LANES)
                    for sweep in range(sweeps):
                        sweep_flips(flips, sweep, base_h, slope_h, beta, chains, uint64(k), k0, k1, v, at_v, h, at_h)
                for block in range(first, first + together):
                    chain = lane_numbers() + uint64(first_chain + block * LANES)
                    _draw_all(v, block, chain, uint64(k), side_v, k0, k1)
