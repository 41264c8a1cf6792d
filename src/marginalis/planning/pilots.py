"""Schedules fitted to a model by a pilot run.

With one independent draw from each P_k the variance of ln W is Σ_k g(β_k)(β_k − β_{k−1})², where g is the variance of
d ln w/dβ under P_β. For a given number of steps the sum is smallest if all steps have the same length √g·dβ
(thermodynamic length: Crooks, Phys. Rev. Lett. 99, 100602 (2007)). A few chains with few steps suffice to measure g.
They are not part of the estimate: the schedule is fixed before its chains start, and Ẑ stays unbiased.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from ..checks import Array
from ..engines.plan import Plan, make_plan
from ..engines.recorder import Recorder
from ..models.model import MRF
from ..options import PlanOptions, is_adaptive
from ..paths.base import QUENCHES, is_quenches
from ..random import PILOT
from ..running.session import Session
from . import tuning
from .quenches import quenched_mixture


def plan_with_pilots(model: MRF, session: Session, *, keep_whole: bool = False, **options: Unpack[PlanOptions]) -> Plan:
    """Make a plan; run the pilots of an adaptive schedule, which is the default unless `steps` is given."""
    adaptive = is_adaptive(options)
    if adaptive:
        options["schedule"] = "linear"
    plan = make_plan(model, keep_whole=keep_whole, **options)
    if is_quenches(options.get("base")):
        mixture = quenched_mixture(plan, session)
        plan = plan if mixture is None else plan.along(plan.path.from_mixture(mixture, QUENCHES))
    if not adaptive:
        return plan
    return replace(plan, betas=fit_schedule(plan, session), schedule="adaptive")


@np.errstate(over="ignore", invalid="ignore")  # If weights overflow, the steps are even.
def fit_schedule(plan: Plan, session: Session) -> Array:
    """Return β_0 … β_K, as many as the plan has, at equal distances in thermodynamic length.

    There are two pilots: one with even steps, and one with the steps that the first one suggests, which measures more
    precisely where the steps are short. They depend neither on the chains of the plan nor on its engine.
    """
    if plan.path.is_exact or plan.steps == 1:
        return plan.betas
    numbers = tuning.PILOTS
    coarse = min(max(plan.steps // numbers.coarser, numbers.fewest_steps), numbers.most_steps)
    betas = np.linspace(0.0, 1.0, coarse + 1)
    for stage in (0, 1):
        pilot = plan.pilot(PILOT, numbers.chains, betas, first=numbers.chains * stage).on_engine("auto")
        recorder = Recorder(np.arange(1, coarse + 1), numbers.chains)
        session.pilot(pilot, recorder)
        fine_ends = plan.path.mixture is not None and plan.path.mixture.is_drawn
        betas = refit(betas, recorder, coarse if stage == 0 else plan.steps, fine_ends)
    return betas


@np.errstate(over="ignore", invalid="ignore")
def refit(betas: Array, recorder: Recorder, steps: int, fine_ends: bool = False) -> Array:
    """Return `steps` steps of equal length, from the log-weights after every step of a pilot with the steps `betas`."""
    return equal_lengths(betas, np.diff(recorder.log_weights, axis=0, prepend=0.0).var(axis=1), steps, fine_ends)


def equal_lengths(betas: Array, variances: Array, steps: int, fine_ends: bool = False) -> Array:
    """Return `steps` steps of equal length, where the step to β_k has the length √variances[k−1].

    With `fine_ends` the variances are taken step by step at both ends of the path and over wider intervals between.
    Near the ends of a path from a mixture with fields on both sides they change within a few steps. The last steps are
    those of `with_fine_end`.
    """
    if fine_ends and steps > _fine_steps(steps):
        coarse = steps - _fine_steps(steps)
        return with_fine_end(_equal_lengths(betas, variances, coarse, True), steps)
    return _equal_lengths(betas, variances, steps, fine_ends)


def _equal_lengths(betas: Array, variances: Array, steps: int, fine_ends: bool) -> Array:
    even = tuning.PILOTS.even_phases if fine_ends else tuning.PILOTS.even
    edges = _edges_finer_at_ends(len(variances)) if fine_ends else _even_edges(len(variances))
    rise = np.diff(betas)
    metric = np.add.reduceat(variances / rise, edges[:-1]) / np.add.reduceat(rise, edges[:-1])
    lengths = np.sqrt(metric) * np.diff(betas[edges])
    total = float(lengths.sum())
    if not 0.0 < total < np.inf:
        return np.linspace(0.0, 1.0, steps + 1)
    lengths = (1.0 - even) * lengths / total + even * np.diff(betas[edges])
    ends = np.concatenate([[0.0], np.cumsum(lengths)])
    ends[-1] = 1.0  # The sum has rounding errors.
    return np.interp(np.linspace(0.0, 1.0, steps + 1), ends, betas[edges])


def with_fine_end(betas: Array, steps: int) -> Array:
    """Return a schedule of `steps` steps, the last of which become shorter and shorter towards β = 1.

    On a path from a mixture of phases the component is free at β = 1, where all components have their own shares. In
    the last steps it changes from those that describe a state to the others, whose exponents may be hundreds of nats
    lower. If 1 − β is not small beside the inverse of this difference before the last step, a few chains gain large
    weights there, and most of them too little.
    """
    fine, gap = steps - (len(betas) - 1), 1.0 - betas[-2]
    shrink = min(1.0, tuning.PILOTS.last_step / gap)
    ends = 1.0 - gap * shrink ** (np.arange(1, fine + 1) / fine)
    return np.concatenate([betas[:-1], ends, [1.0]]) if fine and shrink < 1.0 else interpolated(betas, steps)


def linear_with_fine_end(steps: int) -> Array:
    """Return equal steps, except for the last ones, which become shorter and shorter."""
    return with_fine_end(np.linspace(0.0, 1.0, steps - _fine_steps(steps) + 1), steps)


def _fine_steps(steps: int) -> int:
    """Return how many of the steps of a path from a mixture of phases make its end finer."""
    return min(tuning.PILOTS.fine_steps, steps // tuning.PILOTS.fine_share)


def interpolated(betas: Array, steps: int) -> Array:
    """Return `steps` steps that are spaced as those of another schedule."""
    return np.interp(np.linspace(0.0, 1.0, steps + 1), np.linspace(0.0, 1.0, len(betas)), betas)


def _even_edges(steps: int) -> NDArray[np.int64]:
    """Return the first steps of intervals with equally many steps."""
    return np.unique(np.linspace(0, steps, min(tuning.PILOTS.bins, steps) + 1).astype(np.int64))


def _edges_finer_at_ends(steps: int) -> NDArray[np.int64]:
    """Return the first steps of intervals whose numbers of steps grow from one at both ends to the middle."""
    lengths = np.maximum(1, (1.3 ** np.arange(steps)[: math.ceil(math.log(steps + 1, 1.3))]).astype(np.int64))
    from_end = np.cumsum(np.concatenate([[0], lengths]))
    half = from_end[from_end <= steps // 2]
    return np.unique(np.concatenate([half, steps - half]))
