"""The kernel for lattices: neighbours are added up as whole numbers, and everything else is looked up.

Spins are bytes, ±1, with sixteen chains side by side. The sum of a site's neighbours is the index into tables of
sixteen entries (`lattice`): the threshold of its draw, the spin along its field, and the change of ln 2cosh as a whole
number. The kernel needs no exponentials or logarithms and does not round.

If the graph is not bipartite, some neighbours of a sampled site are sampled, too, and the sites are drawn in turn.
"""

from __future__ import annotations

from numba import njit, uint8, uint32, uint64

from ...simd.cache import kernel
from ...simd.draws import FLUSH, INLINE, LOW, TILE, WORD, philox
from ...simd.lookup import as_numbers, as_words, drawn, looked_up
from ...simd.vector import LANES, fma, lane_numbers, load, scalar, splat, store

MOST = 7  # Largest number of neighbours: a table has LANES entries, for sums from −MOST to MOST.


@njit(**INLINE)
def _add_up(neighbours, unit, x, at, total):
    """Add the neighbours of a site to a sum, with a minus sign if their coupling is −J."""
    if neighbours is not None:
        minus = scalar(neighbours.minus, unit)
        for p in range(scalar(neighbours.begin, unit), minus):
            total = total + load(x, at + scalar(neighbours.places, p))
        for p in range(minus, scalar(neighbours.begin, unit + 1)):
            total = total - load(x, at + scalar(neighbours.places, p))
    return total


@kernel(plain=True, error_model="numpy")
def anneal_lattice(
    hidden, visible, beside, before, kinds, coupling, start, slope_v, slope_h, rises, differences, seed, sides,
    first, thresholds, favoured, gains, scale,
    first_chain, v, h, log_weights, from_step, to_step, fresh,
):  # fmt: skip
    """Advance the blocks in v, h and log_weights from one step of 0 … K to another, as `anneal_blocks` does.

    The first line of arguments is a `LatticeArguments`, the second one the `lattice.Tables` of these steps.
    """
    steps = len(differences)
    k0, k1 = seed & LOW, seed >> WORD
    side_v, side_h = uint64(sides[0]), uint64(sides[1])
    nothing, none, middle = splat(uint32(0)), splat(uint8(0)), splat(uint8(MOST))
    kinds_v, kinds_h = kinds
    for block in range(v.shape[0]):
        chain = lane_numbers() + uint64(first_chain + block * LANES)
        at_v, at_h = block * v.shape[1] * LANES, block * h.shape[1] * LANES
        weight = load(log_weights, block * LANES)
        zero = weight - weight
        if fresh == 1:
            for tile in range(v.shape[1] // TILE):
                words = philox(chain, uint64(0), uint64(tile), side_v, k0, k1)
                for m in range(TILE):
                    unit = TILE * tile + m
                    spin = drawn(splat(start[0][unit]), splat(start[1][unit]), words[m])
                    store(v, at_v + unit * LANES, spin)
        for k in range(from_step + 1, to_step + 1):
            tables = (k - 1 - first) * thresholds.shape[1]
            few, many = nothing, zero
            for tile in range(h.shape[1] // TILE):
                words = philox(chain, uint64(k), uint64(tile), side_h, k0, k1)
                for m in range(TILE):
                    unit = TILE * tile + m
                    t = (tables + scalar(kinds_h, unit)) * LANES
                    index = _add_up(hidden, unit, v, at_v, middle)
                    likelier, index = looked_up(load(favoured, t), index), as_words(index)
                    few = few + looked_up(load(gains, t), index)
                    store(h, at_h + unit * LANES, drawn(looked_up(load(thresholds, t), index), likelier, words[m]))
                if tile % FLUSH == FLUSH - 1:
                    many, few = many + as_numbers(few, zero), nothing
            weight = fma(many + as_numbers(few, zero), scale[k - 1 - first], weight)
            if rises is not None:
                rise = zero
                for unit in range(len(rises)):
                    rise = fma(as_numbers(load(v, at_v + unit * LANES), zero), rises[unit], rise)
                weight = fma(rise, differences[k - 1], weight)
            if before is not None:
                rise = zero
                for tile in range(v.shape[1] // TILE):
                    bonds = none
                    for m in range(TILE):
                        unit = TILE * tile + m
                        bonds = bonds + load(v, at_v + unit * LANES) * _add_up(before, unit, v, at_v, none)
                    rise = rise + as_numbers(bonds, zero)
                weight = fma(rise, coupling * differences[k - 1], weight)
            if k < steps:
                for tile in range(v.shape[1] // TILE):
                    words = philox(chain, uint64(k), uint64(tile), side_v, k0, k1)
                    for m in range(TILE):
                        unit = TILE * tile + m
                        t = (tables + scalar(kinds_v, unit)) * LANES
                        index = _add_up(beside, unit, v, at_v, _add_up(visible, unit, h, at_h, middle))
                        likelier, index = looked_up(load(favoured, t), index), as_words(index)
                        store(v, at_v + unit * LANES, drawn(looked_up(load(thresholds, t), index), likelier, words[m]))
        store(log_weights, block * LANES, weight)
