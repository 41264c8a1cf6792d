"""The commands that run studies: reproduce, calibrate."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from ..display.words import cell_text, heading
from .common import Json, PoolOption, Threads, app, say

EngineOption = Annotated[str, typer.Option("--engine", help="auto, numpy, numba or cuda.")]


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(metavar="EXPERIMENT", help="table1, ape-temperature, size-ratio, convergence or all"),
    ],
    experiments: Annotated[int | None, typer.Option(help="RBM instances; the paper's number by default.")] = None,
    chains: Annotated[int | None, typer.Option(help="Chains N; the paper's number by default.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the store, tables, figures and report.")] = Path("reproduction"),
    seed: Annotated[int, typer.Option(help="Seed of models and random numbers.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run.")] = False,
    threads: Threads = None,
    engine: EngineOption = "auto",
    pool: PoolOption = None,
    csv: Annotated[bool, typer.Option("--csv", help="Also export every single result as CSV.")] = False,
    as_json: Json = False,
) -> None:
    """Re-run the experiments of the paper, beside its printed values."""
    from ..studies import reproduce as run

    results = run(
        name,
        experiments=experiments,
        chains=chains,
        out=out,
        seed=seed,
        resume=resume,
        threads=threads,
        engine=engine,  # type: ignore[arg-type]  # The function checks it.
        pool=pool,
        progress=True,
        export=csv,
    )
    if as_json:
        _print_json({"rows": [{"experiment": r.experiment.name, **row} for r in results for row in r.rows]})
        return
    for r in results:
        _print_table(r.rows, r.experiment.title)
    say(f"report: {out / 'report.html'}", err=True)


@app.command()
def calibrate(
    repeats: Annotated[int | None, typer.Option(help="Estimates per cell.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Four kinds of models: one or two minutes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="More K, N, models and whole calls: hours.")] = False,
    families: Annotated[str | None, typer.Option(help="Kinds of models, separated by commas; all by default.")] = None,
    calls: Annotated[int | None, typer.Option(help="Whole calls per model and kind of answer.")] = None,
    only_calls: Annotated[bool, typer.Option("--only-calls", help="Whole calls only.")] = False,
    without_exact: Annotated[
        bool, typer.Option("--without-exact", help="Let no exact sum confirm the path of a whole call.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the tables and finished parts.")] = Path("calibration"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of models and random numbers.")] = 0,
    threads: Threads = None,
    engine: EngineOption = "auto",
    pool: PoolOption = None,
    as_json: Json = False,
) -> None:
    """Check on random models that 95 % intervals hold 95 % of the time, or warn."""
    from ..studies import calibration

    calibration.check_engine(engine)
    if repeats is not None:
        calibration.check_repeats(repeats)
    calibration.make_folder(out)
    result = calibration.calibrate(
        repeats=repeats,
        seed=seed,
        threads=threads,
        engine=engine,  # type: ignore[arg-type]  # The function checks it.
        pool=pool,
        quick=quick,
        full=full,
        families=None if families is None else families.split(","),
        calls=calls,
        only_calls=only_calls,
        without_exact=without_exact,
        keep=out,
        resume=resume,
        progress=True,
    )
    calibration.write(result, out)
    if as_json:
        names = ("rows", "intervals", "warnings", "families", "calls")
        _print_json(dict(zip(names, result, strict=True)))
        return
    tables = (
        (calibration.side_by_side(result.intervals), "Coverage by standard deviation of the log-weights"),
        (result.alarms, "Warnings by number of chains"),
        (result.families, "Warnings by family and number of chains"),
        (result.calls, "Whole calls"),
    )
    for rows, title in tables:
        short = [{k: round(x, 3) if isinstance(x, float) else x for k, x in row.items()} for row in rows]
        if short:
            _print_table(short, title)
    say(f"all tables: {out}", err=True)


def _print_json(tables: dict[str, list[dict[str, Any]]]) -> None:
    say(json.dumps({name: [_plain(row) for row in rows] for name, rows in tables.items()}, allow_nan=False))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(x, float) and not math.isfinite(x) else x for k, x in row.items()}


def _print_table(rows: list[dict[str, Any]], title: str) -> None:
    """Print rows in blocks that fit the terminal; each block starts with the columns that distinguish the rows."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    same = [key for key in keys if len(rows) > 1 and len({row.get(key) for row in rows}) == 1]
    facts = "".join(f", {heading(key)} = {cell_text(key, rows[0].get(key))}" for key in same)
    say(f"\n{title}{facts}")
    keys = [key for key in keys if key not in same]
    first = 0  # Number of leading columns that distinguish all rows.
    while first < len(keys) and len({tuple(row.get(key) for key in keys[:first]) for row in rows}) < len(rows):
        first += 1
    columns = {key: _column(key, rows) for key in keys}
    limit = shutil.get_terminal_size().columns
    rest = len(keys) - first
    for number in range(1, rest + 1):
        size = -(-rest // number)
        blocks = [keys[:first] + keys[i:][:size] for i in range(first, len(keys), size)]
        if max(sum(len(columns[key][0]) + 2 for key in block) - 2 for block in blocks) <= limit:
            break
    for block in blocks:
        lines = list(zip(*(columns[key] for key in block), strict=True))
        shown = [line for i, line in enumerate(lines) if "".join(line[first if i > 1 else 0 :]).strip()]
        say("\n".join("  ".join(line).rstrip() for line in shown) + "\n")


def _column(key: str, rows: list[dict[str, Any]]) -> list[str]:
    """Return the heading, in two lines, and the cells of a column, padded to one width."""
    above, _, below = heading(key).rpartition(" ")
    cells = [above, below, *(cell_text(key, row.get(key), row) for row in rows)]
    width = max(map(len, cells))
    return [cell.rjust(width) for cell in cells]
