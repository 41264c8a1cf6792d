"""To this accuracy, please: which path to take to a tolerance, and whether the answer has missed something."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from ..checks import Array, real_number
from ..engines.plan import make_plan, resampling
from ..options import DEFAULT_STEPS, PlanOptions, leaves_path_open
from ..paths.base import QUENCHES, is_quenches
from ..results.estimate import Estimate
from ..running.session import Session
from .choose import Choice
from .draft import Goal, chains_per_variance, draft_of, draft_of_trial
from .narrowing import half_width_of, narrowed
from .quenches import quenched_mixture
from .tuning import TOLERANCE


def to_tolerance(
    model: Any,
    tolerance: float,
    budget: float | None,
    session: Session,
    rows: Array | None,
    **options: Unpack[PlanOptions],
) -> Estimate:
    """Estimate F until half of its 95 % interval is at most `tolerance`, or `budget` seconds have gone.

    `rows` of data hint at where the modes are. `options` are those of a plan; steps or a list of β that are
    given stay as they are.
    """
    goal = real_number(tolerance, "tolerance")
    if goal <= 0.0:
        raise ValueError(f"tolerance is {tolerance!r}; it must be positive")
    seconds = math.inf if budget is None else real_number(budget, "budget")
    if seconds <= 0.0:
        raise ValueError(f"budget is {budget!r}; it must be positive")
    schedule = "adaptive" if options.get("schedule") is None else options["schedule"]
    fixed = options.get("steps") is not None or not isinstance(schedule, str)
    adaptive = isinstance(schedule, str) and schedule == "adaptive"
    ours = leaves_path_open(options)
    options["schedule"] = "linear" if adaptive else schedule
    if options.get("steps") is None:
        options["steps"] = TOLERANCE.first_steps if isinstance(schedule, str) else DEFAULT_STEPS
    if goal < TOLERANCE.double_precision:
        options["precision"] = "double"
    resample = options.get("resample")
    options["resample"] = False
    plan = make_plan(model, **options)
    share = None if resample is None else resampling(resample, 1)[0]
    panel = None
    if ours:
        asked = time.perf_counter()
        long = replace(plan, betas=np.linspace(0.0, 1.0, TOLERANCE.choice_steps + 1))
        panel = Choice(long, session, rows, worth=chains_per_variance(goal))
        chosen = panel.choose()
        first = plan.betas if chosen.path.mixture is None else np.linspace(0.0, 1.0, TOLERANCE.first_steps_mixed + 1)
        plan = replace(chosen, betas=first)
        seconds = max(seconds / 2.0, seconds - (time.perf_counter() - asked))
    if is_quenches(options.get("base")):
        mixture = quenched_mixture(plan, session)
        plan = plan if mixture is None else plan.along(plan.path.from_mixture(mixture, QUENCHES))
    if adaptive:
        plan = replace(plan, schedule="adaptive")
    begin = time.perf_counter()
    wanted = Goal(goal, fixed, adaptive, may_resample=share is None)
    draft = draft_of(plan, share)
    if panel is not None:
        draft = draft_of_trial(draft, panel)
    result, wanted = narrowed(draft, wanted, seconds, session)
    if panel is not None:
        better = panel.another(result, plan) if wanted.seconds_left > 0.0 and not result.weights.one_sided else None
        if better is not None:
            other = replace(better, betas=plan.betas, schedule="adaptive")
            begin = time.perf_counter()
            result, wanted = narrowed(draft_of(other, share), wanted, wanted.seconds_left, session)
        result = panel.noted(result)
    half_width = half_width_of(result)
    if half_width > goal:
        reason = "this is as many chains as there may be"
        if result.rounding >= goal:
            reason = "rounding allows no less"
        elif wanted.seconds_left <= 0.0:
            reason = f"the budget of {budget:g} s ran out"
        found = f"the interval is ± {half_width:.2g}"
        if result.lower_bound is not None:
            reason = "this is as many chains as the pilots have asked for" if wanted.seconds_left > 0.0 else reason
            found = f"the lower bound of ln Z is {half_width:.2g} below its estimate"
        note = f"{reason}: {found}, and the tolerance {goal:g}"
        result = replace(result, notes=(*result.notes, note))
    return result.with_seconds(time.perf_counter() - begin)
