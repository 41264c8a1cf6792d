"""Runs until the interval of F is as narrow as wanted.

The draft's pilots choose K and N (see `draft`). Then the plan is frozen, and chains that no pilot has seen are run. If
their interval is much too wide or their weights cannot be trusted, the run becomes a pilot, and another plan is run
with new chains. If the interval is only a little too wide, more chains of the same plan are added. This is the only
place where the chains of an answer influence their own number, which moves Z by much less than its error. On a path
from a mixture of phases an interval that is far too wide shows states that the mixture describes badly: components for
them are added before the next run.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..checks import Array
from ..engines.recorder import Recorder
from ..exact import duration
from ..results.estimate import Estimate, run_plan
from ..running.session import Session
from ..statistics import confidence
from . import tuning
from .draft import Draft, Goal, explored, run_pilot, with_best_steps
from .quenches import mixture_of_rows

logger = logging.getLogger("marginalis")

# From a draft, the log-weights of a run of its plan and the final states: the draft with a finer mixture.
Grow = Callable[[Draft, Array, Array], Draft]


def half_width_of(result: Estimate) -> float:
    """Return half of the interval of F, or the distance between a lower bound of ln Z and the estimate."""
    if result.lower_bound is not None:
        return result.log_z - result.lower_bound
    return (result.interval[1] - result.interval[0]) / 2.0


def narrowed(
    draft: Draft, goal: Goal, seconds: float, session: Session, grow: Grow | None = None
) -> tuple[Estimate, Goal]:
    """Return the first estimate that is narrow enough and trusted, or the last one within the budget of `seconds`.

    `grow` adds components to the mixture of phases that a path starts from. The goal is returned with the deadline,
    since the budget does not include the time for imports and compilation.
    """
    draft = _warmed_up(draft, goal, session)
    goal = replace(goal, deadline=time.perf_counter() + seconds)
    if not (draft.variances and draft.starts_from_phases):  # The trial of the path replaces the pilots there.
        first_steps = draft.plan.steps
        if draft.variances and draft.starts_from_mixture:
            first_steps = tuning.TOLERANCE.first_steps_mixed
        draft = explored(draft, first_steps, goal, session)
    if draft.starts_from_phases:
        return _narrowed_from_phases(draft, goal, session, grow), goal
    draft, chains = with_best_steps(draft, goal)
    first = draft.plan.chains.first
    for attempt in range(tuning.TOLERANCE.attempts):
        result, draft = _run(draft, chains, first, goal, session)
        first += result.chains
        ratio = half_width_of(result) / goal.half_width
        is_doubtful = _is_doubtful(result, ratio, draft)
        # A lower bound holds if the number of chains does not depend on what they find, so there is no second run.
        is_last = result.weights.one_sided or goal.is_fixed or attempt == tuning.TOLERANCE.attempts - 1
        far_off = tuning.TOLERANCE.far_off * (tuning.CHAINS.far_off_populations if draft.is_resampled else 1.0)
        is_near = not is_doubtful and ratio <= far_off
        if is_last or is_near or goal.seconds_left <= 0.0 or result.rounding >= goal.half_width:
            break
        rest = draft.plan.steps * _more_chains(result.chains, ratio)
        variance = confidence.corrected_variance(result.log_weights, draft.is_resampled)
        draft = draft.with_variance(draft.plan.steps, variance)
        if is_doubtful:
            draft = _after_doubts(draft, goal, session, may_refit=attempt == 0)
        other, chains = with_best_steps(draft, goal)
        if not is_doubtful and other.plan.steps * chains >= rest:  # More chains of this plan are cheaper.
            break
        draft = other
    return _with_more_chains(result, draft, first, goal, session), goal


def _narrowed_from_phases(draft: Draft, goal: Goal, session: Session, grow: Grow | None) -> Estimate:
    """Return an estimate along a path from a mixture of phases, to which components are added after doubtful runs.

    More steps do not make its weights more even, but more chains narrow the interval.
    """
    draft, chains = with_best_steps(draft, goal)
    first = draft.plan.chains.first
    for attempt in range(tuning.TOLERANCE.growths + 1):
        states: list[Array] = []
        begin = time.perf_counter()
        result, draft = _run(draft, chains, first, goal, session, states)
        if result.weights.one_sided:
            return result
        # The next run takes about as long as this one, and the growth less.
        has_time = 2.0 * (time.perf_counter() - begin) < goal.seconds_left
        may_grow = bool(states) and has_time and not goal.is_fixed and attempt < tuning.TOLERANCE.growths
        log_weights, ratio = result.log_weights, half_width_of(result) / goal.half_width
        ahead = draft.plan.steps * _more_chains(result.chains, ratio)
        is_far_off = ratio > tuning.TOLERANCE.far_off_phases and ahead > tuning.TUNING.growth.chain_steps
        if not (may_grow and is_far_off):
            result = _with_more_chains(result, draft, first + result.chains, goal, session)
        if grow is None or not may_grow or not (is_far_off or confidence.warnings_of(result.log_weights)):
            break
        logger.info("the interval is ± %.2g; components are added to the mixture", half_width_of(result))
        first += result.chains
        draft, chains = with_best_steps(grow(draft, log_weights, np.concatenate(states)), goal)
    return result


def _with_more_chains(result: Estimate, draft: Draft, first: int, goal: Goal, session: Session) -> Estimate:
    """Return the estimate with the further chains of the same plan that its interval needs."""
    while (ratio := half_width_of(result) / goal.half_width) > 1.0 and not result.weights.one_sided:
        at_end = goal.seconds_left <= 0.0 or result.chains >= tuning.TOLERANCE.most_chains
        if at_end or result.rounding >= goal.half_width:
            break
        wanted = _more_chains(result.chains, ratio, draft.starts_from_phases)
        more = draft.chain_unit * math.ceil(wanted / draft.chain_unit)
        added, draft = _run(draft, more, first, goal, session)
        first += added.chains
        result = result + added
    return result


def _more_chains(chains: int, ratio: float, from_phases: bool = False) -> int:
    """Return how many chains to add for an interval `ratio` times as wide as wanted."""
    numbers = tuning.CHAINS
    most = numbers.most_ratio_phases if from_phases else numbers.most_ratio
    wanted = numbers.margin * min(ratio, most) ** 2 - 1.0
    return max(int(chains * numbers.least_share), math.ceil(chains * wanted))


def _warmed_up(draft: Draft, goal: Goal, session: Session) -> Draft:
    """Run one chain or population, so that everything is imported and compiled before the budget begins.

    Double precision is chosen if the rounding of single precision would be too large for the goal.
    """
    draft, few = draft.pilot(draft.population)
    seen = run_pilot(few, session)
    if seen.rounding > tuning.TOLERANCE.margin * goal.half_width and draft.plan.placement.precision == "single":
        draft = replace(draft, plan=draft.plan.placed(precision="double"))
        run_pilot(few.placed(precision="double"), session)
    if not draft.plan.path.is_exact and goal.half_width < math.ulp(seen.free_energy):
        raise ValueError(
            f"tolerance is {goal.half_width:g}; F is of the size of {abs(seen.free_energy):.2g}, "
            "and no number of that size has so many digits"
        )
    return draft


def _is_doubtful(result: Estimate, ratio: float, draft: Draft) -> bool:
    """Whether the weights cannot be trusted, and more steps or another mixture may improve them.

    The interval is also far too wide if a mixture rarely starts where much of the weight is.
    """
    is_broken = draft.starts_from_mixture and ratio > tuning.TOLERANCE.broken
    return is_broken or bool(confidence.warnings_of(result.log_weights))


def _after_doubts(draft: Draft, goal: Goal, session: Session, may_refit: bool) -> Draft:
    """Return the draft after pilots with more steps, or along another path, since the last weights were doubtful."""
    if not draft.starts_from_mixture:
        logger.info("the weights are too uneven to be trusted: more steps are tried")
        steps = draft.plan.steps
        known = {k: r for k, r in draft.variances.items() if k <= steps}
        draft = replace(draft, variances=known, doubtful_steps=steps)
        return explored(draft, steps * tuning.TOLERANCE.steps_ratio, goal, session)
    path = draft.plan.path
    if may_refit:
        logger.info("the weights are too uneven to be trusted: the mixture is fitted again to more chains")
        draft, pilot = draft.pilot(tuning.TOLERANCE.refit_chains)
        recorder = Recorder.of_final_states(pilot)
        log_weights = run_pilot(pilot, session, recorder).log_weights
        other = path.from_mixture(mixture_of_rows(draft.plan, recorder.values[0], log_weights), path.name)
    else:
        logger.info("the weights are too uneven to be trusted: the plain path is used")
        other = path.without_mixture()
    draft = replace(draft, plan=draft.plan.along(other), variances={}, doubtful_steps=0)
    steps = tuning.TOLERANCE.first_steps_mixed if may_refit else tuning.TOLERANCE.first_steps
    return explored(draft, steps, goal, session)


def _run(
    draft: Draft, chains: int, first: int, goal: Goal, session: Session, states: list[Array] | None = None
) -> tuple[Estimate, Draft]:
    """Run new chains from the number `first` on, and return the draft with their speed.

    If there is a budget, the chains are run in batches, and fewer of them if the time is used up. The final states of
    the chains are appended to `states`, unless they would take too much memory.
    """
    chains = batch = min(chains, tuning.TOLERANCE.most_chains)
    steps, seconds = draft.plan.steps, chains * draft.plan.steps / draft.rate
    if seconds > tuning.TOLERANCE.short_seconds and goal.deadline == math.inf:
        logger.info("%s", duration(seconds))
    if seconds >= tuning.TOLERANCE.short_seconds and goal.deadline < math.inf:
        batch = min(chains, max(tuning.TOLERANCE.least_chains, draft.population))
    if states is not None and 8 * chains * draft.plan.path.width > tuning.TOLERANCE.state_bytes:
        states = None
    done, result = 0, None
    while result is None or (done < chains and goal.seconds_left > 0.0):
        part = session.part(done / chains, done / chains + batch / chains)
        plan = draft.with_chains(batch, first + done)
        recorder = None if states is None else Recorder.of_final_states(plan)
        fresh = run_plan(plan, part, recorder)
        if recorder is not None and states is not None:
            states.append(recorder.values[0])
        done += batch
        draft = replace(draft, rate=batch * steps / fresh.seconds)
        result = fresh if result is None else result + fresh
        affordable = draft.rate * max(goal.seconds_left, 0.0) / steps
        # Small batches are slow, so a batch is large unless the time runs out.
        wanted = max(draft.rate * tuning.TOLERANCE.batch_seconds / steps, tuning.TOLERANCE.batch_chains)
        batch = min(chains - done, draft.chain_unit * max(1, int(min(wanted, affordable) / draft.chain_unit)))
    return result, draft
