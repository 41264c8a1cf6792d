"""Graphs that need not be bipartite: every method against all states, and against every other that applies."""

import itertools

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import states
from hypothesis import given, settings
from hypothesis import strategies as st

import marginalis as mg
from marginalis.exact import METHODS, ModelTooLarge, cheapest
from marginalis.models.arrange import rearrange
from marginalis.models.model import MRF
from marginalis.models.units import SPIN, parse_units

GRAPHS = {
    "triangle": nx.complete_graph(3),
    "K4": nx.complete_graph(4),
    "K7": nx.complete_graph(7),
    "wheel": nx.wheel_graph(8),
    "odd ring": nx.cycle_graph(9),
    "Petersen": nx.petersen_graph(),
    "triangle with a tail": nx.lollipop_graph(3, 4),
    "triangles and loners": nx.disjoint_union_all([nx.cycle_graph(3), nx.complete_graph(4), nx.empty_graph(2)]),
}


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix


def brute_force(model):
    """ln Σ over all states of both sides, offset included."""
    p = model.natural
    sides = (p.visible_units, p.visible_bias), (p.hidden_units, p.hidden_bias)
    v, h = (states(units, len(bias)) if len(bias) else np.zeros((1, 0)) for units, bias in sides)
    exponents = (v @ p.visible_bias)[:, None] + h @ p.hidden_bias + v @ dense(p.weights) @ h.T
    if p.lateral is not None:
        exponents += 0.5 * np.einsum("ki,ki->k", v @ dense(p.lateral), v)[:, None]
    return np.logaddexp.reduce(exponents, axis=None) + p.offset


def on_graph(graph, units, rng, scale=1.0):
    edges, n = np.array(graph.edges, dtype=int).reshape(-1, 2), len(graph)
    if units.startswith("categorical"):
        q = int(units[-1])
        return mg.potts(edges, q, n=n, coupling=rng.normal(scale=scale, size=len(edges)), field=rng.normal(size=(n, q)))
    coupling, field = rng.normal(scale=scale, size=len(edges)), rng.normal(size=n)
    return mg.from_edges(edges, n=n, coupling=coupling, field=field, units=units, temperature=0.8)


def by_every_method(model, **options):
    """What each method that applies finds."""
    found = {}
    for method in METHODS:
        try:
            cheapest(model, method=method)
        except ValueError:  # does not apply, or takes too long
            continue
        found[method] = mg.exact_log_z(model, method=method, **options)
    return found


def assert_all(model, exact, *methods):
    found = by_every_method(model)
    assert {"auto", *methods} <= set(found)
    for method, value in found.items():
        assert value == pytest.approx(exact, rel=1e-11, abs=1e-10), method


@pytest.mark.parametrize("units", ["spin", "binary", "categorical:3"])
@pytest.mark.parametrize("name", GRAPHS)
def test_named_graphs(name, units):
    graph = GRAPHS[name]
    if units.startswith("categorical") and len(graph) > 9:
        graph = graph.subgraph(range(9))
    model = on_graph(graph, units, np.random.default_rng(1))
    assert_all(model, brute_force(model), "enumeration", "elimination")


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 8),
    st.floats(0.0, 1.0),
    st.sampled_from(["spin", "binary", "categorical:2", "categorical:3"]),
    st.sampled_from([0.1, 1.0, 30.0, 300.0]),
)
def test_random_graphs(seed, n, density, units, scale):
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(n, density, seed=seed % 1000)
    model = on_graph(graph, units, rng, scale)
    assert_all(model, brute_force(model), "enumeration", "elimination")


@pytest.mark.parametrize(
    "kinds", [*itertools.product(["spin", "binary", "categorical:3", "categorical:2,3"], repeat=2)]
)
def test_methods_agree_on_machines_with_two_kinds_of_units(kinds):
    """A semi-restricted machine: any kind, coupled to each other, against any other kind."""
    rng = np.random.default_rng(2)
    n, m = (5 if "," in kind or ":" not in kind else 6 for kind in kinds)
    v, h = parse_units(kinds[0], n), parse_units(kinds[1], m)
    owners = v.owners(n)
    lateral = np.triu(rng.normal(size=(n, n)) * (owners[:, None] != owners))
    sides = rng.normal(size=(n, m)), rng.normal(size=n), rng.normal(size=m)
    for form in (np.array, sp.csr_array):
        model = MRF(form(sides[0]), *sides[1:], v, h, 1.3, 0.4, lateral=form(lateral + lateral.T))
        assert_all(model, brute_force(model), "enumeration", "elimination")


@pytest.mark.parametrize("flags", [*itertools.product([False, True], repeat=3)])
@pytest.mark.parametrize("shape", [(2, 2), (2, 5), (3, 3), (4, 3), (1, 6)])
def test_methods_agree_on_lattices(shape, flags):
    *periodic, triangular = flags
    periodic = [p and n > 1 for p, n in zip(periodic, shape, strict=True)]
    rng = np.random.default_rng(3)
    options = dict(periodic=periodic, triangular=triangular, temperature=1.2)
    for coupling, field in (
        (0.6, 0.0),
        (-0.6, 0.0),
        (rng.normal(size=2 + triangular), 0.3),  # not the same in all directions
        (rng.normal(size=(2 + triangular, *shape)), rng.normal(size=shape)),
    ):
        model = mg.ising_grid(
            shape, coupling=coupling if np.ndim(coupling) == 0 else [*coupling], field=field, **options
        )
        assert_all(model, brute_force(model), "transfer", "elimination")


def test_triangular_torus():
    for coupling in (0.3, -0.3):
        found = by_every_method(mg.ising_grid((6, 6), coupling=coupling, periodic=True, triangular=True))
        assert set(found) == {"auto", "enumeration", "transfer", "pfaffian", "elimination"}
        assert np.ptp(list(found.values())) < 1e-10


def test_triangular_ground_states():
    """At T → 0 what is left of ln Z are the energy, one frustrated bond in three, and the number of ground states."""
    model = mg.ising_grid((3, 3), coupling=-1.0, periodic=True, triangular=True, temperature=1e-3)
    x = states(SPIN, 9).reshape(-1, 3, 3)
    bonds = sum(x * np.roll(x, [-i for i in step], axis=(1, 2)) for step in ((0, 1), (1, 0), (1, 1)))
    energies = bonds.sum(axis=(1, 2))
    assert energies.min() == -9
    exact = 9e3 + np.log((energies == -9).sum())
    for method in ("transfer", "elimination", "enumeration"):
        assert mg.exact_log_z(model, method=method) == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("coupling", [0.2, 0.44, 1.0])
def test_odd_torus(coupling):
    model = mg.ising_grid((5, 7), coupling=(coupling, 0.7 * coupling), periodic=True)
    found = by_every_method(model)
    assert set(found) == {"auto", "kaufman", "transfer", "pfaffian", "elimination", "enumeration"}
    assert found["auto"].method == "kaufman"
    assert np.ptp(list(found.values())) < 1e-10


def test_a_frustrated_torus_is_left_to_the_others():
    model = mg.ising_grid((5, 6), coupling=(1.0, -1.0), periodic=True)
    with pytest.raises(ValueError, match="'kaufman' does not apply"):
        mg.exact_log_z(model, method="kaufman")
    found = by_every_method(model)
    assert {"transfer", "elimination"} <= set(found)
    assert np.ptp(list(found.values())) < 1e-9


@pytest.mark.parametrize("units", ["spin", "binary"])
def test_other_variables_summed_out(units):
    """The layout of a lattice and the layers of a machine hold for any split of their variables."""
    rng = np.random.default_rng(4)
    grid = mg.ising_grid((3, 4), coupling=[*rng.normal(size=(2, 3, 4))], field=0.0)
    deep = mg.dbm(
        [rng.normal(size=(3, 4)), rng.normal(size=(4, 2))], [rng.normal(size=n) for n in (3, 4, 2)], units=units
    )
    for model, own in ((grid, {"transfer", "kac-ward"}), (deep, {"layers"})):
        other = rearrange(model, [0, int(model.split.visible[-1])])
        assert not other.is_bipartite
        assert_all(other, mg.exact_log_z(model), "enumeration", *own)


@pytest.mark.parametrize("units", ["spin", "binary"])
def test_fully_connected(units):
    """More states than one call of the kernel takes, with threads, and in logarithms."""
    rng = np.random.default_rng(5)
    n = 19
    j = np.triu(rng.normal(size=(n, n)), 1) / np.sqrt(n)
    for temperature in (1.0, 1e-3):
        model = mg.from_matrix(j, rng.normal(size=n), units=units, temperature=temperature)
        assert model.n_hidden == 1
        ways = [mg.exact_log_z(model, method="enumeration", threads=threads) for threads in (1, 2, 3)]
        assert len(set(ways)) == 1
        assert ways[0] == pytest.approx(mg.exact_log_z(model, method="elimination"), rel=1e-11)


def test_penalties_on_any_graph():
    """Independent sets of a graph, however large the penalty for two neighbours."""
    graph = nx.petersen_graph()
    for penalty in (50.0, 1e6, 1e15):
        model = mg.from_edges(list(graph.edges), coupling=-penalty, field=0.0, units="binary")
        assert not model.is_bipartite
        for method in ("auto", "elimination", "enumeration"):
            assert mg.exact_log_z(model, method=method) == pytest.approx(np.log(76), abs=1e-9)


def quadrature(model, points=160):
    """ln Z of a model with one or two Gaussian variables on one side, by a sum over all states and a grid of values."""
    p = model.natural
    v, h = (
        states(units, len(bias))
        if units.name != "gaussian"
        else np.array([*itertools.product(np.linspace(-14, 14, points), repeat=len(bias))])
        for units, bias in ((p.visible_units, p.visible_bias), (p.hidden_units, p.hidden_bias))
    )
    exponents = (v @ p.visible_bias)[:, None] + h @ p.hidden_bias + v @ dense(p.weights) @ h.T
    exponents += 0.5 * np.einsum("ki,ki->k", v @ dense(p.lateral), v)[:, None]
    gaussians = 0
    for axis, (units, x) in enumerate(((p.visible_units, v), (p.hidden_units, h))):
        if units.name == "gaussian":
            exponents -= 0.5 * (x**2 @ units.gamma)[:, None] if axis == 0 else 0.5 * (x**2 @ units.gamma)
            gaussians += x.shape[1]
    return np.logaddexp.reduce(exponents, axis=None) + gaussians * np.log(28 / (points - 1)) + p.offset


@pytest.mark.parametrize("other", ["spin", "binary", "categorical:3", "categorical:2,4"])
def test_gaussians_and_discrete_variables(other):
    """Coupled Gaussian variables with discrete ones, and the other way round."""
    rng = np.random.default_rng(9)
    n = 6
    sides = 0.4 * rng.normal(size=(2, n)), 0.5 * rng.normal(size=2), rng.normal(size=n)
    gauss = parse_units("gaussian", 2, [0.9, 1.6])
    units = parse_units(other, n)
    owners = units.owners(n)
    lateral = np.triu(rng.normal(size=(n, n)) * (owners[:, None] != owners))
    for model in (
        MRF(*sides, gauss, units, 1.3, 0.2, lateral=[[0.0, -0.5], [-0.5, 0.0]]),
        MRF(sides[0].T, sides[2], sides[1], units, gauss, 1.3, 0.2, lateral=lateral + lateral.T),
    ):
        assert mg.exact_log_z(model) == pytest.approx(quadrature(model), rel=1e-10)


def soft_pair(gap):
    """Two Gaussians and a spin, and ln Z: v₁ ± v₂ have precisions 1 ∓ (1 − gap), and the spin sees the softer one."""
    units = parse_units("gaussian", 2, [1.0, 1.0])
    lateral = np.array([[0.0, 1.0 - gap], [1.0 - gap, 0.0]])
    model = MRF(np.full((2, 1), 1e-3), np.zeros(2), np.zeros(1), units, SPIN, lateral=lateral)
    gap = 1.0 - lateral[0, 1]  # as rounded
    return model, np.log(4.0 * np.pi) - 0.5 * np.log(gap * (2 - gap)) + 1e-6 / gap


@pytest.mark.parametrize("gap", [0.3, 1e-3, 1e-6])
def test_nearly_singular_gaussians(gap):
    model, exact = soft_pair(gap)
    assert mg.exact_log_z(model) == pytest.approx(exact, rel=1e-9)


def test_gaussians_that_rounding_decides_about_are_refused():
    with pytest.raises(ValueError, match=r"cancel|positive definite"):
        mg.exact_log_z(soft_pair(1e-12)[0])


def test_too_large_says_how_large():
    rng = np.random.default_rng(6)
    model = mg.from_matrix(np.triu(rng.normal(size=(80, 80)), 1))
    with pytest.raises(ModelTooLarge, match=r"there are 79 units: an exact sum over 2\^79 states x 1 units would take"):
        mg.exact_log_z(model)


def zephyr(m, t):
    """The graph of D-Wave's Advantage2, up to twenty neighbours a site: Boothby, Raymond & King (2021)."""
    two = range(2)
    graph = nx.Graph()
    for u, w, k, z in itertools.product(two, range(2 * m + 1), range(t), range(m)):
        graph.add_edge((u, w, k, 0, z), (u, w, k, 1, z))
        if z + 1 < m:
            graph.add_edge((u, w, k, 1, z), (u, w, k, 0, z + 1))
            graph.add_edges_from(((u, w, k, j, z), (u, w, k, j, z + 1)) for j in two)
    for w, z, i, j, k, h, a, b in itertools.product(range(m), range(m), two, two, range(t), range(t), two, two):
        graph.add_edge((0, 2 * w + 1 + a * (2 * i - 1), k, j, z), (1, 2 * z + 1 + b * (2 * j - 1), h, i, w))
    return nx.convert_node_labels_to_integers(graph)


def test_a_piece_of_zephyr():
    small, large = (on_graph(zephyr(1, t), "spin", np.random.default_rng(7), 0.3) for t in (3, 4))
    assert not small.is_bipartite
    found = by_every_method(small)
    assert found["enumeration"] == pytest.approx(found["elimination"], rel=1e-11)
    assert mg.exact_log_z(large).method == "elimination"


def test_the_search_for_an_order_of_a_large_graph_is_given_up():
    with pytest.raises(ModelTooLarge, match="would take longer than"):
        mg.exact_log_z(on_graph(zephyr(5, 4), "spin", np.random.default_rng(8)))
