"""Files of results: ``.npz`` archives of log-weights and their provenance, read without pickles.

The keys are `version`, `kind`, `log_weights`, `log_z0`, `runs` (rows of seed, first chain, number of chains),
`provenance` (JSON with the rest of the record), `summary` (JSON with the answer, for other readers), and three keys of
the curve along the path if it was recorded.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..checks import Array, real_array, real_number, shown
from .archive import Header, read_arrays
from .atomic import write_whole

VERSION = 1
KIND = "estimate"
_CURVE = ("curve_betas", "curve_log_weights", "curve_log_z0")
_NEEDED = ("version", "kind", "log_weights", "log_z0", "runs", "provenance")
_DIMENSIONS = {"log_weights": 1, "runs": 2, "curve_betas": 1, "curve_log_weights": 2}
# Largest size of a text, in bytes.
_LONGEST = 64 << 20


class StoredEstimate(NamedTuple):
    """The content of a file of a result."""

    log_weights: Array
    log_z0: float
    runs: tuple[tuple[int, ...], ...]
    provenance: dict[str, Any]
    curve: tuple[Array, Array, float] | None  # These are β, log-weights [step, chain] and ln Z_0.


def write_result(path: str | Path, result: StoredEstimate, summary: str) -> None:
    """Write a file of a result, either whole or not at all."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is {shown(path)}; it must name a file")
    arrays: dict[str, Any] = {
        "version": VERSION,
        "kind": KIND,
        "log_weights": result.log_weights,
        "log_z0": result.log_z0,
        "runs": np.array(result.runs, dtype=np.uint64),
        "provenance": json.dumps(result.provenance, allow_nan=False),
        "summary": summary,
    }
    if result.curve is not None:
        arrays.update(zip(_CURVE, result.curve, strict=True))
    write_whole(path, lambda file: np.savez(file, **arrays))


def read_result(path: str | Path) -> StoredEstimate:
    """Read a file of a result; raise a ValueError that names the problem if it is not valid."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is {shown(path)}; it must name a result")
    tags = read_arrays(path, ("version",), ("kind",), _check_tags)  # Files of other kinds may have other keys.
    version = real_number(tags["version"].reshape(()), "version")
    if str(tags["kind"]) != KIND:
        raise ValueError(f"holds a result of kind {shown(str(tags['kind']))}; this package reads kind {KIND!r}")
    if version != VERSION:
        raise ValueError(f"has format version {version:g}; this package reads version {VERSION}")
    arrays = read_arrays(path, (*_DIMENSIONS, "log_z0", "curve_log_z0"), ("provenance",), _check_shapes)
    if arrays["runs"].dtype.kind not in "iu":
        raise ValueError("runs must be whole numbers")
    curve = None
    if _CURVE[0] in arrays:
        betas, log_weights = (real_array(arrays[key], key, None) for key in _CURVE[:2])
        curve = betas, log_weights, real_number(arrays[_CURVE[2]].reshape(()), _CURVE[2])
    return StoredEstimate(
        real_array(arrays["log_weights"], "log_weights", 1),
        real_number(arrays["log_z0"].reshape(()), "log_z0"),
        tuple(tuple(row) for row in arrays["runs"].tolist()),
        _object(str(arrays["provenance"])),
        curve,
    )


def packed(result: StoredEstimate) -> bytes:
    """Return a result without a curve as bytes, a line of JSON and the log-weights, for one of many in a database."""
    head = {"log_z0": result.log_z0, "runs": result.runs, "provenance": result.provenance}
    line = json.dumps(head, allow_nan=False).encode()
    return line + b"\n" + np.ascontiguousarray(result.log_weights, dtype="<f8").tobytes()


def unpacked(data: bytes) -> StoredEstimate:
    """Return the result in such bytes; raise a ValueError that names the problem if they are not valid."""
    line, _, numbers = data.partition(b"\n")
    head = _object(line.decode("utf-8", "replace"))
    runs = head.get("runs")
    if len(numbers) % 8 or not isinstance(runs, list) or not all(isinstance(x, list) and len(x) == 3 for x in runs):
        raise ValueError("the parts of a result do not fit together")
    if not isinstance(head.get("provenance"), dict):
        raise ValueError("a result lacks its provenance")
    log_weights = real_array(np.frombuffer(numbers, dtype="<f8"), "log_weights", 1)
    found = tuple(tuple(row) for row in runs)
    return StoredEstimate(log_weights, real_number(head.get("log_z0"), "log_z0"), found, head["provenance"], None)


def _check_tags(headers: dict[str, Header]) -> None:
    _check_keys(headers, ("version", "kind"))
    if headers["version"].size != 1 or headers["kind"].size != 1 or headers["kind"].bytes > 4096:
        raise ValueError("keys 'version' and 'kind' must hold one number and one word")


def _check_keys(headers: dict[str, Header], needed: tuple[str, ...]) -> None:
    for key in needed:
        if key not in headers:
            raise ValueError(f"lacks the key {key!r}; a result that can be read again has {', '.join(_NEEDED)}")


def _check_shapes(headers: dict[str, Header]) -> None:
    """Raise a ValueError if the shapes in the headers do not agree with each other."""
    curve = [key for key in _CURVE if key in headers]
    _check_keys(headers, (*_NEEDED[2:], *(_CURVE if curve else ())))
    for key, dimensions in _DIMENSIONS.items():
        if key in headers and len(headers[key].shape) != dimensions:
            raise ValueError(f"{key} has {len(headers[key].shape)} dimensions; it must have {dimensions}")
    for key in ("log_z0", "curve_log_z0"):
        if key in headers and headers[key].size != 1:
            raise ValueError(f"key {key!r} must hold one number")
    if headers["provenance"].size != 1 or headers["provenance"].bytes > _LONGEST:
        raise ValueError("key 'provenance' must hold one text, a JSON object")
    rows, columns = headers["runs"].shape
    if columns != 3 or not 1 <= rows <= headers["log_weights"].size:
        raise ValueError("runs must hold rows of a seed, a first chain and a number of chains")
    if curve and headers["curve_betas"].size != headers["curve_log_weights"].shape[0]:
        raise ValueError("the arrays of the curve do not fit together")


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError("key 'provenance' is not a JSON object")
    return found
