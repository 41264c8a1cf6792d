"""Text files from untrusted sources: plain or compressed (gzip, xz), of bounded size, read token by token."""

from __future__ import annotations

import gzip
import lzma
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, NoReturn

import numpy as np

from ..checks import Array, open_file, shown
from .archive import limit
from .atomic import write_whole

GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
# Memory, in bytes, that a model takes per byte of text.
_PER_BYTE = 8
# Memory limit of the xz decompressor, in bytes, since a header may demand gigabytes.
_XZ_MEMORY = 256 << 20
# Largest ratio of the size of a long text to that of its file; beyond it a text has almost no content.
_EXPANSION = 100
# Size, in bytes, up to which a decompressed text is always accepted.
_SHORT = 16 << 20
# A count in a text may exceed its number of words by this, since a short text could otherwise demand gigabytes.
UNNAMED = 1 << 20
_WHOLE = re.compile(r"[-+]?\d{1,18}", re.ASCII)


def read_text(path: str | Path) -> str:
    """Return the text of a file, decompressed if necessary."""
    most = limit() // _PER_BYTE
    with open_file(path, most) as file:
        start = file.read(6)
        if start[:2] == GZIP or start == XZ:
            most = min(most, max(_SHORT, _EXPANSION * os.fstat(file.fileno()).st_size))
        file.seek(0)
        try:
            data = _gunzip(file, most) if start[:2] == GZIP else _unxz(file, most) if start == XZ else file.read(most)
        except (lzma.LZMAError, zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"is damaged or cut short: {error}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("is neither text nor in a supported binary format") from None


def _gunzip(file: IO[bytes], most: int) -> bytes:
    with gzip.GzipFile(fileobj=file) as stream:
        data = stream.read(most + 1)
    return _checked(data, most)


def _unxz(file: IO[bytes], most: int) -> bytes:
    data, rest = b"", file.read()
    while rest.strip(b"\0"):  # A file may have several streams, with padding.
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
        data = _checked(data + stream.decompress(rest.lstrip(b"\0"), most + 1 - len(data)), most)
        if not stream.eof:
            raise EOFError("the end is missing")
        rest = stream.unused_data
    return data


def _checked(data: bytes, most: int) -> bytes:
    if len(data) > most:
        raise ValueError(f"expands to more than {most / 2**20:.0f} MiB, the limit for its size: decompress it")
    return data


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, either whole or not at all, compressed if its name ends in .gz or .xz."""
    kind = os.path.splitext(os.fspath(path))[1].lower()
    pack: Callable[[bytes], bytes] = {".gz": lambda x: gzip.compress(x, mtime=0), ".xz": lzma.compress}.get(kind, bytes)
    write_whole(path, lambda file: file.write(pack(text.encode())))


class Tokens:
    """The words of a text one after the other; error messages give the place."""

    def __init__(self, text: str) -> None:
        self.text, self.words, self.at = text, text.split(), 0

    def __len__(self) -> int:
        """Return the number of words that are left."""
        return len(self.words) - self.at

    def fail(self, problem: str, at: int | None = None) -> NoReturn:
        """Raise a ValueError with the place of a token, by default the last one."""
        at = self.at - 1 if at is None else at
        starts = (m.start() for k, m in enumerate(re.finditer(r"\S+", self.text)) if k == at)
        line = self.text.count("\n", 0, next(starts, len(self.text))) + 1
        raise ValueError(f"token {at + 1} (line {line}): {problem}")

    def word(self, what: str) -> str:
        """Return the next word."""
        if not len(self):
            self.at += 1
            self.fail(f"the file ends where {what} should be")
        self.at += 1
        return self.words[self.at - 1]

    def whole(self, what: str, low: int, high: int | None = None) -> int:
        """Return the next word as a whole number from `low` to `high`."""
        word = self.word(what)
        if not _WHOLE.fullmatch(word):
            self.fail(f"{what} is {shown(word)}; it must be a whole number")
        number = int(word)
        if number < low or (high is not None and number > high):
            wanted = f"at least {low}" if high is None or number < low else f"at most {high}"
            self.fail(f"{what} is {number}; it must be {wanted}")
        return number

    def check_count(self, count: int, what: str) -> None:
        """Raise a ValueError at the last token if its count far exceeds what a text of this length can describe."""
        if count > UNNAMED + len(self.words):
            self.fail(f"{what} is {count}, far more than the {len(self.words)} words of the file describe")

    def numbers(self, what: str) -> Array:
        """Return all words that are left as numbers, which are infinite for words out of range."""
        words = self.words[self.at :]
        try:
            values = np.array(words, dtype=np.float64) if words else np.zeros(0)
        except ValueError:
            for k, word in enumerate(words):
                try:
                    float(word)
                except ValueError:
                    self.fail(f"{what} is {shown(word)}; it must be a number", self.at + k)
            raise
        return values
