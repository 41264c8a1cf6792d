"""The paper's table and figures: run, stopped and resumed at will, and set beside the printed values."""

from __future__ import annotations

import csv
import io
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..checks import one_of, whole
from ..engines.placement import needs_gpu
from ..files.atomic import make_folder, write_whole
from ..options import Engine
from ..parallel.each import call_each
from ..parallel.threads import Tick, cores
from ..plots import save, style
from ..running.session import open_session
from .ape_temperature import EXPERIMENT as APE_TEMPERATURE
from .convergence import EXPERIMENT as CONVERGENCE
from .experiment import Columns, Experiment, Summary
from .sampling import check_engine
from .size_ratio import EXPERIMENT as SIZE_RATIO
from .store import Contents, Row, Store
from .table1 import EXPERIMENT as TABLE1

EXPERIMENTS = {e.name: e for e in (TABLE1, APE_TEMPERATURE, SIZE_RATIO, CONVERGENCE)}
STORE = "results.sqlite"
_ON_GPU = 0.02  # seconds of a piece, about
_PROCESSES, _THREADS = 8, 3  # that feed a GPU, and threads of each: processes take turns, so more are no faster


@dataclass(frozen=True)
class Result:
    """One experiment, summarised."""

    experiment: Experiment
    rows: Summary
    figure: Path
    settings: dict[str, Any]
    seconds: float  # of all runs on the store


def reproduce(
    name: str,
    *,
    experiments: int | None = None,
    chains: int | None = None,
    out: str | Path = "reproduction",
    seed: int = 0,
    resume: bool = False,
    threads: int | None = None,
    pool: Any = None,
    engine: Engine = "auto",
    progress: bool | Tick = False,
    export: bool = False,
) -> list[Result]:
    """Run one of the paper's experiments, or ``"all"`` of them, and write table, figure and report to `out`.

    `experiments` is the number of RBM instances and `chains` is N, by default the paper's. Every result goes to an
    SQLite file in `out` as it is found; with `resume` a stopped run continues there and ends with the same
    numbers as one that was never stopped. `engine` and `pool` are those of `estimate`, a piece of work being a task; a
    GPU is fed by a few processes.
    """
    check_engine(engine)
    one_of(name, (*EXPERIMENTS, "all"), "experiment")
    chosen = list(EXPERIMENTS.values()) if name == "all" else [EXPERIMENTS[name]]
    seed = whole(seed, "seed", 0, 2**64 - 1)
    here = cores(threads)
    plans = []
    for e in chosen:
        count = whole(e.experiments if experiments is None else experiments, "experiments", 1, 10**6)
        n = whole(e.chains if chains is None else chains, "chains", 1, 10**7)
        own = {"engine": engine} if needs_gpu(engine) else {}  # its last digits are others than those of the CPU
        plans.append((e, count, n, {"seed": seed, "chains": n, **own, **_plain(e.settings)}))
    folder = Path(out)
    tables = [f"{e.name}{end}" for e in chosen for end in (".csv", ".png", *(["-runs.csv"] if export else []))]
    make_folder(folder, STORE, "report.html", *tables)
    store = Store(folder / STORE)
    try:
        store.begin({e.name: settings for e, _, _, settings in plans}, resume)
        if pool is None and needs_gpu(engine) and here > 1:
            # what a GPU does of a piece takes less time than Python; but processes that share it take turns
            pool, threads = min(here, _PROCESSES), _THREADS if threads is None else 1
        work = {"threads": threads, "pool": pool, "progress": progress, "checkpoint": None}
        results = [_run(store, folder, e, count, n, settings, seed, engine, work) for e, count, n, settings in plans]
        if export:
            for e in chosen:
                store.export(e.name, folder / f"{e.name}-runs.csv")
    finally:
        store.close()
    from .report import write_report

    write_report(results, folder / "report.html")
    return results


def _run(
    store: Store,
    folder: Path,
    e: Experiment,
    count: int,
    chains: int,
    settings: dict[str, Any],
    seed: int,
    engine: Engine,
    options: dict[str, Any],
) -> Result:
    """Do what is left of an experiment, and summarise all of it."""
    before = _read(store, e, count)
    items = [item for instance in range(count) for item in e.items(instance) if repr(item) not in before.done]
    start = time.perf_counter()

    def receive(number: int, rows: list[Row]) -> None:
        store.write(e.name, repr(items[number]), rows, time.perf_counter() - start)

    with open_session(options, e.name) as session:
        style()  # loads matplotlib: while the processes of a pool start, and before the work if it is missing
        measure = partial(_measure, e.name, seed, chains, engine)
        guess = _ON_GPU if needs_gpu(engine) else 5.0
        call_each(measure, items, receive, session.pool, session.threads, session.tick, guess)
    after = _read(store, e, count, whole=True)
    columns = Columns.of(after.means)
    rows = e.summarise(columns)
    figure = folder / f"{e.name}.png"
    save(e.figure(columns, rows), figure)
    write_whole(folder / f"{e.name}.csv", lambda file: file.write(_csv(rows).encode()))
    return Result(e, rows, figure, {"experiments": count, **settings}, after.seconds)


def _measure(name: str, seed: int, chains: int, engine: Engine, item: tuple[Any, ...], heed: Tick) -> list[Row]:
    """Measure a piece of an experiment, here or on another machine."""
    return EXPERIMENTS[name].measure(item, seed, chains, engine, heed)


def _read(store: Store, e: Experiment, count: int, whole: bool = False) -> Contents:
    """Return what the store holds of `count` instances: every row of the pieces done (all, if `whole`), no other."""
    contents = store.read(e.name, count, e.trials)
    pieces = [(i, item) for i in range(count) for item in e.items(i) if whole or repr(item) in contents.done]
    wanted = {(instance, *key) for instance, item in pieces for key in e.keys(item)}
    wrong = len(wanted ^ {row[:6] for row in contents.means})
    if wrong:
        raise store.damage(f"{wrong} results of {e.name} are missing, or should not be there")
    return contents


def _csv(rows: Summary) -> str:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, keys)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings as JSON gives them back."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}
