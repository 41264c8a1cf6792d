"""Rectified units on a GPU draw what the reference draws: as C++ for the host here, on a GPU with `make test-gpu`."""

import numpy as np
import pytest
from conftest import log_weights

import marginalis as mg
from marginalis.engines import cuda
from marginalis.engines.cuda import general
from marginalis.engines.plan import make_plan

ONE_SIDED, TWO_SIDED = mg.ReLU(1.5), mg.dReLU(1.0, 2.0, 0.3, -0.4)
# Both wells of a unit, far apart, far on either side of zero, and both tails.
WIDE = mg.dReLU(1.0, 2.0, [9.0, -9.0, 0.3, 0.0, 2.0, -2.0], [9.0, 9.0, -0.4, 0.0, -2.0, 1.0])
PLACES = [
    ("spin", ONE_SIDED),
    ("binary", WIDE),
    ("categorical:2", TWO_SIDED),
    ("gaussian", ONE_SIDED),
    (ONE_SIDED, TWO_SIDED),
]


def model_of(units, shape=(4, 6), scale=0.3):
    rng = np.random.default_rng(4)
    return mg.rbm(*(scale * rng.normal(size=n) for n in (shape, shape[0], shape[1])), units=units, temperature=1.3)


def both(model, **options):
    """Log-weights of the GPU engine and of the reference."""
    run = {"precision": "double", "steps": 20, "chains": 70, "seed": 8, "first_chain": 5, **options}
    plan = make_plan(model, **run, engine="cuda")
    assert cuda.kernel_for(plan) is general
    assert plan.placement.precision == run["precision"]
    return log_weights(plan, "cuda"), log_weights(plan, "numpy")


@pytest.mark.parametrize("method", ["mais-v", "mais-h", "ais"])
@pytest.mark.parametrize("units", PLACES, ids=str)
def test_rectified_units_on_either_side(on, units, method):
    found, wanted = both(model_of(units), method=method, base="biases" if method == "ais" else "uniform")
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


def test_resampling_and_steps_that_repeat_their_beta(on):
    """The weight does not change in a step from β to β, whose inverse is infinite."""
    found, wanted = both(model_of(("spin", WIDE)), resample=0.9, populations=5)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)
    for units in (("spin", ONE_SIDED), ("spin", WIDE)):
        plan = make_plan(model_of(units), steps=5, chains=40, precision="double", method="mais-v")
        plan = plan.with_steps(np.append(plan.betas, [1.0, 1.0]))
        np.testing.assert_allclose(log_weights(plan, "cuda"), log_weights(plan, "numpy"), rtol=0, atol=1e-9)


@pytest.mark.parametrize("units", [("spin", ONE_SIDED), (WIDE, "spin"), ("spin", WIDE)], ids=str)
def test_single_precision_draws_the_same_up_to_rounding(on, units):
    shape = (6, 4) if units[0] is WIDE else (4, 6)
    for method in ("mais-v", "mais-h"):
        found, wanted = both(model_of(units, shape), precision="single", method=method, steps=100)
        apart = np.abs(found - wanted)
        assert 0.0 < np.median(apart) < 3e-5
        assert np.mean(apart < 3e-4) >= 0.95


@pytest.mark.gpu
@pytest.mark.parametrize("units", PLACES[:3], ids=str)
def test_many_chains_agree_with_the_exact_value(units):
    model = model_of(units, (4, 6), 0.5)
    for method in ("mais-v", "mais-h"):
        r = mg.estimate(model, method=method, steps=100, chains=1 << 20, engine="cuda")
        assert abs(r.log_z - mg.exact_log_z(model)) < 4.5 * r.stderr
        assert r.stderr < 2e-3


@pytest.mark.gpu
def test_single_precision_does_not_drift_over_many_steps():
    plan = make_plan(model_of(("spin", WIDE)), steps=30_000, chains=4096, precision="single", engine="cuda")
    apart = log_weights(plan, "cuda") - log_weights(plan.placed(precision="double"), "cuda")
    assert abs(np.median(apart)) < 1e-4
