"""The free energy and its error bars from the log-weights of a run."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import Array, a_kind, frozen, reading, real_number
from ..display import sketch
from ..display.words import decimals
from ..engines.placement import rounding_of
from ..engines.plan import Plan
from ..engines.recorder import Recorder
from ..files.results import StoredEstimate, read_result, write_result
from ..models.interacting import InteractingMRF
from ..paths.narrow_base import count_fixed_variables, unseen_share
from ..running.session import Session
from ..statistics.weights import Weights
from .curve import Curve
from .record import Answer, Record, printable
from .written import finite

ONE_STEP = ("steps is 1: this is plain importance sampling from the base, without annealing",)
NOT_FINITE = "the log-weights are not finite: the parameters are too large for floating point"
NONE_POSSIBLE = (
    "no chain has found a state that the factors allow, so nothing is known of Z, which may be 0: raise steps or chains"
)
ONE_SIDED = (
    "the factors forbid states, and moves of single variables may not connect those that are left: this is a lower "
    "bound of ln Z, and no interval"
)


@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Answer):
    """Free energy F = −ln Z from the log-weights of independent chains (eqs. F_AIS, F_mAIS).

    Z is estimated without bias; F is not: E[F̂] ≥ F (eq. F_AIS_bound).
    """

    weights: Weights  #: One weight per chain, or per population if chains are resampled.
    record: Record  #: Options, seeds, engine and seconds of the run.
    fingerprint: str  #: Digest of model and plan; estimates that are joined must share it.
    curve: Curve | None = None  #: ln Z(β) along the path, if it was recorded.
    notes: tuple[str, ...] = ()  #: Warnings that do not follow from the weights.
    hints: tuple[str, ...] = ()  #: Remarks that are not stored in files.

    @property
    def log_weights(self) -> Array:
        """ln W (or ln Λ) of each chain or population, without Z_0."""
        return self.weights.log_weights

    @property
    def log_z0(self) -> float:
        """ln Z_0 of the base, the distribution that the path starts from."""
        return self.weights.log_z0

    @property
    def rounding(self) -> float:
        """Bound of the common error of all log-weights by rounding."""
        return self.weights.rounding

    @property
    def unseen(self) -> float:
        """Possible share in the mean weight of states that no chain has visited (see `unseen_share`)."""
        return self.weights.unseen

    @property
    def log_z(self) -> float:
        """ln Ẑ = ln Z_0 + ln mean W (eqs. Z_AIS, Z_mAIS)."""
        return self.weights.log_z

    @property
    def free_energy(self) -> float:
        """F̂ = −ln Ẑ."""
        return -self.log_z

    def __float__(self) -> float:
        return self.free_energy

    @property
    def free_energy_per_variable(self) -> float:
        """f̂ = F̂/n."""
        return self.free_energy / self.variables

    @property
    def stderr(self) -> float:
        """Standard error of F̂: the relative error of the mean weight (delta method), and at least `unseen`."""
        return self.weights.stderr

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of F, which allows for skewed weights (see `confidence.interval`)."""
        return self.weights.interval

    @property
    def log_z_interval(self) -> tuple[float, float]:
        """95 % interval of ln Z."""
        low, high = self.interval
        return -high, -low

    @property
    def lower_bound(self) -> float | None:
        """Lower bound of ln Z with a probability of 95 %, if that is all that is known; otherwise None.

        That is so for models with zeros whose possible states single moves may not connect. `interval` is then open to
        below, and `stderr` is infinite.
        """
        return self.weights.lower_bound_at(0.95) if self.weights.one_sided else None

    def interval_at(self, level: float) -> tuple[float, float]:
        """Return the interval of F at another level, such as 0.99; the method was calibrated at 95 %."""
        return self.weights.interval_at(level)

    @property
    def ess(self) -> float:
        """Effective number of chains, or of populations with resampling, (ΣW)²/ΣW²."""
        return self.weights.ess

    @property
    def ess_in_words(self) -> str:
        """The effective number as text, with the number of populations if chains are resampled."""
        return f"ESS {self.ess:.1f}" + (f" of {self.populations} populations" if self.populations else "")

    @property
    def tail_index(self) -> float:
        """Shape k̂ of a generalised Pareto fit to the largest weights; NaN if they are too few or too equal."""
        return self.weights.tail_index

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt this estimate, as sentences."""
        return self.weights.warnings + (ONE_STEP if self.steps == 1 else ()) + self.notes

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """Further information about the numbers, as sentences; no reasons for doubt."""
        low, high = self.interval
        found = self.hints
        if self.lower_bound is not None:
            return found
        if 0.0 < self.stderr <= self.unseen:
            found += (
                f"the true error may be larger than the spread of the {self.chains} chains: states that the base "
                f"rarely starts from, and that no chain has visited, may hold a share of {self.unseen:.1g} of Z",
            )
        if self.rounding == 0.0 or (low < self.free_energy - self.rounding and high > self.free_energy + self.rounding):
            return found
        return (
            *found,
            f"the interval is at least ± {self.rounding:.1g}, because rounding in {self.record.precision} precision "
            "may shift all log-weights by as much; the standard error measures only their spread",
        )

    def join(self, other: Estimate) -> Estimate:
        """Return the estimate from the chains of both, which must share model and plan but no chain."""
        if not isinstance(other, Estimate):
            raise ValueError(f"cannot join an Estimate with {a_kind(other)}")
        if self.fingerprint != other.fingerprint:
            hint = ": adaptive schedules depend on the seed; give both runs the same schedule, or use one seed"
            if self.record.draws != other.record.draws:
                drawn = f"one has draws={self.record.draws!r}, the other {other.record.draws!r}"
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
            weights=self.weights.joined(other.weights),
            record=self.record.joined(other.record),
            curve=self.curve + other.curve if self.curve is not None and other.curve is not None else None,
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
        )

    __add__ = join

    def __radd__(self, other: Any) -> Estimate:
        """Return this estimate for 0 + estimate, with which Python's `sum` starts."""
        return self if type(other) is int and other == 0 else NotImplemented

    def __eq__(self, other: object) -> bool:
        """Whether both have the same weights of the same chains of the same plan; times are not compared."""
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
        """Write the estimate and its record to an ``.npz`` file, which `load_estimate` reads."""
        write_result(path, self.content(), self.to_json())

    def content(self) -> StoredEstimate:
        """Return what the file of an estimate holds, besides a summary."""
        provenance = {
            **self.record.to_plain(),
            "fingerprint": self.fingerprint,
            "notes": list(self.notes),
            "rounding": self.rounding,
        }
        if self.unseen:
            provenance["unseen"] = self.unseen
        if self.weights.one_sided:
            provenance["one_sided"] = True
        curve = None if self.curve is None else (self.curve.betas, self.curve.log_weights, self.curve.log_z0)
        return StoredEstimate(self.log_weights, self.log_z0, self.record.runs, provenance, curve)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data; infinite numbers, such as the error of one chain, become None."""
        low, high = self.interval
        return {
            "log_z": self.log_z,
            "free_energy": self.free_energy,
            "free_energy_per_variable": self.free_energy_per_variable,
            "stderr": finite(self.stderr),
            "interval": [finite(low), finite(high)],
            "lower_bound": self.lower_bound,
            "ess": self.ess,
            "ess_of": self.ess_of,
            "tail_index": finite(self.tail_index),
            **self.record.to_dict(),
            "warnings": list(self.warnings),
            "remarks": list(self.remarks),
        }

    def __str__(self) -> str:
        low, high = self.interval
        bound = self.lower_bound
        digits = decimals(self.stderr if bound is None else (self.log_z - bound) / 2.0)
        value = (
            f"F = {self.free_energy:.{digits}f} ± {self.stderr:.{digits}f}"
            f"   (95 % interval {low:.{digits}f} to {high:.{digits}f})"
        )
        if bound is not None:
            value = f"ln Z ≥ {bound:.{digits}f}, F ≤ {high:.{digits}f}   (with a probability of 95 %); the estimate is"
        lines = [
            value,
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
    """Read an estimate that `Estimate.save` or ``marginalis estimate --out`` wrote; it equals the one written.

    Parameters
    ----------
    path
        The ``.npz`` file of the estimate.
    """
    with reading("result", path):
        return of_content(read_result(path))


def of_content(found: StoredEstimate) -> Estimate:
    """Return the estimate that a file holds, or raise a ValueError that names what is wrong with it."""
    data = found.provenance
    for name in ("fingerprint", "notes", "rounding"):
        if name not in data:
            raise ValueError(f"provenance lacks {name!r}")
    fingerprint, notes = printable(data.pop("fingerprint"), "fingerprint"), data.pop("notes")
    rounding, unseen = (real_number(data.pop(name, 0.0), name) for name in ("rounding", "unseen"))
    if not isinstance(notes, list) or rounding < 0.0 or unseen < 0.0:
        raise ValueError("notes must be a list, and rounding and unseen must not be negative")
    one_sided = data.pop("one_sided", False)
    if not isinstance(one_sided, bool):
        raise ValueError("one_sided must be true or false")
    record = Record.from_plain(data, found.runs)
    if len(found.log_weights) != (record.populations or record.chains) or record.chains % len(found.log_weights):
        raise ValueError(f"holds {len(found.log_weights)} log-weights, which do not fit its {record.chains} chains")
    if found.curve is not None and found.curve[1].shape[1] != record.chains:
        raise ValueError(f"the curve has {found.curve[1].shape[1]} chains; the record has {record.chains}")
    return Estimate(
        weights=Weights(found.log_weights, found.log_z0, rounding, unseen, record.weights_of, one_sided),
        record=record,
        fingerprint=fingerprint,
        curve=None if found.curve is None else Curve(*found.curve, unseen),
        notes=tuple(printable(note, "a note") for note in notes),
    )


def run_plan(
    plan: Plan,
    session: Session,
    recorder: Recorder | None = None,
    begin: float | None = None,
    hints: tuple[str, ...] = (),
) -> Estimate:
    """Run a plan and return the estimate from its log-weights.

    Its seconds count from `begin`, a time of `time.perf_counter`, or from now.
    """
    begin = time.perf_counter() if begin is None else begin
    with np.errstate(over="ignore", invalid="ignore"):  # An overflow is an error below.
        log_weights = session.run(plan, recorder).log_weights
    return of_log_weights(plan, log_weights, time.perf_counter() - begin, session.names, hints)


def of_log_weights(
    plan: Plan, log_weights: Array, seconds: float, machines: str = "", hints: tuple[str, ...] = ()
) -> Estimate:
    """Return the estimate from the log-weights of a plan, which `machines` of a pool may have computed."""
    zeros = not plan.path.is_exact and plan.path.end.has_zeros
    if not np.isfinite(log_weights[log_weights > -np.inf] if zeros else log_weights).all():
        raise ValueError(NOT_FINITE)
    if zeros and log_weights.max() == -np.inf:
        raise ValueError(NONE_POSSIBLE)
    unseen, notes = doubts_of(plan)
    log_z0 = plan.path.log_z0
    rounding = rounding_of(plan, log_weights, log_z0)
    record = Record.of(plan, seconds, machines)
    return Estimate(
        weights=Weights(frozen(log_weights), log_z0, rounding, unseen, record.weights_of, is_one_sided(plan)),
        record=record,
        fingerprint=plan.fingerprint(),
        notes=notes,
        hints=hints,
    )


def is_one_sided(plan: Plan) -> bool:
    """Whether moves of single variables may miss possible states, so that the weights only give a lower bound of Z."""
    model = plan.path.part
    return isinstance(model, InteractingMRF) and not model.is_reached


def doubts_of(plan: Plan) -> tuple[float, tuple[str, ...]]:
    """Return the share of unseen states of a run (see `unseen_share`), and warnings about base and zeros."""
    if is_one_sided(plan):
        return 0.0, (ONE_SIDED,)
    if plan.path.is_exact or plan.path.start.is_uniform:
        return 0.0, ()
    unseen = unseen_share(plan.path.end, plan.path.start, plan.chains.count)
    fixed = count_fixed_variables(plan.path.end, plan.path.start)
    warning = (
        f"the base fixes {fixed} of {plan.path.end.n_variables} variables in one state, but the couplings may favour "
        "other states; the chains miss these, and the weights do not show it: use base='uniform'"
    )
    return unseen, (warning,) * (fixed > 0)
