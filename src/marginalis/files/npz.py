"""The package's own model files: ``.npz`` archives of plain arrays, read without pickles and with size checks."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import a_kind, csr_fits, reading, shown
from ..models.factors import FactorModel
from ..models.forms import Grid, Layers, Split
from ..models.model import MRF
from ..models.units import PARAMETERS, RECTIFIED, Rectified, ReLU, Units, parse_units
from .archive import Header, read_arrays
from .atomic import write_whole
from .npz_factors import KEYS, VERSION, arrays_of_factors, check_factors, read_factors

# Versions of the format; version 2 has couplings between visible variables, or labels, and version 3 has factors.
VERSIONS = 1, 2, VERSION
_SPARSE = ("weights_data", "weights_indices", "weights_indptr", "weights_shape")
_BIASES = ("visible_bias", "hidden_bias")
_LATERAL = ("lateral_data", "lateral_indices", "lateral_indptr")
_WORDS = ("visible_units", "hidden_units", "labels")
_PRECISIONS = ("visible_precision", "hidden_precision")
_RECTIFIED = tuple(f"{side}_{name}" for side in ("visible", "hidden") for name in ("gamma", *PARAMETERS))
_CALLERS = (
    "split_visible",
    "split_hidden",
    "grid_shape",
    "grid_periodic",
    "layer_sizes",
    "grid_triangular",
)  # These keys are optional.
_NUMBERS = (
    *("weights", "visible_bias", "hidden_bias", "temperature", "offset", "version"),
    *_SPARSE,
    *_LATERAL,
    "lateral",
    *_PRECISIONS,
    *_RECTIFIED,
    *_CALLERS,
    *KEYS,
)


def save(model: MRF | FactorModel, path: str | Path) -> None:
    """Write a model file, either whole or not at all."""
    if not isinstance(model, MRF | FactorModel):
        raise ValueError(f"model is {a_kind(model)}; it must be an MRF or a FactorModel")
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is {shown(path)}; it must name a file")
    arrays = arrays_of(model)
    write_whole(path, lambda file: np.savez(file, **arrays))


def arrays_of(model: MRF | FactorModel) -> dict[str, Any]:
    """Return the keys and arrays of the file of a model."""
    if isinstance(model, FactorModel):
        labels = {} if isinstance(model.labels, range) else {"labels": _labels_as_text(model.labels)}
        return arrays_of_factors(model) | labels
    arrays: dict[str, Any] = {
        "version": VERSIONS[0],
        "visible_bias": model.visible_bias,
        "hidden_bias": model.hidden_bias,
        "visible_units": model.visible_units.name,
        "hidden_units": model.hidden_units.name,
        "temperature": model.temperature,
        "offset": model.offset,
        "split_visible": model.split.visible,
        "split_hidden": model.split.hidden,
    }
    for side, units in (("visible", model.visible_units), ("hidden", model.hidden_units)):
        arrays |= {f"{side}_{name}": values for name, values in units.parameters.items()}
        if units.name in RECTIFIED:
            arrays["version"] = VERSIONS[1]
    if isinstance(model.layout, Grid):
        arrays |= {"grid_shape": model.layout.shape, "grid_periodic": model.layout.periodic}
        if model.layout.triangular:
            arrays["grid_triangular"] = [True]
    elif isinstance(model.layout, Layers):
        arrays["layer_sizes"] = model.layout.sizes
    w = model.weights
    if sp.issparse(w):
        arrays.update(zip(_SPARSE, (w.data, w.indices, w.indptr, w.shape), strict=True))
    else:
        arrays["weights"] = w
    if model.lateral is not None:
        inside = model.lateral
        sparse = zip(_LATERAL, (inside.data, inside.indices, inside.indptr), strict=True) if sp.issparse(inside) else ()
        arrays |= {"version": VERSIONS[1], **(dict(sparse) or {"lateral": inside})}
    if not isinstance(model.labels, range):
        arrays |= {"version": VERSIONS[1], "labels": _labels_as_text(model.labels)}
    return arrays


def load(path: str | Path) -> MRF | FactorModel:
    """Read a model file; raise a ValueError that names the problem if it is not valid."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is {shown(path)}; it must name a model file")
    with reading("model file", path):
        arrays = read_arrays(path, _NUMBERS, _WORDS, _check_shapes)
        version = _scalar(arrays, "version", VERSIONS[0])
        if version not in VERSIONS:
            raise ValueError(f"has format version {version:g}; this package reads versions 1, 2 and 3")
        if KEYS[0] in arrays:
            return read_factors(arrays, _scalar(arrays, "offset", 0.0), _read_labels(arrays))
        weights = _read_weights(arrays)
        biases = arrays["visible_bias"], arrays["hidden_bias"]
        words = [str(arrays.get(f"{side}_units", "spin")) for side in ("visible", "hidden")]
        visible, hidden = (
            _read_units(word, side, np.size(b), arrays)
            for word, side, b in zip(words, ("visible", "hidden"), biases, strict=True)
        )
        return MRF(
            weights,
            *biases,
            visible,
            hidden,
            _scalar(arrays, "temperature", 1.0),
            _scalar(arrays, "offset", 0.0),
            _read_split(arrays),  # type: ignore[arg-type]
            _read_layout(arrays),
            lateral=_read_lateral(arrays),
            labels=_read_labels(arrays),
        )


def _read_units(word: str, side: str, features: int, arrays: dict[str, Any]) -> Units:
    """Return the kind of a side from its name and its parameters in the file."""
    if word in RECTIFIED:
        given = {x: arrays[f"{side}_{x}"] for x in ("gamma", *PARAMETERS) if f"{side}_{x}" in arrays}
        wanted = ("gamma",) if "gamma" in given else PARAMETERS
        if tuple(given) != wanted:
            raise ValueError(f"{side}_units is {word!r}; it needs the keys {', '.join(f'{side}_{x}' for x in wanted)}")
        units = ReLU(**given) if "gamma" in given else Rectified(*(tuple(x.ravel().tolist()) for x in given.values()))
        units.check(features, f"{side}_units")
        return units
    return parse_units(word, features, arrays.get(f"{side}_precision") if word == "gaussian" else None, f"{side}_units")


def _check_shapes(headers: dict[str, Header]) -> None:
    """Raise a ValueError if the shapes in the headers do not agree with each other."""
    if any(key in headers for key in KEYS):
        check_factors(headers)
        return
    sparse = [key for key in _SPARSE if key in headers]
    if "weights" in headers and sparse:
        raise ValueError(f"holds both 'weights' and {sparse[0]!r}")
    needed = _SPARSE if sparse else ("weights",)
    for key in (*needed, *_BIASES):
        if key not in headers:
            other = "weights" if sparse else f"{', '.join(_SPARSE)} of a sparse matrix"
            raise ValueError(
                f"lacks the key {key!r}; a model has {', '.join(needed)} (or {other}), {', '.join(_BIASES)}"
            )
    shape = {key: header.shape for key, header in headers.items()}
    for key in ("visible_bias", "hidden_bias"):
        if len(shape[key]) != 1:
            raise ValueError(f"{key} has {len(shape[key])} dimensions; it must have 1")
    (rows,), (columns,) = shape["visible_bias"], shape["hidden_bias"]
    if sparse:
        entries = shape["weights_data"]
        wanted = (entries, entries, (rows + 1,), (2,))
        if len(entries) != 1 or any(shape[key] != x for key, x in zip(_SPARSE, wanted, strict=True)):
            raise ValueError("the arrays of the sparse weights are inconsistent with each other or with the biases")
    elif len(shape["weights"]) != 2:
        raise ValueError(f"weights has {len(shape['weights'])} dimensions; it must have 2")
    else:
        for key, n, length, what in (
            ("visible_bias", rows, shape["weights"][0], "rows"),
            ("hidden_bias", columns, shape["weights"][1], "columns"),
        ):
            if n != length:
                raise ValueError(f"{key} has length {n}, but weights has {length} {what}")
    for key in _RECTIFIED:
        n = rows if key.startswith("visible") else columns
        if key in headers and headers[key].size not in (1, n):
            raise ValueError(f"{key} has {headers[key].size} numbers; it must have 1 or {n}")
    for key in ("temperature", "offset", "version"):
        if key in headers and headers[key].size != 1:
            raise ValueError(f"key {key!r} must hold one number")
    inside = [key for key in _LATERAL if key in headers]
    if "lateral" in headers and (inside or shape["lateral"] != (rows, rows)):
        raise ValueError(f"lateral has shape {shape['lateral']}; the visible biases need {(rows, rows)}, given once")
    if inside and (
        len(inside) < 3
        or len(shape["lateral_data"]) != 1
        or shape["lateral_indices"] != shape["lateral_data"]
        or shape["lateral_indptr"] != (rows + 1,)
    ):
        raise ValueError("the arrays of the lateral couplings are inconsistent with each other or with the biases")
    if "labels" in headers and (headers["labels"].size != 1 or headers["labels"].bytes > 4096 * (rows + columns + 1)):
        raise ValueError("key 'labels' must hold one text, a JSON list")
    for key, n in (*zip(_PRECISIONS, (rows, columns), strict=True), *zip(_WORDS[:2], (rows, columns), strict=True)):
        if key in _PRECISIONS and key in headers and headers[key].size > max(1, n):
            raise ValueError(f"{key}: there are {headers[key].size} precisions for {n} variables")
        if key in _WORDS[:2] and key in headers and (headers[key].size != 1 or headers[key].bytes > 4096 + 64 * n):
            raise ValueError(f"key {key!r} must hold one word")
    for key, n in zip(_CALLERS, (rows, columns, 64, 64, rows + columns, 1), strict=True):
        if key in headers and (len(shape[key]) != 1 or headers[key].size > n):
            raise ValueError(f"key {key!r} must list at most {n} numbers")


def _read_weights(arrays: dict[str, Any]) -> Any:
    if "weights" in arrays:
        return arrays["weights"]
    data, indices, indptr, shape = (arrays[key] for key in _SPARSE)
    if shape.dtype.kind not in "iu":
        raise ValueError("weights_shape must be integers")
    return _csr("weights", data, indices, indptr, (int(shape[0]), int(shape[1])))


def _read_lateral(arrays: dict[str, Any]) -> Any:
    if "lateral_data" not in arrays:
        return arrays.get("lateral")
    rows = len(arrays["visible_bias"])
    data, indices, indptr = (arrays[key] for key in _LATERAL)
    return _csr("lateral", data, indices, indptr, (rows, rows))


def _csr(name: str, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
    if any(x.dtype.kind not in "iu" for x in (indices, indptr)):
        raise ValueError(f"{name}_indices and {name}_indptr must be integers")
    if not csr_fits(len(data), indices, indptr, shape):  # SciPy does not check the indices.
        raise ValueError(f"the arrays of the sparse {name} do not fit together")
    with np.errstate(all="ignore"):
        return sp.csr_array((data.astype(np.float64), indices, indptr), shape=shape)


def _labels_as_text(labels: Sequence[Any]) -> str:
    """Return labels as JSON, with tuples as lists."""
    try:
        text = json.dumps(list(labels), default=_plain, allow_nan=False)
        if _from_json(json.loads(text)) != tuple(labels):
            raise ValueError
    except (TypeError, ValueError, RecursionError):
        raise ValueError("labels must be numbers, texts or tuples of them to be written to a file") from None
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError


def _read_labels(arrays: dict[str, Any]) -> Any:
    if "labels" not in arrays:
        return None
    try:
        labels = _from_json(json.loads(str(arrays["labels"])))
        hash(labels)
    except (ValueError, TypeError, RecursionError):
        raise ValueError("key 'labels' is not a JSON list of numbers and texts") from None
    if not isinstance(labels, tuple):
        raise ValueError("key 'labels' is not a JSON list")
    return labels


def _from_json(value: Any) -> Any:
    return tuple(map(_from_json, value)) if isinstance(value, list) else value


def _read_split(arrays: dict[str, Any]) -> Split | None:
    given = {"split_visible", "split_hidden"} & set(arrays)
    if len(given) == 1:
        raise ValueError(f"holds the key {given.pop()!r} without its counterpart")
    if not given:
        return None
    sides = arrays["split_visible"], arrays["split_hidden"]
    if any(side.dtype.kind not in "iu" or side.ndim != 1 for side in sides):
        raise ValueError("split_visible and split_hidden must list whole numbers")
    return Split(*(side.astype(np.int64) for side in sides))


def _read_layout(arrays: dict[str, Any]) -> Grid | Layers | None:
    for key in _CALLERS[2:]:
        if key in arrays and arrays[key].dtype.kind not in "iub":
            raise ValueError(f"key {key!r} must hold whole numbers")
    numbers = {key: tuple(int(x) for x in np.ravel(arrays[key])) for key in _CALLERS[2:] if key in arrays}
    if "grid_shape" in numbers and "grid_periodic" in numbers:
        triangular = any(numbers.get("grid_triangular", ()))
        return Grid(numbers["grid_shape"], tuple(bool(x) for x in numbers["grid_periodic"]), triangular)
    return Layers(numbers["layer_sizes"]) if "layer_sizes" in numbers else None


def _scalar(arrays: dict[str, Any], key: str, default: float) -> float:
    value = arrays.get(key, default)
    if np.size(value) != 1:
        raise ValueError(f"key {key!r} must hold one number")
    return float(np.reshape(value, -1)[0])
