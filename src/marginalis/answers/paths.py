"""Which path to take when that is left to the package, and a second opinion on it.

Every Ẑ is unbiased, whatever its path, so P(Ẑ > aZ) ≤ 1/a: of two paths that disagree, the one with the lower Ẑ has
missed something. So a few chains are sent along the plain path and along paths that start from the mixture of quenches,
on either side of a bipartite graph. The highest of those that disagree is right; of those that agree the cheapest is
taken. Nothing of what is seen here enters the estimate but the choice of the path.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..checks import Array
from ..engines import drive
from ..engines.workers import Workers
from ..random import OPINION, stream
from ..sampling.options import PlanOptions
from ..sampling.plan import Plan
from .adaptive import fit_schedule
from .confidence import effective_size, log_mean_exp, relative_error
from .estimate import Estimate
from .quenches import mixture_of_rows, quenched_mixture

OPINION_CHAINS = 128
_COARSER = 8  # an opinion has this many times fewer steps than the plan,
_FEWEST, _MOST = 64, 1024  # within these limits
_LARGE = 4096  # features of the sampled side beyond which a mixture costs more than it may gain
_LEAST_ERROR = 0.02  # of an opinion, whose few weights cannot tell of less
_APART = 4.0  # standard errors between two estimates that disagree
_EVEN = math.log(3.0)  # ln(1 + r) below which a path is sure of itself
_WORTH = 0.5  # of the cost of the plain path, at which another is preferred to it


@dataclass(frozen=True)
class Opinion:
    """What a few chains say along one path."""

    name: str
    plan: Plan
    log_z: float
    error: float
    unevenness: float  # ln(1 + r), r the relative variance of the weights
    steps: int

    def cost(self, steps: int) -> float:
        """Cost of a given accuracy along this path, with as many steps as the plan has.

        ln(1 + r) falls as 1/K where chains keep up with the path; shares of a mixture that are a little off stay so.
        """
        ratio = self.steps / steps if self.plan.mixture is None else 1.0
        r = math.expm1(min(self.unevenness * ratio, 50.0))
        return self.plan.operations * max(r, 1e-3)


def choose_path(plan: Plan, workers: Workers, sides: bool, rows: Array | None = None) -> tuple[Plan, list[Opinion]]:
    """Return the plan on the path that does best, with a schedule fitted to it, and what was said on the way.

    `sides`: whether the other side of a bipartite graph may be sampled instead. A mixture fitted to `rows`, data of
    the visible side, is one more place to start from.
    """
    if plan.remainder.model is None or plan.steps == 1:
        return plan, []
    opinions = [_ask("uniform", plan, workers)]
    candidates = [plan]
    if sides and plan.method in ("mais-v", "mais-h"):
        candidates.append(replace(plan, method="mais-h" if plan.method == "mais-v" else "mais-v"))
    for candidate in candidates:
        if len(candidate.oriented()[0].visible_bias) > _LARGE:
            continue
        mixture = quenched_mixture(candidate, workers)
        if mixture is not None:
            named = replace(candidate, mixture=mixture, base_name="quenches")
            opinions.append(_ask(f"quenches ({candidate.method})", named, workers))
        if rows is not None and candidate.method != "mais-h" and candidate.remainder.model is candidate.model:
            named = replace(candidate, mixture=mixture_of_rows(candidate, rows), base_name="rows of data")
            opinions.append(_ask("rows of data", named, workers))
    best = max(opinions, key=_surely)
    # a path with uneven weights is low for want of steps; one with even weights has missed what the other has seen
    agreeing = [x for x in opinions if not (x.unevenness < _EVEN and _lower(x, best))]
    chosen = min(agreeing, key=lambda x: x.cost(plan.steps) * (_WORTH if x.name == "uniform" else 1.0))
    return fitted(chosen.plan, workers), opinions


def fitted(plan: Plan, workers: Workers) -> Plan:
    """Return the plan with a schedule fitted to its path."""
    return replace(plan, betas=fit_schedule(plan, workers), schedule="adaptive")


def _ask(name: str, plan: Plan, workers: Workers) -> Opinion:
    """Send a few chains along a path, with even steps."""
    steps = min(max(plan.steps // _COARSER, _FEWEST), _MOST, plan.steps)
    pilot = replace(
        plan,
        betas=np.linspace(0.0, 1.0, steps + 1),
        chains=OPINION_CHAINS,
        first_chain=0,
        seed=stream(plan.seed, OPINION),
        resample=0.0,
        populations=0,
    ).settled("auto")
    with np.errstate(over="ignore", invalid="ignore"):
        log_weights = drive.run(pilot, workers.for_pilot(pilot), lambda fraction: None)
    if not np.isfinite(log_weights).all():
        return Opinion(name, plan, -math.inf, math.inf, math.inf, steps)
    r = OPINION_CHAINS / effective_size(log_weights) - 1.0
    error = max(relative_error(log_weights), _LEAST_ERROR)
    return Opinion(name, plan, pilot.log_z0 + log_mean_exp(log_weights), error, math.log1p(r), steps)


def _surely(opinion: Opinion) -> float:
    """Return what an opinion vouches for: a few uneven weights may say anything."""
    return opinion.log_z - _APART * opinion.error


def _lower(one: Opinion, other: Opinion) -> bool:
    """Whether one estimate lies below another by more than both errors explain."""
    return other.log_z - one.log_z > _APART * math.hypot(one.error, other.error)


def is_left_to_us(options: PlanOptions) -> bool:
    """Whether neither the steps, nor the schedule, nor where the path starts is given."""
    return all(options.get(name) is None for name in ("steps", "schedule", "base"))


def convicted_by(result: Estimate, opinions: list[Opinion]) -> Opinion | None:
    """Return the opinion that has seen most of what an estimate has missed, if there is one."""
    above = [x for x in opinions if x.log_z - result.log_z > _APART * math.hypot(x.error, result.stderr)]
    return max(above, key=_surely, default=None)


def with_note(result: Estimate, opinions: list[Opinion]) -> Estimate:
    """Return the estimate with a note of the path that still finds more, if there is one."""
    above = convicted_by(result, opinions)
    if above is None:
        return result
    note = f"the path from {above.name} finds ln Z = {above.log_z:.6g} ± {above.error:.1g}, more than this one sees"
    return replace(result, notes=(*result.notes, note))
