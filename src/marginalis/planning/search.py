"""The search for a better path: trials of paths, and mixtures that are fitted to what the search finds.

A trial runs a few chains along a path. The search tries the path from the model's biases and those from mixtures with
fields on both sides, which are fitted to the phases that are found from many sides (see `phases`), or to exact samples
where these are cheap. It is continued as long as the answer would cost more than the search.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import Array
from ..engines.plan import Plan
from ..engines.recorder import Recorder, the_states
from ..exact import soon
from ..exact.sampling import enumerated_states
from ..paths.base import make_base
from ..random import OPINION, QUENCH, stream
from ..running.session import Session
from ..statistics.confidence import effective_size, log_mean_exp, relative_error
from . import phases, tuning
from .pilots import interpolated, linear_with_fine_end, refit
from .trial import Trial, confirms, relative_variance
from .tuning import TUNING, Level

logger = logging.getLogger("marginalis")


class Search:
    """The trials of one call.

    `rows` are data of the visible side, one more source of states. `worth` is the number of chains of the answer per
    unit of relative variance of their weights; None if the plan's own steps and chains are used. No search begins that
    is predicted to take more than half of the time until the `deadline`, as of `time.perf_counter`.
    """

    def __init__(
        self,
        plan: Plan,
        session: Session,
        rows: Array | None = None,
        worth: float | None = None,
        deadline: float = math.inf,
    ) -> None:
        self.plan, self.session, self.rows, self.worth, self.deadline = plan, session, rows, worth, deadline
        self.trials: list[Trial] = []
        self.searched = False
        self.has_exact_samples = False  # Whether a mixture has been fitted to exact samples.
        fine = 2 * TUNING.levels[0].chains if worth is None else 16.0 * math.ceil(math.sqrt(worth))
        self.mixed_chains = int(min(max(TUNING.levels[0].chains, fine), TUNING.most_mixed))

    def _best(self, mixed: bool) -> Trial | None:
        """Return the last trial of a path from a mixture, or the plain trial with the highest certain ln Z."""
        found = [x for x in self.trials if x.is_open and x.plan is not None and x.is_mixed == mixed]
        if mixed:  # The deepest search uses the states of all earlier ones.
            return found[-1] if found else None
        return max(found, key=surely, default=None)

    def operations_ahead(self, trial: Trial) -> float:
        """Return the approximate operations of the answer along the path of a trial."""
        if self.worth is None:
            return self.plan.path.operations * self.plan.steps * self.plan.chains.count
        return trial.cost * self.worth

    def search(self, plain: Trial) -> None:
        """Look for phases from many sides, and try the path from the mixture fitted to them."""
        self.searched = True
        if self.plan.path.width > TUNING.widest:
            return
        if self._exact() is not None and self._try_exact_samples(self._operations(TUNING.levels[-1])):
            return
        self.take_biases()
        mixed: Trial | None = None
        for number, level in enumerate((*TUNING.levels, *[TUNING.growth] * TUNING.rounds)):
            if mixed is not None and not self._goes_deeper(level, self._best(False) or plain, mixed):
                return
            if mixed is not None and number <= len(TUNING.levels):
                rounds = TUNING.rounds if number == len(TUNING.levels) else 1.0
                operations = rounds * self._operations(TUNING.growth)
                if self._try_exact_samples(TUNING.exact_samples * operations):
                    return
                if number == len(TUNING.levels) and self._exact() is None:
                    self.sum_exactly(operations)
            mixed = self.grow(mixed, number) if mixed and level is TUNING.growth else self.try_mixture(level, number)
        plain = self._best(False) or plain
        if not any(x.tells for x in self.trials if x is plain or x.is_mixed):
            self._resampled()

    @property
    def is_dense(self) -> bool:
        """Whether variables have so many neighbours that a mean field describes them."""
        model = self.plan.path.end
        couplings = [w for w in (model.weights, model.lateral) if w is not None]
        entries = sum(w.nnz if sp.issparse(w) else np.count_nonzero(w) for w in couplings)
        return bool(entries > TUNING.dense * min(model.n_visible, max(model.n_hidden, 1)))

    def _goes_deeper(self, level: Level, plain: Trial, mixed: Trial) -> bool:
        """Whether the answer would cost so much that a deeper search pays, and whether there is time for it."""
        if 2.0 * self._operations(level) / self._speed > self.deadline - time.perf_counter():
            return False
        best = min(plain, mixed, key=lambda x: x.cost)
        # Phases of dense models are nearly independent units in some fields; phases of sparse models seldom are. A
        # plain path of few effective chains needs a search even if it is higher: the mixture has only begun to grow.
        gain, error = mixed.log_z - plain.log_z, math.hypot(mixed.error, plain.error)
        promises = gain > (-TUNING.apart if self.is_dense else TUNING.acquits_within) * error
        promises = promises or (self.is_dense and not plain.tells)
        promises = promises or (mixed.tells and mixed.cost < TUNING.promising * plain.cost)
        share = TUNING.deeper if promises else TUNING.deeper_without_promise
        ahead = self.operations_ahead(best)
        uneven = best.variance_at(TUNING.mixed_steps)
        precise = best.tells and best.error <= TUNING.precise
        if self.worth is None and uneven < TUNING.even and precise and confirms(mixed, plain):
            return False
        if level is TUNING.growth and mixed.is_even and mixed.error <= TUNING.precise:
            return False
        agree = confirms(mixed, plain) and all(x.tells and x.error < TUNING.agree_within for x in (mixed, plain))
        if promises and not agree:  # An answer with uneven weights needs more than the chains of the plan.
            usual = self.plan.path.operations * TUNING.usual_chain_steps
            more = min(max(uneven, 1.0), TUNING.uneven_costs) if precise else TUNING.uneven_costs
            ahead = max(ahead, usual * more)
        return self._operations(level) < share * ahead

    @property
    def _speed(self) -> float:
        """Operations per second, approximately."""
        return TUNING.operations_per_second * self.session.threads

    def _operations(self, level: Level) -> float:
        """Return the approximate operations of a search at this level."""
        return self.plan.path.operations * level.chain_steps

    def _exact(self) -> Trial | None:
        """Return the exact sum among the trials, if there is one."""
        return next((x for x in self.trials if x.plan is None), None)

    def _resampled(self) -> None:
        """Try both paths with resampling, since the trials without it were not precise."""
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
        return self._take_mixture(sources, level)

    def _take_mixture(self, sources: list[phases.States], level: Level) -> Trial:
        """Fit a mixture to states, refit its shares to a trial of its path, and try the path from the result."""
        mixture = phases.mixture_of(self.plan, sources, level.components)
        candidate = self.plan.along(self.plan.path.from_mixture(mixture, "phases"))
        first = self.take("phases", candidate, level.chains, level.steps, is_new=True)
        if first.log_weights is None:  # they are not finite
            return first
        return self._take_refitted(self._refitted(first, candidate, level), level)

    def grow(self, mixed: Trial, number: int) -> Trial:
        """Add components to the mixture of the last trial, where its chains end, and try the path from it."""
        level, plan = TUNING.growth, mixed.plan
        if plan is None or plan.path.mixture is None or mixed.ends is None or mixed.log_weights is None:
            return mixed
        sources = []
        if number == len(TUNING.levels):
            tried = len(self.trials)
            self.take("uniform", self.plan, level.pilot_chains, level.pilot_steps)
            self.take_biases(level.pilot_chains, level.pilot_steps)
            sources = [
                phases.ends_of_pilot(x.ends, x.log_weights)
                for x in self.trials[tried:]
                if x.ends is not None and x.log_weights is not None
            ]
        starts = phases.resampled(mixed.ends, mixed.log_weights, level.states)
        sources.append(phases.alike(phases.sweep(self.plan, self.session, starts, level.sweeps, number * 4096)))
        mixture = phases.grown(plan, plan.path.mixture, sources, level.components)
        return self._take_refitted(plan.along(plan.path.from_mixture(mixture, plan.path.name)), level)

    def _take_refitted(self, plan: Plan, level: Level) -> Trial:
        """Try a path from a mixture; the answer takes the shares that this trial asks for."""
        chains = max(level.chains, self.mixed_chains)
        trial = self.take("phases", plan, chains, level.steps)
        if trial.log_weights is not None:
            self.trials[-1] = replace(trial, plan=self._refitted(trial, plan, level, chains))
        return self.trials[-1]

    def _refitted(self, trial: Trial, plan: Any, level: Level, chains: int | None = None) -> Plan:
        """Return the plan of the last trial with the shares that all trials ask for."""
        pilot = self._pilot(plan, chains or level.chains, level.steps, len(self.trials) - 1)
        found = [
            phases.Found(x.ends, x.log_weights, surely(x))
            for x in self.trials
            if x.ends is not None and x.log_weights is not None
        ]
        assert trial.log_weights is not None
        mixture = phases.with_refitted_shares(pilot, trial.log_z, trial.log_weights, found)
        return replace(plan, path=plan.path.from_mixture(mixture, plan.path.name))

    def _pilot(self, plan: Plan, chains: int, steps: int, number: int, together: int = 1, is_new: bool = False) -> Plan:
        by_words = plan.placed(draws="words")  # Every path has a kernel for these draws.
        changes: dict[str, Any] = {"first": TUNING.most_mixed * number}
        if together > 1:
            changes |= {"populations": chains // together, "resample_below": plan.usual_threshold}
        is_mixed = plan.path.mixture is not None
        betas = linear_with_fine_end(steps) if is_mixed else np.linspace(0.0, 1.0, steps + 1)
        last = self._best(True) if is_mixed and together == 1 else None
        if last is not None and last.betas is not None and not is_new:
            betas = interpolated(last.betas, steps)
        return by_words.pilot(OPINION, chains, betas, **changes).on_engine("auto")

    def take(
        self,
        name: str,
        plan: Plan,
        chains: int | None = None,
        steps: int | None = None,
        together: int = 1,
        is_new: bool = False,
    ) -> Trial:
        """Run a few chains along a path; with `together` > 1 in resampled populations of this size.

        The steps are equal, with a fine end on paths from mixtures. A mixture that was made from an earlier one takes
        the schedule that was fitted to the trial of that one, unless it `is_new`.
        """
        if steps is None:
            steps = min(max(plan.steps // TUNING.coarser, TUNING.fewest_steps), TUNING.most_steps, plan.steps)
        chains = TUNING.trial_chains if chains is None else chains
        pilot = self._pilot(plan, chains, steps, len(self.trials), together, is_new)
        width = plan.path.width
        measure = the_states if width <= TUNING.widest and together == 1 else None
        # All steps are recorded if the next schedule is fitted to this trial.
        is_mixed = plan.path.mixture is not None
        looks = [steps] if self.worth is None and not is_mixed else np.arange(1, steps + 1)
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
            betas = None if len(looks) < steps or together > 1 else refit(pilot.betas, recorder, steps, is_mixed)
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
            relative_variance(trial.log_variance),
            steps,
        )
        self.trials.append(trial)
        return trial

    def take_biases(self, chains: int | None = None, steps: int | None = None) -> None:
        """Try the path from the model without couplings.

        The answer is never computed along it, since strong biases fix variables in one state.
        """
        model, path = self.plan.path.model, self.plan.path
        if any(np.any(bias) for bias in (model.visible_bias, model.hidden_bias)):
            from_biases = replace(self.plan, path=path.from_base(make_base("biases", model), "biases"))
            self.take("biases", from_biases, chains, steps)
            self.trials[-1] = replace(self.trials[-1], is_open=False)

    def _try_exact_samples(self, operations: float) -> bool:
        """Try the path from a mixture fitted to exact samples, unless they take more than so many operations.

        No better source of states exists, so that no further search follows.
        """
        drawn = self._draw_exactly(operations)
        if drawn is None:
            return False
        self.has_exact_samples = True
        level = replace(TUNING.levels[-1], components=TUNING.components_exactly)
        trial = self._take_mixture([phases.alike(drawn)], level)
        if self._operations(TUNING.growth) < TUNING.deeper * self.operations_ahead(trial):
            self._take_refitted(plan_of(trial), TUNING.growth)
        return True

    def _draw_exactly(self, operations: float) -> Array | None:
        """Return exact samples of the sampled side if they take no longer than so many operations.

        The sum that they follow from becomes a trial, if there is no exact sum yet.
        """
        path = self.plan.path
        seconds = min(max(2.0 * TUNING.exact_seconds, operations / self._speed), TUNING.exact_most)
        numbers = np.arange(TUNING.growth.states, dtype=np.uint64)
        seed = stream(self.plan.chains.seed, QUENCH)
        found = enumerated_states(path.end, seed, numbers, self.session.threads, seconds)
        if found is None:
            return None
        if self._exact() is None and path.is_whole:
            self.trials.append(Trial("an exact sum", None, found[1], 1e-9 * max(1.0, abs(found[1]))))
        return found[0]

    def sum_exactly(self, operations: float) -> Trial | None:
        """Return ln Z from an exact sum, if that takes no longer than a few chains or than so many operations."""
        affordable = operations / self._speed
        seconds = min(max(TUNING.exact_seconds, affordable), tuning.TUNING.exact_most)
        if seconds <= 0.0:
            return None
        value = soon(self.plan.path.model, self.session.threads, seconds, min(seconds, affordable))
        if value is None:
            return None
        self.trials.append(Trial("an exact sum", None, value, 1e-9 * max(1.0, abs(value))))
        return self.trials[-1]


def plan_of(trial: Trial) -> Plan:
    """Return the plan of a trial that is not an exact sum."""
    assert trial.plan is not None
    return trial.plan


def surely(trial: Trial) -> float:
    """Return a value that ln Z almost certainly exceeds, by this trial."""
    return trial.log_z - TUNING.apart * trial.careful_error
