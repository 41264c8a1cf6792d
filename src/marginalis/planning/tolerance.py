"""Estimates to a tolerance: the choice of the path, the runs with K and N from pilots, and the note if it is missed."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from ..checks import Array, real_number
from ..engines.plan import Plan, make_plan, resampling
from ..options import DEFAULT_STEPS, PlanOptions, leaves_path_open
from ..paths.base import QUENCHES, is_quenches
from ..results.estimate import Estimate
from ..running.session import Session
from . import tuning
from .choose import Choice
from .draft import Draft, Goal, chains_per_variance, draft_of, draft_with_trial
from .narrowing import half_width_of, narrowed
from .quenches import quenched_mixture
from .run_chosen import run_chosen


def to_tolerance(
    model: Any,
    tolerance: float,
    budget: float | None,
    session: Session,
    rows: Array | None,
    **options: Unpack[PlanOptions],
) -> Estimate:
    """Estimate F until half of its 95 % interval is at most `tolerance`, or until `budget` seconds are used up.

    `rows` of data help to find the modes. `options` are those of a plan; steps or a list of β that are given remain.
    """
    half_width = _positive(tolerance, "tolerance")
    seconds = math.inf if budget is None else _positive(budget, "budget")
    plan, goal, threshold = _first_plan(model, half_width, options)
    if leaves_path_open(options):
        begin = time.perf_counter()
        longer = replace(plan, betas=np.linspace(0.0, 1.0, tuning.TOLERANCE.choice_steps + 1))
        worth = chains_per_variance(half_width)
        choice = Choice(longer, session, rows, worth=worth, deadline=begin + seconds)
        chosen = choice.choose()
        betas = plan.betas
        if chosen.path.mixture is not None:
            betas = np.linspace(0.0, 1.0, tuning.TOLERANCE.first_steps_mixed + 1)
        seconds = max(seconds / 2.0, seconds - (time.perf_counter() - begin))
        begin = time.perf_counter()

        def run(path: Plan) -> Estimate:
            nonlocal goal, begin
            draft = draft_of(replace(path, betas=betas, schedule="adaptive"), threshold)
            if path is chosen:
                draft = draft_with_trial(draft, choice)
            begin = time.perf_counter()
            result, goal = narrowed(draft, goal, min(seconds, goal.seconds_left), session, grow)
            return result

        def grow(draft: Draft, log_weights: Array, states: Array) -> Draft:
            choice.grow_from(draft.plan, log_weights, states)
            plan = draft.plan.along(choice.chosen_plan.path)
            return draft_with_trial(replace(draft, plan=plan, variances={}), choice)

        result, notes = run_chosen(choice, chosen, run, lambda x: x.weights, lambda: goal.seconds_left > 0.0)
        result = replace(result, notes=result.notes + notes)
    else:
        begin = time.perf_counter()
        result, goal = narrowed(draft_of(_from_quenches(plan, session, options), threshold), goal, seconds, session)
    result = replace(result, notes=result.notes + _why_missed(result, goal, budget))
    return result.with_seconds(time.perf_counter() - begin)


def _positive(value: float, argument: str) -> float:
    number = real_number(value, argument)
    if number <= 0.0:
        raise ValueError(f"{argument} is {value!r}; it must be positive")
    return number


def _first_plan(model: Any, half_width: float, options: PlanOptions) -> tuple[Plan, Goal, float | None]:
    """Return the plan that pilots begin with, the goal, and the threshold of resampling if it is given."""
    given = options.copy()
    schedule, resample = options.get("schedule"), options.get("resample")
    adaptive = schedule is None or (isinstance(schedule, str) and schedule == "adaptive")
    is_list = not (schedule is None or isinstance(schedule, str))
    given["schedule"] = "linear" if adaptive else schedule
    given["resample"] = False
    if options.get("steps") is None:
        given["steps"] = DEFAULT_STEPS if is_list else tuning.TOLERANCE.first_steps
    if half_width < tuning.TOLERANCE.double_precision:
        given["precision"] = "double"
    plan = make_plan(model, **given)
    if adaptive:
        plan = replace(plan, schedule="adaptive")
    threshold = None if resample is None else resampling(resample, 1)[0]
    is_fixed = options.get("steps") is not None or is_list
    return plan, Goal(half_width, is_fixed, adaptive, may_resample=threshold is None), threshold


def _from_quenches(plan: Plan, session: Session, options: PlanOptions) -> Plan:
    """Return the plan on a path from the mixture of quenches, if that is the base."""
    mixture = quenched_mixture(plan, session) if is_quenches(options.get("base")) else None
    return plan if mixture is None else plan.along(plan.path.from_mixture(mixture, QUENCHES))


def _why_missed(result: Estimate, goal: Goal, budget: float | None) -> tuple[str, ...]:
    """Return a note with the reason if the interval is wider than the tolerance."""
    half_width, has_time = half_width_of(result), goal.seconds_left > 0.0
    if half_width <= goal.half_width:
        return ()
    reason = "the largest number of chains is reached"
    if result.rounding >= goal.half_width:
        reason = "rounding errors allow no narrower interval"
    elif not has_time:
        reason = f"the budget of {budget:g} s ran out"
    found = f"the interval is ± {half_width:.2g}"
    if result.lower_bound is not None:
        reason = "the pilots predicted that these chains suffice" if has_time else reason
        found = f"the lower bound of ln Z is {half_width:.2g} below its estimate"
    return (f"{reason}: {found}, the tolerance is {goal.half_width:g}",)
