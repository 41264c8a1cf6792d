"""Bounds of the free energy from both sides, and Bennett's estimate between them.

The forward process estimates Z/Z_0 without bias and the reverse process (eq. reverse_process), started from
samples of the model itself, estimates Z_0/Z without bias. Weights are not negative, so Markov's inequality bounds F
from both sides with a stated confidence and without assumptions about the variance of the weights.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from scipy.special import ndtri

from ..checks import Array, dense, real_array, real_number, whole
from ..display import sketch
from ..display.words import decimals
from ..engines.plan import Plan, make_plan
from ..engines.recorder import Recorder
from ..exact.sampling import sample_visible
from ..models.data import features_of, split_rows, visible_table
from ..models.layered import as_model
from ..options import RunOptions, filled_in, leaves_path_open, plan_options, takes_options
from ..planning.choose import Choice, fitted
from ..planning.pilots import plan_with_pilots
from ..planning.run_chosen import run_chosen
from ..random import REVERSE, TARGET, stream, uniforms
from ..results.estimate import Estimate, run_plan
from ..results.record import Answer, Record
from ..results.written import finite
from ..running.session import Session, open_session
from ..statistics import confidence
from ..statistics.bennett import Bennett, bennett, markov_bound
from ..statistics.confidence import log_mean_exp, unseen_reach
from ..statistics.resampling import systematic

DISAGREEMENT = 2.5  # The two directions may differ by this many widths of their intervals without a warning.
MIN_CHAINS = 10  # Bennett's error needs at least this many chains in each direction.
_ROUNDING = 1e-5  # Differences of ln Z below this fraction of it are taken as rounding.
_NOT_HERE = ("resample", "populations")  # Bennett's method needs independent single chains.
MIN_OVERLAP = 20.0  # Bennett's error is unreliable below this effective number of overlapping chains.


@dataclass(frozen=True, eq=False, repr=False)
class Bounds(Answer):
    """Two bounds of F that hold together with probability `confidence`, and an estimate of F."""

    forward: Estimate  #: Estimate of F from chains that run from the base to the model.
    reverse_log_weights: Array  #: Chains from the target to the base; their mean weight estimates Z_0/Z.
    samples: str  #: Source of the states that the reverse chains start from: "given", "exact, by …" or "approximate".
    confidence: float  #: Probability that both bounds hold together.
    record: Record  #: Record of the forward run, with the time of both runs.

    @property
    def is_certified(self) -> bool:
        """Whether the reverse chains are known to have started from independent samples of the model."""
        return self.samples.startswith("exact")

    @cached_property
    def upper(self) -> float:
        """Upper bound of F, wrong with probability at most (1 − confidence)/2."""
        return -self.forward.log_z0 - markov_bound(self.forward.log_weights, (1.0 - self.confidence) / 2.0)

    @cached_property
    def lower(self) -> float:
        """Lower bound of F, wrong with probability at most (1 − confidence)/2 if the samples follow the model."""
        return markov_bound(self.reverse_log_weights, (1.0 - self.confidence) / 2.0) - self.forward.log_z0

    @cached_property
    def reverse_free_energy(self) -> float:
        """F from the reverse chains alone; its expectation is at most F, that of `forward.free_energy` at least F."""
        return log_mean_exp(self.reverse_log_weights) - self.forward.log_z0

    @cached_property
    def _bennett(self) -> Bennett:
        return bennett(-self.forward.log_weights, -self.reverse_log_weights)

    @property
    def is_two_sided(self) -> bool:
        """Whether `free_energy` uses both directions.

        Approximate samples are made from the forward chains and add no information. Bennett's error, which assumes
        samples of the model, is then too small, so that only the forward chains are used.
        """
        return self.samples != "approximate"

    @property
    def free_energy(self) -> float:
        """F by Bennett's acceptance ratio from both directions; from the forward chains if samples are approximate."""
        return self._bennett.difference - self.forward.log_z0 if self.is_two_sided else self.forward.free_energy

    @property
    def log_z(self) -> float:
        """ln Z = −F, with F from `free_energy`."""
        return -self.free_energy

    def __float__(self) -> float:
        return self.free_energy

    @property
    def stderr(self) -> float:
        """Standard error of `free_energy`, by Bennett's formula or from the forward chains."""
        return max(self._bennett.stderr, self.forward.unseen) if self.is_two_sided else self.forward.stderr

    @property
    def overlap(self) -> float:
        """Effective number of chains that contribute to Bennett's estimate, in the direction that has fewer of them."""
        return self._bennett.overlap

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of F with the same confidence, for a normal error of `free_energy` or from the forward chains."""
        if not self.is_two_sided:
            return self.forward.interval_at(self.confidence)
        unseen = unseen_reach(self.forward.unseen, self.confidence)
        reach = max(float(ndtri(0.5 + self.confidence / 2.0)) * self.stderr, unseen, self.forward.rounding)
        return self.free_energy - reach, self.free_energy + reach

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt these bounds, as sentences."""
        found = []
        if self.samples == "approximate":
            found.append(
                "the reverse chains start from samples of the forward run, not of the model itself: the lower bound "
                "is approximate, and F is that of the forward run alone"
            )
        if self.lower > self.upper:
            found.append("the two bounds contradict each other: the samples cannot be those of the model")
        gap = self.forward.free_energy - self.reverse_free_energy
        reach = self._reach(gap > 0.0)
        if abs(gap) > DISAGREEMENT * reach + _ROUNDING * max(1.0, abs(self.free_energy)):
            found.append(
                f"the two directions disagree by {gap:.2g}, although their 95 % intervals allow only {reach:.2g}: one "
                "of them may have missed states that the other has found; raise steps, or start from another base"
            )
        if not self.is_two_sided:
            return (*found, *self.forward.warnings)
        fewest = min(self.forward.chains, len(self.reverse_log_weights))
        if fewest < MIN_CHAINS:
            found.append(f"{fewest} chains in one direction are too few for Bennett's error; raise chains")
        elif self.overlap < min(MIN_OVERLAP, fewest / 2):
            found.append(
                f"only about {self.overlap:.1f} chains of one direction overlap with the other: do not trust Bennett's "
                "estimate, only the bounds; raise steps"
            )
        return (*found, *confidence.warnings_of_digits(self.forward.log_weights), *self.forward.notes)

    def _reach(self, forward_is_higher: bool) -> float:
        """How far the intervals of the two directions reach towards each other."""
        low, high = self.forward.interval
        back_low, back_high = confidence.interval(self.reverse_log_weights)
        back = log_mean_exp(self.reverse_log_weights)
        if forward_is_higher:
            return math.hypot(self.forward.free_energy - low, back_high - back)
        return math.hypot(high - self.forward.free_energy, back - back_low)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        low, high = self.interval
        return {
            "lower": self.lower,
            "upper": self.upper,
            "confidence": self.confidence,
            "samples": self.samples,
            "free_energy": self.free_energy,
            "estimator": "bennett" if self.is_two_sided else "forward",
            "log_z": self.log_z,
            "stderr": finite(self.stderr),
            "interval": [finite(low), finite(high)],
            "overlap": self.overlap,
            "forward_free_energy": self.forward.free_energy,
            "reverse_free_energy": self.reverse_free_energy,
            **self.record.to_dict(),
            "reverse_chains": len(self.reverse_log_weights),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        digits = decimals(self.stderr)
        sure = "" if self.is_certified else ", if the reverse chains start at equilibrium"
        if self.samples == "given":
            sure = ", if these are independent samples of the model"
        if self.lower > self.upper:
            sure = ", but they contradict each other"
        by = "Bennett's acceptance ratio" if self.is_two_sided else "the forward chains alone"
        lines = [
            f"{self.lower:.{digits}f} ≤ F ≤ {self.upper:.{digits}f}   (probability at least {self.confidence:g}{sure})",
            f"F = {self.free_energy:.{digits}f} ± {self.stderr:.{digits}f}   ln Z = {self.log_z:.{digits}f}   by {by}"
            f"   (forward {self.forward.free_energy:.{digits}f}, reverse {self.reverse_free_energy:.{digits}f})",
            f"{self.method}, {self.record}, "
            f"{self.chains} + {len(self.reverse_log_weights)} chains, reverse start: {self.samples}, "
            f"seed {self.seed}, {self.engine}, {self.seconds:.2f} s",
        ]
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])

    def _sketch(self) -> str:
        works = -self.forward.log_z0 - self.forward.log_weights, self.reverse_log_weights - self.forward.log_z0
        span = self.lower, self.upper
        return sketch.histogram(*works, at=[self.free_energy], span=span, about="works of both directions, F, bounds")


@takes_options(leave_out=_NOT_HERE)
def bound(
    model: Any,
    samples: Any = None,
    *,
    confidence: float = 0.95,
    equilibration: int | None = None,
    **options: Unpack[RunOptions],
) -> Bounds:
    """Bound the free energy from both sides, and estimate it from both directions.

    If neither steps, nor a schedule, nor a base is given, the path is chosen as for an estimate, and both directions
    take it.

    Parameters
    ----------
    model
        A model as for `estimate`.
    samples
        Independent samples of the model for the reverse chains to start from: rows of visible features, or a pair
        (visible, hidden) of such arrays. By default they are drawn exactly if that is affordable (an enumerable side, a
        graph of low width, Gaussians). Otherwise the final states of the forward chains are resampled by weight and
        equilibrated, and the lower bound is marked as approximate.
    confidence
        Probability that both bounds hold together.
    equilibration
        Number of moves under the target that approximate samples make before the reverse run; by default the number
        of steps.
    """
    level = real_number(confidence, "confidence")
    if not 0.0 < level < 1.0:
        raise ValueError(f"confidence is {confidence!r}; it must lie between 0 and 1")
    equilibrated = None if equilibration is None else whole(equilibration, "equilibration", 0, 2**31)
    chosen = filled_in(options, leave_out=_NOT_HERE)
    begin = time.perf_counter()
    with open_session(chosen, "forward and reverse", model) as session:
        model = as_model(model)
        given = plan_options(chosen)
        whole_model = samples is not None and 0 not in (model.n_visible, model.n_hidden)
        if leaves_path_open(given):
            choice = Choice(make_plan(model, keep_whole=whole_model, **given), session)
            plan = choice.choose()
            start, source = _samples(plan, samples)
            (plan, forward, ends), notes = run_chosen(
                choice, plan, lambda x: _forward(fitted(x, session), session, source), lambda x: x[1].weights
            )
            forward = replace(forward, notes=forward.notes + notes)
        else:
            plan = plan_with_pilots(model, session, keep_whole=whole_model, **given)
            start, source = _samples(plan, samples)
            plan, forward, ends = _forward(plan, session, source)
        if ends is not None:
            start = _resampled(forward.log_weights, ends, plan.chains.seed)
        if start is None:  # The whole model is summed exactly.
            return _bounds(forward, -forward.log_weights, source, level, begin)
        moves = plan.steps if equilibrated is None else equilibrated
        back = plan.reversed(start, moves if source == "approximate" else 0)
        reverse = run_plan(back, session.part(0.5, 1.0)).log_weights
    return _bounds(forward, reverse, source, level, begin)


def _bounds(forward: Estimate, reverse: Array, source: str, level: float, begin: float) -> Bounds:
    return Bounds(forward, reverse, source, level, replace(forward.record, seconds=time.perf_counter() - begin))


def _forward(plan: Plan, session: Session, source: str) -> tuple[Plan, Estimate, Array | None]:
    """Return the plan, the estimate of its forward chains, and their final states if the reverse chains need them."""
    recorder = Recorder.of_final_states(plan) if source == "approximate" else None
    forward = run_plan(plan, session.part(0.0, 0.5), recorder)
    return plan, forward, None if recorder is None else recorder.values[0]


def _samples(plan: Plan, samples: Any) -> tuple[Array | None, str]:
    """Return the states of the sampled side that the reverse chains start from, if known already, and their source."""
    if plan.path.is_exact:
        return None, "exact"
    if samples is not None:
        return _given(plan, samples), "given"
    drawn = sample_visible(plan.path.end, stream(plan.chains.seed, REVERSE), plan.chains.numbers)
    return (None, "approximate") if drawn is None else (drawn[0], f"exact, by {drawn[1]}")


def _given(plan: Plan, samples: Any) -> Array:
    """Return the states of the sampled side in given samples; a missing hidden side is drawn from P(h|v)."""
    pair = isinstance(samples, tuple) and len(samples) == 2 and all(np.ndim(side) == 2 for side in samples)
    model, natural = plan.path.model, plan.path.model.natural
    table = visible_table(model, samples[0] if pair else samples, "samples")
    rows = np.asarray(dense(table), dtype=np.float64)
    visible, hidden = split_rows(model, rows, argument="samples")
    if pair:
        hidden = real_array(samples[1], "hidden samples", 2)
        if len(hidden) != len(visible):
            raise ValueError(f"there are {len(visible)} visible samples and {len(hidden)} hidden ones")
        features = len(model.hidden_bias)
        if hidden.shape[1] not in (features, model.n_hidden):
            raise ValueError(f"hidden samples has {hidden.shape[1]} columns; the model has {features}")
        hidden = features_of(model.hidden_units, hidden, features, argument="hidden samples")
    if not plan.path.is_turned:
        return visible
    if hidden is not None:
        return hidden
    fields = model.hidden_fields(visible)
    chains = np.arange(len(visible), dtype=np.uint64)
    u = uniforms(stream(plan.chains.seed, REVERSE), chains, 0, TARGET, model.n_hidden)
    return natural.hidden_units.draw(fields, u)


def _resampled(log_weights: Array, states: Array, seed: int) -> Array:
    """Resample the states in proportion to their weights; their number stays the same."""
    u = uniforms(stream(seed, REVERSE), np.zeros(1, dtype=np.uint64), 0, TARGET, 1)
    return states[systematic(confidence.relative_weights(log_weights)[None], u)[0]]
