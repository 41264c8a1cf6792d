"""The command that writes the HTML report about one model."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..checks import one_line
from ..files import tables
from ..models.factors import FactorModel
from .common import Json, app, check_outputs, show
from .model_file import ModelFile, takes_model
from .options import read_files, takes_flags


@app.command()
@takes_model
@takes_flags()
def report(
    model: ModelFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write (.html).")],
    options: dict[str, Any],
    data: Annotated[
        Path | None, typer.Option(help="Samples x visible units (.npy, .npz, .csv): adds their likelihood.")
    ] = None,
    exact_seconds: Annotated[float, typer.Option(help="Add the exact value if it takes no longer.")] = 10.0,
    as_json: Json = False,
) -> None:
    """Write an HTML report: the free energy, bounds, heat capacity, figures and provenance."""
    from ..reporting.report import report as run_report

    check_outputs([*model.inputs, data, options["schedule"], options["base"]], output)
    loaded = model.load()
    result = run_report(
        loaded,
        output,
        data=None if data is None else tables.load_data(data),
        title=one_line(Path(model.path).name, 80),
        command=shlex.join(["marginalis", *sys.argv[1:]]),
        exact_seconds=exact_seconds,
        **(options if isinstance(loaded, FactorModel) else read_files(options, loaded)),
    )
    show(result, as_json)
