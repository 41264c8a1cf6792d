"""Numbers that the figures of weights are drawn from."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import boxcox, expit

from ..checks import Array
from ..statistics import confidence


def tail_density(tail: confidence.Tail) -> tuple[Array, Array]:
    """Return points y = ln W from a fitted tail of W, and the density of y there.

    The points are the quantiles that W exceeds with probability q: W = u + σ(q^(−k) − 1)/k. The density of W is
    q^(1+k)/σ there, and the density of y is W times that.
    """
    q = expit(np.linspace(8.0, -8.0, 201))  # The points are dense at both ends.
    y = np.logaddexp(tail.threshold, tail.log_scale + np.log(boxcox(1.0 / q, tail.k)))
    return y, np.exp(y - tail.log_scale + (1.0 + tail.k) * np.log(q))


def bins_of(*samples: Array) -> Array:
    """Return the edges of equally wide bins that cover all samples."""
    count = int(1.5 * math.sqrt(min(map(len, samples)))) | 1  # The number is odd, so that one bin is in the middle.
    return np.linspace(*span_of(*samples), min(81, max(11, count)) + 1)


def span_of(*samples: Array) -> tuple[float, float]:
    """Return the smallest and the largest sample, moved apart if they differ by rounding only."""
    low, high = min(float(x.min()) for x in samples), max(float(x.max()) for x in samples)
    if high - low > 1e-12 * max(1.0, abs(low)):
        return low, high
    return low - 0.5, high + 0.5


def running_means(log_weights: Array) -> tuple[Array, Array]:
    """Return ln of the mean of the first n weights for every n, and its standard error (infinite for n = 1).

    The squared deviations are summed in logs as (W_n − W̄_{n−1})²(n − 1)/n. These terms are positive, so nearly equal
    weights do not cancel and very different ones do not overflow.
    """
    n = np.arange(1.0, len(log_weights) + 1.0)
    top = log_weights.max()
    log_mean = np.logaddexp.accumulate(log_weights - top) - np.log(n)
    x, before = log_weights[1:] - top, log_mean[:-1]
    with np.errstate(divide="ignore"):  # The deviation may be zero.
        gap = np.log(-np.expm1(-np.abs(x - before)))
    terms = 2.0 * (np.maximum(x, before) + gap) + np.log((n[1:] - 1.0) / n[1:])
    log_squares = np.logaddexp.accumulate(terms)
    errors = np.exp(0.5 * (log_squares - np.log(n[1:] * (n[1:] - 1.0))) - log_mean[1:])
    return log_mean + top, np.concatenate([[np.inf], errors])
