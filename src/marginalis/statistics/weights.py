"""The log-weights of independent chains, from any source, and the estimate of ln Z that they give."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..checks import Array, frozen, plain_array, real_number, shown
from ..display import sketch
from ..display.card import Displayed
from ..display.words import decimals
from . import confidence

# Log-weights that lie this far below the largest one count as zero in a sum of weights.
_FARTHEST = 800.0


@dataclass(frozen=True, eq=False, repr=False)
class Weights(Displayed):
    """N independent log-weights ln W with E[W] = Z/Z_0, and the estimate of ln Z with its error and warnings.

    W is the weight of a chain, or of a population of chains. A weight of zero is a log-weight of −∞. `interval` is that
    of the free energy F = −ln Z, as in an `Estimate`.

    Parameters
    ----------
    log_weights
        The values of ln W, one per chain or population.
    log_z0
        ln Z_0 of the distribution that the chains start from.
    rounding
        An error common to all log-weights, which their spread does not show.
    unseen
        The share of the mean weight that may come from states which no chain has visited.
    of
        ``"chains"`` or ``"populations"``, for warnings.
    one_sided
        Whether there may be important states that no chain can reach. Then the weights give a lower bound of ln Z, and
        no upper one.
    """

    log_weights: Array
    log_z0: float = 0.0
    rounding: float = 0.0
    unseen: float = 0.0
    of: str = "chains"
    one_sided: bool = False

    def __post_init__(self) -> None:
        """Check the arguments; read-only arrays of float64 are not copied."""
        array = plain_array(self.log_weights, "log_weights")
        if array.dtype.kind not in "fiu" or array.ndim != 1 or not array.size:
            raise ValueError("log_weights must be a list of at least one real number, a log-weight per chain")
        if array.dtype != np.float64 or array.flags.writeable:
            array = frozen(np.array(array, dtype=np.float64))
        if not math.isfinite(array.max()) or (array.min() == -math.inf and np.isnan(array).any()):
            raise ValueError("log_weights must be finite, or −inf for a weight of zero; not all of them may be zero")
        object.__setattr__(self, "log_weights", array)
        object.__setattr__(self, "log_z0", real_number(self.log_z0, "log_z0"))

    def __len__(self) -> int:
        """Return the number of weights."""
        return len(self.log_weights)

    @cached_property
    def _finite(self) -> Array:
        """The log-weights with finite numbers for −∞, whose quantiles are not defined."""
        if self.log_weights.min() > -math.inf:
            return self.log_weights
        return np.maximum(self.log_weights, self.log_weights.max() - _FARTHEST)

    @cached_property
    def log_z(self) -> float:
        """ln Ẑ = ln Z_0 + ln mean W (eqs. Z_AIS, Z_mAIS)."""
        return self.log_z0 + confidence.log_mean_exp(self.log_weights)

    @property
    def free_energy(self) -> float:
        """F̂ = −ln Ẑ."""
        return -self.log_z

    def __float__(self) -> float:
        return self.free_energy

    @cached_property
    def stderr(self) -> float:
        """Standard error of ln Ẑ: the relative error of the mean weight (delta method), at least `unseen`.

        It is infinite if the weights are one-sided.
        """
        if self.one_sided:
            return math.inf
        return max(confidence.relative_error(self.log_weights), self.unseen)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % interval of F = −ln Z, which allows for skewed weights (see `confidence.interval`)."""
        return self.interval_at(0.95)

    def interval_at(self, level: float) -> tuple[float, float]:
        """Return the interval of F at another level, such as 0.99; the method was calibrated at 95 %."""
        share = real_number(level, "level")
        if not 0.0 < share < 1.0:
            raise ValueError(f"level is {shown(level)}; it must lie between 0 and 1, as 0.95 does")
        if self.one_sided:
            return -math.inf, -self.lower_bound_at(share)
        low, high = confidence.interval(self._finite, share, self.unseen)
        reach = self.rounding  # The common rounding error widens the interval.
        return min(-self.log_z0 - high, -self.log_z - reach), max(-self.log_z0 - low, -self.log_z + reach)

    def lower_bound_at(self, level: float) -> float:
        """Return a lower bound of ln Z that holds with at least this probability, such as 0.95.

        It supposes nothing of the weights but that they are independent, positive and unbiased.
        """
        share = real_number(level, "level")
        if not 0.0 < share < 1.0:
            raise ValueError(f"level is {shown(level)}; it must lie between 0 and 1, as 0.95 does")
        return self.log_z0 + confidence.lower_bound(self.log_weights, share) - self.rounding

    @cached_property
    def ess(self) -> float:
        """Effective sample size, (ΣW)²/ΣW²."""
        return confidence.effective_size(self.log_weights)

    @property
    def relative_variance(self) -> float:
        """Variance of the weights divided by their squared mean, N/ESS − 1."""
        return len(self) / self.ess - 1.0

    @property
    def ess_of(self) -> str:
        """What a weight belongs to and `ess` counts: ``"chains"`` or ``"populations"``."""
        return self.of

    @cached_property
    def tail_index(self) -> float:
        """Shape k̂ of a generalised Pareto fit to the largest weights; NaN if too few of them are distinct."""
        return confidence.tail_index(self._finite)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about ln Ẑ and its interval."""
        if self.one_sided:
            return confidence.warnings_of_digits(self.log_weights)
        return confidence.warnings_of(self._finite, self.of) + confidence.warnings_of_digits(self.log_weights)

    def joined(self, other: Weights) -> Weights:
        """Return the weights of both together; they must be independent estimates of the same Z/Z_0."""
        if other.log_z0 != self.log_z0:
            raise ValueError("cannot join weights with different log_z0")
        together = frozen(np.concatenate([self.log_weights, other.log_weights]))
        unseen = self.unseen * len(self) / len(together)
        return replace(self, log_weights=together, rounding=max(self.rounding, other.rounding), unseen=unseen)

    def __str__(self) -> str:
        if self.one_sided:
            bound = f"ln Z ≥ {self.lower_bound_at(0.95):.4f}   (with a probability of 95 %)"
            return f"{bound}; the estimate is ln Z = {self.log_z:.4f}"
        low, high = self.interval
        digits = decimals(self.stderr)
        lines = [
            f"F = {self.free_energy:.{digits}f} ± {self.stderr:.{digits}f}"
            f"   (95 % interval {low:.{digits}f} to {high:.{digits}f})",
            f"ln Z = {self.log_z:.{digits}f}   "
            f"{len(self)} {self.of}, ESS {self.ess:.1f}, relative variance {self.relative_variance:.3g}",
        ]
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])

    def _sketch(self) -> str:
        low, high = self.interval if not self.one_sided else (-self.log_z, -self.log_z)
        return sketch.histogram(
            self.log_z0 + self._finite, at=[self.log_z], span=(-high, -low), about="log-weights, ln Z and its interval"
        )
