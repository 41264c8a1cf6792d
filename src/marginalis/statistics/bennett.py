"""Estimates from the forward and the reverse process: Markov's bounds and Bennett's acceptance ratio."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from ..checks import Array
from .confidence import log_mean_exp


def markov_bound(log_weights: Array, risk: float) -> float:
    """Return a lower bound of ln E[W], W ≥ 0, that is too high with probability at most `risk`.

    The chains are split into m = ⌊√N⌋ groups with means W̄_g. By Markov's inequality W̄_g exceeds E[W]/a with
    probability at most a. The groups are independent, so all of them exceed it with probability at most a^m. The bound
    is therefore min_g ln W̄_g + (ln risk)/m, which is tighter than with m = 1.
    """
    groups = math.isqrt(len(log_weights))
    means = [log_mean_exp(group) for group in np.array_split(log_weights, groups)]
    return min(means) + math.log(risk) / groups


class Bennett(NamedTuple):
    """A difference of free energies with its error."""

    difference: float
    stderr: float
    overlap: float  # The smaller (Σf)²/Σf² of the two directions, f being the acceptance probabilities.


def bennett(forward: Array, reverse: Array, *ancestors: NDArray[np.int64] | None) -> Bennett:
    """Return the difference of free energies from the work in both directions, by Bennett's acceptance ratio.

    It is the root Δ of Σ_F f(M + w_F − Δ) = Σ_R f(−M + w_R + Δ) with f(x) = 1/(1 + eˣ) and M = ln(n_F/n_R), with the
    variance of eq. 10a in Bennett, J. Comput. Phys. 22, 245 (1976). If the starts of a direction were resampled,
    `ancestors` numbers the states that they are copies of; copies of one state count as one.
    """
    from scipy.optimize import brentq  # The import is here because it is slow.

    m = math.log(len(forward) / len(reverse))

    def log_f(delta: float) -> tuple[Array, Array]:
        return log_expit(delta - m - forward), log_expit(m - delta - reverse)

    def excess(delta: float) -> float:
        f, r = log_f(delta)
        return log_mean_exp(f) + m - log_mean_exp(r)

    ends = -log_mean_exp(-forward), log_mean_exp(-reverse)
    low, high, reach = min(ends), max(ends), 1.0
    while excess(low) > 0.0 or excess(high) < 0.0:
        low, high, reach = low - reach, high + reach, 2.0 * reach
    delta = float(brentq(excess, low, high, xtol=1e-12, maxiter=2000)) if low < high else low
    variance, overlap = 0.0, math.inf
    for log_values, origin in zip(log_f(delta), ancestors or (None, None), strict=True):
        n = len(log_values)
        start = np.arange(n) if origin is None else origin
        shares = np.bincount(start, np.exp(log_values - log_mean_exp(log_values)) / n)  # f/Σf
        variance += float(((shares - np.bincount(start) / n) ** 2).sum())
        overlap = min(overlap, 1.0 / float(shares @ shares))
    alone = min(len(forward), len(reverse)) == 1  # One weight gives no estimate of the spread.
    return Bennett(delta, math.inf if alone else math.sqrt(variance), overlap)
