"""The application, and what all its commands share."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .. import __version__

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

ModelPath = Annotated[
    str, typer.Argument(metavar="MODEL", help="Model file: .npz, .uai, .h5, .pt, ...; see the page on formats.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Threads = Annotated[int | None, typer.Option(help="Threads; MARGINALIS_THREADS, or all cores, by default.")]

PoolOption = Annotated[
    str | None, typer.Option("--pool", help="A task for every run: a number of processes, dask:ADDRESS, or dask-local.")
]


def say(text: str, err: bool = False) -> None:
    """Print a line; what the terminal cannot show is replaced (`typer.echo` alone would send it UTF-8)."""
    typer.echo(text, file=sys.stderr if err else sys.stdout)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Free energies F = -ln Z of Markov random fields, by AIS and marginalized AIS."""
    if version:
        say(f"marginalis {__version__}")
        raise typer.Exit
