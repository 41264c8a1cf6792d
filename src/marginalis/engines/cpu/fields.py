"""Fields of four units at a time: start + Σ weight·state over their inputs, or over products of inputs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload

from ...simd.draws import CALLED, INLINE, TILE
from ...simd.lookup import gathered
from ...simd.numbers import as_index
from ...simd.vector import LANES, fma, load, scalar, splat, store


class Products(NamedTuple):
    """Products of units that add to fields: for each field its single units, its pairs, and its longer products.

    `ones`, `twos` and `more` are where the products of each field begin; the places of units are those of their chains.
    """

    ones: np.ndarray
    one_places: np.ndarray
    one_couplings: np.ndarray
    twos: np.ndarray
    two_places: np.ndarray  # [product, 2], flat.
    two_couplings: np.ndarray
    more: np.ndarray
    more_begin: np.ndarray  # Where the units of each longer product begin.
    more_places: np.ndarray
    more_couplings: np.ndarray


class Pulled(NamedTuple):
    """Fields from the component of a mixture, and from products of units, if there are any.

    The number of each chain's component is stored like a unit.
    """

    products: Products | None
    values: np.ndarray  # [unit, component], flat.
    components: int
    place: int  # Where the component is stored.


@njit(**INLINE)
def four(values, tile):
    """Return the values of the four units of a tile, each in every lane."""
    return (
        splat(values[TILE * tile]),
        splat(values[TILE * tile + 1]),
        splat(values[TILE * tile + 2]),
        splat(values[TILE * tile + 3]),
    )


def fields(coupling, state, offset, tile, start):
    """Return the fields of the four units of a tile: start + Σ weight·state of their inputs."""
    raise NotImplementedError


@overload(fields, jit_options=INLINE)
def _fields_overload(coupling, state, offset, tile, start):
    if getattr(coupling, "instance_class", None) in (Products, Pulled):
        return _fields_products
    return _fields_lists if len(coupling) == 3 else _fields_band


def _fields_band(coupling, state, offset, tile, start):
    # The inputs of a tile are a range of units: all of the other side in an RBM, the two neighbouring layers in a
    # DBM. Weights lie in the order of use: [tile][input][unit in tile].
    data, first, last, begin = coupling
    a0, a1, a2, a3 = start
    p = begin[tile]
    for i in range(first[tile], last[tile]):
        x = load(state, offset + i * LANES)
        a0 = fma(scalar(data, p), x, a0)
        a1 = fma(scalar(data, p + 1), x, a1)
        a2 = fma(scalar(data, p + 2), x, a2)
        a3 = fma(scalar(data, p + 3), x, a3)
        p += TILE
    return a0, a1, a2, a3


def _fields_lists(coupling, state, offset, tile, start):
    unit = TILE * tile
    return (
        row(coupling, state, offset, unit, start[0]),
        row(coupling, state, offset, unit + 1, start[1]),
        row(coupling, state, offset, unit + 2, start[2]),
        row(coupling, state, offset, unit + 3, start[3]),
    )


def _fields_products(coupling, state, offset, tile, start):
    unit = TILE * tile
    return (
        products(coupling, unit, state, offset, start[0]),
        products(coupling, unit + 1, state, offset, start[1]),
        products(coupling, unit + 2, state, offset, start[2]),
        products(coupling, unit + 3, state, offset, start[3]),
    )


def products(coupling, unit, state, offset, start):
    """Return the field of one unit, from products of other units."""
    raise NotImplementedError


@overload(products, jit_options=INLINE)
def _products_overload(coupling, unit, state, offset, start):
    if isinstance(coupling, types.NoneType):
        return lambda coupling, unit, state, offset, start: start
    return _pulled if coupling.instance_class is Pulled else _products


def _pulled(coupling, unit, state, offset, start):
    component = as_index(load(state, offset + coupling.place))
    field = gathered(coupling.values, unit * coupling.components, component)
    return products(coupling.products, unit, state, offset, start + field)


def _products(coupling, unit, state, offset, start):
    a = start
    for p in range(scalar(coupling.ones, unit), scalar(coupling.ones, unit + 1)):
        a = fma(scalar(coupling.one_couplings, p), load(state, offset + scalar(coupling.one_places, p)), a)
    for p in range(scalar(coupling.twos, unit), scalar(coupling.twos, unit + 1)):
        x = load(state, offset + scalar(coupling.two_places, 2 * p))
        y = load(state, offset + scalar(coupling.two_places, 2 * p + 1))
        a = fma(scalar(coupling.two_couplings, p), x * y, a)
    for p in range(scalar(coupling.more, unit), scalar(coupling.more, unit + 1)):
        first = scalar(coupling.more_begin, p)
        x = load(state, offset + scalar(coupling.more_places, first))
        for q in range(first + 1, scalar(coupling.more_begin, p + 1)):
            x = x * load(state, offset + scalar(coupling.more_places, q))
        a = fma(scalar(coupling.more_couplings, p), x, a)
    return a


def fields_into(coupling, state, offset, starts, out, at):
    """Write the fields of all units, starts + Σ weight·state of their inputs, to `out` from position `at`."""
    raise NotImplementedError


@overload(fields_into, jit_options=CALLED)
def _fields_into_overload(coupling, state, offset, starts, out, at):
    is_band = len(coupling) == 4 and getattr(coupling, "instance_class", None) is not Pulled
    return _bands_into if is_band else _tiles_into


def _tiles_into(coupling, state, offset, starts, out, at):
    for tile in range(len(starts) // TILE):
        _put(fields(coupling, state, offset, tile, four(starts, tile)), out, at, tile)


def _bands_into(coupling, state, offset, starts, out, at):
    # Two tiles with the same inputs are processed at once: a core needs eight independent multiply-adds in flight.
    data, first, last, begin = coupling
    tiles = len(starts) // TILE
    tile = 0
    while tile < tiles:
        if tile + 1 < tiles and first[tile] == first[tile + 1] and last[tile] == last[tile + 1]:
            a0, a1, a2, a3 = four(starts, tile)
            b0, b1, b2, b3 = four(starts, tile + 1)
            p, q = begin[tile], begin[tile + 1]
            for i in range(first[tile], last[tile]):
                x = load(state, offset + i * LANES)
                a0, a1 = fma(scalar(data, p), x, a0), fma(scalar(data, p + 1), x, a1)
                a2, a3 = fma(scalar(data, p + 2), x, a2), fma(scalar(data, p + 3), x, a3)
                b0, b1 = fma(scalar(data, q), x, b0), fma(scalar(data, q + 1), x, b1)
                b2, b3 = fma(scalar(data, q + 2), x, b2), fma(scalar(data, q + 3), x, b3)
                p += TILE
                q += TILE
            _put((a0, a1, a2, a3), out, at, tile)
            _put((b0, b1, b2, b3), out, at, tile + 1)
            tile += 2
        else:
            _put(fields(coupling, state, offset, tile, four(starts, tile)), out, at, tile)
            tile += 1


@njit(**INLINE)
def _put(values, out, at, tile):
    here = at + TILE * tile * LANES
    store(out, here, values[0])
    store(out, here + LANES, values[1])
    store(out, here + 2 * LANES, values[2])
    store(out, here + 3 * LANES, values[3])


@njit(**INLINE)
def row(coupling, state, offset, unit, start):
    """Return the field of one unit, from a list of its neighbours."""
    indptr, indices, data = coupling
    a = start
    for p in range(indptr[unit], indptr[unit + 1]):
        a = fma(scalar(data, p), load(state, offset + scalar(indices, p) * LANES), a)
    return a


@njit(**INLINE)
def band_pair(coupling, state, at, tile, start_a, start_b):
    """Return the fields of a tile in two blocks of chains, from a band; every weight is read once for both."""
    data, first, last, begin = coupling
    a0, a1, a2, a3 = start_a
    b0, b1, b2, b3 = start_b
    p = begin[tile]
    for i in range(first[tile], last[tile]):
        x, y = load(state, at[0] + i * LANES), load(state, at[1] + i * LANES)
        w0, w1, w2, w3 = scalar(data, p), scalar(data, p + 1), scalar(data, p + 2), scalar(data, p + 3)
        a0, b0 = fma(w0, x, a0), fma(w0, y, b0)
        a1, b1 = fma(w1, x, a1), fma(w1, y, b1)
        a2, b2 = fma(w2, x, a2), fma(w2, y, b2)
        a3, b3 = fma(w3, x, a3), fma(w3, y, b3)
        p += TILE
    return (a0, a1, a2, a3), (b0, b1, b2, b3)


@njit(**INLINE)
def fields_or(coupling, x, at, tile, start):
    """Return the fields of a tile, which are `start` if there is no coupling."""
    if coupling is None:
        return start
    return fields(coupling, x, at, tile, start)
