"""The kernel for densely coupled categorical variables: fields are sums of rows of the matrix of couplings.

Chains lie side by side in vectors. The state of a variable is a number, and selects a row of couplings into the states
of each neighbour. All chains of a job draw one variable before the next, so that its couplings are read from memory
once for all of them.

The formulas are those of `reference.loop`, and the sums are in the order of `graph_kernel`, which gives the same bits.
"""

from __future__ import annotations

from numba import njit, uint32, uint64

from ...random import JOINT
from ...simd.cache import kernel
from ...simd.draws import CALLED, INLINE, LOW, TILE, WORD, philox
from ...simd.functions import exp2_nonpositive, log, select
from ...simd.lookup import row_sums_in_two
from ...simd.numbers import LOG2_E, above, same, share_of
from ...simd.vector import LANES, fma, lane_numbers, load, maximum, scalar, splat, store, widen

_FEW = 4  # Variables per logarithm; the product of their sums stays in the range of float32.


@njit(**CALLED)
def _fields(rows, variable, states, x, at, room):
    """Write the slopes of the fields of all states of a variable, and their part from the variables before it."""
    begin, end = scalar(rows.begin, variable), scalar(rows.begin, variable + 1)
    places, part, slopes, _ = room
    for p in range(begin, end):
        store(places, (p - begin) * LANES, load(x, at + scalar(rows.places, p)) * scalar(rows.strides, p))
    row_sums_in_two(
        rows.values, rows.tables, begin, scalar(rows.middle, variable), end, places, states, part, slopes, 0
    )


@njit(**CALLED)
def _weigh(slopes, bases, first, states, beta, weights):
    """Return max and Σ exp(a − max) of a = base + β·slope over the states, and write the exponentials."""
    top = fma(load(slopes, 0), beta, splat(bases[first]))
    for f in range(1, states):
        top = maximum(top, fma(load(slopes, f * LANES), beta, splat(bases[first + f])))
    total = top - top
    for f in range(states):
        a = fma(load(slopes, f * LANES), beta, splat(bases[first + f]))
        e = exp2_nonpositive((a - top) * LOG2_E)
        store(weights, f * LANES, e)
        total = total + e
    return top, total


@njit(**CALLED)
def _drawn(weights, states, total, word):
    """Return the first state whose cumulative sum exceeds u·total; the last one takes the remainder from rounding."""
    threshold = share_of(word, total)
    below = total - total
    one, none = splat(uint32(1)), splat(uint32(0))
    state = none
    for f in range(states - 1):
        below = below + load(weights, f * LANES)
        state = state + select(above(below, threshold), none, one)
    return state


@njit(**CALLED)
def _at_state(values, states, state):
    """Return each lane's number of its state."""
    found = load(values, 0)
    for f in range(1, states):
        found = select(same(state, splat(uint32(f))), load(values, f * LANES), found)
    return found


@njit(**INLINE)
def _word(chain, k, variable, side, k0, k1):
    """Return the random words of a variable."""
    words = philox(chain, uint64(k), uint64(variable // TILE), side, k0, k1)
    place = variable % TILE
    word = words[0]
    if place == 1:
        word = words[1]
    elif place == 2:
        word = words[2]
    elif place == 3:
        word = words[3]
    return word


@kernel(plain=True, error_model="numpy")
def anneal_categorical(
    starts, visible, rows, bases, betas, differences, seed, sides,
    first_chain, x, room, sums, rises, log_weights, joint, drawn, from_step, to_step, fresh,
):  # fmt: skip
    """Advance blocks of chains from one step of 0 … K to another, as `anneal_graph` does.

    The first line of arguments is a `CategoricalArguments`. `room` is workspace for one block: the positions of rows,
    the slopes of the fields and their part from earlier variables, and exponentials. `sums` has two products for each
    block, whose quotient enters the weight as a logarithm, and `drawn` the sum of h·slope for the weights of AIS.
    """
    steps = len(betas) - 1
    k0, k1 = seed & LOW, seed >> WORD
    side_v, side_h = uint64(sides[0]), uint64(sides[1])
    variables, blocks = len(starts) - 1, x.shape[0]
    _, part, slopes, weights = room
    zero = splat(betas[0] - betas[0])
    one = zero + 1.0
    if fresh == 1:
        for f in range(len(slopes)):
            store(slopes, f * LANES, zero)
        for variable in range(visible):
            states = starts[variable + 1] - starts[variable]
            for block in range(blocks):
                chain = lane_numbers() + uint64(first_chain + block * LANES)
                _, total = _weigh(slopes, bases, starts[variable], states, betas[0], weights)
                state = _drawn(weights, states, total, _word(chain, 0, variable, side_v, k0, k1))
                store(x, (block * variables + variable) * LANES, state)
    if fresh:
        for block in range(blocks):
            store(rises, block * LANES, widen(zero))
        for variable in range(visible):
            states = starts[variable + 1] - starts[variable]
            for block in range(blocks):
                at = block * variables * LANES
                _fields(rows, variable, states, x, at, room)
                low = _at_state(part, states, load(x, at + variable * LANES))
                store(rises, block * LANES, load(rises, block * LANES) + widen(low))
    for k in range(from_step + 1, to_step + 1):
        difference = differences[k - 1]
        for block in range(blocks):
            here = block * LANES
            store(log_weights, here, load(log_weights, here) + load(rises, here) * difference)
            if joint is not None:
                store(drawn, here, widen(zero))
            store(sums, 2 * here, one)
            store(sums, 2 * here + LANES, one)
        for variable in range(visible, variables):
            unit, states = variable - visible, starts[variable + 1] - starts[variable]
            for block in range(blocks):
                here, at = block * LANES, block * variables * LANES
                chain = lane_numbers() + uint64(first_chain + here)
                _fields(rows, variable, states, x, at, room)
                before, total_before = _weigh(slopes, bases, starts[variable], states, betas[k - 1], weights)
                if joint is not None:  # AIS: h·slope, with h from P_{k−1}(h|v)
                    state = _drawn(weights, states, total_before, _word(chain, k - 1, unit, uint64(JOINT), k0, k1))
                    store(drawn, here, load(drawn, here) + widen(_at_state(slopes, states, state)))
                most, total = _weigh(slopes, bases, starts[variable], states, betas[k], weights)
                weight = load(log_weights, here) + widen(most - before)
                top, bottom = load(sums, 2 * here) * total, load(sums, 2 * here + LANES) * total_before
                if unit % _FEW == _FEW - 1 or variable == variables - 1:
                    weight, top, bottom = weight + widen(log(top / bottom)), one, one
                store(log_weights, here, weight)
                store(sums, 2 * here, top)
                store(sums, 2 * here + LANES, bottom)
                state = _drawn(weights, states, total, _word(chain, k, unit, side_h, k0, k1))
                store(x, at + variable * LANES, state)
        if joint is not None:
            for block in range(blocks):
                here = block * LANES
                store(joint, here, load(joint, here) + (load(rises, here) + load(drawn, here)) * difference)
        if k < steps:
            for block in range(blocks):
                store(rises, block * LANES, widen(zero))
            for variable in range(visible):
                states = starts[variable + 1] - starts[variable]
                for block in range(blocks):
                    here, at = block * LANES, block * variables * LANES
                    chain = lane_numbers() + uint64(first_chain + here)
                    _fields(rows, variable, states, x, at, room)
                    _, total = _weigh(slopes, bases, starts[variable], states, betas[k], weights)
                    state = _drawn(weights, states, total, _word(chain, k, variable, side_v, k0, k1))
                    store(x, at + variable * LANES, state)
                    low = _at_state(part, states, state)
                    store(rises, here, load(rises, here) + widen(low))
