"""Spins of a dense graph, drawn one after the other, with fields from look-up tables as in `tables_kernel`.

The fields of a tile of four units need one look-up for each other tile, with its new spins if it comes before and its
old ones if it comes after. The look-ups are done for many blocks of chains, and then all of them draw the tile, so that
its tables stay in the cache. Couplings inside the tile are multiplied as in `graph_sampled_side`.
"""

from __future__ import annotations

from numba import njit, uint32, uint64

from ...simd.draws import CALLED, FLUSH, INLINE, TILE, philox
from ...simd.lookup import append_sign, as_numbers
from ...simd.vector import LANES, fma, load, splat, store, widen
from .fields import four
from .graph_sampled_side import draw_tile
from .tables_kernel import PANEL, TABLE, make_tables, sum_tiles


@njit(**CALLED)
def begin_tables(room, dense, x, first, last):
    """Store the spins of some blocks as bits, and make all tables if they fit; return their position, or −1."""
    bits, _, tables = room
    note_bits(bits, 0, x, first, last)
    count = dense[2][-1]
    if len(tables) < count * TABLE:
        return -1
    make_tables(dense[0], 0, count, tables, 0)
    return 0


@njit(**CALLED)
def note_bits(bits, tile, x, first, last):
    """Store the spins of the tiles from `tile` on as indices, one per four spins."""
    for block in range(first, last):
        for t in range(tile, bits.shape[1]):
            index = _index(x, (block * x.shape[1] + TILE * t) * LANES)
            store(bits, ((block - first) * bits.shape[1] + t) * LANES, index)


@njit(**INLINE)
def _index(x, at):
    bits = splat(uint32(0))
    for m in range(TILE):
        bits = append_sign(bits, load(x, at + m * LANES))
    return bits


@njit(**INLINE)
def _fields(dense, tile, sums, at, slope_v, zero):
    """Return the slopes of the fields of a tile: from the units before it, and from all units outside it."""
    start, scale = four(slope_v, tile), four(dense[3], tile)
    l0, l1 = load(sums, at), load(sums, at + LANES)
    l2, l3 = load(sums, at + 2 * LANES), load(sums, at + 3 * LANES)
    low = (
        fma(as_numbers(l0, zero), scale[0], start[0]),
        fma(as_numbers(l1, zero), scale[1], start[1]),
        fma(as_numbers(l2, zero), scale[2], start[2]),
        fma(as_numbers(l3, zero), scale[3], start[3]),
    )
    after = at + TILE * LANES
    slopes = (
        fma(as_numbers(l0 + load(sums, after), zero), scale[0], start[0]),
        fma(as_numbers(l1 + load(sums, after + LANES), zero), scale[1], start[1]),
        fma(as_numbers(l2 + load(sums, after + 2 * LANES), zero), scale[2], start[2]),
        fma(as_numbers(l3 + load(sums, after + 3 * LANES), zero), scale[3], start[3]),
    )
    return low, slopes


@njit(**CALLED)
def sweep_tables(
    side,
    dense,
    room,
    ready,
    inner,
    tied,
    slope_v,
    base_v,
    beta,
    k,
    chain,
    side_v,
    k0,
    k1,
    x,
    first,
    last,
    scratch,
    rises,
):
    """Draw the sampled units of some blocks one after the other, and store the slopes in β of −E_k; see `sweep`."""
    bits, sums, tables = room
    zero = splat(beta - beta)
    tiles, per_sums = len(slope_v) // TILE, sums.shape[1] * LANES
    note_bits(bits, tiles, x, first, last)  # The spins of the summed-out side are new.
    for tile in range(tiles):
        panel, t = tile // PANEL, tile % PANEL
        blocks = last - first
        sum_tiles(dense, panel, t, t + 1, 0, tile, ready, tables, bits, 0, blocks, sums, 0)
        after = TILE * LANES
        sum_tiles(dense, panel, t, t + 1, tile + 1, bits.shape[1], ready, tables, bits, 0, blocks, sums, after)
        for block in range(blocks):
            words = philox(chain + uint64(block * LANES), uint64(k), uint64(tile), side_v, k0, k1)
            low, slopes = _fields(dense, tile, sums, block * per_sums, slope_v, zero)
            at = (first + block) * x.shape[1] * LANES
            linear = zero
            if tile % FLUSH > 0:
                linear = load(scratch, block * LANES)
            linear = draw_tile(
                side, inner, None, tied, tile, beta, low, slopes, four(base_v, tile), words, x, at, linear
            )
            store(scratch, block * LANES, linear)
            if tile % FLUSH == FLUSH - 1 or tile == tiles - 1:
                total = widen(linear)
                if tile >= FLUSH:
                    total = load(rises, (first + block) * LANES) + total
                store(rises, (first + block) * LANES, total)
            store(bits, (block * bits.shape[1] + tile) * LANES, _index(x, at + TILE * tile * LANES))
