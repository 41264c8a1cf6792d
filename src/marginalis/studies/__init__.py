"""Studies: the table and figures of the paper, and the calibration of intervals and warnings.

`reproduce` runs the experiments of the paper (`table1`, `ape_temperature`, `size_ratio`, `convergence`; each an
`Experiment`) and compares them with the printed values. A run can be stopped and resumed, since `store` keeps every
result. `calibration` checks how often the 95 % intervals cover the exact value, over the models of `families`. The
package may import all layers below it, up to the figures; only the public names and the command line import it. Read
`experiment` first, then `table1`.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..checks import needs_gpu, one_of, whole
from ..files.atomic import make_folder, write_whole
from ..files.store import Contents, Row, Store
from ..options import Engine
from ..parallel.mapping import map_items
from ..parallel.threads import Tick, cores
from ..plots import save, style
from ..running.session import open_session
from .ape_temperature import EXPERIMENT as APE_TEMPERATURE
from .convergence import EXPERIMENT as CONVERGENCE
from .experiment import Columns, Experiment, Summary
from .sampling import check_engine
from .size_ratio import EXPERIMENT as SIZE_RATIO
from .table1 import EXPERIMENT as TABLE1

EXPERIMENTS = {e.name: e for e in (TABLE1, APE_TEMPERATURE, SIZE_RATIO, CONVERGENCE)}
STORE = "results.sqlite"
_GPU_THREADS = 8  # Most threads that use a GPU: some prepare models and take means while the GPU runs those of others.
_BATCH_BYTES = 1 << 25  # Largest size of the log-weights of a batch on a GPU, in bytes.
_BATCH_SECONDS, _MOST_TOGETHER = 0.5, 64  # Target duration, and most pieces of work, of a batch on one core.


@dataclass(frozen=True)
class StudyResult:
    """Summary of one experiment."""

    experiment: Experiment
    rows: Summary
    figure: Path
    settings: dict[str, Any]
    seconds: float  # Seconds that all runs on the store took.


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
) -> list[StudyResult]:
    """Run one of the paper's experiments, or ``"all"`` of them, and write table, figure and report to `out`.

    `experiments` is the number of RBM instances and `chains` is N; the defaults are those of the paper. Every result is
    written to an SQLite file in `out` as soon as it is computed. With `resume` a stopped run continues there and ends
    with the same numbers as an uninterrupted one. `engine` and `pool` are as in `estimate`. Models of one shape run
    together, on a GPU in one launch.
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
        # Results of a GPU differ from those of the CPU in the last digits.
        own = {"engine": engine} if needs_gpu(engine) else {}
        plans.append((e, count, n, {"seed": seed, "chains": n, **own, **_plain(e.constants)}))
    folder = Path(out)
    tables = [f"{e.name}{end}" for e in chosen for end in (".csv", ".png", *(["-runs.csv"] if export else []))]
    make_folder(folder, STORE, "report.html", *tables)
    store = Store(folder / STORE)
    try:
        store.begin({e.name: settings for e, _, _, settings in plans}, resume)
        if pool is None and needs_gpu(engine) and threads is None:
            threads = min(here, _GPU_THREADS)
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
) -> StudyResult:
    """Run the remaining pieces of an experiment and summarise all of it."""
    before = _read(store, e, count)
    items = [item for instance in range(count) for item in e.items(instance) if repr(item) not in before.done]
    start = time.perf_counter()

    def receive(numbers: range, found: Sequence[list[Row]]) -> None:
        pieces = [(repr(items[i]), rows) for i, rows in zip(numbers, found, strict=True)]
        store.write(e.name, pieces, time.perf_counter() - start)

    with open_session(options, e.name) as session:
        style()  # Matplotlib is loaded while the pool starts; an error comes before the work if it is missing.
        if items:
            seconds, together = _batch(e, items[0], chains, engine)
            measure = partial(_measure, e.name, seed, chains, engine)
            map_items(measure, items, receive, session.pool, session.threads, session.tick, seconds, together)
    after = _read(store, e, count, whole=True)
    columns = Columns.of(after.means)
    rows = e.summarise(columns)
    figure = folder / f"{e.name}.png"
    save(e.figure(columns, rows), figure)
    write_whole(folder / f"{e.name}.csv", lambda file: file.write(_csv(rows).encode()))
    return StudyResult(e, rows, figure, {"experiments": count, **settings}, after.seconds)


def _measure(
    name: str, seed: int, chains: int, engine: Engine, items: Sequence[tuple[Any, ...]], tick: Tick
) -> list[list[Row]]:
    """Measure pieces of an experiment, in this process or on another machine."""
    return EXPERIMENTS[name].measured(seed, chains, engine, items, tick)


def _batch(e: Experiment, item: tuple[Any, ...], chains: int, engine: Engine) -> tuple[float, int]:
    """Return the estimated seconds of a piece of work, and the number of pieces that run together."""
    seconds = e.seconds_of(item, chains, engine)
    if needs_gpu(engine):
        results = 16 * chains * e.trials * len(e.settings(item))
        return seconds, max(1, min(_BATCH_BYTES // results, _MOST_TOGETHER))
    return seconds, max(1, min(int(_BATCH_SECONDS / seconds), _MOST_TOGETHER))


def _read(store: Store, e: Experiment, count: int, whole: bool = False) -> Contents:
    """Return the rows of the finished pieces of `count` instances; with `whole`, all pieces must be finished."""
    contents = store.read(e.name, count, e.trials)
    items = [item for i in range(count) for item in e.items(i) if whole or repr(item) in contents.done]
    wanted = {(instance, *key) for item in items for instance, key in e.keys(item)}
    wrong = len(wanted ^ {row[:6] for row in contents.means})
    if wrong:
        raise store.damage(f"{wrong} results of {e.name} are missing or unexpected")
    return contents


def _csv(rows: Summary) -> str:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, keys)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings as they are after a round trip through JSON."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}
