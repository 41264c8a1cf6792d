"""A population of chains that follows a model in training, and fresh runs where it cannot.

From one update to the next the chains are annealed in few steps (see `answers.carried`), which is cheap as long as the
model changes little. Every Ẑ is unbiased, whatever its path: if two runs disagree, the one with the smaller ln Z has
missed something. So the population is replaced by that of a fresh run if the model has changed so much that a fresh run
is cheaper, if its weights have become too uneven, or if another run finds a larger ln Z.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..answers.carried import Carried, Origin, carried_to_first, on_the_split_of
from ..answers.final_states import final_states
from ..answers.history import CARRIED, FRESH
from ..checks import stored
from ..engines.plan import make_plan
from ..models.model import MRF
from ..options import PlanOptions, leaves_path_open
from ..random import FRESH as FRESH_STREAM
from ..random import WITNESS, stream
from ..running.session import Session
from ..statistics.weights import Weights

_GAPS = 100  # The tolerance is reached after about this many updates, as errors add up.
_FEWEST = 2  # Least number of steps between two updates.
_ALWAYS = 32  # So many steps between two updates are taken without a comparison with a fresh run.
# Cost of a step between two models, in units of that of a step from a base without couplings: the kernels for dense
# couplings serve only the latter (784 × 500 units: 42 µs and 8 µs per chain on one thread).
_COST = 4.0
_PILOTS = 64  # Chains of the pilot of the first gap, which are copies of chains of the population.
# Chains and steps of the short run from the model's biases that only checks ln Z, and the level of the intervals that
# are compared.
_WITNESSES, _WITNESS_STEPS, _LEVEL = 64, 32, 0.9999
_CHECK = 4.0  # Cost of the carried population, in units of that of a fresh run, after which a fresh run checks it.
_SELDOM = 10  # Fresh runs on a path chosen with care, which cost several times as much, are so many updates apart.


class Gap(NamedTuple):
    """The latest annealing from one update to the next."""

    steps: int
    change: float  # Sum of the squared changes of all parameters.
    variance: float  # Relative variance of the weights of the populations.


@dataclass(frozen=True, eq=False)
class Followed:
    """The population after the latest update, and the values that determine the next one."""

    carried: Carried
    updates: int  # Number of updates so far.
    tolerance: float  # Standard error at which a fresh run is made; larger if fresh runs have larger errors.
    gap: Gap | None = None
    spent: float = 0.0  # Number of chain·steps since the latest fresh run.
    source: str = CARRIED
    note: str = ""
    loud: bool = False  # Whether the note is a surprise.
    worked: int = 0  # Annealing steps of this update.
    careful: int = -_SELDOM  # Number of the latest update with a run on a path chosen with care.

    @property
    def weights(self) -> Weights:
        """The weights at the latest update, with its ln Z."""
        return self.carried.weights


def begun(model: MRF, given: PlanOptions, tolerance: float, session: Session) -> Followed:
    """Return the population of a fresh run for the first model."""
    return _fresh(None, model, given, tolerance, session)


def followed(last: Followed, model: MRF, given: PlanOptions, tolerance: float, session: Session) -> Followed:
    """Return the population at the next model, carried there if possible, otherwise from a fresh run."""
    carried = last.carried
    try:
        model = on_the_split_of(carried.model, model, "model")
    except ValueError:
        found = _fresh(last, model, given, tolerance, session)
        return replace(found, note="the model has other variables or couplings than before: fresh run", loud=True)
    change = _change(carried.model, model)
    steps = _steps(last, change)
    pilots = carried.pilots
    if steps is None:
        steps, pilots = carried.steps_to(model, given, session)
    if steps > max(_ALWAYS, carried.origin.record.steps / _COST):
        note = (
            "the model has changed so much since the last update that a fresh run is cheaper than carrying the chains"
        )
        return replace(_fresh(last, model, given, tolerance, session), note=note)
    moved = carried.to_in(max(_FEWEST, steps), model, given, session, pilots)
    steps = moved.steps - carried.steps
    variance = float(np.var(moved.results - carried.results, ddof=1)) if len(moved.results) > 1 else 0.0
    found = replace(
        last,
        carried=moved,
        updates=last.updates + 1,
        gap=Gap(steps, change, variance),
        spent=last.spent + _COST * steps,
        source=CARRIED,
        note="",
        loud=False,
        worked=steps,
    )
    return _checked(last, found, model, given, tolerance, session)


def _checked(
    last: Followed, found: Followed, model: MRF, given: PlanOptions, tolerance: float, session: Session
) -> Followed:
    """Return the population itself if nothing is wrong with it, otherwise the better one of it and a fresh run."""
    weights, before = found.weights, last.weights.stderr
    error = weights.stderr
    note = ""
    if error > found.tolerance and error > 3.0 * before:
        note = f"the error of the carried ln Z has jumped from {before:.2g} to {error:.2g}"
    elif error <= found.tolerance:
        witness = _witness(found.carried, model, given, session, last.updates)
        if _sure(witness)[0] > _sure(weights)[1]:
            note = (
                f"the carried chains have missed states: a short run finds ln Z = {witness.log_z:.4g}, the carried "
                f"chains {weights.log_z:.4g} ± {error:.2g}"
            )
        elif found.spent < _CHECK * found.carried.origin.record.steps:
            return found
    return _better(found, _fresh(last, model, given, tolerance, session), note)


def _better(found: Followed, fresh: Followed, note: str) -> Followed:
    """Return the fresh population, or the carried one if the fresh run finds significantly less or is less precise."""
    a, b = found.weights, fresh.weights
    worked = found.worked + fresh.worked
    both = f"ln Z = {b.log_z:.5g} ± {b.stderr:.2g}, the carried chains {a.log_z:.5g} ± {a.stderr:.2g}"
    if _sure(a)[0] > _sure(b)[1]:
        kept = replace(found, spent=0.0, tolerance=max(found.tolerance, 2.0 * a.stderr), worked=worked)
        return replace(kept, note=f"a fresh run finds {both}: it has missed something, and is not used")
    if note:
        return replace(fresh, note=f"{note}: fresh run", loud=True, worked=worked)
    if _sure(b)[0] > _sure(a)[1]:
        note = f"the carried chains have missed states: a fresh run finds {both}"
        return replace(fresh, note=note, loud=True, worked=worked)
    if a.stderr < b.stderr:
        return replace(found, spent=0.0, tolerance=max(found.tolerance, 2.0 * a.stderr), worked=worked)
    return replace(fresh, worked=worked)


def _fresh(last: Followed | None, model: MRF, given: PlanOptions, tolerance: float, session: Session) -> Followed:
    """Return the population of a fresh run on the plain path, or on one chosen with care if the plain one is poor."""
    number = 0 if last is None else last.updates
    options = given.copy()
    options["seed"] = stream(given["seed"] or 0, FRESH_STREAM + number)
    carried = carried_to_first(model, options, session)
    careful = -_SELDOM if last is None else last.careful
    poor = carried.weights.stderr > tolerance
    if poor and leaves_path_open(options) and number - careful >= _SELDOM:
        another, careful = _on_a_chosen_path(model, options, session), number
        if another.weights.stderr < carried.weights.stderr or _sure(another.weights)[0] > _sure(carried.weights)[1]:
            carried = another
    allowed = max(tolerance, 2.0 * carried.weights.stderr)  # A hard model would need a fresh run at every update.
    return Followed(carried, number + 1, allowed, source=FRESH, worked=carried.steps, careful=careful)


def _on_a_chosen_path(model: MRF, options: PlanOptions, session: Session) -> Carried:
    """Return the population of a run on the path that an estimate takes."""
    run = final_states(model, 1, session, options)
    origin = Origin(run.plan.path.log_z0, run.estimate.unseen, run.estimate.record)
    own, states = run.log_weights[-1] + run.plan.path.exact_log_ratio, run.visible[-1]
    pilots = np.resize(states, (_PILOTS, states.shape[1]))
    return Carried(origin, model, 1, run.plan.steps, states, own, run.estimate.log_weights, pilots)


def _witness(carried: Carried, model: MRF, given: PlanOptions, session: Session, number: int) -> Weights:
    """Return the weights of a short run from the model's biases."""
    options = given.copy()
    options |= {"base": "biases", "steps": _WITNESS_STEPS, "chains": _WITNESSES, "resample": False}
    options["seed"] = stream(given["seed"] or 0, WITNESS + number)
    options["method"] = carried.origin.record.method  # type: ignore[typeddict-item]
    plan = make_plan(model, keep_whole=True, **options)
    return Weights(session.for_pilot(plan).run(plan).log_weights, plan.path.log_z0)


def _sure(weights: Weights) -> tuple[float, float]:
    """Return an interval of ln Z at a level that chance hardly ever exceeds."""
    low, high = weights.interval_at(_LEVEL)
    return -high, -low


def _steps(last: Followed, change: float) -> int | None:
    """Return the number of steps to the next model, or None if a pilot must choose it.

    The variance of a gap is proportional to the square of the change of the model and inversely proportional to the
    number of steps.
    """
    gap = last.gap
    if last.carried.model.has_terms:  # Their changes are not counted.
        return None
    if change == 0.0:
        return _FEWEST
    if gap is None or gap.change == 0.0:
        return None
    wanted = len(last.carried.results) * last.tolerance**2 / _GAPS
    return int(np.ceil(min(1e9, gap.steps * gap.variance / wanted * change / gap.change)))


def _change(a: MRF, b: MRF) -> float:
    """Return the sum of the squared differences of all parameters of two models on one graph."""
    total = 0.0
    for name in ("weights", "visible_bias", "hidden_bias", "lateral"):
        x, y = getattr(a, name), getattr(b, name)
        if x is not None:
            difference = x * (1.0 / a.temperature) - y * (1.0 / b.temperature)
            total += float((stored(difference) ** 2).sum())
    return total
