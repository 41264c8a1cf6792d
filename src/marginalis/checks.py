"""Validation of arguments: functions that return a valid value or raise a ValueError that names the argument."""

from __future__ import annotations

import contextlib
import difflib
import errno
import math
import operator
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[np.float64]
# Sums of parameters stay below this, so that differences of energies are finite.
LARGEST = float(np.finfo(np.float64).max) / 4.0
GPU_ENGINE = "cuda"  # The name in options of the engine that runs on a GPU.


def one_line(text: object, limit: int = 280) -> str:
    """Return text for a message: printable, on one line, shortened in the middle if it is long."""
    line = str(text)
    if len(line) > limit:
        line = f"{line[: limit - limit // 3 - 1]}…{line[-(limit // 3) :]}"
    return "".join(x if x.isprintable() else "?" for x in line)


def a_kind(value: object) -> str:
    """Return the type name of a value with its article, for instance "an int"."""
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeiouAEIOU' or name == 'MRF' else 'a'} {name}"


def shown(value: object) -> str:
    """Return the repr of any value, shortened for a message."""
    try:
        return one_line(repr(value), 80)
    except Exception:  # Python refuses the repr of an integer with too many digits.
        return a_kind(value)


def one_of(value: object, known: Sequence[str], argument: str) -> None:
    """Raise a ValueError that names the argument if `value` is not one of the known words."""
    if not (isinstance(value, str) and value in known):
        raise ValueError(
            f"{argument} is {shown(value)}; it must be one of {', '.join(known)}{did_you_mean(value, known)}"
        )


def needs_gpu(engine: object) -> bool:
    """Whether `engine` is the name of an engine that runs on a GPU."""
    return isinstance(engine, str) and engine == GPU_ENGINE


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return a question that suggests the known word closest to a misspelt one, or nothing if none is close."""
    found = closest(word, known)
    return "" if found is None else f"; did you mean {found!r}?"


def closest(word: object, known: Iterable[str]) -> str | None:
    """Return the known word that `word` resembles most, capitals, dashes and underscores aside, or None."""
    if not isinstance(word, str):
        return None
    plain = {_plain(x): x for x in known}
    found = difflib.get_close_matches(_plain(word[:80]), plain, n=1)
    return plain[found[0]] if found else None


def _plain(word: str) -> str:
    return word.lower().replace("_", "-").strip("- ")


def yes_or_no(value: object, argument: str, *, optional: bool = False) -> None:
    """Raise a ValueError that names the argument if `value` is neither True nor False (nor None, if `optional`)."""
    if not (isinstance(value, bool | np.bool_) or (optional and value is None)):
        words = "True, False or None" if optional else "True or False"
        raise ValueError(f"{argument} is {shown(value)}; it must be {words}")


def as_list(value: Any, argument: str, what: str) -> list[Any]:
    """Return the entries of `value` as a list, or raise a ValueError; `what` describes the valid values."""
    try:
        if sp.issparse(value) or isinstance(value, str | bytes):  # Their entries would be rows and letters.
            raise TypeError
        return list(value.tolist() if isinstance(value, np.ndarray) else value)
    except Exception:  # An iterator of the caller may raise anything.
        raise ValueError(f"{argument} is {shown(value)}; it must be {what}") from None


def whole(value: object, argument: str, low: int, high: int) -> int:
    """Return `value` as an int in [low, high], or raise a ValueError that names the argument."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        if not (isinstance(value, float | np.floating) and float(value).is_integer()):
            raise ValueError(f"{argument} is {shown(value)}; it must be a whole number") from None
        number = int(value)
    if isinstance(value, bool | np.bool_):
        raise ValueError(f"{argument} is {value!r}; it must be a whole number")
    if not low <= number <= high:
        bound = f"at least {low}" if number < low else f"at most {high}"
        raise ValueError(f"{argument} is {shown(value)}; it must be {bound}")
    return number


def plain_array(value: Any, argument: str) -> NDArray[Any]:
    """Return `value` as a NumPy array, without a copy if possible."""
    try:
        if np.ma.is_masked(value):
            raise ValueError("masked")
        if callable(getattr(value, "detach", None)):  # A torch tensor is detached from its graph and moved to the CPU.
            value = value.detach().cpu()
            value = value.float() if "bfloat16" in str(value.dtype) else value  # NumPy has no bfloat16.
        return np.asarray(value)
    except Exception as error:  # A foreign __array__ may raise anything.
        if str(error) == "masked":
            raise ValueError(f"{argument} has masked entries") from None
        raise ValueError(f"{argument} is not a rectangular array of numbers") from None


def real_array(value: object, argument: str, ndim: Literal[1, 2] | None) -> Array:
    """Return a read-only float64 copy of `value`, or raise a ValueError that names the argument."""
    array = plain_array(value, argument)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{argument} has dtype {one_line(array.dtype, 80)}; it must hold real numbers")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{argument} has {array.ndim} dimensions; it must have {ndim}")
    if array.size == 0:
        raise ValueError(f"{argument} is empty")
    with np.errstate(all="ignore"):  # A long double that overflows is detected below.
        array = np.array(array, dtype=np.float64, order="C")
    if not np.isfinite(array).all():
        raise ValueError(f"{argument} holds NaN or infinite values")
    return frozen(array)


def frozen(array: Any) -> Any:
    """Make an array, or those of a CSR matrix, read-only."""
    for part in (array.data, array.indices, array.indptr) if sp.issparse(array) else (array,):
        part.flags.writeable = False
    return array


def dense(matrix: Any) -> Any:
    """Return a matrix as an array; a sparse one is expanded."""
    return matrix.toarray() if sp.issparse(matrix) else matrix


def stored(matrix: Any) -> Any:
    """Return the entries of an array, or the stored entries of a sparse matrix."""
    return matrix.data if sp.issparse(matrix) else matrix


def real_number(value: Any, argument: str) -> float:
    """Return `value` as a finite float, or raise a ValueError that names the argument."""
    array = plain_array(value, argument)
    if array.ndim != 0 or array.dtype.kind not in "fiu":
        raise ValueError(f"{argument} is {shown(value)}; it must be one real number")
    with np.errstate(all="ignore"):
        number = float(array)
    if not math.isfinite(number):
        raise ValueError(f"{argument} is {number!r}; it must be finite")
    return number


def positive(value: Any, argument: str) -> float:
    """Return `value` as a finite positive float, or raise a ValueError that names the argument."""
    number = real_number(value, argument)
    if number <= 0.0:
        raise ValueError(f"{argument} is {shown(value)}; it must be positive")
    return number


def coupling_matrix(weights: Any, argument: str = "weights") -> Any:
    """Return `weights` as a read-only float64 array or, if it is sparse, as a canonical CSR matrix."""
    if not sp.issparse(weights):
        return real_array(weights, argument, 2)
    if weights.ndim != 2 or not any(weights.shape):
        raise ValueError(f"{argument} has shape {weights.shape}; it must have two dimensions and not be empty")
    matrix = sparse_matrix(weights, argument)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not np.isfinite(matrix.data).all():
        raise ValueError(f"{argument} holds NaN or infinite values")
    return frozen(matrix)


def sparse_matrix(matrix: Any, argument: str) -> Any:
    """Return a copy of any sparse matrix as CSR in float64; its arrays are checked before SciPy works on them."""
    if matrix.dtype.kind not in "fiub":
        raise ValueError(f"{argument} has dtype {one_line(matrix.dtype, 80)}; it must hold real numbers")
    try:
        if matrix.format in ("lil", "dok"):
            if matrix.format == "lil" and not _is_sound_lil(matrix):
                raise ValueError
            matrix = matrix.tocoo()
        if not _is_sound(matrix):
            raise ValueError
    except Exception:  # The attributes may have been replaced by anything.
        raise ValueError(f"{argument} is a broken {matrix.format} matrix: its arrays do not fit together") from None
    try:
        with np.errstate(all="ignore"):  # A long double may overflow.
            # Older versions of SciPy have no CSR array of one dimension.
            return sp.csr_array(matrix.reshape(1, -1) if matrix.ndim == 1 else matrix, copy=True, dtype=np.float64)
    except (MemoryError, ValueError, TypeError, OverflowError):
        raise ValueError(f"{argument} has shape {matrix.shape} and cannot be made a CSR matrix in memory") from None


def _is_sound(matrix: Any) -> bool:
    """Whether the arrays of a sparse matrix are consistent with its shape; SciPy's own code does not check them."""
    data, shape = matrix.data, (1, *matrix.shape)[-2:]  # A vector is one row.
    if matrix.format == "coo":
        return data.ndim == 1 and all(
            len(at) == len(data) and _is_within(at, n) for at, n in zip(matrix.coords, matrix.shape, strict=True)
        )
    if matrix.format == "dia":
        offsets = matrix.offsets
        inside = _is_within(np.asarray(offsets) + (shape[0] - 1), shape[0] + shape[1] - 1)
        return inside and data.ndim == 2 and len(offsets) == len(data) == len(set(offsets.tolist()))
    block = data.shape[1:] if matrix.format == "bsr" else (1, 1)
    if data.ndim != (3 if matrix.format == "bsr" else 1) or min(block) < 1 or any(np.remainder(shape, block)):
        return False
    rows, columns = shape[0] // block[0], shape[1] // block[1]
    return csr_fits(
        len(data), matrix.indices, matrix.indptr, (columns, rows) if matrix.format == "csc" else (rows, columns)
    )


def csr_fits(entries: int, indices: Any, indptr: Any, shape: tuple[int, int]) -> bool:
    """Whether `indptr` divides all entries among the rows, and `indices` are valid columns."""
    if indptr.ndim != 1 or indptr.dtype.kind not in "iu" or len(indptr) != shape[0] + 1:
        return False
    cuts = indptr[0] == 0 and indptr[-1] == entries and bool((indptr[1:] >= indptr[:-1]).all())
    return cuts and len(indices) == entries and _is_within(indices, shape[1])


def _is_within(indices: Any, length: int) -> bool:
    """Whether an array lists whole numbers from 0 to below `length`."""
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        return False
    return indices.size == 0 or bool(int(indices.min()) >= 0 and int(indices.max()) < length)


def _is_sound_lil(matrix: Any) -> bool:
    rows = len(matrix.rows) == len(matrix.data) == matrix.shape[0]
    return rows and all(len(a) == len(b) for a, b in zip(matrix.rows, matrix.data, strict=True))


def bias_vector(value: Any, length: int, argument: str, what: str) -> Array:
    """Return a bias as long as the rows or columns of the weights (`what`)."""
    if length == 0 and np.size(plain_array(value, argument)) == 0:  # The other side may be empty if there are no edges.
        return frozen(np.zeros(0))
    array = real_array(value, argument, 1)
    if len(array) != length:
        raise ValueError(f"{argument} has length {len(array)}, but weights has {length} {what}")
    return array


def precision_vector(value: object, length: int, argument: str) -> Array | None:
    """Return the precisions of a side: None, one number, or one per variable."""
    if value is None:
        return None
    array = real_array(value, argument, None)
    if array.shape not in ((), (1,), (length,)):
        raise ValueError(f"{argument} has shape {array.shape}; it must be one number or {length} of them")
    if not (array > 0).all():
        raise ValueError(f"{argument} holds {float(array.min()):g}; a precision must be positive")
    return array


def memory() -> int:
    """Return the memory that this process may use, in bytes."""
    known = [1 << 40]
    with contextlib.suppress(AttributeError, ValueError, OSError):  # Some systems do not report it.
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):  # The limits of a container, cgroups version 2 and 1.
        with contextlib.suppress(ValueError, OSError):
            known.append(int((Path("/sys/fs/cgroup") / limit).read_text()))
    return min(x for x in known if x > 0)


def check_room(size: int, argument: str, value: object) -> None:
    """Raise a ValueError if a model of about `size` bytes does not fit into memory."""
    if size > memory():
        raise ValueError(f"{argument} is {shown(value)}; the model would not fit the memory")


@contextlib.contextmanager
def reading(what: str, path: object) -> Iterator[None]:
    """Turn any error of reading a file, whatever it contains, into one short ValueError that names the file."""
    name = one_line(path, 100)
    try:
        with np.errstate(all="ignore"):  # Values that are not finite are rejected later, with their name.
            yield
    except OSError as error:
        raise ValueError(one_line(f"cannot read {what} {name}: {error.strerror or error}")) from None
    except (ValueError, OverflowError) as error:
        raise ValueError(one_line(f"{what} {name}: {error}")) from None


def open_file(path: str | os.PathLike[str], limit: int) -> IO[bytes]:
    """Open an untrusted file of at most `limit` bytes; it must be regular, as a pipe or device may have no end."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not a regular file")
        if status.st_size > limit:
            raise ValueError(f"holds {status.st_size / 2**20:.1f} MiB; the limit is {limit / 2**20:.1f} MiB")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise
