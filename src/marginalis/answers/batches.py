"""The estimates of a batch of models, which a thread or a worker of a pool makes in one task.

If the options decide the plan (the steps are given, and nothing is fitted to a model), models of one shape run together
and their statistics are computed in one pass. Otherwise the models are estimated one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..checks import Array
from ..engines.batch import by_shape
from ..engines.drive import RunResult
from ..engines.placement import roundings_of
from ..engines.plan import Plan, model_digest
from ..engines.plans import log_z0_of, make_plans
from ..models.stacked import Stack, unpacked
from ..options import RunOptions, is_adaptive
from ..parallel.threads import Tick
from ..paths.base import is_quenches
from ..results.estimate import NOT_FINITE, ONE_STEP, Estimate, doubts_of, is_one_sided
from ..running.session import Session, quiet
from ..statistics.rows import summarise
from .estimate import estimate

Failure = ValueError | TypeError


class Numbers(NamedTuple):
    """Results of models, one entry or one row each; they are NaN or 0 for a model that has failed."""

    log_z: Array
    stderr: Array
    interval: Array  # Rows of (low, high), of F.
    ess: Array
    tail_index: Array
    steps: Any
    chains: Any
    seconds: Array
    warnings: list[tuple[str, ...]]
    errors: list[str]  # Why there is no estimate, or an empty text.
    further: Array  # Further numbers [model, number], such as those for a mean over disorder.

    @classmethod
    def unknown(cls, count: int, width: int = 0) -> Numbers:
        """Return the results of models that have none yet, with `width` further numbers each."""
        none: list[Any] = [np.full((count, 2) if i == 2 else count, np.nan) for i in range(5)]
        none += [np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count)]
        return cls._make([*none, [()] * count, [""] * count, np.full((count, width), np.nan)])

    def at(self, places: Sequence[int]) -> Numbers:
        """Return the results at these places."""
        own = list(places)
        lists = ([x[i] for i in own] for x in (self.warnings, self.errors))
        return Numbers._make([*(x[own] for x in self[:8]), *lists, self.further[own]])

    def put(self, places: Any, other: Numbers) -> None:
        """Store the results of some models at these places, of which no two are equal."""
        for ours, theirs in zip(self[:8], other[:8], strict=True):
            ours[places] = theirs
        self.further[places] = other.further
        for place, warnings, error in zip(places, other.warnings, other.errors, strict=True):
            self.warnings[place], self.errors[place] = warnings, error


class Batch(NamedTuple):
    """Some models, or the errors in their place, and their seeds."""

    models: Stack | list[Any]
    seeds: Sequence[int]


class Outcome(NamedTuple):
    """What a batch has given: the numbers and, where they are kept, log-weights or whole estimates."""

    numbers: Numbers
    kept: list[Any]  # For each model its log-weights, its `Estimate`, or None.
    digests: list[str]  # Digests of the models, or empty texts.


@dataclass(frozen=True)
class BatchJob:
    """The options of the estimates; a task carries a `Batch`."""

    options: Mapping[str, Any]  # Those that decide the log-weights.
    how: Mapping[str, Any]  # Tolerance and budget.
    keeps: bool  # Whether log-weights are returned.
    digests: bool  # Whether digests of the models are returned.
    width = 0  # Number of further numbers of a model.

    def run(self, part: range, extra: Batch, threads: int) -> Outcome:
        """Estimate the models of a batch."""
        return self.estimated(extra, threads, quiet)

    def estimated(self, batch: Batch, threads: int, tick: Tick) -> Outcome:
        """Estimate the models of a batch on so many threads."""
        models = unpacked(batch.models)
        numbers, kept = Numbers.unknown(len(models)), [None] * len(models)
        digests = [""] * len(models)
        good = []
        for place, model in enumerate(models):
            if isinstance(model, Exception):
                numbers.errors[place] = str(model)
            else:
                good.append(place)
                digests[place] = model_digest(model) if self.digests else ""
        begin = time.perf_counter()
        if are_batched(self.options, self.how):
            self._together(
                [models[i] for i in good], [batch.seeds[i] for i in good], good, numbers, kept, threads, tick
            )
            numbers.seconds[good] = (time.perf_counter() - begin) / max(1, len(good))
            return Outcome(numbers, kept, digests)
        for place in good:
            self._alone(models[place], batch.seeds[place], place, numbers, kept, threads, tick)
        return Outcome(numbers, kept, digests)

    def _alone(
        self, model: Any, seed: int, place: int, numbers: Numbers, kept: list[Any], threads: int, tick: Tick
    ) -> None:
        """Estimate one model by a call of its own."""
        own = {**self.options, **self.how, "seed": seed}
        try:
            answer = estimate(model, **own, threads=threads, progress=tick)
        except InterruptedError:
            raise
        except (ValueError, TypeError) as error:
            numbers.errors[place] = str(error)
            return
        numbers.put([place], numbers_of(answer))
        if self.keeps:
            kept[place] = answer

    def _together(
        self,
        models: Sequence[Any],
        seeds: Sequence[int],
        places: Sequence[int],
        numbers: Numbers,
        kept: list[Any],
        threads: int,
        tick: Tick,
    ) -> None:
        """Estimate models, those of one shape in one run."""
        plans: list[Any] = make_plans(models, seeds, self.options)
        good = [number for number, plan in enumerate(plans) if not isinstance(plan, Exception)]
        for number, plan in enumerate(plans):
            if isinstance(plan, Exception):
                numbers.errors[places[number]] = str(plan)
        done, total = 0, max(1, len(plans))
        for group in by_shape([plans[number] for number in good]):
            members = [good[i] for i in group]
            low, high = done / total, (done + len(members)) / total
            session = Session(threads, tick=tick).part(low, high)
            for number, result in zip(members, _run([plans[i] for i in members], session), strict=True):
                if isinstance(result, Exception):
                    numbers.errors[places[number]] = str(result)
                else:
                    kept[places[number]] = result.log_weights
            ready = [number for number in members if kept[places[number]] is not None]
            if ready:
                own = [places[number] for number in ready]
                found = numbers_of_plans([plans[i] for i in ready], np.stack([kept[place] for place in own]))
                numbers.put(own, found)
            done += len(members)
        for place in places:
            if not self.keeps or numbers.errors[place]:
                kept[place] = None


def are_batched(options: RunOptions | Mapping[str, Any], how: Mapping[str, Any]) -> bool:
    """Whether the options decide the plan of every model, so that nothing is fitted to a model beforehand."""
    chosen = any(value is not None for value in how.values())
    return not (chosen or is_quenches(options["base"]) or is_adaptive(options))  # type: ignore[arg-type]


def _run(plans: Sequence[Plan], session: Session) -> list[RunResult | Failure]:
    """Run plans of one shape; if that fails, run each alone to find out which of them fails."""
    with np.errstate(over="ignore", invalid="ignore"):  # An overflow is found in the log-weights.
        try:
            return list(session.run_many(plans))
        except InterruptedError:
            raise
        except (ValueError, TypeError) as error:
            if len(plans) == 1:
                return [error]
    return [result for plan in plans for result in _run([plan], session)]


def numbers_of_plans(plans: Sequence[Plan], log_weights: Array) -> Numbers:
    """Return the results of plans of one shape from their log-weights [model, chain], in one pass."""
    plan, found = plans[0], Numbers.unknown(len(plans))
    found.steps[:], found.chains[:] = plan.steps, plan.chains.count
    good = np.isfinite(log_weights).all(axis=1)
    for place in np.flatnonzero(~good).tolist():
        found.errors[place] = NOT_FINITE
    own = np.flatnonzero(good)
    if not len(own):
        return found
    chosen = [plans[i] for i in own.tolist()]
    doubts = _doubts_of(chosen)
    of = "populations" if plan.chains.populations else "chains"
    finite = log_weights if len(own) == len(plans) else log_weights[own]
    rows = summarise(finite, np.array([unseen for unseen, _ in doubts]), of)
    log_z0 = np.array(list(log_z0_of(chosen)))
    log_z, reach = log_z0 + rows.log_mean, np.zeros(len(own))
    more = ONE_STEP if plan.steps == 1 else ()
    given = roundings_of(chosen, finite, log_z0)
    for i, (place, rounding) in enumerate(zip(own.tolist(), given, strict=True)):
        found.warnings[place] = rows.warnings[i] + more + doubts[i][1]
        if isinstance(rounding, ValueError):
            found.errors[place] = str(rounding)
        else:
            reach[i] = rounding
    low = np.minimum(-log_z0 - rows.interval[:, 1], -log_z - reach)
    high = np.maximum(-log_z0 - rows.interval[:, 0], -log_z + reach)
    fine = [i for i, place in enumerate(own.tolist()) if not found.errors[place]]
    at = own[fine]
    for ours, theirs in (
        (found.log_z, log_z),
        (found.stderr, rows.stderr),
        (found.interval, np.stack([low, high], axis=1)),
        (found.ess, rows.ess),
        (found.tail_index, rows.tail_index),
    ):
        ours[at] = theirs[fine]
    return found


def _doubts_of(plans: Sequence[Plan]) -> list[tuple[float, tuple[str, ...]]]:
    """Return `doubts_of` every plan; plans that are made together share their base, which is looked at once."""
    uniform = {id(start): start for start in (plan.path.start for plan in plans)}
    known = {key: start.is_uniform for key, start in uniform.items()}
    return [(0.0, ()) if known[id(plan.path.start)] and not is_one_sided(plan) else doubts_of(plan) for plan in plans]


def numbers_of(answer: Estimate) -> Numbers:
    """Return the results of an estimate, as those of one model."""
    found = Numbers.unknown(1)
    values = answer.log_z, answer.stderr, answer.interval, answer.ess, answer.tail_index
    for array, value in zip(found, (*values, answer.steps, answer.chains, answer.seconds), strict=False):
        array[0] = value
    found.warnings[0] = answer.warnings
    return found
