"""The kernel for lattices whose chains are bits: 32 to a word, 512 to a vector (multi-spin coding).

A site's word holds the spins of 32 chains. The number m of neighbours that favour the spin up is counted in binary,
with one vector per digit, so that logical instructions replace additions for 512 chains at once. Uniforms are drawn as
planes: the highest bits of 512 uniforms, then the next bits, and so on. They are compared with the thresholds from the
highest bit on until every chain is decided, which takes about twelve planes. A threshold depends on the class of a
site, which is m, or without fields the smaller of m and its complement. Each bit of the threshold is therefore a sum
modulo two of products of the digits of the class, with coefficients that are the same for all chains.

Log-weights are linear in the numbers of sites per class. The digits of the class, and their products, are counted by
adders that carry only every second time. The counts are exact, and their contributions are in double precision.
"""

from __future__ import annotations

from numba import njit, uint32, uint64

from ...simd.bits import (
    any_bit,
    less_so_far,
    majority,
    or_both,
    parity,
    plus_product,
    same_so_far,
)
from ...simd.cache import kernel
from ...simd.draws import CALLED, INLINE, LOW, WORD, philox
from ...simd.lookup import as_numbers
from ...simd.vector import LANES, fma, lane_numbers, load, scalar, splat, store

TOGETHER = 32  # Number of chains in a word.
PLANES = 32  # Bits of a uniform.
DIGITS = 8  # Number of coefficients of a function of three digits.
_CALLS = 8  # Calls of Philox for all planes of a uniform.
_AT_LEAST = 3  # Calls before the first check: after fewer, some of 512 chains are almost surely undecided.


@njit(**INLINE)
def _count(places, signs, width, at, x, start):
    """Count the neighbours that favour the spin up, in three binary digits."""
    zero = splat(uint32(0))
    m0, m1, m2 = zero, zero, zero
    for p in range(at, at + width, 2):
        a, b = load(x, start + scalar(places, p)), load(x, start + scalar(places, p + 1))
        if signs is not None:
            a, b = a ^ scalar(signs, p), b ^ scalar(signs, p + 1)
        carry = majority(m0, a, b)
        m0 = parity(m0, a, b)
        m2 = plus_product(m2, m1, carry)
        m1 = m1 ^ carry
    return m0, m1, m2


@njit(**INLINE)
def _of_two(c, at, d0, d1, d01):
    """Return a function of two digits, from its coefficients."""
    found = plus_product(splat(scalar(c, at)), d0, splat(scalar(c, at + 1)))
    found = plus_product(found, d1, splat(scalar(c, at + 2)))
    return plus_product(found, d01, splat(scalar(c, at + 3)))


@njit(**INLINE)
def _of_three(c, at, d, d01):
    """Return a function of three digits, from its coefficients."""
    low = _of_two(c, at, d[0], d[1], d01)
    high = _of_two(c, at + 4, d[0], d[1], d01)
    return plus_product(low, d[2], high)


@njit(**INLINE)
def _bit(coefficients, p, wide, d, d01):
    if wide is None:
        return _of_two(coefficients, DIGITS * p, d[0], d[1], d01)
    return _of_three(coefficients, DIGITS * p, d, d01)


@njit(**INLINE)
def _compare(words, coefficients, p, wide, d, d01):
    """Compare four planes from p on with those of the thresholds; return which are less and which are equal."""
    zero = splat(uint32(0))
    less, same = zero, splat(uint32(0xFFFFFFFF))
    u, t = words[3], _bit(coefficients, p + 3, wide, d, d01)
    less, same = less_so_far(u, t, less), same_so_far(u, t, same)
    u, t = words[2], _bit(coefficients, p + 2, wide, d, d01)
    less, same = less_so_far(u, t, less), same_so_far(u, t, same)
    u, t = words[1], _bit(coefficients, p + 1, wide, d, d01)
    less, same = less_so_far(u, t, less), same_so_far(u, t, same)
    u, t = words[0], _bit(coefficients, p, wide, d, d01)
    return less_so_far(u, t, less), same_so_far(u, t, same)


@njit(**INLINE)
def _draw(unit, coefficients, wide, d, d01, chains, alive, k, side, k0, k1):
    """Return the chains whose uniform is below the threshold of the unit's class, as bits."""
    less, same = splat(uint32(0)), alive
    call = 0
    while call < _AT_LEAST or (call < _CALLS and any_bit(same)):
        words = philox(chains, k, uint64(_CALLS * unit + call), side, k0, k1)
        further, as_well = _compare(words, coefficients, 4 * call, wide, d, d01)
        less, same = or_both(less, same, further), same & as_well
        call += 1
    return less


@njit(**INLINE)
def _unfold(words, at, wide, coefficients):
    """Expand the bits of some words to coefficients[plane][word] that are all ones or all zeros."""
    for j in range(DIGITS // 2 if wide is None else DIGITS):
        word = words[at + j]
        for p in range(PLANES):
            coefficients[DIGITS * p + j] = uint32(0) - ((word >> uint32(PLANES - 1 - p)) & uint32(1))


@njit(**INLINE)
def _add(counter, at, number, bits):
    """Add a bit of every chain to a counter of `number` bits so far: [digit][sum, bits that wait for a partner]."""
    while number & 1:
        total, waiting = load(counter, at), load(counter, at + LANES)
        store(counter, at, parity(total, waiting, bits))
        bits = majority(total, waiting, bits)
        number >>= 1
        at += 2 * LANES
    store(counter, at + LANES, bits)


@njit(**INLINE)
def _finish(counter, at, number, digits):
    """Add the bits that still wait in a counter of `number` bits per chain."""
    for digit in range(digits):
        if number >> digit & 1:
            bits = load(counter, at + (2 * digit + 1) * LANES)
            for d in range(digit, digits):
                total = load(counter, at + 2 * d * LANES)
                store(counter, at + 2 * d * LANES, total ^ bits)
                bits = total & bits


@njit(**CALLED)
def _collect(counter, counters, number, worth, at_worth, weights, at):
    """Add the contributions of the counts of `number` sites to the log-weights, chain by chain."""
    room = len(counter) // (DIGITS - 1)
    digits = 0
    while number >> digits:
        digits += 1
    for c in range(counters):
        _finish(counter, c * room, number, digits)
    for bit in range(TOGETHER):
        weight = load(weights, at + bit * LANES) + worth[at_worth] * number
        for c in range(counters):
            count = splat(uint32(0))
            for d in range(digits - 1, -1, -1):
                one = (load(counter, c * room + 2 * d * LANES) >> uint32(bit)) & uint32(1)
                count = count + count + one
            weight = fma(as_numbers(count, weight), worth[at_worth + 1 + c], weight)
        store(weights, at + bit * LANES, weight)


@njit(**INLINE)
def _clear(counter, size):
    for i in range(size):
        counter[i] = uint32(0)


@njit(**CALLED)
def _sweep(
    sites, signs, kinds, wide, tables, row, counts, chains, alive, k, side, k0, k1, here, at_here, there, at_there,
    scratch, worth, weights, at_weights,
):  # fmt: skip
    """Draw all sites of a side given the other; with `counts`, add their contributions to the weights."""
    thresholds, favoured = tables
    counter, coefficients, _ = scratch
    room = len(counter) // (DIGITS - 1)
    for i in range(len(sites.kinds)):
        kind = sites.kinds[i]
        table = (row * len(kinds.counters) + kind) * DIGITS
        _unfold(thresholds, table, wide, coefficients)
        counters = kinds.counters[kind] if counts else 0
        _clear(counter, counters * room)
        at = sites.first[i]
        for j in range(sites.begin[i], sites.begin[i + 1]):
            unit = scalar(sites.units, j)
            m = _count(sites.places, signs, sites.widths[i], at, there, at_there)
            at += sites.widths[i]
            m01 = m[0] & m[1]
            up = _of_three(favoured, table, m, m01)
            if wide is None:
                d0 = _of_three(kinds.classes, 2 * DIGITS * kind, m, m01)
                d1 = _of_three(kinds.classes, (2 * kind + 1) * DIGITS, m, m01)
                d, d01 = (d0, d1, d1), d0 & d1
            else:
                d, d01 = m, m01
            number = j - sites.begin[i]
            if counters > 0:
                _add(counter, 0, number, d[0])
            if counters > 1:
                _add(counter, room, number, d[1])
            if counters > 2:
                _add(counter, 2 * room, number, d01)
            if wide is not None:
                if counters > 3:
                    _add(counter, 3 * room, number, d[2])
                if counters > 4:
                    _add(counter, 4 * room, number, d[0] & d[2])
                if counters > 5:
                    _add(counter, 5 * room, number, d[1] & d[2])
                if counters > 6:
                    _add(counter, 6 * room, number, d01 & d[2])
            against = _draw(unit, coefficients, wide, d, d01, chains, alive, k, side, k0, k1)
            store(here, at_here + unit * LANES, up ^ against)
        if counts:
            _collect(counter, counters, sites.begin[i + 1] - sites.begin[i], worth, table, weights, at_weights)


@njit(**CALLED)
def _rise(sites, slopes, difference, v, at_v, scratch, weights, at_weights):
    """Add the contribution of the fields of the sampled side to the log-weights."""
    counter, _, pair = scratch
    room = len(counter) // (DIGITS - 1)
    for i in range(len(sites.kinds)):
        _clear(counter, room)
        for j in range(sites.begin[i], sites.begin[i + 1]):
            _add(counter, 0, j - sites.begin[i], load(v, at_v + scalar(sites.units, j) * LANES))
        slope = slopes[sites.kinds[i]] * difference
        pair[0], pair[1] = -slope, 2.0 * slope
        _collect(counter, 1, sites.begin[i + 1] - sites.begin[i], pair, 0, weights, at_weights)


@kernel(plain=True, error_model="numpy")
def anneal_planes(
    hidden, visible, kinds, wide, start, rises, rising, differences, seed, sides, units,
    first, thresholds, favoured, worth,
    first_word, alive, v, h, scratch, weights, from_step, to_step, fresh,
):  # fmt: skip
    """Advance groups of 512 chains, stored as bits in v and h, from one step of 0 … K to another.

    The first line of arguments is a `PlaneArguments`, the second one the `Tables` of these steps. `alive` has a bit for
    every chain that is not padding; the order of log-weights is [group][bit][word].
    """
    steps = len(differences)
    tables = (thresholds, favoured)
    k0, k1 = seed & LOW, seed >> WORD
    side_v, side_h = uint64(sides[0]), uint64(sides[1])
    for group in range(v.shape[0]):
        chains = lane_numbers() + uint64(first_word + group * LANES)
        living = load(alive, group * LANES)
        at_v, at_h = group * v.shape[1] * LANES, group * h.shape[1] * LANES
        at_weights = group * TOGETHER * LANES
        if fresh == 1:  # Step 0: the thresholds of the base do not depend on neighbours.
            _sweep(
                visible, visible.signs, kinds, wide, start, from_step, False, chains, living, uint64(0), side_v, k0, k1,
                v, at_v, h, at_h, scratch, worth, weights, at_weights,
            )  # fmt: skip
        for k in range(from_step + 1, to_step + 1):
            row = k - 1 - first
            if rising:
                _rise(visible, rises, differences[k - 1], v, at_v, scratch, weights, at_weights)
            _sweep(
                hidden, hidden.signs, kinds, wide, tables, row, True, chains, living, uint64(k), side_h, k0, k1,
                h, at_h, v, at_v, scratch, worth, weights, at_weights,
            )  # fmt: skip
            if k < steps:
                _sweep(
                    visible, visible.signs, kinds, wide, tables, row, False, chains, living, uint64(k), side_v, k0, k1,
                    v, at_v, h, at_h, scratch, worth, weights, at_weights,
                )  # fmt: skip
