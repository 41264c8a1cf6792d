"""Command-line flags, generated from the list of run options so that each option is defined once."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import typer

from ..checks import Array, did_you_mean, open_file, reading
from ..engines.plan import betas
from ..files import tables
from ..files.model_files import load
from ..models.layered import as_model
from ..models.model import MRF
from ..options import DEFAULTS, SCHEDULES, RunOptions, notes
from ..paths.base import BASES, QUENCHES, data_base
from . import common

logger = logging.getLogger("marginalis")

_HELP = {  # Help of flags whose values differ from those of the Python arguments.
    "schedule": f"{', '.join(SCHEDULES)}, or a text file of beta from 0 to 1; adaptive, unless --steps is given.",
    "base": f"{', '.join(BASES)}, {QUENCHES}, a file of data (.npy, .npz, .csv) for its base rates, or the file of a "
    "model that can be summed exactly; uniform, or chosen if neither --steps nor --schedule is given.",
    "summed": "Labels of the variables to sum out, separated by commas; chosen by default.",
    "resample": "on, off, or the fraction of effective chains below which a population is resampled; off by default, "
    "or chosen from short pilot runs if neither --steps, --schedule nor --base is given.",
    "seed": "Seed of the random numbers.",
    "threads": "Number of threads, of each task if there is a pool; MARGINALIS_THREADS or all cores by default.",
    "checkpoint": "File that stores finished chains, so that the same command continues after an interruption; next to "
    "--out if no file is named.",
    "pool": "Where chains are run: a number of processes, dask:ADDRESS of a scheduler, or dask-local.",
}

_LARGEST_SCHEDULE = 64 << 20  # Largest size of a file of β values, in bytes.
DOUBTFUL = 3  # Exit code of --strict for an answer with warnings.
_MANNERS = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, kind])
    for name, kind in (
        ("quiet", typer.Option("--quiet", "-q", help="Print the answer only: no progress, no messages.")),
        (
            "strict",
            typer.Option("--strict", help=f"Exit with {DOUBTFUL} if there are warnings or a tolerance is missed."),
        ),
    )
]


def takes_flags(leave_out: Sequence[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a flag for every run option to a command; their values arrive in its argument `options` as a dict."""
    names = [name for name in DEFAULTS if name not in (*leave_out, "progress")]

    def dress(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != "options"]
        flags = [*map(_flag, names), *_MANNERS]

        def run(**given: Any) -> None:
            options = {name: given.pop(name) for name in names}
            quiet, strict = given.pop("quiet"), given.pop("strict")
            if options.get("checkpoint") == "":
                options["checkpoint"] = _beside(given.get("out"))
            if quiet:
                logger.setLevel(logging.WARNING)
            common.warned.clear()
            command(**given, options={**options, "progress": not quiet})
            if strict and common.warned:
                raise typer.Exit(DOUBTFUL)

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature(own + flags)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in own + flags}
        return run

    return dress


def with_values(words: Sequence[str]) -> list[str]:
    """Return the arguments of a command with an empty value inserted after ``--checkpoint`` if it has none."""
    pairs = itertools.pairwise([*words, "--"])
    return ["--checkpoint=" if a == "--checkpoint" and b.startswith("-") else a for a, b in pairs]


def _beside(out: Path | None) -> str:
    """Return the checkpoint file next to the result file, for ``--checkpoint`` without a value."""
    if out is None:
        raise ValueError("--checkpoint requires --out FILE, or the name of a file")
    return f"{out}.checkpoint"


def _flag(name: str) -> inspect.Parameter:
    """Return the flag of an option; its value is an integer or a word."""
    hint = get_type_hints(RunOptions)[name]
    kinds = get_args(hint) or (hint,)
    default = DEFAULTS[name]  # type: ignore[literal-required]
    # A value that may be an array may also be an integer.
    kind: Any = int if int in kinds and str not in kinds else str
    note = notes()[name]
    text = _HELP.get(name, f"{note[0].upper()}{note[1:]}.")
    if get_origin(hint) is Literal:
        text = ", ".join(get_args(hint))
    kind = kind | None if default is None else kind
    annotation: Any = Annotated[kind, typer.Option(help=text)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def read_files(options: dict[str, Any], model: MRF | None) -> dict[str, Any]:
    """Return the options with file names replaced by the contents of these files.

    The model is needed for a base of data and for labels only.
    """
    read = dict(options)
    if options.get("schedule") not in (None, *SCHEDULES):
        read["schedule"] = _schedule(str(options["schedule"]))
    if model is not None and options.get("base") not in (None, QUENCHES, *BASES):
        read["base"] = _base(str(options["base"]), model)
    if options.get("resample") is not None:
        read["resample"] = _share(str(options["resample"]))
    if model is not None and options.get("summed") is not None:
        read["summed"] = _labels(str(options["summed"]), model)
    return read


def _schedule(text: str) -> Any:
    if not Path(text).exists() and not Path(text).suffix:
        known = ", ".join(SCHEDULES)
        raise ValueError(f"schedule is {text!r}; it must be {known} or a text file{did_you_mean(text, SCHEDULES)}")
    return read_schedule(text)


def read_schedule(path: str | Path) -> Array:
    """Read β values from a text file: numbers separated by white space or commas, ``#`` comments."""
    with reading("schedule file", path):
        with open_file(path, _LARGEST_SCHEDULE) as file:
            try:
                text = file.read(_LARGEST_SCHEDULE).decode("utf-8")
            except UnicodeDecodeError:
                raise ValueError("is not a text file") from None
        words = (w for line in text.splitlines() for w in line.split("#")[0].replace(",", " ").split())
        return betas(np.fromiter((float(w) for w in words), np.float64))


def _base(text: str, model: MRF) -> Any:
    kind = Path(text).suffix.lower()
    if not kind:
        known = (*BASES, QUENCHES)
        raise ValueError(
            f"base is {text!r}; it must be one of {', '.join(known)}, a data file or a model file"
            + did_you_mean(text, known)
        )
    if kind not in tables.ENDINGS or (kind in (".npz", ".json", *tables.HDF5) and tables.is_model(text)):
        return as_model(load(text), "base")
    return data_base(model, tables.load_data(text))


def _share(text: str) -> bool | float:
    if text in ("on", "off"):
        return text == "on"
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"resample is {text!r}; it must be on, off or a share between 0 and 1") from None


def _labels(text: str, model: MRF) -> list[Any]:
    """Return the labels of the variables in a comma-separated list."""
    known = {str(label): label for label in model.labels}
    return [known.get(word.strip(), word.strip()) for word in text.split(",")]
