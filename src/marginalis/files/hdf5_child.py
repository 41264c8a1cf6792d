"""Script of the child process that reads HDF5 files, since damaged files may make the library loop or crash.

It imports only h5py and NumPy and runs as a script (see `hdf5`). Each line of its standard input is a request, a JSON
list of a verb and its arguments. For each request, its standard output has a line of JSON, ``{"value": …}`` or
``{"error": …}``; if the value is the shape of an array, the bytes of the array follow.
"""

from __future__ import annotations

import json
import math
import os
import signal
import stat
import sys
from typing import Any

# Largest length of a text, in characters.
LONGEST_WORD = 256
# Memory, in bytes, that HDF5 may take for its own structures besides the arrays.
_SLACK = 256 << 20
# Size, in bytes, up to which a chunk is always accepted; a larger chunk must not exceed twice its dataset.
_CHUNK = 16 << 20
# Size, in bytes, up to which an array is always accepted, whatever the size of the file.
_SMALL = 64 << 20
# The same limit for a vector, which is lower since a model takes far more memory for a variable than for a coupling.
_SMALL_VECTOR = 4 << 20
# Largest ratio of the size of a larger array to that of the file; beyond it an array has almost no content.
_EXPANSION = 100


class Refused(ValueError):
    """Error for a readable file whose content is not accepted."""


class Source:
    """An open file, with one method per verb."""

    def __init__(self, path: str, limit: int, seconds: float) -> None:
        import h5py
        import numpy as np

        self._h5py, self._np = h5py, np
        self._limit, self._left = limit, limit
        self._allow(0, seconds)
        # h5py gets a file object and not the path, since HDF5 refuses to open a file that a training run has locked.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        self._handle = os.fdopen(handle, "rb")
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Refused("is not a regular file")
        self._size = status.st_size
        self._file = h5py.File(self._handle, "r")

    def close(self) -> None:
        """Close the file and ignore errors of HDF5."""
        for opened in (getattr(self, "_file", None), getattr(self, "_handle", None)):
            try:
                if opened is not None:
                    opened.close()
            except Exception:  # The file is damaged.
                pass

    def names(self) -> list[str]:
        """Return the names in the root group."""
        return list(self._file)

    def has(self, name: str) -> bool:
        """Whether the file has an object with this path or an attribute of the root with this name."""
        group = self._file
        *folders, last = name.split("/")
        for folder in folders:
            group = group.get(folder) if folder in group and self._is_plain(group, folder) else None
            if not isinstance(group, self._h5py.Group):
                return False
        return last in group or (not folders and last in self._file.attrs)

    def word(self, name: str) -> str:
        """Return a text from a dataset or from an attribute of the root."""
        attributes = self._file.attrs
        found = attributes.get_id(name) if name in attributes else self._dataset(name)
        kind = self._h5py.check_string_dtype(found.dtype)  # HDF5 crashes on some damaged types.
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
        """Return an array of real numbers as float64, with the axes in the order of h5py."""
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
        """Refuse chunks that take far more memory than the array, since HDF5 loads whole chunks."""
        chunk = math.prod(found.chunks or (0,)) * found.dtype.itemsize
        if chunk > _CHUNK and chunk > 2 * found.dtype.itemsize * math.prod(found.shape):
            raise Refused(f"{name!r} has chunks of {chunk / 2**20:.0f} MiB, far more than its shape {found.shape}")

    def _allow(self, size: int, seconds: float | None = None) -> None:
        """Limit the additional memory to `size` bytes, and the processor time, if the system supports limits."""
        try:
            import resource
        except ImportError:  # Windows has no such limits; the parent process has a timeout too.
            return
        if seconds is not None:
            _lower(resource, resource.RLIMIT_CPU, math.ceil(_used(resource) + seconds))
        try:
            with open("/proc/self/statm") as file:
                taken = int(file.read().split()[0]) * resource.getpagesize()
        except OSError:  # The system is not Linux.
            return
        _lower(resource, resource.RLIMIT_AS, taken + size + _SLACK)


def _used(resource: Any) -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return float(used.ru_utime + used.ru_stime)


def _lower(resource: Any, what: int, wanted: int) -> None:
    """Set a soft limit, which can be raised later up to the system's hard limit."""
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
        except Exception as error:  # h5py raises many types of errors for damaged files.
            reply = {"error": f"is not a readable HDF5 file ({str(error)[:200]})"}
        sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
