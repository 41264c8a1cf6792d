"""SQLite files for the results of one run or of several runs at the same time.

Each write is atomic, also if the run is killed. A damaged file raises a ValueError, and a failing disk an OSError.
"""

from __future__ import annotations

import json
import os
import reprlib
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from .. import __version__

# Error codes of SQLite whose cause is not the content of the file.
_OUTSIDE = (
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN),
)
_SETTINGS = {"settings": "(name TEXT PRIMARY KEY, value TEXT NOT NULL)"}


class Database:
    """A file with some tables and the settings of the runs that write to it."""

    kind = "store of results"
    other = "choose another --out"  # The advice at the end of messages about an unusable file.
    format = 1
    synchronous = "FULL"  # Data are on the disk before the run continues.

    def __init__(self, path: Path, tables: Mapping[str, str], later: tuple[str, ...] = ()) -> None:
        """Open or create a file; `tables` maps names to columns, and older files may lack the tables in `later`."""
        self.path, self._tables, self._later = path, {**_SETTINGS, **tables}, later
        self._lock = threading.Lock()
        try:
            self._db = self._connect()
            self._file = self._identity()
            self._make_tables()
        except (sqlite3.Error, UnicodeError) as error:  # Messages of SQLite may quote damaged names.
            raise ValueError(f"{path} is not a {self.kind}: {error}") from None

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=60.0, check_same_thread=False, isolation_level=None)
        db.execute(f"PRAGMA synchronous={self.synchronous}")
        return db

    def _make_tables(self) -> None:
        """Make the tables of a new file, or check those of an old one."""
        wanted = {name: f"CREATE TABLE {name} {columns}" for name, columns in self._tables.items()}
        had = dict(self._db.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"))
        old = {name: wanted[name] for name in self._later} | had
        if had and any("".join(str(old.get(name)).split()) != "".join(sql.split()) for name, sql in wanted.items()):
            raise ValueError(f"{self.path} is not a {self.kind}: its tables are different")
        self._db.execute("PRAGMA journal_mode=WAL")
        with self.access("BEGIN IMMEDIATE") as db:  # Another run may read the file.
            for sql in wanted.values():
                db.execute(sql.replace("TABLE", "TABLE IF NOT EXISTS", 1))

    def begin(self, wanted: Mapping[str, Mapping[str, Any]], resume: bool) -> None:
        """Register runs by name, as new or resumed with the same settings; raise a ValueError if settings differ."""
        with self.access("BEGIN IMMEDIATE") as db:
            if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise self.damage("a part of the file is corrupt")
            for name, settings in wanted.items():
                found = db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
                if found is not None:
                    self._compare(name, found[0], settings, resume)
            for name, settings in wanted.items():
                value = json.dumps(self._stamped(settings))
                db.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", (name, value))

    def _compare(self, name: str, text: Any, settings: Mapping[str, Any], resume: bool) -> None:
        if not resume:
            raise ValueError(f"{self.path} holds results of {name} already: add --resume, or {self.other}")
        try:
            had = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            had = None
        if not isinstance(had, dict):
            raise self.damage(f"the settings of {name} cannot be read")
        wanted = self._stamped(settings)
        differs = [
            f"{reprlib.repr(key)[1:-1]} was {reprlib.repr(had.get(key))}, is {reprlib.repr(wanted.get(key))}"
            for key in sorted(had | wanted)
            if had.get(key) != wanted.get(key)
        ]
        if differs:
            raise ValueError(f"{self.path} cannot be resumed: {'; '.join(differs[:4])}")

    def _stamped(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"format": self.format, "version": __version__, **settings}

    def damage(self, what: object) -> ValueError:
        """Return the error for a damaged file."""
        return ValueError(f"{self.path} is damaged: {what}; {self.other}")

    def _identity(self) -> tuple[int, int]:
        found = os.stat(self.path)
        return found.st_dev, found.st_ino

    def _check_there(self) -> None:
        """Raise an OSError if the file was removed; SQLite would continue to write to the removed file."""
        try:
            there = self._identity() == self._file
        except OSError:
            there = False
        if not there:
            raise OSError(f"{self.path} was removed or replaced during the run: its results are lost")

    @contextmanager
    def access(self, begin: str, fresh: bool = False) -> Iterator[sqlite3.Connection]:
        """Run a transaction: writes are atomic, reads are consistent, and other processes wait."""
        try:
            with self._lock, closing(self._connect()) if fresh else nullcontext(self._db) as db:
                self._check_there()
                db.execute(begin)
                try:
                    yield db
                    self._check_there()
                    db.execute("COMMIT")
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise
        except (sqlite3.Error, UnicodeError) as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
            if code & 0xFF in _OUTSIDE and code != sqlite3.SQLITE_IOERR_SHORT_READ:
                raise OSError(f"{self.path} cannot be written: {error}; what was finished is in it") from None
            raise self.damage(error) from None

    def close(self) -> None:
        """Close the file."""
        self._db.close()
