"""Roussel's Metropolis transition: exact moments, invariance, and the two engines draw for draw."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import PathSums, exact_moments, log_weights, moments_model, random_rbm, z_score
from scipy import stats

import marginalis as mg
from marginalis.engines.plan import make_plan
from marginalis.engines.reference.loop import Distributions
from marginalis.engines.reference.moves import metropolis

LINEAR5 = np.linspace(0, 1, 6)


@pytest.mark.parametrize("sweeps", [1, 3])
@pytest.mark.parametrize("method", ["ais", "mais-v", "mais-h"])
def test_sampler_has_the_exact_moments(method, sweeps):
    model = moments_model()
    exact = exact_moments(model, method, LINEAR5, sweeps=sweeps)
    options = dict(method=method, steps=5, transition="metropolis", sweeps=sweeps)
    for engine, chains in (("numpy", 20_000), ("numba", 200_000)):
        r = mg.estimate(model, **options, engine=engine, chains=chains, seed=1)
        assert abs(z_score(np.exp(r.log_weights), exact.mean)) < 4.5
        assert abs(z_score(np.exp(2 * r.log_weights), exact.second)) < 4.5
        assert abs(z_score(r.log_weights, exact.mean_log)) < 4.5


def test_the_moments_tell_the_transitions_apart():
    """Otherwise the test above would not notice missing sweeps."""
    model = moments_model()
    gibbs, mh = (exact_moments(model, "mais-v", LINEAR5, sweeps=s) for s in (0, 1))
    assert mh.mean == pytest.approx(gibbs.mean, rel=1e-12)
    r = mg.estimate(model, method="mais-v", steps=5, transition="metropolis", chains=200_000)
    assert abs(z_score(r.log_weights, gibbs.mean_log)) > 10


def test_theorems_hold_for_metropolis():
    rng = np.random.default_rng(4)
    for _ in range(30):
        model = random_rbm(rng, 3, 2, scale=rng.uniform(0.2, 3))
        sums = PathSums(model, LINEAR5, sweeps=1)
        joint, marginal = sums.ais(), sums.mais_v()
        assert joint.relvar >= marginal.relvar * (1 - 1e-9)
        assert joint.mean_log <= marginal.mean_log + 1e-9 <= sums.log_z - sums.log_z0 + 2e-9


@pytest.mark.parametrize("units", ["spin", "binary"])
def test_leaves_the_target_invariant(units):
    model = random_rbm(np.random.default_rng(9), 3, 4, units=units, scale=0.9)
    plan = make_plan(model, method="mais-v", steps=5, chains=30_000, seed=7, transition="metropolis", sweeps=2)
    path = Distributions(plan, range(plan.chains.count))
    sums = PathSums(model, plan.betas)
    p = np.exp(sums.marginal(3) - np.logaddexp.reduce(sums.marginal(3)))
    v = sums.v_states[np.random.default_rng(0).choice(len(p), size=plan.chains.count, p=p)]
    moved = metropolis(path, 3, v, path.fields(v))
    counts = (moved[:, None] == sums.v_states).all(axis=2).sum(axis=0)
    assert stats.chisquare(counts, p * plan.chains.count).pvalue > 1e-5


def models():
    rng = np.random.default_rng(0)
    holes = np.where(rng.random((9, 11)) < 0.3, rng.normal(size=(9, 11)), 0)
    sizes = (5, 4, 6, 3)
    return {
        "dense": random_rbm(rng, 7, 10, units=("spin", "binary"), scale=0.5, temperature=0.7),
        "sparse": mg.rbm(sp.csr_array(holes), rng.normal(size=9), rng.normal(size=11)),
        "deep": mg.dbm(
            [rng.normal(size=pair) for pair in itertools.pairwise(sizes)], [rng.normal(size=n) for n in sizes]
        ),
        "wide": random_rbm(rng, 150, 30, scale=0.1),
        "cold": random_rbm(rng, 12, 9, temperature=0.01),
    }


@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize("method", ["ais", "mais-v", "mais-h"])
def test_draw_for_draw(name, method):
    for base in ("uniform", "biases"):
        options = dict(method=method, base=base, steps=12, chains=40, seed=5, transition="metropolis", sweeps=2)
        plan = make_plan(models()[name], precision="double", **options)
        slow, fast = (log_weights(plan, engine) for engine in ("numpy", "numba"))
        np.testing.assert_allclose(fast, slow, rtol=1e-12, atol=1e-10)


def test_same_bits_for_any_threads_and_split():
    """Blocks are swept in pairs; a chain must not notice its neighbour."""
    model = random_rbm(np.random.default_rng(2), 12, 7)
    options = dict(steps=20, seed=4, transition="metropolis")
    whole = mg.estimate(model, chains=500, threads=1, **options)
    assert np.array_equal(whole.log_weights, mg.estimate(model, chains=500, threads=3, **options).log_weights)
    parts = [mg.estimate(model, chains=n, first_chain=at, **options) for at, n in ((0, 17), (17, 483))]
    assert np.array_equal(whole.log_weights, parts[0].join(parts[1]).log_weights)


def test_bad_input():
    model = random_rbm(np.random.default_rng(2), 2, 2)
    with pytest.raises(ValueError, match="sweeps is 0"):
        mg.estimate(model, transition="metropolis", sweeps=0)
    potts = mg.potts([(0, 1)], 3)
    with pytest.raises(ValueError, match="spin and binary units only"):
        mg.estimate(potts, transition="metropolis")
