"""Classic models of statistical physics on rectangular lattices and on any graph."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..checks import check_room, plain_array, real_number, shown, whole
from .forms import Indices
from .graphs import as_shape, checked_edges, from_edges, pair_model
from .grids import lattice_bonds
from .model import MRF
from .units import Array

# Energy, in units of T, of two particles of a hard-core gas that touch: their weight, e^-60, is below rounding.
_REPULSION = 60.0


def clock(
    graph: Sequence[int] | ArrayLike,
    q: int,
    *,
    coupling: ArrayLike | Sequence[ArrayLike] = 1.0,
    field: ArrayLike = 0.0,
    periodic: bool | Sequence[bool] = False,
    temperature: float = 1.0,
) -> MRF:
    """Return the q-state clock model, E = −(Σ_bonds coupling · cos(θ_i − θ_j) + Σ_i field_i cos θ_i)/T, θ = 2πx/q.

    Parameters
    ----------
    graph
        The sides of a rectangular lattice, as in ``(8, 8)``, or the edges of any graph, pairs of variable numbers.
    q
        Number of states x = 0, …, q − 1 of each variable.
    coupling
        One number or, for a lattice, arrays as for `ising_grid`; for edges, one number or one for each edge.
    field
        One number or one for each variable.
    periodic
        Whether a lattice is periodic, one flag or one per axis.
    temperature
        T > 0, which divides the whole energy.
    """
    pairs, j, n = _bonds(graph, coupling, periodic)
    q = whole(q, "q", 2, 10**4)
    check_room(50 * (n + len(pairs)) * q * q, "q", q)
    cosines = np.cos(2.0 * math.pi * np.arange(q) / q)
    cosines[np.abs(cosines) < 1e-15] = 0.0  # The cosine of a right angle is zero.
    states = np.arange(q)
    table = cosines[np.abs(states[:, None] - states)]
    return pair_model(pairs, j, table, as_shape(field, (n,), "field")[:, None] * cosines, temperature)


def blume_capel(
    graph: Sequence[int] | ArrayLike,
    *,
    coupling: ArrayLike | Sequence[ArrayLike] = 1.0,
    crystal_field: ArrayLike = 0.0,
    field: ArrayLike = 0.0,
    periodic: bool | Sequence[bool] = False,
    temperature: float = 1.0,
) -> MRF:
    """Return the Blume–Capel model of spins s = −1, 0, 1.

    E = −(Σ_bonds coupling · s_i s_j − Σ_i crystal_field_i s_i² + Σ_i field_i s_i)/T. State x is the spin x − 1.

    Parameters
    ----------
    graph
        The sides of a rectangular lattice, as in ``(8, 8)``, or the edges of any graph, pairs of variable numbers.
    coupling
        One number or, for a lattice, arrays as for `ising_grid`; for edges, one number or one for each edge.
    crystal_field
        One number or one for each variable.
    field
        One number or one for each variable.
    periodic
        Whether a lattice is periodic, one flag or one per axis.
    temperature
        T > 0, which divides the whole energy.
    """
    pairs, j, n = _bonds(graph, coupling, periodic)
    spins = np.array([-1.0, 0.0, 1.0])
    b = as_shape(field, (n,), "field")[:, None] * spins
    b = b - as_shape(crystal_field, (n,), "crystal_field")[:, None] * spins**2
    return pair_model(pairs, j, np.outer(spins, spins), b, temperature)


def ashkin_teller(
    graph: Sequence[int] | ArrayLike,
    *,
    coupling: ArrayLike | Sequence[ArrayLike] = 1.0,
    four_spin: float = 0.0,
    periodic: bool | Sequence[bool] = False,
    temperature: float = 1.0,
) -> MRF:
    """Return the Ashkin–Teller model of two spins σ and τ on each site.

    E = −Σ_bonds coupling · (σ_i σ_j + τ_i τ_j + four_spin · σ_i σ_j τ_i τ_j)/T. States 0, 1, 2, 3 are (σ, τ) =
    (−1, −1), (−1, 1), (1, −1), (1, 1).

    Parameters
    ----------
    graph
        The sides of a rectangular lattice, as in ``(8, 8)``, or the edges of any graph, pairs of variable numbers.
    coupling
        One number or, for a lattice, arrays as for `ising_grid`; for edges, one number or one for each edge.
    four_spin
        Ratio of the coupling of all four spins of a bond to that of two.
    periodic
        Whether a lattice is periodic, one flag or one per axis.
    temperature
        T > 0, which divides the whole energy.
    """
    pairs, j, n = _bonds(graph, coupling, periodic)
    sigma, tau = np.array([-1.0, -1.0, 1.0, 1.0]), np.array([-1.0, 1.0, -1.0, 1.0])
    products = [np.outer(x, x) for x in (sigma, tau, sigma * tau)]
    table = products[0] + products[1] + real_number(four_spin, "four_spin") * products[2]
    return pair_model(pairs, j, table, np.zeros((n, 4)), temperature)


def hard_core(
    graph: Sequence[int] | ArrayLike, *, activity: ArrayLike = 1.0, periodic: bool | Sequence[bool] = False
) -> MRF:
    """Return the hard-core lattice gas, whose Z is the sum of activity^|S| over the independent sets S of the graph.

    Sites are 0/1 units, and two particles that touch have a weight of e^−60 or less, which is below rounding.

    Parameters
    ----------
    graph
        The sides of a rectangular lattice, as in ``(8, 8)``, or the edges of any graph, pairs of variable numbers.
    activity
        A positive number or one for each site; with 1, Z is the number of independent sets.
    periodic
        Whether a lattice is periodic, one flag or one per axis.
    """
    pairs, _, n = _bonds(graph, 1.0, periodic)
    z = as_shape(activity, (n,), "activity")
    if not (z > 0.0).all():
        raise ValueError(f"activity is {shown(activity)}; it must be positive")
    field: Array = np.log(z)
    repulsion = np.maximum(field[pairs], 0.0).sum(axis=1) + _REPULSION
    return from_edges(pairs, coupling=-repulsion, field=field, n=n, units="binary")


def _bonds(
    graph: Sequence[int] | ArrayLike, coupling: ArrayLike | Sequence[ArrayLike], periodic: bool | Sequence[bool]
) -> tuple[Indices, Array, int]:
    """Return the pairs of coupled variables of a lattice or a graph, their couplings, and the number of variables."""
    given = plain_array(graph, "graph")
    if given.ndim == 1 and given.size and given.dtype.kind in "iu":
        return lattice_bonds(given.tolist(), coupling, periodic)
    if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
        raise ValueError(f"graph is {shown(graph)}; it must be sides of a lattice, as in (8, 8), or pairs of variables")
    if np.any(plain_array(periodic, "periodic")):
        raise ValueError("periodic applies to lattices only; a graph lists all its edges")
    pairs, n = checked_edges(given, None)
    return pairs, as_shape(coupling, (len(pairs),), "coupling"), n  # type: ignore[arg-type]
