"""Mean products of neighbours from the inverse of the Pfaffian's matrix, against all states and against derivatives."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest

import marginalis as mg
from marginalis.exact.bond_means import bond_means
from marginalis.exact.surfaces import _cached_grid, planar_of


def all_states(edges, n, j):
    s = np.array(list(itertools.product([-1.0, 1.0], repeat=n)))
    products = s[:, edges[:, 0]] * s[:, edges[:, 1]]
    exponents = products @ j
    p = np.exp(exponents - exponents.max())
    return p @ products / p.sum()


@pytest.mark.parametrize("periodic", [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("triangular", [False, True])
def test_against_all_states(periodic, triangular):
    rng = np.random.default_rng(1)
    drawing = _cached_grid((3, 4), periodic, triangular)
    edges = drawing.edges[: drawing.couplings]
    for strength in (0.1, 1.0, 3.0):
        for j in (strength * rng.normal(size=len(edges)), strength * rng.choice([-1.0, 1.0], len(edges))):
            assert bond_means(drawing, j) == pytest.approx(all_states(edges, 12, j), abs=1e-10)


@pytest.mark.parametrize("beta", [0.4, 2.0])
def test_against_the_derivative_of_log_z(beta):
    """24 x 24: the energy at one temperature is the integral's slope, from values of ln Z at two others."""
    rng = np.random.default_rng(2)
    j = tuple(rng.choice([-1.0, 1.0], (24, 24)) for _ in range(2))
    models = [
        mg.ising_grid((24, 24), coupling=j, periodic=True, temperature=1.0 / b)
        for b in (beta, beta - 1e-3, beta + 1e-3)
    ]
    found = mg.expectations(models[0], exact=True)
    assert found.source == "pfaffian"
    values = {tuple(pair): x for pair, x in zip(found.pairs.tolist(), found.correlations, strict=True)}
    energy = 0.0
    for (r, c), k in itertools.product(itertools.product(range(24), repeat=2), range(2)):
        other = (r, (c + 1) % 24) if k == 0 else ((r + 1) % 24, c)
        pair = tuple(sorted((24 * r + c, 24 * other[0] + other[1])))
        energy += j[k][r, c] * values[pair]
    low, high = (mg.exact_log_z(m) for m in models[1:])
    assert energy == pytest.approx((high - low) / 2e-3, rel=1e-5)
    assert not found.means.any()


@pytest.mark.parametrize("units", ["spin", "binary"])
def test_planar_graphs_in_any_units(units):
    rng = np.random.default_rng(3)
    graph = nx.convert_node_labels_to_integers(nx.icosahedral_graph())
    edges = np.array(graph.edges)
    coupling = rng.integers(-8, 9, len(edges)) / 8.0
    field = np.zeros(12)
    if units == "binary":
        np.add.at(field, edges.ravel(), -0.5 * np.repeat(coupling, 2))
    model = mg.from_edges(edges, coupling=coupling, field=field, units=units)
    expected = mg.expectations(model, exact=True)
    surface = planar_of(model)
    spins = surface.products(expected.pairs)
    half = 0.5 if units == "binary" else 1.0
    centre = 0.5 if units == "binary" else 0.0
    assert centre**2 + half**2 * spins == pytest.approx(expected.correlations, abs=1e-12)
    assert surface.extra == 0.0


def test_bond_means_that_lose_digits_are_refused():
    """A ±J torus whose sectors cancel to 2e-9 of their size; a ferromagnetic one at the critical point loses none."""
    drawing = _cached_grid((3, 3), (True, True), False)
    rng = np.random.default_rng(1)
    j = np.concatenate([rng.choice([-1.0, 1.0], 9), rng.choice([-1.0, 1.0], 9)])
    with pytest.raises(ValueError, match="loses too many digits"):
        bond_means(drawing, 10.0 * j)
    means = bond_means(drawing, np.full(18, 0.5 * math.log1p(math.sqrt(2.0))))
    assert means.max() - means.min() < 1e-13
