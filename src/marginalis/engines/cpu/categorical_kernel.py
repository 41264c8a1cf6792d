"""The kernel for densely coupled categorical variables: fields are sums of rows of the matrix of couplings.

Chains lie side by side in vectors. The state of a variable is a number, and selects a row of couplings into the states
of each neighbour. All chains of a job draw one variable before the next, so that its couplings are read from memory
once for all of them.

The formulas are those of `reference.loop`, and the sums are in the order of `graph_kernel`, which gives the same bits
on paths from one base. The component of a mixture is another variable, stored after the others; its couplings vanish
along the path.
"""

from __future__ import annotations

from numba import njit, uint32, uint64

from ...random import JOINT, MIXTURE
from ...simd.cache import kernel
from ...simd.draws import CALLED, INLINE, LOW, TILE, WORD, philox
from ...simd.functions import exp2_nonpositive, log, select
from ...simd.lookup import row_sums_in_two
from ...simd.numbers import LOG2_E, above, same, share_of
from ...simd.vector import LANES, fma, lane_numbers, load, maximum, scalar, splat, store, widen

_FEW = 4  # Variables per logarithm; the product of their sums stays in the range of float32.


@njit(**CALLED)
def _add_up(rows, variable, states, x, at, places, part, sums):
    """Write the sums of the rows of a variable for all its states, and their part from the rows before `middle`."""
    begin, end = scalar(rows.begin, variable), scalar(rows.begin, variable + 1)
    for p in range(begin, end):
        store(places, (p - begin) * LANES, load(x, at + scalar(rows.places, p)) * scalar(rows.strides, p))
    row_sums_in_two(rows.values, rows.tables, begin, scalar(rows.middle, variable), end, places, states, part, sums, 0)


@njit(**CALLED)
def _fields(component, rows, variable, states, x, at, room):
    """Write the slopes of the fields of all states of a variable, and their part from the variables before it.

    On a path from a mixture, write the fields at β = 0 as well, which depend on the component.
    """
    _add_up(rows, variable, states, x, at, room[0], room[1], room[2])
    if component is not None:
        _add_up(component.bases, variable, states, x, at, room[0], room[3], room[4])


@njit(**INLINE)
def _base(component, bases, state, room, f):
    """Return the field of a state at β = 0."""
    if component is None:
        return splat(bases[state + f])
    return load(room[4], f * LANES)


@njit(**CALLED)
def _weigh(component, room, bases, first, states, beta):
    """Return max and Σ exp(a − max) of a = base + β·slope over the states, and write the exponentials."""
    slopes, weights = room[2], room[3]
    top = fma(load(slopes, 0), beta, _base(component, bases, first, room, 0))
    for f in range(1, states):
        top = maximum(top, fma(load(slopes, f * LANES), beta, _base(component, bases, first, room, f)))
    total = top - top
    for f in range(states):
        a = fma(load(slopes, f * LANES), beta, _base(component, bases, first, room, f))
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


@njit(**CALLED)
def _draw_component(component, bases, end, beta, k, chain, k0, k1, x, at, variables, room):
    """Draw the component of a mixture given all other variables, if it is drawn at this `end` of a sweep."""
    if end != component.last:
        return
    _add_up(component.exponents, 0, component.components, x, at, room[0], room[1], room[2])
    for z in range(component.components):
        logit = load(room[2], z * LANES)
        store(room[4], z * LANES, logit + component.kept[z])
        store(room[2], z * LANES, logit * -1.0)
    _, total = _weigh(component, room, bases, 0, component.components, beta)
    word = _word(chain, k, 0, uint64(MIXTURE), k0, k1)
    store(x, at + variables * LANES, _drawn(room[3], component.components, total, word))


@kernel(plain=True, error_model="numpy")
def anneal_categorical(
    starts, visible, rows, bases, betas, differences, seed, sides, component,
    first_chain, x, room, sums, rises, log_weights, joint, drawn, from_step, to_step, fresh,
):  # fmt: skip
    """Advance blocks of chains from one step of 0 … K to another, as `anneal_graph` does.

    The first line of arguments is a `CategoricalArguments`. `room` is workspace for one block: the positions of rows,
    the part of the slopes from earlier variables, the slopes of the fields, exponentials, and the fields at β = 0 of a
    path from a mixture. `sums` has two products for each
    block, whose quotient enters the weight as a logarithm, and `drawn` the sum of h·slope for the weights of AIS.
    """
    steps = len(betas) - 1
    k0, k1 = seed & LOW, seed >> WORD
    side_v, side_h = uint64(sides[0]), uint64(sides[1])
    variables, blocks, places = len(starts) - 1, x.shape[0], x.shape[1]
    part, slopes, weights = room[1], room[2], room[3]
    zero = splat(betas[0] - betas[0])
    one = zero + 1.0
    if fresh == 1:
        for f in range(len(slopes)):
            store(slopes, f * LANES, zero)
        for variable in range(visible):
            states = starts[variable + 1] - starts[variable]
            for block in range(blocks):
                chain = lane_numbers() + uint64(first_chain + block * LANES)
                _, total = _weigh(component, room, bases, starts[variable], states, betas[0])
                state = _drawn(weights, states, total, _word(chain, 0, variable, side_v, k0, k1))
                store(x, (block * places + variable) * LANES, state)
    if fresh:
        for block in range(blocks):
            store(rises, block * LANES, widen(zero))
        for variable in range(visible):
            states = starts[variable + 1] - starts[variable]
            for block in range(blocks):
                at = block * places * LANES
                _fields(component, rows, variable, states, x, at, room)
                low = _at_state(part, states, load(x, at + variable * LANES))
                store(rises, block * LANES, load(rises, block * LANES) + widen(low))
    for k in range(from_step + 1, to_step + 1):
        difference = differences[k - 1]
        for block in range(blocks):
            here = block * LANES
            if component is not None:  # The couplings between the component and v vanish along the path.
                at = block * places * LANES
                _add_up(component.exponents, 0, component.components, x, at, room[0], part, slopes)
                logit = _at_state(part, component.components, load(x, at + variables * LANES))
                store(rises, here, load(rises, here) - widen(logit))
            store(log_weights, here, load(log_weights, here) + load(rises, here) * difference)
            if joint is not None:
                store(drawn, here, widen(zero))
            store(sums, 2 * here, one)
            store(sums, 2 * here + LANES, one)
        for variable in range(visible, variables):
            unit, states = variable - visible, starts[variable + 1] - starts[variable]
            for block in range(blocks):
                here, at = block * LANES, block * places * LANES
                chain = lane_numbers() + uint64(first_chain + here)
                _fields(component, rows, variable, states, x, at, room)
                before, total_before = _weigh(component, room, bases, starts[variable], states, betas[k - 1])
                if joint is not None:  # AIS: h·slope, with h from P_{k−1}(h|v)
                    state = _drawn(weights, states, total_before, _word(chain, k - 1, unit, uint64(JOINT), k0, k1))
                    store(drawn, here, load(drawn, here) + widen(_at_state(slopes, states, state)))
                most, total = _weigh(component, room, bases, starts[variable], states, betas[k])
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
                here, at = block * LANES, block * places * LANES
                store(rises, here, widen(zero))
                if component is not None:
                    chain = lane_numbers() + uint64(first_chain + here)
                    _draw_component(component, bases, 0, betas[k], k, chain, k0, k1, x, at, variables, room)
            for variable in range(visible):
                states = starts[variable + 1] - starts[variable]
                for block in range(blocks):
                    here, at = block * LANES, block * places * LANES
                    chain = lane_numbers() + uint64(first_chain + here)
                    _fields(component, rows, variable, states, x, at, room)
                    _, total = _weigh(component, room, bases, starts[variable], states, betas[k])
                    state = _drawn(weights, states, total, _word(chain, k, variable, side_v, k0, k1))
                    store(x, at + variable * LANES, state)
                    low = _at_state(part, states, state)
                    store(rises, here, load(rises, here) + widen(low))
            if component is not None:
                for block in range(blocks):
                    here, at = block * LANES, block * places * LANES
                    chain = lane_numbers() + uint64(first_chain + here)
                    _draw_component(component, bases, 1, betas[k], k, chain, k0, k1, x, at, variables, room)
