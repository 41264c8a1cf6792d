"""Coverage of the answers of whole calls, which choose their path, steps and chains themselves.

Compared with exact values are ln Z of the default call and of `tolerance=`, means of all variables, heat capacities,
and Bennett's estimate from exact samples. The families are so small that an exact sum often confirms the chosen path;
`without_exact` removes that confirmation, which larger models do not have.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..answers.bounds import bound
from ..answers.estimate import estimate
from ..answers.expectations import expectations
from ..answers.thermodynamics import thermodynamics
from ..exact import ModelTooLarge
from ..models.model import MRF
from ..options import Engine
from ..parallel.mapping import map_items
from ..parallel.threads import Tick
from ..planning import tuning
from ..running.session import open_session
from .experiment import Summary
from .families import Case, received, sendable
from .finished_parts import FinishedParts
from .sampling import derive

logger = logging.getLogger("marginalis")

TOLERANCE = 0.1  # Tolerance of the calls with `tolerance=`.
BENNETT = 30, 50  # Steps, and chains in each direction.
BENNETT_GROUPS = 20  # Groups of chains, each one estimate; they come from one run.
HEAT = 100, 200  # Steps and chains of the plain runs for the heat capacity.
HEAT_RUNS = 4  # Number of these for every other call, since they are short.
PART = 10  # Calls that make one part of the study; every part has a model of its own.
FAR = 0.5  # Error of ln Z above which an answer counts as far off.
Z95 = 1.96  # Standard errors within which a mean or a heat capacity must lie.


class Verdict(NamedTuple):
    """One call compared with exact values."""

    numbers: int  # Numbers compared: one, or the means of all variables.
    held: int  # How many of them lie in their intervals.
    warned: bool
    error: float  # ln Z minus the exact value; 0 for other answers.
    seconds: float  # CPU seconds of the call.


class Calls(NamedTuple):
    """Some calls of one kind on one model."""

    answer: str
    case: Any  # The family, or its name on a pool.
    setting: float
    first: int
    runs: int


def judge_calls(
    cases: Sequence[Case],
    runs: int,
    seed: int,
    threads: int | None,
    progress: bool | Tick = False,
    pool: Any = None,
    engine: Engine = "auto",
    *,
    without_exact: bool = False,
    parts: FinishedParts | None = None,
) -> Summary:
    """Return for every answer and family the coverage of the intervals and the rate of warnings.

    The calls are made at two settings of every family, the middle and the last, with `runs` seeds each. Parts that
    `parts` already has are not repeated.
    """
    groups = [
        Calls(answer, case, setting, first, min(PART, runs - first))
        for case in cases
        for setting in dict.fromkeys((case.settings[len(case.settings) // 2], case.settings[-1]))
        for answer in ANSWERS
        for first in range(0, runs, PART)
    ]
    parts = FinishedParts() if parts is None else parts
    keys = [f"{x.answer}/{x.case.name}/{x.setting}/{x.first}+{x.runs}/{seed}/{engine}/{without_exact}" for x in groups]
    todo = [number for number, key in enumerate(keys) if key not in parts]

    def receive(numbers: range, found: Sequence[list[Verdict]]) -> None:
        for number, verdicts in zip(numbers, found, strict=True):
            parts.add(keys[todo[number]], verdicts)

    work = {"threads": threads, "pool": pool, "progress": progress, "checkpoint": None, "engine": engine}
    with open_session(work, "whole calls") as session, _choosing(without_exact):
        items = [groups[number]._replace(case=sendable(groups[number].case, session.pool)) for number in todo]
        measure = partial(_verdicts_of, seed, engine, without_exact)
        map_items(measure, items, receive, session.pool, session.threads, session.tick)
    found = [(calls, [Verdict(*x) for x in parts[key]]) for calls, key in zip(groups, keys, strict=True)]
    rows = []
    for answer in ANSWERS:
        for name in [*(case.name for case in cases), "all"]:
            here = [
                v
                for calls, verdicts in found
                if calls.answer == answer and name in (calls.case.name, "all")
                for v in verdicts
            ]
            rows.append(_row(answer, name, here))
    return [row for row in rows if row["runs"]]


@contextmanager
def _choosing(without_exact: bool) -> Iterator[None]:
    """Silence the messages of the calls and, if requested, remove the exact sum from their choice of a path."""
    before, level = tuning.TUNING, logger.level
    logger.setLevel(logging.WARNING)
    if without_exact:
        tuning.TUNING = replace(before, exact_most=0.0)
    try:
        yield
    finally:
        tuning.TUNING = before
        logger.setLevel(level)


def _verdicts_of(
    seed: int, engine: Engine, without_exact: bool, groups: Sequence[Calls], tick: Tick
) -> list[list[Verdict]]:
    """Make several groups of calls."""
    return [_verdicts(seed, engine, without_exact, calls) for calls in groups]


def _verdicts(seed: int, engine: Engine, without_exact: bool, calls: Calls) -> list[Verdict]:
    """Make the calls of one group."""
    case = received(calls.case)
    words = (calls.first,) if calls.first else ()
    model = case.make(calls.setting, derive(seed, "calls", case.name, *words) % 2**32)
    own = derive(seed, "calls", calls.answer, case.name, calls.setting, *words) % 2**32
    if without_exact:  # A process of a pool has no other work, so that the change may remain.
        tuning.TUNING = replace(tuning.TUNING, exact_most=0.0)
    return list(ANSWERS[calls.answer](case, model, calls.runs, {"seed": own, "threads": 1, "engine": engine}))


def _row(answer: str, model: str, verdicts: Sequence[Verdict]) -> dict[str, object]:
    quiet = [x for x in verdicts if not x.warned]
    numbers, held = sum(x.numbers for x in quiet), sum(x.held for x in quiet)
    return {
        "answer": answer,
        "model": model,
        "runs": len(verdicts),
        "numbers": sum(x.numbers for x in verdicts),
        "held": sum(x.held for x in verdicts),
        "warned": sum(x.warned for x in verdicts),
        "quiet": len(quiet),
        "quiet_and_wrong": numbers - held,
        "quiet_and_far_off": sum(abs(x.error) > FAR for x in quiet),
        "coverage_unwarned": held / numbers if numbers else None,
        "seconds": float(np.median([x.seconds for x in verdicts])) if verdicts else None,
    }


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.thread_time()
    return run(), time.thread_time() - begin


def _estimates(tolerance: float | None, case: Case, model: MRF, runs: int, options: Any) -> Iterator[Verdict]:
    log_z = case.log_z(model)
    for run in range(runs):
        own = {**options, "seed": options["seed"] + run}
        result, seconds = _timed(partial(estimate, model, tolerance=tolerance, **own))
        low, high = result.log_z_interval
        yield Verdict(1, int(low <= log_z <= high), bool(result.warnings), result.log_z - log_z, seconds)


def _means(case: Case, model: MRF, runs: int, options: Any) -> Iterator[Verdict]:
    """The means of all variables ± 1.96 errors; empty if the model has no exact means."""
    try:
        exact = expectations(model, exact=True, threads=1).means
    except ModelTooLarge:
        return
    for run in range(runs):
        own = {**options, "seed": options["seed"] + run}
        result, seconds = _timed(partial(expectations, model, exact=False, **own))
        # An error of 0 comes with a mean that is the same in all states.
        held = np.abs(result.means - exact) <= Z95 * result.mean_errors + 1e-9
        yield Verdict(len(held), int(held.sum()), bool(result.warnings), 0.0, seconds)


def _bennett(case: Case, model: MRF, runs: int, options: Any) -> Iterator[Verdict]:
    """Bennett's estimate from groups of chains of one long run; empty if the model has no exact samples."""
    log_z = case.log_z(model)
    steps, chains = BENNETT
    whole, seconds = _timed(partial(bound, model, steps=steps, chains=chains * runs * BENNETT_GROUPS, **options))
    if not whole.is_certified:
        return
    forward, back = (x.reshape(-1, chains) for x in (whole.forward.log_weights, whole.reverse_log_weights))
    for f, b in zip(forward, back, strict=True):
        part = replace(
            whole,
            forward=replace(whole.forward, weights=replace(whole.forward.weights, log_weights=f)),
            reverse_log_weights=b,
        )
        low, high = part.interval
        yield Verdict(1, int(low <= -log_z <= high), bool(part.warnings), 0.0, seconds / len(forward))


def _heat_capacity(plain: bool, case: Case, model: MRF, runs: int, options: Any) -> Iterator[Verdict]:
    """The heat capacity ± 1.96 errors, compared with the second derivative of the exact ln Z."""
    beta = 1.0 / model.temperature
    h = 2e-3 * beta
    at = [case.log_z(replace(model, temperature=1.0 / (beta + k * h))) for k in (-2, -1, 0, 1, 2)]
    exact = beta**2 * float(np.dot(at, (-1.0, 16.0, -30.0, 16.0, -1.0))) / (12.0 * h * h)
    given = dict(zip(("steps", "chains"), HEAT, strict=True)) if plain else {}
    for run in range(runs * HEAT_RUNS if plain else runs):
        own = {**options, **given, "seed": options["seed"] + run}
        t, seconds = _timed(partial(thermodynamics, model, [beta], **own))
        held = abs(t.heat_capacity[0] - exact) <= Z95 * t.heat_capacity_error[0]
        yield Verdict(1, int(held), bool(t.warnings), 0.0, seconds)


ANSWERS: dict[str, Callable[[Case, MRF, int, Any], Iterator[Verdict]]] = {
    "default call": partial(_estimates, None),
    f"tolerance={TOLERANCE:g}": partial(_estimates, TOLERANCE),
    "means": _means,
    "heat capacity": partial(_heat_capacity, False),
    "heat capacity, plain": partial(_heat_capacity, True),
    "bennett": _bennett,
}
