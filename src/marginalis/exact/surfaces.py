"""Recognition of Ising models on a sphere or a torus: lattices, and planar graphs with fields along one face."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..models.forms import Grid, Indices
from ..models.model import MRF
from ..models.units import Array
from .bond_means import bond_means
from .embedding import Drawing, grid_drawing, planar_drawing
from .pfaffian import pfaffian_log_z, pfaffian_seconds
from .structure import placed_on_grid, spin_bonds, spin_fields

_MOST_SITES = 1 << 18  # Most sites of a lattice.
_DIFFERENCES = 4  # Number of different index distances of neighbours: along and down, each also around the lattice.
_STRONGEST = 80.0  # Strongest coupling; with stronger ones, products of a few walls are too small for doubles.
_SHORTEST = 5  # Shortest side of a torus recognised in any numbering; on shorter ones not all squares are faces.

_cached_grid = lru_cache(maxsize=4)(grid_drawing)


@lru_cache(maxsize=4)
def _cached_planar(n: int, edges: bytes) -> Drawing | None:
    return planar_drawing(n, np.frombuffer(edges, dtype=np.int64).reshape(-1, 2))


class Surface(NamedTuple):
    """An Ising model without fields on a sphere or a torus; its ln Z is that of the model plus `extra`."""

    name: str
    seconds: float
    couplings: Array
    grid: Grid | None  # A lattice is drawn only when it is summed.
    drawing: Drawing | None
    site: Indices | None = None  # The site of each variable, if variables are not numbered like sites.
    extra: float = 0.0

    def log_z(self) -> float:
        """Return ln Z of the model."""
        return pfaffian_log_z(self._drawn(), self.couplings) - self.extra

    def products(self, pairs: Indices) -> Array:
        """Return ⟨s_i s_j⟩ for pairs of coupled variables of a model without fields."""
        drawing = self._drawn()
        ends = np.sort(drawing.edges[: len(self.couplings)], axis=1)
        wanted = np.sort(pairs if self.site is None else self.site[pairs], axis=1)
        n = int(ends.max()) + 1
        keys = ends[:, 0] * n + ends[:, 1]
        order = np.argsort(keys)
        place = np.searchsorted(keys[order], wanted[:, 0] * n + wanted[:, 1])
        return bond_means(drawing, self.couplings)[order[place]]

    def _drawn(self) -> Drawing:
        if self.grid is not None:
            return _cached_grid(self.grid.shape, self.grid.periodic, self.grid.triangular)
        assert self.drawing is not None
        return self.drawing


def lattice_of(model: MRF) -> Surface | None:
    """Return the lattice without fields that a model of two-state units is equivalent to, or None.

    A square lattice needs no layout if its sites are numbered row by row, or if it is a torus with all bonds.
    """
    form, n = model.spin_form, model.n_variables
    if form is None or not is_sparse_enough(model) or spin_fields(model, form).any():
        return None
    a, b, j = spin_bonds(model, form)
    for grid, site in _lattices(model.layout, n, a, b):
        found = placed_on_grid(grid, site[a], site[b], j)
        if found is not None and max(float(np.abs(x).max()) for x in found) <= _STRONGEST:
            return _lattice(grid, found, site)
    return None


def planar_of(model: MRF) -> Surface | None:
    """Return the planar graph that a model of two-state units is equivalent to, or None.

    A field is a coupling to one additional spin. The graph stays planar with this spin if all fields are along one
    face.
    """
    form, n = model.spin_form, model.n_variables
    if form is None or not is_sparse_enough(model):
        return None
    a, b, j = spin_bonds(model, form)
    fields = spin_fields(model, form)
    used, ends = j != 0, np.flatnonzero(fields)
    a, b, j = a[used], b[used], j[used]
    if len(ends):
        a, b, j = (
            np.concatenate([a, ends]),
            np.concatenate([b, np.full(len(ends), n)]),
            np.concatenate([j, fields[ends]]),
        )
        n += 1
    if len(j) and np.abs(j).max() > _STRONGEST:
        return None
    edges = np.ascontiguousarray(np.stack([a, b], axis=1), dtype=np.int64)
    drawing = _cached_planar(n, edges.tobytes())
    if drawing is None:
        return None
    seconds = pfaffian_seconds(n, math.isqrt(n))
    extra = math.log(2.0) if len(ends) else 0.0
    return Surface(f"a planar graph of {n} spins", seconds, j, None, drawing, extra=extra)


def is_sparse_enough(model: MRF) -> bool:
    """Whether a graph has few enough edges to be drawn on a sphere or a torus."""
    among = 0 if model.lateral is None else _entries(model.lateral) // 2
    return 1 < model.n_variables <= _MOST_SITES and _entries(model.weights) + among <= 3 * model.n_variables


def _entries(couplings: Any) -> int:
    return couplings.nnz if sp.issparse(couplings) else int(np.count_nonzero(couplings))


def _lattice(grid: Grid, arrays: tuple[Array, Array, Array], site: Indices) -> Surface:
    """Return a lattice with couplings along its rows, its columns and its diagonals."""
    horizontal, vertical, diagonal = arrays
    triangular = bool(diagonal.any())
    wraps = [wrap and side > 1 for wrap, side in zip(grid.periodic, grid.shape, strict=True)]
    if not triangular:  # Two parallel bonds act as one, which does not wind around the lattice.
        if wraps[0] and grid.shape[0] == 2:
            vertical, wraps[0] = vertical.sum(axis=0, keepdims=True).repeat(2, axis=0), False
        if wraps[1] and grid.shape[1] == 2:
            horizontal, wraps[1] = horizontal.sum(axis=1, keepdims=True).repeat(2, axis=1), False
    rows, columns = grid.shape
    grid = Grid((rows, columns), (wraps[0], wraps[1]), triangular)
    down, right = (slice(None) if wrap else slice(-1) for wrap in wraps)
    parts = [horizontal[:, right], vertical[down]]
    if triangular:
        parts.append(diagonal[down, right])
    name = "a torus" if all(wraps) else "a cylinder" if any(wraps) else "a rectangle"
    seconds = (1 + triangular) * pfaffian_seconds(rows * columns, min(grid.shape))
    return Surface(
        f"{name} of {rows} x {columns} spins", seconds, np.concatenate([x.ravel() for x in parts]), grid, None, site
    )


def _lattices(layout: object, n: int, a: Indices, b: Indices) -> list[tuple[Grid, Indices]]:
    """Return candidate lattices for a graph, each with the site of every variable."""
    rowwise = np.arange(n)
    if isinstance(layout, Grid):
        fits = len(layout.shape) == len(layout.periodic) == 2 and math.prod(layout.shape) == n
        return [(layout, rowwise)] if fits else []
    by_number = [(Grid((n // c, c), (True, True)), rowwise) for c in _columns(n, a, b)]
    torus = _torus(n, a, b)
    return by_number if torus is None else [*by_number, torus]


def _columns(n: int, a: Indices, b: Indices) -> list[int]:
    """Return the possible numbers of columns of a square lattice whose sites are numbered row by row."""
    differences = np.abs(a - b)
    if len(np.unique(differences[:1000])) > _DIFFERENCES:
        return []
    found = np.unique(differences)
    if len(found) > _DIFFERENCES:
        return []
    return [c for c in found.tolist() if 2 < c < n and n % c == 0]


def _torus(n: int, a: Indices, b: Indices) -> tuple[Grid, Indices] | None:
    """Return the torus that a graph in any numbering is, or None; all bonds must exist, and sides have at least five.

    Two neighbours of a site have another common neighbour, the fourth corner of a square, unless they are opposite.
    This allows a straight walk: first around the torus, then along the side of that walk.
    """
    degree = np.bincount(np.concatenate([a, b]), minlength=n)
    if len(a) != 2 * n or n < _SHORTEST**2 or (degree != 4).any():
        return None
    both = np.concatenate([np.stack([a, b]), np.stack([b, a])], axis=1)
    around = both[1][np.argsort(both[0], kind="stable")].reshape(n, 4).tolist()

    def corners(v: int, u: int, w: int) -> list[int]:
        return [x for x in around[u] if x != v and x in around[w]]

    def round_from(first: int, second: int) -> list[int] | None:
        walk = [first, second]
        while True:
            last, here = walk[-2:]
            ahead = [x for x in around[here] if x != last and not corners(here, last, x)]
            if len(ahead) != 1 or len(walk) > n:
                return None
            if ahead[0] == first:
                return walk
            walk.append(ahead[0])

    row = round_from(0, around[0][0])
    beside = [x for x in around[0] if row is not None and x not in row]
    column = round_from(0, beside[0]) if beside else None
    if row is None or column is None or len(row) * len(column) != n or min(len(row), len(column)) < _SHORTEST:
        return None
    rows = [row]
    for start in column[1:]:
        above, line = rows[-1], [start]
        for k in range(1, len(row)):
            corner = [x for x in corners(above[k - 1], above[k], line[-1]) if x != above[k - 1]]
            if len(corner) != 1:
                return None
            line.append(corner[0])
        rows.append(line)
    places = np.array(rows).ravel()
    if len(np.unique(places)) < n:
        return None
    site = np.empty(n, dtype=np.int64)
    site[places] = np.arange(n)
    return Grid((len(rows), len(row)), (True, True)), site
