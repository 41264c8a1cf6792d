"""Connected parts, and variables without couplings, however many there are."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import marginalis as mg
from marginalis.exact import choice
from marginalis.exact.connected_parts import isolated, log_z_of_isolated, pieces, submodel
from marginalis.models.model import MRF
from marginalis.models.units import parse_units


def several(units, rng, alone=4):
    """A triangle, a K4, a path, a 2 × 2 ring, and isolated variables, in any order."""
    graph = nx.disjoint_union_all(
        [nx.complete_graph(3), nx.complete_graph(4), nx.path_graph(3), nx.cycle_graph(4), nx.empty_graph(alone)]
    )
    n = len(graph)
    edges = rng.permutation(n)[np.array(graph.edges)]
    coupling = 0.3 * rng.normal(size=len(edges))
    if units.startswith("categorical"):
        return mg.potts(edges, 3, n=n, coupling=coupling, field=rng.normal(size=(n, 3)), temperature=0.9)
    precision = rng.uniform(1.5, 2.0, size=n) if units == "gaussian" else None
    options = dict(field=rng.normal(size=n), units=units, precision=precision, temperature=0.9)
    return mg.from_edges(edges, coupling=coupling, n=n, **options)


KINDS = ["spin", "binary", "categorical:3", "gaussian"]


@pytest.mark.parametrize("units", KINDS)
def test_pieces_are_the_parts(units):
    model = several(units, np.random.default_rng(1))
    parts = list(pieces(model))
    assert sorted(part.n_variables for part in parts) == [1, 1, 1, 1, 3, 3, 4, 4]
    visible, hidden, count = model.connected_parts
    assert len(parts) == count
    for k, part in enumerate(parts):
        same = submodel(model, visible == k, hidden == k)
        assert part.n_edges == same.n_edges
        assert mg.exact_log_z(part) == pytest.approx(mg.exact_log_z(same), rel=1e-14)
    assert sum(mg.exact_log_z(part) for part in parts) == pytest.approx(mg.exact_log_z(model), rel=1e-12)


def test_pieces_of_a_dense_matrix():
    rng = np.random.default_rng(2)
    w = np.zeros((5, 6))
    w[:2, [0, 3]], w[2:, [1, 2, 4]] = rng.normal(size=(2, 2)), rng.normal(size=(3, 3))
    model = mg.rbm(w, rng.normal(size=5), rng.normal(size=6))
    assert sorted(part.weights.shape for part in pieces(model)) == [(0, 1), (2, 2), (3, 3)]
    assert sum(mg.exact_log_z(part) for part in pieces(model)) == pytest.approx(mg.exact_log_z(model), rel=1e-13)


@pytest.mark.parametrize("units", KINDS)
def test_isolated_variables(units):
    model = several(units, np.random.default_rng(3))
    alone = isolated(model)
    assert sum(int(side.sum()) for side in alone) == 4
    value, size = log_z_of_isolated(model, *alone)
    rest = submodel(model, ~alone[0], ~alone[1])
    assert value + mg.exact_log_z(rest) == pytest.approx(mg.exact_log_z(model), rel=1e-12)
    assert size >= abs(value) * (1 - 1e-12)


@pytest.mark.parametrize("units", KINDS)
def test_many_isolated_variables_are_summed_apart(monkeypatch, units):
    model = several(units, np.random.default_rng(4), alone=30)
    exact = mg.exact_log_z(model)
    monkeypatch.setattr(choice, "_MANY", 10)
    seen = []
    monkeypatch.setattr(choice, "submodel", lambda *args: seen.append(submodel(*args)) or seen[-1])
    assert mg.exact_log_z(model) == pytest.approx(exact, rel=1e-12)
    assert [part.n_variables for part in seen] == [14]


def test_nothing_but_isolated_variables():
    n = 100_000
    model = MRF(sp.csr_array((n, n)), np.full(n, 0.5), np.full(n, -1.0), offset=3.0)
    found = mg.exact_log_z(model)
    assert found == pytest.approx(3.0 + n * np.log(4 * np.cosh(0.5) * np.cosh(1.0)), rel=1e-12)


def test_each_part_by_its_own_method():
    """A torus and a dense graph, neither of which the method of the other would take."""
    rng = np.random.default_rng(5)
    torus = mg.ising_grid((8, 8), coupling=0.3, periodic=True)  # as a part it has no layout: by elimination
    w = rng.normal(size=(20, 150)) / 10
    sides = torus.visible_bias, np.zeros(20)
    model = MRF(sp.block_diag([torus.weights, w], format="csr"), np.concatenate(sides), np.zeros(torus.n_hidden + 150))
    found = mg.exact_log_z(model)
    assert found.method == "parts"
    expected = mg.exact_log_z(torus) + mg.exact_log_z(mg.rbm(w, np.zeros(20), np.zeros(150)))
    assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("units", KINDS)
def test_small_parts_are_not_sampled(units):
    """Where all parts are small an estimate is exact; a large one is annealed alone."""
    model = several(units, np.random.default_rng(6))
    estimate = mg.estimate(model, steps=2, chains=3)
    assert np.ptp(estimate.log_weights) == 0.0
    assert estimate.log_z == pytest.approx(mg.exact_log_z(model), rel=1e-9)


@pytest.mark.parametrize("other", ["spin", "categorical:3"])
def test_small_parts_of_coupled_gaussians_and_discrete_variables(other):
    rng = np.random.default_rng(7)
    h = parse_units(other, 6)
    lateral = np.zeros((4, 4))
    lateral[0, 1] = lateral[1, 0] = lateral[2, 3] = lateral[3, 2] = 0.4
    w = np.zeros((4, 6))
    w[:2, :3], w[2:, 3:] = 0.5 * rng.normal(size=(2, 2, 3))
    model = MRF(sp.csr_array(w), rng.normal(size=4), rng.normal(size=6), parse_units("gaussian", 4), h, lateral=lateral)
    assert model.connected_parts[2] == 2
    estimate = mg.estimate(model, steps=2, chains=3)
    assert np.ptp(estimate.log_weights) == 0.0
    assert estimate.log_z == pytest.approx(mg.exact_log_z(model), rel=1e-9)
