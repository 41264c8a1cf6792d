"""HDF5 files from untrusted sources, read in a child process; links are not followed, and shapes are checked first.

A few damaged bytes can make the HDF5 library loop endlessly, take all memory or crash. The library therefore runs in
`hdf5_child`, which has limits of memory and processor time and is ended after a timeout. All such failures raise a
ValueError.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import Array, one_line, open_file
from .archive import limit

MAGIC = b"\x89HDF\r\n\x1a\n"
_CHILD = Path(__file__).with_name("hdf5_child.py")
# Limit of the processor time, in seconds, for a small file, which takes a few hundredths of a second.
_SECONDS = 3.0
# Least speed at which a large file must be read, in bytes per second.
_BYTES_PER_SECOND = 10 << 20
# Ratio of the limits of wall-clock and processor time, since disks and other processes may be slow.
_PATIENCE = 10.0
_START = "import runpy, sys; sys.path[:] = {path!r}; runpy.run_path({script!r}, run_name='__main__')"


class _Reader:
    """A child process that reads one file after the other."""

    def __init__(self) -> None:
        start = _START.format(path=[x for x in sys.path if isinstance(x, str)], script=str(_CHILD))
        self.owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", start],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )
        self.is_late = False
        self.is_ready = True  # Every request so far has been answered.

    def ask(self, seconds: float, verb: str, *arguments: Any) -> Any:
        """Return the answer to a request; an array is sent as its shape and its bytes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        clock = threading.Timer(seconds, self._too_late)
        clock.daemon = True
        clock.start()
        self.is_ready = False
        try:
            self._process.stdin.write(json.dumps([verb, *arguments]).encode() + b"\n")
            self._process.stdin.flush()
            reply = json.loads(self._process.stdout.readline() or b"null")
            if reply is None:
                raise EOFError
            found = reply.get("value")
            if verb == "array" and found is not None:
                found = self._array(found)
            self.is_ready = True
            if "error" in reply:
                raise ValueError(reply["error"])
            return found
        except (EOFError, BrokenPipeError):
            code = self._process.wait()
            slow = self.is_late or code in (-24, 152)  # SIGXCPU is −24 in Python and 152 in a shell.
            how = f"reading it takes more than {seconds / _PATIENCE:.0f} s" if slow else "reading it fails"
            raise ValueError(f"is damaged: {how}") from None
        finally:
            clock.cancel()

    def _array(self, shape: list[int]) -> Array:
        assert self._process.stdout is not None
        if 8 * math.prod(shape) > limit():
            raise ValueError("is damaged: an array is larger than its header says")
        values = np.empty(shape, dtype=np.float64)
        content = memoryview(values.data).cast("B") if values.size else memoryview(b"")
        if self._process.stdout.readinto(content) < len(content):  # type: ignore[attr-defined]
            raise EOFError
        return values

    def _too_late(self) -> None:
        self.is_late = True
        self._process.kill()

    def end(self) -> None:
        """End the child process."""
        with suppress(OSError):
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError, ValueError):
                pipe.close()  # type: ignore[union-attr]


# At most one idle process, which is reused for the next file to save its start.
_idle: list[_Reader] = []
_lock = threading.Lock()


@contextmanager
def open_hdf5(path: str | Path) -> Iterator[Source]:
    """Open a file; all errors while it is read are ValueErrors."""
    if importlib.util.find_spec("h5py") is None:
        raise ValueError("is an HDF5 file, for which h5py is needed: pip install marginalis[io]")
    with open_file(path, limit()) as handle:
        size = os.fstat(handle.fileno()).st_size
    with _lock:
        reader = _idle.pop() if _idle else None
    if reader is None or reader.owner != os.getpid():  # A forked process must not use the pipes of its parent.
        reader = _Reader()
    try:
        seconds = _SECONDS + size / _BYTES_PER_SECOND
        source = Source(reader, _PATIENCE * seconds)
        source.begin(path, seconds)
        yield source
    finally:
        _put_back(reader)


def _put_back(reader: _Reader) -> None:
    """Keep a process for the next file, or end it if it has failed or another process is idle."""
    try:
        if reader.is_ready:
            reader.ask(_SECONDS, "close")
            with _lock:
                if not _idle:
                    _idle.append(reader)
                    atexit.register(_end_idle)
                    return
    except ValueError:
        pass
    reader.end()


def _end_idle() -> None:
    atexit.unregister(_end_idle)
    while _idle:
        reader = _idle.pop()
        if reader.owner == os.getpid():
            reader.end()


class Source:
    """An open file, with methods that read from it."""

    def __init__(self, reader: _Reader, seconds: float) -> None:
        self._reader, self._seconds = reader, seconds

    def begin(self, path: str | Path, seconds: float) -> None:
        """Open the file, with a limit of processor time in seconds."""
        self._ask("open", os.path.abspath(os.fspath(path)), limit(), seconds)

    def names(self) -> list[str]:
        """Return the names in the root group."""
        return list(self._ask("names"))

    def has(self, name: str) -> bool:
        """Whether the file has an object with this path or an attribute of the root with this name."""
        return bool(self._ask("has", name))

    def word(self, name: str) -> str:
        """Return a text from a dataset or from an attribute of the root."""
        return str(self._ask("word", name))

    def array(self, name: str) -> Array:
        """Return an array of real numbers as float64, with the axes in the order of h5py."""
        values: Array = self._ask("array", name)
        return values

    def _ask(self, verb: str, *arguments: Any) -> Any:
        try:
            return self._reader.ask(self._seconds, verb, *arguments)
        except ValueError as error:
            raise ValueError(one_line(error, 160)) from None
