"""The command that computes mean values and marginals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..answers.expectations import Expectations
from ..answers.expectations import expectations as run_expectations
from ..checks import Array
from ..files import model_files
from ..files.evidence import read_evidence, states_in
from ..files.text import read_text
from ..files.uai import is_uai, parse_uai, write_mar
from ..models.factors import FactorModel
from ..models.model import MRF
from .common import Json, app, check_outputs, show
from .model_file import ModelFile, takes_model
from .options import read_files, takes_flags


@app.command()
@takes_model
@takes_flags()
def expectations(
    model: ModelFile,
    options: dict[str, Any],
    exact: Annotated[
        bool | None, typer.Option("--exact/--estimate", help="Exact values, or from chains; exact where cheap.")
    ] = None,
    moves: Annotated[int | None, typer.Option(help="Moves under the model to average over; 10 by default.")] = None,
    as_json: Json = False,
    mar: Annotated[
        Path | None, typer.Option(help="Write the marginals to this file, as UAI competitions ask for them.")
    ] = None,
) -> None:
    """Compute means of all variables and of products along couplings."""
    check_outputs([*model.inputs, options["schedule"], options["base"]], mar)
    loaded = model.load()
    before = None if mar is None else _before_evidence(model)
    whole = FactorModel.of(before) if isinstance(before, MRF) else before
    chosen = options if isinstance(loaded, FactorModel) else read_files(options, loaded)
    result = run_expectations(loaded, exact=exact, moves=moves, **chosen)
    show(result, as_json)
    if mar is not None and before is not None and whole is not None:
        write_mar(_of_all(whole, states_in(before, read_evidence(model.evidence)), result), mar)


def _before_evidence(model: ModelFile) -> MRF | FactorModel:
    """Return the model of the file with all variables and states, evidence not applied."""
    try:
        text = read_text(model.path)
    except ValueError:  # The file has a binary format.
        text = ""
    if is_uai(text):
        return parse_uai(text)
    return model_files.load(model.path, update=model.update, maxcut=model.maxcut)


def _of_all(whole: FactorModel, evidence: dict[Any, int], result: Expectations) -> list[Array]:
    """Return P(x) for all variables of a file, including variables fixed by evidence and impossible states."""
    known = dict(zip(result.labels, result.marginals, strict=True)) if len(result.labels) else {}
    found = []
    for label, card in zip(whole.labels, whole.cards, strict=True):
        p = known.get(label, np.ones(1))
        if len(p) < card:
            places = [evidence[label]] if label in evidence else _possible(whole, evidence, label, card)
            if len(places) != len(p):
                raise ValueError(f"some states of variable {label} cannot occur, and which ones is not known")
            p, rest = np.zeros(card), p
            p[places] = rest
        found.append(p)
    return found


def _possible(whole: FactorModel, evidence: dict[Any, int], label: Any, card: int) -> list[int]:
    """Return the states in which a variable can be fixed without a contradiction."""
    found = []
    for state in range(card):
        try:
            whole.given({**evidence, label: state})
        except ValueError:
            continue
        found.append(state)
    return found
