"""The general kernel: any graph, any kind of unit, a base with or without couplings.

Chains lie side by side in vectors as in `bipartite_kernel`. The states of a block are one array: the sampled units in
the order of the sweep, then the component of a mixture if it is drawn, then the summed-out units (see
`graph_sampled_side` and `graph_summed_side`).

The formulas are those of `reference.loop`.
"""

from __future__ import annotations

from numba import int64, njit, uint64

from ...random import MIXTURE
from ...simd.cache import kernel
from ...simd.draws import CALLED, LOW, WORD, philox
from ...simd.vector import LANES, lane_numbers, load, smaller, store, widen
from .fields import fields_into
from .graph_sampled_side import energy, sweep, sweep_pair
from .graph_summed_side import sum_out
from .graph_tables import begin_tables, sweep_tables
from .unit_kinds import draw_state, log_sum


@njit(**CALLED)
def _own_logit(drawn, x, at, at_z, scratch):
    """Return the exponent a_z + B_z·v of each chain's component z."""
    fields_into(drawn.up, x, at, drawn.own, scratch, 0)
    total = widen(load(x, at) - load(x, at))
    for z in range(drawn.components):
        total = total + widen(load(x, at_z + z * LANES) * load(scratch, z * LANES))
    return total


@njit(**CALLED)
def _draw_component(end, drawn, beta, k, chain, k0, k1, x, at, at_z, scratch):
    """Draw the component of a mixture given all other variables, if it is drawn at this `end` of a sweep."""
    if end != drawn.last:
        return
    fields_into(drawn.both, x, at, drawn.own, scratch, 0)
    at_start = len(drawn.own) * LANES
    for z in range(drawn.components):
        logit = load(scratch, z * LANES)
        store(scratch, z * LANES, logit - (logit + logit))
        store(scratch, at_start + z * LANES, logit + drawn.kept[z])
    most, total = log_sum(scratch, 0, 0, drawn.components, beta, scratch, at_start)
    word = philox(chain, uint64(k), uint64(0), uint64(MIXTURE), k0, k1)[0]
    draw_state(scratch, 0, 0, drawn.components, beta, scratch, at_start, most, total, word, x, at_z)


@kernel(plain=True, error_model="numpy")
def anneal_graph(
    visible, hidden, up, up0, before, after, dense, into0, inner, inner0, tied, slope_v, slope_h, base_v, base_h,
    betas, differences, seed, sides, mixture, drawn, pairs,
    first_chain, x, scratch, room, rises, log_weights, joint, from_step, to_step, fresh,
):  # fmt: skip
    """Advance blocks of chains from one step of 0 … K to another.

    The first two lines of arguments are a `GraphArguments`; `x` holds the states, `rises` the slope in β of −E_k at
    them (without the terms in h), `log_weights` those of mAIS and `joint`, if it is not None, those of AIS along the
    same path. `room` is workspace for the indices, sums and tables of `graph_tables`; it is None if `dense` is None.
    `fresh` is 1 if the states are still to be drawn from the base, 2 if they were given, and 0 in later calls.
    """
    steps = len(betas) - 1
    start, end = int64(0), int64(1)  # For each literal argument another function would be compiled.
    k0, k1 = seed & LOW, seed >> WORD
    side_v, side_h = uint64(sides[0]), uint64(sides[1])
    together = 1  # Blocks that are swept side by side.
    if room is not None:
        together = room[0].shape[0]
    elif pairs is not None:
        together = 2
    in_front = len(slope_v)  # Units before the summed-out ones.
    if drawn is not None:
        in_front = len(slope_v) + len(drawn.own)
    for first in range(0, x.shape[0], together):
        last = smaller(first + together, x.shape[0])
        for block in range(first, last):
            chain = lane_numbers() + uint64(first_chain + block * LANES)
            at = block * x.shape[1] * LANES
            if fresh == 1:  # The units of the base are independent: with β = 0 the couplings vanish.
                sweep(
                    visible, None, after, None, None, None, None, slope_v, base_v, betas[0] - betas[0], 0, chain,
                    side_v, k0, k1, x, at, scratch,
                )  # fmt: skip
            if fresh:
                store(rises, block * LANES, energy(before, inner, slope_v, x, at))
        ready = -1 if room is None else begin_tables(room, dense, x, first, last)
        for k in range(from_step + 1, to_step + 1):
            difference = differences[k - 1]
            for block in range(first, last):
                chain = lane_numbers() + uint64(first_chain + block * LANES)
                at = block * x.shape[1] * LANES
                rise_v = load(rises, block * LANES)
                if drawn is not None:  # The couplings between the component and v vanish along the path.
                    rise_v = rise_v - _own_logit(drawn, x, at, at + len(slope_v) * LANES, scratch)
                weight, on_joint = sum_out(
                    hidden, up, up0, slope_h, base_h, betas, k, difference, joint, chain, side_h, k0, k1, x, at,
                    at + in_front * LANES, scratch, load(log_weights, block * LANES) + rise_v * difference,
                )  # fmt: skip
                if mixture is not None:  # The component is another summed-out variable, without a drawn value.
                    without = weight
                    weight, _ = sum_out(
                        mixture.side, mixture.up, mixture.up0, mixture.slope, mixture.base, betas, k, difference, None,
                        chain, uint64(MIXTURE), k0, k1, x, at, at + (len(slope_v) + len(slope_h)) * LANES, scratch,
                        weight,
                    )  # fmt: skip
                    if joint is not None:
                        store(joint, block * LANES, load(joint, block * LANES) + (weight - without))
                store(log_weights, block * LANES, weight)
                if joint is not None:
                    store(joint, block * LANES, load(joint, block * LANES) + (rise_v + on_joint) * difference)
            if k < steps:
                chain = lane_numbers() + uint64(first_chain + first * LANES)
                at = first * x.shape[1] * LANES  # A plan with a drawn component sweeps one block at a time.
                if drawn is not None:
                    _draw_component(start, drawn, betas[k], k, chain, k0, k1, x, at, at + len(slope_v) * LANES, scratch)
                if room is not None:
                    sweep_tables(
                        visible, dense, room, ready, inner, tied, slope_v, base_v, betas[k], k, chain, side_v, k0, k1,
                        x, first, last, scratch, rises,
                    )  # fmt: skip
                elif pairs is not None:
                    one, two = sweep_pair(
                        visible, before, after, inner, tied, slope_v, base_v, betas[k], k,
                        (chain, chain + uint64(LANES)), side_v, k0, k1, x, (at, at + x.shape[1] * LANES),
                    )  # fmt: skip
                    store(rises, first * LANES, one)
                    store(rises, (first + 1) * LANES, two)
                else:
                    rise_v = sweep(
                        visible, before, after, into0, inner, inner0, tied, slope_v, base_v, betas[k], k, chain,
                        side_v, k0, k1, x, at, scratch,
                    )  # fmt: skip
                    store(rises, first * LANES, rise_v)
                if drawn is not None:
                    _draw_component(end, drawn, betas[k], k, chain, k0, k1, x, at, at + len(slope_v) * LANES, scratch)
