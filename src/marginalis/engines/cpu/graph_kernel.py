"""The general kernel: any graph, any kind of unit, a base with or without couplings. Numba turns it into machine code.

Chains lie side by side in vectors as in `anneal_kernel`. A block's states are one array, the sampled units first, in
the order of the sweep, then the summed-out ones. A sweep draws the sampled units one after the other, four at a time
where they are not coupled: unit i has its field from the units before it, which are new, and from all others. The
first part, kept aside, gives the energy of the new state on the way: ½vᵀLv = Σ_i v_i Σ_{j<i} l_ij v_j.

The arithmetic is that of `sampling.loop`.
"""

from __future__ import annotations

from numba import njit, types, uint64
from numba.extending import overload

from ...random import JOINT
from ...simd.cache import kernel
from ...simd.draws import FLUSH, INLINE, LOW, TILE, WORD, philox
from ...simd.functions import log
from ...simd.vector import LANES, fma, lane_numbers, load, splat, store, widen
from .products import band_pair, fields, four, row
from .sides import States, draw, draw_state, factor, log_sum, summed

_FEW = 4  # categorical variables per logarithm: a product of so many sums stays in range


@njit(**INLINE)
def _four_or(coupling, x, at, tile, start):
    """Fields of a tile, which are those of the start where there is no coupling."""
    if coupling is None:
        return start
    return fields(coupling, x, at, tile, start)


@njit(**INLINE)
def _pull(inner, tile, p, value, a):
    if inner is None:
        return a
    return fma(inner[tile, p], value, a)


# ---------------------------------------------------------------- the summed-out side


def _sum_out(
    side, up, up0, slope_h, base_h, betas, k, difference, joint, chain, side_h, k0, k1, x, at, at_h, scratch, weight
):
    """Add ln λ_k to the weight, and draw h from P_k(h|v); returns also h·slope for the h of the joint state."""
    raise NotImplementedError


@overload(_sum_out, jit_options=INLINE)
def _sum_out_overload(
    side, up, up0, slope_h, base_h, betas, k, difference, joint, chain, side_h, k0, k1, x, at, at_h, scratch, weight
):
    return _sum_out_states if side.instance_class is States else _sum_out_scalars


def _sum_out_scalars(
    side, up, up0, slope_h, base_h, betas, k, difference, joint, chain, side_h, k0, k1, x, at, at_h, scratch, weight
):
    beta, beta_before = betas[k], betas[k - 1]
    per_step = 1.0 / difference
    zero = splat(betas[0] - betas[0])
    one = zero + 1.0
    linear, top, bottom, drawn = zero, one, one, zero
    on_joint = widen(zero)
    for tile in range(len(slope_h) // TILE):
        slopes = fields(up, x, at, tile, four(slope_h, tile))
        starts = _four_or(up0, x, at, tile, four(base_h, tile))
        words = philox(chain, uint64(k), uint64(tile), side_h, k0, k1)
        earlier = words
        if joint is not None:
            earlier = philox(chain, uint64(k - 1), uint64(tile), uint64(JOINT), k0, k1)
        for m in range(TILE):
            unit = TILE * tile + m
            now, before = fma(slopes[m], beta, starts[m]), fma(slopes[m], beta_before, starts[m])
            linear, top, bottom, e, e_before = summed(side, unit, now, before, slopes[m], per_step, linear, top, bottom)
            if joint is not None:  # AIS: h·slope, with h from P_{k−1}(h|v)
                drawn = fma(draw(side, unit, before, e_before, earlier[m]), slopes[m], drawn)
            store(x, at_h + unit * LANES, draw(side, unit, now, e, words[m]))
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
    for tile in range(len(slope_h) // TILE):
        slopes = fields(up, x, at, tile, four(slope_h, tile))
        starts = _four_or(up0, x, at, tile, four(base_h, tile))
        for m in range(TILE):
            store(scratch, (TILE * tile + m) * LANES, slopes[m])
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


# ---------------------------------------------------------------- the sampled side


def _sweep(
    side, before, after, into0, inner, inner0, tied, slope_v, base_v, beta, k, chain, side_v, k0, k1, x, at, scratch
):
    """Draw the sampled units one after the other; returns the slope in β of −E_k, the terms with h aside."""
    raise NotImplementedError


@overload(_sweep, jit_options=INLINE)
def _sweep_overload(
    side, before, after, into0, inner, inner0, tied, slope_v, base_v, beta, k, chain, side_v, k0, k1, x, at, scratch
):
    return _sweep_states if side.instance_class is States else _sweep_scalars


def _sweep_scalars(
    side, before, after, into0, inner, inner0, tied, slope_v, base_v, beta, k, chain, side_v, k0, k1, x, at, scratch
):
    zero = splat(beta - beta)
    linear, total = zero, widen(zero)
    for tile in range(len(slope_v) // TILE):
        low = _four_or(before, x, at, tile, four(slope_v, tile))
        slopes = fields(after, x, at, tile, low)
        starts = _four_or(into0, x, at, tile, four(base_v, tile))
        words = philox(chain, uint64(k), uint64(tile), side_v, k0, k1)
        linear = _draw_tile(side, inner, inner0, tied, tile, beta, low, slopes, starts, words, x, at, linear)
        if tile % FLUSH == FLUSH - 1:
            total, linear = total + widen(linear), zero
    return total + widen(linear)


@njit(**INLINE)
def _sweep_pair(side, before, after, inner, tied, slope_v, base_v, beta, k, chains, side_v, k0, k1, x, at):
    """The same for two blocks of chains side by side, on a dense graph: a weight is read once for both."""
    zero = splat(beta - beta)
    linear_a, linear_b, total_a, total_b = zero, zero, widen(zero), widen(zero)
    for tile in range(len(slope_v) // TILE):
        start = four(slope_v, tile)
        low_a, low_b = band_pair(before, x, at, tile, start, start)
        slopes_a, slopes_b = band_pair(after, x, at, tile, low_a, low_b)
        base = four(base_v, tile)
        words = philox(chains[0], uint64(k), uint64(tile), side_v, k0, k1)
        linear_a = _draw_tile(side, inner, None, tied, tile, beta, low_a, slopes_a, base, words, x, at[0], linear_a)
        words = philox(chains[1], uint64(k), uint64(tile), side_v, k0, k1)
        linear_b = _draw_tile(side, inner, None, tied, tile, beta, low_b, slopes_b, base, words, x, at[1], linear_b)
        if tile % FLUSH == FLUSH - 1:
            total_a, linear_a = total_a + widen(linear_a), zero
            total_b, linear_b = total_b + widen(linear_b), zero
    return total_a + widen(linear_a), total_b + widen(linear_b)


@njit(**INLINE)
def _draw_tile(side, inner, inner0, tied, tile, beta, low, slopes, starts, words, x, at, linear):
    """Draw the four units of a tile; adds unit times `low`, the slope of its field from the units before it."""
    l0, l1, l2, l3 = low
    a0, a1, a2, a3 = slopes
    s0, s1, s2, s3 = starts
    unit = TILE * tile
    here = at + unit * LANES
    if tied is not None and tied[tile]:  # some of the four are coupled: one by one
        x1, x2, x3 = load(x, here + LANES), load(x, here + 2 * LANES), load(x, here + 3 * LANES)
        a0 = _pull(inner, tile, 0, x1, _pull(inner, tile, 1, x2, _pull(inner, tile, 2, x3, a0)))
        a1 = _pull(inner, tile, 3, x2, _pull(inner, tile, 4, x3, a1))
        a2 = _pull(inner, tile, 5, x3, a2)
        s0 = _pull(inner0, tile, 0, x1, _pull(inner0, tile, 1, x2, _pull(inner0, tile, 2, x3, s0)))
        s1 = _pull(inner0, tile, 3, x2, _pull(inner0, tile, 4, x3, s1))
        s2 = _pull(inner0, tile, 5, x3, s2)
        f = fma(a0, beta, s0)
        x0 = draw(side, unit, f, factor(side, f), words[0])
        a1, l1, s1 = _pull(inner, tile, 0, x0, a1), _pull(inner, tile, 0, x0, l1), _pull(inner0, tile, 0, x0, s1)
        f = fma(a1, beta, s1)
        x1 = draw(side, unit + 1, f, factor(side, f), words[1])
        a2, l2, s2 = _pull(inner, tile, 1, x0, a2), _pull(inner, tile, 1, x0, l2), _pull(inner0, tile, 1, x0, s2)
        a2, l2, s2 = _pull(inner, tile, 3, x1, a2), _pull(inner, tile, 3, x1, l2), _pull(inner0, tile, 3, x1, s2)
        f = fma(a2, beta, s2)
        x2 = draw(side, unit + 2, f, factor(side, f), words[2])
        a3, l3, s3 = _pull(inner, tile, 2, x0, a3), _pull(inner, tile, 2, x0, l3), _pull(inner0, tile, 2, x0, s3)
        a3, l3, s3 = _pull(inner, tile, 4, x1, a3), _pull(inner, tile, 4, x1, l3), _pull(inner0, tile, 4, x1, s3)
        a3, l3, s3 = _pull(inner, tile, 5, x2, a3), _pull(inner, tile, 5, x2, l3), _pull(inner0, tile, 5, x2, s3)
        f = fma(a3, beta, s3)
        x3 = draw(side, unit + 3, f, factor(side, f), words[3])
    else:
        f0, f1, f2, f3 = fma(a0, beta, s0), fma(a1, beta, s1), fma(a2, beta, s2), fma(a3, beta, s3)
        x0 = draw(side, unit, f0, factor(side, f0), words[0])
        x1 = draw(side, unit + 1, f1, factor(side, f1), words[1])
        x2 = draw(side, unit + 2, f2, factor(side, f2), words[2])
        x3 = draw(side, unit + 3, f3, factor(side, f3), words[3])
    store(x, here, x0)
    store(x, here + LANES, x1)
    store(x, here + 2 * LANES, x2)
    store(x, here + 3 * LANES, x3)
    return fma(x0, l0, fma(x1, l1, fma(x2, l2, fma(x3, l3, linear))))


def _sweep_states(
    side, before, after, into0, inner, inner0, tied, slope_v, base_v, beta, k, chain, side_v, k0, k1, x, at, scratch
):
    # scratch: slopes, starts, and the slopes from the variables before
    n = len(slope_v)
    at_start, at_low = n * LANES, 2 * n * LANES
    zero = splat(beta - beta)
    total = widen(zero)
    if before is None:  # no couplings among these variables: all fields at once, four at a time
        for tile in range(n // TILE):
            slopes = fields(after, x, at, tile, four(slope_v, tile))
            starts = _four_or(into0, x, at, tile, four(base_v, tile))
            for m in range(TILE):
                store(scratch, (TILE * tile + m) * LANES, slopes[m])
                store(scratch, at_start + (TILE * tile + m) * LANES, starts[m])
    words = philox(chain, uint64(k), uint64(0), side_v, k0, k1)
    for variable in range(len(side.starts) - 1):
        first, last = side.starts[variable], side.starts[variable + 1]
        if before is not None:
            for f in range(first, last):
                low = row(before, x, at, f, splat(slope_v[f]))
                store(scratch, at_low + f * LANES, low)
                store(scratch, f * LANES, row(after, x, at, f, low))
                start = splat(base_v[f])
                if into0 is not None:
                    start = row(into0, x, at, f, start)
                store(scratch, at_start + f * LANES, start)
        if variable % TILE == 0:
            words = philox(chain, uint64(k), uint64(variable // TILE), side_v, k0, k1)
        word = words[0]
        if variable % TILE == 1:
            word = words[1]
        elif variable % TILE == 2:
            word = words[2]
        elif variable % TILE == 3:
            word = words[3]
        most, weights = log_sum(scratch, 0, first, last, beta, scratch, at_start)
        draw_state(scratch, 0, first, last, beta, scratch, at_start, most, weights, word, x, at)
        linear = zero
        for f in range(first, last):
            low = splat(slope_v[f])
            if before is not None:
                low = load(scratch, at_low + f * LANES)
            linear = fma(load(x, at + f * LANES), low, linear)
        total = total + widen(linear)
    return total


@njit(**INLINE)
def _energy(before, inner, slope_v, x, at):
    """Return the slope in β of −E_k for the states as they are, the terms with h aside."""
    zero = load(x, at) - load(x, at)
    total = widen(zero)
    for unit in range(len(slope_v)):
        low = splat(slope_v[unit])
        if before is not None:
            low = _input(before, x, at, unit, low)
        spin = load(x, at + unit * LANES)
        total = total + widen(spin * low)
        if inner is not None:
            tile, m = unit // TILE, unit % TILE
            here = at + tile * TILE * LANES
            if m > 0:
                total = total + widen(spin * load(x, here)) * inner[tile, m - 1]
            if m > 1:
                total = total + widen(spin * load(x, here + LANES)) * inner[tile, m + 1]
            if m > 2:
                total = total + widen(spin * load(x, here + 2 * LANES)) * inner[tile, 5]
    return total


def _input(coupling, x, at, unit, start):
    """Field of one unit."""
    raise NotImplementedError


@overload(_input, jit_options=INLINE)
def _input_overload(coupling, x, at, unit, start):
    return _input_list if len(coupling) == 3 else _input_band


def _input_list(coupling, x, at, unit, start):
    return row(coupling, x, at, unit, start)


def _input_band(coupling, x, at, unit, start):
    data, first, last, begin = coupling
    tile = unit // TILE
    p = begin[tile] + unit % TILE
    a = start
    for i in range(first[tile], last[tile]):
        a = fma(data[p], load(x, at + i * LANES), a)
        p += TILE
    return a


# ---------------------------------------------------------------- the loop


@njit(nogil=True, error_model="numpy")
def _anneal(
    visible, hidden, up, up0, before, after, into0, inner, inner0, tied, slope_v, slope_h, base_v, base_h,
    betas, differences, seed, sides, first_chain, x, scratch, rises, log_weights, joint, from_step, to_step, fresh,
):  # fmt: skip
    steps = len(betas) - 1
    k0, k1 = seed & LOW, seed >> WORD
    side_v, side_h = uint64(sides[0]), uint64(sides[1])
    together = _together(before, into0)
    for first in range(0, x.shape[0], together):
        for block in range(first, first + together):
            chain = lane_numbers() + uint64(first_chain + block * LANES)
            at = block * x.shape[1] * LANES
            if fresh == 1:  # from the base, whose units are independent: β = 0 leaves the couplings out
                _sweep(
                    visible, None, after, None, None, None, None, slope_v, base_v, betas[0] - betas[0], 0, chain,
                    side_v, k0, k1, x, at, scratch,
                )  # fmt: skip
            if fresh:
                store(rises, block * LANES, _energy(before, inner, slope_v, x, at))
        for k in range(from_step + 1, to_step + 1):
            difference = differences[k - 1]
            for block in range(first, first + together):
                chain = lane_numbers() + uint64(first_chain + block * LANES)
                at = block * x.shape[1] * LANES
                rise_v = load(rises, block * LANES)
                weight, drawn = _sum_out(
                    hidden, up, up0, slope_h, base_h, betas, k, difference, joint, chain, side_h, k0, k1, x, at,
                    at + len(slope_v) * LANES, scratch, load(log_weights, block * LANES) + rise_v * difference,
                )  # fmt: skip
                store(log_weights, block * LANES, weight)
                if joint is not None:
                    store(joint, block * LANES, load(joint, block * LANES) + (rise_v + drawn) * difference)
            if k < steps:
                chain = lane_numbers() + uint64(first_chain + first * LANES)
                _sweep_blocks(
                    visible, before, after, into0, inner, inner0, tied, slope_v, base_v, betas[k], k, chain, side_v,
                    k0, k1, x, first, scratch, rises,
                )  # fmt: skip


def _together(before, into0):
    """How many blocks of chains are swept side by side."""
    raise NotImplementedError


@overload(_together, jit_options=INLINE)
def _together_overload(before, into0):
    pair = isinstance(before, types.BaseTuple) and len(before) == 4 and isinstance(into0, types.NoneType)
    return (lambda before, into0: 2) if pair else (lambda before, into0: 1)


def _sweep_blocks(
    side, before, after, into0, inner, inner0, tied, slope_v, base_v, beta, k, chain, side_v, k0, k1, x, first,
    scratch, rises,
):  # fmt: skip
    """Sweep the blocks from `first` that are taken together, and note the slopes."""
    raise NotImplementedError


@overload(_sweep_blocks, jit_options=INLINE)
def _sweep_blocks_overload(
    side, before, after, into0, inner, inner0, tied, slope_v, base_v, beta, k, chain, side_v, k0, k1, x, first,
    scratch, rises,
):  # fmt: skip
    if isinstance(before, types.BaseTuple) and len(before) == 4 and isinstance(into0, types.NoneType):
        return _sweep_two_blocks
    return _sweep_one_block


def _sweep_one_block(
    side, before, after, into0, inner, inner0, tied, slope_v, base_v, beta, k, chain, side_v, k0, k1, x, first,
    scratch, rises,
):  # fmt: skip
    at = first * x.shape[1] * LANES
    rise_v = _sweep(
        side, before, after, into0, inner, inner0, tied, slope_v, base_v, beta, k, chain, side_v, k0, k1, x, at, scratch
    )
    store(rises, first * LANES, rise_v)


def _sweep_two_blocks(
    side, before, after, into0, inner, inner0, tied, slope_v, base_v, beta, k, chain, side_v, k0, k1, x, first,
    scratch, rises,
):  # fmt: skip
    at = (first * x.shape[1] * LANES, (first + 1) * x.shape[1] * LANES)
    chains = (chain, chain + uint64(LANES))
    one, two = _sweep_pair(side, before, after, inner, tied, slope_v, base_v, beta, k, chains, side_v, k0, k1, x, at)
    store(rises, first * LANES, one)
    store(rises, (first + 1) * LANES, two)


@kernel(error_model="numpy")
def anneal_graph(model, first_chain, x, scratch, rises, log_weights, joint, from_step, to_step, fresh):
    """Carry blocks of chains from one step of 0 … K to another.

    `model` is a `graph_population.Model`; `x` holds the states, `rises` the slope in β of −E_k at them (the terms
    with h aside), `log_weights` those of mAIS and `joint`, if it is not None, those of AIS along the same path.
    `fresh` is 1 if the states are first to be drawn from the base, 2 if they were put there, 0 later on.
    """
    _anneal(
        model.visible, model.hidden, model.up, model.up0, model.before, model.after, model.into0, model.inner,
        model.inner0, model.tied, model.slope_v, model.slope_h, model.base_v, model.base_h, model.betas,
        model.differences, model.seed, model.sides,
        first_chain, x, scratch, rises, log_weights, joint, from_step, to_step, fresh,
    )  # fmt: skip
