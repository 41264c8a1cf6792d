"""The kernel for factors of categorical variables: fields are sums of entries of tables.

Chains lie side by side in vectors. The state of a variable is a number, and the states of the other variables of a
factor give the position of a row in its table, which has an entry for each state of the variable.

The formulas are those of `reference.loop`.
"""

from __future__ import annotations

from numba import int64, njit, uint32, uint64

from ...random import JOINT, MIXTURE
from ...simd.cache import kernel
from ...simd.draws import CALLED, INLINE, LOW, TILE, WORD, philox
from ...simd.functions import exp2_nonpositive, log, select
from ...simd.lookup import gathered, row_sums
from ...simd.numbers import LOG2_E, above, same, share_of
from ...simd.vector import LANES, fma, lane_numbers, load, maximum, scalar, splat, store, widen

_FEW = 4  # Variables per logarithm; the product of their sums stays in the range of float32.


@njit(**INLINE)
def _position(factors, places, strides, p, x, at):
    """Return the position of the states of a table's variables, in the table."""
    index = splat(uint32(0))
    for q in range(scalar(factors, p), scalar(factors, p + 1)):
        index = index + load(x, at + scalar(places, q)) * scalar(strides, q)
    return index


@njit(**INLINE)
def _fields(lookups, values, own, variable, first, last, x, at, rows, out, at_out):
    """Write the fields of the states of a variable: its own ones, and the sums of the rows of its tables."""
    begins, tables, factors, places, strides = lookups
    begin, end = scalar(begins, variable), scalar(begins, variable + 1)
    for p in range(begin, end):
        store(rows, (p - begin) * LANES, _position(factors, places, strides, p, x, at))
    row_sums(values, tables, begin, end, rows, last - first, out, at_out + first * LANES)
    for f in range(first, last):
        store(out, at_out + f * LANES, load(out, at_out + f * LANES) + own[f])


@njit(**CALLED)
def _weigh(slopes, beta, at_start, at_out, first, last):
    """Return max and Σ exp(a − max) of a = start + β·slope over the states, and write the exponentials."""
    top = fma(load(slopes, first * LANES), beta, load(slopes, at_start + first * LANES))
    for f in range(first + 1, last):
        top = maximum(top, fma(load(slopes, f * LANES), beta, load(slopes, at_start + f * LANES)))
    total = top - top
    for f in range(first, last):
        a = fma(load(slopes, f * LANES), beta, load(slopes, at_start + f * LANES))
        e = exp2_nonpositive((a - top) * LOG2_E)
        store(slopes, at_out + f * LANES, e)
        total = total + e
    return top, total


@njit(**CALLED)
def _drawn(weights, at, first, last, total, word):
    """Return the first state whose cumulative sum exceeds u·total."""
    threshold = share_of(word, total)
    below = total - total
    one, none = splat(uint32(1)), splat(uint32(0))
    state = none
    for f in range(first, last - 1):
        below = below + load(weights, at + f * LANES)
        state = state + select(above(below, threshold), none, one)
    return state


@njit(**INLINE)
def _word(words, variable):
    place = variable % TILE
    word = words[0]
    if place == 1:
        word = words[1]
    elif place == 2:
        word = words[2]
    elif place == 3:
        word = words[3]
    return word


@njit(**CALLED)
def _energy(starts, visible, inside, values, slopes, x, at):
    """Return the slope in β of −E_k at the present states, without the terms in h."""
    zero = splat(slopes[0] - slopes[0])
    total, part = widen(zero), zero
    for variable in range(visible):
        part = part + gathered(slopes, starts[variable], load(x, at + variable * LANES))
        if variable % 64 == 63:
            total, part = total + widen(part), zero
    total, part = total + widen(part), zero
    _, tables, factors, places, strides = inside
    for p in range(len(tables)):
        part = part + gathered(values, scalar(tables, p), _position(factors, places, strides, p, x, at))
        if p % 64 == 63:
            total, part = total + widen(part), zero
    return total + widen(part)


@njit(**CALLED)
def _draw_component(end, last, starts, into0, values, bases, kept, beta, k, chain, k0, k1, x, at, rows, scratch):
    """Draw the component of a mixture given all variables, if it is drawn at this `end` of a sweep."""
    if end != last:
        return
    component = len(starts) - 2
    first, stop = starts[component], starts[component + 1]
    at_start = len(scratch[0]) * LANES
    _fields(into0, values, bases, component, first, stop, x, at, rows, scratch, at_start)
    for f in range(first, stop):
        field = load(scratch, at_start + f * LANES)
        store(scratch, f * LANES, field - (field + field))
        store(scratch, at_start + f * LANES, field + kept[f])
    _, total = _weigh(scratch, beta, at_start, 2 * at_start, first, stop)
    word = philox(chain, uint64(k), uint64(0), uint64(MIXTURE), k0, k1)[0]
    store(x, at + component * LANES, _drawn(scratch, 2 * at_start, first, stop, total, word))


@kernel(plain=True, error_model="numpy")
def anneal_tables(
    starts, variables, visible, into, inside, into0, values, slopes, bases, betas, differences, seed, sides, mixed,
    first_chain, x, scratch, rows, rises, log_weights, joint, from_step, to_step, fresh,
):  # fmt: skip
    """Advance blocks of chains from one step of 0 … K to another, as `anneal_graph` does.

    The first line of arguments is a `FactorTableArguments`. `scratch` holds the slopes of the fields of all states,
    their values at β = 0, and the exponentials of the fields; `rows` holds the positions of rows in tables.
    """
    steps = len(betas) - 1
    k0, k1 = seed & LOW, seed >> WORD
    side_v, side_h = uint64(sides[0]), uint64(sides[1])
    start, end = int64(0), int64(1)
    features, stored = starts[len(starts) - 1], len(starts) - 1
    at_start, at_weights = len(scratch[0]) * LANES, 2 * len(scratch[0]) * LANES
    zero = splat(betas[0] - betas[0])
    one = zero + 1.0
    for f in range(features):
        store(scratch, at_start + f * LANES, splat(bases[f]))
    for block in range(x.shape[0]):
        chain = lane_numbers() + uint64(first_chain + block * LANES)
        at = block * stored * LANES
        if fresh == 1:
            words = philox(chain, uint64(0), uint64(0), side_v, k0, k1)
            for variable in range(visible):
                if variable % TILE == 0:
                    words = philox(chain, uint64(0), uint64(variable // TILE), side_v, k0, k1)
                first, last = starts[variable], starts[variable + 1]
                for f in range(first, last):
                    store(scratch, f * LANES, zero)
                    store(scratch, at_start + f * LANES, splat(bases[f]))
                _, total = _weigh(scratch, betas[0], at_start, at_weights, first, last)
                state = _drawn(scratch, at_weights, first, last, total, _word(words, variable))
                store(x, at + variable * LANES, state)
        if fresh:
            store(rises, block * LANES, _energy(starts, visible, inside, values, slopes, x, at))
        rise_v, weight = load(rises, block * LANES), load(log_weights, block * LANES)
        for k in range(from_step + 1, to_step + 1):
            difference = differences[k - 1]
            weight = weight + rise_v * difference
            top, bottom, on_joint = one, one, widen(zero)
            words = philox(chain, uint64(k), uint64(0), side_h, k0, k1)
            earlier = words
            for variable in range(visible, variables):
                unit = variable - visible
                if unit % TILE == 0:
                    words = philox(chain, uint64(k), uint64(unit // TILE), side_h, k0, k1)
                    if joint is not None:
                        earlier = philox(chain, uint64(k - 1), uint64(unit // TILE), uint64(JOINT), k0, k1)
                first, last = starts[variable], starts[variable + 1]
                _fields(into, values, slopes, variable, first, last, x, at, rows, scratch, 0)
                if into0 is not None:
                    _fields(into0, values, bases, variable, first, last, x, at, rows, scratch, at_start)
                before, total_before = _weigh(scratch, betas[k - 1], at_start, at_weights, first, last)
                if joint is not None:  # AIS: h·slope, with h from P_{k−1}(h|v)
                    state = _drawn(scratch, at_weights, first, last, total_before, _word(earlier, unit))
                    for f in range(first, last):
                        chosen = same(state, splat(uint32(f - first)))
                        on_joint = on_joint + widen(select(chosen, load(scratch, f * LANES), zero))
                most, total = _weigh(scratch, betas[k], at_start, at_weights, first, last)
                weight = weight + widen(most - before)
                top, bottom = top * total, bottom * total_before
                if unit % _FEW == _FEW - 1:
                    weight, top, bottom = weight + widen(log(top / bottom)), one, one
                state = _drawn(scratch, at_weights, first, last, total, _word(words, unit))
                store(x, at + variable * LANES, state)
            weight = weight + widen(log(top / bottom))
            if joint is not None:
                store(joint, block * LANES, load(joint, block * LANES) + (rise_v + on_joint) * difference)
            if k < steps:
                if mixed is not None:
                    _draw_component(
                        start,
                        mixed,
                        starts,
                        into0,
                        values,
                        bases,
                        slopes,
                        betas[k],
                        k,
                        chain,
                        k0,
                        k1,
                        x,
                        at,
                        rows,
                        scratch,
                    )
                words = philox(chain, uint64(k), uint64(0), side_v, k0, k1)
                for variable in range(visible):
                    if variable % TILE == 0:
                        words = philox(chain, uint64(k), uint64(variable // TILE), side_v, k0, k1)
                    first, last = starts[variable], starts[variable + 1]
                    _fields(into, values, slopes, variable, first, last, x, at, rows, scratch, 0)
                    if into0 is not None:
                        _fields(into0, values, bases, variable, first, last, x, at, rows, scratch, at_start)
                    _, total = _weigh(scratch, betas[k], at_start, at_weights, first, last)
                    state = _drawn(scratch, at_weights, first, last, total, _word(words, variable))
                    store(x, at + variable * LANES, state)
                if mixed is not None:
                    _draw_component(
                        end,
                        mixed,
                        starts,
                        into0,
                        values,
                        bases,
                        slopes,
                        betas[k],
                        k,
                        chain,
                        k0,
                        k1,
                        x,
                        at,
                        rows,
                        scratch,
                    )
                rise_v = _energy(starts, visible, inside, values, slopes, x, at)
        store(rises, block * LANES, rise_v)
        store(log_weights, block * LANES, weight)
