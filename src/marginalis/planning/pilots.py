"""Schedules fitted to a model by a pilot run.

With one independent draw from each P_k the variance of ln W is Σ_k g(β_k)(β_k − β_{k−1})², where g is the
variance of d ln w/dβ under P_β. For a given number of steps that is least when all steps have the same length
√g·dβ (thermodynamic length: Crooks, Phys. Rev. Lett. 99, 100602 (2007)). A few chains on a coarse path suffice to
measure g. They take no part in the estimate: the schedule is fixed before its chains start, and Z stays unbiased.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import numpy as np

from ..checks import Array
from ..engines.plan import Plan, make_plan
from ..engines.recorder import Recorder
from ..models.model import MRF
from ..options import PlanOptions, is_adaptive
from ..paths.base import QUENCHES, is_quenches
from ..random import PILOT
from ..running.session import Session
from .quenches import quenched_mixture

PILOT_CHAINS = 64
_COARSER = 4  # a pilot's path has this many times fewer steps,
_FEWEST = 32  # but no fewer than this
_MOST = 1024  # nor more than this
_BINS = 32  # of the path, in each of which g is taken as constant
_EVEN = 0.1  # part of the length that is spread evenly, against what a pilot has missed


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


@np.errstate(over="ignore", invalid="ignore")  # of what overflows nothing is learnt: the steps are even
def fit_schedule(plan: Plan, session: Session) -> Array:
    """Return β_0 … β_K, as many as the plan has, at equal distances in thermodynamic length.

    Two pilots: one with even steps, and another on the path which that one suggests, to look closely where it
    matters. They depend neither on the plan's chains nor on the engine asked for.
    """
    if plan.path.part is None or plan.steps == 1:
        return plan.betas
    coarse = min(max(plan.steps // _COARSER, _FEWEST), _MOST)
    betas = np.linspace(0.0, 1.0, coarse + 1)
    for stage in (0, 1):
        pilot = plan.pilot(PILOT, PILOT_CHAINS, betas, first=PILOT_CHAINS * stage).on_engine("auto")
        recorder = Recorder(np.arange(1, coarse + 1), PILOT_CHAINS)
        session.pilot(pilot, recorder)
        betas = refit(betas, recorder, coarse if stage == 0 else plan.steps)
    return betas


@np.errstate(over="ignore", invalid="ignore")
def refit(betas: Array, recorder: Recorder, steps: int) -> Array:
    """Return `steps` steps of equal length by what was seen of every step of a pilot on the path `betas`."""
    return equal_lengths(betas, np.diff(recorder.log_weights, axis=0, prepend=0.0).var(axis=1), steps)


def equal_lengths(betas: Array, variances: Array, steps: int) -> Array:
    """Return `steps` steps of equal length, where the step to β_k has the length √variances[k−1]."""
    edges = np.unique(np.linspace(0, len(variances), min(_BINS, len(variances)) + 1).astype(int))
    rise = np.diff(betas)
    metric = np.add.reduceat(variances / rise, edges[:-1]) / np.add.reduceat(rise, edges[:-1])
    lengths = np.sqrt(metric) * np.diff(betas[edges])
    total = float(lengths.sum())
    if not 0.0 < total < np.inf:
        return np.linspace(0.0, 1.0, steps + 1)
    lengths = (1.0 - _EVEN) * lengths / total + _EVEN * np.diff(betas[edges])
    ends = np.concatenate([[0.0], np.cumsum(lengths)])
    ends[-1] = 1.0  # whatever the sum has come to
    return np.interp(np.linspace(0.0, 1.0, steps + 1), ends, betas[edges])
