"""Rectangular lattices in any number of dimensions: black sites against white ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..checks import check_room, plain_array, real_array, shown, whole
from .graphs import potts_model, spread
from .model import MRF, Grid, Indices, Split
from .units import SPIN, Array


def ising_grid(
    shape: Sequence[int],
    *,
    coupling: ArrayLike | Sequence[ArrayLike] = 1.0,
    field: ArrayLike = 0.0,
    periodic: bool | Sequence[bool] = False,
    temperature: float = 1.0,
) -> MRF:
    """Ising model on a rectangular lattice: E = −(Σ_i field_i s_i + Σ_bonds coupling s_i s_j)/T.

    Sites are numbered row-major. `coupling` is one number, or one array per direction, the last axis first:
    in two dimensions (horizontal, vertical), where horizontal[r, c] joins (r, c)–(r, c+1) and vertical[r, c]
    joins (r, c)–(r+1, c); entries that wrap around are used only where `periodic` (one flag, or one per
    axis). A periodic side of length 2 has two bonds between its sites. `field` is one number or one per site.
    """
    grid = _grid(shape, periodic)
    b = spread(field, grid.shape, "field").ravel()
    split, position = _checkerboard(grid)
    rows, columns, data = [], [], []
    odd = _parity(grid).ravel()
    for here, there, j in zip(*_bonds(grid), _couplings(grid, coupling), strict=True):
        flipped = odd[here]
        from_, to = position[here], position[there]
        rows.append(np.where(flipped, to, from_))
        columns.append(np.where(flipped, from_, to))
        data.append(j.ravel()[here])
    at = np.concatenate(rows), np.concatenate(columns)
    weights = sp.csr_array((np.concatenate(data), at), shape=(len(split.visible), len(split.hidden)))
    return MRF(weights, b[split.visible], b[split.hidden], SPIN, SPIN, temperature, split=split, layout=grid)


def potts_grid(
    shape: Sequence[int],
    q: int,
    *,
    coupling: ArrayLike | Sequence[ArrayLike] = 1.0,
    field: ArrayLike = 0.0,
    periodic: bool | Sequence[bool] = False,
    temperature: float = 1.0,
) -> MRF:
    """Potts model with q states on a rectangular lattice; coupling and numbering as in `ising_grid`.

    E = −(Σ_i field[i, x_i] + Σ_bonds coupling δ(x_i, x_j))/T; `field` is one number, (q,), or (sites, q).
    """
    grid = _grid(shape, periodic)
    here, there = _bonds(grid)
    j = [x.ravel()[a] for x, a in zip(_couplings(grid, coupling), here, strict=True)]
    pairs = np.stack([np.concatenate(here), np.concatenate(there)], axis=1)
    colour = _parity(grid).ravel().astype(np.int64)
    return potts_model(pairs, colour, q, np.concatenate(j), field, temperature)


def _grid(shape: Sequence[int], periodic: bool | Sequence[bool]) -> Grid:
    try:
        sides = tuple(whole(n, "shape", 1, 2**31) for n in shape)
    except TypeError:
        raise ValueError(f"shape is {shown(shape)}; it must list the sides, as in (8, 8)") from None
    if not 1 <= len(sides) <= 32:
        raise ValueError(f"shape has {len(sides)} sides; it must list 1 to 32 of them, as in (8, 8)")
    check_room(60 * (1 + len(sides)) * math.prod(sides), "shape", sides)
    given = plain_array(periodic, "periodic")
    flags = list(given.ravel()) * (len(sides) if given.ndim == 0 else 1)
    if not all(isinstance(p, bool | np.bool_) for p in flags):
        raise ValueError(f"periodic is {shown(periodic)}; it must be True, False, or one of them per axis")
    wraps = tuple(bool(p) for p in flags)
    if len(wraps) != len(sides):
        raise ValueError(f"periodic has {len(wraps)} flags for {len(sides)} axes")
    for axis, (n, wrap) in enumerate(zip(sides, wraps, strict=True)):
        if wrap and n % 2:
            raise ValueError(f"the grid is not bipartite: its periodic axis {axis} has odd length {n}, an odd cycle")
    return Grid(sides, wraps)


def _parity(grid: Grid) -> np.ndarray:
    """Sum of the coordinates modulo 2, as bools on the grid."""
    parity = np.zeros((1,) * len(grid.shape), dtype=bool)
    for axis, n in enumerate(grid.shape):
        line = np.arange(n) % 2 == 1
        parity = parity ^ line.reshape([-1 if a == axis else 1 for a in range(len(grid.shape))])
    return np.broadcast_to(parity, grid.shape)


def _checkerboard(grid: Grid) -> tuple[Split, Indices]:
    """Black sites visible, white sites hidden; and each site's position within its side."""
    odd = _parity(grid).ravel()
    split = Split(np.flatnonzero(~odd), np.flatnonzero(odd))
    position: Indices = np.empty(odd.size, dtype=_index_type(grid))
    position[split.visible] = np.arange(len(split.visible))
    position[split.hidden] = np.arange(len(split.hidden))
    return split, position


def _index_type(grid: Grid) -> Any:
    """Half the memory where the sites can be numbered in 32 bits."""
    return np.int32 if math.prod(grid.shape) < 2**31 else np.int64


def _bonds(grid: Grid) -> tuple[list[Indices], list[Indices]]:
    """For each axis, last first: the sites with a bond in that direction, and the sites it leads to."""
    sites: Indices = np.arange(math.prod(grid.shape), dtype=_index_type(grid)).reshape(grid.shape)
    here, there = [], []
    for axis in reversed(range(len(grid.shape))):
        last = grid.shape[axis] if grid.periodic[axis] else grid.shape[axis] - 1
        kept = tuple(slice(0, last) if a == axis else slice(None) for a in range(len(grid.shape)))
        here.append(sites[kept].ravel())
        there.append(np.roll(sites, -1, axis=axis)[kept].ravel())
    return here, there


def _couplings(grid: Grid, coupling: ArrayLike | Sequence[ArrayLike]) -> list[Array]:
    """One array of the grid's shape per axis, last axis first."""
    dimensions = len(grid.shape)
    whole_array = plain_array(coupling, "coupling") if not isinstance(coupling, list | tuple) else None
    if whole_array is not None and whole_array.ndim == 0:
        given: list[Any] = [coupling] * dimensions
    elif dimensions == 1 and plain_array(coupling, "coupling").ndim == 1 and len(coupling) != 1:  # type: ignore[arg-type]
        given = [coupling]
    elif whole_array is not None and whole_array.shape != (dimensions, *grid.shape):
        raise ValueError(f"coupling has shape {whole_array.shape}; it must be one number or one array per axis")
    else:
        given = list(coupling)  # type: ignore[arg-type]
    if len(given) != dimensions:
        raise ValueError(
            f"coupling has {len(given)} parts; it must be one number or one array for each of {dimensions} axes"
        )
    arrays = []
    for axis, x in zip(reversed(range(dimensions)), given, strict=True):
        array = real_array(x, f"coupling along axis {axis}", None)
        short = tuple(n - 1 if a == axis else n for a, n in enumerate(grid.shape))
        if array.shape == short and not grid.periodic[axis]:
            # the entries that would wrap around may be left out where they are not used
            array = np.pad(array, [(0, int(a == axis)) for a in range(dimensions)])
        arrays.append(spread(array, grid.shape, f"coupling along axis {axis}"))
    return arrays
