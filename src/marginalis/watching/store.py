"""The files of a watch: the population with which it goes on, and the table of its points.

The file of the population is an ``.npz`` archive of plain arrays, one model with its usual keys among them, and is read
without pickles. Both files are written whole or not at all.
"""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..answers.carried import Carried, Origin
from ..answers.history import Point
from ..checks import Array, reading, real_array, shown
from ..files.archive import Header, read_arrays
from ..files.atomic import write_whole
from ..files.npz import arrays_of, load
from ..models.model import MRF
from ..results.record import Record
from .follow import Followed, Gap

POPULATION, TABLE, FIGURE = "watch.npz", "watch.csv", "watch.png"
_VERSION = 1
_ARRAYS = ("watch_states", "watch_log_weights", "watch_results", "watch_pilots")
_TEXT = "watch"  # Key of the JSON text with all other values.


class Stored(NamedTuple):
    """What a watch needs to go on: its settings, the points so far, and the population."""

    settings: dict[str, Any]
    points: tuple[Point, ...]
    followed: Followed


def write_population(path: Path, stored: Stored) -> None:
    """Write the file of the population."""
    found = stored.followed
    if found.carried.model.has_terms:
        raise ValueError(f"{path} is not written: models with factors of three or more variables have no such file")
    carried, origin = found.carried, found.carried.origin
    plain = {
        "version": _VERSION,
        "settings": stored.settings,
        "points": [_without_nan(point.to_plain()) for point in stored.points],
        "origin": {
            "log_z0": origin.log_z0,
            "unseen": origin.unseen,
            "runs": [list(run) for run in origin.record.runs],
            "provenance": origin.record.to_plain(),
        },
        "models": carried.models,
        "steps": carried.steps,
        "updates": found.updates,
        "tolerance": found.tolerance,
        "gap": found.gap and list(found.gap),
        "spent": found.spent,
        "careful": found.careful,
    }
    arrays = arrays_of(carried.model)
    arrays["watch_log_weights"], arrays["watch_results"] = carried.log_weights, carried.results
    arrays["watch_states"], arrays["watch_pilots"] = _small(carried.states), _small(carried.pilots)
    arrays[_TEXT] = json.dumps(plain, allow_nan=False)
    write_whole(path, lambda file: np.savez(file, **arrays))


def read_population(path: Path) -> Stored:
    """Read the file of the population; raise a ValueError that names the problem if it is not valid."""
    with reading("file of a watch", path):
        arrays = read_arrays(path, _ARRAYS, (_TEXT,), _check)
        try:
            plain = json.loads(str(arrays[_TEXT]))
            if plain["version"] != _VERSION:
                raise ValueError(f"has format version {shown(plain['version'])}; this package reads {_VERSION}")
            given = plain["origin"]
            record = Record.from_plain(given["provenance"], given["runs"])
            origin = Origin(float(given["log_z0"]), float(given["unseen"]), record)
            points = tuple(Point.from_plain(_with_nan(point)) for point in plain["points"])
            gap = None if plain["gap"] is None else Gap(int(plain["gap"][0]), *map(float, plain["gap"][1:]))
            numbers = [int(plain[name]) for name in ("models", "steps", "updates", "careful")]
            amounts = [float(plain[name]) for name in ("tolerance", "spent")]
            settings = dict(plain["settings"])
        except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise ValueError(f"lacks a part of a watch, or has a wrong one: {error}") from None
    model = load(path)
    if not isinstance(model, MRF):
        raise ValueError(f"{path} is not a file of a watch: it holds a model of factors")
    states, log_weights, results, pilots = (real_array(arrays[key], key, None) for key in _ARRAYS)
    if not len(states) == len(log_weights) == record.chains or states.shape[1] != pilots.shape[1]:
        raise ValueError(f"{path} is not a file of a watch: its arrays do not fit together")
    carried = Carried(origin, model, numbers[0], numbers[1], states, log_weights, results, pilots)
    found = Followed(carried, numbers[2], amounts[0], gap, amounts[1], careful=numbers[3])
    return Stored(settings, points, found)


def write_table(path: Path, points: tuple[Point, ...]) -> None:
    """Write the points as CSV, one line each; a note has no line breaks."""
    text = io.StringIO()
    rows = [point.columns() for point in points]
    names = list(dict.fromkeys(name for row in rows for name in row))
    tail = ("source", "annealing_steps", "seconds", "note")
    writer = csv.DictWriter(text, [*(x for x in names if x not in tail), *tail], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        row["seconds"] = round(row["seconds"], 3)
        row["note"] = " ".join(row["note"].split())
        writer.writerow({k: "" if isinstance(x, float) and math.isnan(x) else x for k, x in row.items()})
    data = text.getvalue().encode()
    write_whole(path, lambda file: file.write(data))


def _small(states: Array) -> Any:
    """Return states in one byte each if that is exact."""
    with np.errstate(invalid="ignore"):
        small = states.astype(np.int8)
    return small if np.array_equal(small, states) else states


def _check(headers: dict[str, Header]) -> None:
    for key in (*_ARRAYS, _TEXT):
        if key not in headers:
            raise ValueError(f"lacks the key {key!r}")
    for key, dimensions in zip(_ARRAYS, (2, 1, 1, 2), strict=True):
        if len(headers[key].shape) != dimensions:
            raise ValueError(f"{key} has {len(headers[key].shape)} dimensions; it must have {dimensions}")


def _without_nan(value: Any) -> Any:
    """Return JSON data in which texts stand for numbers that are not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, dict):
        return {key: _without_nan(x) for key, x in value.items()}
    return [_without_nan(x) for x in value] if isinstance(value, list | tuple) else value


def _with_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return float(value["float"]) if set(value) == {"float"} else {key: _with_nan(x) for key, x in value.items()}
    return [_with_nan(x) for x in value] if isinstance(value, list) else value
