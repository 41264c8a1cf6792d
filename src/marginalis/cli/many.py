"""The command for many model files: estimate-many."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..answers.estimates import Estimates
from ..answers.given_models import GivenModels, Item
from ..answers.many import estimate_given
from ..files import model_files
from ..files.atomic import write_whole
from ..models.layered import as_model
from ..paths.base import BASES
from . import common
from .answers import Budget, Tolerance, numbers_in
from .common import Json, app, check_outputs, say
from .options import read_files, takes_flags

logger = logging.getLogger("marginalis")

# Endings of model files; other files of a folder are skipped. A file that is named is read whatever its ending.
_ENDINGS = {".npz", ".uai", ".json", ".coo", ".rudy", ".h5", ".hdf5", ".pt", ".pth", ".fg", ".dat"}


@app.command("estimate-many")
@takes_flags(leave_out=("first_chain", "summed", "checkpoint"))
def estimate_many(
    models: Annotated[list[Path], typer.Argument(metavar="FOLDER|FILE...", help="Model files, or folders of them.")],
    options: dict[str, Any],
    tolerance: Tolerance = None,
    budget: Budget = None,
    temperatures: Annotated[
        str | None,
        typer.Option(help="Every model at these temperatures: a list, as in 0.5,1,2, or from:to:number."),
    ] = None,
    as_json: Json = False,
    table: Annotated[Path | None, typer.Option("--csv", help="Write one line per model to this file.")] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="SQLite file of finished models, from which the same command continues if interrupted."),
    ] = None,
) -> None:
    """Estimate the free energies of many models; models of one shape run together."""
    files = files_of(models)
    check_outputs([*files, options["schedule"]], table, store)
    if options["base"] not in (None, *BASES):
        raise ValueError(f"base is {options['base']!r}; it must be one of {', '.join(BASES)} for many models")
    at = [] if temperatures is None else [float(t) for t in numbers_in(temperatures, "temperatures")]
    given = models_in(files, at)
    result = estimate_given(given, tolerance, budget, store, None, read_files(options, None))  # type: ignore[arg-type]
    common.warned.extend(result.warnings)
    say(result.to_json() if as_json else str(result))
    if table is not None:
        write_whole(table, lambda file: file.write(_table(result).encode()))
    failed = result.errors
    if failed:
        name, error = next(iter(failed.items()))
        raise ValueError(f"{len(failed)} of {len(result)} models failed: {name}: {error}")


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the model files among paths, where a folder stands for the model files in it, sorted by name."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        there = sorted(x for x in path.iterdir() if x.is_file() and not x.name.startswith("."))
        known = [x for x in there if model_files.ending_of(x) in _ENDINGS]
        if len(known) < len(there):
            logger.info("%s: %d files are not model files and are skipped", path, len(there) - len(known))
        if not known:
            raise ValueError(f"{path} holds no model file")
        found += known
    return found


def models_in(files: Sequence[Path], temperatures: Sequence[float]) -> GivenModels:
    """Return the models of files, each at all temperatures; a file is read when its model is needed."""
    each = max(1, len(temperatures))
    names = [str(path) if not temperatures else f"{path} T={t:g}" for path in files for t in temperatures or [0.0]]

    def load(number: int) -> Any:
        path = files[number // each]
        try:
            model = as_model(model_files.load(path))
            return model.at_temperature(temperatures[number % each]) if temperatures else model
        except (ValueError, TypeError, OSError) as error:
            text = str(error)
            return ValueError(text.partition(f"{path}: ")[2] or text)

    def items() -> Iterator[Item]:
        for number, name in enumerate(names):
            yield Item(number, name, load(number))

    return GivenModels(items, len(names), names, load)


def _table(result: Estimates) -> str:
    """Return the numbers of all models as CSV."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    columns = ("name", "free_energy", "stderr", "low", "high", "log_z", "ess", "tail_index", "steps", "chains")
    writer.writerow((*columns, "seconds", "warnings", "error"))
    for row in result.rows():
        row["low"], row["high"] = row["interval"]
        warnings = "; ".join(row["warnings"])
        writer.writerow([*(row[name] for name in columns), round(row["seconds"], 6), warnings, row["error"]])
    return text.getvalue()
