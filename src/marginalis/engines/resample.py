"""Resampling: low-weight chains of a population are replaced by copies of high-weight ones.

An SMC sampler, or population annealing, on the weights of AIS or mAIS (Del Moral, Doucet & Jasra, J. R. Stat. Soc. B
68, 411 (2006)). A population's estimate Π_t (mean weight between two resamplings) is unbiased for Z/Z_0, as a single
weight is, so a population with its one log-weight takes the place of a chain in all statistics.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..checks import Array
from ..random import RESAMPLE, uniforms
from ..statistics.confidence import log_mean_exp
from ..statistics.resampling import systematic
from .plan import Plan

_LOOKS = 256  # Largest number of steps of a run after which the weights are checked.


class Populations:
    """The populations of one job: their estimates up to the last resampling, and the log-weights at that time."""

    def __init__(self, plan: Plan, chains: range) -> None:
        self.plan, self.shape = plan, (len(chains) // plan.chains.population_size, plan.chains.population_size)
        firsts = np.arange(chains.start, chains.stop, plan.chains.population_size, dtype=np.uint64)
        self.firsts = firsts + np.uint64(plan.chains.first)
        self.gained = np.zeros(self.shape[0])  # Logarithm of the product of mean weights up to the last resampling.
        self.since = np.zeros(self.shape)  # Log-weights of the chains at the last resampling.
        self.stride = max(1, plan.steps // _LOOKS)

    def next_look(self, k: int) -> int:
        """Return the next step after k at which the weights are checked."""
        return min((k // self.stride + 1) * self.stride, self.plan.steps)

    def choose(self, k: int, log_weights: Array) -> NDArray[np.int64] | None:
        """Return the ancestor of each chain, or None if every population has enough effective chains.

        The resampling is systematic, with one uniform per population at its own address.
        """
        if k == self.plan.steps:
            return None
        recent = log_weights.reshape(self.shape) - self.since
        relative = np.exp(recent - recent.max(axis=1, keepdims=True))
        sums = relative.sum(axis=1)
        uneven = sums**2 < self.plan.chains.resample_below * self.shape[1] * (relative**2).sum(axis=1)
        if not uneven.any():
            return None
        some = np.flatnonzero(uneven)
        found = systematic(relative[some], uniforms(self.plan.chains.seed, self.firsts[some], k, RESAMPLE, 1))
        ancestors = np.arange(log_weights.size).reshape(self.shape)
        ancestors[some] = self.shape[1] * some[:, None] + found
        self.gained[some] += log_mean_exp(recent[some], axis=1)
        self.since[some] = log_weights.reshape(self.shape)[some]
        return ancestors.ravel()

    def of_chains(self, log_weights: Array) -> Array:
        """Return log-weights of the chains such that the mean weight of a population is its estimate."""
        return (self.gained[:, None] + log_weights.reshape(self.shape) - self.since).ravel()

    def of_populations(self, log_weights: Array) -> Array:
        """Return the log-weight of every population; −∞ if all its chains have the weight zero."""
        recent = log_weights.reshape(self.shape) - self.since
        some = recent.max(axis=1) > -np.inf
        found = np.full(len(recent), -np.inf)
        found[some] = self.gained[some] + log_mean_exp(recent[some], axis=1)
        return found
