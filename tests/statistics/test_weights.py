"""Anybody's log-weights, and systematic resampling of them."""

import math

import numpy as np
import pytest

import marginalis as mg
from marginalis.statistics.resampling import systematic


def test_weights_tell_what_an_estimate_of_them_tells():
    run = mg.estimate(mg.ising_grid((4, 4), coupling=0.4), steps=10, chains=300, seed=1)
    w = mg.Weights(run.log_weights.tolist(), run.log_z0)
    for name in ("log_z", "stderr", "ess", "tail_index", "log_z0"):
        assert getattr(w, name) == getattr(run, name)
    assert w.interval == pytest.approx(run.interval, rel=0, abs=2 * run.rounding)
    assert w.interval_at(0.5)[0] > w.interval[0]
    assert w.warnings == run.warnings
    assert w.relative_variance == pytest.approx(300 / run.ess - 1)
    assert run.weights.interval == run.interval


def test_weights_of_zero_count_as_weights():
    rng = np.random.default_rng(0)
    x = np.where(rng.random(4000) < 0.2, -np.inf, rng.normal(size=4000) - 0.5)
    w = mg.Weights(x, 3.0)
    low, high = w.interval
    assert low < -w.log_z < high
    assert abs(w.log_z - 3.0 - math.log(0.8)) < 4.5 * w.stderr
    assert w.ess == pytest.approx(np.exp(x).sum() ** 2 / np.exp(2 * x).sum())
    assert math.isfinite(low)
    assert math.isfinite(high)
    assert "ESS" in str(w)


def test_weights_are_values():
    x = np.array([0.5, 1.0, 0.75])
    w = mg.Weights(x)
    x[0] = 100.0
    assert w.log_weights[0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        w.log_weights[0] = 1.0
    both = w.joined(mg.Weights([0.0]))
    assert len(both) == 4
    with pytest.raises(ValueError, match="different log_z0"):
        w.joined(mg.Weights([0.0], 1.0))


@pytest.mark.parametrize(
    "x", [[], [[0.0, 1.0]], [np.nan, 1.0], [np.inf], [-np.inf, -np.inf], [-np.inf, np.nan], ["a"], None, [1j]]
)
def test_what_are_no_log_weights_is_refused(x):
    with pytest.raises(ValueError, match="log_weights"):
        mg.Weights(x)


@pytest.mark.parametrize("size", [7, 300])
def test_systematic_resampling_takes_each_in_proportion(size):
    rng = np.random.default_rng(size)
    weights = rng.exponential(size=(3, size))
    expected = size * weights / weights.sum(axis=1, keepdims=True)
    u = rng.random((3, 1))
    for row, found in zip(expected, systematic(weights, u), strict=True):
        counts = np.bincount(found, minlength=size)
        assert (np.abs(counts - row) < 1.0).all()
    some = systematic(weights[:1], u[:1], 3)
    assert some.shape == (1, 3)
    grid = (np.arange(400) + 0.5)[:, None] / 400
    mean = np.mean([np.bincount(systematic(weights[:1], x[None])[0], minlength=size) for x in grid], axis=0)
    assert np.abs(mean - expected[0]).max() < 0.01


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize("spread", [0.3, 2.0, 5.0])
def test_lower_bounds_hold_for_any_weights(spread, level):
    """Weights are log-normal with the mean 1, and every third one is zero."""
    rng = np.random.default_rng(0)
    samples = spread * rng.normal(size=(1000, 64)) - spread**2 / 2.0 + np.log(1.5)
    samples[rng.random(samples.shape) < 1.0 / 3.0] = -np.inf
    bounds = np.array([mg.Weights(row).lower_bound_at(level) for row in samples])
    assert (bounds <= 0.0).mean() > level
    assert np.median(bounds) > {0.3: -1.0, 2.0: -3.0, 5.0: -15.0}[spread]
    even = mg.Weights(np.full(512, 0.7), 1.0)
    assert 1.68 < even.lower_bound_at(0.95) < 1.7
    one_sided = mg.Weights(samples[0], one_sided=True)
    assert one_sided.interval == (-np.inf, -one_sided.lower_bound_at(0.95))
    assert one_sided.stderr == np.inf
    assert "ln Z ≥" in str(one_sided)
