"""Alternatives to `confidence.interval` for ln E[W]; each row of log-weights is one estimate."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from ..models.units import Array
from ..statistics import confidence

Ends = tuple[Array, Array]

MISS = 0.025  # Probability that an interval misses on either side.
RESAMPLES = 499  # Number of bootstrap resamples.


class Sample:
    """Weights of R estimates of N chains each, divided by the largest of each estimate, and their moments."""

    def __init__(self, log_weights: Array) -> None:
        self.log_weights = log_weights
        self.n = log_weights.shape[1]
        self.top = log_weights.max(axis=1)
        self.w = np.exp(log_weights - self.top[:, None])
        self.mean = self.w.mean(axis=1)
        self.log_mean = self.top + np.log(self.mean)
        self.t = float(stdtrit(self.n - 1, 1.0 - MISS))

    @cached_property
    def error(self) -> Array:
        """Relative standard error of the mean weight."""
        return np.asarray(self.w.std(axis=1, ddof=1) / self.mean / self.n**0.5)

    @cached_property
    def skewness(self) -> Array:
        """Skewness of the weights, 0 if they are all equal."""
        d = self.w - self.mean[:, None]
        squares = d * d
        s = np.sqrt(squares.mean(axis=1))
        return (squares * d).mean(axis=1) / np.where(s > 0.0, s, 1.0) ** 3

    def about(self, low: Array, high: Array) -> Ends:
        """Convert ends in units of the mean weight to ends for ln E[W]."""
        return self.log_mean + np.log(np.maximum(low, MISS)), self.log_mean + np.log(np.maximum(high, MISS))


def chosen(x: Sample) -> Ends:
    """The interval of the package, `confidence.interval`."""
    ends = np.array([confidence.interval(row) for row in x.log_weights])
    return ends[:, 0], ends[:, 1]


def delta(x: Sample) -> Ends:
    """Normal quantiles on the log scale."""
    z = float(ndtri(1.0 - MISS))
    return x.log_mean - z * x.error, x.log_mean + z * x.error


def delta_t(x: Sample) -> Ends:
    """Student's t on the log scale."""
    return x.log_mean - x.t * x.error, x.log_mean + x.t * x.error


def mean_t(x: Sample) -> Ends:
    """Log of Student's interval of the mean weight."""
    return x.about(1.0 - x.t * x.error, 1.0 + x.t * x.error)


def jackknife(x: Sample) -> Ends:
    """Student's t on the log scale, about the bias-corrected estimate ln mean + error²/2."""
    middle = x.log_mean + x.error**2 / 2.0
    return middle - x.t * x.error, middle + x.t * x.error


def johnson(x: Sample) -> Ends:
    """Student's t with its mean shifted for skewness (Johnson 1978)."""
    shift = x.skewness * x.error / (6.0 * x.n**0.5)
    return x.about(1.0 + shift - x.t * x.error, 1.0 + shift + x.t * x.error)


def hall(x: Sample) -> Ends:
    """Hall's monotone cubic (1992) with t quantiles, without the additions of `confidence.interval`."""
    return _hall(x, x.skewness, x.t)


def _hall(x: Sample, skewness: Array, t: Array | float) -> Ends:
    a = skewness / x.n**0.5
    a = np.where(np.abs(a) < 1e-6, 1e-6, a)
    low, high = (1.0 - x.error * 3.0 / a * (np.cbrt(1.0 + a * (u - a / 6.0)) - 1.0) for u in (t, -t))
    return x.about(low, high)


def hall_tails(x: Sample) -> Ends:
    """`confidence.interval` without the contribution of the bulk of the log-weights."""
    d = x.w - x.mean[:, None]
    squares = d * d
    variance = np.maximum(squares.mean(axis=1), 1e-300)
    kurtosis = (squares * squares).mean(axis=1) / variance**2
    t = stdtrit(np.minimum(2.0 * x.n / np.maximum(kurtosis - 1.0, 2.0), x.n - 1.0), 1.0 - MISS)
    low, high = _hall(x, 1.25 * x.skewness, t)
    return low, np.maximum(high, x.log_mean + t * x.error)


def lognormal(x: Sample) -> Ends:
    """Interval for Gaussian log-weights (work): mean + variance/2, with Cox's variance."""
    variance = x.log_weights.var(axis=1, ddof=1)
    middle = x.log_weights.mean(axis=1) + variance / 2.0
    reach = x.t * np.sqrt(variance / x.n + variance**2 / (2.0 * (x.n - 1)))
    return middle - reach, middle + reach


def pareto(x: Sample) -> Ends:
    """Student's t on the log scale after Pareto smoothing of the largest weights (Vehtari et al. 2024)."""
    smoothed = np.sort(x.log_weights, axis=1)
    for row in smoothed:
        tail = confidence.fit_tail(row)
        if tail is not None and tail.k != 0.0:
            m = tail.size
            p = (np.arange(m) + 0.5) / m
            excess = np.exp(tail.log_scale - tail.threshold) * np.expm1(-tail.k * np.log1p(-p)) / tail.k
            row[len(row) - m :] = tail.threshold + np.log1p(excess)
    return delta_t(Sample(smoothed))


def empirical_likelihood(x: Sample) -> Ends:
    """Owen's empirical likelihood of the mean weight, with t² for χ².

    At the ends the probabilities of the chains are ∝ 1/(s ± w), for the s at which the likelihood ratio reaches its
    limit; ln s is found by bisection.
    """
    ends = []
    for sign in (1.0, -1.0):
        edge = x.w.min(axis=1) if sign > 0 else -x.w.max(axis=1)  # s is larger than −edge.
        low, high = np.full(len(x.w), -30.0), np.full(len(x.w), 30.0)
        for _ in range(40):
            middle = (low + high) / 2.0
            q = np.exp(middle)[:, None] + (sign * x.w - edge[:, None])
            ratio = 2.0 * np.log(q).sum(axis=1) + 2.0 * x.n * np.log((1.0 / q).mean(axis=1))
            far = ratio > x.t**2
            low, high = np.where(far, middle, low), np.where(far, high, middle)
        p = 1.0 / (np.exp(low)[:, None] + (sign * x.w - edge[:, None]))
        ends.append((p * x.w).sum(axis=1) / p.sum(axis=1) / x.mean)
    return x.about(ends[0], ends[1])


@cache
def _counts(n: int) -> Array:
    """Return how often each chain is drawn in each resample."""
    return np.random.default_rng(0).multinomial(n, np.full(n, 1.0 / n), size=RESAMPLES).astype(float)


def percentile(x: Sample) -> Ends:
    """Percentile bootstrap."""
    means = x.w @ _counts(x.n).T / x.n / x.mean[:, None]
    low, high = np.quantile(means, (MISS, 1.0 - MISS), axis=1)
    return x.about(low, high)


def bca(x: Sample) -> Ends:
    """Bias-corrected and accelerated bootstrap (Efron 1987)."""
    means = np.sort(x.w @ _counts(x.n).T / x.n / x.mean[:, None], axis=1)
    below = np.clip((means < 1.0).mean(axis=1), 0.5 / RESAMPLES, 1.0 - 0.5 / RESAMPLES)
    z0, a = ndtri(below), x.skewness / (6.0 * x.n**0.5)
    ends = []
    for z in (ndtri(MISS), ndtri(1.0 - MISS)):
        p = ndtr(z0 + (z0 + z) / (1.0 - a * (z0 + z)))
        index = np.clip(np.rint(p * (RESAMPLES + 1)).astype(int) - 1, 0, RESAMPLES - 1)
        ends.append(np.take_along_axis(means, index[:, None], axis=1)[:, 0])
    return x.about(ends[0], ends[1])


def bootstrap_t(x: Sample) -> Ends:
    """Bootstrap of Student's t of the mean weight."""
    counts = _counts(x.n).T
    means = x.w @ counts / x.n
    variances = np.maximum((x.w**2) @ counts / x.n - means**2, 1e-300)
    t = (means - x.mean[:, None]) / np.sqrt(variances / (x.n - 1))
    low, high = np.quantile(t, (MISS, 1.0 - MISS), axis=1)
    return x.about(1.0 - high * x.error, 1.0 - low * x.error)


FAST: dict[str, Callable[[Sample], Ends]] = {
    f.__name__.replace("_", "-"): f for f in (delta, delta_t, mean_t, jackknife, johnson, hall, hall_tails, lognormal)
}
SLOW: dict[str, Callable[[Sample], Ends]] = {
    f.__name__.replace("_", "-"): f for f in (pareto, empirical_likelihood, percentile, bca, bootstrap_t)
}
