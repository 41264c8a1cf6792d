"""Which path to take when that is left to the package, and a second opinion on it.

Every Ẑ is unbiased, whatever its path, so P(Ẑ > aZ) ≤ 1/a: of two paths that disagree, the one with the lower Ẑ has
missed something. So a few chains are sent along the plain path and, unless an exact sum takes no longer than they do,
along paths that start from a mixture of quenches, on either side of a bipartite graph. The highest of the paths that
disagree is right; of those that agree the cheapest is taken. Nothing of what is seen here enters the estimate but the
choice of the path.

Fitted again to what its own chains have ended in, with their weights, a mixture makes the weights of cold models up to
a hundred times more even. But what those chains have not seen is then lost without a sign (on a ± J glass of 12 x 12
spins, 0.3 nats): this is done only where an exact sum keeps watch.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from ..answers.estimate import Estimate
from ..checks import Array
from ..engines.plan import Plan
from ..engines.recorder import Recorder, the_states
from ..exact import soon
from ..options import PlanOptions
from ..paths.base import make_base
from ..paths.path import Path
from ..random import OPINION
from ..running.session import Session
from ..statistics.confidence import effective_size, log_mean_exp, relative_error
from .pilots import fit_schedule, refit
from .quenches import mixture_of_rows, quenched_mixture

logger = logging.getLogger("marginalis")

OPINION_CHAINS = 128
_MIXED_CHAINS = 256  # of a path from a mixture, whose ends may make the next,
_MOST_MIXED = 4096  # or more, the finer the answer is to be: a state that none of them has seen is lost
_COARSER = 8  # an opinion has this many times fewer steps than the plan,
_FEWEST, _MOST = 64, 1024  # within these limits
_LARGE = 4096  # features of the sampled side beyond which a mixture costs more than it may gain
_EXACT_SECONDS = 0.02  # that an exact sum may take to be the second opinion,
_EXACT_SHARE = 0.1  # or share of the estimate along the plain path,
_EXACT_MOST = 1.0  # but no more seconds than this
_OPERATIONS_PER_SECOND = 5e10  # of one thread
_LEAST_ERROR = 0.02  # of an opinion, whose few weights cannot tell of less
_APART = 4.0  # standard errors between two estimates that disagree
_APART_EXACTLY = 2.5  # where one of them is exact, and losing nothing is the point
_EVEN = math.log(3.0)  # ln(1 + r) below which a path is sure of itself
_UNEVEN = 0.2  # of ln(1 + r) as a few chains foretell it, above which populations pay
_WORTH = 0.5  # of the cost of the plain path, at which another is preferred to it
_NEARLY_EVEN = 0.25  # ln(1 + r) at the plan's steps up to which the plain path will do,
_DEAR = 2e9  # or operations,
_CHEAP = 2e8  # and those that no mixture is fitted for again
_REFITS = 3  # of a mixture to the ends of its own chains, at most,
_ENOUGH = 4.0  # while so many of them count
_GAIN = 0.6  # and one makes the weights so much more even


@dataclass(frozen=True)
class Opinion:
    """What a few chains say along one path; the plan is None for an exact sum."""

    name: str
    plan: Plan | None
    log_z: float
    error: float
    unevenness: float = 0.0  # ln(1 + r), r the relative variance of the weights
    steps: int = 1
    ends: Array | None = None  # states of the sampled side after the last step,
    log_weights: Array | None = None  # and their weights
    betas: Array | None = None  # of as many steps that are better placed
    seconds: float = math.inf  # that the chains took
    is_open: bool = True  # for the answer to be taken along this path

    def cost(self, steps: int | None) -> float:
        """Cost of a given accuracy along this path, with so many steps or with as many as are best.

        ln(1 + r) falls as 1/K where chains keep up with the path; shares of a mixture that are a little off stay so,
        and few steps are best there.
        """
        assert self.plan is not None
        r = math.expm1(min(self.unevenness, 50.0))
        if steps is not None:
            if self.plan.path.mixture is None:
                r = math.expm1(min(self.unevenness * self.steps / steps, 50.0))
            return self.plan.path.operations * max(r, 1e-3)
        if self.plan.path.mixture is None:  # few weights hide how uneven they are
            return self.plan.path.operations * self.steps * self.unevenness * (1.0 if self.unevenness < _EVEN else 4.0)
        return self.plan.path.operations * self.steps * r


class Panel:
    """Those who are asked which path to take, and what each of them has said.

    `sides`: whether the other side of a bipartite graph may be sampled instead. A mixture fitted to `rows`, data of
    the visible side, is one more place to start from. `worth`: the cost of an estimate along the plain path, in
    chains times steps for every ln(1 + r)·K, from which on others are looked for; None for the plan's own steps.
    """

    def __init__(
        self, plan: Plan, session: Session, sides: bool, rows: Array | None = None, worth: float | None = None
    ) -> None:
        self.plan, self.session, self.rows, self.worth = plan, session, rows, worth
        self.paths = [plan.path]  # which have other sides sampled
        if sides and plan.method_name in ("mais-v", "mais-h"):
            self.paths.append(plan.path.turned())
        self.opinions: list[Opinion] = []
        self.chosen: Opinion | None = None  # the one whose path is taken
        self.unexplored = list(self.paths)
        self.is_uneven = False  # whether the path chosen will have uneven weights
        fine = 2 * _MIXED_CHAINS if worth is None else 16.0 * math.ceil(math.sqrt(worth))
        self.mixed_chains = int(min(max(_MIXED_CHAINS, fine), _MOST_MIXED))

    def choose(self) -> Plan:
        """Return the plan on the path that does best."""
        plan = self.plan
        if plan.path.part is None or plan.steps == 1:
            return plan
        plain = self.ask("uniform", plan)
        exact = self.ask_exactly(plain)
        doubtful = exact is None or self.rows is not None or _lower(plain, exact)
        if doubtful or self.is_worth_looking(plain):
            self.explore(self.paths if doubtful else self.paths[:1])
        paths = [x for x in self.opinions if x.plan is not None and x.is_open]
        best = max(self.opinions, key=_surely)
        # a path with uneven weights is low for want of steps; one with even weights has missed what the other has seen
        apart = _APART if best.plan is not None else _APART_EXACTLY
        agreeing = [x for x in paths if not (x.unevenness < _EVEN and _lower(x, best, apart))] or paths
        steps = plan.steps if self.worth is None else None
        sure = [x for x in agreeing if x.name == "uniform" or x.unevenness < _EVEN] or agreeing
        chosen = min(sure, key=lambda x: x.cost(steps) * (_WORTH if x.name == "uniform" else 1.0))
        logger.debug("the path from %s looks cheapest", chosen.name)
        assert chosen.plan is not None
        self.chosen = chosen
        shrinks = 1.0 if chosen.plan.path.mixture is not None else chosen.steps / plan.steps
        self.is_uneven = chosen.unevenness * shrinks > _UNEVEN
        return chosen.plan

    def is_worth_looking(self, plain: Opinion) -> bool:
        """Whether the plain path is so dear that finding another may pay."""
        if self.worth is None:
            return plain.unevenness * plain.steps / self.plan.steps > _NEARLY_EVEN
        return self.operations_ahead(plain) > _DEAR

    def will_do(self, mixed: Opinion) -> bool:
        """Whether a mixture is so even already that a better one would not pay."""
        if self.worth is not None and mixed.cost(None) * self.worth < _CHEAP:
            return True
        return mixed.unevenness < _NEARLY_EVEN

    def operations_ahead(self, plain: Opinion) -> float:
        """Rough cost of the estimate along the plain path."""
        if self.worth is None:
            return self.plan.path.operations * self.plan.steps * self.plan.chains.count
        return plain.cost(None) * self.worth

    def explore(self, paths: list[Path]) -> None:
        """Ask along paths that start where quenches end, and again where the chains of those have ended."""
        watched = any(x.plan is None for x in self.opinions)
        if not watched and not any(x.name == "biases" for x in self.opinions):
            self.ask_biases()
        for path in paths:
            self.unexplored.remove(path)
            candidate = self.plan.along(path)
            if path.width > _LARGE:
                continue
            mixture = quenched_mixture(candidate, self.session)
            if mixture is not None:
                asked = self.ask(
                    f"quenches ({candidate.method_name})", candidate.along(path.from_mixture(mixture, "quenches"))
                )
                if watched:
                    self.refit(asked)
            if self.rows is not None and not path.is_turned and path.is_whole:
                named = path.from_mixture(mixture_of_rows(candidate, self.rows), "rows of data")
                self.ask("rows of data", candidate.along(named))

    def refit(self, opinion: Opinion) -> None:
        """Fit the mixture again to the weighted ends of all chains so far, as long as that makes them more even."""
        turned = opinion.plan and opinion.plan.path.is_turned
        for k in range(_REFITS):
            heard = [x for x in self.opinions if x.ends is not None and x.plan and x.plan.path.is_turned == turned]
            sizes = [effective_size(x.log_weights) for x in heard if x.log_weights is not None]
            if opinion.plan is None or sum(sizes) < _ENOUGH or self.will_do(opinion):
                return
            ends = np.concatenate([x.ends for x in heard if x.ends is not None])
            # every path's weights have the same mean: those of even ones say more of it
            weights = np.concatenate(
                [
                    x.log_weights - logsumexp(x.log_weights) + math.log(size)
                    for x, size in zip(heard, sizes, strict=True)
                ]
            )
            path = opinion.plan.path
            refitted = path.from_mixture(mixture_of_rows(opinion.plan, ends, weights), path.name)
            again = self.ask(opinion.name, replace(opinion.plan, path=refitted))
            if k > 0 and not again.unevenness < _GAIN * opinion.unevenness:
                return
            opinion = again

    def ask(self, name: str, plan: Plan) -> Opinion:
        """Send a few chains along a path, with even steps."""
        mixed = plan.path.mixture is not None  # fewer steps do there
        steps = min(max(plan.steps // _COARSER, _FEWEST) // (2 if mixed else 1), _MOST, plan.steps)
        chains = self.mixed_chains if mixed else OPINION_CHAINS
        first = _MOST_MIXED * len(self.opinions)
        by_words = plan.placed(draws="words")  # for which every path has a kernel
        pilot = by_words.pilot(OPINION, chains, np.linspace(0.0, 1.0, steps + 1), first=first).settled("auto")
        width = plan.path.width
        measure = the_states if width <= _LARGE else None
        looks = [steps] if self.worth is None else np.arange(1, steps + 1)  # for the first schedule of the answer
        recorder = Recorder(looks, chains, measure, width if measure else 0, at_end=True)
        begin = time.perf_counter()
        with np.errstate(over="ignore", invalid="ignore"):
            log_weights = self.session.pilot(pilot, recorder).log_weights
        seconds = time.perf_counter() - begin
        if np.isfinite(log_weights).all():
            r = chains / effective_size(log_weights) - 1.0
            error = max(relative_error(log_weights), _LEAST_ERROR)
            log_z = pilot.path.log_z0 + log_mean_exp(log_weights)
            ends = recorder.values[0] if measure else None
            betas = None if self.worth is None else refit(pilot.betas, recorder, steps)
            opinion = Opinion(name, plan, log_z, error, math.log1p(r), steps, ends, log_weights, betas, seconds)
        else:
            opinion = Opinion(name, plan, -math.inf, math.inf, math.inf, steps)
        logger.debug("from %s: ln Z = %.6g ± %.2g", name, opinion.log_z, opinion.error)
        self.opinions.append(opinion)
        return opinion

    def ask_biases(self) -> None:
        """Ask along the path from the model without couplings: that it holds variables fast rules it out for more."""
        model, path = self.plan.path.model, self.plan.path
        if any(np.any(bias) for bias in (model.visible_bias, model.hidden_bias)):
            self.ask("biases", replace(self.plan, path=path.from_base(make_base("biases", model), "biases")))
            self.opinions[-1] = replace(self.opinions[-1], is_open=False)

    def ask_exactly(self, plain: Opinion) -> Opinion | None:
        """Sum exactly where that takes no longer than a few chains, or than a part of the estimate."""
        seconds = _EXACT_SHARE * self.operations_ahead(plain) / (_OPERATIONS_PER_SECOND * self.session.threads)
        value = soon(self.plan.path.model, self.session.threads, min(max(_EXACT_SECONDS, seconds), _EXACT_MOST))
        if value is None:
            return None
        self.opinions.append(Opinion("an exact sum", None, value, 1e-9 * max(1.0, abs(value))))
        return self.opinions[-1]

    def another(self, result: Estimate, plan: Plan) -> Plan | None:
        """Return a path that has seen what an estimate has missed, if something tells of it."""
        above = self.convicting(result)
        if above is None:
            return None
        self.explore(list(self.unexplored))
        paths = [x for x in self.opinions if x.plan is not None and x.is_open and not x.plan.path.is_like(plan.path)]
        better = max(paths, key=_surely, default=None)
        if better is None or better.plan is None or better.log_z <= result.log_z:
            return None
        logger.info("the path from %s finds more than that from %s: taking it", better.name, plan.path.name)
        return better.plan

    def convicting(self, result: Estimate) -> Opinion | None:
        """Return the opinion that has seen most of what an estimate has missed, if there is one."""

        def is_above(x: Opinion) -> bool:
            return x.log_z - result.log_z > result.rounding + _APART * math.hypot(x.error, result.stderr)

        return max(filter(is_above, self.opinions), key=_surely, default=None)

    def noted(self, result: Estimate) -> Estimate:
        """Return the estimate with a note of what still finds more, if anything does."""
        above = self.convicting(result)
        if above is None:
            return result
        note = f"the path from {above.name} finds ln Z = {above.log_z:.6g} ± {above.error:.1g}, more than this one sees"
        if above.plan is None:
            note = f"an exact sum gives ln Z = {above.log_z:.8g}, more than these chains see"
        return replace(result, notes=(*result.notes, note))


def fitted(plan: Plan, session: Session) -> Plan:
    """Return the plan with a schedule fitted to its path."""
    return replace(plan, betas=fit_schedule(plan, session), schedule="adaptive")


def _surely(opinion: Opinion) -> float:
    """Return what an opinion vouches for: a few uneven weights may say anything."""
    return opinion.log_z - _APART * opinion.error


def _lower(one: Opinion, other: Opinion, apart: float = _APART) -> bool:
    """Whether one estimate lies below another by more than both errors explain."""
    return other.log_z - one.log_z > apart * math.hypot(one.error, other.error)


def is_left_to_us(options: PlanOptions) -> bool:
    """Whether neither the steps, nor the schedule, nor where the path starts is given."""
    return all(options.get(name) is None for name in ("steps", "schedule", "base"))
