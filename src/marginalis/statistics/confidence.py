"""Confidence intervals of the logarithm of a mean weight, valid for skewed weights, and warnings.

All functions take the log-weights of independent chains, and adding a constant to the log-weights changes none of the
errors or warnings. The constants were chosen by the study in `studies.calibration` (docs/calibration.md).

References
----------
P. Hall, On the removal of skewness by transformation, J. R. Stat. Soc. B 54, 221 (1992).
J. Zhang and M. A. Stephens, A new and efficient estimation method for the generalized Pareto distribution,
Technometrics 51, 316 (2009).
A. Vehtari et al., Pareto smoothed importance sampling, J. Mach. Learn. Res. 25, 72 (2024).
"""

from __future__ import annotations

import math
from typing import NamedTuple, overload

import numpy as np
from scipy.special import stdtrit

from ..checks import Array

# Least number of distinct weights for a fit of the tail.
MIN_TAIL = 5
# Fewer chains than this do not determine the spread and the tail of the weights.
FEW_CHAINS = 10
# A predicted relative error of the mean weight above LARGE_ERROR needs an effective sample size of AMPLE_ESS, and one
# above HUGE_ERROR needs HUGE_ESS.
LARGE_ERROR, AMPLE_ESS = 1.0, 25.0
HUGE_ERROR, HUGE_ESS = 10.0, 200.0
# A smaller effective sample size gives a warning.
LOW_ESS = 5.0
# A single weight with a larger share of the sum gives a warning.
LARGE_SHARE = 0.5
# A larger tail index k̂ gives a warning.
HEAVY_TAIL = 0.85
# The sample skewness is multiplied by this factor, since a sample underestimates the skewness.
_SKEWNESS = 1.25
# N chains underestimate the relative variance r by about this times r²/N, on RBMs, lattices and glasses with r up to 5.
_HIDDEN = 13.0
# The 90 % quantile of the normal distribution.
_Z90 = 1.2815515655446004
# Limit of the curvature c of the quantile function: the second moment of the weights is infinite from c = 1/2 on.
_MOST_BEND = 0.4
# Largest factor by which the upper end of an interval moves out.
_WIDEST = 4.0
# Squared spread of the log-weights at which their quantiles and their moments have equal influence.
_BALANCED_SPREAD = 0.7
# A small number, to avoid division by zero, whose inverse is finite.
TINY = 1e-200
# Coarser rounding of the log-weights than this gives a warning.
_COARSE = 1e-3


class Tail(NamedTuple):
    """Generalised Pareto fit of the largest weights.

    A weight W above u = exp(threshold) is larger than w with probability (1 + k (w − u)/σ)^(−1/k), σ = exp(log_scale).
    """

    threshold: float
    k: float
    log_scale: float
    size: int  # The number of weights above the threshold.


def relative_weights(log_weights: Array) -> Array:
    """Return the weights divided by the largest."""
    return np.exp(log_weights - log_weights.max())


@overload
def log_mean_exp(x: Array) -> float: ...
@overload
def log_mean_exp(x: Array, *, axis: int) -> Array: ...
def log_mean_exp(x: Array, *, axis: int | None = None) -> float | Array:
    """Return ln of the mean of eˣ, of all numbers or along an axis."""
    if axis is None:
        top = float(x.max())
        return top + math.log(float(np.exp(x - top).mean()))
    tops = x.max(axis=axis, keepdims=True)
    return np.asarray(tops.squeeze(axis) + np.log(np.exp(x - tops).mean(axis=axis)))


def relative_error(log_weights: Array) -> float:
    """Return the standard error of the mean weight, divided by the mean weight."""
    if len(log_weights) == 1:
        return math.inf
    w = relative_weights(log_weights)
    return float(w.std(ddof=1) / w.mean() / math.sqrt(len(w)))


def effective_size(log_weights: Array) -> float:
    """Return the effective sample size, (ΣW)²/ΣW²."""
    w = relative_weights(log_weights)
    return float(w.sum() ** 2 / (w @ w))


def corrected_variance(log_weights: Array, populations: bool = False) -> float:
    """Return the relative variance r of the weights; for chains, corrected for its underestimate by few chains."""
    r = len(log_weights) / effective_size(log_weights) - 1.0
    return r if populations else r * (1.0 + _HIDDEN * r / len(log_weights))


def interval(log_weights: Array, level: float = 0.95, unseen: float = 0.0) -> tuple[float, float]:
    """Return a confidence interval of ln E[W] that holds for skewed weights.

    Student's t of the mean weight is skewed if the weights are; Hall's monotone cubic removes this to first order. The
    spread of the weights is itself uncertain, the more so the heavier their tails: t has 2N/(kurtosis − 1) degrees of
    freedom, which is N for Gaussian weights. A sample that has missed the largest weights has too small a mean and too
    small an error: if the bulk of the log-weights predicts a larger error than the sample has, the upper end moves out.

    `unseen` is the share of the mean weight that may come from states of probability 1/N which no chain has visited. N
    chains miss states of total probability −ln(p)/N with probability p, so each end lies at least −ln(p) times this
    share away from the mean.
    """
    n = len(log_weights)
    if n == 1:
        return -math.inf, math.inf
    w = relative_weights(log_weights)
    mean = float(w.mean())
    w -= mean
    squares = w * w
    low, middle, high = np.quantile(log_weights, (0.1, 0.5, 0.9))
    moments = Moments(
        n=n,
        log_mean=float(log_weights.max()) + math.log(mean),
        mean=mean,
        variance=float(w @ w) / n,
        square=float(squares.mean()),
        third=float(squares @ w) / n,
        fourth=float(squares @ squares) / n,
        quantiles=(float(low), float(middle), float(high)),
    )
    return interval_of(moments, level, unseen)


class Moments(NamedTuple):
    """What the interval depends on: moments of the relative weights, and quantiles of the log-weights."""

    n: int
    log_mean: float  # Logarithm of the mean weight.
    mean: float  # Mean of the weights divided by the largest; the following are central moments of these.
    variance: float
    square: float  # The variance again, summed in another order.
    third: float
    fourth: float
    quantiles: tuple[float, float, float]  # The 10, 50 and 90 % quantiles of the log-weights.


def interval_of(moments: Moments, level: float, unseen: float) -> tuple[float, float]:
    """Return the interval that `interval` describes, from the moments of the weights."""
    n, log_mean, mean, variance, square, third, fourth, quantiles = moments
    miss = (1.0 - level) / 2.0
    least = unseen_reach(unseen, level)
    if variance <= 0.0:
        return log_mean + math.log(max(1.0 - least, miss)), log_mean + math.log1p(least)
    error = math.sqrt(variance / (n - 1)) / mean
    t, too_high, too_low = _reaches_of(n, square, third, fourth, level)
    low, high = 1.0 - error * too_high, 1.0 + error * too_low
    # The lower end of the mean weight is at least p times the mean by Markov's inequality: a mean of positive weights
    # exceeds E[W]/p with probability at most p. The upper end is at least that of the delta method, since the sample
    # skewness of few weights can be too small or even negative.
    reach = max(math.log(max(high, miss)), t * error) * _farther(n, quantiles, error)
    return log_mean + math.log(max(min(low, 1.0 - least), miss)), log_mean + max(reach, math.log1p(least))


def lower_bound(log_weights: Array, level: float = 0.95) -> float:
    """Return a number that ln E[W] exceeds with at least this probability, whatever the distribution of the weights.

    The weights are cut into t groups of consecutive chains. The means of the groups are independent, positive and
    unbiased, so their product divided by E[W]^t has the mean 1, and by Markov's inequality it exceeds 1/(1 − level)
    with the probability 1 − level at most. Many groups are sharp if the weights are even, and one group is best if
    most of them are zero. The average over t = 1, 2, 4, … has the mean 1 as well, and is the one that is used.
    """
    counts = [2**k for k in range(len(log_weights).bit_length())]
    means = []
    with np.errstate(divide="ignore", invalid="ignore"):
        for t in counts:
            groups = [np.logaddexp.reduce(x) - math.log(len(x)) for x in np.array_split(log_weights, t)]
            means.append(float(np.mean(groups)))
    rare = -math.log1p(-level)
    found = [(t, mean) for t, mean in zip(counts, means, strict=True) if mean > -math.inf]
    high = max(mean - rare / t for t, mean in found)
    low = max(mean - (rare + math.log(len(counts))) / t for t, mean in found)
    while high - low > 1e-12 * max(1.0, abs(high)):  # The average falls as the bound rises.
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        total = np.logaddexp.reduce([t * (mean - middle) for t, mean in found]) - math.log(len(counts))
        low, high = (middle, high) if total >= rare else (low, middle)
    return low


def unseen_reach(unseen: float, level: float = 0.95) -> float:
    """Return the largest relative change of the mean weight by states that no chain has visited, at a level."""
    return -math.log((1.0 - level) / 2.0) * unseen


def _farther(n: int, quantiles: tuple[float, float, float], error: float) -> float:
    """Return the factor by which the upper end of the interval moves out, given the relative error of the sample.

    The quantile function of the log-weights is modelled as a + s z + c z²/2 with a normal z, through their 10, 50 and
    90 % quantiles. Then E[Wᵏ] = e^{ka} exp(k²s²/2(1 − kc))/√(1 − kc), which predicts an error of the mean weight that
    is compared with that of the sample. If the log-weights spread little, the moments of the sample are more reliable
    and the factor is close to 1.
    """
    low, middle, high = quantiles
    up, down = (high - middle) / _Z90, (middle - low) / _Z90
    c = min((up - down) / _Z90, _MOST_BEND)
    s = max(up - c * _Z90 / 2.0, 0.0)
    ratio = 2.0 * s * s / (1.0 - 2.0 * c) - s * s / (1.0 - c) + math.log((1.0 - c) / math.sqrt(1.0 - 2.0 * c))
    foretold = math.sqrt(math.expm1(min(max(ratio, 0.0), 700.0)) / n) * (1.0 + 2.0 / math.sqrt(n))
    return float(min(max(foretold / error, 1.0), _WIDEST) ** (up * up / (_BALANCED_SPREAD + up * up)))


def reaches(deviations: Array, level: float = 0.95) -> tuple[float, float, float]:
    """Return Student's t, and by how many standard errors a mean of such terms may be too high or too low.

    `deviations` are those of the terms from their mean, not all zero. The degrees of freedom of t follow from their
    kurtosis; the other two values allow for their skewness.
    """
    n, squares = len(deviations), deviations * deviations
    third, fourth = float(squares @ deviations) / n, float(squares @ squares) / n
    return _reaches_of(n, float(squares.mean()), third, fourth, level)


def _reaches_of(n: int, variance: float, third: float, fourth: float, level: float) -> tuple[float, float, float]:
    skewness, kurtosis = third / variance**1.5, fourth / variance**2
    t = float(stdtrit(min(2.0 * n / max(kurtosis - 1.0, 2.0), n - 1.0), 0.5 + level / 2.0))
    a = _SKEWNESS * skewness / math.sqrt(n)
    return t, _hall(t, a), -_hall(-t, a)


def _hall(u: float, a: float) -> float:
    """Solve t + a t²/3 + a² t³/27 + a/6 = u (Hall 1992); a is the skewness over √N."""
    if abs(a) < 1e-6:
        return u
    return 3.0 / a * (math.cbrt(1.0 + a * (u - a / 6.0)) - 1.0)


def fit_tail(log_weights: Array) -> Tail | None:
    """Fit a generalised Pareto distribution to the M = min(N/5, 3√N) largest weights; None if M is too small."""
    n = len(log_weights)
    size = math.ceil(min(n / 5.0, 3.0 * math.sqrt(n)))
    if n <= size:
        return None
    top = np.sort(np.partition(log_weights, n - size - 1)[n - size - 1 :])
    weights = np.exp(top - top[-1])
    excess = weights[1:] - weights[0]
    excess = excess[excess > TINY]
    if len(np.unique(excess)) < MIN_TAIL:
        return None
    (k,), (scale,) = pareto_of_rows(excess[None])
    return Tail(float(top[0]), float(k), float(top[-1]) + math.log(scale), len(excess))


def pareto_of_rows(x: Array) -> tuple[Array, Array]:
    """Return shape k and scale σ of a generalised Pareto distribution for every row, a sorted sample.

    They follow from the posterior mean of b = −k/σ over a data-driven prior, on a grid (Zhang & Stephens 2009). k is
    shrunk towards 1/2 with the weight of ten observations, as in Vehtari et al., so that small tails do not give
    extreme values.
    """
    n = x.shape[1]
    count = 30 + int(math.sqrt(n))
    quartile = x[:, int(n / 4.0 + 0.5) - 1]
    b = (1.0 / x[:, -1])[:, None] + (1.0 - np.sqrt(count / (np.arange(1, count + 1) - 0.5))) / (3.0 * quartile)[:, None]
    b[b == 0.0] = TINY  # The formulas below are 0/0 for b = 0, the exponential distribution.
    k = np.log1p(-b[:, :, None] * x[:, None, :]).mean(axis=2)
    profile = n * (np.log(-b / k) - k - 1.0)
    weight = np.exp(profile - profile.max(axis=1, keepdims=True))
    best = (b * weight).sum(axis=1) / weight.sum(axis=1)
    shape = np.log1p(-best[:, None] * x).mean(axis=1)
    return (n * shape + 5.0) / (n + 10.0), -shape / best


def tail_index(log_weights: Array) -> float:
    """Return the shape k̂ of the tail: moments of order 1/k and above are infinite. NaN if there are too few weights."""
    tail = fit_tail(log_weights)
    return math.nan if tail is None else tail.k


def warnings_of(log_weights: Array, unit: str = "chains") -> tuple[str, ...]:
    """Return warnings where the weights of chains, or of populations, do not support the interval.

    The main test uses the bulk of the log-weights and not the largest weights: a test of the largest weights would pass
    exactly those samples that have missed the important weights, whose intervals fail.
    """
    n = len(log_weights)
    if n == 1:
        return (f"one {unit[:-1]} gives no error bar; raise {unit}",)
    w = relative_weights(log_weights)
    total = float(w.sum())
    ess, share = total**2 / float(w @ w), 1.0 / total
    if total == n:
        return ()
    found = []
    if n < FEW_CHAINS:
        found.append(f"{n} {unit} are too few to judge the interval by; raise {unit}")
    elif ess < LOW_ESS or is_uneven(log_weights, ess):
        width = log_spread(log_weights)
        found.append(
            f"the effective sample size is {ess:.1f} of {n} {unit} and the log-weights spread by "
            f"{width:.{'1f' if width < 1e6 else '2g'}}: the interval may be too narrow; raise steps"
        )
    if share > LARGE_SHARE and n > 2:
        found.append(f"one {unit[:-1]} carries {share:.0%} of the weight: do not trust the interval; raise steps")
    k = tail_index(log_weights)
    if k > HEAVY_TAIL:
        found.append(f"the weights have a heavy tail (k = {k:.2f}): the interval may be too narrow; raise steps")
    return tuple(found)


def log_spread(log_weights: Array) -> float:
    """Return the standard deviation of the log-weights from their quartiles, as for a Gaussian; tails do not matter."""
    low, high = np.quantile(log_weights, (0.25, 0.75))
    return float(high - low) / 1.3489795003921634


def is_uneven(log_weights: Array, ess: float) -> bool:
    """Return whether the bulk of the log-weights predicts too large an error of the mean for this effective size.

    Chains that are stuck at low weights widen the lower half, which does not matter if some tens of other chains
    contribute. If the upper half is wide too, a few hundred must contribute, since a hidden phase may lie beyond it.
    """
    if ess >= max(AMPLE_ESS, HUGE_ESS):
        return False
    width, n = log_spread(log_weights), len(log_weights)
    if ess < AMPLE_ESS and expected_error(width, n) > LARGE_ERROR:
        return True
    middle, high = np.quantile(log_weights, (0.5, 0.9))
    return ess < HUGE_ESS and expected_error(min(width, float(high - middle) / _Z90), n) > HUGE_ERROR


def expected_error(spread: float, n: int) -> float:
    """Return the relative standard error of the mean of n weights with Gaussian logarithms of about this spread."""
    s = spread * (1.0 + 1.0 / math.sqrt(n))
    return math.sqrt(math.expm1(min(s * s, 700.0)) / n)


def warnings_of_digits(log_weights: Array) -> tuple[str, ...]:
    """Return a warning if the log-weights are so large that rounding hides their spread."""
    top = float(log_weights.max())
    if math.ulp(top) < _COARSE:
        return ()
    return (
        f"the log-weights are as large as {abs(top):.2g} and are rounded to {math.ulp(top):.1g}: the error is "
        "not known",
    )
