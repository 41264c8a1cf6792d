"""The command for means over samples of disorder: average."""

from __future__ import annotations

import csv
import io
import shlex
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..answers.average import average_given
from ..answers.averages import WORDS, Average
from ..files.atomic import write_whole
from ..paths.base import BASES
from .answers import numbers_in
from .common import Json, app, check_outputs, show
from .make import Made
from .many import files_of, models_in
from .options import read_files, takes_flags


@app.command()
@takes_flags(leave_out=("first_chain", "summed", "checkpoint"))
def average(
    options: dict[str, Any],
    models: Annotated[
        list[Path] | None, typer.Argument(metavar="[FOLDER|FILE...]", help="Model files, or folders of them.")
    ] = None,
    make: Annotated[
        str | None,
        typer.Option(help='Random models in place of files: arguments of `make`, as in "ising-grid --coupling pm:1".'),
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Number of random models; their seeds follow --seed.")] = None,
    quantity: Annotated[
        str, typer.Option(help=f"{', '.join(x for x in WORDS if '_per' not in x)}, or with _per_variable at the end.")
    ] = "free_energy",
    temperatures: Annotated[
        str | None,
        typer.Option(help="Every model at these temperatures: a list, as in 0.5,1,2, or from:to:number."),
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Choose samples and chains so that the interval of the mean is +- this.")
    ] = None,
    exact: Annotated[
        bool | None,
        typer.Option("--exact/--no-exact", help="Exact sums only, or none; those that are cheap by default."),
    ] = None,
    moves: Annotated[int, typer.Option(help="Moves at each temperature over which energies are averaged.")] = 10,
    as_json: Json = False,
    table: Annotated[Path | None, typer.Option("--csv", help="Write one line per sample to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a figure (.png, .pdf, .svg).")] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="SQLite file of finished samples, from which the same command continues if interrupted."),
    ] = None,
) -> None:
    """Average a quantity over samples of disorder, with an error that contains disorder and sampling."""
    if (make is None) == (not models):
        raise ValueError("give model files, or --make with the arguments of a random model")
    files = files_of(models or [])
    check_outputs([*files, options["schedule"]], table, store, figure=plot)
    if options["base"] not in (None, *BASES):
        raise ValueError(f"base is {options['base']!r}; it must be one of {', '.join(BASES)} for many models")
    at = None if temperatures is None else np.array([float(t) for t in numbers_in(temperatures, "temperatures")])
    if at is not None and not (at > 0.0).all():
        raise ValueError(f"temperatures is {temperatures!r}; all must be positive")
    given: Any = models_in(files, [])
    if make is not None:
        given = Made(tuple(_words(make)))
        given(0)  # Arguments that are not valid are one error, before any run.
    betas = None if at is None else 1.0 / at
    read: Any = read_files(options, None)
    result = average_given(given, quantity, samples, betas, tolerance, exact, moves, store, read)
    show(result, as_json)
    if table is not None:
        write_whole(table, lambda file: file.write(_table(result).encode()))
    if plot is not None:
        from .. import plots

        plots.save(plots.average(result), plot)
    if result.errors:
        name, error = next(iter(result.errors.items()))
        raise ValueError(f"{len(result.errors)} of {len(result.names)} models failed: {name}: {error}")


def _words(text: str) -> list[str]:
    """Return the arguments in a text, as a shell divides it."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"make is {text!r}: {error}") from None


def _table(result: Average) -> str:
    """Return the values of all samples as CSV."""
    text = io.StringIO(newline="")
    rows = result.sample_rows()
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
