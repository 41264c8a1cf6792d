"""Estimates to a tolerance: met, or said not to be; the answer unbiased by how it was planned."""

import logging
import math

import numpy as np
import pytest
from conftest import moments_model, z_score

import marginalis as mg
from marginalis.examples import rbm_gaussian, rbm_hopfield


def half_width(r):
    return (r.interval[1] - r.interval[0]) / 2


@pytest.mark.parametrize("tolerance", [0.1, 0.02])
@pytest.mark.parametrize(
    "model",
    [
        rbm_gaussian(10, 20, temperature=1.0, seed=1),
        rbm_hopfield(10, 20, temperature=1 / 8, seed=1),
        mg.ising_grid((8, 8), coupling=0.44, periodic=True),
    ],
    ids=["easy", "cold", "critical"],
)
def test_tolerance_is_met(model, tolerance):
    r = mg.estimate(model, tolerance=tolerance)
    assert half_width(r) <= tolerance
    assert not r.warnings
    assert abs(r.free_energy + mg.exact_log_z(model)) < 4.5 * r.stderr


def test_it_says_what_it_does(caplog):
    with caplog.at_level(logging.INFO, logger="marginalis"):
        mg.estimate(rbm_hopfield(10, 20, temperature=1 / 4), tolerance=0.05)
    text = caplog.text
    assert "pilot: 32 steps" in text
    assert "then: " in text


def test_budget_runs_out():
    model = mg.ising_grid((32, 32), coupling=0.44, periodic=True)
    r = mg.estimate(model, tolerance=1e-4, budget=0.5)
    assert any("the budget of 0.5 s ran out" in w for w in r.warnings)
    assert half_width(r) > 1e-4
    assert r.seconds < 30  # a hang would be noticed; how long it takes is the machine's affair


def test_result_does_not_depend_on_threads():
    model = rbm_hopfield(8, 12, temperature=1 / 4)
    one, two = (mg.estimate(model, tolerance=0.05, threads=threads) for threads in (1, 2))
    assert np.array_equal(one.log_weights, two.log_weights)


def test_what_is_given_stays():
    model = rbm_gaussian(8, 12, temperature=0.5)
    r = mg.estimate(model, tolerance=0.05, steps=77)
    assert r.steps == 77
    assert half_width(r) <= 0.05
    betas = np.linspace(0, 1, 41) ** 1.2
    assert mg.estimate(model, tolerance=0.05, schedule=betas).steps == 40
    linear = mg.estimate(model, tolerance=0.05, schedule="linear", method="ais", transition="metropolis")
    assert (linear.method, linear.transition) == ("ais", "metropolis")
    again = mg.estimate(
        model, steps=linear.steps, chains=linear.chains, schedule="linear", method="ais", transition="metropolis"
    )
    assert np.array_equal(linear.log_weights, again.log_weights)


def test_exact_models_take_no_time():
    r = mg.estimate(mg.from_edges([(0, 1), (2, 3)]), tolerance=1e-6)
    assert half_width(r) == 0.0


def test_z_stays_unbiased():
    """Schedule, K and N differ from seed to seed; the mean of Ẑ does not."""
    model = moments_model()
    ratio = math.exp(mg.exact_log_z(model)) / 2**5
    runs = [mg.estimate(model, tolerance=0.2, seed=seed, schedule="adaptive") for seed in range(200)]
    assert len({r.steps for r in runs}) > 1
    assert abs(z_score([np.exp(r.log_weights).mean() for r in runs], ratio)) < 4.5
    covered = sum(r.interval[0] <= -mg.exact_log_z(model) <= r.interval[1] for r in runs)
    assert abs(covered - 190) <= 3.5 * math.sqrt(200 * 0.05 * 0.95)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(tolerance=0), "tolerance is 0; it must be positive"),
        (dict(tolerance=-1.0), "tolerance is -1.0"),
        (dict(tolerance="x"), "tolerance"),
        (dict(tolerance=0.1, budget=0), "budget is 0"),
        (dict(budget=3), "budget goes with tolerance"),
        (dict(tolerance=0.1, chains=10), "tolerance chooses the chains itself"),
        (dict(tolerance=0.1, steps=0), "steps"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        mg.estimate(rbm_gaussian(4, 5), **options)
