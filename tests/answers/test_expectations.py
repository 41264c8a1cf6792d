"""Mean values against sums over all states, their errors against their scatter."""

import itertools
import json

import networkx as nx
import numpy as np
import pytest
from conftest import dense, random_rbm, states

import marginalis as mg
from marginalis.answers.exact_means import factor_marginals
from marginalis.models.units import Gaussian


def graph_model(rng):
    """Nine spins on a graph with odd cycles, labelled against the order of their numbers."""
    graph = nx.relabel_nodes(nx.gnp_random_graph(9, 0.5, seed=1), {i: f"n{8 - i}" for i in range(9)})
    for a, b in graph.edges:
        graph.edges[a, b]["coupling"] = rng.normal()
    for a in graph:
        graph.nodes[a]["field"] = 0.3 * rng.normal()
    return mg.from_graph(graph)


def gaussian_binary(rng):
    w, b, c = 0.6 * rng.normal(size=(5, 4)), rng.normal(size=5), rng.normal(size=4)
    return mg.rbm(w, b, c, units=("gaussian", "binary"), visible_precision=rng.uniform(0.8, 2.0, 5))


MODELS = {
    "spin": lambda rng: random_rbm(rng, 5, 7, scale=0.7, temperature=1.3),
    "binary": lambda rng: random_rbm(rng, 7, 4, units="binary"),
    "categorical": lambda rng: random_rbm(rng, 6, 6, units="categorical:3", scale=0.7),
    "mixed": lambda rng: random_rbm(rng, 4, 6, units=("binary", "categorical:3")),
    "gaussian-binary": gaussian_binary,
    "graph": graph_model,
    "grid": lambda rng: mg.ising_grid((3, 4), coupling=0.5, field=0.2, temperature=1.5),
    "dbm": lambda rng: mg.dbm(
        [rng.normal(size=(4, 3)), rng.normal(size=(3, 3))], [rng.normal(size=k) for k in (4, 3, 3)]
    ),
    "potts": lambda rng: mg.potts_grid((2, 3), 3, coupling=0.8),
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param](np.random.default_rng(7))


def brute(model):
    """Probabilities of all states of a discrete model, and the states in the caller's order."""
    v = states(model.visible_units, len(model.visible_bias))
    h = states(model.hidden_units, len(model.hidden_bias))
    log_p = (v @ model.visible_bias)[:, None] + h @ model.hidden_bias + v @ dense(model.weights) @ h.T
    if model.lateral is not None:
        log_p += 0.5 * ((v @ dense(model.lateral)) * v).sum(axis=1)[:, None]
    p = np.exp((log_p - log_p.max()) / model.temperature).ravel()
    rows = np.empty((len(p), model.n_features))
    at_v, at_h = model.callers_features()
    rows[:, at_v], rows[:, at_h] = np.repeat(v, len(h), axis=0), np.tile(h, (len(v), 1))
    return p / p.sum(), rows


def scores(got, exact):
    return np.concatenate(
        [(got.means - exact.means) / got.mean_errors, (got.correlations - exact.correlations) / got.correlation_errors]
    )


def test_exact_is_the_sum_over_all_states(model):
    got = mg.expectations(model, exact=True)
    assert got.is_exact
    assert got.warnings == ()
    assert not got.mean_errors.any()
    if isinstance(model.visible_units, Gaussian):  # integrated out first
        gamma, h = model.visible_units.gamma, states(model.hidden_units, len(model.hidden_bias))
        fields = model.visible_bias + h @ model.weights.T
        p = np.exp(h @ model.hidden_bias + (0.5 * fields**2 / gamma).sum(axis=1))
        p /= p.sum()
        assert np.abs(got.means - p @ np.concatenate([fields / gamma, h], axis=1)).max() < 1e-12
        products = np.einsum("k,ki,kj->ij", p, fields / gamma, h)
        assert np.abs(got.correlations - products.ravel()).max() < 1e-12
        return
    p, rows = brute(model)
    assert np.abs(got.means - p @ rows).max() < 1e-12
    a, b = got.pairs.T
    assert np.abs(got.correlations - p @ (rows[:, a] * rows[:, b])).max() < 1e-12
    assert len(got.pairs) == np.count_nonzero(dense(model.weights)) + (
        0 if model.lateral is None else np.count_nonzero(dense(model.lateral)) // 2
    )
    for i, law in enumerate(got.marginals):
        own = np.flatnonzero(got.features.owners == i)
        wanted = p @ rows[:, own]
        if len(own) == 1:
            low, high = np.unique(rows[:, own])
            wanted = [p @ (rows[:, own[0]] == low), p @ (rows[:, own[0]] == high)]
        assert np.abs(law - wanted).max() < 1e-12


@pytest.mark.parametrize(
    "options", [{"steps": 30}, {"steps": 30, "resample": 0.9, "populations": 50}, {"method": "ais"}]
)
def test_chains_agree_with_exact_values(model, options):
    if options.get("method") == "ais":
        options = {"method": "ais", "steps": 60}
    exact = mg.expectations(model, exact=True)
    got = mg.expectations(model, exact=False, chains=500, seed=3, **options)
    assert not got.is_exact
    assert (got.mean_errors > 0).all()
    assert np.abs(scores(got, exact)).max() < 4.5
    assert got.edges == exact.edges
    assert got.populations == options.get("populations", 0)


@pytest.mark.parametrize("name", ["spin", "categorical", "graph"])
@pytest.mark.parametrize("resample", [None, 0.9])
def test_errors_of_means_have_their_nominal_coverage(name, resample):
    model = MODELS[name](np.random.default_rng(7))
    exact = mg.expectations(model, exact=True)
    runs = [
        mg.expectations(
            model, exact=False, steps=40, chains=200, seed=seed, resample=resample, engine="numpy", threads=1
        )
        for seed in range(60)
    ]
    z = np.array([scores(run, exact) for run in runs])
    assert 0.88 < (np.abs(z) < 1.96).mean() < 0.985
    assert 0.85 < np.sqrt((z**2).mean()) < 1.25
    assert np.abs(z.mean(axis=0)).max() * np.sqrt(len(z)) < 4.5  # no bias that shows


@pytest.mark.parametrize("units", ["spin", "categorical:3"])
def test_errors_allow_for_states_that_no_chain_has_visited(units):
    """Strong couplings: products at an end of their range, away from which they come once in a million."""
    rng = np.random.default_rng(8)
    model = mg.rbm(2.0 * rng.normal(size=(9, 9)), 0.2 * rng.normal(size=9), 0.2 * rng.normal(size=9), units=units)
    exact = mg.expectations(model, exact=True)
    low = 0.0 if "categorical" in units else -1.0
    rare = np.minimum(exact.correlations - low, 1.0 - exact.correlations) < 1e-3
    assert rare.any()
    for seed in range(5):
        got = mg.expectations(model, exact=False, steps=200, chains=400, seed=seed)
        assert np.abs(scores(got, exact)).max() < 4.5


def test_variables_that_hardly_ever_leave_their_state():
    """In a ferromagnet a chain seldom shows a spin against the others: errors must not wait for it."""
    rng = np.random.default_rng(0)
    model = mg.rbm(0.25 + 0.05 * rng.normal(size=(10, 14)), np.full(10, 0.02), np.zeros(14))
    exact = mg.expectations(model, exact=True)
    z = []
    for seed in range(10):
        got = mg.expectations(model, exact=False, steps=200, chains=300, seed=seed)
        z.append((got.correlations - exact.correlations) / got.correlation_errors)
    assert np.abs(z).max() < 4.5
    assert 0.5 < np.sqrt(np.mean(np.square(z))) < 1.2


def test_gaussians_in_closed_form():
    rng = np.random.default_rng(1)
    model = mg.rbm(
        0.2 * rng.normal(size=(5, 4)), rng.normal(size=5), rng.normal(size=4), units="gaussian", temperature=2
    )
    exact = mg.expectations(model)
    assert exact.source == "closed form"
    joint = np.block([[np.eye(5), -model.weights], [-model.weights.T, np.eye(4)]]) / 2.0
    covariance = np.linalg.inv(joint)
    mean = covariance @ np.concatenate([model.visible_bias, model.hidden_bias]) / 2.0
    assert np.abs(exact.means - mean).max() < 1e-12
    a, b = exact.pairs.T
    assert np.abs(exact.correlations - (covariance[a, b] + mean[a] * mean[b])).max() < 1e-12
    got = mg.expectations(model, exact=False, steps=300, chains=500)
    assert np.abs(scores(got, exact)).max() < 4.5
    with pytest.raises(ValueError, match="no states"):
        exact.marginals  # noqa: B018


def test_elimination_agrees_with_enumeration(monkeypatch):
    rng = np.random.default_rng(2)
    for model in (graph_model(rng), mg.potts_grid((2, 4), 3, coupling=0.7), MODELS["dbm"](rng), MODELS["grid"](rng)):
        exact = mg.expectations(model, exact=True)
        assert exact.source == "enumeration"
        with monkeypatch.context() as patch:
            patch.setattr("marginalis.answers.exact_means._MOST_STATES", 0.0)
            other = mg.expectations(model, exact=True)
        assert other.source == "elimination"
        assert np.abs(other.means - exact.means).max() < 1e-12
        assert np.abs(other.correlations - exact.correlations).max() < 1e-12


def test_a_long_chain_is_exact_at_once():
    rng = np.random.default_rng(3)
    n = 300
    coupling = rng.normal(size=n - 1)
    model = mg.from_edges([(i, i + 1) for i in range(n - 1)], coupling=coupling)
    got = mg.expectations(model)
    assert got.source == "elimination"
    assert np.abs(got.means).max() < 1e-12
    assert np.abs(got.correlations - np.tanh(coupling)).max() < 1e-12


def test_functions_of_the_whole_state():
    model = MODELS["graph"](np.random.default_rng(7))
    p, rows = brute(model)

    def energy(x):
        return x.sum(axis=1) ** 2

    def both(x):
        return x[:, :2] * x[:, [3]]

    exact = mg.expectations(model, [energy, both], exact=True)
    assert abs(exact.functions["energy"] - p @ energy(rows)) < 1e-12
    assert np.abs(exact.functions["both"] - p @ both(rows)).max() < 1e-12
    assert np.abs(exact.means - p @ rows).max() < 1e-12
    got = mg.expectations(model, {"energy": energy, "both": both}, exact=False, steps=30, chains=500)
    for name, value in exact.functions.items():
        assert got.functions[name].shape == value.shape
        assert np.abs((got.functions[name] - value) / got.function_errors[name]).max() < 4.5
    assert mg.expectations(model, lambda x: x[:, 0]).functions.keys() == {"function 0"}


@pytest.mark.parametrize(
    ("functions", "problem"),
    [
        (3, "must be a function"),
        ({"f": 3}, "must be a function of rows"),
        (lambda x: x[0], "one number per row"),
        (lambda x: x[:, 0] / 0.0, "finite"),
    ],
)
def test_functions_that_are_refused(functions, problem):
    model = MODELS["grid"](None)
    for exact in (True, False):
        with np.errstate(divide="ignore", invalid="ignore"), pytest.raises(ValueError, match=problem):
            mg.expectations(model, functions, exact=exact, steps=5, chains=20)


def test_the_answer_does_not_depend_on_the_split():
    model = MODELS["dbm"](np.random.default_rng(7))
    exact = mg.expectations(model, exact=True)
    for options in ({"method": "mais-v"}, {"method": "mais-h"}, {"summed": [0]}):
        got = mg.expectations(model, exact=False, steps=60, chains=500, **options)
        assert got.edges == exact.edges
        assert np.abs(scores(got, exact)).max() < 4.5


def test_threads_and_engines_do_not_matter():
    model = MODELS["spin"](np.random.default_rng(7))
    options = {"exact": False, "steps": 20, "chains": 100}
    one = mg.expectations(model, threads=1, engine="numba", **options)
    two = mg.expectations(model, threads=2, engine="numba", **options)
    assert np.array_equal(one.means, two.means)
    reference = mg.expectations(model, engine="numpy", **options)
    assert np.abs(one.means - reference.means).max() < 1e-5


def test_free_variables_and_models_out_of_reach():
    free = mg.from_edges([], field=[0.5, -1.0, 0.0], n=3)
    assert np.allclose(mg.expectations(free).means, np.tanh([0.5, -1.0, 0.0]))
    big = random_rbm(np.random.default_rng(0), 60, 60, scale=0.1)
    with pytest.raises(mg.ModelTooLarge, match="leave out exact"):
        mg.expectations(big, exact=True)
    with pytest.raises(ValueError, match="exact is 'yes'"):
        mg.expectations(big, exact="yes")
    assert mg.expectations(big, steps=20, chains=50).source == "annealing"


def test_uneven_weights_and_single_chains_are_warned_of():
    model = random_rbm(np.random.default_rng(0), 30, 30, scale=2.0)
    got = mg.expectations(model, exact=False, steps=3, chains=100)
    assert any("effective number" in warning for warning in got.warnings)
    lone = mg.expectations(model, exact=False, steps=3, chains=1)
    assert np.isinf(lone.mean_errors).all()
    assert json.loads(lone.to_json())["means"][0]["error"] is None
    assert "±" in str(lone)


def test_factors_of_three_and_zeros():
    rng = np.random.default_rng(5)
    with np.errstate(divide="ignore"):
        tables = [np.log(rng.integers(0, 4, size=shape)) for shape in ((2, 3, 2), (2, 2), (3, 2), (2, 2))]
    scopes = ((0, 1, 2), (2, 3), (1, 3), (3, 4))
    for table in tables:
        table.flat[0] = 0.3
    model = mg.FactorModel((2, 3, 2, 2, 2), scopes, tuple(tables))
    law = np.zeros(model.cards)
    for x in itertools.product(*map(range, model.cards)):
        law[x] = np.exp(sum(table[tuple(x[v] for v in scope)] for scope, table in zip(scopes, tables, strict=True)))
    law /= law.sum()
    found = factor_marginals(model)
    got = mg.expectations(model)
    for i, p in enumerate(found):
        wanted = law.sum(axis=tuple(k for k in range(5) if k != i))
        assert np.abs(p - wanted).max() < 1e-12
        assert np.array_equal(p, got.marginals[i])
    with pytest.raises(ValueError, match="forbids some states"):
        mg.expectations(model, exact=False)


def test_labels_and_json():
    got = mg.expectations(MODELS["graph"](np.random.default_rng(7)), exact=False, steps=10, chains=50)
    data = json.loads(got.to_json())
    assert [row["feature"] for row in data["means"]] == list(got.labels)
    assert data["correlations"][0]["features"] == list(got.edges[0])
    assert np.array_equal(got.marginal_errors[0], np.full(2, got.mean_errors[0] / 2))  # P = (1 ± s)/2
    assert {"log_z", "ess", "seed", "steps", "warnings", "seconds"} <= data.keys()
    assert data["seconds"] > 0
    potts = mg.expectations(MODELS["potts"](None))
    assert potts.feature(4) == (1, 1)
    assert [len(p) for p in potts.marginals] == [3] * 6
