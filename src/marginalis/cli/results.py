"""The command that adds up results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ..answers.estimate import load_estimate
from ..formats import files
from .common import Json, app, say


@app.command()
def join(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT...", help="Files that `estimate --out` wrote.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write the joined result to this .npz file.")] = None,
    as_json: Json = False,
) -> None:
    """Join results of one model and plan, from other seeds or other chains, into one."""
    if out is not None:
        if os.path.realpath(out) in [os.path.realpath(path) for path in results]:
            raise ValueError(f"{out} is named twice: inputs and outputs must be different files")
        files.check_writable(out)
    joined = load_estimate(results[0])
    for path in results[1:]:
        more = load_estimate(path)
        try:
            joined = joined + more
        except ValueError as error:
            raise ValueError(f"result {path}: {error}") from None
    say(joined.to_json() if as_json else str(joined))
    if as_json:
        for warning in joined.warnings:
            say(f"warning: {warning}", err=True)
    if out is not None:
        joined.save(out)
