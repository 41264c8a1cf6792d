"""The choice of a path if the options leave it open, and a comparison of an answer with all paths that were tried.

Every Ẑ is unbiased, whatever its path, so P(Ẑ > aZ) ≤ 1/a: if two paths disagree, the one with the lower Ẑ has missed
something. A few chains are run along the plain path, which starts from the uniform base. Unless an exact sum takes no
longer than they do and confirms them, `search` looks for a path from a mixture of phases.

The plain path is taken if a precise trial from the mixture finds no more, or if the path from the mixture costs so much
more that its trial is not precise, as on lattices and glasses, whose phases independent units do not describe.
Otherwise the path from the mixture is taken. The trials influence the answer by the choice of the path only.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

from ..checks import Array
from ..engines.plan import Plan
from ..running.session import Session
from ..statistics.confidence import effective_size, log_mean_exp, relative_error
from ..statistics.weights import Weights
from .pilots import fit_schedule
from .search import Search, plan_of, surely
from .trial import Trial, confirms, is_lower
from .tuning import TUNING

logger = logging.getLogger("marginalis")


class Choice(Search):
    """The trials of one call, and the path that is chosen by them."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.chosen: Trial | None = None  # The trial whose path is taken.
        self.growths = 0  # How often the mixture has been refined after a run.
        self.is_uneven = False  # Whether the weights along the chosen path will be uneven.

    def choose(self) -> Plan:
        """Return the plan on the best path."""
        plan = self.plan
        if plan.path.part is None or plan.steps == 1:
            return plan
        plain = self.take("uniform", plan)
        exact = self.sum_exactly(TUNING.exact_share * self.operations_ahead(plain))
        has_missed = exact is None or is_lower(plain, exact, TUNING.apart)
        if has_missed or self.rows is not None or self.is_worth_looking(plain):
            self.search(plain)
            exact = exact or self._exact()
        plain, mixed = self._best(False) or plain, self._best(True)
        chosen = plain if mixed is None or not self._prefers_mixture(plain, mixed, exact) else mixed
        logger.debug("the path from %s is taken", chosen.name)
        assert chosen.plan is not None
        self.chosen = chosen
        # On paths from mixtures resampling gains nothing.
        uneven = chosen.together > 1 or math.log1p(chosen.variance_at(plan.steps)) > TUNING.uneven
        self.is_uneven = uneven and not chosen.is_mixed
        return chosen.plan

    def _prefers_mixture(self, plain: Trial, mixed: Trial, exact: Trial | None) -> bool:
        """Whether the answer is taken along the path from the mixture."""
        if exact is not None:  # The exact sum shows which paths find everything.
            is_short = [is_lower(x, exact, TUNING.apart_exactly) for x in (plain, mixed)]
            if is_short == [True, False]:  # The cost of a path that misses states is larger than its trial shows.
                return mixed.log_variance < TUNING.even_enough or mixed.cost < TUNING.worth_proving * plain.cost
            if is_short == [True, True]:
                return mixed.log_z > plain.log_z
            if is_short == [False, True] and mixed.log_variance < TUNING.even_enough:
                return False
            return mixed.cost < TUNING.worth * plain.cost
        if is_lower(plain, mixed, TUNING.apart):
            return True
        # Glasses with products of spins have many states that are related by symmetries. A mixture has seen a part of
        # them and missed 0.2 nats without a sign.
        if self.plan.path.end.has_terms or is_lower(mixed, plain, TUNING.apart):
            return False
        # Independent units describe the many states of a sparse glass badly, and uneven weights show it.
        if not (self.is_dense or mixed.is_even):
            return False
        # A plain path of few effective chains agrees with anything.
        if confirms(mixed, plain) and (plain.tells or not self.is_dense):
            return mixed.cost < TUNING.worth * plain.cost
        if self.is_dense:
            return True
        return mixed.cost < TUNING.worth_proving * plain.cost

    def is_worth_looking(self, plain: Trial) -> bool:
        """Whether the plain path is so expensive that a search for another path may pay."""
        if self.worth is None:
            return plain.log_variance * plain.steps / self.plan.steps > TUNING.nearly_even
        return self.operations_ahead(plain) > TUNING.dear

    @property
    def is_watched(self) -> bool:
        """Whether an exact sum confirms the ln Z of the chosen path."""
        exact = self._exact()
        return exact is not None and self.chosen is not None and not is_lower(self.chosen, exact, TUNING.apart_exactly)

    def grow_from(self, plan: Plan, log_weights: Array, states: Array) -> None:
        """Add components to the mixture of a plan where the chains of a run end; the new path is chosen."""
        r = len(log_weights) / effective_size(log_weights) - 1.0
        log_z = plan.path.log_z0 + log_mean_exp(log_weights)
        error = max(relative_error(log_weights), TUNING.least_error)
        run = Trial("phases", plan, log_z, error, math.log1p(r), plan.steps, states, log_weights, plan.betas)
        self.trials.append(run)
        self.growths += 1
        operations = TUNING.exact_samples * TUNING.rounds * self._operations(TUNING.growth)
        if self.growths == 1 and not self.has_exact_samples and self._try_exact_samples(operations):
            self.chosen = self.trials[-1]
            return
        grown = self.grow(run, len(TUNING.levels) + TUNING.rounds + self.growths)
        self.chosen = grown if grown.log_weights is not None else run

    @property
    def chosen_plan(self) -> Plan:
        """The plan on the chosen path."""
        assert self.chosen is not None
        return plan_of(self.chosen)

    def another(self, result: Weights, plan: Plan) -> Plan | None:
        """Return the plan on a path that has found what an estimate has missed, if there is one."""
        above = self.above(result)
        if above is None:
            return None
        if not self.searched:
            self.search(self.trials[0])
        paths = [x for x in self.trials if x.plan is not None and x.is_open and not x.plan.path.is_like(plan.path)]
        better = max(paths, key=surely, default=None)
        if better is None or better.plan is None or better.log_z <= result.log_z:
            return None
        logger.info("the path from %s finds more than that from %s and replaces it", better.name, plan.path.name)
        return better.plan

    def above(self, result: Weights, apart_exactly: float = TUNING.apart) -> Trial | None:
        """Return the trial that has found most of what an estimate has missed, if there is one.

        Below an exact sum, an estimate has missed something if they differ by `apart_exactly` standard errors.
        """

        def is_above(x: Trial) -> bool:
            apart = apart_exactly if x.plan is None else TUNING.apart
            return x.log_z - result.log_z > result.rounding + apart * math.hypot(x.careful_error, result.stderr)

        return max(filter(is_above, self.trials), key=surely, default=None)

    def doubts(self, result: Weights) -> tuple[str, ...]:
        """Return a warning that names the path that finds more than an estimate, if there is one."""
        above = self.above(result, TUNING.apart_exactly)
        if above is None:
            return ()
        if above.plan is None:
            return (f"an exact sum gives ln Z = {above.log_z:.8g}, which is more: these chains have missed states",)
        found = f"ln Z = {above.log_z:.6g} ± {above.error:.1g}"
        return (f"the path from {above.name} finds {found}, which is more: these chains have missed states",)


def fitted(plan: Plan, session: Session) -> Plan:
    """Return the plan with a schedule fitted to its path."""
    return replace(plan, betas=fit_schedule(plan, session), schedule="adaptive")
