"""A run along the chosen path, and a second run if the trials of the choice have found more than the first.

Every answer whose path is left open is computed in this way: the path is chosen, the run is compared with all trials,
and a trial that has found significantly more either replaces the path or leads to a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..engines.plan import Plan
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
        result = run(better)
    weights = weights_of(result)
    return result, (*_few_populations(weights), *choice.doubts(weights))


def are_few_and_uneven(weights: Weights) -> bool:
    """Whether these are weights of few populations, which only their effective number shows to be uneven."""
    few = weights.of == "populations" and len(weights) <= tuning.TUNING.few_populations
    return few and weights.ess < tuning.TUNING.effective_populations * len(weights)


def _few_populations(weights: Weights) -> tuple[str, ...]:
    if not are_few_and_uneven(weights):
        return ()
    share = f"the effective number of populations is {weights.ess:.1f} of {len(weights)}"
    return (f"{share}: the interval may be too narrow; raise steps or chains",)
