"""Means over samples of disorder: error, its parts, bias, quantiles, and the cheapest allocation."""

import numpy as np
import pytest

from marginalis.statistics.disorder import (
    cheapest,
    mean_over,
    numbers_of_log_weights,
    numbers_of_parts,
    quantile_of,
    standard_error_of,
)


def test_the_scatter_contains_both_sources_of_error():
    rng = np.random.default_rng(0)
    values = rng.normal(3.0, 2.0, 4000) + rng.normal(0.0, 1.5, 4000)
    rows = np.stack([values, np.full(4000, 1.5**2), np.full(4000, 0.5), np.zeros(4000)], axis=1)
    found = mean_over(rows)
    assert found.value == pytest.approx(values.mean() - 0.5)
    assert found.stderr == pytest.approx(2.5 / 4000**0.5, rel=0.05)
    assert found.sampling_error == pytest.approx(1.5 / 4000**0.5)
    assert found.spread == pytest.approx(2.0, rel=0.05)
    assert found.disorder_error**2 + found.sampling_error**2 == pytest.approx(found.stderr**2)
    assert found.high - found.low == pytest.approx(2 * 1.96 * found.stderr, rel=0.01)
    wide = mean_over(rows, 0.99)
    assert wide.high - wide.low == pytest.approx(2 * 2.576 * found.stderr, rel=0.01)


def test_a_remaining_bias_extends_the_interval_on_its_side():
    rng = np.random.default_rng(1)
    rows = np.stack([rng.normal(size=50), *np.zeros((3, 50))], axis=1)
    plain = mean_over(rows)
    rows[:, 3] = 0.2  # The mean is too high by this much.
    above = mean_over(rows)
    assert (above.low, above.high) == (pytest.approx(plain.low - 0.2), plain.high)
    rows[:, 3] = -0.2
    assert mean_over(rows).high == pytest.approx(plain.high + 0.2)


def test_few_samples_and_equal_values():
    one = mean_over(np.array([[2.0, 0.25, 0.0, 0.0]]))
    assert (one.value, one.stderr, one.low, one.high, one.sampling_error) == (2.0, np.inf, -np.inf, np.inf, 0.5)
    same = mean_over(np.tile([2.0, 0.0, 0.0, 0.0], (5, 1)))
    assert (same.value, same.stderr, same.low, same.high, same.spread) == (2.0, 0.0, 2.0, 2.0, 0.0)


@pytest.mark.parametrize(("chains", "sigma"), [(16, 0.8), (8, 0.6)])
def test_the_bias_of_few_chains_is_removed(chains, sigma):
    """Log-normal weights of mean 1: ln of their mean is low by r/(2N), the corrected value by far less."""
    rng = np.random.default_rng(chains)
    log_weights = rng.normal(-(sigma**2) / 2, sigma, (60_000, chains))
    value, variance, bias, remaining = numbers_of_log_weights(log_weights, np.zeros(60_000)).T
    error = value.std() / 60_000**0.5
    r = np.expm1(sigma**2)
    assert value.mean() == pytest.approx(-r / (2 * chains), rel=0.2)
    assert value.mean() < -10.0 * error
    corrected = (value - bias).mean()
    assert abs(corrected) < 0.2 * abs(value.mean())
    assert abs(corrected - remaining.mean()) < 4.5 * error
    assert variance.mean() == pytest.approx(value.var(), rel=0.2)  # Few chains underestimate it.


def test_parts_of_the_chains_show_a_bias_of_first_order():
    n = np.array([64.0, 32.0, 16.0])
    whole, halves, quarters = 5.0 + 3.0 / n + 40.0 / n**2
    value, variance, bias, remaining = numbers_of_parts(*(np.array([x]) for x in (whole, 0.1, halves, quarters)))[0]
    assert (value, variance) == (whole, 0.1)
    assert value - bias - remaining == pytest.approx(5.0, abs=1e-12)


def test_quantiles_have_intervals_of_order_statistics():
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        _, low, high = quantile_of(rng.exponential(size=60), 0.8)
        held += low <= np.log(5.0) <= high
    assert held / 400 == pytest.approx(0.957, abs=4.5 * (0.05 * 0.95 / 400) ** 0.5)  # Discrete: at least 95 %.
    assert quantile_of(np.arange(5.0), 0.5) == (2.0, -np.inf, np.inf)  # Too few values for an interval.


def test_no_other_allocation_is_cheaper():
    error, spread, work, fixed, rate, steps = 0.02, 0.5, 400.0, 2e-4, 3e-7, 100
    best = cheapest(error, spread, work, fixed, rate, steps, 16, 20)

    def seconds(chains):
        count = np.ceil((spread**2 + work / (steps * chains)) / error**2)
        return count * (fixed + rate * steps * chains)

    assert best.seconds == pytest.approx(seconds(best.chains))
    assert best.seconds <= 1.01 * min(seconds(16 * k) for k in range(1, 200))
    assert (spread**2 + work / (steps * best.chains)) / best.samples <= error**2
    assert cheapest(error, 0.0, work, fixed, rate, steps, 16, 20).samples == 20  # Chains alone reach the error.
    assert standard_error_of(1.959963985) == pytest.approx(1.0)
