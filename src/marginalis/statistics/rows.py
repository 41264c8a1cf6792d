"""The log-weights of many runs of equally many chains: estimates, intervals and warnings of all in one pass.

A row of an array belongs to a run. The numbers are those that `confidence` returns for each row alone, to the last bit;
rows for which a warning is possible are passed to it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..checks import Array
from . import confidence
from .confidence import Moments, interval_of

_NEAR = 0.9  # A row this close to the limit of a warning is checked alone.
_BLOCK = 1 << 15  # Numbers of a temporary array, which should fit into the cache.


class RowStatistics(NamedTuple):
    """Results of runs: one entry or one row for each."""

    log_mean: Array  # Logarithm of the mean weight.
    stderr: Array  # Relative standard error of the mean weight.
    interval: Array  # Rows of (low, high), of the logarithm of the mean weight.
    ess: Array
    tail_index: Array
    warnings: list[tuple[str, ...]]


def summarise(log_weights: Array, unseen: Array, of: str = "chains", level: float = 0.95) -> RowStatistics:
    """Return the results of runs from finite log-weights [run, chain] and the share of unseen states of each run."""
    n = log_weights.shape[1]
    if n == 1:
        ends = np.tile([-math.inf, math.inf], (len(log_weights), 1))
        parts = [confidence.warnings_of(row, of) + confidence.warnings_of_digits(row) for row in log_weights]
        unknown, none = np.full(len(ends), math.inf), np.full(len(ends), math.nan)
        return RowStatistics(log_weights[:, 0].copy(), unknown, ends, np.ones(len(ends)), none, parts)
    size = max(1, _BLOCK // n)
    blocks = range(0, len(log_weights), size)
    found = [_summarise(log_weights[i : i + size], unseen[i : i + size], of, level) for i in blocks]
    log_mean, stderr, interval, ess, tails = (np.concatenate([part[i] for part in found]) for i in range(5))
    return RowStatistics(log_mean, stderr, interval, ess, tails, [w for part in found for w in part.warnings])


def _summarise(log_weights: Array, unseen: Array, of: str, level: float) -> RowStatistics:
    log_weights = np.ascontiguousarray(log_weights)
    n = log_weights.shape[1]
    tops = log_weights.max(axis=1)
    w = np.exp(log_weights - tops[:, None])
    means, sums, squared = w.mean(axis=1), w.sum(axis=1), _dot(w, w)
    error = w.std(axis=1, ddof=1) / means / math.sqrt(n)
    log_means = [float(top) + math.log(mean) for top, mean in zip(tops, means.tolist(), strict=True)]
    w -= means[:, None]
    squares = w * w
    moments = (_dot(w, w) / n, squares.mean(axis=1), _dot(squares, w) / n, _dot(squares, squares) / n)
    ordered = np.sort(log_weights, axis=1)
    low, quarter, middle, three, high = _quantiles(ordered, (0.1, 0.25, 0.5, 0.75, 0.9))
    quantiles = zip(low.tolist(), middle.tolist(), high.tolist(), strict=True)
    values = zip(log_means, means.tolist(), *(x.tolist() for x in moments), quantiles, strict=True)
    ends = [interval_of(Moments(n, *own), level, share) for own, share in zip(values, unseen.tolist(), strict=True)]
    # The square of a number is not always the last bit of the square of an array.
    ess = np.array([total**2 / square for total, square in zip(sums, squared, strict=True)])
    tails = tail_indices(ordered)
    doubtful = (n < confidence.FEW_CHAINS) | (ess < confidence.LOW_ESS / _NEAR) | (1.0 / sums > confidence.LARGE_SHARE)
    doubtful |= _may_be_uneven(n, ess, (three - quarter) / 1.34, (high - middle) / 1.28)
    doubtful |= (tails > confidence.HEAVY_TAIL) | (np.spacing(np.abs(tops)) >= 1e-6)
    warnings: list[tuple[str, ...]] = [()] * len(ends)
    for row in np.flatnonzero(doubtful):
        own = log_weights[row]
        warnings[row] = confidence.warnings_of(own, of) + confidence.warnings_of_digits(own)
    return RowStatistics(np.array(log_means), np.maximum(error, unseen), np.array(ends), ess, tails, warnings)


def _dot(a: Array, b: Array) -> Array:
    """Return the scalar product of each row of one array with that of the other."""
    return np.asarray((a[:, None, :] @ b[:, :, None])[:, 0, 0])


def _quantiles(ordered: Array, shares: tuple[float, ...]) -> list[Array]:
    """Return quantiles of rows that are sorted, as `numpy.quantile` interpolates them."""
    n, found = ordered.shape[1], []
    for share in shares:
        at = share * (n - 1)
        below = int(at)
        t = at - below
        a, b = ordered[:, below], ordered[:, min(below + 1, n - 1)]
        found.append(a + (b - a) * t if t < 0.5 else b - (b - a) * (1.0 - t))
    return found


def _may_be_uneven(n: int, ess: Array, spread: Array, upper: Array) -> NDArray[np.bool_]:
    """Whether the rule of `confidence.is_uneven` may hold, with a margin."""

    def errors(widths: Array) -> Array:
        scaled = widths * (1.0 + 1.0 / math.sqrt(n))
        return np.asarray(np.sqrt(np.expm1(np.minimum(scaled * scaled, 700.0)) / n))

    large = (ess < confidence.AMPLE_ESS / _NEAR) & (errors(spread) > _NEAR * confidence.LARGE_ERROR)
    huge = errors(np.minimum(spread, upper)) > _NEAR * confidence.HUGE_ERROR
    return np.asarray(large | ((ess < confidence.HUGE_ESS / _NEAR) & huge))


def tail_indices(ordered: Array) -> Array:
    """Return the shape k̂ of the tail of every sorted row, as `confidence.tail_index` does."""
    n = ordered.shape[1]
    size = math.ceil(min(n / 5.0, 3.0 * math.sqrt(n)))
    found = np.full(len(ordered), math.nan)
    if n <= size or size < confidence.MIN_TAIL:
        return found
    top = ordered[:, n - size - 1 :]
    weights = np.exp(top - top[:, -1:])
    excess = weights[:, 1:] - weights[:, :1]
    usual = (excess[:, 0] > confidence.TINY) & ((np.diff(excess, axis=1) > 0.0).sum(axis=1) >= confidence.MIN_TAIL - 1)
    for row in np.flatnonzero(~usual):
        found[row] = confidence.tail_index(ordered[row])
    some = np.flatnonzero(usual)
    count = 30 + int(math.sqrt(size))
    step = max(1, _BLOCK // (count * size))
    for first in range(0, len(some), step):
        rows = some[first : first + step]
        found[rows] = confidence.pareto_of_rows(np.ascontiguousarray(excess[rows]))[0]
    return found
