"""Trials: what a few chains find along one path, and comparisons of two trials."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..checks import Array
from ..engines.placement import is_lattice
from ..engines.plan import Plan
from ..statistics.confidence import effective_size, log_spread
from . import tuning

_LARGEST_LOG_VARIANCE = 50.0  # Larger values would overflow in later products.


@dataclass(frozen=True)
class Trial:
    """The ln Z that a few chains find along one path, and how uneven their weights are; or that of an exact sum."""

    name: str  # The start of the path.
    plan: Plan | None  # The plan on the path; None for an exact sum.
    log_z: float
    error: float  # Standard error of ln Z.
    log_variance: float = 0.0  # ln(1 + r), where r is the relative variance of the weights.
    steps: int = 1
    ends: Array | None = None  # States of the sampled side after the last step.
    log_weights: Array | None = None  # Log-weights of these states.
    betas: Array | None = None  # A schedule with equally many steps, fitted to the chains.
    seconds: float = math.inf  # Time of the run.
    is_open: bool = True  # Whether the answer may be computed along this path.
    together: int = 1  # Number of chains in a population; 1 without resampling.

    @property
    def is_mixed(self) -> bool:
        """Whether the path starts from a mixture."""
        return self.plan is not None and self.plan.path.mixture is not None

    @property
    def careful_error(self) -> float:
        """The error, increased if few chains are effective.

        One chain with all of the weight has a standard error of 1, but P(ln Ẑ > ln Z + a) ≤ e^−a is all that is known.
        """
        return self.error * (1.0 + self.error)

    @property
    def is_even(self) -> bool:
        """Whether the weights are so even that a finer mixture would gain little."""
        return self.tells and relative_variance(self.log_variance) <= tuning.TOLERANCE.variance_pilots

    @property
    def tells(self) -> bool:
        """Whether enough weights are effective to predict how uneven the weights of the answer will be."""
        return self.log_weights is not None and effective_size(self.log_weights) >= tuning.TUNING.tells

    @property
    def chain_steps(self) -> float:
        """Steps times relative variance: the chain·steps of an estimate whose relative variance is 1.

        ln(1 + r) falls as 1/K where the chains keep up with the path. A few weights show a smaller r than many would;
        then the spread of the log-weights is the better measure.
        """
        r = relative_variance(self.log_variance)
        if self.is_mixed or self.together > 1 or self.log_weights is None:
            return self.steps * self.together * r
        if self.log_variance < tuning.TUNING.even_enough:
            return self.steps * self.log_variance
        least = 0.0 if self.tells else r
        return self.steps * max(4.0 * self.log_variance, 4.0 * log_spread(self.log_weights) ** 2, least)

    @property
    def cost(self) -> float:
        """Operations of an estimate whose relative variance is 1."""
        assert self.plan is not None
        path = self.plan.path
        cost = path.operations * self.chain_steps
        if self.is_mixed and is_lattice(replace(self.plan, path=path.without_mixture())):
            return cost * tuning.TUNING.lattices_faster
        return cost

    def variance_at(self, steps: int) -> float:
        """Return the approximate relative variance of a weight after this number of steps."""
        if self.is_mixed:
            return self.chain_steps / steps
        return relative_variance(self.log_variance * self.steps / steps)


def relative_variance(log_variance: float) -> float:
    """Return r for a value of ln(1 + r)."""
    return math.expm1(min(log_variance, _LARGEST_LOG_VARIANCE))


def is_lower(one: Trial, other: Trial, errors: float) -> bool:
    """Whether one ln Z lies below another by more than this number of standard errors of their difference."""
    return other.log_z - one.log_z > errors * math.hypot(one.error, other.error)


def confirms(mixed: Trial, plain: Trial) -> bool:
    """Whether a path from a mixture is precise enough to show that it finds no more than the plain path."""
    precise = mixed.error <= tuning.TUNING.acquits
    return precise and not is_lower(plain, mixed, tuning.TUNING.acquits_within)
