"""Drafts: plans whose numbers of steps K and chains N are still open, and what pilots have measured of them.

A pilot is a short run with K steps. It measures r(K), the relative variance of the weights, and fits the schedule of
the next pilot. Pilots with more and more steps are run until the weights are even enough for a prediction. N chains
have the error √(r(K)/N), so the cheapest plan is the K for which K·max(N_least, r(K)/error²) is smallest. ln(1 + r) is
taken as a power of K between two pilots and beyond the last one; the power is −1 where the chains keep up with the
path. If the weights stay uneven after many steps, the chains are resampled in populations.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..engines.plan import Plan
from ..engines.recorder import Recorder
from ..random import PILOT
from ..results.estimate import Estimate, is_one_sided, run_plan
from ..running.session import Session
from ..statistics import confidence
from . import tuning
from .choose import Choice
from .pilots import interpolated, refit
from .trial import relative_variance

logger = logging.getLogger("marginalis")

_Z95 = 1.96  # Half of a 95 % interval in standard errors.
_LEAST_VARIANCE = 1e-9  # Smaller relative variances are rounding errors.


def chains_per_variance(half_width: float) -> float:
    """Return the number of chains per unit of relative variance for an interval of F with this half-width."""
    return float(max(tuning.TOLERANCE.margin * half_width / _Z95, 1e-150) ** -2)


@dataclass(frozen=True)
class Goal:
    """What an estimate is to reach, and which choices the options leave open."""

    half_width: float  # Half of the 95 % interval of F.
    is_fixed: bool  # The number of steps is given.
    is_adaptive: bool  # The schedule is fitted to pilots.
    may_resample: bool  # Whether the chains are resampled is left open.
    deadline: float = math.inf  # The time, as of `time.perf_counter`, at which the budget is used up.

    @property
    def seconds_left(self) -> float:
        """Seconds until the budget is used up."""
        return self.deadline - time.perf_counter()


@dataclass(frozen=True, eq=False)
class Draft:
    """A plan whose numbers of steps and chains are still open, and what pilots have measured on its path."""

    plan: Plan
    variances: Mapping[int, float] = field(default_factory=dict)  # r(K) for the numbers of steps measured so far.
    rate: float = math.inf  # Speed of the last run, in chain·steps per second.
    population: int = 1  # Number of chains in a population; 1 without resampling.
    pilot_chains: int = 0  # Number of chains that pilots have used so far.
    doubtful_steps: int = 0  # A run with this number of steps had weights that cannot be trusted.
    is_confirmed: bool = False  # An exact sum has confirmed ln Z along this path.

    @property
    def starts_from_mixture(self) -> bool:
        """Whether the path starts from a mixture."""
        return self.plan.path.mixture is not None

    @property
    def starts_from_phases(self) -> bool:
        """Whether the path starts from a mixture with fields on both sides."""
        return self.plan.path.mixture is not None and self.plan.path.mixture.is_drawn

    @property
    def is_resampled(self) -> bool:
        """Whether the chains are resampled in populations."""
        return self.population > 1

    @property
    def chain_unit(self) -> int:
        """Numbers of chains are multiples of this number."""
        return max(tuning.TOLERANCE.chain_unit, self.population)

    def with_chains(self, count: int, first: int) -> Plan:
        """Return the plan of a run with `count` chains, in whole populations."""
        return self.plan.with_chains(first=first, count=count, populations=self.populations_of(count))

    def populations_of(self, chains: int) -> int:
        """Return the number of populations that these chains make; 0 without resampling."""
        return chains // self.population if self.is_resampled else 0

    def pilot(self, chains: int) -> tuple[Draft, Plan]:
        """Return the draft with more chains used by pilots, and the plan of a pilot with these chains."""
        plan = self.plan.pilot(
            PILOT,
            chains,
            first=self.pilot_chains,
            populations=self.populations_of(chains),
            resample_below=self.plan.chains.resample_below,
        )
        return replace(self, pilot_chains=self.pilot_chains + chains), plan

    def resampled(self, threshold: float) -> Draft:
        """Return the draft with resampling in populations, about which nothing has been measured yet."""
        plan = self.plan.with_chains(resample_below=threshold)
        return replace(self, plan=plan, population=tuning.TOLERANCE.population, variances={})

    def with_steps(self, steps: int) -> Draft:
        """Return the draft with another number of steps, spaced as its present ones."""
        if steps == self.plan.steps:
            return self
        return replace(self, plan=self.plan.with_steps(interpolated(self.plan.betas, steps)))

    def with_variance(self, steps: int, variance: float) -> Draft:
        """Return the draft with one more measured relative variance."""
        others = {k: r for k, r in self.variances.items() if k != steps}
        return replace(self, variances={**others, steps: variance})

    def with_pilot(self, steps: int, variance: float) -> Draft:
        """Return the draft with the relative variance that a pilot has measured, and log it."""
        logger.info("pilot run with %d steps: the relative variance of the weights is %.2g", steps, variance)
        return self.with_variance(steps, variance)


def draft_of(plan: Plan, threshold: float | None) -> Draft:
    """Return the draft of a plan, with resampling if a threshold for it is given."""
    return Draft(plan).resampled(threshold) if threshold else Draft(plan)


def draft_with_trial(draft: Draft, choice: Choice) -> Draft:
    """Return the draft with the trial of the chosen path as its first pilot."""
    trial = choice.chosen
    draft = replace(draft, is_confirmed=choice.is_watched)
    if trial is None or trial.betas is None or trial.log_weights is None or draft.is_resampled:
        return draft
    plan = replace(draft.plan, betas=trial.betas)
    speed = len(trial.log_weights) * trial.steps / trial.seconds  # It is too low if kernels were compiled meanwhile.
    rate = max(speed, plan.steps / plan.seconds_per_chain)
    variance = confidence.corrected_variance(trial.log_weights)
    return replace(draft, plan=plan, rate=rate).with_pilot(trial.steps, variance)


def run_pilot(plan: Plan, session: Session, recorder: Recorder | None = None) -> Estimate:
    """Run a pilot without progress reports, and without a pool if it is short."""
    return run_plan(plan, session.for_pilot(plan), recorder)


def measured(draft: Draft, steps: int, goal: Goal, session: Session) -> Draft:
    """Run a pilot with this number of steps; return the draft with r(K), and with a schedule fitted to the pilot."""
    draft = draft.with_steps(steps)
    alone = tuning.TOLERANCE.pilot_chains_phases if draft.starts_from_phases else tuning.TOLERANCE.pilot_chains
    chains = tuning.TOLERANCE.pilot_populations * draft.population if draft.is_resampled else alone
    draft, pilot = draft.pilot(chains)
    plan, recorder = draft.plan, None
    is_fitted = goal.is_adaptive and steps <= tuning.TOLERANCE.most_fitted_steps and not plan.path.is_exact
    if is_fitted and not draft.is_resampled:
        recorder = Recorder(np.arange(1, steps + 1), chains)
    result = run_pilot(pilot, session, recorder)
    if recorder is not None:
        plan = replace(plan, betas=refit(plan.betas, recorder, steps, draft.starts_from_phases))
    variance = confidence.corrected_variance(result.log_weights, draft.is_resampled)
    return replace(draft, plan=plan, rate=chains * steps / result.seconds).with_pilot(steps, variance)


def explored(draft: Draft, steps: int, goal: Goal, session: Session) -> Draft:
    """Run pilots, the first with `steps` steps, until the weights are even enough for a prediction."""
    while True:
        begin = time.perf_counter()
        if steps not in draft.variances:
            draft = measured(draft, steps, goal, session)
        seconds = time.perf_counter() - begin
        changed, next_steps = _mended(draft, steps, seconds, goal)
        if changed is not None:
            draft, steps = changed, next_steps
            continue
        next_steps = _next_steps(draft, steps)
        too_many = next_steps > tuning.TOLERANCE.most_steps
        too_long = tuning.TOLERANCE.steps_ratio * seconds > goal.seconds_left / 2.0
        if _is_predictable(draft, steps, goal) or goal.is_fixed or too_many or too_long:
            return draft
        steps = next_steps


def _variance_limit(draft: Draft) -> float:
    """Return the relative variance at which pilots end."""
    if draft.is_resampled:
        return tuning.TOLERANCE.variance_pilots_populations
    return tuning.TOLERANCE.variance_pilots_phases if draft.starts_from_phases else tuning.TOLERANCE.variance_pilots


def _mended(draft: Draft, steps: int, seconds: float, goal: Goal) -> tuple[Draft | None, int]:
    """Return a draft with another path or other populations, and its first number of steps, if the weights need it.

    They do if they are uneven after many steps. The next pilot takes about as many `seconds` as the last one.
    """
    variance = draft.variances[steps]
    if draft.is_resampled:
        small = draft.population == tuning.TOLERANCE.population and steps >= tuning.TOLERANCE.larger_steps
        if not (small and variance > tuning.TOLERANCE.variance_pilots_populations):
            return None, steps
        size = tuning.TOLERANCE.larger_ratio * draft.population
        logger.info("the weights of populations are uneven, too: populations of %d chains are used", size)
        return replace(draft, population=size, variances={}), steps
    if variance <= _variance_limit(draft) or goal.is_fixed or draft.starts_from_phases:
        return None, steps
    if draft.starts_from_mixture and steps > tuning.TOLERANCE.most_steps_mixed:
        logger.info("the weights of the path from the mixture are uneven: the plain path is used")
        plan = replace(draft.plan, path=draft.plan.path.without_mixture())
        return replace(draft, plan=plan, variances={}), tuning.TOLERANCE.first_steps
    many = steps >= tuning.TOLERANCE.resampled_steps and steps * variance > tuning.TOLERANCE.resampled_cost
    if many and goal.may_resample and 4.0 * seconds < goal.seconds_left:
        size = tuning.TOLERANCE.population
        logger.info("the weights are uneven after many steps: populations of %d chains are resampled", size)
        return draft.resampled(draft.plan.usual_threshold), steps
    return None, steps


def _is_predictable(draft: Draft, steps: int, goal: Goal) -> bool:
    """Whether the weights of the last pilot are even enough, and the pilots numerous enough, for a prediction."""
    variance, is_first = draft.variances[steps], len(draft.variances) == 1
    if variance > _variance_limit(draft):
        return False
    if is_first and draft.starts_from_mixture and variance <= tuning.TOLERANCE.variance_pilots:
        return False  # On such paths r falls slowly with K, and two pilots measure how slowly.
    if is_first and draft.is_resampled:  # The same holds here, and another pilot pays if it is cheap beside the run.
        ahead = variance * chains_per_variance(goal.half_width) / tuning.TOLERANCE.pilot_populations
        return ahead < tuning.TOLERANCE.pilots_worth * tuning.TOLERANCE.steps_ratio
    return True


def _next_steps(draft: Draft, steps: int) -> int:
    """Return the number of steps of the next pilot.

    On a plain path ln(1 + r) falls as 1/K at best, so the next pilot has as many steps as bring it to ln 2.
    """
    if draft.is_resampled or draft.starts_from_mixture:
        return steps * tuning.TOLERANCE.steps_ratio
    ratio = max(round(math.log2(1.0 + draft.variances[steps])), tuning.TOLERANCE.least_steps_ratio)
    return steps * min(ratio, tuning.TOLERANCE.most_steps_ratio)


class PredictedVariance(NamedTuple):
    """The predicted relative variance r(K): ln(1 + r) is a power of K, or r itself is proportional to 1/K."""

    steps: int  # Steps of the last pilot.
    variance: float  # r of the last pilot.
    power: float
    is_inverse: bool  # r itself is proportional to 1/K.

    def variance_at(self, steps: int) -> float:
        """Return the relative variance for this number of steps."""
        if self.is_inverse:
            return self.variance * self.steps / steps
        log_variance = math.log1p(max(self.variance, _LEAST_VARIANCE))
        return relative_variance(log_variance * (steps / self.steps) ** self.power)


def prediction(draft: Draft) -> PredictedVariance:
    """Return the prediction of r(K) from the pilot with the most steps and another measurement.

    The other one is the last measurement, which may be a run with many more chains than a pilot, or the pilot with the
    next fewer steps.
    """
    *earlier, (steps, variance) = sorted(draft.variances.items())
    if not earlier:
        return PredictedVariance(steps, variance, -1.0, draft.starts_from_phases)
    newest = list(draft.variances)[-1]
    fewer = earlier[-1][0] if newest == steps else newest
    last, before = (math.log1p(max(r, _LEAST_VARIANCE)) for r in (variance, draft.variances[fewer]))
    power = math.log(last / before) / math.log(steps / fewer)
    return PredictedVariance(steps, variance, min(max(power, -1.0), 0.0), False)


def with_best_steps(draft: Draft, goal: Goal) -> tuple[Draft, int]:
    """Return the draft with the number of steps that is predicted to be cheapest, and the number of chains it needs."""
    predicted = prediction(draft)
    if not goal.is_fixed:
        draft = draft.with_steps(_best_steps(draft, predicted, goal))
    steps, unit = draft.plan.steps, draft.chain_unit
    chains = _chains_for(predicted.variance_at(steps), draft, goal)
    cheap = unit * int(tuning.TOLERANCE.free_operations / (draft.plan.path.operations * steps * unit))
    chains = min(max(chains, min(2 * chains, cheap)), tuning.TOLERANCE.most_chains)
    if draft.is_resampled:  # A few populations give a rough prediction, so only a part of the chains is run first.
        chains = max(_least_chains(draft), unit * math.ceil(chains / tuning.TOLERANCE.first_part / unit))
    elif draft.starts_from_phases and not draft.is_confirmed:  # One heavy weight of a trial predicts too many chains.
        part = unit * math.ceil(chains / tuning.TOLERANCE.first_part_phases / unit)
        chains = max(_least_chains(draft), min(part, tuning.TOLERANCE.most_first_chains_phases))
    logger.info("the next run has %d steps and %d chains", steps, chains)
    return draft, chains


def _best_steps(draft: Draft, predicted: PredictedVariance, goal: Goal) -> int:
    """Return the cheapest number of steps whose chains have even weights and fit into the budget and the memory."""

    def chains(steps: int) -> int:
        return _chains_for(predicted.variance_at(steps), draft, goal)

    def cost(steps: int) -> float:
        return steps * chains(steps) * (1.0 + penalty * predicted.variance_at(steps))

    numbers, most_chains = tuning.STEPS, tuning.TOLERANCE.most_chains
    penalty = numbers.penalty_populations if draft.is_resampled else numbers.penalty
    fewer = numbers.fewer_populations if draft.is_resampled else numbers.fewer
    shifts = np.arange(-2 * fewer, 2 * numbers.more + 1) / 2.0
    options = [max(_least_steps(draft), round(predicted.steps * 2.0**shift)) for shift in shifts]
    if predicted.power < numbers.helpful_power and chains(options[-1]) > most_chains:
        options += [predicted.steps * 2**shift for shift in range(numbers.more + 1, numbers.most + 1)]
    affordable = draft.rate * goal.seconds_left
    in_time = [k for k in options if _least_chains(draft) * k <= affordable] or options[:1]
    fitting = [k for k in in_time if k > draft.doubtful_steps and chains(k) <= most_chains]
    limit = tuning.TOLERANCE.variance_plan
    if draft.is_resampled:
        limit = tuning.TOLERANCE.variance_plan_populations
    elif draft.starts_from_phases:
        limit = math.inf  # Heavy weights are as heavy after more steps.
    even = [k for k in fitting if predicted.variance_at(k) <= limit] or in_time[-1:]
    if draft.starts_from_phases and predicted.is_inverse:
        return even[0]  # K·r is the same for all of them, and many chains find more of the rare states than many steps.
    return min(even, key=cost)


def _chains_for(variance: float, draft: Draft, goal: Goal) -> int:
    """Return the number of chains, in whole units, that weights of this relative variance need."""
    rate = chains_per_variance(goal.half_width)
    if is_one_sided(draft.plan):
        rate *= tuning.TOLERANCE.chains_for_bound
    needed = draft.population * min(variance * rate, 2.0 * tuning.TOLERANCE.most_chains)
    return max(_least_chains(draft), draft.chain_unit * math.ceil(needed / draft.chain_unit))


def _least_chains(draft: Draft) -> int:
    """Return the smallest number of chains of a run."""
    if draft.is_resampled:
        return tuning.TOLERANCE.least_populations * draft.population
    if draft.starts_from_phases:
        numbers = tuning.TOLERANCE
        if draft.is_confirmed:
            return numbers.least_chains_confirmed
        is_even = max(draft.variances.values(), default=math.inf) <= numbers.variance_pilots
        return numbers.least_chains_even if is_even else numbers.least_chains_phases
    return tuning.TOLERANCE.least_chains


def _least_steps(draft: Draft) -> int:
    """Return the smallest number of steps of a run."""
    if draft.starts_from_phases:
        return tuning.TOLERANCE.least_steps_phases
    return 2 * tuning.TOLERANCE.first_steps_mixed if draft.starts_from_mixture else tuning.STEPS.least
