"""Evidence: states in which variables of a model are held, by label.

A discrete variable is given by the number of its state, from 0; a spin may also be given as −1. A real variable is
given by its value. Evidence is a mapping, a text such as ``a=1, b=0``, or a file: JSON, lines ``a = 1``, or UAI.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..checks import did_you_mean, reading, real_number, shown, whole
from ..models.factors import FactorModel
from ..models.model import MRF
from ..models.units import Units
from .text import read_text
from .uai import parse_evidence


def read_evidence(evidence: str | Path | Mapping[Any, Any] | None) -> dict[Any, Any]:
    """Return evidence as a dictionary from labels, or words for labels, to states."""
    if evidence is None or isinstance(evidence, Mapping):
        return dict(evidence or {})
    if not isinstance(evidence, str | os.PathLike):
        raise ValueError(f"evidence is {shown(evidence)}; it must name a file or map labels to states")
    if "=" in str(evidence) and not os.path.exists(evidence):
        return _pairs(str(evidence).replace(",", "\n"), "evidence")
    with reading("evidence file", evidence):
        text = read_text(evidence)
        if text.lstrip().startswith("{"):
            return _from_json(text)
        return _pairs(text, "a line") if "=" in text else dict(parse_evidence(text))


def states_in(model: MRF | FactorModel, evidence: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the evidence by the labels of the model, with states as numbers from 0, or as real values."""
    words = {} if all(_has(model, word) for word in evidence) else {str(label): label for label in model.labels}
    found: dict[Any, Any] = {}
    for word, state in evidence.items():
        label = word if _has(model, word) else words.get(str(word))
        if label is None:
            suggestion = did_you_mean(word, words) if isinstance(word, str) else ""
            raise ValueError(f"evidence names the variable {shown(word)}, which the model does not have{suggestion}")
        if label in found:
            raise ValueError(f"evidence names the variable {shown(label)} twice")
        found[label] = state
    if isinstance(model, FactorModel):
        return {label: whole(x, _argument(label), 0, 2**62) for label, x in found.items()}
    units = _units_of(model, found)
    return {label: _state(units[label], x, _argument(label)) for label, x in found.items()}


def held_in(model: MRF | FactorModel, evidence: Mapping[Any, Any]) -> MRF | FactorModel:
    """Return the model with the variables of the evidence held."""
    states = states_in(model, evidence)
    if isinstance(model, FactorModel):
        return model.given(states)
    units = _units_of(model, states)
    return model.given({x: _value(units[x], state) for x, state in states.items()})


def _has(model: MRF | FactorModel, word: Any) -> bool:
    try:
        return word in model.labels
    except ValueError:  # Comparing an array with a label raises it.
        return False


def _argument(label: Any) -> str:
    return f"the state of {shown(label)} in evidence"


def _units_of(model: MRF, labels: Mapping[Any, Any]) -> dict[Any, tuple[Units, int]]:
    """Return the kind of each of these variables, and its number of features."""
    found: dict[Any, tuple[Units, int]] = {}
    sides = (
        (model.visible_units, model.split.visible, len(model.visible_bias)),
        (model.hidden_units, model.split.hidden, len(model.hidden_bias)),
    )
    for units, callers, features in sides:
        owners = units.owners(features)
        for k, i in enumerate(callers.tolist()):
            label = model.labels[i]
            if label in labels:
                found[label] = units, int((owners == k).sum())
    return found


def _state(kind: tuple[Units, int], state: Any, argument: str) -> Any:
    units, features = kind
    if units.is_one_hot:
        return whole(state, argument, 0, features - 1)
    if units.values is None:
        return real_number(state, argument)
    if state == units.values[0]:
        return 0
    return whole(state, argument, 0, 1)


def _value(kind: tuple[Units, int], state: Any) -> Any:
    values = kind[0].values
    return state if values is None or kind[0].is_one_hot else values[state]


def _pairs(text: str, what: str) -> dict[Any, Any]:
    """Return the evidence of lines with ``label = state``; # begins a comment."""
    found: dict[Any, Any] = {}
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if not line:
            continue
        label, sign, state = (word.strip() for word in line.rpartition("="))
        if not sign or not label:
            raise ValueError(f"{what} is {shown(line)}; it must be 'label = state'")
        if label in found:
            raise ValueError(f"evidence names the variable {shown(label)} twice")
        found[label] = _number(state, label)
    return found


def _number(word: str, label: str) -> float:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    raise ValueError(f"{_argument(label)} is {shown(word)}; it must be a number")


def _from_json(text: str) -> dict[Any, Any]:
    try:
        return dict(json.loads(text, object_pairs_hook=_once))
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [label for label, _ in pairs]
        raise ValueError(f"names the variable {shown(next(x for x in names if names.count(x) > 1))} twice")
    return found
