"""The command that draws samples."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import typer

from ..answers.samples import sample as run_sample
from ..files import atomic
from ..models.data import states as states_of
from .common import Json, app, check_outputs, say, warned
from .model_file import ModelFile, takes_model
from .options import read_files, takes_flags

_ENDINGS = (".npz", ".npy", ".csv")


@app.command()
@takes_model
@takes_flags(leave_out=("first_chain",))
def sample(
    model: ModelFile,
    n: Annotated[int, typer.Argument(metavar="N", help="How many.")],
    options: dict[str, Any],
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write: .npz (key data), .npy or .csv.")],
    exact: Annotated[
        bool | None, typer.Option("--exact/--estimate", help="Refuse approximate ones, or exact ones.")
    ] = None,
    states: Annotated[bool, typer.Option("--states", help="Write numbers of states, a column per variable.")] = False,
    as_json: Json = False,
) -> None:
    """Draw samples of all variables: exact samples if possible, otherwise approximate ones marked as such."""
    if out.suffix.lower() not in _ENDINGS:
        raise ValueError(f"{out} must end in {', '.join(_ENDINGS)}")
    check_outputs([*model.inputs, options["schedule"], options["base"]], out)
    loaded = model.load_pairs()
    result = run_sample(loaded, n, exact=exact, **read_files(options, loaded))
    rows: Any = states_of(loaded, result.rows) if states else result.rows
    real = not (loaded.visible_units.is_discrete and loaded.hidden_units.is_discrete)
    rows = rows if real else rows.astype(np.int8 if abs(rows).max() < 128 else np.int64)
    atomic.write_whole(out, lambda file: _write(file, out.suffix.lower(), rows, "%.17g" if real else "%d"))
    facts = {"samples": n, "columns": rows.shape[1], "is_exact": result.is_exact, "source": result.source}
    if as_json:
        say(json.dumps({**facts, "warnings": list(result.warnings)}, allow_nan=False))
    else:
        how = f"exact, by {result.source}" if result.is_exact else "approximate"
        say(f"{n} samples x {rows.shape[1]} columns in {out}: {how}")
    warned.extend(result.warnings)
    for warning in result.warnings:
        say(f"warning: {warning}", err=as_json)


def _write(file: IO[bytes], ending: str, rows: Any, pattern: str) -> None:
    if ending == ".npz":
        np.savez_compressed(file, data=rows)
    elif ending == ".npy":
        np.save(file, rows, allow_pickle=False)
    else:
        text = io.StringIO()
        np.savetxt(text, rows, delimiter=",", fmt=pattern)
        file.write(text.getvalue().encode())
