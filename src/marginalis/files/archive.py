"""Archives of arrays from untrusted sources: headers are checked before data are read, and nothing is unpickled."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ..checks import memory, one_line, open_file

# Largest total size, in bytes, of the uncompressed arrays of a file.
MAX_BYTES = 8 << 30
# The arrays may take this fraction, 1/8, of the memory, since a model takes several times their size.
_SHARE = 8
# Largest ratio of uncompressed to compressed size; a file with a larger ratio has almost no content.
_EXPANSION = 100


class Header(NamedTuple):
    """The shape, order and type of an array, as its header in a file claims."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: Any

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.itemsize


def limit() -> int:
    """Return the largest total size of the arrays of a file, in bytes."""
    return min(MAX_BYTES, memory() // _SHARE)


def read_arrays(
    path: str | Path,
    numbers: Sequence[str],
    words: Sequence[str] = (),
    check: Callable[[dict[str, Header]], None] | None = None,
) -> dict[str, Any]:
    """Read those of the named arrays that an archive holds; each holds numbers or one text.

    All headers are first compared with the size of the archive, and with each other by `check`.
    """
    with open_file(path, limit()) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = {name.removesuffix(".npy"): archive.getinfo(name) for name in archive.namelist()}
                found = {key: key in words for key in (*numbers, *words) if key in members}
                headers = {key: _header(archive, key, members[key], text) for key, text in found.items()}
                _check_sizes(headers, os.fstat(file.fileno()).st_size)
                if check is not None:
                    check(headers)
                return {key: _member(archive, key, members[key], text) for key, text in found.items()}
        except (ValueError, OSError, MemoryError):
            raise
        except Exception as error:  # Damaged files raise many types of errors.
            raise ValueError(f"is not a readable npz archive ({error})") from None


def keys(path: str | Path) -> list[str]:
    """Return the keys of an archive."""
    with open_file(path, limit()) as file, zipfile.ZipFile(file) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def _header(archive: zipfile.ZipFile, key: str, info: zipfile.ZipInfo, text: bool) -> Header:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"key {key!r} uses a compression method that NumPy does not write")
    with archive.open(info) as file:
        return _read_header(file, key, info.file_size, text)


def _member(archive: zipfile.ZipFile, key: str, info: zipfile.ZipInfo, text: bool) -> Any:
    with archive.open(info) as file:
        return read_array(file, key, info.file_size, text)


def _check_sizes(headers: dict[str, Header], file_size: int) -> None:
    """Raise a ValueError if arrays do not fit into memory or are far larger than the compressed archive."""
    sizes = {key: max(x.bytes, 8 * x.size) for key, x in headers.items()}
    total = sum(sizes.values())
    if total > limit():
        raise ValueError(f"holds {total / 2**30:.1f} GiB of arrays; the limit is {limit() / 2**30:.1f} GiB")
    variables = sum(sizes.get(key, 0) for key in ("visible_bias", "hidden_bias"))  # A bias costs more than a weight.
    if total > _EXPANSION * file_size and (total > 64 << 20 or variables > 4 << 20):
        raise ValueError(f"expands to {total / 2**20:.0f} MiB, over {_EXPANSION} times its size: save it uncompressed")


def _read_header(file: IO[bytes], key: str, size: int, text: bool) -> Header:
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError("unknown version")
        read_header = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
        header = Header(*read_header(file))
        if not all(type(n) is int and n >= 0 for n in header.shape) or len(header.shape) > 32:
            raise ValueError("bad shape")
    except Exception:  # The header is untrusted Python source, and its parser raises many types of errors.
        raise ValueError(f"key {key!r} is not a valid array") from None
    dtype = header.dtype
    if dtype.hasobject:
        raise ValueError(f"key {key!r} holds pickled objects, which are refused")
    if dtype.kind not in ("SU" if text else "fiub") or dtype.itemsize == 0:
        wanted = "text" if text else "real numbers"
        raise ValueError(f"key {key!r} has dtype {one_line(dtype, 80)}; it must hold {wanted}")
    if header.bytes > size:
        raise ValueError(f"key {key!r} is shorter than its header says")
    return header


def read_array(file: IO[bytes], key: str, size: int, text: bool = False) -> Any:
    """Read one array in NumPy's format, of at most `size` bytes."""
    header = _read_header(file, key, size, text)
    data = file.read(header.bytes)
    if len(data) < header.bytes:
        raise ValueError(f"key {key!r} is shorter than its header says")
    array = np.frombuffer(data, dtype=header.dtype).reshape(header.shape, order="F" if header.fortran else "C")
    if text:
        word = array.reshape(-1)[0]
        return word.decode("ascii", "replace") if isinstance(word, bytes) else word
    return array
