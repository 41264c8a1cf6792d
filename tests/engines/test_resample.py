"""Populations of chains that are resampled: unbiased, the same bits in any split, better where weights are uneven."""

import math

import networkx as nx
import numpy as np
import pytest
from conftest import random_rbm, run, z_score

import marginalis as mg
from marginalis.engines.plan import make_plan
from marginalis.engines.resample import Populations
from marginalis.examples import rbm_gaussian
from marginalis.models.arrange import rearrange

HARD = random_rbm(np.random.default_rng(3), 8, 9, scale=1.6)
MODELS = {
    "rbm": random_rbm(np.random.default_rng(0), 5, 6, scale=1.2),
    "binary": random_rbm(np.random.default_rng(1), 5, 6, units="binary", scale=2.0),
    "any graph": rearrange(mg.from_matrix(np.triu(np.random.default_rng(2).normal(size=(8, 8)), 1)), [3]),
    "potts": mg.potts(list(nx.wheel_graph(6).edges), 3, coupling=1.1, field=[0.3, 0.0, -0.2]),
    "gaussian": mg.rbm(0.25 * np.ones((3, 3)), np.ones(3), np.zeros(3), units=("gaussian", "spin")),
}


def weights(model, **options):
    return run(make_plan(model, **{"resample": 0.9, **options}), 1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", ["mais", "ais"])
def test_every_population_is_unbiased(name, method):
    model = MODELS[name]
    plan = make_plan(model, method=method, steps=6, chains=30_000, populations=3000, resample=0.9, seed=4)
    w = run(plan, 2)
    assert len(w) == 3000
    truth = mg.exact_log_z(model) - plan.path.base.log_z(model)
    assert abs(z_score(np.exp(w - truth), 1.0)) < 4.5


@pytest.mark.parametrize("name", MODELS)
def test_engines_take_the_same_draws(name):
    options = dict(steps=40, chains=200, populations=10, seed=2)
    slow = weights(MODELS[name], engine="numpy", **options)
    fast = weights(MODELS[name], engine="numba", precision="double", **options)
    assert np.mean(np.abs(slow - fast) < 1e-9) >= 0.9


def test_any_split_has_the_same_bits():
    whole = mg.estimate(HARD, steps=30, chains=240, populations=12, resample=True, seed=5, threads=1)
    for threads in (2, 3):
        same = mg.estimate(HARD, steps=30, chains=240, populations=12, resample=True, seed=5, threads=threads)
        assert np.array_equal(whole.log_weights, same.log_weights)
    first, second = (
        mg.estimate(HARD, steps=30, chains=120, populations=6, resample=True, seed=5, first_chain=at) for at in (0, 120)
    )
    joined = first + second
    assert np.array_equal(joined.log_weights, whole.log_weights)
    assert (joined.populations, joined.chains) == (12, 240)


def test_large_populations_find_their_places_as_small_ones_do(monkeypatch):
    options = dict(steps=30, chains=128, resample=0.9, populations=4)
    small = mg.estimate(HARD, **options)
    monkeypatch.setattr("marginalis.statistics.resampling._FEW", 0)
    assert np.array_equal(mg.estimate(HARD, **options).log_weights, small.log_weights)


def test_uneven_weights_gain_and_even_ones_lose_nothing():
    uneven = rbm_gaussian(15, 15, temperature=0.125)
    exact = mg.exact_log_z(uneven)

    def rms(**options):
        runs = [mg.estimate(uneven, steps=30, chains=1000, seed=seed, **options) for seed in range(40)]
        return math.sqrt(np.mean([(run.log_z - exact) ** 2 for run in runs]))

    assert rms(resample=True) < 0.8 * rms()
    easy = random_rbm(np.random.default_rng(0), 5, 6, scale=0.3)
    plain, resampled = (mg.estimate(easy, steps=50, chains=400, seed=1, **x) for x in ({}, {"resample": True}))
    means = np.exp(plain.log_weights).reshape(20, 20).mean(axis=1)
    np.testing.assert_allclose(np.exp(resampled.log_weights), means, rtol=1e-12)  # never resampled


def test_recorded_weights_average_to_the_estimates():
    result = mg.estimate(HARD, steps=20, chains=200, resample=True, record=True, seed=1)
    assert result.curve.log_z[-1] == pytest.approx(result.log_z, abs=1e-9)
    assert len(result.log_weights) == 20


def test_copies_follow_the_weights():
    """Of four chains with weights 1, 1, 2, 4 the last gets two places at least, and the mean weight is kept."""
    plan = make_plan(HARD, steps=10, chains=4, populations=1, resample=1.0)
    populations = Populations(plan, range(4))
    log_weights = np.log([1.0, 1.0, 2.0, 4.0])
    ancestors = populations.choose(1, log_weights)
    counts = np.bincount(ancestors, minlength=4)
    assert counts.sum() == 4
    assert counts[3] >= 2
    np.testing.assert_allclose(populations.of_populations(log_weights), math.log(2.0))
    np.testing.assert_allclose(populations.of_chains(log_weights + 1.0), math.log(2.0) + 1.0)
    assert populations.choose(10, log_weights) is None  # after the last step there is nothing to choose for


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(resample=0.0), "resample is 0.0"),
        (dict(resample=1.5), "resample is 1.5"),
        (dict(resample="often"), "resample"),
        (dict(resample=True, populations=0), "populations is 0"),
        (dict(populations=2.5), "populations"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        mg.estimate(HARD, steps=5, **options)


def test_chains_are_rounded_up_to_whole_populations():
    result = mg.estimate(HARD, steps=5, chains=101, resample=True)
    assert (result.chains, result.populations, len(result.log_weights)) == (120, 20, 20)
    assert mg.estimate(HARD, steps=5, chains=101).populations == 0


def test_the_effective_number_is_one_of_populations():
    model = random_rbm(np.random.default_rng(2), 10, 12, scale=1.5)
    r = mg.estimate(model, steps=3, chains=400, resample=True, populations=20)
    assert r.ess_of == r.to_dict()["ess_of"] == "populations"
    assert f"(ESS {r.ess:.1f} of 20 populations)" in str(r)
    assert any(f"is {r.ess:.1f} of 20 populations" in warning for warning in r.warnings)
    table = mg.estimate_many([model], steps=3, chains=400, resample=True)
    assert f"is {r.ess:.1f} of 20 populations" in str(table)
    few = mg.estimate(model, steps=3, chains=400, resample=True, populations=5)
    assert "5 populations are too few to judge the interval by; raise populations" in few.warnings
    means = mg.expectations(model, steps=3, chains=400, resample=True, exact=False)
    assert means.to_dict()["ess_of"] == "populations"
    assert "of 20 populations)" in str(means)
    assert "of 20 populations: means and errors may be off" in means.warnings[-1]
    plain = mg.estimate(model, steps=3, chains=400)
    assert plain.ess_of == plain.to_dict()["ess_of"] == "chains"
    assert f"(ESS {plain.ess:.1f}), seed" in str(plain)
