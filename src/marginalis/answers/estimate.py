"""From log-weights to an answer with error bars."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import Array, a_kind, frozen, reading, real_number, shown
from ..display import sketch
from ..engines import drive
from ..engines.placement import rounding_of
from ..engines.plan import Plan
from ..engines.recorder import Recorder
from ..files.results import Result, read_result, write_result
from ..parallel.threads import Tick
from ..paths.held import held_variables, unseen_share
from ..running.session import Workers
from ..statistics import confidence
from .curve import Curve
from .record import Answer, Record, decimals, finite, printable


@dataclass(frozen=True, eq=False, repr=False)
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
    unseen: float = 0.0  # share of the mean weight that states which no chain has met may have (see `unseen_share`)

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
        """Standard error of F̂ by the delta method: that of the mean weight over the mean weight; at least `unseen`."""
        return max(confidence.relative_error(self.log_weights), self.unseen)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % interval of F, which allows for skewed weights (see `confidence.interval`)."""
        return self.interval_at(0.95)

    @property
    def log_z_interval(self) -> tuple[float, float]:
        """95 % interval of ln Z."""
        low, high = self.interval
        return -high, -low

    def interval_at(self, level: float) -> tuple[float, float]:
        """Return the interval of F at another level, as 0.99: it is made as that of 95 %, which was calibrated."""
        share = real_number(level, "level")
        if not 0.0 < share < 1.0:
            raise ValueError(f"level is {shown(level)}; it must lie between 0 and 1, as 0.95 does")
        low, high = confidence.interval(self.log_weights, share, self.unseen)
        reach = self.rounding  # nothing is surer than its last digits
        return (
            min(-self.log_z0 - high, self.free_energy - reach),
            max(-self.log_z0 - low, self.free_energy + reach),
        )

    @cached_property
    def ess(self) -> float:
        """Effective number of chains, or of populations with resampling, (ΣW)²/ΣW²."""
        return confidence.effective_size(self.log_weights)

    @property
    def ess_in_words(self) -> str:
        """The effective number, and of how many populations it is with resampling."""
        return f"ESS {self.ess:.1f}" + (f" of {self.populations} populations" if self.populations else "")

    @cached_property
    def tail_index(self) -> float:
        """Shape k̂ of a generalised Pareto fit to the largest weights; NaN if they are too few or too equal."""
        return confidence.tail_index(self.log_weights)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful about this estimate, in words."""
        found = confidence.warnings_of(self.log_weights, self.ess_of)
        if self.steps == 1:
            found += ("steps is 1: this is plain importance sampling from the base, without annealing",)
        return found + warnings_of_digits(self.log_weights) + self.notes

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """What else to know about the numbers, in words; no reason for doubt."""
        low, high = self.interval
        found: tuple[str, ...] = ()
        if self.unseen > confidence.relative_error(self.log_weights):
            found = (
                f"the {self.chains} chains agree so well that the error is that of what none of them has met: states "
                f"that the base hardly ever starts from may have a share of {self.unseen:.1g} in Z",
            )
        if self.rounding == 0.0 or (low < self.free_energy - self.rounding and high > self.free_energy + self.rounding):
            return found
        return (
            *found,
            f"the interval reaches ± {self.rounding:.1g} at least, which rounding in {self.record.precision} precision "
            "may have done to all weights alike; the standard error shows their spread only",
        )

    def join(self, other: Estimate) -> Estimate:
        """Return the estimate from the chains of both, which must share model and plan but no chain."""
        if not isinstance(other, Estimate):
            raise ValueError(f"cannot join an Estimate with {a_kind(other)}")
        if self.fingerprint != other.fingerprint:
            hint = ": adaptive schedules differ with the seed; give both the same one, or take more chains of one seed"
            if self.record.draws != other.record.draws:
                drawn = f"one draws by {self.record.draws}, the other by {other.record.draws}"
                raise ValueError(f"cannot join estimates of different plans: {drawn}")
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
            log_weights=frozen(np.concatenate([self.log_weights, other.log_weights])),
            record=self.record.joined(other.record),
            curve=self.curve + other.curve if self.curve is not None and other.curve is not None else None,
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
            rounding=max(self.rounding, other.rounding),
            unseen=self.unseen * self.chains / (self.chains + other.chains),
        )

    __add__ = join

    def __radd__(self, other: Any) -> Estimate:
        """Return this estimate for a sum that starts from 0, as Python's `sum` does."""
        return self if type(other) is int and other == 0 else NotImplemented

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same weights of the same chains of the same plan, however long it took."""
        if not isinstance(other, Estimate):
            return NotImplemented
        return self._plain() == other._plain() and all(
            np.array_equal(a, b) for a, b in zip(self._arrays(), other._arrays(), strict=True)
        )

    def __hash__(self) -> int:
        return hash(self._plain())

    def _plain(self) -> tuple[Any, ...]:
        curve = None if self.curve is None else self.curve.log_z0
        return self.record, self.fingerprint, self.log_z0, self.notes, self.rounding, self.unseen, curve

    def _arrays(self) -> tuple[Array, ...]:
        none = np.zeros(0)
        curve = (none, none) if self.curve is None else (self.curve.betas, self.curve.log_weights)
        return self.log_weights, *curve

    def save(self, path: str | Path) -> None:
        """Write the estimate, with where it comes from, to an ``.npz`` file; `load_estimate` reads it."""
        provenance = {
            **self.record.to_plain(),
            "fingerprint": self.fingerprint,
            "notes": list(self.notes),
            "rounding": self.rounding,
        }
        if self.unseen:
            provenance["unseen"] = self.unseen
        curve = None if self.curve is None else (self.curve.betas, self.curve.log_weights, self.curve.log_z0)
        result = Result(self.log_weights, self.log_z0, self.record.runs, provenance, curve)
        write_result(path, result, self.to_json())

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
            "ess_of": self.ess_of,
            "tail_index": finite(self.tail_index),
            **self.record.to_dict(),
            "warnings": list(self.warnings),
            "remarks": list(self.remarks),
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
            f"({self.ess_in_words}), seed {self.seed}, {self.engine}, {self.seconds:.2f} s",
        ]
        lines += [f"note: {remark}" for remark in self.remarks]
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])

    def _sketch(self) -> str:
        weights, span = self.log_z0 + self.log_weights, self.log_z_interval
        return sketch.histogram(weights, at=[self.log_z], span=span, about="log-weights, ln Z and its interval")


def load_estimate(path: str | Path) -> Estimate:
    """Read an estimate that `Estimate.save` or ``marginalis estimate --out`` wrote; it equals the one written."""
    with reading("result", path):
        found = read_result(path)
        data = found.provenance
        for name in ("fingerprint", "notes", "rounding"):
            if name not in data:
                raise ValueError(f"provenance lacks {name!r}")
        fingerprint, notes = printable(data.pop("fingerprint"), "fingerprint"), data.pop("notes")
        rounding, unseen = (real_number(data.pop(name, 0.0), name) for name in ("rounding", "unseen"))
        if not isinstance(notes, list) or rounding < 0.0 or unseen < 0.0:
            raise ValueError("notes must be a list, and rounding and unseen must not be negative")
        record = Record.from_plain(data, found.runs)
        if len(found.log_weights) != (record.populations or record.chains) or record.chains % len(found.log_weights):
            raise ValueError(f"holds {len(found.log_weights)} log-weights, which do not fit its {record.chains} chains")
        if found.curve is not None and found.curve[1].shape[1] != record.chains:
            raise ValueError(f"the curve has {found.curve[1].shape[1]} chains; the record has {record.chains}")
        return Estimate(
            log_weights=found.log_weights,
            log_z0=found.log_z0,
            record=record,
            fingerprint=fingerprint,
            curve=None if found.curve is None else Curve(*found.curve, unseen),
            notes=tuple(printable(note, "a note") for note in notes),
            rounding=rounding,
            unseen=unseen,
        )


_COARSE = 1e-3  # rounding of log-weights that is worth a warning


def run_plan(plan: Plan, workers: Workers, tick: Tick, recorder: Recorder | None = None) -> Estimate:
    """Run a plan and weigh up what comes out."""
    start = time.perf_counter()
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is no warning but an error, below
        log_weights = drive.run(plan, workers, tick, recorder)
    if not np.isfinite(log_weights).all():
        raise ValueError("the log-weights are not finite: the parameters are too large for floating point")
    log_weights.flags.writeable = False
    log_z0 = plan.log_z0
    return Estimate(
        log_weights=log_weights,
        log_z0=log_z0,
        record=Record.of(plan, time.perf_counter() - start, workers.names),
        fingerprint=plan.fingerprint(),
        notes=_warnings_of_base(plan),
        unseen=unseen_share(plan.remainder.model, plan.remainder.base, plan.chains),
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
