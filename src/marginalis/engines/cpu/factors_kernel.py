"""The kernel for factors of spins: fields are sums of products of other spins.

Chains lie side by side in vectors as in `bipartite_kernel`. The states of a block are one array: the sampled units in
the order of the sweep, then the summed-out units, then the number of the component of a mixture. Sampled units are
drawn one after the other; the products of a unit with units before it also give the energy of the new state.

The formulas are those of `reference.loop`.
"""

from __future__ import annotations

from numba import int64, njit, uint64

from ...random import MIXTURE
from ...simd.cache import kernel
from ...simd.draws import CALLED, FLUSH, LOW, TILE, WORD, philox
from ...simd.lookup import gathered
from ...simd.numbers import as_index
from ...simd.vector import LANES, fma, lane_numbers, load, splat, store, widen
from .fields import fields_into, products
from .graph_summed_side import sum_out
from .unit_kinds import draw, draw_state, factor, log_sum


@njit(**CALLED)
def _start(side, base_v, chain, side_v, k0, k1, x, at):
    """Draw the sampled units from the base."""
    for tile in range(len(base_v) // TILE):
        words = philox(chain, uint64(0), uint64(tile), side_v, k0, k1)
        for m in range(TILE):
            unit = TILE * tile + m
            field = splat(base_v[unit])
            store(x, at + unit * LANES, draw(side, unit, field, factor(side, field), words[m]))


@njit(**CALLED)
def _energy(before, slope_v, x, at):
    """Return the slope in β of −E_k at the present states, without the terms in h."""
    total = widen(splat(slope_v[0] - slope_v[0]))
    for unit in range(len(slope_v)):
        total = total + widen(load(x, at + unit * LANES) * products(before, unit, x, at, splat(slope_v[unit])))
    return total


@njit(**CALLED)
def _sweep(side, before, after, into0, slope_v, base_v, beta, k, chain, side_v, k0, k1, x, at):
    """Draw the sampled units one after the other; return the slope in β of −E_k without the terms in h."""
    zero = splat(beta - beta)
    linear, total = zero, widen(zero)
    for tile in range(len(slope_v) // TILE):
        words = philox(chain, uint64(k), uint64(tile), side_v, k0, k1)
        for m in range(TILE):
            unit = TILE * tile + m
            low = products(before, unit, x, at, splat(slope_v[unit]))
            start = splat(base_v[unit])
            if into0 is not None:
                start = products(into0, unit, x, at, start)
            field = fma(products(after, unit, x, at, low), beta, start)
            spin = draw(side, unit, field, factor(side, field), words[m])
            store(x, at + unit * LANES, spin)
            linear = fma(spin, low, linear)
        if tile % FLUSH == FLUSH - 1:
            total, linear = total + widen(linear), zero
    return total + widen(linear)


@njit(**CALLED)
def _own_logit(mixture, x, at):
    """Return the exponent a_z + B_z·v of each chain's component z."""
    component = as_index(load(x, at + mixture.place))
    own = gathered(mixture.own, 0, component)
    linear, total = own - own, widen(own)
    for unit in range(mixture.units):
        field = gathered(mixture.fields, unit * mixture.components, component)
        linear = fma(load(x, at + unit * LANES), field, linear)
        if unit % (TILE * FLUSH) == TILE * FLUSH - 1:
            total, linear = total + widen(linear), own - own
    return total + widen(linear)


@njit(**CALLED)
def _draw_component(end, mixture, beta, k, chain, k0, k1, x, at, scratch):
    """Draw the component of a mixture given all units, if it is drawn at this `end` of a sweep."""
    if end != mixture.last:
        return
    fields_into(mixture.both, x, at, mixture.own, scratch, 0)
    count, at_start = mixture.components, len(mixture.own) * LANES
    for z in range(count):
        logit = load(scratch, z * LANES)
        store(scratch, z * LANES, logit - (logit + logit))
        store(scratch, at_start + z * LANES, logit + mixture.kept[z])
    most, total = log_sum(scratch, 0, 0, count, beta, scratch, at_start)
    word = philox(chain, uint64(k), uint64(0), uint64(MIXTURE), k0, k1)[0]
    draw_state(scratch, 0, 0, count, beta, scratch, at_start, most, total, word, scratch, 0)
    number = most - most
    for z in range(count):
        number = fma(load(scratch, z * LANES), splat(mixture.numbers[z]), number)
    store(x, at + mixture.place, number)


@kernel(plain=True, error_model="numpy")
def anneal_products(
    side, up, up0, before, after, into0, slope_v, slope_h, base_v, base_h, betas, differences, seed, sides, mixture,
    first_chain, x, scratch, rises, log_weights, joint, from_step, to_step, fresh,
):  # fmt: skip
    """Advance blocks of chains from one step of 0 … K to another, as `anneal_graph` does.

    The first line of arguments is a `FactorArguments`.
    """
    steps = len(betas) - 1
    start, end = int64(0), int64(1)
    k0, k1 = seed & LOW, seed >> WORD
    side_v, side_h = uint64(sides[0]), uint64(sides[1])
    for block in range(x.shape[0]):
        chain = lane_numbers() + uint64(first_chain + block * LANES)
        at = block * x.shape[1] * LANES
        at_h = at + len(slope_v) * LANES
        if fresh == 1:
            _start(side, base_v, chain, side_v, k0, k1, x, at)
        if fresh:
            store(rises, block * LANES, _energy(before, slope_v, x, at))
        rise_v, weight = load(rises, block * LANES), load(log_weights, block * LANES)
        for k in range(from_step + 1, to_step + 1):
            difference = differences[k - 1]
            if mixture is not None:  # The fields of the component vanish along the path.
                rise_v = rise_v - _own_logit(mixture, x, at)
            weight, on_joint = sum_out(
                side, up, up0, slope_h, base_h, betas, k, difference, joint, chain, side_h, k0, k1, x, at, at_h,
                scratch, weight + rise_v * difference,
            )  # fmt: skip
            if joint is not None:
                store(joint, block * LANES, load(joint, block * LANES) + (rise_v + on_joint) * difference)
            if k < steps:
                if mixture is not None:
                    _draw_component(start, mixture, betas[k], k, chain, k0, k1, x, at, scratch)
                rise_v = _sweep(side, before, after, into0, slope_v, base_v, betas[k], k, chain, side_v, k0, k1, x, at)
                if mixture is not None:
                    _draw_component(end, mixture, betas[k], k, chain, k0, k1, x, at, scratch)
        store(rises, block * LANES, rise_v)
        store(log_weights, block * LANES, weight)
