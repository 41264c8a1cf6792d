"""The fastest kernel for dense couplings: fields of spins are looked up instead of multiplied (`simd.lookup`).

A chain's spins are bits. Four of them are the index of one of sixteen partial sums, so that one permute and one
addition do the work of four multiply-adds of `bipartite_kernel` for sixteen chains. Fields are computed for 64 units (a
panel) at a time, for many blocks of chains in turn, so that the tables of the panel stay in the cache. For small models
all tables are made once per call; for large ones those of a slice of the inputs are made when they are needed, which
costs little compared with their use. The sums are of integers, so they do not depend on slices or on the grouping of
chains.

The component of a mixture, if it is drawn, selects one of several sets of base fields by a permute. Its exponents are
sums over spins like any field.

The rest is as in `bipartite_kernel`, with two exceptions. A draw yields a bit, and four bits are the next index. For
small steps exp(−2|a|) under the previous β is computed from that under the present one.
"""

from __future__ import annotations

from numba import boolean, int64, njit, types, uint32, uint64
from numba.extending import overload

from ...random import MIXTURE
from ...simd.cache import kernel
from ...simd.draws import CALLED, INLINE, LOW, TILE, TWICE_LOG2_E, WORD, boltzmann, philox
from ...simd.functions import SMALL, below_zero, draw_spin, exp2_nonpositive, log, rise, select, times_exp2
from ...simd.lookup import COLUMNS, SPINS, as_numbers, draw_bit, entry_of, lookups, table_of
from ...simd.numbers import LOG2_E, above, same, share_of, uniform
from ...simd.vector import LANES, fma, lane_numbers, larger, load, maximum, scalar, smaller, splat, store, widen
from .bipartite_kernel import random_words, under

PANEL = 16  # Tiles of units per panel; one logarithm is taken of the product of their factors (1 + e).
SLICE = 32  # Number of tables of a sum that are made at a time.
ABREAST = 4  # Blocks of chains whose look-ups are interleaved.
TABLE = COLUMNS * LANES  # Numbers in the tables of four spins for a tile of units.
_WEIGHTS = COLUMNS * (SPINS + 1)  # Numbers from which these tables are made.

_several, _single = lookups(ABREAST), lookups(1)


@njit(**INLINE)
def make_tables(weights, at, count, tables, into):
    """Make the tables of a tile of units for `count` groups of four inputs."""
    for i in range(count):
        for c in range(COLUMNS):
            p = at + _WEIGHTS * i + c
            store(
                tables,
                into + TABLE * i + c * LANES,
                table_of(
                    scalar(weights, p),
                    scalar(weights, p + COLUMNS),
                    scalar(weights, p + 2 * COLUMNS),
                    scalar(weights, p + 3 * COLUMNS),
                    scalar(weights, p + 4 * COLUMNS),
                ),
            )


@njit(**CALLED)
def sum_tiles(coupling, panel, tile, end, low, high, ready, tables, x, first, last, sums, into):
    """Compute the sums of the tiles from `tile` to `end` of a panel over groups `low` to `high` of four inputs in x.

    The blocks are those from `first` to `last`; the sums of each go to position `into` of its part of `sums`. `ready`
    is the position of all tables of this coupling, or −1 if they are to be made here.
    """
    weights, inputs, begin, _ = coupling
    lowest, width = inputs[panel, 0], inputs[panel, 1] - inputs[panel, 0]
    low, high = larger(low, lowest), smaller(high, inputs[panel, 1])
    per_block, per_sums = x.shape[1] * LANES, sums.shape[1] * LANES
    start = low
    while True:
        count = larger(0, smaller(SLICE if ready < 0 else width, high - start))
        if ready < 0:
            for t in range(tile, end):
                at = (begin[panel] + t * width + start - lowest) * _WEIGHTS
                make_tables(weights, at, count, tables, (t - tile) * SLICE * TABLE)
        block = first
        while block < last:
            several = block + ABREAST <= last
            for t in range(tile, end):
                at = (t - tile) * SLICE * TABLE
                if ready >= 0:
                    at = ready + (begin[panel] + t * width + start - lowest) * TABLE
                at_x = block * per_block + start * LANES
                at_sums = (block - first) * per_sums + into + (t - tile) * COLUMNS * LANES
                if several:
                    _several(tables, at, count, x, at_x, per_block, sums, at_sums, per_sums, start > low)
                else:
                    _single(tables, at, count, x, at_x, per_block, sums, at_sums, per_sums, start > low)
            block += ABREAST if several else 1
        start += count
        if start >= high:
            break


@njit(**INLINE)
def _sum_panel(coupling, panel, ready, tables, x, first, last, sums):
    """Compute the sums of all units of a panel over all their inputs."""
    tiles = smaller(PANEL, len(coupling[3]) // TILE - PANEL * panel)
    sum_tiles(coupling, panel, 0, tiles, 0, x.shape[1], ready, tables, x, first, last, sums, 0)


@njit(**INLINE)
def _factor(base, beta, slope, unit):
    """Return the field of a unit under β (or one of the same sign), and exp(−2|field|)."""
    if base is None:
        return slope, exp2_nonpositive(below_zero(slope) * (beta * TWICE_LOG2_E))
    a = under(base, beta, slope, unit)
    return a, boltzmann(a)


def _if_uniform(base, mixture):
    """Return 1 for the uniform base, and None for others, for which `near` makes no difference."""
    raise NotImplementedError


@overload(_if_uniform, jit_options=INLINE)
def _if_uniform_overload(base, mixture):
    if isinstance(base, types.NoneType) and isinstance(mixture, types.NoneType):
        return lambda base, mixture: 1
    return lambda base, mixture: None


@njit(**INLINE)
def _factor_before(base, near, beta_before, difference, slope, unit, e):
    """Return exp(−2|field|) under the previous β, from that under β if the step is small (`near` is not None)."""
    if base is None and near is not None:
        return times_exp2(e, below_zero(slope) * (difference * -TWICE_LOG2_E))
    return _factor(base, beta_before, slope, unit)[1]


@njit(**INLINE)
def _plus_rise(linear, base, now, before, slope, per_step):
    if base is None:
        return linear - below_zero(slope)
    return linear + rise(now, before, slope, per_step)


@njit(**INLINE)
def _start(pulls, registers, unit, component, block):
    """Return the base field of a unit in each chain's component."""
    return entry_of(pulls, unit * registers * LANES, registers, load(component, block * LANES))


@njit(**INLINE)
def _reach(slope, scale):
    """Return an upper bound of the slopes of all fields."""
    reach = 0.0
    for unit in range(len(slope)):
        reach = larger(reach, abs(slope[unit]) + 2.0**30 * scale[unit])
    return reach


@njit(**CALLED)
def _sum_logits(coupling, tables, x, first, last, sums, logits, own, ready, fresh):
    """Set the exponents of all components in `logits` [block, component], or add the contribution of another side."""
    zero = splat(own[0] - own[0])
    per_sums, components = sums.shape[1] * LANES, logits.shape[1]
    for panel in range(len(coupling[1])):
        _sum_panel(coupling, panel, ready, tables, x, first, last, sums)
        for block in range(last - first):
            for z in range(TILE * PANEL * panel, smaller(TILE * PANEL * (panel + 1), components)):
                total = as_numbers(load(sums, block * per_sums + (z - TILE * PANEL * panel) * LANES), zero)
                place = (block * components + z) * LANES
                before = splat(own[z]) if fresh else load(logits, place)
                store(logits, place, fma(total, coupling[3][z], before))


@njit(**CALLED)
def _release(first, last, logits, component, difference, log_weights, joint):
    """Subtract Δβ times the exponent of each chain's component from its log-weight."""
    components = logits.shape[1]
    for block in range(first, last):
        index = load(component, block * LANES)
        own = load(logits, (block - first) * components * LANES)
        for z in range(1, components):
            logit = load(logits, ((block - first) * components + z) * LANES)
            own = select(same(index, splat(uint32(z))), logit, own)
        change = widen(own) * difference
        store(log_weights, block * LANES, load(log_weights, block * LANES) - change)
        if joint is not None:
            store(joint, block * LANES, load(joint, block * LANES) - change)


@njit(**CALLED)
def _draw_components(factor, kept, k, k0, k1, first_chain, first, last, logits, component):
    """Draw the components of the chains of some blocks: the first whose cumulative sum exceeds u times the total.

    The exponents are `factor` times those in `logits` plus `kept`; they replace those in `logits`.
    """
    components = logits.shape[1]
    for block in range(first, last):
        at = (block - first) * components * LANES
        top = load(logits, at) * factor + kept[0]
        for z in range(components):
            exponent = fma(load(logits, at + z * LANES), factor, splat(kept[z]))
            store(logits, at + z * LANES, exponent)
            top = maximum(top, exponent)
        total = top - top
        for z in range(components):
            total = total + exp2_nonpositive((load(logits, at + z * LANES) - top) * LOG2_E)
        chain = lane_numbers() + uint64(first_chain + block * LANES)
        threshold = share_of(philox(chain, uint64(k), uint64(0), uint64(MIXTURE), k0, k1)[0], total)
        below, index = top - top, splat(uint32(0))
        for z in range(components - 1):
            below = below + exp2_nonpositive((load(logits, at + z * LANES) - top) * LOG2_E)
            index = index + select(above(below, threshold), splat(uint32(0)), splat(uint32(1)))
        store(component, block * LANES, index)


# The next two functions are not inlined, so that each can use all registers.


@njit(**CALLED)
def _weigh_panel(
    near, up, panel, base_h, slope_h, mixture, component, beta, beta_before, difference, k, side_h, k0, k1,
    first_chain, first, last, sums, h, log_weights, joint,
):  # fmt: skip
    """Add ln λ_k of the units of a panel to the weights of blocks `first` to `last`, and draw the units."""
    zero = splat(beta - beta)
    one = zero + 1.0
    per_sums, tiles_h = sums.shape[1] * LANES, h.shape[1]
    per_step = 1.0 / difference
    for block in range(first, last):
        chain = lane_numbers() + uint64(first_chain + block * LANES)
        at_sums = (block - first) * per_sums
        weight = load(log_weights, block * LANES)
        linear, top, bottom, drawn = zero, one, one, zero
        for tile in range(PANEL * panel, smaller(PANEL * (panel + 1), tiles_h)):
            words = philox(chain, uint64(k), uint64(tile), side_h, k0, k1)
            earlier = random_words(joint, chain, uint64(k - 1), uint64(tile), k0, k1)
            bits = splat(uint32(0))
            for m in range(TILE):
                unit = TILE * tile + m
                here = at_sums + (unit - TILE * PANEL * panel) * LANES
                slope = fma(as_numbers(load(sums, here), zero), up[3][unit], splat(slope_h[unit]))
                # mAIS: ln 2cosh a_k − ln 2cosh a_{k−1}
                if mixture is None:
                    now, e = _factor(base_h, beta, slope, unit)
                    e_before = _factor_before(base_h, near, beta_before, difference, slope, unit, e)
                    before = under(base_h, beta_before, slope, unit)
                    linear = _plus_rise(linear, base_h, now, before, slope, per_step)
                else:
                    start = _start(mixture.pulls_h, mixture.registers, unit, component, block)
                    slope = slope - start
                    now, before = fma(slope, beta, start), fma(slope, beta_before, start)
                    e, e_before = boltzmann(now), boltzmann(before)
                    linear = linear + rise(now, before, slope, per_step)
                top, bottom = fma(top, e, top), fma(bottom, e_before, bottom)
                if joint is not None:  # AIS: h·slope, with h from P_{k−1}(h|v)
                    drawn = fma(draw_spin(before, e_before, earlier[m]), slope, drawn)
                bits = draw_bit(bits, now, e, uniform(words[m], zero))
            store(h, (block * tiles_h + tile) * LANES, bits)
        weight = weight + widen(linear) * difference + widen(log(top / bottom))
        on_joint = widen(drawn)
        if panel == tiles_h // PANEL:  # The last sum is that of v with its own slopes.
            own = TILE * tiles_h
            total = as_numbers(load(sums, at_sums + (own - TILE * PANEL * panel) * LANES), on_joint)
            rise_v = total * up[3][own]
            weight, on_joint = weight + rise_v * difference, on_joint + rise_v
        store(log_weights, block * LANES, weight)
        if joint is not None:
            store(joint, block * LANES, load(joint, block * LANES) + on_joint * difference)


@njit(**CALLED)
def _draw_panel(
    down, panel, base_v, slope_v, mixture, component, beta, k, side_v, k0, k1, first_chain, first, last, sums, v
):  # fmt: skip
    """Draw the units of a panel of the sampled side in blocks `first` to `last`."""
    zero = splat(beta - beta)
    per_sums, tiles_v = sums.shape[1] * LANES, v.shape[1]
    for block in range(first, last):
        chain = lane_numbers() + uint64(first_chain + block * LANES)
        at_sums = (block - first) * per_sums
        for tile in range(PANEL * panel, smaller(PANEL * (panel + 1), tiles_v)):
            words = philox(chain, uint64(k), uint64(tile), side_v, k0, k1)
            bits = splat(uint32(0))
            for m in range(TILE):
                unit = TILE * tile + m
                here = at_sums + (unit - TILE * PANEL * panel) * LANES
                slope = fma(as_numbers(load(sums, here), zero), down[3][unit], splat(slope_v[unit]))
                if mixture is None:
                    a, e = _factor(base_v, beta, slope, unit)
                else:
                    start = _start(mixture.pulls_v, mixture.registers, unit, component, block)
                    a = fma(slope - start, beta, start)
                    e = boltzmann(a)
                bits = draw_bit(bits, a, e, uniform(words[m], zero))
            store(v, (block * tiles_v + tile) * LANES, bits)


@kernel(plain=True, error_model="numpy")
def anneal_tables(
    up, down, slope_v, slope_h, base_v, base_h, betas, differences, seed, sides, mixture,
    first_chain, v, h, component, logits, sums, tables, log_weights, joint, from_step, to_step, fresh,
):  # fmt: skip
    """Advance the blocks in v, h, log_weights and joint from one step of 0 … K to another, as `anneal_blocks` does.

    The first line of arguments is a `TableArguments`. v and h hold one index per four spins. `component` has the number
    of each chain's component of a mixture, and `logits` is workspace for the exponents of all components in the blocks
    that are advanced side by side; both are None without a mixture. `sums` is workspace for a panel of these blocks,
    and `tables` for the tables of a slice, or for all.
    """
    steps = len(betas) - 1
    start, yes, no = int64(0), boolean(1), boolean(0)  # For each literal argument another function would be compiled.
    k0, k1 = seed & LOW, seed >> WORD
    side_v, side_h = uint64(sides[0]), uint64(sides[1])
    zero_beta = betas[0] - betas[0]  # The subtraction makes it the type of the betas.
    zero = splat(zero_beta)
    tiles_v = v.shape[1]
    of_up, of_down = up[2][-1], down[2][-1]
    reach = _reach(slope_h, up[3])
    ready_up = ready_down = ready_logits = ready_more = -1
    of_all = of_up + of_down
    if mixture is not None:
        of_all = of_up + of_down + mixture.up[2][-1] + mixture.down[2][-1]
    if len(tables) >= of_all * TABLE:
        ready_up, ready_down = start, of_up * TABLE
        make_tables(up[0], start, of_up, tables, ready_up)
        make_tables(down[0], start, of_down, tables, ready_down)
        if mixture is not None:
            ready_logits = (of_up + of_down) * TABLE
            ready_more = ready_logits + mixture.up[2][-1] * TABLE
            make_tables(mixture.up[0], start, mixture.up[2][-1], tables, ready_logits)
            make_tables(mixture.down[0], start, mixture.down[2][-1], tables, ready_more)
    for first in range(0, v.shape[0], sums.shape[0]):
        last = smaller(first + sums.shape[0], v.shape[0])
        if fresh == 1:
            if mixture is not None:
                for block in range(last - first):
                    for z in range(logits.shape[1]):
                        store(logits, (block * logits.shape[1] + z) * LANES, splat(mixture.shares[z] - mixture.kept[z]))
                _draw_components(
                    mixture.own[0] * 0.0 + 1.0, mixture.kept, start, k0, k1, first_chain, first, last, logits, component
                )
            for block in range(first, last):
                chain = lane_numbers() + uint64(first_chain + block * LANES)
                for tile in range(tiles_v):
                    words = philox(chain, uint64(0), uint64(tile), side_v, k0, k1)
                    bits = splat(uint32(0))
                    for m in range(TILE):
                        if mixture is None:
                            a = under(base_v, betas[0], zero, TILE * tile + m)
                        else:
                            a = _start(mixture.pulls_v, mixture.registers, TILE * tile + m, component, block)
                        bits = draw_bit(bits, a, boltzmann(a), uniform(words[m], zero))
                    store(v, (block * tiles_v + tile) * LANES, bits)
        for k in range(from_step + 1, to_step + 1):
            beta, beta_before, difference = betas[k], betas[k - 1], differences[k - 1]
            near = 0.0 <= difference * reach * TWICE_LOG2_E <= SMALL
            if mixture is not None:
                _sum_logits(mixture.up, tables, v, first, last, sums, logits, mixture.own, ready_logits, yes)
                _release(first, last, logits, component, difference, log_weights, joint)
            for panel in range(len(up[1])):
                _sum_panel(up, panel, ready_up, tables, v, first, last, sums)
                if near:
                    _weigh_panel(
                        _if_uniform(base_h, mixture), up, panel, base_h, slope_h, mixture, component, beta, beta_before,
                        difference, k, side_h, k0, k1, first_chain, first, last, sums, h, log_weights, joint,
                    )  # fmt: skip
                else:
                    _weigh_panel(
                        None, up, panel, base_h, slope_h, mixture, component, beta, beta_before, difference, k, side_h,
                        k0, k1, first_chain, first, last, sums, h, log_weights, joint,
                    )  # fmt: skip
            if k < steps:
                if mixture is not None:
                    _sum_logits(mixture.down, tables, h, first, last, sums, logits, mixture.own, ready_more, no)
                    if not mixture.last:
                        _draw_components(
                            zero_beta + 1.0 - beta, mixture.kept, k, k0, k1, first_chain, first, last, logits, component
                        )
                for panel in range(len(down[1])):
                    _sum_panel(down, panel, ready_down, tables, h, first, last, sums)
                    _draw_panel(
                        down, panel, base_v, slope_v, mixture, component, beta, k, side_v, k0, k1, first_chain, first,
                        last, sums, v,
                    )  # fmt: skip
                if mixture is not None and mixture.last:
                    _sum_logits(mixture.up, tables, v, first, last, sums, logits, mixture.own, ready_logits, yes)
                    _sum_logits(mixture.down, tables, h, first, last, sums, logits, mixture.own, ready_more, no)
                    _draw_components(
                        zero_beta + 1.0 - beta, mixture.kept, k, k0, k1, first_chain, first, last, logits, component
                    )
