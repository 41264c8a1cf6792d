"""How an estimate comes to a tolerance: the pilots, the choice of K and N, and the final chains.

Pilots with ever more steps go first, until their weights are even enough to predict from: each measures r(K),
the relative variance of the weights, and sets the schedule of the next. N chains have the error √(r(K)/N), so the
cheapest plan is the K that makes K·max(N_least, r(K)/error²) least, where ln(1 + r) is a power of K between two
pilots and beyond the last (K⁻¹ where the chains keep up with the path). Where many steps leave the weights uneven, the
chains go in populations that are resampled. Then the plan is frozen, and chains that no pilot has seen are run. Only if
their interval comes out too wide are more added: the one place where the chains of the answer have a say in how many
they are, which moves Z by much less than its error.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace

import numpy as np

from ..engines.plan import Plan
from ..engines.recorder import Recorder, the_states
from ..exact import duration
from ..random import PILOT
from ..results.estimate import Estimate, is_one_sided, run_plan
from ..running.session import Session
from ..statistics import confidence
from .choose import Choice
from .pilots import refit
from .quenches import mixture_of_rows
from .tuning import TOLERANCE, TUNING

logger = logging.getLogger("marginalis")

_Z95 = 1.96  # Half of a 95 % interval in standard errors.


def chains_per_variance(goal: float) -> float:
    """Return how many chains the goal takes for every unit of relative variance of their weights."""
    return float(max(TOLERANCE.margin * goal / _Z95, 1e-150) ** -2)


class Work:
    """The pilots, the choice and the final chains of one call."""

    def __init__(
        self,
        plan: Plan,
        session: Session,
        goal: float,
        seconds: float,
        fixed: bool,
        adaptive: bool,
        share: float | None,
    ) -> None:
        self.plan, self.session, self.goal = plan, session, goal
        self.seconds, self.deadline = seconds, math.inf  # the budget, and when it ends: set as it starts
        self.fixed, self.adaptive = fixed, adaptive
        self.may_resample = share is None
        self.size = 1  # of a population; 1 without resampling
        if share:
            self.resample(share)
        self.begin = time.perf_counter()
        self.pilots = 0  # chains used up by pilots,
        self.used = plan.chains.first  # and by answers
        self.rate = math.inf  # chain·steps per second
        self.seen: dict[int, float] = {}  # r(K)
        self.doubted = 0  # steps that were not enough
        self.is_watched = False  # whether an exact sum has confirmed the path

    def heed(self, choice: Choice) -> None:
        """Take the trial of the path chosen for the first pilot."""
        trial, self.is_watched = choice.chosen, choice.is_watched
        if trial is None or trial.betas is None or trial.log_weights is None or self.size > 1:
            return
        self.plan = replace(self.plan, betas=trial.betas)
        seen = len(trial.log_weights) * trial.steps / trial.seconds  # where it had not to wait for a compiler
        self.rate = max(seen, self.plan.steps / self.plan.seconds_per_chain)
        self.saw(trial.steps, confidence.corrected_variance(trial.log_weights))

    @property
    def is_drawn(self) -> bool:
        """Whether the path starts from a mixture with fields on both sides."""
        return self.plan.path.mixture is not None and self.plan.path.mixture.is_drawn

    def saw(self, steps: int, unevenness: float) -> None:
        """Remember a pilot."""
        self.seen[steps] = unevenness
        logger.info("pilot: %d steps, relative variance of the weights %.2g", steps, unevenness)

    def resample(self, share: float) -> None:
        """Let the chains go in populations from now on."""
        self.plan, self.size, self.seen = self.plan.with_chains(resample_below=share), TOLERANCE.population, {}

    @property
    def whole(self) -> int:
        """What chains are counted in."""
        return max(TOLERANCE.chain_unit, self.size)

    def left(self) -> float:
        return self.deadline - time.perf_counter()

    @staticmethod
    def half_width(result: Estimate) -> float:
        """Half of the interval of F, or the distance between a lower bound of ln Z and the estimate."""
        if result.lower_bound is not None:
            return result.log_z - result.lower_bound
        return (result.interval[1] - result.interval[0]) / 2.0

    def carry_out(self) -> Estimate:
        """Return the first answer that is narrow enough and free of doubts, or the last one there is time for."""
        self.warm_up()
        self.deadline = time.perf_counter() + self.seconds
        if not (self.seen and self.is_drawn):
            self.explore(
                TOLERANCE.first_steps_mixed if self.seen and self.plan.path.mixture is not None else self.plan.steps
            )
        elif self.is_watched and max(self.seen.values()) <= TOLERANCE.variance_pilots:
            self.explore(TOLERANCE.first_steps_mixed)
        chains = self.choose()
        for attempt in range(TOLERANCE.attempts):
            result = self.sample(chains)
            ratio = self.half_width(result) / self.goal
            # A mixture that starts too rarely where much of the weight is gives such an interval.
            broken = self.plan.path.mixture is not None and ratio > TOLERANCE.broken
            doubtful = broken or bool(confidence.warnings_of(result.log_weights))  # what more steps may mend
            doubtful = doubtful and not self.is_drawn  # more chains do there, not more steps
            # A lower bound holds for chains whose number does not depend on what they find: the first ones.
            last = result.weights.one_sided or self.fixed or self.left() <= 0.0 or attempt == TOLERANCE.attempts - 1
            far_off = (
                TOLERANCE.far_off if self.size == 1 else 2.0 * TOLERANCE.far_off
            )  # a few populations foretell it roughly
            if last or result.rounding >= self.goal or not (doubtful or ratio > far_off):
                break
            # this run has shown what no pilot had: it becomes one
            steps, rest = self.plan.steps, self.plan.steps * _more(result.chains, ratio)
            self.seen[steps] = confidence.corrected_variance(result.log_weights, self.size > 1)
            if doubtful:
                self.doubted = self.plan.steps
                if self.plan.path.mixture is not None:
                    self.mend_mixture(attempt)
                else:
                    logger.info("these weights are too uneven to be trusted: more steps")
                    self.seen = {k: r for k, r in self.seen.items() if k <= steps}
                    self.explore(steps * TOLERANCE.steps_ratio)
            before, chains = self.plan, self.choose()
            if not doubtful and self.plan.steps * chains >= rest:  # more of the same will do
                self.plan = before
                break
        while ratio > 1.0 > result.rounding / self.goal and self.left() > 0.0 and result.chains < TOLERANCE.most_chains:
            if result.weights.one_sided:
                break
            more = self.whole * math.ceil(_more(result.chains, ratio) / self.whole)
            result = result + self.sample(more)
            ratio = self.half_width(result) / self.goal
        return result

    def mend_mixture(self, attempt: int) -> None:
        """Fit the mixture to the ends of many chains, among them those that weigh too much; then leave it."""
        logger.info("these weights are too uneven to be trusted: another mixture")
        mixture = None
        if attempt == 0:
            width = self.plan.path.width
            recorder = Recorder([self.plan.steps], TOLERANCE.refit_chains, the_states, width)
            pilot = self.pilot_part(TOLERANCE.refit_chains)
            log_weights = run_plan(pilot, self.session.for_pilot(pilot), recorder).log_weights
            mixture = mixture_of_rows(self.plan, recorder.values[0], log_weights)
        path = self.plan.path
        path = path.without_mixture() if mixture is None else path.from_mixture(mixture, path.name)
        self.plan, self.seen, self.doubted = self.plan.along(path), {}, 0
        self.explore(TOLERANCE.first_steps if mixture is None else TOLERANCE.first_steps_mixed)

    def part(self, chains: int) -> Plan:
        """Return the plan with so many chains, in whole populations."""
        return self.plan.with_chains(count=chains, populations=self.populations(chains))

    def populations(self, chains: int) -> int:
        """Return the number of populations that so many chains make; 0 without resampling."""
        return chains // self.size if self.size > 1 else 0

    def pilot_part(self, chains: int) -> Plan:
        """Return a pilot with so many chains that none has used yet."""
        populations, share = self.populations(chains), self.plan.chains.resample_below
        part = self.plan.pilot(PILOT, chains, first=self.pilots, populations=populations, resample_below=share)
        self.pilots += chains
        return part

    def warm_up(self) -> None:
        """Import, compile and look, before the clock starts; take double precision if single could not do it."""
        few = self.pilot_part(self.size)
        seen = run_plan(few, self.session.for_pilot(few))
        if seen.rounding > TOLERANCE.margin * self.goal and self.plan.placement.precision == "single":
            self.plan = self.plan.placed(precision="double")
            run_plan(few.placed(precision="double"), self.session.for_pilot(few))
        if self.plan.path.part is not None and self.goal < math.ulp(seen.free_energy):
            raise ValueError(
                f"tolerance is {self.goal:g}; F is of the size of {abs(seen.free_energy):.2g}, "
                "and no number of that size has so many digits"
            )

    def explore(self, steps: int) -> None:
        """Run pilots, the first with `steps` steps, until the weights are even enough."""
        while True:
            begin = time.perf_counter()
            if steps not in self.seen:
                self.stretch(steps)
                self.saw(steps, self.pilot())
            unevenness, seconds = self.seen[steps], time.perf_counter() - begin
            limit = TOLERANCE.variance_pilots_phases if self.is_drawn else TOLERANCE.variance_pilots
            uneven = unevenness > limit and self.size == 1 and not self.fixed
            if (
                uneven
                and self.plan.path.mixture is not None
                and not self.is_drawn
                and steps > TOLERANCE.most_steps_mixed
            ):
                logger.info("the mixture does not keep what it promised: the plain path")
                self.plan = replace(self.plan, path=self.plan.path.without_mixture())
                self.seen, steps = {}, TOLERANCE.first_steps
                continue
            many = steps >= TOLERANCE.resampled_steps and steps * unevenness > TOLERANCE.resampled_cost
            if uneven and many and not self.is_drawn and self.may_resample and 4.0 * seconds < self.left():
                logger.info("many steps leave the weights uneven: populations of %d chains", TOLERANCE.population)
                self.resample(self.plan.usual_threshold)
                continue
            if (
                self.size == TOLERANCE.population
                and unevenness > TOLERANCE.variance_pilots_populations
                and steps >= TOLERANCE.larger_steps
            ):
                logger.info("and these, too: populations of %d", TOLERANCE.larger_ratio * TOLERANCE.population)
                self.size, self.seen = TOLERANCE.larger_ratio * TOLERANCE.population, {}
                continue
            even = unevenness <= (limit if self.size == 1 else TOLERANCE.variance_pilots_populations)
            if (
                self.plan.path.mixture is not None and unevenness <= TOLERANCE.variance_pilots and len(self.seen) == 1
            ):  # r hardly falls there: two tell how much
                even = False
            if self.size > 1 and len(self.seen) == 1:  # so here, if a pilot costs little beside what is to come
                ahead = unevenness * chains_per_variance(self.goal) / TOLERANCE.pilot_populations
                even = even and ahead < TOLERANCE.pilots_worth * TOLERANCE.steps_ratio
            if self.size > 1 or self.plan.path.mixture is not None:
                steps *= TOLERANCE.steps_ratio
            else:  # ln(1 + r) falls as 1/K at best: to ln 2
                steps *= min(
                    max(round(math.log2(1.0 + unevenness)), TOLERANCE.least_steps_ratio), TOLERANCE.most_steps_ratio
                )
            if (
                even
                or self.fixed
                or steps > TOLERANCE.most_steps
                or TOLERANCE.steps_ratio * seconds > self.left() / 2.0
            ):
                return

    def pilot(self) -> float:
        """Run a few chains of the plan, improve its schedule with them, and return r(K)."""
        alone = TOLERANCE.pilot_chains_phases if self.is_drawn else TOLERANCE.pilot_chains
        pilot = self.pilot_part(alone if self.size == 1 else TOLERANCE.pilot_populations * self.size)
        recorded = self.adaptive and self.plan.steps <= TOLERANCE.most_fitted_steps and self.plan.path.part is not None
        recorder = None
        if recorded and self.size == 1:
            recorder = Recorder(np.arange(1, self.plan.steps + 1), alone)
        result = run_plan(pilot, self.session.for_pilot(pilot), recorder)
        if recorder is not None:
            self.plan = replace(self.plan, betas=refit(self.plan.betas, recorder, self.plan.steps))
        self.rate = result.chains * self.plan.steps / result.seconds
        return confidence.corrected_variance(result.log_weights, self.size > 1)

    def stretch(self, steps: int) -> None:
        """Give the plan this many steps, spaced as those it has."""
        if steps != self.plan.steps:
            old = np.linspace(0.0, 1.0, self.plan.steps + 1)
            betas = np.interp(np.linspace(0.0, 1.0, steps + 1), old, self.plan.betas)
            self.plan = self.plan.with_steps(betas)

    def choose(self) -> int:
        """Give the plan the number of steps that looks cheapest, and return the number of chains it then needs."""
        known = sorted(self.seen.items())[-2:]
        (first, before), (last, now) = known[0], known[-1]
        scale = math.log1p(max(now, 1e-9))
        power = -1.0
        if first < last:
            power = math.log(scale / math.log1p(max(before, 1e-9))) / math.log(last / first)
            power = min(max(power, -1.0), 0.0)

        def unevenness(steps: int) -> float:
            if self.is_drawn and first == last:
                return now * last / steps
            return math.expm1(min(scale * (steps / last) ** power, 50.0))

        def chains(steps: int) -> int:
            rate = chains_per_variance(self.goal) * (TOLERANCE.chains_for_bound if is_one_sided(self.plan) else 1.0)
            needed = self.size * min(unevenness(steps) * rate, 2.0 * TOLERANCE.most_chains)
            return max(least, self.whole * math.ceil(needed / self.whole))

        least = TOLERANCE.least_chains if self.size == 1 else TOLERANCE.least_populations * self.size
        if not self.fixed:
            fewest = -3.0 if self.size == 1 else 0.0  # a few populations do not tell what fewer steps would do
            least_steps = 4 if self.plan.path.mixture is None else 2 * TOLERANCE.first_steps_mixed
            if self.is_drawn and not self.is_watched:
                least_steps = TUNING.mixed_steps
            options = [max(least_steps, round(last * 2.0**shift)) for shift in np.arange(fewest, 2.5, 0.5)]
            if power < -0.5:  # more steps still help
                options += [last * 2**shift for shift in (3, 4, 5, 6) if chains(options[-1]) > TOLERANCE.most_chains]
            in_time = [k for k in options if least * k <= self.rate * self.left()] or options[:1]
            fitting = [k for k in in_time if k > self.doubted and chains(k) <= TOLERANCE.most_chains]
            alone = TOLERANCE.variance_pilots_phases if self.is_drawn else TOLERANCE.variance_plan
            limit = alone if self.size == 1 else TOLERANCE.variance_plan_populations
            even = [k for k in fitting if unevenness(k) <= limit] or in_time[-1:]
            # even weights are easier to vouch for; what uneven populations lose to each other comes on top of 1/K
            worse = 0.1 if self.size == 1 else 1.0
            self.stretch(min(even, key=lambda k: k * chains(k) * (1.0 + worse * unevenness(k))))
        number = chains(self.plan.steps)
        cheap = self.whole * int(TOLERANCE.free_operations / (self.plan.path.operations * self.plan.steps * self.whole))
        number = min(max(number, min(2 * number, cheap)), TOLERANCE.most_chains)
        if self.size > 1:  # a few populations foretell it roughly: some first, then as many as those ask for
            number = max(least, self.whole * math.ceil(number / TOLERANCE.first_part / self.whole))
        logger.info("then: %d steps, %d chains", self.plan.steps, number)
        return number

    def sample(self, chains: int) -> Estimate:
        """Run fresh chains of the plan; a few at a time where there is a budget, and fewer if time runs out."""
        chains = min(chains, TOLERANCE.most_chains)
        seconds = chains * self.plan.steps / self.rate
        if seconds > TOLERANCE.short_seconds and self.deadline == math.inf:
            logger.info("%s", duration(seconds))
        done, result = 0, None
        batch = (
            chains
            if seconds < TOLERANCE.short_seconds or self.deadline == math.inf
            else min(chains, max(TOLERANCE.least_chains, self.size))
        )
        while result is None or (done < chains and self.left() > 0.0):
            part, share = self.part(batch).with_chains(first=self.used), batch / chains
            fresh = run_plan(part, self.session.part(done / chains, done / chains + share))
            self.used += batch
            done += batch
            self.rate = batch * self.plan.steps / fresh.seconds
            result = fresh if result is None else result + fresh
            affordable = self.rate * min(TOLERANCE.batch_seconds, max(self.left(), 0.0)) / self.plan.steps
            batch = min(chains - done, self.whole * max(1, int(affordable / self.whole)))
        return result


def _more(chains: int, ratio: float) -> int:
    """Return how many chains to add for an interval `ratio` times as wide as it should be."""
    return max(chains // 10, math.ceil(chains * (1.05 * min(ratio, 4.0) ** 2 - 1.0)))
