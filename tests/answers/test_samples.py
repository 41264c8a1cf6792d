"""Samples of whole models against exact means, and what is said of those that are not exact."""

import numpy as np
import pytest
from conftest import random_rbm, z_score

import marginalis as mg


def models():
    rng = np.random.default_rng(4)
    square = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
    return {
        "spin": random_rbm(rng, 6, 4),
        "binary-categorical": random_rbm(rng, 3, 6, units=("binary", "categorical:3")),
        "gaussian": mg.rbm(0.2 * rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=3), units="gaussian"),
        "gaussian-binary": random_rbm(rng, 3, 4, units=("gaussian", "binary"), scale=0.6),
        "graph": mg.from_edges(square, coupling=rng.normal(size=5), field=rng.normal(size=4), labels=list("dbca")),
        "dbm": mg.dbm([rng.normal(size=(3, 2)), rng.normal(size=(2, 2))], [rng.normal(size=k) for k in (3, 2, 2)]),
        "grid": mg.ising_grid((5, 30), coupling=0.4, field=0.1),
    }


MODELS = models()


def assert_means(rows, exact):
    for i, mean in enumerate(exact.means):
        assert abs(z_score(rows[:, i], mean)) < 4.5
    for (a, b), mean in list(zip(exact.pairs, exact.correlations, strict=True))[:60]:
        assert abs(z_score(rows[:, a] * rows[:, b], mean)) < 4.5


@pytest.mark.parametrize("name", MODELS)
def test_exact_samples_follow_the_model(name):
    model = MODELS[name]
    got = mg.sample(model, 4000, seed=1)
    assert got.is_exact
    assert got.warnings == ()
    assert got.rows.shape == (len(got), model.n_features) == (4000, model.n_features)
    v, h = model.by_side(got.rows, "rows")
    model.visible_units.check_rows(v)
    model.hidden_units.check_rows(h)
    assert_means(got.rows, mg.expectations(model, exact=True))


def test_frequencies_of_all_states_are_their_probabilities():
    model = MODELS["graph"]
    rows = mg.sample(model, 20000, seed=2).rows
    states = np.unique(rows, axis=0)
    law = mg.expectations(model, lambda x: (x[:, None] == states).all(axis=2).astype(float), exact=True)
    for state, p in zip(states, law.functions["function 0"], strict=True):
        assert abs((rows == state).all(axis=1).mean() - p) < 4.5 * np.sqrt(p * (1 - p) / len(rows))
    assert law.functions["function 0"].sum() > 0.999


@pytest.mark.parametrize("options", [{}, {"resample": 0.9, "populations": 40}, {"method": "ais", "steps": 200}])
@pytest.mark.parametrize("name", ["spin", "graph", "dbm"])
def test_chains_follow_the_model_and_are_labelled(name, options):
    model = MODELS[name]
    got = mg.sample(model, 2000, exact=False, **{"steps": 60, **options})
    assert not got.is_exact
    assert got.source == "annealing"
    assert "approximate" in got.warnings[0]
    exact = mg.expectations(model, exact=True)
    for i, mean in enumerate(exact.means):  # repeated rows count less: allow for the effective number
        assert abs(z_score(got.rows[:, i], mean)) < 1.5 * 4.5


def test_rows_depend_on_the_seed_and_their_number_only():
    model = MODELS["spin"]
    rows = mg.sample(model, 50, seed=5).rows
    assert np.array_equal(rows[:20], mg.sample(model, 20, seed=5).rows)
    assert not np.array_equal(rows, mg.sample(model, 50, seed=6).rows)
    one, two = (mg.sample(model, 50, seed=5, exact=False, steps=20, threads=n).rows for n in (1, 2))
    assert np.array_equal(one, two)


def test_models_that_are_too_large():
    model = random_rbm(np.random.default_rng(0), 60, 60, scale=0.1)
    with pytest.raises(ValueError, match="leave out exact"):
        mg.sample(model, 5, exact=True)
    got = mg.sample(model, 5, steps=20, chains=40)
    assert got.rows.shape == (5, 120)
    assert set(np.unique(got.rows)) == {-1.0, 1.0}


def test_samples_of_free_variables_are_exact():
    model = mg.from_edges([], field=np.linspace(-1.0, 1.0, 200), n=200)
    got = mg.sample(model, 2000)
    assert got.is_exact
    assert np.abs(got.rows.mean(axis=0) - np.tanh(np.linspace(-1.0, 1.0, 200))).max() < 5.0 / np.sqrt(2000)


@pytest.mark.parametrize(("n", "problem"), [(0, "at least 1"), (2.5, "whole number"), ("x", "whole number")])
def test_numbers_that_are_refused(n, problem):
    with pytest.raises(ValueError, match=problem):
        mg.sample(MODELS["spin"], n)
    with pytest.raises(ValueError, match="exact"):
        mg.sample(MODELS["spin"], 3, exact=2)
