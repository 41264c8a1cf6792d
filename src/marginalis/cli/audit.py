"""The command that compares the samples of a sampler with a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..answers.audit import audit as run_audit
from ..files import tables
from .common import Json, app, check_outputs, show
from .model_file import ModelFile, takes_model
from .options import read_files, takes_flags


@app.command()
@takes_model
@takes_flags(leave_out=("base", "first_chain", "resample", "populations", "checkpoint", "schedule", "summed"))
def audit(
    model: ModelFile,
    samples: Annotated[
        Path, typer.Argument(metavar="SAMPLES", help="Samples, rows of all variables (.npy, .npz, .csv, .json).")
    ],
    options: dict[str, Any],
    bounds: Annotated[
        bool, typer.Option("--bounds/--no-bounds", help="Bound F from both sides, starting from the samples.")
    ] = True,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="Draw energies against beta (.png, .pdf, .svg).")] = None,
) -> None:
    """Find the effective temperature of samples, and test whether they follow the Boltzmann distribution."""
    check_outputs([*model.inputs, samples], figure=plot)
    loaded = model.load_pairs()
    result = run_audit(loaded, tables.load_data(samples), bounds=bounds, **read_files(options, loaded))
    show(result, as_json)
    if plot is not None:
        from .. import plots

        plots.save(plots.audit(result), plot)
