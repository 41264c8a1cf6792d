"""Models on rectangular lattices in any number of dimensions, split into black and white sites."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..checks import check_room, plain_array, real_array, shown, whole
from .arrange import arrange
from .forms import Grid, Indices, Split
from .graphs import as_shape, potts_model
from .model import MRF
from .units import SPIN, Array


def ising_grid(
    shape: Sequence[int],
    *,
    coupling: ArrayLike | Sequence[ArrayLike] = 1.0,
    field: ArrayLike = 0.0,
    periodic: bool | Sequence[bool] = False,
    triangular: bool = False,
    temperature: float = 1.0,
) -> MRF:
    """Return the Ising model on a rectangular lattice, E = −(Σ_i field_i s_i + Σ_bonds coupling s_i s_j)/T.

    Sites are numbered row-major.

    Parameters
    ----------
    shape
        The sides of the lattice, as in ``(8, 8)``, in any number of dimensions.
    coupling
        One number, or one array per direction with the last axis first. In two dimensions these are (horizontal,
        vertical): horizontal[r, c] joins (r, c)–(r, c+1) and vertical[r, c] joins (r, c)–(r+1, c). Entries that wrap
        around are used only if `periodic`.
    field
        One number or one for each site.
    periodic
        Whether the lattice wraps around, one flag or one per axis. A periodic side of length 2 has two bonds between
        its sites.
    triangular
        Whether, in two dimensions, a third direction joins (r, c)–(r+1, c+1).
    temperature
        T > 0, which divides the whole energy.
    """
    grid = _grid(shape, periodic, triangular)
    b = as_shape(field, grid.shape, "field").ravel()
    here, there = _bonds(grid)
    data = np.concatenate([j.ravel()[at] for at, j in zip(here, _couplings(grid, coupling), strict=True)])
    if not _is_bipartite(grid):
        n = len(b)
        links = sp.csr_array((data, (np.concatenate(here), np.concatenate(there))), shape=(n, n))
        return arrange(SPIN, b, links, temperature=temperature, layout=grid)
    split, position = _checkerboard(grid)
    odd = _parity(grid).ravel()
    rows, columns = [], []
    for one, other in zip(here, there, strict=True):
        flipped, from_, to = odd[one], position[one], position[other]
        rows.append(np.where(flipped, to, from_))
        columns.append(np.where(flipped, from_, to))
    at = np.concatenate(rows), np.concatenate(columns)
    weights = sp.csr_array((data, at), shape=(len(split.visible), len(split.hidden)))
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
    """Return the Potts model with q states on a rectangular lattice.

    E = −(Σ_i field[i, x_i] + Σ_bonds coupling δ(x_i, x_j))/T.

    Parameters
    ----------
    shape
        The sides of the lattice, as in ``(8, 8)``, in any number of dimensions.
    q
        Number of states of each variable.
    coupling
        One number, or one array per direction, as for `ising_grid`.
    field
        One number, one per state (q,), or one per site and state (sites, q).
    periodic
        Whether the lattice wraps around, one flag or one per axis.
    temperature
        T > 0, which divides the whole energy.
    """
    pairs, j, n = lattice_bonds(shape, coupling, periodic)
    return potts_model(pairs, n, q, j, field, temperature)


def lattice_bonds(
    shape: Sequence[int], coupling: ArrayLike | Sequence[ArrayLike], periodic: bool | Sequence[bool]
) -> tuple[Indices, Array, int]:
    """Return the pairs of coupled sites of a lattice, their couplings, and the number of sites."""
    grid = _grid(shape, periodic)
    here, there = _bonds(grid)
    j = [x.ravel()[a] for x, a in zip(_couplings(grid, coupling), here, strict=True)]
    pairs = np.stack([np.concatenate(here), np.concatenate(there)], axis=1)
    return pairs.astype(np.int64), np.concatenate(j), math.prod(grid.shape)


def _grid(shape: Sequence[int], periodic: bool | Sequence[bool], triangular: bool = False) -> Grid:
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
    if not isinstance(triangular, bool | np.bool_):
        raise ValueError(f"triangular is {shown(triangular)}; it must be True or False")
    if triangular and len(sides) != 2:
        raise ValueError(f"triangular lattices have two axes, not {len(sides)}")
    for axis, (n, wrap) in enumerate(zip(sides, wraps, strict=True)):
        if wrap and n == 1:
            raise ValueError(f"the periodic axis {axis} has one site, which would be coupled to itself")
    return Grid(sides, wraps, bool(triangular))


def _is_bipartite(grid: Grid) -> bool:
    even = all(n % 2 == 0 for n, wrap in zip(grid.shape, grid.periodic, strict=True) if wrap)
    return even and not grid.triangular


def _parity(grid: Grid) -> np.ndarray:
    """Return the sum of the coordinates modulo 2, as booleans on the grid."""
    parity = np.zeros((1,) * len(grid.shape), dtype=bool)
    for axis, n in enumerate(grid.shape):
        line = np.arange(n) % 2 == 1
        parity = parity ^ line.reshape([-1 if a == axis else 1 for a in range(len(grid.shape))])
    return np.broadcast_to(parity, grid.shape)


def _checkerboard(grid: Grid) -> tuple[Split, Indices]:
    """Return the split into black (visible) and white (hidden) sites, and each site's position within its side."""
    odd = _parity(grid).ravel()
    split = Split(np.flatnonzero(~odd), np.flatnonzero(odd))
    position: Indices = np.empty(odd.size, dtype=_index_type(grid))
    position[split.visible] = np.arange(len(split.visible))
    position[split.hidden] = np.arange(len(split.hidden))
    return split, position


def _index_type(grid: Grid) -> Any:
    """Return a 32-bit integer type if it can number the sites, to save memory, else a 64-bit type."""
    return np.int32 if math.prod(grid.shape) < 2**31 else np.int64


def _bonds(grid: Grid) -> tuple[list[Indices], list[Indices]]:
    """Return for each direction, last axis first, the sites with a bond and the sites at its other end."""
    sites: Indices = np.arange(math.prod(grid.shape), dtype=_index_type(grid)).reshape(grid.shape)
    here, there = [], []
    for axis in reversed(range(len(grid.shape))):
        last = grid.shape[axis] if grid.periodic[axis] else grid.shape[axis] - 1
        kept = tuple(slice(0, last) if a == axis else slice(None) for a in range(len(grid.shape)))
        here.append(sites[kept].ravel())
        there.append(np.roll(sites, -1, axis=axis)[kept].ravel())
    if grid.triangular:
        kept = tuple(slice(0, n if wrap else n - 1) for n, wrap in zip(grid.shape, grid.periodic, strict=True))
        here.append(sites[kept].ravel())
        there.append(np.roll(sites, (-1, -1), axis=(0, 1))[kept].ravel())
    return here, there


def _couplings(grid: Grid, coupling: ArrayLike | Sequence[ArrayLike]) -> list[Array]:
    """Return one array of couplings per direction: the axes, last first, and the diagonal of a triangular lattice."""
    dimensions = len(grid.shape)
    ways: list[tuple[int, ...]] = [(axis,) for axis in reversed(range(dimensions))]
    if grid.triangular:
        ways.append((0, 1))
    whole_array = plain_array(coupling, "coupling") if not isinstance(coupling, list | tuple) else None
    if whole_array is not None and whole_array.ndim == 0:
        given: list[Any] = [coupling] * len(ways)
    elif dimensions == 1 and plain_array(coupling, "coupling").ndim == 1 and len(coupling) != 1:  # type: ignore[arg-type]
        given = [coupling]
    elif whole_array is not None and whole_array.shape != (len(ways), *grid.shape):
        raise ValueError(f"coupling has shape {whole_array.shape}; it must be one number or one array per direction")
    else:
        given = list(coupling)  # type: ignore[arg-type]
    if len(given) != len(ways):
        raise ValueError(
            f"coupling has {len(given)} parts; it must be one number or one array for each of {len(ways)} directions"
        )
    arrays = []
    for axes, x in zip(ways, given, strict=True):
        name = f"coupling along axis {axes[0]}" if len(axes) == 1 else "coupling along the diagonal"
        array = real_array(x, name, None)
        # Entries that wrap around may be left out if they are not used.
        missing = [int(a in axes and not grid.periodic[a]) for a in range(dimensions)]
        if array.shape == tuple(n - m for n, m in zip(grid.shape, missing, strict=True)):
            array = np.pad(array, [(0, m) for m in missing])
        arrays.append(as_shape(array, grid.shape, name))
    return arrays
