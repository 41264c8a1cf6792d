"""Model files: ``.npz`` archives of plain arrays, read without pickles and with size checks."""

from __future__ import annotations

import io
import math
import os
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..checks import csr_fits, memory, one_line, open_file, reading, shown
from ..models.model import MRF, Grid, Layers, Split
from ..models.units import Gaussian, parse_units
from .files import write_whole

VERSION = 1
MAX_BYTES = 8 << 30  # of all arrays of a file, uncompressed; and no more than a share of the memory
_SHARE = 8  # what is made from the arrays takes several times their size
_EXPANSION = 100  # of a large compressed file: one that grows by more holds next to nothing
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


def save(model: MRF, path: str | Path) -> None:
    """Write a model file; the path holds either the whole file or what it held before."""
    if not isinstance(model, MRF):
        raise ValueError(f"model is a {type(model).__name__}; it must be a MRF")
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is {shown(path)}; it must name a file")
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


def load(path: str | Path) -> MRF:
    """Read a model file. Raises a ValueError that says what is wrong with it."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is {shown(path)}; it must name a model file")
    with reading("model file", path):
        arrays = _read_arrays(path)
        version = _scalar(arrays, "version", VERSION)
        if version != VERSION:
            raise ValueError(f"has format version {version:g}; this package reads version {VERSION}")
        weights = _read_weights(arrays)
        biases = arrays["visible_bias"], arrays["hidden_bias"]
        words = [str(arrays.get(f"{side}_units", "spin")) for side in ("visible", "hidden")]
        visible, hidden = (
            parse_units(
                word, np.size(b), arrays.get(f"{side}_precision") if word == "gaussian" else None, f"{side}_units"
            )
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
        )


class _Header(NamedTuple):
    """What an array in a file says about itself."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: Any

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.itemsize


def _limit() -> int:
    return min(MAX_BYTES, memory() // _SHARE)


def _read_arrays(path: str | Path, data_only: bool = False) -> dict[str, Any]:
    """Read the arrays that we know, after comparing all their headers with each other and with the archive."""
    with open_file(path, _limit()) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = {name.removesuffix(".npy"): archive.getinfo(name) for name in archive.namelist()}
                keys = ("data",) if data_only else (*_NUMBERS, *_WORDS)
                headers = {key: _header(archive, key, members[key]) for key in keys if key in members}
                _check_sizes(headers, os.fstat(file.fileno()).st_size)
                if not data_only:
                    _check_shapes(headers)
                return {key: _member(archive, key, members[key]) for key in headers}
        except (ValueError, OSError, MemoryError):
            raise
        except Exception as error:  # zip, deflate and header parsers each fail in their own ways
            raise ValueError(f"is not a readable npz archive ({error})") from None


def _header(archive: zipfile.ZipFile, key: str, info: zipfile.ZipInfo) -> _Header:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"key {key!r} is compressed in another way than NumPy does it")
    with archive.open(info) as file:
        return _read_header(file, key, info.file_size)


def _member(archive: zipfile.ZipFile, key: str, info: zipfile.ZipInfo) -> Any:
    with archive.open(info) as file:
        return _read_array(file, key, info.file_size)


def _check_sizes(headers: dict[str, _Header], file_size: int) -> None:
    """Refuse arrays that would not fit, and archives that are small only because they hold the same over again."""
    sizes = {key: max(x.bytes, 8 * x.size) for key, x in headers.items()}
    total = sum(sizes.values())
    if total > _limit():
        raise ValueError(f"holds {total / 2**30:.1f} GiB of arrays; the limit is {_limit() / 2**30:.1f} GiB")
    variables = sum(sizes.get(key, 0) for key in ("visible_bias", "hidden_bias"))  # which cost more than weights
    if total > _EXPANSION * file_size and (total > 64 << 20 or variables > 4 << 20):
        raise ValueError(f"expands to {total / 2**20:.0f} MiB, over {_EXPANSION} times its size: save it uncompressed")


def _check_shapes(headers: dict[str, _Header]) -> None:
    """Compare the shapes that the headers claim with each other."""
    sparse = [key for key in _SPARSE if key in headers]
    if "weights" in headers and sparse:
        raise ValueError(f"holds both 'weights' and {sparse[0]!r}")
    needed = _SPARSE if sparse else ("weights",)
    for key in (*needed, "visible_bias", "hidden_bias"):
        if key not in headers:
            raise ValueError(f"lacks the key {key!r}")
    shape = {key: header.shape for key, header in headers.items()}
    for key in ("visible_bias", "hidden_bias"):
        if len(shape[key]) != 1:
            raise ValueError(f"{key} has {len(shape[key])} dimensions; it must have 1")
    (rows,), (columns,) = shape["visible_bias"], shape["hidden_bias"]
    if sparse:
        entries = shape["weights_data"]
        wanted = (entries, entries, (rows + 1,), (2,))
        if len(entries) != 1 or any(shape[key] != x for key, x in zip(_SPARSE, wanted, strict=True)):
            raise ValueError("the arrays of the sparse weights do not fit together, or not the biases")
    elif len(shape["weights"]) != 2:
        raise ValueError(f"weights has {len(shape['weights'])} dimensions; it must have 2")
    else:
        for key, n, length, what in (
            ("visible_bias", rows, shape["weights"][0], "rows"),
            ("hidden_bias", columns, shape["weights"][1], "columns"),
        ):
            if n != length:
                raise ValueError(f"{key} has length {n}, but weights has {length} {what}")
    for key in ("temperature", "offset", "version"):
        if key in headers and headers[key].size != 1:
            raise ValueError(f"key {key!r} must hold one number")
    for key, n in (*zip(_PRECISIONS, (rows, columns), strict=True), *zip(_WORDS, (rows, columns), strict=True)):
        if key in _PRECISIONS and key in headers and headers[key].size > max(1, n):
            raise ValueError(f"{key}: there are {headers[key].size} precisions for {n} variables")
        if key in _WORDS and key in headers and (headers[key].size != 1 or headers[key].bytes > 4096 + 64 * n):
            raise ValueError(f"key {key!r} must hold one word")
    for key, n in zip(_CALLERS, (rows, columns, 64, 64, rows + columns), strict=True):
        if key in headers and (len(shape[key]) != 1 or headers[key].size > n):
            raise ValueError(f"key {key!r} must list at most {n} numbers")


def _read_header(file: IO[bytes], key: str, size: int) -> _Header:
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError("unknown version")
        read_header = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
        header = _Header(*read_header(file))
        if not all(type(n) is int and n >= 0 for n in header.shape) or len(header.shape) > 32:
            raise ValueError("bad shape")
    except Exception:  # the header is Python source from a stranger, and its parser raises all sorts of errors
        raise ValueError(f"key {key!r} is not a valid array") from None
    dtype = header.dtype
    if dtype.hasobject:
        raise ValueError(f"key {key!r} holds pickled objects, which are refused")
    if dtype.kind not in ("SU" if key in _WORDS else "fiub") or dtype.itemsize == 0:
        wanted = "text" if key in _WORDS else "real numbers"
        raise ValueError(f"key {key!r} has dtype {one_line(dtype, 80)}; it must hold {wanted}")
    if header.bytes > size:
        raise ValueError(f"key {key!r} is shorter than its header says")
    return header


def _read_array(file: IO[bytes], key: str, size: int) -> Any:
    header = _read_header(file, key, size)
    data = file.read(header.bytes)
    if len(data) < header.bytes:
        raise ValueError(f"key {key!r} is shorter than its header says")
    array = np.frombuffer(data, dtype=header.dtype).reshape(header.shape, order="F" if header.fortran else "C")
    if key in _WORDS:
        word = array.reshape(-1)[0]
        return word.decode("ascii", "replace") if isinstance(word, bytes) else word
    return array


def _read_weights(arrays: dict[str, Any]) -> Any:
    if "weights" in arrays:
        return arrays["weights"]
    data, indices, indptr, shape = (arrays[key] for key in _SPARSE)
    if any(x.dtype.kind not in "iu" for x in (indices, indptr, shape)):
        raise ValueError("weights_indices, weights_indptr and weights_shape must be integers")
    rows, columns = (int(x) for x in shape)
    if not csr_fits(len(data), indices, indptr, (rows, columns)):  # before SciPy, which would trust them
        raise ValueError("the arrays of the sparse weights do not fit together")
    with np.errstate(all="ignore"):
        return sp.csr_array((data.astype(np.float64), indices, indptr), shape=(rows, columns))


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
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is {shown(path)}; it must name a data file")
    kind = Path(path).suffix.lower()
    with reading("data file", path):
        if kind not in (".npy", ".npz", ".csv"):
            raise ValueError("its name must end in .npy, .npz or .csv")
        if kind == ".npz":
            arrays = _read_arrays(path, data_only=True)
            if "data" not in arrays:
                raise ValueError("lacks the key 'data'")
            table = arrays["data"]
        else:
            with open_file(path, _limit()) as file:
                table = _read_array(file, "data", os.fstat(file.fileno()).st_size) if kind == ".npy" else _table(file)
        if table.ndim != 2:
            raise ValueError(f"the array has {table.ndim} dimensions; it must have 2, samples x features")
        if table.size == 0:
            raise ValueError("the table is empty")
        return table


def _table(file: IO[bytes]) -> Any:
    with io.TextIOWrapper(file, encoding="utf-8-sig") as text, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the file is empty is an error of its own
        return np.loadtxt(text, delimiter=",", ndmin=2)
