"""The application, and functions and flags that all its commands share."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .. import __version__
from ..files import atomic

# The tables of typer's help cut the names of options in narrow terminals; plain help does not.
MARKUP: Literal["rich"] | None = "rich" if shutil.get_terminal_size().columns >= 60 else None

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=MARKUP)

ModelPath = Annotated[
    str, typer.Argument(metavar="MODEL", help="Model file: .npz, .uai, .h5, .pt, ...; see the page on formats.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Threads = Annotated[int | None, typer.Option(help="Threads; MARGINALIS_THREADS, or all cores, by default.")]

Log10 = Annotated[bool, typer.Option("--log10", help="Give log10 Z, too.")]
PrFile = Annotated[
    Path | None, typer.Option("--pr", help="Write log10 Z to this file, as UAI competitions ask for it.")
]
PoolOption = Annotated[
    str | None, typer.Option("--pool", help="A task for every run: a number of processes, dask:ADDRESS, or dask-local.")
]


def say(text: str, err: bool = False) -> None:
    """Print a line; characters that the terminal cannot show are replaced (`typer.echo` alone would send UTF-8)."""
    stream = sys.stderr if err else sys.stdout
    if stream is not None:  # A closed stream is None, for which `typer.echo` would use the other stream.
        typer.echo(text, file=stream)


warned: list[str] = []  # Warnings of the answers that this command has printed.


def show(result: Any, as_json: bool, log10: bool = False) -> None:
    """Print an answer; its warnings go to stderr if stdout is JSON."""
    warned.extend(result.warnings)
    decimal = {"log10_z": result.log_z / math.log(10.0)} if log10 else {}
    if not as_json:
        say(str(result))
        for value in decimal.values():
            say(f"log10 Z = {value:.6f}")
        return
    say(json.dumps({**result.to_dict(), **decimal}, allow_nan=False))
    for warning in result.warnings:
        say(f"warning: {warning}", err=True)


def check_outputs(inputs: Sequence[str | Path | None], *paths: Path | None, figure: Path | None = None) -> None:
    """Raise a ValueError if an output cannot be written, or is also an input or another output."""
    if figure is not None:
        from .. import plots

        plots.check_format(figure)
    outputs = [path for path in (*paths, figure) if path is not None]
    taken = [os.path.realpath(path) for path in inputs if path is not None]
    for path in outputs:
        atomic.check_writable(path)
        if os.path.realpath(path) in taken:
            raise ValueError(f"{path} is named twice: inputs and outputs must be different files")
        taken.append(os.path.realpath(path))


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Free energies F = -ln Z of Markov random fields, by AIS and marginalized AIS."""
    if version:
        say(f"marginalis {__version__}")
        raise typer.Exit
