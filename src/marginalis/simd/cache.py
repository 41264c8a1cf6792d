"""Compiled kernels and their cache on disk; a stale, damaged or missing cache only costs compilation time."""

from __future__ import annotations

import hashlib
import logging
import threading
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile

from ..parallel.progress import tell
from .compiling import KernelCompiler

logger = logging.getLogger("marginalis")

_PATIENCE = 0.8  # Seconds of compilation before it is announced.
_PACKAGE = Path(__file__).parents[1]
# All files that contain code or constants of kernels; a test checks them against the imports.
_OTHERS = (
    "exact/contraction_kernel.py",
    "exact/kernel.py",
    "exact/pfaffian_kernel.py",
    "exact/planar.py",
    "exact/search.py",
    "exact/transfer.py",
    "models/colouring.py",
    "checks.py",
    "random.py",
)
_FOLDERS = "simd", "engines/cpu", "models/units"
FILES = sorted(
    [*(_PACKAGE / x for x in _OTHERS), *(path for folder in _FOLDERS for path in (_PACKAGE / folder).glob("*.py"))]
)
SOURCES = zlib.crc32(b"".join(path.read_bytes() for path in FILES))


class _Files(IndexDataCacheFile):
    """Data files named by a hash of their key: Numba numbers them, so concurrent processes may use a number twice."""

    def save(self, key: Any, data: Any) -> None:
        digest = hashlib.sha256(repr(key).encode()).digest()
        name = self._data_name(int.from_bytes(digest[:8], "big"))
        self._save_data(name, data)
        # If two processes save at once, one entry is lost, and its kernel is compiled again.
        self._save_index({**self._load_index(), key: name})


class _Cache(FunctionCache):
    """Numba's cache, extended to check all source files (Numba checks the function's own) and to ignore all errors."""

    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        self._notice: threading.Timer | None = None
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), SOURCES)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
        except Exception as error:  # A truncated file may raise anything.
            logger.debug("kernel cache: %r", error)
            found = None
        if found is None:  # Numba compiles the kernel now.
            self._notice = threading.Timer(_PATIENCE, _announce)
            self._notice.daemon = True
            self._notice.start()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        if self._notice is not None:
            self._notice.cancel()
        for last in (False, True):
            try:
                super().save_overload(sig, data)
                return
            except Exception as error:
                logger.debug("kernel cache: %r", error)
                if not last:
                    self._start_afresh()

    def _start_afresh(self) -> None:
        """Delete an index that cannot be read, because it prevents saving."""
        try:
            self.flush()
        except Exception as error:
            logger.debug("kernel cache: %r", error)


@cache
def _announce() -> None:
    tell("compiling kernels for this kind of model, once: about 2 s, which a budget does not count")


def kernel(plain: bool = False, **options: Any) -> Callable[[Callable], Any]:
    """Return a decorator like ``njit``, for functions that release the GIL and are cached on disk if possible.

    A `plain` kernel allocates nothing and consists of loops over numbers, and is compiled in less time.
    """
    if plain:
        options |= {"_nrt": False, "pipeline_class": KernelCompiler}

    def compiled(function: Callable) -> Any:
        dispatcher = njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
        try:
            dispatcher._cache = _Cache(function)
        except (AttributeError, OSError, RuntimeError) as error:  # Compilation is off, or no directory is writable.
            logger.debug("kernel cache: %r", error)
        return dispatcher

    return compiled
