"""The sampled side in the general kernel: units are drawn one after the other, or four at a time if they are uncoupled.

The field of unit i is a sum over the units before it, which are already new, and over all others. The first part also
yields the energy of the new state: ½vᵀLv = Σ_i v_i Σ_{j<i} l_ij v_j.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types, uint64
from numba.extending import overload

from ...simd.compiling import intrinsic
from ...simd.draws import CALLED, FLUSH, INLINE, TILE, philox
from ...simd.vector import LANES, broadcast, call, element_of, fma, load, splat, store, widen
from .fields import band_pair, fields, fields_into, fields_or, four, row
from .unit_kinds import OneHot, draw, draw_state, factor, log_sum

PAIRS = 6  # Couplings inside a tile.


@intrinsic
def _pull(typingctx: Any, inner: Any, tile: Any, number: Any, value: Any, a: Any) -> Any:
    """Return a + w·value for a coupling w inside the tile, or a if `inner` is None."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if isinstance(inner, types.NoneType):
            return args[4]
        place = builder.add(builder.mul(args[1], args[1].type(PAIRS)), args[2])
        kind = args[4].type.element
        weight = builder.load(element_of(context, builder, sig, (args[0], place), kind), typ=kind)
        return call(builder, "fma", broadcast(builder, weight), *args[3:])

    return a(inner, tile, number, value, a), emit


def sweep(
    side, before, after, into0, inner, inner0, tied, slope_v, base_v, beta, k, chain, side_v, k0, k1, x, at, scratch
):
    """Draw the sampled units one after the other; return the slope in β of −E_k without the terms in h."""
    raise NotImplementedError


@overload(sweep, jit_options=CALLED)
def _sweep_overload(
    side, before, after, into0, inner, inner0, tied, slope_v, base_v, beta, k, chain, side_v, k0, k1, x, at, scratch
):
    return _sweep_states if side.instance_class is OneHot else _sweep_scalars


def _sweep_scalars(
    side, before, after, into0, inner, inner0, tied, slope_v, base_v, beta, k, chain, side_v, k0, k1, x, at, scratch
):
    zero = splat(beta - beta)
    linear, total = zero, widen(zero)
    for tile in range(len(slope_v) // TILE):
        low = fields_or(before, x, at, tile, four(slope_v, tile))
        slopes = fields(after, x, at, tile, low)
        starts = fields_or(into0, x, at, tile, four(base_v, tile))
        words = philox(chain, uint64(k), uint64(tile), side_v, k0, k1)
        linear = draw_tile(side, inner, inner0, tied, tile, beta, low, slopes, starts, words, x, at, linear)
        if tile % FLUSH == FLUSH - 1:
            total, linear = total + widen(linear), zero
    return total + widen(linear)


@njit(**CALLED)
def sweep_pair(side, before, after, inner, tied, slope_v, base_v, beta, k, chains, side_v, k0, k1, x, at):
    """Do the same as `sweep` for two blocks of chains on a dense graph; every weight is read once for both."""
    zero = splat(beta - beta)
    linear_a, linear_b, total_a, total_b = zero, zero, widen(zero), widen(zero)
    for tile in range(len(slope_v) // TILE):
        start = four(slope_v, tile)
        low_a, low_b = band_pair(before, x, at, tile, start, start)
        slopes_a, slopes_b = band_pair(after, x, at, tile, low_a, low_b)
        base = four(base_v, tile)
        words = philox(chains[0], uint64(k), uint64(tile), side_v, k0, k1)
        linear_a = draw_tile(side, inner, None, tied, tile, beta, low_a, slopes_a, base, words, x, at[0], linear_a)
        words = philox(chains[1], uint64(k), uint64(tile), side_v, k0, k1)
        linear_b = draw_tile(side, inner, None, tied, tile, beta, low_b, slopes_b, base, words, x, at[1], linear_b)
        if tile % FLUSH == FLUSH - 1:
            total_a, linear_a = total_a + widen(linear_a), zero
            total_b, linear_b = total_b + widen(linear_b), zero
    return total_a + widen(linear_a), total_b + widen(linear_b)


@njit(**INLINE)
def draw_tile(side, inner, inner0, tied, tile, beta, low, slopes, starts, words, x, at, linear):
    """Draw the four units of a tile; add unit times `low`, its field's slope from the units before it, to `linear`."""
    l0, l1, l2, l3 = low
    a0, a1, a2, a3 = slopes
    s0, s1, s2, s3 = starts
    unit = TILE * tile
    here = at + unit * LANES
    if tied is not None and tied[tile]:  # Coupled units are drawn one by one.
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
    # Scratch holds the slopes, the starts, and the slopes from the variables before.
    n = len(slope_v)
    at_start, at_low = n * LANES, 2 * n * LANES
    zero = splat(beta - beta)
    total = widen(zero)
    if before is None:  # Without couplings among the variables all fields are computed at once.
        fields_into(after, x, at, slope_v, scratch, 0)
        for tile in range(n // TILE):
            starts = fields_or(into0, x, at, tile, four(base_v, tile))
            for m in range(TILE):
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


@njit(**CALLED)
def energy(before, inner, slope_v, x, at):
    """Return the slope in β of −E_k at the present states, without the terms in h."""
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
    """Return the field of one unit."""
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
