"""Pfaffians on lattices, tori and planar graphs against transfer, elimination, closed formulas and all states."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from scipy.spatial import Delaunay

import marginalis as mg
from marginalis.exact import ModelTooLarge, exact_log_z
from marginalis.exact.embedding import _has_dense_minor, planar_drawing
from marginalis.exact.kaufman import kaufman_log_z
from marginalis.exact.pfaffian import _log_sum, dissect, pfaffian_log_z
from marginalis.exact.surfaces import _cached_grid, lattice_of, planar_of
from marginalis.exact.transfer import transfer_log_z

PERIODIC = [(False, False), (True, False), (False, True), (True, True)]
TEMPERATURES = 0.1, 0.3, 1.0, 10.0


def couplings(rng, kind, shape):
    return {
        "signs": lambda: rng.choice([-1.0, 1.0], shape),
        "normal": lambda: rng.normal(size=shape),
        "diluted": lambda: rng.choice([-1.0, 0.0, 1.0], shape),
    }[kind]()


def edges_of(graph):
    return np.array(nx.convert_node_labels_to_integers(graph).edges)


@pytest.mark.parametrize("kind", ["signs", "normal", "diluted"])
@pytest.mark.parametrize("triangular", [False, True])
@pytest.mark.parametrize("periodic", PERIODIC)
def test_lattices_against_transfer(periodic, triangular, kind):
    rng = np.random.default_rng(5)
    for shape in [(2, 2), (2, 5), (3, 3), (4, 6)]:
        j = tuple(couplings(rng, kind, shape) for _ in range(2 + triangular))
        # Of a small cold torus the four sectors may cancel beyond all digits, see below.
        for temperature in TEMPERATURES[1 if all(periodic) else 0 :]:
            model = mg.ising_grid(shape, coupling=j, periodic=periodic, triangular=triangular, temperature=temperature)
            found = exact_log_z(model, method="pfaffian")
            assert found == pytest.approx(exact_log_z(model, method="transfer"), rel=1e-11)


@pytest.mark.parametrize("shape", [(1, 2), (1, 9), (7, 1)])
def test_pfaffians_of_chains(shape):
    model = mg.ising_grid(shape, coupling=-1.7)
    assert exact_log_z(model, method="pfaffian") == pytest.approx(exact_log_z(model, method="elimination"), rel=1e-14)


GRAPHS = {
    "edge": nx.path_graph(2),
    "tree": nx.random_labeled_tree(15, seed=1),
    "star": nx.star_graph(12),
    "K4": nx.complete_graph(4),
    "wheel": nx.wheel_graph(9),
    "icosahedron": nx.icosahedral_graph(),
    "dodecahedron": nx.dodecahedral_graph(),
    "bridge": nx.barbell_graph(4, 3),
    "ladder": nx.circular_ladder_graph(7),
    "K2,6": nx.complete_bipartite_graph(2, 6),
    "hexagons": nx.hexagonal_lattice_graph(3, 3),
    "parts": nx.disjoint_union_all([nx.complete_graph(4), nx.cycle_graph(6), nx.empty_graph(2)]),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("units", ["spin", "binary"])
def test_planar_graphs_with_fields_on_a_face(name, units):
    rng = np.random.default_rng(6)
    edges, n = edges_of(GRAPHS[name]), len(GRAPHS[name])
    for strength in (0.1, 1.0, 5.0):
        coupling = np.round(64 * strength * rng.normal(size=len(edges))) / 64  # so that no sum is rounded
        field = np.zeros(n)
        if units == "binary":  # which has no fields as a model of spins
            np.add.at(field, edges.ravel(), -0.5 * np.repeat(coupling, 2))
        for extra in (0.0, rng.normal(size=2)):
            field[edges[0]] += extra
            model = mg.from_edges(edges, n=n, coupling=coupling, field=field, units=units)
            found = exact_log_z(model, method="planar")
            assert found == pytest.approx(exact_log_z(model, method="elimination"), rel=1e-12)


@pytest.mark.parametrize("n", [4, 9, 30])
def test_random_triangulations(n):
    rng = np.random.default_rng(n)
    corners = Delaunay(rng.random((n, 2))).simplices
    edges = np.unique(np.sort(corners[:, [[0, 1], [1, 2], [0, 2]]].reshape(-1, 2), axis=1), axis=0)
    for strength in (0.2, 1.0, 10.0):
        for kept in (edges, edges[rng.random(len(edges)) < 0.6]):
            model = mg.from_edges(kept, n=n, coupling=strength * rng.choice([-1.0, 1.0], len(kept)))
            assert exact_log_z(model, method="planar") == pytest.approx(
                exact_log_z(model, method="elimination"), rel=1e-12
            )


@pytest.mark.parametrize("beta", [0.3, math.log1p(math.sqrt(2.0)) / 2.0, 2.0])
def test_ferromagnetic_torus_against_kaufman(beta):
    model = mg.ising_grid((24, 20), periodic=True, temperature=1.0 / beta)
    assert exact_log_z(model, method="pfaffian") == pytest.approx(kaufman_log_z(24, 20, beta, beta), rel=1e-13)


@pytest.mark.parametrize("kind", ["signs", "normal"])
@pytest.mark.parametrize("beta", [1.0, 10.0])
def test_gauge_and_place_do_not_matter(kind, beta):
    """Turned spins, moved and transposed lattices have the same ln Z, by other pivots in another order."""
    rng = np.random.default_rng(8)
    shape = 18, 22
    horizontal, vertical = (beta * couplings(rng, kind, shape) for _ in range(2))
    expected = exact_log_z(mg.ising_grid(shape, coupling=(horizontal, vertical), periodic=True), method="pfaffian")
    turn = rng.choice([-1.0, 1.0], shape)
    horizontal, vertical = horizontal * turn * np.roll(turn, -1, 1), vertical * turn * np.roll(turn, -1, 0)
    horizontal, vertical = (np.roll(x, (5, 9), (0, 1)) for x in (horizontal, vertical))
    model = mg.ising_grid(shape[::-1], coupling=(vertical.T, horizontal.T), periodic=True)
    assert exact_log_z(model, method="pfaffian") == pytest.approx(expected, rel=1e-13)


def test_twice_the_digits_where_the_sectors_cancel():
    """A ±J torus of 3 x 3 spins whose couplings would save 20 kT by a wall round it, which spins cannot have."""
    rng = np.random.default_rng(1)
    horizontal, vertical = rng.choice([-1.0, 1.0], (3, 3)), rng.choice([-1.0, 1.0], (3, 3))
    states = np.array(list(itertools.product([-1.0, 1.0], repeat=9))).reshape(-1, 3, 3)
    energies = (horizontal * states * np.roll(states, -1, 2) + vertical * states * np.roll(states, -1, 1)).sum((1, 2))
    drawing = _cached_grid((3, 3), (True, True), False)
    j = np.concatenate([horizontal.ravel(), vertical.ravel()])
    tree = dissect(drawing.positions)
    for beta in (5.0, 10.0, 14.0):
        expected = np.logaddexp.reduce(beta * energies)
        assert pfaffian_log_z(drawing, beta * j) == pytest.approx(expected, rel=1e-12)
        value, error = _log_sum(drawing, tree, beta * j, 1, 0)
        assert abs(value + math.log(2.0) + 18 * beta - expected) < error  # the error of doubles is known
    with pytest.raises(ValueError, match="rounding error of 104 bits"):
        pfaffian_log_z(drawing, 40.0 * j)


def test_couplings_too_strong_for_the_exponents_of_doubles():
    drawing = _cached_grid((4, 4), (False, False), False)
    j = 1e4 * np.random.default_rng(2).choice([-1.0, 1.0], drawing.couplings)
    with pytest.raises(ValueError, match=r"up to 1e\+04"):
        pfaffian_log_z(drawing, j)
    assert pfaffian_log_z(drawing, np.abs(j)) == pytest.approx(24e4 + math.log(2.0), rel=1e-15)


@pytest.mark.parametrize("shape", [(5, 5), (5, 6), (7, 6)])
def test_tori_are_recognised(shape):
    rng = np.random.default_rng(9)
    edges = edges_of(nx.grid_graph(shape[::-1], periodic=True))
    shuffled = rng.permutation(math.prod(shape))[edges][rng.permutation(len(edges))]
    diluted = edges[rng.random(len(edges)) < 0.8]
    for graph in (edges, shuffled, diluted):
        model = mg.from_edges(graph, n=math.prod(shape), coupling=rng.normal(size=len(graph)))
        assert lattice_of(model) is not None
        assert exact_log_z(model, method="pfaffian") == pytest.approx(
            exact_log_z(model, method="elimination"), rel=1e-12
        )


@pytest.mark.parametrize(
    "graph",
    [
        nx.complete_graph(5),
        nx.petersen_graph(),
        nx.random_regular_graph(3, 200, seed=1),
        nx.grid_graph((5, 5, 5)),
        nx.random_regular_graph(4, 60, seed=2),
    ],
)
def test_other_graphs_are_left_to_other_methods(graph):
    edges = edges_of(graph)
    model = mg.from_edges(edges)
    assert lattice_of(model) is None
    assert planar_of(model) is None
    with pytest.raises(ValueError, match="'planar' does not apply"):
        exact_log_z(model, method="planar")


def test_the_refusal_names_planarity():
    model = mg.from_edges(edges_of(nx.random_regular_graph(3, 400, seed=1)))
    with pytest.raises(ModelTooLarge, match="neither planar nor a torus"):
        exact_log_z(model, max_seconds=1.0)


def test_planar_graphs_have_no_dense_minor():
    rng = np.random.default_rng(3)
    corners = Delaunay(rng.random((2000, 2))).simplices
    edges = np.unique(np.sort(corners[:, [[0, 1], [1, 2], [0, 2]]].reshape(-1, 2), axis=1), axis=0)
    assert not _has_dense_minor(2000, edges)
    assert _has_dense_minor(1000, edges_of(nx.random_regular_graph(3, 1000, seed=1)))
    assert planar_drawing(1000, edges_of(nx.random_regular_graph(3, 1000, seed=1))) is None


def test_fields_on_the_whole_border_of_a_lattice():
    rng = np.random.default_rng(4)
    field = rng.normal(size=(5, 6))
    field[1:-1, 1:-1] = 0.0
    horizontal, vertical = rng.normal(size=(5, 6)), rng.normal(size=(5, 6))
    model = mg.ising_grid((5, 6), coupling=(horizontal, vertical), field=field)
    expected = transfer_log_z(field, horizontal, vertical, (False, False))
    assert exact_log_z(model, method="planar") == pytest.approx(expected, rel=1e-13)


@pytest.mark.study
@pytest.mark.parametrize("kind", ["signs", "normal"])
def test_large_tori_at_all_temperatures(kind):
    """128 x 128, half a minute to two minutes at β = 10: the same where spins are turned and the lattice is moved."""
    rng = np.random.default_rng(10)
    shape = 128, 128
    horizontal, vertical = (couplings(rng, kind, shape) for _ in range(2))
    turn = rng.choice([-1.0, 1.0], shape)
    turned = horizontal * turn * np.roll(turn, -1, 1), vertical * turn * np.roll(turn, -1, 0)
    for beta in (0.1, 0.5, 1.0, 3.0, 10.0):
        values = [
            exact_log_z(mg.ising_grid(shape, coupling=j, periodic=True, temperature=1.0 / beta), method="pfaffian")
            for j in ((horizontal, vertical), tuple(np.roll(x, (37, 50), (0, 1)) for x in turned))
        ]
        assert values[0] == pytest.approx(values[1], rel=1e-12)
