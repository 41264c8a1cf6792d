"""The process in which HDF5 files are read: a damaged file may make the HDF5 library loop for ever or crash.

It imports h5py and NumPy only, and runs as a script of its own (see `hdf5`). Its standard input has one request a line,
a JSON list of a verb and its arguments; its standard output has a line of JSON for each, ``{"value": …}`` or
``{"error": …}``, followed by the bytes of an array if the value is the shape of one.
"""

from __future__ import annotations

import json
import math
import os
import signal
import stat
import sys
from typing import Any

LONGEST_WORD = 256  # characters of a word
_SLACK = 256 << 20  # Bytes that HDF5 may take for its own structures, beside the arrays.
_CHUNK = 16 << 20  # Bytes that a chunk may always have; a larger one must not exceed twice its dataset.
_SMALL = 64 << 20  # Bytes of an array that a file may always claim, however small the file is.
_SMALL_VECTOR = 4 << 20  # The same for a vector: a model takes far more for a variable than for a coupling.
_EXPANSION = 100  # How many times the size of the file a larger array may have: more holds next to nothing.


class Refused(ValueError):
    """The file is readable, and what it holds is not accepted."""


class Source:
    """An open file, and the verbs that read from it."""

    def __init__(self, path: str, limit: int, seconds: float) -> None:
        import h5py
        import numpy as np

        self._h5py, self._np = h5py, np
        self._limit, self._left = limit, limit
        self._allow(0, seconds)
        # The file object and not the path: HDF5 would refuse a file that a training run has locked.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        self._handle = os.fdopen(handle, "rb")
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Refused("is not a regular file")
        self._size = status.st_size
        self._file = h5py.File(self._handle, "r")

    def close(self) -> None:
        """Close the file, whatever state HDF5 is in."""
        for opened in (getattr(self, "_file", None), getattr(self, "_handle", None)):
            try:
                if opened is not None:
                    opened.close()
            except Exception:  # the file is damaged
                pass

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
        if kind is None or found.shape is None or math.prod(found.shape) != 1 or (kind.length or 0) > LONGEST_WORD:
            raise Refused(f"{name!r} must hold a word")
        if name not in attributes:
            self._check_chunks(found, name)
        value = self._np.asarray(attributes[name] if name in attributes else found[()]).reshape(-1)[0]
        word = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        if len(word) > LONGEST_WORD:
            raise Refused(f"{name!r} must hold a word")
        return word

    def array(self, name: str) -> Any:
        """Return an array of real numbers as float64, its axes as h5py has them."""
        found = self._dataset(name)
        if found.dtype.kind not in "fiub":
            raise Refused(f"{name!r} has dtype {str(found.dtype)[:40]}; it must hold real numbers")
        size = max(8, found.dtype.itemsize) * math.prod(found.shape)
        self._left -= size
        if self._left < 0:
            most = f"{self._limit / 2**30:.1f} GiB"
            raise Refused(f"{name!r} has shape {found.shape}; the limit is {most} for all arrays")
        if size > (_SMALL if len(found.shape) > 1 else _SMALL_VECTOR) and size > _EXPANSION * self._size:
            raise Refused(f"{name!r} has shape {found.shape}, far more than the file holds")
        self._check_chunks(found, name)
        self._allow(3 * size)
        values = self._np.empty(found.shape, dtype=self._np.float64)
        if values.size:
            found.read_direct(values)
        return values

    def _dataset(self, name: str) -> Any:
        node = self._file
        for part in name.split("/"):
            if not isinstance(node, self._h5py.Group) or part not in node:
                raise Refused(f"lacks {name!r}")
            if not self._is_plain(node, part):
                raise Refused(f"{name!r} is a link, and links are not followed")
            node = node[part]
        if not isinstance(node, self._h5py.Dataset) or node.shape is None:
            raise Refused(f"{name!r} is not an array")
        if node.external or node.is_virtual:
            raise Refused(f"{name!r} keeps its data in other files, which are not read")
        return node

    def _is_plain(self, group: Any, name: str) -> bool:
        return isinstance(group.get(name, getlink=True), self._h5py.HardLink)

    def _check_chunks(self, found: Any, name: str) -> None:
        """Refuse chunks that would take far more memory than the array: HDF5 holds a whole one to read a number."""
        chunk = math.prod(found.chunks or (0,)) * found.dtype.itemsize
        if chunk > _CHUNK and chunk > 2 * found.dtype.itemsize * math.prod(found.shape):
            raise Refused(f"{name!r} has chunks of {chunk / 2**20:.0f} MiB, far more than its shape {found.shape}")

    def _allow(self, size: int, seconds: float | None = None) -> None:
        """Limit the memory to what is taken now and `size` bytes, and the processor time, where the system can."""
        try:
            import resource
        except ImportError:  # Windows has no such limits; the other end has a clock of its own
            return
        if seconds is not None:
            _lower(resource, resource.RLIMIT_CPU, math.ceil(_used(resource) + seconds))
        try:
            with open("/proc/self/statm") as file:
                taken = int(file.read().split()[0]) * resource.getpagesize()
        except OSError:  # not Linux
            return
        _lower(resource, resource.RLIMIT_AS, taken + size + _SLACK)


def _used(resource: Any) -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return float(used.ru_utime + used.ru_stime)


def _lower(resource: Any, what: int, wanted: int) -> None:
    """Set a limit that can be raised again later, but not above the one that the system gives."""
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def main() -> None:
    """Answer requests until there are no more."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    source: Source | None = None
    for line in sys.stdin.buffer:
        verb, *arguments = json.loads(line)
        value: Any = None
        content: Any = b""
        try:
            if verb == "open":
                source = Source(*arguments)
            elif verb == "close":
                if source is not None:
                    source.close()
                source = None
            else:
                value = getattr(source, verb)(*arguments)
            if verb == "array":
                content = memoryview(value).cast("B") if value.size else b""
                value = list(value.shape)
            reply = {"value": value}
        except Refused as error:
            reply = {"error": str(error)}
        except MemoryError:
            reply = {"error": "takes more memory than its arrays: it is damaged"}
        except Exception as error:  # h5py raises all sorts of errors where a file is damaged
            reply = {"error": f"is not a readable HDF5 file ({str(error)[:200]})"}
        sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
