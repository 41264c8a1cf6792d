"""Means over samples of disorder, each of which is known with an error of its own.

An estimate x_t of sample t, from N independent chains, is the value of the sample plus an error of variance v_t and a
bias, which is b/N to leading order and does not average out over the samples. The biases are estimated and subtracted.
The scatter of the x_t contains both sources of error: the standard error of their mean is their standard deviation over
√M, whatever the v_t are. These say how much of it is due to sampling.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from ..checks import Array
from . import confidence

VALUE, VARIANCE, BIAS, REMAINING = range(4)  # The numbers of a sample; see `numbers_of_parts`.
_ROUNDING = 1e-12  # Scatter below this, relative to the mean, is rounding.
_UNIT = 16  # Chains that a kernel advances together.
_MOST_CHAINS = 2.0**20  # Most chains of a sample in an allocation.


class Mean(NamedTuple):
    """The mean of a quantity over M samples of disorder."""

    value: float  # The mean after the correction for bias.
    stderr: float
    low: float  # The ends of the interval.
    high: float
    spread: float  # Standard deviation over the disorder, without the errors of sampling.
    disorder_error: float  # The part of the standard error due to disorder.
    sampling_error: float  # The part due to sampling; the squares of both add up to that of the standard error.
    bias: float  # The bias that was subtracted.
    remaining: float  # Estimate of the bias that is left; the interval allows for it.


def mean_over(samples: Array, level: float = 0.95) -> Mean:
    """Return the mean over samples, rows of (value, variance, bias, remaining bias).

    The interval is that of Student's t, corrected for the skewness of the values, and is extended by the remaining
    bias on its side.
    """
    found = samples[:, VALUE] - samples[:, BIAS]
    count, value = len(found), float(found.mean())
    bias, remaining = float(samples[:, BIAS].mean()), float(samples[:, REMAINING].mean())
    variance = float(samples[:, VARIANCE].mean())
    if count == 1:
        return Mean(value, math.inf, -math.inf, math.inf, math.nan, math.nan, math.sqrt(variance), bias, remaining)
    deviations = found - value
    squares = float(deviations @ deviations) / (count - 1)
    stderr = math.sqrt(squares / count)
    sampling = min(math.sqrt(variance / count), stderr)
    spread = math.sqrt(max(0.0, squares - variance))
    low = high = value
    if stderr > _ROUNDING * abs(value):
        t, too_high, too_low = confidence.reaches(deviations, level)
        low, high = value - max(t, too_high) * stderr, value + max(t, too_low) * stderr
    low, high = low - max(0.0, remaining), high + max(0.0, -remaining)
    apart = math.sqrt(max(0.0, stderr**2 - sampling**2))
    return Mean(value, stderr, low, high, spread, apart, sampling, bias, remaining)


def quantile_of(values: Array, share: float, level: float = 0.95) -> tuple[float, float, float]:
    """Return a quantile of the values, and the order statistics that contain that of their distribution at a level."""
    ordered, count = np.sort(values), len(values)
    miss = (1.0 - level) / 2.0
    below, above = int(binom.ppf(miss, count, share)) - 1, int(binom.ppf(1.0 - miss, count, share))
    low = -math.inf if below < 0 else float(ordered[below])
    high = math.inf if above >= count else float(ordered[above])
    return float(np.quantile(ordered, share)), low, high


def numbers_of_log_weights(log_weights: Array, log_z0: Array) -> Array:
    """Return (value, variance, bias, remaining bias) of ln Z from log-weights [model, chain], one row for each model.

    E[ln Ẑ] = ln Z − r/(2N) + O(1/N²), where the relative variance r of the weights is known from the same chains. What
    is left of order 1/N² follows from the same estimate by halves of the chains, for which it is four times as large.
    """
    log_mean, variance = _moments(log_weights)
    bias = -variance / 2.0
    count = log_weights.shape[1] // 2
    if count < 2:
        return np.stack([log_z0 + log_mean, variance, bias, np.zeros(len(bias))], axis=1)
    halves = [_moments(log_weights[:, i * count : (i + 1) * count]) for i in (0, 1)]
    corrected = sum(own + of_half / 2.0 for own, of_half in halves) / 2.0
    remaining = (corrected - (log_mean - bias)) / 3.0
    return np.stack([log_z0 + log_mean, variance, bias, remaining], axis=1)


def _moments(log_weights: Array) -> tuple[Array, Array]:
    """Return ln of the mean weight, and its relative variance, of every row."""
    n = log_weights.shape[1]
    top = log_weights.max(axis=1)
    w = np.exp(log_weights - top[:, None])
    mean = w.mean(axis=1)
    variance = w.var(axis=1, ddof=1) / (n * mean * mean) if n > 1 else np.full(len(w), np.inf)
    return top + np.log(mean), variance


def numbers_of_parts(whole: Array, variance: Array, halves: Array, quarters: Array) -> Array:
    """Return (value, variance, bias, remaining bias) from estimates by all chains, by halves and by quarters of them.

    `halves` and `quarters` are the means of the estimates by the two halves and the four quarters. A bias b/N is twice
    as large for a half, so that ``halves − whole`` is its size. What is left is of order 1/N² and four times as large
    in the same combination of halves and quarters.
    """
    bias = halves - whole
    remaining = ((2.0 * halves - quarters) - (whole - bias)) / 3.0
    return np.stack([whole, variance, bias, remaining], axis=-1)


class Allocation(NamedTuple):
    """How many samples, and how many chains of so many steps for each, reach an error at the least cost."""

    samples: int
    steps: int
    chains: int
    seconds: float  # Predicted time on one core.


def cheapest(
    error: float, spread: float, work: float, fixed: float, rate: float, steps: int, least: int, fewest: int
) -> Allocation:
    """Return the cheapest allocation that has this standard error.

    A sample costs ``fixed + rate·K·N`` seconds for N chains of K = `steps` steps, and its value has the variance
    ``spread² + work/(K·N)``. The product of both is least for K·N = √(fixed·work/rate)/spread. N is at least `least`,
    and a multiple of 16; the number of samples is at least `fewest`, so that their scatter is known.
    """
    best = math.sqrt(fixed * work / rate) / spread if spread > 0.0 else math.inf
    room = fewest * error**2 - spread**2
    if room > 0.0:
        best = min(best, work / room)
    chains = _UNIT * math.ceil(min(max(best / steps, least), _MOST_CHAINS) / _UNIT)
    variance = spread**2 + work / (steps * chains)
    samples = max(fewest, math.ceil(variance / error**2 - 1e-9))
    return Allocation(samples, steps, chains, samples * (fixed + rate * steps * chains))


def standard_error_of(half_width: float) -> float:
    """Return the standard error of a normal mean whose 95 % interval has this half-width."""
    return half_width / float(ndtri(0.975))
