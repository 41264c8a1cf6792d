"""Which path to take when that is left to the package, and what other paths have seen.

Every Ẑ is unbiased, whatever its path, so P(Ẑ > aZ) ≤ 1/a: of two paths that disagree, the one with the lower Ẑ has
missed something. A few chains are sent along the plain path and, unless an exact sum takes no longer than they do, from
the model's biases and from a mixture with fields on both sides that is fitted to the phases found from many sides (see
`phases`). The search goes deeper as long as the answer would cost more than the search.

The burden of proof is on the plain path: it is taken where the mixture sees no more and is precise enough to tell, or
where the mixture's path costs so much more that it cannot tell, as on lattices and glasses, whose phases independent
units do not describe. Nothing of what is seen here enters the estimate but the choice of the path.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import Array
from ..engines.placement import is_lattice
from ..engines.plan import Plan
from ..engines.recorder import Recorder, the_states
from ..exact import soon
from ..paths.base import make_base
from ..random import OPINION
from ..running.session import Session
from ..statistics.confidence import effective_size, log_mean_exp, log_spread, relative_error
from ..statistics.weights import Weights
from . import phases
from .pilots import fit_schedule, refit
from .tuning import TUNING, Level

logger = logging.getLogger("marginalis")


@dataclass(frozen=True)
class Trial:
    """What a few chains find along one path; the plan is None for an exact sum."""

    name: str
    plan: Plan | None
    log_z: float
    error: float
    log_variance: float = 0.0  # ln(1 + r), r the relative variance of the weights
    steps: int = 1
    ends: Array | None = None  # states of the sampled side after the last step,
    log_weights: Array | None = None  # and their weights
    betas: Array | None = None  # of as many steps that are better placed
    seconds: float = math.inf  # that the chains took
    is_open: bool = True  # for the answer to be taken along this path
    together: int = 1  # chains in a population, which one weight is of

    @property
    def is_mixed(self) -> bool:
        """Whether the path starts from a mixture."""
        return self.plan is not None and self.plan.path.mixture is not None

    @property
    def tells(self) -> bool:
        """Whether so many weights count that they tell how uneven those of the answer will be."""
        return self.log_weights is not None and effective_size(self.log_weights) >= TUNING.tells

    @property
    def chain_steps(self) -> float:
        """Steps times relative variance: what an estimate of relative variance 1 takes, in chain·steps.

        Where the chains keep up with the path ln(1 + r) falls as 1/K. Few weights hide how uneven they are, which the
        spread of their logarithms shows.
        """
        r = math.expm1(min(self.log_variance, 50.0))
        if self.is_mixed or self.together > 1 or self.log_weights is None:
            return self.steps * self.together * r
        if self.log_variance < TUNING.even_enough:
            return self.steps * self.log_variance
        least = 0.0 if self.tells else r
        return self.steps * max(4.0 * self.log_variance, 4.0 * min(log_spread(self.log_weights), 1e100) ** 2, least)

    @property
    def cost(self) -> float:
        """Operations of an estimate of relative variance 1."""
        assert self.plan is not None
        path = self.plan.path
        cost = path.operations * self.chain_steps
        if self.is_mixed and is_lattice(replace(self.plan, path=path.without_mixture())):
            return cost * TUNING.lattices_faster
        return cost

    def variance_at(self, steps: int) -> float:
        """Relative variance of a weight after so many steps, about."""
        if self.is_mixed:
            return self.chain_steps / steps
        return math.expm1(min(self.log_variance * self.steps / steps, 50.0))


class Choice:
    """The trials of one call, and the path chosen by them.

    `rows` are data of the visible side, one more source of states. `worth` is how many chains an answer takes for every
    unit of relative variance of their weights; None for the plan's own steps and chains.
    """

    def __init__(self, plan: Plan, session: Session, rows: Array | None = None, worth: float | None = None) -> None:
        self.plan, self.session, self.rows, self.worth = plan, session, rows, worth
        self.trials: list[Trial] = []
        self.chosen: Trial | None = None  # the one whose path is taken
        self.searched = False
        self.is_uneven = False  # whether the path chosen will have uneven weights
        fine = 2 * TUNING.levels[0].chains if worth is None else 16.0 * math.ceil(math.sqrt(worth))
        self.mixed_chains = int(min(max(TUNING.levels[0].chains, fine), TUNING.most_mixed))

    def choose(self) -> Plan:
        """Return the plan on the path that does best."""
        plan = self.plan
        if plan.path.part is None or plan.steps == 1:
            return plan
        plain = self.take("uniform", plan)
        exact = self.sum_exactly(plain)
        if exact is None or self.rows is not None or _lower(plain, exact) or self.is_worth_looking(plain):
            self.search(plain)
        plain, mixed = self._best(False) or plain, self._best(True)
        chosen = plain if mixed is None or not self._prefers_mixture(plain, mixed, exact) else mixed
        logger.debug("the path from %s is taken", chosen.name)
        assert chosen.plan is not None
        self.chosen = chosen
        # resampling gains nothing on paths from mixtures
        uneven = chosen.together > 1 or math.log1p(chosen.variance_at(plan.steps)) > TUNING.uneven
        self.is_uneven = uneven and not chosen.is_mixed
        return chosen.plan

    def _best(self, mixed: bool) -> Trial | None:
        """Return the last trial of a path from a mixture, or of the plain paths the one that tells most."""
        found = [x for x in self.trials if x.is_open and x.plan is not None and x.is_mixed == mixed]
        if mixed:  # the deepest search has all states of those before
            return found[-1] if found else None
        return max(found, key=_surely, default=None)

    def _prefers_mixture(self, plain: Trial, mixed: Trial, exact: Trial | None) -> bool:
        """Whether the answer is taken along the path from the mixture."""
        if exact is not None:  # which paths see everything is known
            even = [x for x in (plain, mixed) if x.log_variance < TUNING.even_enough]
            short = [x for x in even if _lower(x, exact, TUNING.apart_exactly)]
            if len(short) == 1:
                return short[0] is plain
            return mixed.cost < TUNING.worth * plain.cost
        if _lower(plain, mixed):
            return True
        if _lower(mixed, plain):
            return False
        if _acquits(mixed, plain):
            return mixed.cost < TUNING.worth * plain.cost
        if self.is_dense:
            return True
        return (mixed.tells or mixed.log_z > plain.log_z) and mixed.cost < TUNING.worth_proving * plain.cost

    def is_worth_looking(self, plain: Trial) -> bool:
        """Whether the plain path is so dear that finding another may pay."""
        if self.worth is None:
            return plain.log_variance * plain.steps / self.plan.steps > TUNING.nearly_even
        return self.operations_ahead(plain) > TUNING.dear

    def operations_ahead(self, trial: Trial) -> float:
        """Rough cost of the answer along the path of a trial."""
        if self.worth is None:
            return self.plan.path.operations * self.plan.steps * self.plan.chains.count
        return trial.cost * self.worth

    def search(self, plain: Trial) -> None:
        """Look for phases from many sides, and try the path from the mixture fitted to them."""
        self.searched = True
        if self.plan.path.width > TUNING.widest:
            return
        self.take_biases()
        mixed: Trial | None = None
        for number, level in enumerate(TUNING.levels):
            if mixed is not None and not self._goes_deeper(level, self._best(False) or plain, mixed):
                return
            mixed = self.try_mixture(level, number)
        if not any(x is not None and x.tells for x in (self._best(False), self._best(True))):
            self._resampled()

    @property
    def is_dense(self) -> bool:
        """Whether a variable has so many neighbours that a mean field describes it."""
        model = self.plan.path.end
        couplings = [w for w in (model.weights, model.lateral) if w is not None]
        entries = sum(w.nnz if sp.issparse(w) else np.count_nonzero(w) for w in couplings)
        return bool(entries > TUNING.dense * min(model.n_visible, max(model.n_hidden, 1)))

    def _goes_deeper(self, level: Level, plain: Trial, mixed: Trial) -> bool:
        """Whether the answer would cost so much that a deeper search pays."""
        sweeps, pilots = level.states * level.sweeps, level.pilot_chains * level.pilot_steps
        cost = self.plan.path.operations * (sweeps + 2 * pilots + 2 * level.chains * level.steps)
        best = min(plain, mixed, key=lambda x: x.cost)
        apart = TUNING.acquits_within * math.hypot(mixed.error, plain.error)
        gain = mixed.log_z - plain.log_z
        # phases of dense models are independent units in some fields, nearly; those of sparse ones seldom
        promises = gain > (-apart if self.is_dense else apart)
        promises = promises or (mixed.tells and mixed.cost < TUNING.promising * plain.cost)
        share = TUNING.deeper if promises else TUNING.deeper_without_promise
        ahead = self.operations_ahead(best)
        uneven = best.variance_at(TUNING.mixed_steps)
        precise = best.tells and best.error <= TUNING.precise
        if self.worth is None and uneven < TUNING.even and precise and _acquits(mixed, plain):
            return False
        if promises:  # an answer with uneven weights is no answer yet
            usual = self.plan.path.operations * TUNING.usual_chain_steps
            more = min(max(uneven, 1.0), TUNING.uneven_costs) if precise else TUNING.uneven_costs
            ahead = max(ahead, usual * more)
        return cost < share * ahead

    @property
    def is_watched(self) -> bool:
        """Whether an exact sum confirms what the path chosen sees."""
        exact = next((x for x in self.trials if x.plan is None), None)
        return exact is not None and self.chosen is not None and not _lower(self.chosen, exact, TUNING.apart_exactly)

    def _resampled(self) -> None:
        """Try both paths with resampling where neither has told much: on some of them it changes everything."""
        level = TUNING.levels[-1]
        for mixed in (False, True):
            trial = self._best(mixed)
            if trial is not None and trial.plan is not None:
                self.take(trial.name, trial.plan, level.chains, level.steps, TUNING.together)

    def try_mixture(self, level: Level, number: int) -> Trial:
        """Fit a mixture to the states that a search at this level finds, refit its shares, and try its path."""
        plan = self.plan
        if level.pilot_chains:
            self.take("uniform", plan, level.pilot_chains, level.pilot_steps)
            self.take_biases(level.pilot_chains, level.pilot_steps)
        starts = phases.starts_from_many_sides(plan, level.states)
        sources = [phases.alike(phases.sweep(plan, self.session, starts, level.sweeps, number * 4096))]
        if self.rows is not None and plan.path.is_whole:
            some = np.linspace(0, len(self.rows) - 1, min(len(self.rows), level.states)).astype(np.int64)
            rows = phases.states_of_rows(plan, self.rows[some])
            moved = phases.sweep(plan, self.session, rows, level.sweeps, number * 4096 + 2048)
            sources += [phases.alike(rows), phases.alike(moved)]
        for trial in self.trials:
            if trial.ends is not None and trial.log_weights is not None and not trial.is_mixed:
                sources.append(phases.ends_of_pilot(trial.ends, trial.log_weights))
        mixture = phases.mixture_of(plan, sources, level.components)
        candidate = plan.along(plan.path.from_mixture(mixture, "phases"))
        chains = max(level.chains, self.mixed_chains)
        first = self.take("phases", candidate, level.chains, level.steps)
        if first.log_weights is None:  # they are not finite
            return first
        again = self.take("phases", self._refitted(first, candidate, level), chains, level.steps)
        if again.log_weights is not None:  # the answer takes the shares that its own pilot asks for
            self.trials[-1] = replace(again, plan=self._refitted(again, again.plan, level, chains))
        return self.trials[-1]

    def _refitted(self, trial: Trial, plan: Any, level: Level, chains: int | None = None) -> Plan:
        """Return the plan of the last trial with the shares that all trials ask for."""
        pilot = self._pilot(plan, chains or level.chains, level.steps, len(self.trials) - 1)
        found = [
            phases.Found(x.ends, x.log_weights, x.log_z - x.error)
            for x in self.trials
            if x.ends is not None and x.log_weights is not None
        ]
        assert trial.log_weights is not None
        mixture = phases.with_refitted_shares(pilot, trial.log_z, trial.log_weights, found)
        return replace(plan, path=plan.path.from_mixture(mixture, plan.path.name))

    def _pilot(self, plan: Plan, chains: int, steps: int, number: int, together: int = 1) -> Plan:
        by_words = plan.placed(draws="words")  # which every path has a kernel for
        changes: dict[str, Any] = {"first": TUNING.most_mixed * number}
        if together > 1:
            changes |= {"populations": chains // together, "resample_below": plan.usual_threshold}
        return by_words.pilot(OPINION, chains, np.linspace(0.0, 1.0, steps + 1), **changes).on_engine("auto")

    def take(
        self, name: str, plan: Plan, chains: int | None = None, steps: int | None = None, together: int = 1
    ) -> Trial:
        """Send a few chains along a path, with even steps; in populations of so many `together` that are resampled."""
        if steps is None:
            steps = min(max(plan.steps // TUNING.coarser, TUNING.fewest_steps), TUNING.most_steps, plan.steps)
        chains = TUNING.trial_chains if chains is None else chains
        pilot = self._pilot(plan, chains, steps, len(self.trials), together)
        width = plan.path.width
        measure = the_states if width <= TUNING.widest and together == 1 else None
        looks = [steps] if self.worth is None else np.arange(1, steps + 1)  # for the first schedule of the answer
        recorder = Recorder(looks, chains, measure, width if measure else 0, at_end=True)
        begin = time.perf_counter()
        with np.errstate(over="ignore", invalid="ignore"):
            log_weights = self.session.pilot(pilot, recorder).log_weights
        seconds = time.perf_counter() - begin
        if np.isfinite(log_weights).all():
            r = len(log_weights) / effective_size(log_weights) - 1.0
            error = max(relative_error(log_weights), TUNING.least_error)
            log_z = pilot.path.log_z0 + log_mean_exp(log_weights)
            ends = recorder.values[0] if measure else None
            betas = None if self.worth is None or together > 1 else refit(pilot.betas, recorder, steps)
            trial = Trial(
                name, plan, log_z, error, math.log1p(r), steps, ends, log_weights, betas, seconds, True, together
            )
        else:
            trial = Trial(name, plan, -math.inf, math.inf, math.inf, steps)
        logger.debug(
            "from %s: ln Z = %.6g ± %.2g (r = %.3g after %d steps)",
            name,
            trial.log_z,
            trial.error,
            math.expm1(min(trial.log_variance, 50.0)),
            steps,
        )
        self.trials.append(trial)
        return trial

    def take_biases(self, chains: int | None = None, steps: int | None = None) -> None:
        """Try the path from the model without couplings: that it holds variables fast rules it out for the answer."""
        model, path = self.plan.path.model, self.plan.path
        if any(np.any(bias) for bias in (model.visible_bias, model.hidden_bias)):
            from_biases = replace(self.plan, path=path.from_base(make_base("biases", model), "biases"))
            self.take("biases", from_biases, chains, steps)
            self.trials[-1] = replace(self.trials[-1], is_open=False)

    def sum_exactly(self, plain: Trial) -> Trial | None:
        """Sum exactly where that takes no longer than a few chains, or than a part of the estimate."""
        rate = TUNING.operations_per_second * self.session.threads
        seconds = TUNING.exact_share * self.operations_ahead(plain) / rate
        value = soon(
            self.plan.path.model, self.session.threads, min(max(TUNING.exact_seconds, seconds), TUNING.exact_most)
        )
        if value is None:
            return None
        self.trials.append(Trial("an exact sum", None, value, 1e-9 * max(1.0, abs(value))))
        return self.trials[-1]

    def another(self, result: Weights, plan: Plan) -> Plan | None:
        """Return a path that has seen what an estimate has missed, if something tells of it."""
        above = self.above(result)
        if above is None:
            return None
        if not self.searched:
            self.search(self.trials[0])
        paths = [x for x in self.trials if x.plan is not None and x.is_open and not x.plan.path.is_like(plan.path)]
        better = max(paths, key=_surely, default=None)
        if better is None or better.plan is None or better.log_z <= result.log_z:
            return None
        logger.info("the path from %s finds more than that from %s: taking it", better.name, plan.path.name)
        return better.plan

    def above(self, result: Weights) -> Trial | None:
        """Return the trial that has seen most of what an estimate has missed, if there is one."""

        def is_above(x: Trial) -> bool:
            return x.log_z - result.log_z > result.rounding + TUNING.apart * math.hypot(x.error, result.stderr)

        return max(filter(is_above, self.trials), key=_surely, default=None)

    def doubts(self, result: Weights) -> tuple[str, ...]:
        """Return a warning that names what finds more than an estimate, if anything does."""
        above = self.above(result)
        if above is None:
            return ()
        if above.plan is None:
            return (f"an exact sum gives ln Z = {above.log_z:.8g}, more than these chains see",)
        found = f"ln Z = {above.log_z:.6g} ± {above.error:.1g}"
        return (f"the path from {above.name} finds {found}, more than this one sees",)


def fitted(plan: Plan, session: Session) -> Plan:
    """Return the plan with a schedule fitted to its path."""
    return replace(plan, betas=fit_schedule(plan, session), schedule="adaptive")


def _surely(trial: Trial) -> float:
    """Return what a trial vouches for: a few uneven weights may say anything."""
    return trial.log_z - TUNING.apart * trial.error


def _acquits(mixed: Trial, plain: Trial) -> bool:
    """Whether a path from a mixture is precise enough to tell that it sees no more than the plain one."""
    precise = mixed.error <= TUNING.acquits
    return precise and mixed.log_z - plain.log_z <= TUNING.acquits_within * math.hypot(mixed.error, plain.error)


def _lower(one: Trial, other: Trial, apart: float = TUNING.apart) -> bool:
    """Whether one estimate lies below another by more than both errors explain."""
    return other.log_z - one.log_z > apart * math.hypot(one.error, other.error)
