"""To this accuracy, please: the schedule, K and N chosen so that the interval of F gets as narrow as asked.

Pilots with ever more steps go first, until their weights are even enough to predict from: each measures r(K),
the relative variance of the weights, and sets the schedule of the next. N chains have the error √(r(K)/N), so the
cheapest plan is the K that makes K·max(N_least, r(K)/error²) least, where ln(1 + r) is a power of K between two
pilots and beyond the last (K⁻¹ where the chains keep up with the path). Then the plan is frozen, and chains that no
pilot has seen are run. Only if their interval comes out too wide are more added: the one place where the chains of
the answer have a say in how many they are, which moves Z by much less than its error.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from ..checks import Array, real_number
from ..engines.workers import Workers
from ..exact import duration
from ..parallel.threads import Tick
from ..random import PILOT, stream
from ..sampling.base import QUENCHES, is_quenches
from ..sampling.options import DEFAULT_STEPS, PlanOptions
from ..sampling.plan import Plan, make_plan
from ..sampling.recorder import Recorder
from . import confidence
from .adaptive import refit
from .estimate import Estimate, run_plan
from .paths import Opinion, choose_path, convicted_by, is_left_to_us, with_note
from .quenches import quenched_mixture

logger = logging.getLogger("marginalis")

_PILOT_CHAINS = 256
_FIRST_STEPS = 32
_OPINION_STEPS = 512  # of which a second opinion takes a part
_STEPS_RATIO = 4  # the next pilot has this many times the steps
_MOST_STEPS = 1 << 24
_MOST_RECORDED = 512  # steps of a pilot that still improves the schedule
_EVEN_ENOUGH = 1.5  # relative variance of the weights that ends the pilots,
_UNEVEN = 2.0  # and up to which a plan may be the cheapest
_LEAST_CHAINS = 256  # fewer would save little time and cost the interval its credit
_MOST_CHAINS = 1 << 25  # a quarter of a GiB of log-weights
_FINE = 1e-4  # below this, single precision might show
_MARGIN = 0.9  # the half-width aimed at, in tolerances
_Z95 = 1.96
_FAR_OFF = math.sqrt(2.0)  # times the width aimed at, or twice the chains: another number of steps may be better
_ATTEMPTS = 6
_SHORT = 1.0  # seconds that need no announcement
_BATCH_SECONDS = 0.5  # between looks at the clock, if there is a budget


def to_tolerance(
    model: Any,
    tolerance: float,
    budget: float | None,
    workers: Workers,
    tick: Tick,
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
    ours = is_left_to_us(options)
    options["schedule"] = "linear" if adaptive else schedule
    if options.get("steps") is None:
        options["steps"] = _FIRST_STEPS if isinstance(schedule, str) else DEFAULT_STEPS
    if goal < _FINE:
        options["precision"] = "double"
    plan = make_plan(model, **options)
    opinions: list[Opinion] = []
    if ours:
        sides = options["method"] == "mais" and options["summed"] is None
        asked = time.perf_counter()
        long = replace(plan, betas=np.linspace(0.0, 1.0, _OPINION_STEPS + 1))
        chosen, opinions = choose_path(long, workers, sides, rows)
        plan = replace(chosen, betas=plan.betas)
        seconds = max(seconds / 2.0, seconds - (time.perf_counter() - asked))
    if is_quenches(options.get("base")):
        mixture = quenched_mixture(plan, workers)
        plan = plan if mixture is None else replace(plan, mixture=mixture, base_name=QUENCHES)
    if adaptive:
        plan = replace(plan, schedule="adaptive")
    work = _Work(plan, workers, goal, seconds, fixed, adaptive)
    result = work.carry_out(tick)
    better = convicted_by(result, opinions)
    if better is not None and not better.plan.same_path(plan) and work.left() > 0.0:
        logger.info("the path from %s finds more than that from %s: taking it", better.name, plan.base_name)
        other = replace(better.plan, betas=plan.betas, schedule="adaptive")
        work = _Work(other, workers, goal, work.left(), fixed, adaptive)
        result = work.carry_out(tick)
    result = with_note(result, opinions)
    if work.half_width(result) > goal:
        reason = "this is as many chains as there may be"
        if result.rounding >= goal:
            reason = "rounding allows no less"
        elif work.left() <= 0.0:
            reason = f"the budget of {budget:g} s ran out"
        note = f"{reason}: the interval is ± {work.half_width(result):.2g}, and the tolerance {goal:g}"
        result = replace(result, notes=(*result.notes, note))
    return result.took(time.perf_counter() - work.begin)


class _Work:
    """The pilots, the choice and the final chains of one call."""

    def __init__(self, plan: Plan, workers: Workers, goal: float, seconds: float, fixed: bool, adaptive: bool) -> None:
        self.plan, self.workers, self.goal = plan, workers, goal
        self.seconds, self.deadline = seconds, math.inf  # the budget, and when it ends: set as it starts
        self.fixed, self.adaptive = fixed, adaptive
        self.begin = time.perf_counter()
        self.pilots = 0  # chains used up by pilots,
        self.used = plan.first_chain  # and by answers
        self.rate = math.inf  # chain·steps per second
        self.seen: dict[int, float] = {}  # r(K)
        self.doubted = 0  # steps that were not enough

    def left(self) -> float:
        return self.deadline - time.perf_counter()

    @staticmethod
    def half_width(result: Estimate) -> float:
        return (result.interval[1] - result.interval[0]) / 2.0

    def carry_out(self, tick: Tick) -> Estimate:
        """Return the first answer that is narrow enough and free of doubts, or the last one there is time for."""
        self.warm_up()
        self.deadline = time.perf_counter() + self.seconds
        self.explore(self.plan.steps)
        for attempt in range(_ATTEMPTS):
            result = self.sample(self.choose(), tick)
            ratio = self.half_width(result) / self.goal
            doubtful = bool(confidence.warnings_of(result.log_weights))  # what more steps may mend
            last = self.fixed or self.left() <= 0.0 or attempt == _ATTEMPTS - 1
            if last or result.rounding >= self.goal or not (doubtful or ratio > _FAR_OFF):
                break
            # this run has shown what no pilot had: it becomes one
            self.seen[self.plan.steps] = result.chains / result.ess - 1.0
            if doubtful:
                logger.info("these weights are too uneven to be trusted: more steps")
                self.doubted = self.plan.steps
                self.explore(self.plan.steps * _STEPS_RATIO)
        while ratio > 1.0 > result.rounding / self.goal and self.left() > 0.0 and result.chains < _MOST_CHAINS:
            more = max(result.chains // 10, math.ceil(result.chains * (1.1 * min(ratio, 4.0) ** 2 - 1.0)))
            result = result + self.sample(min(more, _MOST_CHAINS - result.chains), tick)
            ratio = self.half_width(result) / self.goal
        return result

    def warm_up(self) -> None:
        """Import, compile and look, before the clock starts; take double precision if single could not do it."""
        few = replace(self.plan, chains=1, seed=stream(self.plan.seed, PILOT))
        seen = run_plan(few, self.workers.for_pilot(few), lambda fraction: None)
        if seen.rounding > _MARGIN * self.goal and self.plan.precision == "single":
            self.plan = replace(self.plan, precision="double")
            run_plan(replace(few, precision="double"), self.workers.for_pilot(few), lambda fraction: None)
        if self.plan.remainder.model is not None and self.goal < math.ulp(seen.free_energy):
            raise ValueError(
                f"tolerance is {self.goal:g}; F is of the size of {abs(seen.free_energy):.2g}, "
                "and no number of that size has so many digits"
            )

    def explore(self, steps: int) -> None:
        """Run pilots, the first with `steps` steps, until the weights are even enough."""
        self.seen = {k: r for k, r in self.seen.items() if k < steps}
        while True:
            self.stretch(steps)
            begin = time.perf_counter()
            unevenness = self.seen[steps] = self.pilot()
            logger.info("pilot: %d steps, relative variance of the weights %.2g", steps, unevenness)
            ahead = _STEPS_RATIO * (time.perf_counter() - begin)
            steps *= _STEPS_RATIO
            if unevenness <= _EVEN_ENOUGH or self.fixed or steps > _MOST_STEPS or ahead > self.left() / 2.0:
                return

    def pilot(self) -> float:
        """Run a few chains of the plan, improve its schedule with them, and return r(K)."""
        pilot = replace(self.plan, chains=_PILOT_CHAINS, first_chain=self.pilots, seed=stream(self.plan.seed, PILOT))
        self.pilots += _PILOT_CHAINS
        recorded = self.adaptive and self.plan.steps <= _MOST_RECORDED and self.plan.remainder.model is not None
        recorder = Recorder(np.arange(1, self.plan.steps + 1), _PILOT_CHAINS) if recorded else None
        result = run_plan(pilot, self.workers.for_pilot(pilot), lambda fraction: None, recorder)
        if recorder is not None:
            self.plan = replace(self.plan, betas=refit(self.plan.betas, recorder, self.plan.steps))
        self.rate = _PILOT_CHAINS * self.plan.steps / result.seconds
        return result.chains / result.ess - 1.0

    def stretch(self, steps: int) -> None:
        """Give the plan this many steps, spaced as those it has."""
        if steps != self.plan.steps:
            old = np.linspace(0.0, 1.0, self.plan.steps + 1)
            betas = np.interp(np.linspace(0.0, 1.0, steps + 1), old, self.plan.betas)
            self.plan = replace(self.plan, betas=betas).settled(self.plan.engine)

    def choose(self) -> int:
        """Give the plan the number of steps that looks cheapest, and return the number of chains it then needs."""
        error = max(_MARGIN * self.goal / _Z95, 1e-300)
        known = sorted(self.seen.items())[-2:]
        (first, before), (last, now) = known[0], known[-1]
        scale = math.log1p(max(now, 1e-9))
        power = -1.0
        if first < last:
            power = math.log(scale / math.log1p(max(before, 1e-9))) / math.log(last / first)
            power = min(max(power, -1.0), 0.0)

        def unevenness(steps: int) -> float:
            return math.expm1(min(scale * (steps / last) ** power, 50.0))

        def chains(steps: int) -> int:
            needed = min(unevenness(steps) / error / error, 2.0 * _MOST_CHAINS)
            return max(_LEAST_CHAINS, 32 * math.ceil(needed / 32))

        if not self.fixed:
            options = [max(4, round(last * 2.0**shift)) for shift in np.arange(-3.0, 2.5, 0.5)]
            if power < -0.5:  # more steps still help
                options += [last * 2**shift for shift in (3, 4, 5, 6) if chains(options[-1]) > _MOST_CHAINS]
            in_time = [k for k in options if _LEAST_CHAINS * k <= self.rate * self.left()] or options[:1]
            fitting = [k for k in in_time if k > self.doubted and chains(k) <= _MOST_CHAINS]
            even = [k for k in fitting if unevenness(k) <= _UNEVEN] or in_time[-1:]
            # of plans that cost about the same, the one with even weights is easier to vouch for
            self.stretch(min(even, key=lambda k: k * chains(k) * (1.0 + 0.1 * unevenness(k))))
        number = min(chains(self.plan.steps), _MOST_CHAINS)
        logger.info("then: %d steps, %d chains", self.plan.steps, number)
        return number

    def sample(self, chains: int, tick: Tick) -> Estimate:
        """Run fresh chains of the plan, if it may take long a few of them first; fewer, if time runs out."""
        done, result = 0, None
        batch = chains if chains * self.plan.steps < _SHORT * self.rate else min(chains, _LEAST_CHAINS)
        while result is None or (done < chains and self.left() > 0.0):
            part = replace(self.plan, chains=batch, first_chain=self.used)
            share = batch / chains
            fresh = run_plan(
                part,
                self.workers,
                lambda f, b=done / chains, s=share: tick(b + s * f),  # type: ignore[misc]
            )
            self.used += batch
            done += batch
            self.rate = batch * self.plan.steps / fresh.seconds
            seconds = (chains - done) * self.plan.steps / self.rate
            if result is None and seconds > _SHORT and self.deadline == math.inf:
                logger.info("%s", duration(seconds))
            result = fresh if result is None else result + fresh
            batch = chains - done
            if self.deadline < math.inf:
                affordable = self.rate * min(_BATCH_SECONDS, max(self.left(), 0.0)) / self.plan.steps
                batch = min(batch, 32 * max(1, int(affordable / 32)))
        return result
