"""The command that converts model files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..files import model_files
from ..models import describe
from .common import app, check_outputs, say
from .model_file import ModelFile, takes_model


@app.command()
@takes_model
def convert(
    model: ModelFile,
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help=f"File to write; its ending is one of {', '.join(model_files.WRITERS)}."),
    ],
) -> None:
    """Read a model file of any kind and write it in another format."""
    ending = model_files.ending_of(out)
    if ending not in model_files.WRITERS:
        raise ValueError(f"cannot write {out}: its ending must be one of {', '.join(model_files.WRITERS)}")
    check_outputs(model.inputs, out)
    loaded = model.load()
    model_files.save(loaded, out)
    say(f"wrote {out}: {describe.count(loaded.n_variables, 'variable')}", err=True)
