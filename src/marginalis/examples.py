"""Example models made from a seed: those of the paper's experiments, and random lattices and networks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .checks import whole
from .models import grids
from .models.factors import FactorModel
from .models.graphs import from_edges, from_matrix
from .models.layered import dbm, rbm
from .models.model import MRF
from .models.networks import from_polynomial
from .models.units import Array

# Largest number of rounds in which members of products that are not allowed change places.
_MOST_SWAPS = 2000


def rbm_gaussian(visible: int = 20, hidden: int = 40, *, temperature: float = 1.0, seed: int = 0) -> MRF:
    """RBM with w_ij ~ N(0, 1/n), n = |V|+|H|, and biases uniform in ±0.001."""
    rng, b, c = _biases(visible, hidden, seed)
    weights = rng.normal(scale=(visible + hidden) ** -0.5, size=(visible, hidden))
    return rbm(weights, b, c, temperature=temperature)


def rbm_hopfield(visible: int = 20, hidden: int = 40, *, temperature: float = 1.0, seed: int = 0) -> MRF:
    """RBM with w_ij = ±1/√|V| at random and biases uniform in ±0.001 (section on convergence)."""
    rng, b, c = _biases(visible, hidden, seed)
    weights = rng.choice([-1.0, 1.0], size=(visible, hidden)) / np.sqrt(visible)
    return rbm(weights, b, c, temperature=temperature)


def random_dbm(
    sizes: Sequence[int],
    *,
    scale: float = 1.0,
    units: str = "binary",
    temperature: float = 1.0,
    seed: int = 0,
) -> MRF:
    """DBM with layers of these sizes, weights N(0, scale²/(n_l + n_{l+1})) and biases uniform in ±0.001."""
    sizes = [whole(n, "layers", 1, 10**7) for n in sizes]
    rng = np.random.default_rng(whole(seed, "seed", 0, 2**64 - 1))
    biases = [rng.uniform(-0.001, 0.001, n) for n in sizes]
    weights = [rng.normal(scale=scale / (a + b) ** 0.5, size=(a, b)) for a, b in itertools.pairwise(sizes)]
    return dbm(weights, biases, units=units, temperature=temperature)


def ising_grid(
    shape: Sequence[int],
    *,
    coupling: str = "1",
    field: str = "0",
    periodic: bool = False,
    triangular: bool = False,
    temperature: float = 1.0,
    seed: int = 0,
) -> MRF:
    """Ising lattice with constant or random couplings and fields (see `draw`)."""
    sizes, couplings, rng = _lattice(shape, coupling, seed)
    fields = draw(field, sizes, rng, "field")
    if triangular:
        couplings.append(draw(coupling, sizes, rng, "coupling"))
    return grids.ising_grid(
        sizes, coupling=couplings, field=fields, periodic=periodic, triangular=triangular, temperature=temperature
    )


def potts_grid(
    shape: Sequence[int],
    q: int,
    *,
    coupling: str = "1",
    periodic: bool = False,
    temperature: float = 1.0,
    seed: int = 0,
) -> MRF:
    """Potts lattice with constant or random couplings (see `draw`)."""
    sizes, couplings, _ = _lattice(shape, coupling, seed)
    return grids.potts_grid(sizes, q, coupling=couplings, periodic=periodic, temperature=temperature)


def _lattice(
    shape: Sequence[int], coupling: str, seed: int
) -> tuple[tuple[int, ...], list[Array], np.random.Generator]:
    """Return the sides, the couplings along each axis (the last axis first), and the generator for further draws."""
    rng = np.random.default_rng(whole(seed, "seed", 0, 2**64 - 1))
    sizes = tuple(whole(n, "shape", 1, 2**31) for n in shape)
    return sizes, [draw(coupling, sizes, rng, "coupling") for _ in sizes], rng


def chimera(
    rows: int,
    columns: int | None = None,
    shore: int = 4,
    *,
    coupling: str = "gaussian:1",
    field: str = "0",
    temperature: float = 1.0,
    seed: int = 0,
) -> MRF:
    """Spins on a Chimera graph of rows × columns cells, each a complete bipartite graph of two shores.

    The number of a spin is ((r·columns + c)·2 + side)·shore + k. Spins of side 0 are coupled down the columns, those of
    side 1 along the rows.
    """
    edges = chimera_edges(rows, rows if columns is None else columns, shore)
    rng = np.random.default_rng(whole(seed, "seed", 0, 2**64 - 1))
    n = whole(rows, "rows", 1, 10**4) * (columns or rows) * 2 * shore
    couplings, fields = draw(coupling, (len(edges),), rng, "coupling"), draw(field, (n,), rng, "field")
    return from_edges(edges, coupling=couplings, field=fields, n=n, temperature=temperature)


def chimera_edges(rows: int, columns: int, shore: int = 4) -> list[tuple[int, int]]:
    """Return the edges cell by cell: those within the cell, then down, then to the right."""
    for value, name in ((rows, "rows"), (columns, "columns"), (shore, "shore")):
        whole(value, name, 1, 10**4)

    def spin(r: int, c: int, side: int, k: int) -> int:
        return ((r * columns + c) * 2 + side) * shore + k

    edges = []
    for r, c in itertools.product(range(rows), range(columns)):
        edges += [(spin(r, c, 0, k), spin(r, c, 1, m)) for k in range(shore) for m in range(shore)]
        edges += [(spin(r, c, 0, k), spin(r + 1, c, 0, k)) for k in range(shore) if r + 1 < rows]
        edges += [(spin(r, c, 1, k), spin(r, c + 1, 1, k)) for k in range(shore) if c + 1 < columns]
    return edges


def sherrington_kirkpatrick(spins: int = 64, *, field: str = "0", temperature: float = 1.0, seed: int = 0) -> MRF:
    """Sherrington–Kirkpatrick model: a coupling from N(0, 1/n) between any two of n spins."""
    rng = np.random.default_rng(whole(seed, "seed", 0, 2**64 - 1))
    n = whole(spins, "spins", 2, 10**5)
    couplings = np.triu(rng.normal(scale=n**-0.5, size=(n, n)), 1)
    return from_matrix(couplings, draw(field, (n,), rng, "field"), temperature=temperature)


def random_field(
    shape: Sequence[int],
    *,
    field: str = "gaussian:1",
    coupling: str = "1",
    periodic: bool = False,
    temperature: float = 1.0,
    seed: int = 0,
) -> MRF:
    """Random-field Ising model on a lattice: equal couplings, and a random field on each site."""
    return ising_grid(shape, coupling=coupling, field=field, periodic=periodic, temperature=temperature, seed=seed)


def random_regular(
    spins: int = 64,
    degree: int = 3,
    *,
    coupling: str = "pm:1",
    field: str = "0",
    temperature: float = 1.0,
    seed: int = 0,
) -> MRF:
    """Spin glass on a random regular graph: each spin has `degree` neighbours, by default with couplings ±1."""
    rng = np.random.default_rng(whole(seed, "seed", 0, 2**64 - 1))
    edges = regular_scopes(spins, degree, 2, rng)
    couplings, fields = draw(coupling, (len(edges),), rng, "coupling"), draw(field, (spins,), rng, "field")
    return from_edges(edges, coupling=couplings, field=fields, n=spins, temperature=temperature)


def p_spin(
    spins: int = 60,
    p: int = 3,
    degree: int = 4,
    *,
    coupling: str = "pm:1",
    field: str = "0",
    temperature: float = 1.0,
    seed: int = 0,
) -> FactorModel:
    """p-spin model on a random regular hypergraph: E·T = −Σ J s_i s_j … over products of p spins.

    Each spin is in `degree` products, so that there are spins·degree/p of them.
    """
    rng = np.random.default_rng(whole(seed, "seed", 0, 2**64 - 1))
    scopes = regular_scopes(spins, degree, whole(p, "p", 2, 20), rng).tolist()
    couplings, fields = draw(coupling, (len(scopes),), rng, "coupling"), draw(field, (spins,), rng, "field")
    terms = {(i,): float(h) for i, h in enumerate(fields)}  # All spins, in order.
    terms |= {tuple(scope): float(j) for scope, j in zip(scopes, couplings, strict=True)}
    return from_polynomial(terms, temperature=temperature)


def regular_scopes(n: int, degree: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return random sets of `size` of n variables, no two alike, in which each variable occurs `degree` times.

    The sets are dealt at random. While some have a variable twice or are alike, random members of theirs change places
    with members of others.
    """
    n, degree = whole(n, "spins", size, 10**7), whole(degree, "degree", 1, 10**4)
    if n * degree % size:
        raise ValueError(
            f"degree is {degree}: {n} spins times {degree} must be a multiple of {size}, the spins of a product"
        )
    scopes = rng.permutation(np.repeat(np.arange(n), degree)).reshape(-1, size)
    for _ in range(_MOST_SWAPS):
        order = np.sort(scopes, axis=1)
        _, first = np.unique(order, axis=0, return_index=True)
        is_bad = (order[:, 1:] == order[:, :-1]).any(axis=1)
        is_bad |= ~np.isin(np.arange(len(scopes)), first)
        if not is_bad.any():
            return order[np.lexsort(order.T[::-1])]
        for scope in np.flatnonzero(is_bad):
            other, here, there = rng.integers(len(scopes)), *rng.integers(size, size=2)
            scopes[scope, here], scopes[other, there] = scopes[other, there], scopes[scope, here]
    raise ValueError(f"degree is {degree}, too many for {n} spins: no such products were found")


def draw(law: str, shape: tuple[int, ...], rng: np.random.Generator, argument: str) -> Array:
    """Return an array of a constant, or of draws: ``gaussian:sd``, ``uniform:a`` (in ±a) or ``pm:a`` (±a)."""
    kind, _, detail = law.rpartition(":")
    try:
        size = float(detail)
    except ValueError:
        size = np.nan
    if np.isfinite(size):
        if kind == "":
            return np.full(shape, size)
        if kind == "gaussian":
            return size * rng.standard_normal(shape)
        if kind == "uniform":
            return size * rng.uniform(-1.0, 1.0, shape)
        if kind == "pm":
            return size * rng.choice([-1.0, 1.0], shape)
    raise ValueError(f"{argument} is {law!r}; it must be a number, gaussian:sd, uniform:a or pm:a")


def _biases(visible: int, hidden: int, seed: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    sizes = whole(visible, "visible", 1, 10**7), whole(hidden, "hidden", 1, 10**7)
    rng = np.random.default_rng(whole(seed, "seed", 0, 2**64 - 1))
    b, c = (rng.uniform(-0.001, 0.001, size) for size in sizes)
    return rng, b, c
