"""HDF5 files from strangers: links are not followed, and shapes are looked at before data are read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import Array, one_line, open_file
from .archive import limit

MAGIC = b"\x89HDF\r\n\x1a\n"
_EXPANSION = 100  # as in `archive`: what grows by more holds next to nothing
_LONGEST_WORD = 256


@contextmanager
def open_hdf5(path: str | Path) -> Iterator[Source]:
    """Open a file; whatever goes wrong inside it is a ValueError."""
    try:
        import h5py
    except ImportError:
        raise ValueError("is an HDF5 file, for which h5py is needed: pip install marginalis[io]") from None
    with open_file(path, limit()) as handle:
        try:
            with h5py.File(handle, "r") as file:
                yield Source(h5py, file, os.fstat(handle.fileno()).st_size)
        except (ValueError, MemoryError):
            raise
        except Exception as error:  # h5py raises all sorts of errors where a file is damaged
            raise ValueError(f"is not a readable HDF5 file ({one_line(error, 120)})") from None


class Source:
    """An open file, and the ways to read from it."""

    def __init__(self, h5py: Any, file: Any, size: int) -> None:
        self._h5py, self._file, self._size = h5py, file, size
        self._read = 0  # bytes so far

    def names(self) -> list[str]:
        """Return the names at the root."""
        return list(self._file)

    def has(self, name: str) -> bool:
        """Whether there is something of this name, at any depth or among the attributes of the root."""
        group = self._file
        *folders, last = name.split("/")
        for folder in folders:
            group = group.get(folder) if folder in group and self._is_plain(group, folder) else None
            if not isinstance(group, self._h5py.Group):
                return False
        return last in group or (not folders and last in self._file.attrs)

    def word(self, name: str) -> str:
        """Return a text, which may be an attribute of the root."""
        attributes = self._file.attrs
        found = attributes.get_id(name) if name in attributes else self._dataset(name)
        kind = self._h5py.check_string_dtype(found.dtype)  # HDF5 crashes on some damaged types when it reads them
        if kind is None or found.shape is None or math.prod(found.shape) != 1 or (kind.length or 0) > _LONGEST_WORD:
            raise ValueError(f"{name!r} must hold a word")
        value = np.asarray(attributes[name] if name in attributes else found[()]).reshape(-1)[0]
        word = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        if len(word) > _LONGEST_WORD:
            raise ValueError(f"{name!r} must hold a word")
        return word

    def array(self, name: str) -> Array:
        """Return an array of real numbers as float64, its axes as h5py has them."""
        found = self._dataset(name)
        if found.dtype.kind not in "fiub":
            raise ValueError(f"{name!r} has dtype {one_line(found.dtype, 40)}; it must hold real numbers")
        size = 8 * math.prod(found.shape)
        self._read += size
        if self._read > limit():
            raise ValueError(f"{name!r} has shape {found.shape}; the limit is {limit() / 2**30:.1f} GiB for all arrays")
        if size > 64 << 20 and size > _EXPANSION * self._size:
            raise ValueError(f"{name!r} has shape {found.shape}, far more than the file holds")
        values = np.empty(found.shape, dtype=np.float64)
        if values.size:
            found.read_direct(values)
        return values

    def _dataset(self, name: str) -> Any:
        node = self._file
        for part in name.split("/"):
            if not isinstance(node, self._h5py.Group) or part not in node:
                raise ValueError(f"lacks {name!r}")
            if not self._is_plain(node, part):
                raise ValueError(f"{name!r} is a link, and links are not followed")
            node = node[part]
        if not isinstance(node, self._h5py.Dataset) or node.shape is None:
            raise ValueError(f"{name!r} is not an array")
        if node.external or node.is_virtual:
            raise ValueError(f"{name!r} keeps its data in other files, which are not read")
        return node

    def _is_plain(self, group: Any, name: str) -> bool:
        return isinstance(group.get(name, getlink=True), self._h5py.HardLink)
