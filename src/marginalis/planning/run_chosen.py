"""A run along the chosen path, and a second run if the trials of the choice have found more than the first.

Every answer whose path is left open is computed in this way: the path is chosen, the run is compared with all trials,
and a trial that has found significantly more either replaces the path or leads to a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..engines.plan import Plan, make_plan
from ..models.model import MRF
from ..options import PlanOptions
from ..running.session import Session
from ..statistics.weights import Weights
from . import tuning
from .choose import Choice

Result = TypeVar("Result")


def run_chosen(
    choice: Choice,
    plan: Plan,
    run: Callable[[Plan], Result],
    weights_of: Callable[[Result], Weights],
    has_time: Callable[[], bool] = lambda: True,
) -> tuple[Result, tuple[str, ...]]:
    """Return the result of `run` along the path of a plan, or along a path that has found more, and its warnings.

    Parameters
    ----------
    choice
        The choice of the path, which has made the trials.
    plan
        The plan on the path that was chosen.
    run
        The computation of the answer for a plan.
    weights_of
        The weights of the result of `run`, to compare with the trials.
    has_time
        Whether there is time for a second run.
    """
    result = run(plan)
    better = choice.another(weights_of(result), plan) if has_time() else None
    if better is not None:
        result, plan = run(better), better
    weights = weights_of(result)
    return result, (*_few_effective(weights, plan.path.mixture is not None), *choice.doubts(weights))


def missed(model: MRF, weights: Weights, given: PlanOptions, session: Session) -> tuple[str, ...]:
    """Return a warning if another path finds more of a model than a run whose path could not be chosen."""
    choice = Choice(make_plan(model, keep_whole=True, **given), session)
    choice.choose()
    return choice.doubts(weights)


def are_few_and_uneven(weights: Weights) -> bool:
    """Whether these are weights of few populations, which only their effective number shows to be uneven."""
    few = weights.of == "populations" and len(weights) <= tuning.TUNING.few_populations
    return few and weights.ess < tuning.TUNING.effective_populations * len(weights)


def _few_effective(weights: Weights, is_mixed: bool) -> tuple[str, ...]:
    """Return a warning if few of the populations, or few of the chains on a path from a mixture, are effective.

    The weights of chains from a mixture are even except for a few heavy ones, so that their bulk does not show how
    heavy others may be.
    """
    few = is_mixed and weights.of == "chains" and weights.ess < tuning.TUNING.few_chains
    if not (few or are_few_and_uneven(weights)):
        return ()
    share = f"the effective number of {weights.of} is {weights.ess:.1f} of {len(weights)}"
    return (f"{share}: the interval may be too narrow; raise steps or chains",)
