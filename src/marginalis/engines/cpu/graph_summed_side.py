"""The summed-out side in the general kernel: ln λ_k for the weight, and h drawn for the move."""

from __future__ import annotations

from numba import uint64
from numba.extending import overload

from ...random import JOINT
from ...simd.draws import CALLED, FLUSH, TILE, philox
from ...simd.functions import log
from ...simd.vector import LANES, fma, load, splat, store, widen
from .fields import fields_into, fields_or, four
from .unit_kinds import OneHot, draw, draw_state, log_sum, rescaled, summed

_FEW = 4  # Categorical variables per logarithm; the product of their sums stays in the range of float32.


def sum_out(
    side, up, up0, slope_h, base_h, betas, k, difference, joint, chain, side_h, k0, k1, x, at, at_h, scratch, weight
):
    """Add ln λ_k to the weight and draw h from P_k(h|v); also return h·slope for the h of the joint state."""
    raise NotImplementedError


@overload(sum_out, jit_options=CALLED)
def _sum_out_overload(
    side, up, up0, slope_h, base_h, betas, k, difference, joint, chain, side_h, k0, k1, x, at, at_h, scratch, weight
):
    return _sum_out_states if side.instance_class is OneHot else _sum_out_scalars


def _sum_out_scalars(
    side, up, up0, slope_h, base_h, betas, k, difference, joint, chain, side_h, k0, k1, x, at, at_h, scratch, weight
):
    beta, beta_before = betas[k], betas[k - 1]
    per_step = 1.0 / difference if difference != 0.0 else 0.0  # A step may repeat its β.
    zero = splat(betas[0] - betas[0])
    one = zero + 1.0
    linear, top, bottom, drawn = zero, one, one, zero
    on_joint = widen(zero)
    fields_into(up, x, at, slope_h, scratch, 0)
    for tile in range(len(slope_h) // TILE):
        starts = fields_or(up0, x, at, tile, four(base_h, tile))
        words = philox(chain, uint64(k), uint64(tile), side_h, k0, k1)
        earlier = words
        if joint is not None:
            earlier = philox(chain, uint64(k - 1), uint64(tile), uint64(JOINT), k0, k1)
        for m in range(TILE):
            unit = TILE * tile + m
            slope = load(scratch, unit * LANES)
            now, before = fma(slope, beta, starts[m]), fma(slope, beta_before, starts[m])
            linear, top, bottom, e, e_before = summed(side, unit, now, before, slope, per_step, linear, top, bottom)
            if joint is not None:  # AIS: h·slope, with h from P_{k−1}(h|v)
                drawn = fma(draw(side, unit, before, e_before, earlier[m]), slope, drawn)
            store(x, at_h + unit * LANES, draw(side, unit, now, e, words[m]))
        top, bottom = rescaled(side, top, bottom)
        if tile % FLUSH == FLUSH - 1:
            weight = weight + widen(linear) * difference + widen(log(top / bottom))
            linear, top, bottom = zero, one, one
            on_joint, drawn = on_joint + widen(drawn), zero
    weight = weight + widen(linear) * difference + widen(log(top / bottom))
    return weight, on_joint + widen(drawn)


def _sum_out_states(
    side, up, up0, slope_h, base_h, betas, k, difference, joint, chain, side_h, k0, k1, x, at, at_h, scratch, weight
):
    beta, beta_before = betas[k], betas[k - 1]
    zero = splat(betas[0] - betas[0])
    one = zero + 1.0
    top, bottom = one, one
    on_joint = widen(zero)
    at_start = len(slope_h) * LANES
    fields_into(up, x, at, slope_h, scratch, 0)
    for tile in range(len(slope_h) // TILE):
        starts = fields_or(up0, x, at, tile, four(base_h, tile))
        for m in range(TILE):
            store(scratch, at_start + (TILE * tile + m) * LANES, starts[m])
    words = philox(chain, uint64(k), uint64(0), side_h, k0, k1)
    earlier = words
    for variable in range(len(side.starts) - 1):
        first, last = side.starts[variable], side.starts[variable + 1]
        if variable % TILE == 0:
            words = philox(chain, uint64(k), uint64(variable // TILE), side_h, k0, k1)
            if joint is not None:
                earlier = philox(chain, uint64(k - 1), uint64(variable // TILE), uint64(JOINT), k0, k1)
        most, total = log_sum(scratch, 0, first, last, beta, scratch, at_start)
        most_before, total_before = log_sum(scratch, 0, first, last, beta_before, scratch, at_start)
        weight = weight + widen(most - most_before)
        top, bottom = top * total, bottom * total_before
        if variable % _FEW == _FEW - 1:
            weight, top, bottom = weight + widen(log(top / bottom)), one, one
        word, word_before = words[0], earlier[0]
        if variable % TILE == 1:
            word, word_before = words[1], earlier[1]
        elif variable % TILE == 2:
            word, word_before = words[2], earlier[2]
        elif variable % TILE == 3:
            word, word_before = words[3], earlier[3]
        if joint is not None:
            draw_state(
                scratch, 0, first, last, beta_before, scratch, at_start, most_before, total_before, word_before, x, at_h
            )
            for f in range(first, last):
                on_joint = on_joint + widen(load(x, at_h + f * LANES) * load(scratch, f * LANES))
        draw_state(scratch, 0, first, last, beta, scratch, at_start, most, total, word, x, at_h)
    return weight + widen(log(top / bottom)), on_joint
