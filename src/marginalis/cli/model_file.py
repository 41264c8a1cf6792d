"""The model argument of a command: a file in any format, and the flags that control how it is read."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from ..files import model_files
from ..models.factors import FactorModel
from ..models.layered import annealable, as_model
from ..models.model import MRF
from .common import ModelPath, say, warned

Evidence = Annotated[
    str | None,
    typer.Option(help="Variables held in states: a file (JSON, lines 'label = state', UAI) or a text such as a=1,b=0."),
]
Update = Annotated[int | None, typer.Option(help="Checkpoint of a training run (HDF5); the last by default.")]
MaxCut = Annotated[bool, typer.Option("--maxcut", help="Weights of a rudy file are those of a cut: E = +sum w s s'.")]

Temperature = Annotated[float | None, typer.Option(help="T; replaces the temperature in the file.")]
Beta = Annotated[float | None, typer.Option(help="1/T, instead of --temperature.")]
FLAGS: tuple[tuple[str, Any, Any], ...] = (
    ("evidence", Evidence, None),
    ("update", Update, None),
    ("maxcut", MaxCut, False),
    ("temperature", Temperature, None),
    ("beta", Beta, None),
)


class ModelFile(NamedTuple):
    """The file of a model, the flags to read it, and the temperature of the model."""

    path: str
    evidence: str | None
    update: int | None
    maxcut: bool
    temperature: float | None
    beta: float | None

    @property
    def inputs(self) -> list[str | Path | None]:
        """The files that are read; no output may overwrite them."""
        return [self.path, None if self.evidence is None or "=" in self.evidence else self.evidence]

    def load(self) -> MRF | FactorModel:
        """Read the model; warnings about the file go to stderr."""
        with warnings.catch_warnings(record=True) as doubts:
            warnings.simplefilter("always")
            found = model_files.load(self.path, self.evidence, update=self.update, maxcut=self.maxcut)
        for doubt in doubts:
            say(f"warning: {doubt.message}", err=True)
            warned.append(str(doubt.message))
        if self.temperature is not None and self.beta is not None:
            raise ValueError("give either --temperature or --beta")
        if self.beta is not None and not 0.0 < self.beta < math.inf:
            raise ValueError(f"beta is {self.beta!r}; it must be positive and finite")
        temperature = self.temperature if self.beta is None else 1.0 / self.beta
        return found if temperature is None else found.at_temperature(temperature)

    def load_pairs(self) -> MRF:
        """Read a model without zeros that can be annealed, or raise a ValueError with the reason why it cannot."""
        return as_model(self.load())

    def load_annealable(self) -> MRF:
        """Read a model of which an estimate can be made; zeros become penalties."""
        return annealable(self.load())


def takes_model(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the argument `model: ModelFile` of a command by the path of a file and its flags."""
    signature = inspect.signature(command, eval_str=True)
    own = [p.replace(annotation=ModelPath) if p.name == "model" else p for p in signature.parameters.values()]
    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind, default in FLAGS
    ]

    def run(**given: Any) -> None:
        how = [given.pop(flag.name) for flag in flags]
        command(**{**given, "model": ModelFile(given["model"], *how)})

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*own, *flags)}
    return run
