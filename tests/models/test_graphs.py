"""Constructors: every way to describe a model gives the model described, in the caller's order."""

import itertools
import math

import dimod
import networkx as nx
import numpy as np
import pytest
from conftest import brute_log_z, energy_of
from hypothesis import given, settings
from hypothesis import strategies as st

import marginalis as mg


def test_loops_are_named():
    for graph in (nx.Graph([("x", "x"), ("x", "y")]), nx.Graph([("a", "b"), ("b", "c"), ("c", "a"), ("x", "x")])):
        with pytest.raises(ValueError, match="the variable 'x' is coupled to itself"):
            mg.from_graph(graph)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_any_graph_is_split_without_couplings_inside(seed):
    """Two sides of a bipartite graph; of any other an independent set, and blocks of the rest; the energy is kept."""
    rng = np.random.default_rng(seed)
    graph = nx.gnm_random_graph(12, 18, seed=seed)
    for a, b in graph.edges:
        graph.edges[a, b]["coupling"] = rng.normal()
    model = mg.from_graph(graph)
    assert model.is_bipartite == nx.is_bipartite(graph)
    assert sorted([*model.split.visible, *model.split.hidden]) == list(range(12))
    blocks = [model.split.hidden, *(model.split.visible[block] for block in model.sweep)]
    assert all(graph.subgraph(block.tolist()).number_of_edges() == 0 for block in blocks)
    s = rng.choice([-1.0, 1.0], size=12)
    assert energy_of(model, s) == pytest.approx(-sum(j * s[a] * s[b] for a, b, j in graph.edges(data="coupling")))


def test_from_graph_keeps_the_callers_order():
    graph = nx.Graph()
    graph.add_node("z", field=0.5)
    graph.add_node("isolated", field=-1.5)
    graph.add_node("a")
    graph.add_edge("a", "z", coupling=-0.7)
    model = mg.from_graph(graph, temperature=2)
    assert model.split.visible.tolist() == [0, 1]
    assert model.split.hidden.tolist() == [2]

    def energy(s):
        return -(0.5 * s[0] - 1.5 * s[1] - 0.7 * s[0] * s[2]) / 2

    assert energy_of(model, np.array([1, -1, -1])) == energy([1, -1, -1])
    assert mg.exact_log_z(model) == pytest.approx(brute_log_z(energy, *[(-1, 1)] * 3))


def test_edges_in_any_form():
    edges = [(0, 1), (2, 1), (2, 3)]
    model = mg.from_edges(edges, coupling=[0.1, 0.2, 0.3], field=[1, 2, 3, 4], units="binary")

    def energy(x):
        return -(x @ [1, 2, 3, 4] + 0.1 * x[0] * x[1] + 0.2 * x[1] * x[2] + 0.3 * x[2] * x[3])

    assert mg.exact_log_z(model) == pytest.approx(brute_log_z(energy, *[(0, 1)] * 4))
    doubled = mg.from_edges([*edges, (1, 0)], coupling=[0.1, 0.2, 0.3, 0.1], field=[1, 2, 3, 4], units="binary")
    added = mg.from_edges(edges, coupling=[0.2, 0.2, 0.3], field=[1, 2, 3, 4], units="binary")
    assert mg.exact_log_z(doubled) == pytest.approx(mg.exact_log_z(added))
    alone = mg.from_edges([], field=0.3, n=3)
    assert mg.exact_log_z(alone) == pytest.approx(3 * math.log(2 * math.cosh(0.3)))
    assert mg.estimate(alone).stderr == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mg.from_edges([(0, 5)], n=3), "edges name variable 5, but there are only 3"),
        (lambda: mg.from_edges([(0, -1)]), "numbers start at 0"),
        (lambda: mg.from_edges([(0, 1, 2)]), "pairs"),
        (lambda: mg.from_edges([(0.5, 1)]), "pairs"),
        (lambda: mg.from_edges([(0, 1)], coupling=[1, 2]), "coupling has shape"),
        (lambda: mg.from_edges([(0, 1)], units="categorical:3"), "units"),
        (lambda: mg.from_edges([(0, 2**50)]), "number of variables"),
        (lambda: mg.from_graph(None), "networkx"),
        (lambda: mg.from_bqm(None), "dimod"),
        (lambda: mg.from_bqm(dimod.QuadraticModel({"a": 1}, {}, 0, {"a": "SPIN"})), "bqm is a QuadraticModel"),
        (lambda: mg.from_bqm(dimod.ConstrainedQuadraticModel()), "bqm is a ConstrainedQuadraticModel"),
        (lambda: mg.from_bqm(dimod.DiscreteQuadraticModel()), "bqm is a DiscreteQuadraticModel"),
        (lambda: mg.from_edges([(0, 2**31 - 1)], n=2**63), "n is 9223372036854775808; it must be at most"),
        (lambda: mg.ising_grid((2**31, 2**31)), "would not fit the memory"),
        (lambda: mg.from_tables(5, {}), "unary is 5"),
        (lambda: mg.from_tables([[0, 0]], {0: 1}), "pairs"),
        (lambda: mg.dbm(5, 6), "lists"),
        (lambda: mg.rbm([[1.0]], [0], [0], units=None), "units is None"),
        (lambda: mg.estimate(mg.rbm([[1.0]], [0], [0]), base=5), "base is 5; it must be one of"),
        (lambda: mg.exact_log_z(None), "model is a NoneType"),
        (lambda: mg.exact_log_z(mg.rbm([[1.0]], [0], [0]), max_seconds="a"), "max_seconds"),
        (lambda: mg.rbm(np.ma.array([[1.0, 2.0]], mask=[[1, 0]]), [0], [0, 0]), "masked"),
        (lambda: mg.from_graph(nx.Graph()), "no nodes"),
        (lambda: mg.potts([(0, 1)], 1), "q is 1; it must be at least 2"),
        (lambda: mg.potts([(0, 1)], 3, field=[1, 2]), "field has shape"),
        (lambda: mg.potts_grid((2, 2), 1), "q is 1"),
        (
            lambda: mg.from_tables([[0, 0], [0, 0, 0]], {(0, 1): np.zeros((2, 2))}),
            r"pair\[0, 1\] has shape \(2, 2\)",
        ),
        (lambda: mg.from_tables([[0, 0], [0]], {}), r"unary\[1\] has one state"),
        (lambda: mg.from_tables([[0, 0], [0, 0]], {(0, 2): np.zeros((2, 2))}), "edges name variable 2"),
        (lambda: mg.from_tables([[0, 0]] * 2, {(0, 1): np.eye(2), (1, 0): np.eye(2)}), "and another"),
        (lambda: mg.dbm([np.ones((2, 3))], [np.zeros(2)]), "one more bias"),
        (lambda: mg.dbm([np.ones((2, 3))], [np.zeros(2), np.zeros(2)]), r"weights\[0\] has shape"),
        (lambda: mg.dbm([np.ones((2, 2))], [np.zeros(2), np.zeros(2)], units="gaussian"), "units"),
    ],
)
def test_bad_graphs(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_zero_couplings_are_no_edges():
    """A triangle with one coupling of zero is a chain."""
    bqm = dimod.BinaryQuadraticModel({}, {"ab": 1.0, "bc": -0.5, "ca": 0.0}, "SPIN")
    assert mg.exact_log_z(mg.from_bqm(bqm)) == pytest.approx(
        3 * math.log(2) + math.log(math.cosh(1)) + math.log(math.cosh(0.5))
    )


def test_large_parts_are_annealed_not_refused():
    """Two copies of a Potts graph whose elimination would need gigabytes: sampled, as one copy is."""
    edges = [(a, 4 + b) for a in range(4) for b in range(4)][:-1]
    model = mg.potts(edges + [(a + 8, b + 8) for a, b in edges], 30, coupling=0.1)
    r = mg.estimate(model, steps=3, chains=50)
    assert r.stderr > 0
    gaussian = mg.rbm(np.diag([0.3, 0.5]), [1, 2], [0.5, 0], units="gaussian")
    assert mg.estimate(gaussian).stderr == 0


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_from_bqm(vartype):
    """dimod's energies are costs: ln Z = ln Σ exp(−E/T), offset included."""
    rng = np.random.default_rng(3)
    graph = nx.grid_2d_graph(2, 4)
    linear = {node: rng.normal() for node in graph}
    quadratic = {edge: rng.normal() for edge in graph.edges}
    bqm = dimod.BinaryQuadraticModel(linear, quadratic, 1.25, vartype)
    model = mg.from_bqm(bqm, temperature=0.7)
    samples = dimod.ExactSolver().sample(bqm)
    expected = np.logaddexp.reduce(-samples.record.energy / 0.7)
    assert mg.exact_log_z(model) == pytest.approx(expected, rel=1e-12)
    r = mg.estimate(model, steps=100, chains=2000)
    assert abs(r.log_z - expected) < 4.5 * r.stderr


def test_potts_and_tables_against_brute_force():
    rng = np.random.default_rng(1)
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)]
    coupling, field = rng.normal(size=5), rng.normal(size=(5, 3))

    def energy(x):
        return (
            -(
                sum(field[i, x[i]] for i in range(5))
                + sum(j for j, (a, b) in zip(coupling, edges, strict=True) if x[a] == x[b])
            )
            / 0.5
        )

    expected = brute_log_z(energy, *[range(3)] * 5)
    model = mg.potts(edges, 3, coupling=coupling, field=field, temperature=0.5)
    assert mg.exact_log_z(model) == pytest.approx(expected, rel=1e-12)
    tables = {edge: j * np.eye(3) for edge, j in zip(edges, coupling, strict=True)}
    assert mg.exact_log_z(mg.from_tables(field, tables, temperature=0.5)) == pytest.approx(expected, rel=1e-12)

    sizes = [2, 3, 4, 2]
    unary = [rng.normal(size=q) for q in sizes]
    pair = {(a, b): rng.normal(size=(sizes[a], sizes[b])) for a, b in [(1, 0), (1, 2), (3, 2)]}

    def table_energy(x):
        return -sum(phi[i] for phi, i in zip(unary, x, strict=True)) - sum(
            psi[x[a], x[b]] for (a, b), psi in pair.items()
        )

    model = mg.from_tables(unary, pair)
    assert mg.exact_log_z(model) == pytest.approx(brute_log_z(table_energy, *map(range, sizes)), rel=1e-12)
    assert mg.exact_log_z(mg.from_tables([[0.1, 0.2, 0.3]], {})) == pytest.approx(np.logaddexp.reduce([0.1, 0.2, 0.3]))


def test_dbm_layers_and_order():
    rng = np.random.default_rng(0)
    sizes = [3, 2, 4, 2]
    w = [rng.normal(size=(a, b)) for a, b in itertools.pairwise(sizes)]
    b = [rng.normal(size=n) for n in sizes]
    for units, values in (("binary", (0, 1)), ("spin", (-1, 1))):
        model = mg.dbm(w, b, units=units, temperature=1.5)
        for _ in range(5):
            x = rng.choice(values, size=11).astype(float)
            layers = np.split(x, np.cumsum(sizes)[:-1])
            e = (
                -(
                    sum(p @ q for p, q in zip(b, layers, strict=True))
                    + sum(p @ m @ q for p, m, q in zip(layers, w, layers[1:], strict=False))
                )
                / 1.5
            )
            assert energy_of(model, x) == pytest.approx(e)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_result_does_not_depend_on_names_or_direction(seed):
    """Relabelling the variables of a graph, or reversing the layers of a DBM, leaves ln Z alone."""
    rng = np.random.default_rng(seed)
    edges = np.array([(a, b) for a in range(4) for b in range(4, 9) if rng.random() < 0.5] or [(0, 4)])
    coupling, field = rng.normal(size=len(edges)), rng.normal(size=9)
    names = rng.permutation(9)
    relabelled = np.empty(9)
    relabelled[names] = field
    first = mg.from_edges(edges, coupling=coupling, field=field, n=9)
    second = mg.from_edges(names[edges][:, ::-1], coupling=coupling, field=relabelled, n=9)
    assert mg.exact_log_z(first) == pytest.approx(mg.exact_log_z(second), rel=1e-11, abs=1e-11)
    w = [rng.normal(size=(3, 4)), rng.normal(size=(4, 2))]
    b = [rng.normal(size=n) for n in (3, 4, 2)]
    up, down = mg.dbm(w, b), mg.dbm([x.T for x in w[::-1]], b[::-1])
    assert mg.exact_log_z(up) == pytest.approx(mg.exact_log_z(down), rel=1e-12, abs=1e-12)


def test_disconnected_parts_add_no_variance():
    """Isolated variables and small parts are summed exactly: the error is that of the large part alone."""
    rng = np.random.default_rng(2)
    big = [(a, 20 + b) for a in range(20) for b in range(20)]
    extra = [(40, 41), (41, 42), (43, 44)]  # and 45 … 49 have no edge
    coupling = np.concatenate([0.1 * rng.normal(size=400), 2 * rng.normal(size=3)])
    field = np.concatenate([np.zeros(40), 3 * rng.normal(size=10)])
    alone = mg.from_edges(big, coupling=coupling[:400])
    model = mg.from_edges(big + extra, coupling=coupling, field=field, n=50)
    options = dict(steps=30, chains=500, method="mais-v")
    one, all_of_it = mg.estimate(alone, **options), mg.estimate(model, **options)
    assert all_of_it.stderr == pytest.approx(one.stderr, rel=1e-5)
    rest = mg.from_edges([(0, 1), (1, 2), (3, 4)], coupling=coupling[400:], field=field[40:], n=10)
    assert all_of_it.log_z - one.log_z == pytest.approx(mg.exact_log_z(rest), abs=1e-4)
    assert mg.estimate(rest).stderr == 0
    ais = mg.estimate(model, **(options | dict(method="ais", base="biases")))
    assert abs(ais.log_z - mg.exact_log_z(model)) < 4.5 * ais.stderr


def test_zero_weights_are_no_edges():
    """A dense RBM with an unconnected unit, a unit type of its own, and an offset."""
    model = mg.rbm([[0.3, 0.0], [0.0, 0.0]], [0.1, 2.0], [0.2, 5.0], units=("binary", "spin"))
    r = mg.estimate(model, steps=20, chains=200)
    assert abs(r.log_z - mg.exact_log_z(model)) < 4.5 * r.stderr
    assert r.stderr < 0.01


def graph_of(edge=(), node=(), kind=nx.Graph):
    """A path of three nodes whose two edges, and whose nodes, have these attributes."""
    graph = kind()
    graph.add_nodes_from("abc", **dict(node))
    graph.add_edges_from([("a", "b"), ("b", "c")], **dict(edge))
    return graph


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_attributes_are_chosen_by_name(kind):
    graph = graph_of(dict(J=-0.7, colour="red", coupling=9.0), dict(h=0.4, pos=(0, 1)), kind)
    expected = mg.exact_log_z(mg.from_edges([(0, 1), (1, 2)], coupling=-0.7, field=0.4))
    assert mg.exact_log_z(mg.from_graph(graph, coupling="J", field="h")) == pytest.approx(expected)
    bare = mg.exact_log_z(mg.from_edges([(0, 1), (1, 2)]))
    for same in (graph_of(), graph_of(dict(colour="red", seen=True), dict(bipartite=1, pos=(0, 1)))):
        assert mg.exact_log_z(mg.from_graph(same)) == pytest.approx(bare)
    assert mg.exact_log_z(mg.from_graph(graph, coupling=None, field=None)) == pytest.approx(bare)


@pytest.mark.parametrize(
    ("edge", "node", "options", "message"),
    [
        (dict(weight=2.0), {}, {}, "edges without the attribute 'coupling' but with 'weight'"),
        (dict(J=np.float32(2), K=1), {}, {}, "but with 'J', 'K'"),
        (dict(J=2.0), {}, dict(coupling="K"), "edges without the attribute 'K' but with 'J'"),
        ({}, dict(h=0.5), {}, "nodes without the attribute 'field' but with 'h'"),
        (dict(J=2.0), dict(h=0.5), dict(coupling="J"), "nodes without .* as in field='h'"),
        ({}, {}, dict(coupling="J"), "coupling is 'J', an attribute that no edge has"),
        ({}, {}, dict(field="h"), "field is 'h', an attribute that no node has"),
        ({}, {}, dict(coupling=2.0), "coupling is 2.0; it must name an attribute of the edges"),
        (dict(coupling="2"), {}, {}, "edge attribute coupling has dtype"),
        (dict(coupling=np.nan), {}, {}, "edge attribute coupling holds NaN"),
        (dict(J=None), {}, dict(coupling="J"), "edge attribute J has dtype object"),
    ],
)
def test_numbers_that_nobody_reads_are_an_error(edge, node, options, message):
    with pytest.raises(ValueError, match=message):
        mg.from_graph(graph_of(edge, node), **options)


def test_an_edge_without_its_coupling_is_not_one():
    """Some edges have the coupling, another has its number under another name."""
    graph = nx.Graph()
    graph.add_edge(0, 1, coupling=0.5)
    graph.add_edge(1, 2, weight=0.5)
    with pytest.raises(ValueError, match="but with 'weight'"):
        mg.from_graph(graph)


def test_parallel_bonds_add():
    graph = nx.MultiGraph()
    graph.add_edges_from([("a", "b", dict(coupling=0.5)), ("b", "a", dict(coupling=0.25)), ("a", "b", {})])
    expected = math.log(4 * math.cosh(1.75))
    assert mg.exact_log_z(mg.from_graph(graph)) == pytest.approx(expected)
    edges, coupling = [(0, 1), (1, 0), (0, 1)], [0.5, 0.25, 1.0]
    assert mg.exact_log_z(mg.from_edges(edges, coupling=coupling)) == pytest.approx(expected)
    one, many = mg.potts([(0, 1)], 3, coupling=1.75), mg.potts(edges, 3, coupling=coupling)
    assert mg.exact_log_z(many) == pytest.approx(mg.exact_log_z(one))
    gone = mg.from_edges([(0, 1), (0, 1), (1, 2), (2, 0)], coupling=[1, -1, 1, 1])  # no triangle is left
    assert mg.exact_log_z(gone) == pytest.approx(math.log(8 * math.cosh(1) ** 2))
    with pytest.raises(ValueError, match="edges from 'a' to 'b' and back"):
        mg.from_graph(graph_of(kind=nx.Graph).to_directed())
