"""Model files: ``.npz`` archives of plain arrays, read without pickles and with size checks."""

from __future__ import annotations

import math
import os
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from .files import write_whole
from .models import BipartiteMRF, Grid, Layers, Split
from .units import Gaussian, parse_units

VERSION = 1
MAX_BYTES = 8 << 30  # of all arrays of a model file, uncompressed
_SPARSE = ("weights_data", "weights_indices", "weights_indptr", "weights_shape")
_WORDS = ("visible_units", "hidden_units")
_PRECISIONS = ("visible_precision", "hidden_precision")
_CALLERS = (
    "split_visible",
    "split_hidden",
    "grid_shape",
    "grid_periodic",
    "layer_sizes",
)  # beyond the contract
_NUMBERS = (
    *("weights", "visible_bias", "hidden_bias", "temperature", "offset", "version"),
    *_SPARSE,
    *_PRECISIONS,
    *_CALLERS,
)


def save(model: BipartiteMRF, path: str | Path) -> None:
    """Write a model file; the path holds either the whole file or what it held before."""
    if not isinstance(model, BipartiteMRF):
        raise ValueError(f"model is a {type(model).__name__}; it must be a BipartiteMRF")
    arrays: dict[str, Any] = {
        "version": VERSION,
        "visible_bias": model.visible_bias,
        "hidden_bias": model.hidden_bias,
        "visible_units": model.visible_units.name,
        "hidden_units": model.hidden_units.name,
        "temperature": model.temperature,
        "offset": model.offset,
        "split_visible": model.split.visible,
        "split_hidden": model.split.hidden,
    }
    for key, units in zip(_PRECISIONS, (model.visible_units, model.hidden_units), strict=True):
        if isinstance(units, Gaussian):
            arrays[key] = units.gamma
    if isinstance(model.layout, Grid):
        arrays |= {"grid_shape": model.layout.shape, "grid_periodic": model.layout.periodic}
    elif isinstance(model.layout, Layers):
        arrays["layer_sizes"] = model.layout.sizes
    w = model.weights
    if sp.issparse(w):
        arrays.update(zip(_SPARSE, (w.data, w.indices, w.indptr, w.shape), strict=True))
    else:
        arrays["weights"] = w
    write_whole(path, lambda file: np.savez(file, **arrays))


def load(path: str | Path) -> BipartiteMRF:
    """Read a model file. Raises a ValueError that says what is wrong with it."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is {path!r}; it must name a model file")
    try:
        arrays = _read_arrays(path)
        version = _scalar(arrays, "version", VERSION)
        if version != VERSION:
            raise ValueError(f"has format version {version:g}; this package reads version {VERSION}")
        weights = _read_weights(arrays)
        for key in ("visible_bias", "hidden_bias"):
            if key not in arrays:
                raise ValueError(f"lacks the key {key!r}")
        biases = arrays["visible_bias"], arrays["hidden_bias"]
        words = [str(arrays.get(f"{side}_units", "spin")) for side in ("visible", "hidden")]
        visible, hidden = (
            parse_units(
                word, np.size(b), arrays.get(f"{side}_precision") if word == "gaussian" else None, f"{side}_units"
            )
            for word, side, b in zip(words, ("visible", "hidden"), biases, strict=True)
        )
        return BipartiteMRF(
            weights,
            *biases,
            visible,
            hidden,
            _scalar(arrays, "temperature", 1.0),
            _scalar(arrays, "offset", 0.0),
            _read_split(arrays),  # type: ignore[arg-type]
            _read_layout(arrays),
        )
    except OSError as error:
        raise ValueError(f"cannot read model file {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"model file {path}: {error}") from None


def _read_arrays(path: str | Path, keys: tuple[str, ...] = (*_NUMBERS, *_WORDS)) -> dict[str, Any]:
    """Read those of `keys` that are there, after checking each member's header against its size in the archive."""
    arrays: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            known = [key for key in keys if key in members]
            total = sum(archive.getinfo(members[key]).file_size for key in known)
            if total > MAX_BYTES:
                raise ValueError(f"holds {total / 2**30:.1f} GiB of arrays; the limit is {MAX_BYTES >> 30} GiB")
            for key in known:
                with archive.open(members[key]) as file:
                    arrays[key] = _read_array(file, key, archive.getinfo(members[key]).file_size)
    except (ValueError, OSError, MemoryError):
        raise
    except Exception as error:  # zip, deflate and header parsers each fail in their own ways
        raise ValueError(f"is not a readable npz archive ({error})") from None
    return arrays


def _read_array(file: IO[bytes], key: str, size: int) -> Any:
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError("unknown version")
        read_header = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
        shape, fortran, dtype = read_header(file)
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError("bad shape")
    except Exception:  # the header is Python source from a stranger, and its parser raises all sorts of errors
        raise ValueError(f"key {key!r} is not a valid array") from None
    if dtype.hasobject:
        raise ValueError(f"key {key!r} holds pickled objects, which are refused")
    if dtype.kind not in ("SU" if key in _WORDS else "fiub"):
        raise ValueError(f"key {key!r} has dtype {dtype}; it must hold {'text' if key in _WORDS else 'real numbers'}")
    if math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"key {key!r} is shorter than its header says")
    data = file.read(math.prod(shape) * dtype.itemsize)
    array = np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")
    if key in _WORDS:
        if array.size != 1:
            raise ValueError(f"key {key!r} must hold one word")
        word = array.reshape(-1)[0]
        return word.decode("ascii", "replace") if isinstance(word, bytes) else word
    return array


def _read_weights(arrays: dict[str, Any]) -> Any:
    sparse = [key for key in _SPARSE if key in arrays]
    if "weights" in arrays:
        if sparse:
            raise ValueError(f"holds both 'weights' and {sparse[0]!r}")
        return arrays["weights"]
    if not sparse:
        raise ValueError("lacks the key 'weights'")
    missing = [key for key in _SPARSE if key not in arrays]
    if missing:
        raise ValueError(f"lacks the key {missing[0]!r}")
    data, indices, indptr, shape = (arrays[key] for key in _SPARSE)
    if any(x.ndim != 1 for x in (data, indices, indptr, shape)) or len(shape) != 2:
        raise ValueError("the arrays of the sparse weights do not fit together")
    if any(x.dtype.kind not in "iu" for x in (indices, indptr, shape)):
        raise ValueError("weights_indices, weights_indptr and weights_shape must be integers")
    try:
        matrix = sp.csr_array((data, indices, indptr), shape=tuple(int(x) for x in shape))
        matrix.check_format(full_check=True)
    except (ValueError, IndexError, OverflowError) as error:
        raise ValueError(f"the arrays of the sparse weights do not fit together ({error})") from None
    return matrix


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
        return Grid(numbers["grid_shape"], tuple(bool(x) for x in numbers["grid_periodic"]))
    return Layers(numbers["layer_sizes"]) if "layer_sizes" in numbers else None


def _scalar(arrays: dict[str, Any], key: str, default: float) -> float:
    value = arrays.get(key, default)
    if np.size(value) != 1:
        raise ValueError(f"key {key!r} must hold one number")
    return float(np.reshape(value, -1)[0])


def load_data(path: str | Path) -> Any:
    """Read a table, one sample per row: ``.npy``, ``.npz`` with the key ``data``, or ``.csv`` text."""
    path, kind = Path(path), Path(path).suffix.lower()
    try:
        if kind not in (".npy", ".npz", ".csv"):
            raise ValueError("its name must end in .npy, .npz or .csv")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ValueError(f"holds {size / 2**30:.1f} GiB; the limit is {MAX_BYTES >> 30} GiB")
        if kind == ".npz":
            arrays = _read_arrays(path, ("data",))
            if "data" not in arrays:
                raise ValueError("lacks the key 'data'")
            table = arrays["data"]
        elif kind == ".npy":
            with open(path, "rb") as file:
                table = _read_array(file, "data", size)
        else:
            with open(path, encoding="utf-8-sig") as text, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the file is empty is an error, below
                table = np.loadtxt(text, delimiter=",", ndmin=2)
        if table.ndim != 2:
            raise ValueError(f"the array has {table.ndim} dimensions; it must have 2, samples x features")
        if table.size == 0:
            raise ValueError("the table is empty")
        return table
    except OSError as error:
        raise ValueError(f"cannot read data file {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"data file {path}: {error}") from None
