"""The command that joins results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..results.estimate import load_estimate
from .common import Json, app, check_outputs, show


@app.command()
def join(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT...", help="Files that `estimate --out` wrote.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write the joined result to this .npz file.")] = None,
    as_json: Json = False,
) -> None:
    """Join results of the same model and plan, with different seeds or chain numbers, into one result."""
    check_outputs(results, out)
    joined = load_estimate(results[0])
    for path in results[1:]:
        more = load_estimate(path)
        try:
            joined = joined + more
        except ValueError as error:
            raise ValueError(f"result {path}: {error}") from None
    show(joined, as_json)
    if out is not None:
        joined.save(out)
