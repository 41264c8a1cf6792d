"""Coverage of answers of whole calls that are not computed from the weights of plain chains.

Tested against exact values are the default call and `tolerance=`, which choose path and steps, Bennett's estimate from
exact samples, and the errors of the heat capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..answers.bounds import bound
from ..answers.estimating import estimate
from ..answers.thermodynamics import thermodynamics
from ..exact import exact_log_z
from ..models.model import MRF
from ..options import Engine
from ..parallel.each import call_each
from ..parallel.threads import Tick
from ..running.session import open_session
from .experiment import Summary
from .families import Case, received, sendable
from .sampling import derive

TOLERANCE = 0.2  # Tolerance of the calls with `tolerance=`.
BENNETT = 30, 50  # Steps, and chains in each direction.
BENNETT_GROUPS = 20  # Groups of chains, each one estimate; they come from one run.
HEAT = 100, 200  # Steps and chains of the runs for the heat capacity.

Verdict = tuple[bool, bool]  # Whether the interval covers the exact value, and whether the answer has warnings.


def judge_calls(
    cases: Sequence[Case],
    runs: int,
    seed: int,
    threads: int | None,
    progress: bool | Tick = False,
    pool: Any = None,
    engine: Engine = "auto",
) -> Summary:
    """Return for every answer and family the coverage of the intervals and the rate of warnings.

    The calls are made at two settings of every family, the middle and the last, with `runs` seeds each.
    """
    jobs = [
        (name, case, setting)
        for case in cases
        for setting in dict.fromkeys((case.settings[len(case.settings) // 2], case.settings[-1]))
        for name in ANSWERS
    ]
    found: dict[tuple[str, Case, float], list[Verdict]] = {}

    def receive(number: int, verdicts: list[Verdict]) -> None:
        found[jobs[number]] = verdicts

    work = {"threads": threads, "pool": pool, "progress": progress, "checkpoint": None, "engine": engine}
    with open_session(work, "whole calls") as session:
        items = [(name, sendable(case, session.pool), setting) for name, case, setting in jobs]
        call_each(partial(_verdicts, runs, seed, engine), items, receive, session.pool, session.threads, session.tick)
    rows = []
    for name in ANSWERS:
        everything = [verdict for job in jobs if job[0] == name for verdict in found[job]]
        for case in cases:
            rows.append(_row(name, case.name, [v for job in jobs if job[:2] == (name, case) for v in found[job]]))
        rows.append(_row(name, "all", everything))
    return [row for row in rows if row["runs"]]


def _verdicts(runs: int, seed: int, engine: Engine, job: tuple[str, Any, float], heed: Tick) -> list[Verdict]:
    """Compute one kind of answer for one model with all seeds."""
    name, case, setting = job[0], received(job[1]), job[2]
    model = case.make(setting, derive(seed, "calls", case.name) % 2**32)
    own = derive(seed, "calls", name, case.name, setting) % 2**32
    return list(ANSWERS[name](model, runs, {"seed": own, "threads": 1, "engine": engine}))


def _row(answer: str, model: str, verdicts: Sequence[Verdict]) -> dict[str, object]:
    quiet = [held for held, warned in verdicts if not warned]
    return {
        "answer": answer,
        "model": model,
        "runs": len(verdicts),
        "held": sum(held for held, _ in verdicts),
        "warned": sum(warned for _, warned in verdicts),
        "quiet": len(quiet),
        "quiet_and_wrong": len(quiet) - sum(quiet),
        "coverage_unwarned": sum(quiet) / len(quiet) if quiet else None,
    }


def _estimates(model: MRF, runs: int, options: Any, tolerance: float | None) -> Iterator[Verdict]:
    free_energy = -exact_log_z(model, threads=1)
    for run in range(runs):
        result = estimate(model, tolerance=tolerance, **{**options, "seed": options["seed"] + run})
        low, high = result.interval
        yield low <= free_energy <= high, bool(result.warnings)


def _bennett(model: MRF, runs: int, options: Any) -> Iterator[Verdict]:
    """Bennett's estimate from groups of chains of one long run; empty if the model has no exact samples."""
    free_energy = -exact_log_z(model, threads=1)
    steps, chains = BENNETT
    whole = bound(model, steps=steps, chains=chains * runs * BENNETT_GROUPS, **options)
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
        yield low <= free_energy <= high, bool(part.warnings)


def _heat_capacity(model: MRF, runs: int, options: Any) -> Iterator[Verdict]:
    """The heat capacity ± 1.96 errors, compared with the second derivative of the exact ln Z."""
    beta = 1.0 / model.temperature
    h = 2e-3 * beta
    at = [exact_log_z(replace(model, temperature=1.0 / (beta + k * h)), threads=1) for k in (-2, -1, 0, 1, 2)]
    exact = beta**2 * float(np.dot(at, (-1.0, 16.0, -30.0, 16.0, -1.0))) / (12.0 * h * h)
    steps, chains = HEAT
    for run in range(4 * runs):
        t = thermodynamics(model, [beta], steps=steps, chains=chains, **{**options, "seed": options["seed"] + run})
        yield abs(t.heat_capacity[0] - exact) <= 1.96 * t.heat_capacity_error[0], bool(t.warnings)


ANSWERS: dict[str, Callable[[MRF, int, Any], Iterator[Verdict]]] = {
    "default call": lambda model, runs, options: _estimates(model, runs, options, None),
    f"tolerance={TOLERANCE:g}": lambda model, runs, options: _estimates(model, runs, options, TOLERANCE),
    "bennett": _bennett,
    "heat capacity": _heat_capacity,
}
