"""The reverse process against exact path sums."""

import math
from dataclasses import replace

import numpy as np
import pytest
from conftest import PathSums, log_weights, moments_model, random_rbm, z_score

import marginalis as mg
from marginalis.engines.plan import make_plan
from marginalis.exact.sampling import sample_visible
from marginalis.random import REVERSE, stream

LINEAR5 = np.linspace(0, 1, 6)


def reverse_weights(model, method, chains, engine="numba", **options):
    plan = make_plan(model, method=method, steps=5, chains=chains, seed=3, keep_whole=True, **options)
    start, _ = sample_visible(plan.path.end, 11, np.arange(chains, dtype=np.uint64))
    return log_weights(plan.reversed(start), engine, threads=2)


@pytest.mark.parametrize(("method", "key"), [("mais-v", "rev_mV"), ("ais", "rev_AIS3")])
def test_path_sums_agree_with_the_reference(path_moments, method, key):
    exact = PathSums(moments_model(), LINEAR5).reverse(method)
    assert exact.mean == pytest.approx(path_moments[key]["E_W"], rel=1e-9)
    assert exact.relvar == pytest.approx(path_moments[key]["relvar"], rel=1e-9)
    assert exact.mean_log == pytest.approx(path_moments[key]["E_lnW"], rel=1e-9)


@pytest.mark.parametrize("sweeps", [0, 1, 3])
@pytest.mark.parametrize("method", ["ais", "mais-v", "mais-h"])
def test_reverse_has_the_exact_moments(method, sweeps):
    model = moments_model()
    options = dict(transition="metropolis", sweeps=sweeps) if sweeps else {}
    sums = PathSums(model.transposed() if method == "mais-h" else model, LINEAR5, sweeps=sweeps)
    exact = sums.reverse(method)
    assert exact.mean == pytest.approx(math.exp(sums.log_z0 - sums.log_z), rel=1e-9)
    for engine, chains in (("numpy", 20_000), ("numba", 200_000)):
        log_weights = reverse_weights(model, method, chains, engine, **options)
        assert abs(z_score(np.exp(log_weights), exact.mean)) < 4.5
        assert abs(z_score(np.exp(2 * log_weights), exact.second)) < 4.5
        assert abs(z_score(log_weights, exact.mean_log)) < 4.5


@pytest.mark.parametrize(("engine", "chains"), [("numpy", 20_000), ("numba", 200_000)])
def test_reverse_sweeps_go_backwards(engine, chains):
    """A model found by its exact path sums, on which sweeps in the forward order have other moments."""
    model = random_rbm(np.random.default_rng(170), 2, 3, scale=4.0)
    exact = PathSums(model, LINEAR5, sweeps=1).reverse("mais-v").mean_log
    plan = make_plan(model, method="mais-v", steps=5, chains=chains, transition="metropolis", seed=3, keep_whole=True)
    start, _ = sample_visible(model, 11, np.arange(chains, dtype=np.uint64))
    back = plan.reversed(start)
    right, wrong = (log_weights(x, engine, 2) for x in (back, replace(back, path=plan.path)))
    assert abs(z_score(right, exact)) < 4.5
    assert abs(z_score(wrong, exact)) > 7.0


@pytest.mark.parametrize("units", ["spin", "binary", ("spin", "binary"), "categorical:3"])
@pytest.mark.parametrize("method", ["ais", "mais-v", "mais-h"])
def test_reverse_serves_every_unit_and_base(units, method):
    rng = np.random.default_rng(5)
    q = 3 if units == "categorical:3" else 1
    w = rng.normal(size=(2 * q, 3 * q))
    b, c = rng.normal(size=2 * q), rng.normal(size=3 * q)
    model = mg.rbm(w, b, c, units=units, temperature=1.3)
    base = (rng.normal(size=2 * q), rng.normal(size=3 * q))
    swap = method == "mais-h"
    sums = PathSums(model.transposed() if swap else model, LINEAR5, base[::-1] if swap else base)
    exact = sums.reverse(method)
    engine = "numpy" if q > 1 else "numba"
    log_weights = reverse_weights(model, method, 40_000, engine, base=base)
    assert abs(z_score(np.exp(log_weights), exact.mean)) < 4.5
    assert abs(z_score(log_weights, exact.mean_log)) < 4.5
    if engine == "numba":
        slow = reverse_weights(model, method, 500, "numpy", base=base)
        assert np.allclose(slow, log_weights[:500], atol=2e-5)


def test_gaussian_sides():
    rng = np.random.default_rng(1)
    model = mg.rbm(0.3 * rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=3), units=("gaussian", "binary"))
    b = mg.bound(model, steps=20, chains=2000)
    assert b.samples.startswith("exact")
    assert abs(b.free_energy + mg.exact_log_z(model)) < 4.5 * b.stderr
    assert b.lower < -mg.exact_log_z(model) < b.upper


@pytest.mark.parametrize("method", ["ais", "mais-v", "mais-h"])
def test_reverse_sweeps_serve_base_and_temperature(method):
    rng = np.random.default_rng(8)
    model = random_rbm(rng, 2, 3, units=("binary", "spin"), scale=1.5, temperature=1.6)
    base = (rng.normal(size=2), 2.0 * rng.normal(size=3))
    swap = method == "mais-h"
    sums = PathSums(model.transposed() if swap else model, LINEAR5, base[::-1] if swap else base, sweeps=2)
    exact = sums.reverse(method)
    log_weights = reverse_weights(model, method, 40_000, base=base, transition="metropolis", sweeps=2)
    assert abs(z_score(np.exp(log_weights), exact.mean)) < 4.5
    assert abs(z_score(log_weights, exact.mean_log)) < 4.5


def test_every_chain_starts_from_its_own_sample():
    fast, slow = (reverse_weights(moments_model(), "mais-v", 5000, engine) for engine in ("numba", "numpy"))
    assert np.allclose(fast, slow, atol=2e-5)


def test_reverse_plan_has_its_own_uniforms():
    plan = make_plan(moments_model(), method="mais-v", steps=4, chains=10, seed=7)
    back = plan.reversed(np.ones((6, 3)), 2)
    assert back.chains.seed == stream(7, REVERSE) != plan.chains.seed
    assert back.betas.tolist() == [1, 1, 1, 0.75, 0.5, 0.25, 0]
    assert (back.chains.count, back.chains.first) == (6, 0)
