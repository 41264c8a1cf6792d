"""Exact samples: of Gaussians, whose rows depend on their chain only, and none where it would take too long."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import assert_moments, dense, random_rbm, z_score

import marginalis as mg
from marginalis import random
from marginalis.exact import sampling
from marginalis.exact.sampling import sample_visible
from marginalis.models.model import MRF
from marginalis.models.units import parse_units


def gaussian_model(n, m, *, strength=0.8):
    rng = np.random.default_rng(12)
    p, q = np.exp(rng.normal(size=n)), np.exp(rng.normal(size=m))
    w = rng.normal(size=(n, m))
    w *= strength / np.linalg.norm(w, 2)
    w *= np.sqrt(np.outer(p, q))
    return mg.rbm(
        w,
        rng.normal(size=n),
        rng.normal(size=m),
        units="gaussian",
        visible_precision=p,
        hidden_precision=q,
        temperature=0.7,
    )


@pytest.mark.parametrize(("n", "m"), [(4, 7), (7, 4), (1, 1)])
def test_gaussian_samples_have_the_exact_covariance(n, m):
    model = gaussian_model(n, m)
    v, way = sample_visible(model, 2, np.arange(20_000, dtype=np.uint64))
    assert way == "gaussian"
    precision = np.block(
        [[np.diag(model.visible_units.gamma), -model.weights], [-model.weights.T, np.diag(model.hidden_units.gamma)]]
    )
    mean = np.linalg.solve(precision, np.concatenate([model.visible_bias, model.hidden_bias]))[:n]
    second = 0.7 * np.linalg.inv(precision)[:n, :n] + np.outer(mean, mean)
    assert_moments(v, mean, second)
    assert all(abs(z_score(v[:, i] ** 2, second[i, i])) < 4.5 for i in range(n))


@pytest.mark.parametrize("form", [np.array, sp.csr_array])
def test_gaussian_on_any_graph(form):
    rng = np.random.default_rng(24)
    graph = nx.wheel_graph(7)
    j = np.triu(nx.to_numpy_array(graph) * rng.normal(scale=0.2, size=(7, 7)))
    precision, field = 0.8 + rng.random(7), rng.normal(size=7)
    edges = np.argwhere(j)
    model = mg.from_edges(
        edges, coupling=j[tuple(edges.T)], field=field, units="gaussian", precision=precision, temperature=0.7
    )
    model = replace(model, weights=form(dense(model.weights)), lateral=form(dense(model.lateral)))
    v, way = sample_visible(model, 2, np.arange(20_000, dtype=np.uint64))
    assert way == "gaussian"
    matrix = np.diag(precision) - j - j.T
    at = model.split.visible
    mean = np.linalg.solve(matrix, field)[at]
    second = 0.7 * np.linalg.inv(matrix)[np.ix_(at, at)] + np.outer(mean, mean)
    assert_moments(v, mean, second)
    assert all(abs(z_score(v[:, i] ** 2, second[i, i])) < 4.5 for i in range(len(at)))


def test_a_gaussian_model_that_rounding_decides_is_left_alone():
    assert sample_visible(gaussian_model(3, 3, strength=1 - 1e-12), 0, np.arange(5, dtype=np.uint64)) is None


REPRODUCIBLE = {
    "enumeration": lambda rng: random_rbm(rng, 8, 12),
    "enumeration of the hidden side": lambda rng: random_rbm(rng, 33, 6, units=("gaussian", "binary")),
    "elimination": lambda rng: mg.ising_grid((5, 9)),
    "gaussian": lambda rng: gaussian_model(23, 37),
    "gaussian, hidden side first": lambda rng: gaussian_model(37, 23),
    "enumeration of coupled variables": lambda rng: mg.from_matrix(np.triu(rng.normal(size=(12, 12)), 1)),
    "elimination on a triangular lattice": lambda rng: mg.ising_grid((5, 9), triangular=True),
    "gaussian on a triangular lattice": lambda rng: mg.from_edges(
        list(nx.convert_node_labels_to_integers(nx.triangular_lattice_graph(5, 9)).edges),
        coupling=0.1,
        units="gaussian",
    ),
}


@pytest.mark.parametrize("name", REPRODUCIBLE)
def test_rows_depend_on_their_chain_only(name, monkeypatch):
    model = REPRODUCIBLE[name](np.random.default_rng(13))
    chains = np.arange(200, dtype=np.uint64)
    whole, way = sample_visible(model, 5, chains)
    assert name.startswith(way)
    halves = [sample_visible(model, 5, part)[0] for part in (chains[:100], chains[100:])]
    assert np.array_equal(whole, np.concatenate(halves))
    assert np.array_equal(whole[[150]], sample_visible(model, 5, chains[[150]])[0])
    assert np.array_equal(whole[::-7], sample_visible(model, 5, chains[::-7])[0])
    assert not np.array_equal(whole, sample_visible(model, 6, chains)[0])
    monkeypatch.setattr(sampling, "_UNIFORMS_AT_ONCE", 999)
    assert np.array_equal(whole, sample_visible(model, 5, chains)[0])


def test_the_samples_have_uniforms_of_their_own(monkeypatch):
    assert random.TARGET not in (random.VISIBLE, random.HIDDEN, random.JOINT)
    assert random.TARGET < random.METROPOLIS
    addresses = []
    monkeypatch.setattr(
        sampling,
        "uniforms",
        lambda seed, chains, *address: addresses.append(address) or random.uniforms(seed, chains, *address),
    )
    sample_visible(random_rbm(np.random.default_rng(15), 5, 3), 0, np.arange(4, dtype=np.uint64))
    assert addresses == [(0, random.TARGET, 2 + 5)]


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0)])
@pytest.mark.parametrize("units", ["spin", "gaussian", "categorical:3"])
def test_samples_of_models_with_an_empty_side(n, m, units):
    n, m = (3 * n, 3 * m) if units.startswith("categorical") else (n, m)
    sides = parse_units(units, n), parse_units(units, m)
    model = MRF(sp.csr_array((n, m)), np.zeros(n), np.zeros(m), *sides)
    rows, _ = sample_visible(model, 0, np.arange(4, dtype=np.uint64))
    assert rows.shape == (4, n)


def test_none_where_it_would_take_too_long():
    rng = np.random.default_rng(14)
    chains = np.arange(10, dtype=np.uint64)
    assert sample_visible(random_rbm(rng, 60, 60), 0, chains) is None
    assert sample_visible(random_rbm(rng, 60, 60, units=("spin", "gaussian")), 0, chains) is None
    assert sample_visible(mg.ising_grid((40, 40)), 0, chains) is None
    assert sample_visible(random_rbm(rng, 24, 30), 0, chains, max_seconds=0.1) is None
    assert sample_visible(random_rbm(rng, 5, 3), 0, chains, max_seconds=1e-9) is None


def test_none_where_numbers_overflow(monkeypatch):
    monkeypatch.setattr(sampling, "log_marginals", lambda model: iter([np.array([0.0, np.inf, 0.0, 0.0])]))
    model = mg.rbm(np.ones((2, 2)), np.zeros(2), np.zeros(2), units=("spin", "gaussian"))
    assert sample_visible(model, 0, np.arange(4, dtype=np.uint64)) is None


def test_the_way_does_not_depend_on_the_number_of_chains(monkeypatch):
    def way(once, per_chain):
        return lambda model: sampling.SampleMethod(once, per_chain, 1, lambda: lambda u: np.zeros((len(u), 5)))

    monkeypatch.setattr(sampling, "WAYS", {"quick to start": way(0.0, 1e-3), "quick to go on": way(0.5, 0.0)})
    model = random_rbm(np.random.default_rng(0), 5, 3)
    for count in (1, 10, 10_000):
        assert sample_visible(model, 0, np.arange(count, dtype=np.uint64))[1] == "quick to go on"
