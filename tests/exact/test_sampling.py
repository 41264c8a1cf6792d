"""Exact samples against exact probabilities and moments, one way at a time."""

import math

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import assert_moments, random_rbm, states, z_score
from scipy.stats import chisquare

import marginalis as mg
from marginalis.exact import enumeration, sampling
from marginalis.exact.elimination import eliminate_log_z
from marginalis.exact.ordering import table_entries
from marginalis.exact.sampling import WAYS, sample_visible
from marginalis.exact.structure import ordered_factors
from marginalis.models.model import MRF
from marginalis.models.units import parse_units

DISCRETE = {  # units, and features of the two sides
    "spin": (("spin", "spin"), 3, 4),
    "binary": (("binary", "spin"), 4, 3),
    "binary hidden": (("spin", "binary"), 5, 2),
    "categorical": (("categorical:3", "binary"), 6, 4),
    "categorical hidden": (("binary", "categorical:4"), 5, 8),
    "unequal": (("categorical:2,3,4", "spin"), 9, 5),
    "unequal hidden": (("categorical:4,2", "categorical:3,2"), 6, 5),
}


def sample(model, way, count, first=0, seed=7):
    return sampling.draw(model, WAYS[way](model), seed, np.arange(first, first + count, dtype=np.uint64))


def visible_law(model):
    """All states of the visible side and their probabilities."""
    natural = model.natural
    v = states(model.visible_units, len(model.visible_bias))
    log_p = v @ natural.visible_bias + natural.hidden_units.log_normaliser(natural.hidden_bias + v @ natural.weights)
    if natural.lateral is not None:
        log_p = log_p + 0.5 * np.einsum("ki,ki->k", v @ natural.lateral, v)
    return v, np.exp(log_p - np.logaddexp.reduce(log_p))


def p_value(rows, model):
    """Pearson's test of the frequencies of the states; those expected less than five times count together."""
    v, p = visible_law(model)
    found = {tuple(row): k for k, row in enumerate(v)}
    counts = np.bincount([found[tuple(row)] for row in rows], minlength=len(v))
    rare = len(rows) * p < 5
    observed, expected = (np.append(x[~rare], x[rare].sum()) for x in (counts, len(rows) * p))
    if expected[-1] < 5:  # too few to be compared; that many there may be
        assert observed[-1] < 30
        observed, expected = observed[:-1], expected[:-1] * observed[:-1].sum() / expected[:-1].sum()
    return chisquare(observed, expected).pvalue if len(observed) > 1 else 1.0


@pytest.mark.parametrize("temperature", [1.0, 0.05])
@pytest.mark.parametrize("way", ["enumeration", "elimination"])
@pytest.mark.parametrize("kind", DISCRETE)
def test_frequencies_of_exact_samples(kind, way, temperature):
    units, n, m = DISCRETE[kind]
    model = random_rbm(np.random.default_rng(1), n, m, units=units, scale=0.6, temperature=temperature)
    rows = sample(model, way, 20_000)
    assert rows.dtype == np.float64
    assert p_value(rows, model) > 1e-5


@pytest.mark.parametrize("log2_chunk", [6, 8, 10])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
@pytest.mark.parametrize("units", ["spin", "binary", ("binary", "spin"), ("spin", "binary")])
@pytest.mark.parametrize(("n", "m"), [(7, 9), (12, 8)])
def test_frequencies_of_samples_from_sums_in_chunks(monkeypatch, units, n, m, temperature, log2_chunk):
    monkeypatch.setattr(sampling, "_LOG2_CHUNK", log2_chunk)
    model = random_rbm(np.random.default_rng(2), n, m, units=units, scale=0.4, temperature=temperature)
    rows, log_z = sampling.enumerated_states(model, 7, np.arange(20_000, dtype=np.uint64), 2, 100.0)
    assert log_z == pytest.approx(mg.exact_log_z(model), rel=1e-9)
    assert p_value(rows, model) > 1e-5
    # A row depends on the number of its chain alone.
    some = sampling.enumerated_states(model, 7, np.arange(50, 60, dtype=np.uint64), 1, 100.0)[0]
    assert np.array_equal(some, rows[50:60])


def test_many_states_are_sampled_from_sums_in_chunks(monkeypatch):
    model = random_rbm(np.random.default_rng(3), 9, 11, scale=0.4)
    one_by_one = sample(model, "enumeration", 20_000)
    monkeypatch.setattr(sampling, "_MOST_STATES", 8.0)
    rows = sample(model, "enumeration", 20_000)
    assert not np.array_equal(rows, one_by_one)  # The states have another order.
    assert p_value(rows, model) > 1e-5
    assert sampling.enumerated_states(model, 0, np.arange(10, dtype=np.uint64), 1, 0.0) is None  # There is no time.
    graph = mg.from_graph(nx.wheel_graph(9))
    assert sampling.enumerated_states(graph, 0, np.arange(10, dtype=np.uint64), 1, 100.0) is None


GRAPHS = {
    "K4": nx.complete_graph(4),
    "wheel": nx.wheel_graph(6),
    "lattice": nx.triangular_lattice_graph(2, 3),
    "two parts": nx.disjoint_union_all([nx.complete_graph(3), nx.complete_graph(4), nx.empty_graph(1)]),
}


@pytest.mark.parametrize("way", ["enumeration", "elimination"])
@pytest.mark.parametrize("units", ["spin", "binary", "categorical:3"])
@pytest.mark.parametrize("name", GRAPHS)
def test_frequencies_on_any_graph(name, units, way):
    rng = np.random.default_rng(21)
    graph = nx.convert_node_labels_to_integers(GRAPHS[name])
    n, edges = len(graph), list(graph.edges)
    coupling = rng.normal(size=len(edges))
    if units == "categorical:3":
        model = mg.potts(edges, 3, n=n, coupling=coupling, field=rng.normal(size=(n, 3)))
    else:
        model = mg.from_edges(edges, n=n, coupling=coupling, field=rng.normal(size=n), units=units)
    assert not model.is_bipartite
    assert p_value(sample(model, way, 20_000), model) > 1e-5


@pytest.mark.parametrize("at_once", [1, 7])
@pytest.mark.parametrize("form", [np.array, sp.csr_array])
def test_coupled_states_come_in_pieces(monkeypatch, at_once, form):
    rng = np.random.default_rng(22)
    lateral = np.triu(rng.normal(size=(6, 6)), 1)
    sides = form(rng.normal(size=(6, 3))), rng.normal(size=6), rng.normal(size=3)
    model = MRF(*sides, lateral=form(lateral + lateral.T))
    _, p = visible_law(model)
    monkeypatch.setattr(enumeration, "_STATES_AT_ONCE", at_once)
    log_p = np.concatenate(list(enumeration.log_marginals(model)))
    assert np.exp(log_p - np.logaddexp.reduce(log_p)) == pytest.approx(p)


@pytest.mark.parametrize("units", ["spin", "categorical:2"])
def test_coupled_states_against_gaussians(units):
    """Discrete variables coupled to each other, with a Gaussian hidden side; the other way round there is no way."""
    rng = np.random.default_rng(23)
    gauss, discrete = parse_units("gaussian", 3), parse_units(units, 6)
    owners = discrete.owners(6)
    lateral = np.triu(rng.normal(size=(6, 6)) * (owners[:, None] != owners))
    w, b, c = 0.4 * rng.normal(size=(6, 3)), rng.normal(size=6), rng.normal(size=3)
    model = MRF(w, b, c, discrete, gauss, lateral=lateral + lateral.T)
    assert p_value(sample(model, "enumeration", 20_000), model) > 1e-5
    lateral = 0.3 * (np.ones((3, 3)) - np.identity(3))
    turned = MRF(w.T, c, b, gauss, discrete, lateral=lateral)
    assert sample_visible(turned, 0, np.arange(5, dtype=np.uint64)) is None


@pytest.mark.parametrize(("n", "m", "uniforms"), [(4, 3, 6), (3, 4, 2)])
def test_the_cheaper_side_is_enumerated(n, m, uniforms):
    model = random_rbm(np.random.default_rng(2), n, m)
    assert WAYS["enumeration"](model).uniforms == uniforms
    assert p_value(sample(model, "enumeration", 20_000), model) > 1e-5


@pytest.mark.parametrize("units", ["spin", "binary", "categorical:2"])
def test_gaussian_hidden_side(units):
    model = random_rbm(np.random.default_rng(3), 4, 5, units=(units, "gaussian"), scale=0.5)
    assert p_value(sample(model, "enumeration", 20_000), model) > 1e-5


@pytest.mark.parametrize("units", ["spin", "categorical:3"])
def test_gaussian_visible_side(units):
    """A mixture of normals, one for each state of the hidden side."""
    rng = np.random.default_rng(4)
    precision = np.array([0.5, 1.0, 2.0, 4.0])
    model = mg.rbm(
        rng.normal(size=(4, 3)),
        rng.normal(size=4),
        rng.normal(size=3),
        units=("gaussian", units),
        visible_precision=precision,
        temperature=1.5,
    )
    h, p = visible_law(model.transposed())
    centres = (model.visible_bias + h @ model.weights.T) / precision
    rows = sample(model, "enumeration", 20_000)
    assert_moments(rows, p @ centres, centres.T @ (p[:, None] * centres))
    second = p @ centres**2 + 1.5 / precision
    assert all(abs(z_score(rows[:, i] ** 2, second[i])) < 4.5 for i in range(4))


@pytest.mark.parametrize(("n", "m"), [(12, 30), (30, 11)])
def test_moments_of_a_larger_side(n, m):
    model = random_rbm(np.random.default_rng(5), n, m, scale=0.25)
    if n < m:
        v, p = visible_law(model)
        mean, second = p @ v, v.T @ (p[:, None] * v)
    else:
        h, p = visible_law(model.transposed())
        given = np.tanh(model.visible_bias + h @ model.weights.T)
        mean, second = p @ given, given.T @ (p[:, None] * given)
    assert_moments(sample(model, "enumeration", 4000), mean, second)


@pytest.mark.parametrize("form", [np.array, sp.csr_array])
@pytest.mark.parametrize("at_once", [1, 5])
@pytest.mark.parametrize("kind", DISCRETE)
def test_states_come_in_pieces(monkeypatch, kind, at_once, form):
    """However many states are taken together, all come, in the same order."""
    monkeypatch.setattr(enumeration, "_STATES_AT_ONCE", at_once)
    units, n, m = DISCRETE[kind]
    dense = random_rbm(np.random.default_rng(16), n, m, units=units, temperature=0.5)
    model = mg.rbm(form(dense.weights), dense.visible_bias, dense.hidden_bias, units=units, temperature=0.5)
    pieces = list(enumeration.log_marginals(model))
    assert max(map(len, pieces)) <= at_once
    log_p = np.concatenate(pieces) - mg.exact_log_z(dense)
    assert np.exp(log_p) == pytest.approx(visible_law(dense)[1])


def test_states_take_the_digits_of_two_uniforms():
    sampler = WAYS["enumeration"](mg.rbm(np.zeros((1, 2)), [0.0], [0.0, 0.0])).prepare()
    assert sampler(np.array([[0.5, 0.25], [0.5, 0.75]])).tolist() == [[-1.0], [1.0]]


def test_a_state_without_probability_is_never_drawn():
    sampler = WAYS["enumeration"](mg.rbm(np.zeros((2, 3)), [-500.0, -500.0], np.zeros(3))).prepare()
    ends = np.array([[2.0**-33, 2.0**-33], [1 - 2.0**-33, 1 - 2.0**-33]])
    assert sampler(ends).tolist() == [[-1.0, -1.0]] * 2
    sampler = WAYS["enumeration"](mg.rbm(np.zeros((2, 3)), [500.0, 500.0], np.zeros(3))).prepare()
    assert sampler(ends).tolist() == [[1.0, 1.0]] * 2


@pytest.mark.parametrize("form", [np.array, sp.csr_array])
def test_parts_and_isolated_variables(form):
    rng = np.random.default_rng(6)
    w = np.zeros((6, 5))
    w[0, 0], w[1, 0], w[1, 1], w[2, 2], w[3, 2], w[2, 3], w[3, 3] = rng.normal(size=7)  # a chain, a ring, four alone
    model = mg.rbm(form(w), rng.normal(size=6), rng.normal(size=5))
    for way in ("elimination", "enumeration"):
        assert p_value(sample(model, way, 20_000), model) > 1e-5


def test_conditional_laws_are_those_of_the_order():
    """As many entries as was reckoned beforehand, each a probability."""
    model = mg.ising_grid((4, 5), temperature=2.0)
    parts, order, _ = ordered_factors(model)
    laws = []
    assert eliminate_log_z(*parts, order, laws) == pytest.approx(mg.exact_log_z(model))
    assert [law.variable for law in laws] == order
    assert 2 * sum(law.below.size for law in laws) == table_entries(parts.edges, parts.cards, order)
    assert all((law.below >= 0).all() and (law.below <= 1).all() for law in laws)


def test_samples_of_a_lattice_have_exact_correlations():
    """The mean energy of a 5 × 20 lattice in a field, the white sites averaged given the black ones."""

    def lattice(beta):
        return mg.ising_grid((5, 20), coupling=0.4, field=0.05, temperature=1.0 / beta)

    model = lattice(1.0)
    v, way = sample_visible(model, 3, np.arange(4000, dtype=np.uint64))
    assert way == "elimination"
    fields = model.hidden_bias + v @ model.weights
    exponent = v @ model.visible_bias + (fields * np.tanh(fields)).sum(axis=1)
    step = 1e-4
    expected = (mg.exact_log_z(lattice(1 + step)) - mg.exact_log_z(lattice(1 - step))) / (2 * step)
    assert abs(z_score(exponent, expected)) < 4.5


def test_frustrated_lattice_at_low_temperature():
    """Every sample is a ground state, and they are about equally frequent."""
    bonds = np.random.default_rng(11).choice([-1.0, 1.0], size=(2, 3, 4))
    model = mg.ising_grid((3, 4), coupling=(bonds[0], bonds[1]), temperature=0.05)
    rows = sample(model, "elimination", 20_000)
    assert p_value(rows, model) > 1e-5
    log_p = np.log(visible_law(model)[1])
    assert (log_p > log_p.max() - 10).sum() > 1


def tree(n, seed):
    """A random tree, variable i hanging on an earlier one: the model, and the coupling of each i ≥ 1."""
    rng = np.random.default_rng(seed)
    coupling = rng.normal(size=n)
    parents = [int(rng.integers(max(0, i - 20), i)) for i in range(1, n)]
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from((a, i, {"coupling": coupling[i]}) for i, a in enumerate(parents, start=1))
    return mg.from_graph(graph), [-1, *parents], coupling


def test_tree_without_fields():
    """Along a path the correlation is the product of tanh J: here from a variable to its grandparent."""
    n = 2000
    model, parents, coupling = tree(n, 8)
    v, way = sample_visible(model, 1, np.arange(500, dtype=np.uint64))
    assert way == "elimination"
    at = {int(number): k for k, number in enumerate(model.split.visible)}
    paths = [(i, parents[i], parents[parents[i]]) for i in range(1, n) if parents[i] > 0 and i in at]
    products = np.stack([v[:, at[i]] * v[:, at[k]] for i, _, k in paths], axis=1)
    expected = np.array([math.tanh(coupling[i]) * math.tanh(coupling[j]) for i, j, _ in paths])
    assert abs(z_score((products - expected).mean(axis=1), 0.0)) < 4.5
    assert abs(z_score((products * expected).sum(axis=1), (expected**2).sum())) < 4.5


def test_tree_with_fields():
    """The mean of a random sum of the visible spins is a derivative of ln Z."""
    bare, _, _ = tree(2000, 9)
    rng = np.random.default_rng(10)
    b, c, r = rng.normal(size=bare.n_visible), rng.normal(size=bare.n_hidden), rng.normal(size=bare.n_visible)

    def with_fields(shift):
        return mg.rbm(bare.weights, b + shift * r, c, temperature=0.5)

    v, _ = sample_visible(with_fields(0.0), 1, np.arange(500, dtype=np.uint64))
    step = 1e-3
    expected = 0.5 * (mg.exact_log_z(with_fields(step)) - mg.exact_log_z(with_fields(-step))) / (2 * step)
    assert abs(z_score(v @ r, expected)) < 4.5
