"""The structure of a model that the exact methods use: its lattice, its layers and its factors.

The layout of a model may come from an untrusted file. Each function therefore checks the layout against the couplings
and returns None if they do not match.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..models.forms import Grid, Indices, Layers, Natural, SpinForm
from ..models.model import MRF
from ..models.units import Array
from .ordering import elimination_order

# Largest mean number of neighbours for elimination, by whether the graph is bipartite.
_MOST_NEIGHBOURS = {True: 16, False: 32}
_SMALL = 64  # Up to this many variables, the number of neighbours on a graph that is not bipartite is not limited.
# Most variables of a graph with many cycles, and of a connected part if there are more.
_LARGE, _SMALL_PART = 20_000, 1000


class GridArrays(NamedTuple):
    """A two-dimensional Ising lattice: fields and couplings on the sites, in natural parameters, as in `ising_grid`.

    `diagonal` holds the diagonal couplings of a triangular lattice, or is None if all of them are zero.
    """

    field: Array
    horizontal: Array
    vertical: Array
    periodic: tuple[bool, bool]
    diagonal: Array | None


def grid_arrays(model: MRF) -> GridArrays | None:
    """Return the arrays of a two-dimensional lattice of two-state units, or None if the model is none."""
    form, layout = model.spin_form, model.layout
    if form is None or not isinstance(layout, Grid) or len(layout.shape) != 2:
        return None
    if len(layout.periodic) != 2 or min(layout.shape) < 1 or math.prod(layout.shape) != model.n_variables:
        return None
    found = placed_on_grid(layout, *spin_bonds(model, form))
    if found is None:
        return None
    horizontal, vertical, diagonal = found
    field = spin_fields(model, form).reshape(layout.shape)
    periodic = layout.periodic[0], layout.periodic[1]
    return GridArrays(field, horizontal, vertical, periodic, diagonal if diagonal.any() else None)


def placed_on_grid(layout: Grid, a: Indices, b: Indices, data: Array) -> tuple[Array, Array, Array] | None:
    """Return couplings of sites a and b as arrays along rows, columns and diagonals, or None if one does not fit."""
    rows, columns = layout.shape
    (ra, ca), (rb, cb) = np.divmod(a, columns), np.divmod(b, columns)
    horizontal, vertical, diagonal = (np.zeros(layout.shape) for _ in range(3))
    placed = np.zeros(len(a), dtype=bool)
    for r1, c1, r2, c2 in ((ra, ca, rb, cb), (rb, cb, ra, ca)):
        below = (r2 == (r1 + 1) % rows) & (layout.periodic[0] | (r2 > r1))
        beside = (c2 == (c1 + 1) % columns) & (layout.periodic[1] | (c2 > c1))
        for bonds, here in (
            (horizontal, (r1 == r2) & beside),
            (vertical, (c1 == c2) & below),
            (diagonal, layout.triangular & below & beside),
        ):
            fresh = here & ~placed
            np.add.at(bonds, (r1[fresh], c1[fresh]), data[fresh])
            placed |= fresh
    return (horizontal, vertical, diagonal) if placed[data != 0].all() else None


def spin_fields(model: MRF, form: Natural | SpinForm) -> Array:
    """Return the field of each one-feature variable in the caller's order."""
    field = np.empty(model.n_variables)
    field[model.split.visible], field[model.split.hidden] = form.visible_bias, form.hidden_bias
    return field


def spin_bonds(model: MRF, form: Natural | SpinForm) -> tuple[Indices, Indices, Array]:
    """Return the two ends, in the caller's numbering, and the value of each coupling of one-feature variables."""
    w = sp.coo_array(form.weights)
    a, b, data = model.split.visible[w.coords[0]], model.split.hidden[w.coords[1]], w.data
    if form.lateral is None:
        return a, b, data
    among = sp.coo_array(sp.triu(sp.coo_array(form.lateral)))
    i, j = (model.split.visible[x] for x in among.coords)
    return np.concatenate([a, i]), np.concatenate([b, j]), np.concatenate([data, among.data])


def layer_arrays(model: MRF, form: Natural | SpinForm | None = None) -> tuple[list[Array], list[Array]] | None:
    """Return the weights and biases of the layers, in spins or in another `form`, or None if there are no layers."""
    form, layout = form or model.spin_form, model.layout
    if form is None or not isinstance(layout, Layers) or sum(layout.sizes) != model.n_variables:
        return None
    if min(layout.sizes) < 1:
        return None
    field = spin_fields(model, form)
    ends = np.cumsum(layout.sizes)
    biases = np.split(field, ends[:-1])
    a, b, data = spin_bonds(model, form)
    low, high = np.minimum(a, b), np.maximum(a, b)
    layer = np.searchsorted(ends, low, side="right")
    above = np.searchsorted(ends, high, side="right")
    if (above != layer + 1)[data != 0].any():
        return None
    weights = []
    for i in range(len(ends) - 1):
        block = np.zeros((layout.sizes[i], layout.sizes[i + 1]))
        at = layer == i
        block[low[at] - (ends[i] - layout.sizes[i]), high[at] - ends[i]] = data[at]
        weights.append(block)
    return weights, biases


class Factors(NamedTuple):
    """A discrete pair model: ln weight = Σ_i unary[i][x_i] + Σ_e tables[e][x_i, x_j]."""

    cards: list[int]
    unary: list[Array]
    edges: list[tuple[int, int]]
    tables: list[Array]


def factors(model: MRF) -> Factors | None:
    """Return the one- and two-variable functions of a discrete model; visible variables first."""
    natural = model.natural
    v = DiscreteSide.of(natural.visible_units, len(natural.visible_bias))
    h = DiscreteSide.of(natural.hidden_units, len(natural.hidden_bias))
    if v is None or h is None:
        return None
    n = len(v.cards)
    unary = v.unary(natural.visible_bias) + h.unary(natural.hidden_bias)
    edges, tables = [], []
    for i, j, table in _pair_tables(natural.weights, v, h):
        edges.append((i, j + n))
        tables.append(table)
    if natural.lateral is not None:
        for i, j, table in _pair_tables(natural.lateral, v, v):
            if i < j:
                edges.append((i, j))
                tables.append(table)
    return Factors([*v.cards, *h.cards], unary, edges, tables)


def _pair_tables(couplings: Any, v: DiscreteSide, h: DiscreteSide) -> Iterator[tuple[int, int, Array]]:
    """Yield each pair of coupled variables of two sides, and their coupling as a function of the two states."""
    w = sp.coo_array(couplings)
    row, column = w.coords
    order = np.lexsort((h.owners[column], v.owners[row]))
    order = order[w.data[order] != 0]
    row, column, data = row[order], column[order], w.data[order]
    pair = np.stack([v.owners[row], h.owners[column]], axis=1)
    new = np.flatnonzero(np.any(np.diff(pair, axis=0, prepend=-1), axis=1))
    for begin, end in itertools.pairwise([*new.tolist(), len(data)]):
        i, j = pair[begin].tolist()
        block = np.zeros((v.starts[i + 1] - v.starts[i], h.starts[j + 1] - h.starts[j]))
        block[row[begin:end] - v.starts[i], column[begin:end] - h.starts[j]] = data[begin:end]
        yield i, j, h.by_state(v.by_state(block).T).T


def ordered_factors(model: MRF, *, stop_above: float = 40.0) -> tuple[Factors, list[int], float] | None:
    """Return the factors of a model with the order and width found by `elimination_order`.

    The result is None if a side is not discrete or if a search for an order is not worthwhile.
    """
    # On a dense graph a search for an order is not worthwhile: enumerating the smaller side of a bipartite graph is as
    # cheap, and other dense graphs must be small. On a large graph with many cycles, unless it consists of small parts,
    # the search would take long and find nothing.
    n, edges = model.n_variables, model.n_edges
    dense = edges > _MOST_NEIGHBOURS[model.is_bipartite] / 2 * n and (model.is_bipartite or n > _SMALL)
    if dense or (n > _LARGE and edges - n > 0.1 * n and _largest_part(model) > _SMALL_PART):
        return None
    parts = factors(model)
    if parts is None:
        return None
    return parts, *elimination_order(len(parts.cards), parts.edges, parts.cards, stop_above=stop_above)


def _largest_part(model: MRF) -> int:
    visible, hidden, count = model.connected_parts
    return int((np.bincount(visible, minlength=count) + np.bincount(hidden, minlength=count)).max())


class DiscreteSide(NamedTuple):
    """The states of the variables of a discrete side, and their features."""

    owners: Any  # The variable of each feature.
    starts: Any  # The first feature of each variable.
    cards: list[int]  # The number of states of each variable.
    values: Array | None  # The value of the single feature in each state, or None for one-hot features.

    @classmethod
    def of(cls, units: Any, features: int) -> DiscreteSide | None:
        """Return the states of a side of this many features, or None if it is not discrete."""
        if not units.is_discrete:
            return None
        owners = units.owners(features)
        counts = np.bincount(owners)
        starts = np.append(0, np.cumsum(counts))
        if units.values is not None:
            return cls(owners, starts, [2] * features, np.array(units.values)[:, None])
        return cls(owners, starts, counts.tolist(), None)

    def features(self, states: Indices) -> Array:
        """Return rows of features for rows of states, one state per variable."""
        if self.values is not None:
            return self.values[states, 0]
        one_hot = np.zeros((len(states), int(self.starts[-1])))
        np.put_along_axis(one_hot, self.starts[:-1] + states, 1.0, axis=1)
        return one_hot

    def numbered(self, states: Indices) -> Array:
        """Return rows of features of the states with these numbers; the last variable changes fastest."""
        digits = np.unravel_index(states, (1, *self.cards))  # The leading 1 gives a side without variables one state.
        return self.features(np.stack(digits, axis=1)[:, 1:])

    def by_state(self, by_feature: Array) -> Array:
        """Convert rows indexed by feature of one variable to rows indexed by state."""
        return by_feature if self.values is None else self.values @ by_feature

    def unary(self, bias: Array) -> list[Array]:
        """Return the function of each variable given by its biases."""
        ends = zip(self.starts[:-1], self.starts[1:], strict=True)
        return [self.by_state(bias[a:b]) for a, b in ends]
