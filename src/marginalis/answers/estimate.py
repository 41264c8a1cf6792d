"""From log-weights to an answer with error bars."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import Array
from ..engines import drive
from ..parallel.threads import Tick
from ..sampling.held import held_variables
from ..sampling.plan import Plan
from ..sampling.recorder import Recorder
from ..sampling.settle import rounding_of
from . import confidence
from .curve import Curve
from .record import Answer, Record, decimals, finite


@dataclass(frozen=True, eq=False)
class Estimate(Answer):
    """Free energy F = −ln Z from the log-weights of independent chains (eqs. F_AIS, F_mAIS).

    Z is estimated without bias; F is not: E[F̂] ≥ F (eq. F_AIS_bound).
    """

    log_weights: Array  # ln W (or ln Λ) of each chain; Z_0 left out
    log_z0: float
    record: Record
    fingerprint: str
    curve: Curve | None = None  # ln Z(β) along the way, if it was recorded
    notes: tuple[str, ...] = ()  # what else there is to warn of
    rounding: float = 0.0  # what it may have done to all weights alike

    @cached_property
    def log_z(self) -> float:
        """ln Ẑ = ln Z_0 + ln mean W (eqs. Z_AIS, Z_mAIS)."""
        return self.log_z0 + confidence.log_mean_exp(self.log_weights)

    @property
    def free_energy(self) -> float:
        """F̂ = −ln Ẑ."""
        return -self.log_z

    @property
    def free_energy_per_variable(self) -> float:
        """f̂ = F̂/n."""
        return self.free_energy / self.variables

    @cached_property
    def stderr(self) -> float:
        """Standard error of F̂ by the delta method: that of the mean weight over the mean weight."""
        return confidence.relative_error(self.log_weights)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % interval of F, which allows for skewed weights (see `confidence.interval`)."""
        low, high = confidence.interval(self.log_weights)
        reach = self.rounding  # nothing is surer than its last digits
        return (
            min(-self.log_z0 - high, self.free_energy - reach),
            max(-self.log_z0 - low, self.free_energy + reach),
        )

    @cached_property
    def ess(self) -> float:
        """Effective number of chains, (ΣW)²/ΣW²."""
        return confidence.effective_size(self.log_weights)

    @cached_property
    def tail_index(self) -> float:
        """Shape k̂ of a generalised Pareto fit to the largest weights; NaN if they are too few or too equal."""
        return confidence.tail_index(self.log_weights)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful about this estimate, in words."""
        found = confidence.warnings_of(self.log_weights)
        if self.steps == 1:
            found += ("steps is 1: this is plain importance sampling from the base, without annealing",)
        return found + warnings_of_digits(self.log_weights) + self.notes

    def join(self, other: Estimate) -> Estimate:
        """Return the estimate from the chains of both, which must share model and plan but no chain."""
        if not isinstance(other, Estimate):
            raise ValueError(f"cannot join an Estimate with a {type(other).__name__}")
        if self.fingerprint != other.fingerprint:
            hint = ": adaptive schedules differ with the seed; give both the same one, or take more chains of one seed"
            same = "adaptive" in (self.schedule, other.schedule) and self.seed != other.seed
            raise ValueError(f"cannot join estimates of different models or plans{hint if same else ''}")
        for seed, first, count in self.record.runs:
            for seed2, first2, count2 in other.record.runs:
                if seed == seed2 and first < first2 + count2 and first2 < first + count:
                    raise ValueError(
                        f"cannot join: both hold chains {max(first, first2)} to "
                        f"{min(first + count, first2 + count2) - 1} of seed {seed}"
                    )
        return replace(
            self,
            log_weights=np.concatenate([self.log_weights, other.log_weights]),
            record=self.record.joined(other.record),
            curve=self.curve + other.curve if self.curve is not None and other.curve is not None else None,
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
            rounding=max(self.rounding, other.rounding),
        )

    __add__ = join

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data; what is infinite (the error of one chain) is None."""
        low, high = self.interval
        return {
            "log_z": self.log_z,
            "free_energy": self.free_energy,
            "free_energy_per_variable": self.free_energy_per_variable,
            "stderr": finite(self.stderr),
            "interval": [finite(low), finite(high)],
            "ess": self.ess,
            "tail_index": finite(self.tail_index),
            **self.record.to_dict(),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        low, high = self.interval
        digits = decimals(self.stderr)
        lines = [
            f"F = {self.free_energy:.{digits}f} ± {self.stderr:.{digits}f}"
            f"   (95 % interval {low:.{digits}f} to {high:.{digits}f})",
            f"ln Z = {self.log_z:.{digits}f}   F/n = {self.free_energy_per_variable:.{digits + 2}f}"
            f"   n = {self.variables}",
            f"{self.method}, {self.record}, {self.chains} chains "
            f"(ESS {self.ess:.1f}), seed {self.seed}, {self.engine}, {self.seconds:.2f} s",
        ]
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])


_COARSE = 1e-3  # rounding of log-weights that is worth a warning


def run_plan(plan: Plan, threads: int, tick: Tick, recorder: Recorder | None = None) -> Estimate:
    """Run a plan and weigh up what comes out."""
    start = time.perf_counter()
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is no warning but an error, below
        log_weights = drive.run(plan, threads, tick, recorder)
    if not np.isfinite(log_weights).all():
        raise ValueError("the log-weights are not finite: the parameters are too large for floating point")
    log_weights.flags.writeable = False
    log_z0 = plan.log_z0
    return Estimate(
        log_weights=log_weights,
        log_z0=log_z0,
        record=Record.of(plan, time.perf_counter() - start),
        fingerprint=plan.fingerprint(),
        notes=_warnings_of_base(plan),
        rounding=rounding_of(plan, log_weights, log_z0 + confidence.log_mean_exp(log_weights)),
    )


def warnings_of_digits(log_weights: Array) -> tuple[str, ...]:
    """What is wrong with weights whose logs are so large that rounding hides their spread."""
    top = float(log_weights.max())
    if math.ulp(top) < _COARSE:
        return ()
    return (f"the log-weights, of size {abs(top):.2g}, are rounded to {math.ulp(top):.1g}: the error is not known",)


def _warnings_of_base(plan: Plan) -> tuple[str, ...]:
    """What can be seen before the run, and not in its weights."""
    if plan.remainder.model is None or not (held := held_variables(plan.remainder.model, plan.remainder.base)):
        return ()
    return (
        f"the base holds {held} of {plan.remainder.model.n_variables} variables in one state, in which the couplings "
        "need not leave them: what lies elsewhere is missed without a sign in the weights; start from base='uniform'",
    )
