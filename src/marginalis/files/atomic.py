"""Files that are written whole or not at all, and checks before a run that they can be written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ..checks import one_line

_unfinished: set[Path] = set()


def check_writable(path: str | Path) -> None:
    """Raise a ValueError if `path` cannot be written."""
    try:
        place = _place(path)
        if place.exists() and not os.access(place, os.W_OK):
            raise PermissionError(13, "no permission")
        with _beside(place):
            pass
    except OSError as error:
        raise ValueError(f"cannot write {_named(path)}: {error.strerror or error}") from None


def _named(path: str | Path) -> str:
    return one_line(path, 100) or "''"


def make_folder(folder: Path, *names: str) -> None:
    """Make a folder for files of these names, or raise a ValueError if one of the files cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot write to {one_line(folder, 100)}: {error.strerror or error}") from None
    for name in names:
        check_writable(folder / name)


def write_whole(path: str | Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write to a temporary file beside `path` and rename it, so that `path` is never incomplete; follow links."""
    check_writable(path)
    place = _place(path)
    try:
        with _beside(place) as temporary:
            with open(temporary, "wb") as file:
                write(file)
            os.replace(temporary, place)
    except OSError as error:
        raise OSError(f"cannot write {_named(path)}: {error.strerror or error}") from None


def remove_unfinished() -> None:
    """Remove unfinished temporary files, in a process that is about to exit immediately."""
    for temporary in list(_unfinished):
        with suppress(OSError):  # Windows does not remove open files.
            temporary.unlink()


@contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """Yield an empty file beside `place`, and remove it afterwards in any case."""
    temporary = place.parent / f".marginalis-{os.urandom(8).hex()}"
    try:
        _unfinished.add(temporary)  # This comes before the file is created, since an interrupt may follow at once.
        with open(temporary, "xb"):
            pass
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
        _unfinished.discard(temporary)


def _place(path: str | Path) -> Path:
    """Return the path behind all links, which is a regular file or does not exist yet."""
    if not os.fspath(path):
        raise FileNotFoundError(2, "the name of the file is empty")
    try:
        mode = os.stat(path).st_mode  # Loops of links and overlong names fail here.
    except FileNotFoundError:
        return Path(path).resolve()
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(21, "it is a folder")
    if not stat.S_ISREG(mode):
        raise OSError(22, "it is not a regular file")
    return Path(path).resolve()
