"""Graphs that are not bipartite: exact path sums, the two theorems, engines draw for draw, cross-checks."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from conftest import PathSums, log_weights, z_score
from hypothesis import given, settings
from hypothesis import strategies as st

import marginalis as mg
from marginalis.engines.plan import make_plan

BETAS = np.array([0.0, 0.15, 0.4, 0.7, 1.0])
GRAPHS = {
    "triangle": nx.complete_graph(3),
    "K4": nx.complete_graph(4),
    "wheel": nx.wheel_graph(5),
    "two triangles": nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)),
    "triangle with a tail": nx.lollipop_graph(3, 3),
}


def spins_on(graph, seed=0, units="spin", scale=1.0):
    rng = np.random.default_rng(seed)
    edges = [(list(graph).index(a), list(graph).index(b)) for a, b in graph.edges]
    coupling, field = rng.normal(scale=scale, size=len(edges)), rng.normal(scale=0.4, size=len(graph))
    return mg.from_edges(edges, coupling=coupling, field=field, n=len(graph), units=units)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("units", ["spin", "binary"])
@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_moments_are_those_of_all_paths(name, units, engine):
    model = spins_on(GRAPHS[name], units=units)
    assert not model.is_bipartite
    sums = PathSums(model, BETAS)
    for method, moments in (("mais", sums.mais_v()), ("ais", sums.ais())):
        plan = make_plan(model, method=method, schedule=BETAS, chains=20_000, seed=7, keep_whole=True)
        assert plan.method == method
        w = log_weights(plan, engine)
        assert abs(z_score(w, moments.mean_log)) < 4.5
        assert abs(z_score(np.exp(w), moments.mean)) < 4.5
        assert abs(z_score(np.exp(2 * w), moments.second)) < 4.5


@pytest.mark.parametrize("name", GRAPHS)
def test_both_theorems_hold_on_any_graph(name):
    """Theorem 1: the weights of mAIS vary less; theorem 2: the mean of ln W is nearer to ln Z."""
    for seed, units in itertools.product(range(5), ("spin", "binary")):
        sums = PathSums(spins_on(GRAPHS[name], seed, units, scale=1.5), BETAS)
        joint, marginal = sums.ais(), sums.mais_v()
        assert joint.mean == pytest.approx(marginal.mean)
        assert math.log(marginal.mean) == pytest.approx(sums.log_z - sums.log_z0)
        assert marginal.relvar <= joint.relvar * (1 + 1e-12)
        assert joint.mean_log <= marginal.mean_log + 1e-12 <= sums.log_z - sums.log_z0 + 1e-9


@pytest.mark.parametrize("units", ["spin", "binary"])
@pytest.mark.parametrize("density", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("options", [{}, {"base": "biases"}, {"method": "ais"}, {"base": "mean-field"}])
def test_the_kernel_takes_the_draws_of_the_reference(units, density, options):
    rng = np.random.default_rng(int(10 * density))
    n = 23
    j = np.triu(rng.normal(scale=0.5, size=(n, n)), 1) * (rng.random((n, n)) < density)
    model = mg.from_matrix(j, rng.normal(scale=0.3, size=n), units=units)
    plan, coarse = (make_plan(model, steps=30, chains=50, seed=3, precision=x, **options) for x in ("double", "single"))
    slow, fast, single = log_weights(plan, "numpy"), log_weights(plan, "numba"), log_weights(coarse, "numba")
    assert np.mean(np.abs(fast - slow) < 1e-9) >= 0.97
    assert np.mean(np.abs(single - slow) < 1e-3) >= 0.97


@settings(deadline=None)
@given(data=st.data())
def test_random_graphs_against_all_states(data):
    n = data.draw(st.integers(2, 7))
    pairs = list(itertools.combinations(range(n), 2))
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    units = data.draw(st.sampled_from(["spin", "binary"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    coupling, field = rng.normal(size=len(edges)), rng.normal(size=n)
    model = mg.from_edges(edges, coupling=coupling, field=field, n=n, units=units, temperature=1.3)
    values = (-1.0, 1.0) if units == "spin" else (0.0, 1.0)
    x = np.array(list(itertools.product(values, repeat=n)))
    energies = x @ field + sum((c * x[:, a] * x[:, b] for c, (a, b) in zip(coupling, edges, strict=True)), 0.0)
    log_z = np.logaddexp.reduce(energies / 1.3)
    assert mg.exact_log_z(model) == pytest.approx(log_z, rel=1e-9, abs=1e-9)
    estimate = mg.estimate(model, steps=50, chains=4000, seed=1)
    assert abs(estimate.log_z - log_z) < 4.5 * estimate.stderr + 1e-5


def decorated(edges, coupling, field):
    """The bipartite model with one more spin on every edge: cosh(2J) is what two like neighbours give it more."""
    n = len(field)
    j = np.abs(coupling)
    k = 0.5 * np.arccosh(np.exp(2.0 * j))  # Σ_t exp(k·t·(s ± s′)) = 2cosh(k(s ± s′)) = A·exp(±J s s′)
    links, couplings = [], []
    for e, ((a, b), c) in enumerate(zip(edges, coupling, strict=True)):
        links += [(a, n + e), (b, n + e)]
        couplings += [k[e], math.copysign(k[e], c)]
    constant = np.log(2.0 * np.sqrt(np.cosh(2.0 * k))).sum()
    model = mg.from_edges(links, coupling=couplings, field=[*field, *np.zeros(len(edges))])
    return model, float(constant)


def test_decoration_gives_the_same_log_z():
    rng = np.random.default_rng(4)
    graph = nx.random_regular_graph(4, 12, seed=1)
    edges = list(graph.edges)
    coupling, field = rng.normal(scale=0.4, size=len(edges)), rng.normal(scale=0.2, size=12)
    model, constant = decorated(edges, coupling, field)
    assert model.is_bipartite
    plain = mg.from_edges(edges, coupling=coupling, field=field)
    assert not plain.is_bipartite
    assert mg.exact_log_z(model) - constant == pytest.approx(mg.exact_log_z(plain), rel=1e-9)
    one, two = (mg.estimate(m, steps=200, chains=2000, seed=2) for m in (plain, model))
    assert abs(one.log_z - two.log_z + constant) < 4.5 * math.hypot(one.stderr, two.stderr)


def test_relabelling_changes_nothing():
    rng = np.random.default_rng(5)
    graph = nx.gnm_random_graph(14, 30, seed=3)
    for a, b in graph.edges:
        graph.edges[a, b]["coupling"] = rng.normal(scale=0.5)
    order = rng.permutation(14).tolist()
    other = nx.Graph()
    other.add_nodes_from(f"spin {i}" for i in order)
    other.add_edges_from((f"spin {a}", f"spin {b}", d) for a, b, d in graph.edges(data=True))
    one, two = mg.from_graph(graph), mg.from_graph(other)
    assert list(two.labels) == [f"spin {i}" for i in order]
    assert mg.exact_log_z(one) == pytest.approx(mg.exact_log_z(two), rel=1e-12)
    a, b = (mg.estimate(m, steps=100, chains=2000, seed=s) for s, m in enumerate((one, two)))
    assert abs(a.log_z - b.log_z) < 4.5 * math.hypot(a.stderr, b.stderr)


@pytest.mark.parametrize("units", ["categorical", "gaussian"])
def test_other_kinds_of_unit(units):
    rng = np.random.default_rng(8)
    n, edges = 7, list(nx.wheel_graph(7).edges)
    if units == "categorical":
        sizes = rng.integers(2, 5, size=n)
        pair = {(a, b): rng.normal(scale=0.6, size=(sizes[a], sizes[b])) for a, b in edges}
        model = mg.from_tables([rng.normal(size=q) for q in sizes], pair)
    else:
        model = mg.from_edges(
            edges,
            coupling=rng.normal(scale=0.3, size=len(edges)),
            field=rng.normal(size=n),
            units="gaussian",
            precision=rng.uniform(2.0, 3.0, size=n),
        )
    assert not model.is_bipartite
    exact = mg.exact_log_z(model)
    for method in ("mais", "ais"):
        plan = make_plan(model, method=method, steps=25, chains=64, seed=2, precision="double")
        slow, fast = (log_weights(plan, engine) for engine in ("numpy", "numba"))
        assert np.mean(np.abs(fast - slow) < 1e-9) >= 0.97
        result = mg.estimate(model, method=method, steps=60, chains=4000, seed=3)
        assert result.engine == "numba"
        assert abs(result.log_z - exact) < 4.5 * result.stderr


@pytest.mark.parametrize("method", ["mais", "ais"])
def test_the_reverse_process_has_its_exact_moments(method):
    model = spins_on(GRAPHS["wheel"], 3)
    sums = PathSums(model, BETAS)
    rng = np.random.default_rng(0)
    law = np.exp(sums.marginal(-1) - np.logaddexp.reduce(sums.marginal(-1)))
    start = sums.v_states[rng.choice(len(law), size=20_000, p=law)]
    moments = sums.reverse(method)
    plan = make_plan(model, method=method, schedule=BETAS, chains=20_000, keep_whole=True)
    for engine in ("numpy", "numba"):
        w = log_weights(plan.reversed(start), engine)
        assert abs(z_score(w, moments.mean_log)) < 4.5
        assert abs(z_score(np.exp(w), moments.mean)) < 4.5
