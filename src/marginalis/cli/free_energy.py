"""The command that computes F of any model: exactly if that is affordable, otherwise by an estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..answers.free_energy import free_energy as run_free_energy
from ..files.uai import write_pr
from ..models.model import MRF
from .common import Json, Log10, PrFile, app, check_outputs, show
from .model_file import ModelFile, takes_model
from .options import read_files, takes_flags


@app.command("free-energy")
@takes_model
@takes_flags(leave_out=("chains",))
def free_energy(
    model: ModelFile,
    options: dict[str, Any],
    tolerance: Annotated[float, typer.Option(help="Half the width of the interval of an estimate.")] = 0.05,
    budget: Annotated[float | None, typer.Option(help="Seconds that the answer may take.")] = None,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="Draw a figure (.png, .pdf, .svg).")] = None,
    log10: Log10 = False,
    pr: PrFile = None,
) -> None:
    """Return the free energy: exact if that is affordable, otherwise estimated to a tolerance."""
    check_outputs([*model.inputs, options["schedule"], options["base"], options["checkpoint"]], pr, figure=plot)
    loaded = model.load()
    chosen = read_files(options, loaded) if isinstance(loaded, MRF) else options
    result = run_free_energy(loaded, tolerance, budget, **chosen)
    show(result, as_json, log10)
    if pr is not None:
        write_pr(result.log_z, pr)
    if plot is not None:
        from .. import plots

        plots.save(result.plot(), plot)
