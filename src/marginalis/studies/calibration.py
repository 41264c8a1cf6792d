"""Coverage of the 95 % intervals, and warnings where the coverage is lower (docs/calibration.md).

Chains are independent, so one run of many chains gives many estimates of N chains. A cell is a kind of model at one
setting with one method, K and N; its estimates come from several random models with exact ln Z. With resampling, a
population takes the place of a chain. `calls` tests the answers of whole calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..checks import Array, needs_gpu, one_of, whole
from ..engines.batch import by_shape
from ..engines.plan import make_plan
from ..files import atomic
from ..options import Engine
from ..parallel.mapping import map_items
from ..parallel.threads import Tick
from ..running.session import Session, open_session
from ..statistics import confidence
from . import _csv
from .calls import judge_calls
from .experiment import Summary
from .families import Case, available, received, sendable
from .finished_parts import FinishedParts
from .intervals import FAST, SLOW, Sample, chosen
from .sampling import check_engine, derive

FEWEST = 150  # Cells with fewer estimates than this are left out.
SHORTEST = 15_000  # Smallest number of chains of one run, however long it takes.
SLOW_REPEATS, SLOW_CHAINS = 60, 1000  # Repeats per model and most chains for the intervals that are slow to compute.
POPULATION, POPULATIONS = 20, (20, 50)  # Chains of a population, and the numbers of populations of an estimate.
_ON_GPU = 6  # Runs that a GPU makes together: the models of a setting.
GOOD = (0.93, 0.97)  # Range of a good coverage of 95 % intervals.
REGIMES = (0.3, 0.6, 1.0, 1.5, 2.0, 3.0, np.inf)  # Upper limits of the regimes: standard deviation of the log-weights.


class Scale(NamedTuple):
    """How large a study is."""

    steps: tuple[int, ...]
    chains: tuple[int, ...]
    instances: int
    repeats: int  # Largest number of estimates per cell.
    work: int  # Work of one run, as chains × steps.
    longest: int  # Largest number of chains of one run.
    calls: int  # Number of whole calls per model and answer.
    slow: bool  # Whether the slow intervals, which resample, are included.


QUICK = Scale((2, 5, 10, 30), (20, 50, 100, 300), 3, 900, 6_000_000, 300_000, 3, True)
USUAL = Scale((2, 10, 100), (20, 50, 200, 1000), 2, 400, 3_000_000, 150_000, 6, False)
FULL = Scale((2, 5, 10, 30, 100, 1000), (20, 50, 100, 300, 1000, 3000), 3, 900, 6_000_000, 300_000, 40, True)
# The families and settings of the quick study.
FEW = {"rbm-gaussian": (0.5, 2.0, 20.0), "glass": (1.0,), "bars": (100,), "prototypes": (0.5,)}


class StudyRun(NamedTuple):
    """One run: a model and a number of steps."""

    case: Case
    setting: float
    steps: int
    instance: int


class Tally(NamedTuple):
    """Sums over the estimates of one method, K and N; tallies of several models add up."""

    method: str
    chains: int
    repeats: int
    warned: int
    silent: int  # Estimates without a warning whose intervals cover the exact value.
    covered: dict[str, tuple[int, int]]  # By interval: how many cover it, of how many.
    width: dict[str, tuple[float, int]]  # By interval: sum of the widths, and their number.
    ess: list[float]
    deviation: float  # Sum of squared deviations of the estimates, as for an unbiased variance.
    spread: float  # Standard deviation of the log-weights times the number of estimates.

    def plus(self, other: Tally) -> Tally:
        """Return the sums over both."""
        return Tally(
            self.method,
            self.chains,
            self.repeats + other.repeats,
            self.warned + other.warned,
            self.silent + other.silent,
            {k: (a + other.covered[k][0], n + other.covered[k][1]) for k, (a, n) in self.covered.items()},
            {k: (a + other.width[k][0], n + other.width[k][1]) for k, (a, n) in self.width.items()},
            [*self.ess, *other.ess],
            self.deviation + other.deviation,
            self.spread + other.spread,
        )


class Calibration(NamedTuple):
    """Results: all cells, coverage by regime and N, warnings by N and by family, and whole calls."""

    cells: Summary
    intervals: Summary
    alarms: Summary
    families: Summary
    calls: Summary


# File names of the fields of a `Calibration`.
FILES = ("calibration.csv", "intervals.csv", "alarms.csv", "families.csv", "calls.csv")
PARTS = "parts.jsonl"  # File of the finished parts.


def calibrate(
    *,
    repeats: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    pool: Any = None,
    engine: Engine = "auto",
    quick: bool = False,
    full: bool = False,
    families: Sequence[str] | None = None,
    calls: int | None = None,
    only_calls: bool = False,
    without_exact: bool = False,
    keep: str | Path | None = None,
    resume: bool = False,
    progress: bool | Tick = False,
) -> Calibration:
    """Run the study; `repeats` is the number of estimates per cell, fewer if the run would be too long.

    `quick` takes a few kinds of models at a few settings. `full` takes more K, N and models, and also tests other
    intervals. `families` names the kinds of models, all by default. `calls` is the number of whole calls per model and
    answer, and `only_calls` leaves out the study of plain runs. `without_exact` removes the exact sums that confirm the
    path of a whole call. `keep` names a folder for the finished parts, with which `resume` continues a stopped study.
    `pool` and `engine` are as in `estimate`; every run is one task.
    """
    check_engine(engine)
    if quick and full:
        raise ValueError("quick and full are two studies: choose one")
    scale = QUICK if quick else FULL if full else USUAL
    each = -(-check_repeats(scale.repeats if repeats is None else repeats) // scale.instances)
    seed = whole(seed, "seed", 0, 2**64 - 1)
    runs = scale.calls if calls is None else whole(calls, "calls", 0, 10**6)
    if resume and keep is None:
        raise ValueError("resume needs keep, the folder with the finished parts")
    cases = _cases(families, quick)
    pieces = [
        StudyRun(case, setting, steps, instance)
        for case in cases
        for setting in case.settings
        for steps in scale.steps
        for instance in range(scale.instances)
    ]
    if only_calls:
        pieces = []
    parts = FinishedParts(None if keep is None else Path(keep) / PARTS, resume)
    named = f"{seed}/{engine}/{each}/{scale.chains}/{scale.work}/{scale.longest}/{scale.slow}"
    keys = [f"{x.case.name}/{x.setting}/{x.steps}/{x.instance}/{named}" for x in pieces]
    todo = [number for number, key in enumerate(keys) if key not in parts]

    def receive(numbers: range, found: Sequence[list[Tally]]) -> None:
        for number, tallies in zip(numbers, found, strict=True):
            parts.add(keys[todo[number]], tallies)

    work = {"threads": threads, "pool": pool, "progress": progress, "checkpoint": None, "engine": engine}
    if todo:
        with open_session(work, "calibrate") as session:
            items = [pieces[number]._replace(case=sendable(pieces[number].case, session.pool)) for number in todo]
            measure = partial(_measure, scale, each, seed, engine)
            together = _ON_GPU if needs_gpu(engine) else 1
            map_items(measure, items, receive, session.pool, session.threads, session.tick, together=together)
    judged: Summary = []
    if runs:
        judged = judge_calls(
            cases, runs, seed, threads, progress, pool, engine, without_exact=without_exact, parts=parts
        )
    groups: dict[tuple[Any, ...], Tally] = {}
    for piece, key in zip(pieces, keys, strict=True):
        for tally in (Tally(*x) for x in parts[key]):
            cell = (piece.case.name, piece.setting, piece.steps, tally.method, tally.chains)
            groups[cell] = groups[cell].plus(tally) if cell in groups else tally
    merged = [item for item in groups.items() if item[1].repeats >= FEWEST]
    cells = [_cell(*item) for item in merged]
    return Calibration(cells, _intervals(merged), _alarms(cells, "chains"), _alarms(cells, "model", "chains"), judged)


def _cases(names: Sequence[str] | None, quick: bool) -> tuple[Case, ...]:
    """Return the families of a study; `names` chooses among them."""
    cases = available()
    if names is not None:
        known = [case.name for case in cases]
        for name in names:
            one_of(name, known, "families")
        cases = tuple(case for case in cases if case.name in names)
    elif quick:
        cases = tuple(case._replace(settings=FEW[case.name]) for case in cases if case.name in FEW)
    return cases


def check_repeats(repeats: int) -> int:
    """Return the number of estimates per cell, or raise a ValueError if it is too small."""
    return whole(repeats, "repeats", FEWEST, 10**6)


def _measure(
    scale: Scale, repeats: int, seed: int, engine: Engine, pieces: Sequence[StudyRun], tick: Tick
) -> list[list[Tally]]:
    """Test every interval on some runs, those of one shape together: coverage, width and warnings, per method and N."""
    shifts, plans, names, makes = [], [], [], []
    for number, piece in enumerate(pieces):
        case, setting, steps, instance = piece._replace(case=received(piece.case))
        model = case.make(setting, derive(seed, "calibration", case.name, instance) % 2**32)
        chains = max(SHORTEST, min(repeats * scale.chains[-1], scale.longest, scale.work // steps))
        own = derive(seed, "calibration", "chains", case.name, setting, steps, instance)
        make = partial(make_plan, model, steps=steps, seed=own, engine=engine)
        joint = make(method="ais", chains=chains)
        makes.append(partial(make, method="mais", chains=chains))
        shifts.append(joint.path.base.log_z(model) - case.log_z(model))
        some = [("ais", joint)]
        if 10 <= steps <= 100:  # Resampling is tested only for a moderate number of steps.
            populations = repeats * POPULATIONS[-1] // 2
            resampled = make(chains=populations * POPULATION, resample=0.5, populations=populations)
            some.append(("resampled", resampled))
        plans += [plan for _, plan in some]
        names += [(number, name) for name, _ in some]
    found: list[dict[str, Array]] = [{} for _ in pieces]
    session = Session(tick=tick)
    for members in by_shape(plans):
        results = session.run_many([plans[i] for i in members])
        for i, result in zip(members, results, strict=True):
            number, name = names[i]
            found[number][name] = result.log_weights
            if name != "ais":
                continue
            marginal = result.marginal
            if marginal is None:  # This engine does not compute both methods in one run.
                marginal = session.run(makes[number]()).log_weights
            found[number]["mais"] = marginal
    sizes = {"ais": scale.chains, "mais": scale.chains, "resampled": POPULATIONS}
    return [
        [
            _judge(name, (own[name] + shift)[: min(repeats, len(own[name]) // n) * n].reshape(-1, n), scale.slow)
            for name in sizes
            if name in own
            for n in sizes[name]
            if len(own[name]) >= n
        ]
        for own, shift in zip(found, shifts, strict=True)
    ]


def _judge(method: str, rows: Array, slow: bool) -> Tally:
    """Test the intervals of estimates, one per row of log-weights shifted to ln E[W] = 0."""
    sample = Sample(rows)
    ends = {"chosen": chosen(sample)} | {name: f(sample) for name, f in FAST.items()}
    if slow and sample.n <= SLOW_CHAINS:
        few = Sample(rows[:SLOW_REPEATS])
        ends |= {name: f(few) for name, f in SLOW.items()}
    spread = sample.log_mean - sample.log_mean.mean()
    warned = np.array([bool(confidence.warnings_of(row)) for row in rows])
    low, high = ends["chosen"]
    return Tally(
        method,
        sample.n,
        len(rows),
        int(warned.sum()),
        int(((low <= 0.0) & (high >= 0.0) & ~warned).sum()),
        {name: (int(((low <= 0.0) & (high >= 0.0)).sum()), len(low)) for name, (low, high) in ends.items()},
        {name: (float((high - low).sum()), len(low)) for name, (low, high) in ends.items()},
        (sample.w.sum(axis=1) ** 2 / (sample.w**2).sum(axis=1)).round(3).tolist(),
        float(spread @ spread) * len(rows) / max(len(rows) - 1, 1),
        float(rows.std()) * len(rows),
    )


def _mean(pair: tuple[float, int]) -> float:
    return pair[0] / pair[1]


def _ideal(cell: Tally) -> float:
    """Width of a normal interval with the true standard deviation of the estimates."""
    return max(3.92 * (cell.deviation / cell.repeats) ** 0.5, 1e-12)


def _cell(key: tuple[Any, ...], cell: Tally) -> dict[str, Any]:
    quiet = cell.repeats - cell.warned
    return {
        **dict(zip(("model", "setting", "steps", "method", "chains"), key, strict=True)),
        "spread": cell.spread / cell.repeats,
        "ess": float(np.median(cell.ess)),
        "repeats": cell.repeats,
        "coverage": _mean(cell.covered["chosen"]),
        "coverage_delta": _mean(cell.covered["delta"]),
        "width": _mean(cell.width["chosen"]) / _ideal(cell),
        "warned": cell.warned / cell.repeats,
        "coverage_unwarned": cell.silent / quiet if quiet else None,
        "silent_miss": (quiet - cell.silent) / cell.repeats,
    }


def _intervals(cells: Sequence[tuple[tuple[Any, ...], Tally]]) -> Summary:
    """Mean and lowest coverage over cells, and the median of their mean widths, by regime and N."""
    groups: dict[tuple[float, int, str], list[tuple[float, float]]] = {}
    for key, cell in cells:
        regime = next(x for x in REGIMES if cell.spread / cell.repeats < x)
        for name, covered in cell.covered.items():
            found = _mean(covered), _mean(cell.width[name]) / _ideal(cell)
            groups.setdefault((regime, key[-1], name), []).append(found)
    order = ["chosen", *FAST, *SLOW]
    rows = []
    for (regime, chains, name), pairs in sorted(groups.items(), key=lambda g: (*g[0][:2], order.index(g[0][2]))):
        coverage, width = np.array(pairs).T
        rows.append(
            {
                "spread_below": None if np.isinf(regime) else regime,
                "chains": chains,
                "interval": name,
                "cells": len(pairs),
                "coverage": float(coverage.mean()),
                "worst": float(coverage.min()),
                "width": float(np.median(width)),
            }
        )
    return rows


def side_by_side(intervals: Summary) -> Summary:
    """Mean coverage over the cells of all N, with a row per regime and a column per interval."""
    rows = []
    for regime in dict.fromkeys(row["spread_below"] for row in intervals):
        here = [row for row in intervals if row["spread_below"] == regime]
        new: dict[str, Any] = {"spread": f"over {REGIMES[-2]:g}" if regime is None else f"below {regime:g}"}
        for name in dict.fromkeys(row["interval"] for row in here):
            cells, coverage = np.array([(r["cells"], r["coverage"]) for r in here if r["interval"] == name]).T
            new[name] = round(float((cells * coverage).sum() / cells.sum()), 3)
        rows.append(new)
    return rows


def _alarms(cells: Summary, *keys: str) -> Summary:
    """Rates of true, false and missed warnings by these keys; a cell is quiet if at most half of its estimates warn."""
    groups: dict[tuple[Any, ...], Summary] = {}
    for cell in cells:
        groups.setdefault(tuple(cell[key] for key in keys), []).append(cell)
    rows = []
    for which, here in sorted(groups.items()):
        quiet = [cell for cell in here if cell["warned"] <= 0.5]
        found = [cell["coverage_unwarned"] for cell in quiet]
        counts = [round(cell["repeats"] * (1.0 - cell["warned"])) for cell in quiet]
        good = [inside(cell["coverage"], cell["repeats"], 2.0) for cell in here]
        false = [cell["warned"] for cell, fine in zip(here, good, strict=True) if fine]
        poor = [cell for cell, fine in zip(here, good, strict=True) if not fine and cell["coverage"] < GOOD[0]]
        missed = [1.0 - cell["warned"] for cell in poor]
        unwarned = sum(cell["repeats"] * (1.0 - cell["warned"]) for cell in here)
        silent = sum(cell["repeats"] * cell["silent_miss"] for cell in here)
        rows.append(
            {
                **dict(zip(keys, which, strict=True)),
                "cells": len(here),
                "warned": float(np.mean([cell["warned"] for cell in here])),
                "coverage_unwarned": 1.0 - silent / unwarned if unwarned else None,
                "quiet_cells": len(quiet),
                "outside": sum(not inside(rate, count) for rate, count in zip(found, counts, strict=True)),
                "worst": min(found, default=None),
                "best": max(found, default=None),
                # Rate of warnings in cells with good coverage.
                "false_alarms": float(np.mean(false)) if false else None,
                # Rate of estimates without a warning in cells with a coverage below 93 %.
                "missed_alarms": float(np.mean(missed)) if missed else None,
                "worst_silent_miss": max(cell["silent_miss"] for cell in here),
            }
        )
    return rows


def inside(rate: float, count: int, sigmas: float = 3.0) -> bool:
    """Whether a coverage measured on `count` estimates is within 93–97 %, up to its binomial error."""
    noise = sigmas * (0.95 * 0.05 / count) ** 0.5
    return GOOD[0] - noise <= rate <= GOOD[1] + noise


def make_folder(folder: Path) -> None:
    """Make the folder for the tables, or raise an error if nothing can be written there."""
    atomic.make_folder(folder, *FILES, PARTS)


def write(result: Calibration, folder: Path) -> None:
    """Write the tables as CSV; empty tables are left out."""
    for name, rows in zip(FILES, result, strict=True):
        if not rows:
            continue
        short = [{k: round(x, 4) if isinstance(x, float) else x for k, x in row.items()} for row in rows]
        atomic.write_whole(folder / name, methodcaller("write", _csv(short).encode()))
