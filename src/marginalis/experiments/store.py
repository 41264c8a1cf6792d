"""A store that loses nothing: one row per (experiment, instance, setting, method, trial) in an SQLite file.

The rows of one piece of work are written in one transaction with a mark that it is done, so a run killed at
any moment leaves whole pieces only, and two runs on one file at worst do a piece twice. A damaged file is a
ValueError, a disk that fails an OSError.
"""

from __future__ import annotations

import csv
import io
import json
import os
import reprlib
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, NamedTuple

from .. import __version__
from ..formats.files import write_whole

FORMAT = 1
COLUMNS = ("instance", "model", "hidden", "inv_t", "steps", "method", "trial", "free_energy", "seconds")
TABLES = {
    "settings": "(name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "done": "(name TEXT, item TEXT, PRIMARY KEY (name, item)) WITHOUT ROWID",
    "result": "(name TEXT, instance INTEGER, model TEXT, hidden INTEGER, inv_t REAL, steps INTEGER,"
    " method TEXT, trial INTEGER, free_energy REAL NOT NULL, seconds REAL,"
    " PRIMARY KEY (name, instance, model, hidden, inv_t, steps, method, trial)) WITHOUT ROWID",
    "time": "(name TEXT, run TEXT, seconds REAL NOT NULL, PRIMARY KEY (name, run)) WITHOUT ROWID",
}
_OUTSIDE = (  # what is wrong is not the file
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN),
)


class Row(NamedTuple):
    """One estimate (or exact value: method ``exact``, steps 0) of the free energy of one model."""

    instance: int
    model: str
    hidden: int
    inv_t: float
    steps: int
    method: str
    trial: int
    free_energy: float
    seconds: float | None


class Contents(NamedTuple):
    """What a store holds of an experiment."""

    done: set[str]  # pieces of work
    means: list[tuple[Any, ...]]  # instance, model, hidden, inv_t, steps, method, mean F over trials, mean seconds
    seconds: float  # that all runs took, up to the last piece of each


class Store:
    """The results of one or more experiments."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._run = secrets.token_hex(8)
        try:
            self._db = self._connect()
            self._file = self._identity()
            self._make_tables()
        except (sqlite3.Error, UnicodeError) as error:  # SQLite quotes damaged names as they are
            raise ValueError(f"{path} is not a store of results: {error}") from None

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60.0, check_same_thread=False, isolation_level=None)

    def _make_tables(self) -> None:
        """Make the tables of a new file, or find them as they were made."""
        wanted = {name: f"CREATE TABLE {name} {columns}" for name, columns in TABLES.items()}
        had = dict(self._db.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"))
        old = {"time": wanted["time"]} | had  # a table that came later
        if had and any("".join(str(old.get(name)).split()) != "".join(sql.split()) for name, sql in wanted.items()):
            raise ValueError(f"{self.path} is not a store of results: its tables are other ones")
        self._db.execute("PRAGMA journal_mode=WAL")
        with self._access("BEGIN IMMEDIATE") as db:  # all at once: another run may be looking
            for sql in wanted.values():
                db.execute(sql.replace("TABLE", "TABLE IF NOT EXISTS", 1))

    def begin(self, wanted: dict[str, dict[str, Any]], resume: bool) -> None:
        """Claim experiments by name: new ones, or resumed with the same settings; else say what differs."""
        with self._access("BEGIN IMMEDIATE") as db:
            if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise self.damage("a part of the file is spoilt")
            for name, settings in wanted.items():
                found = db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
                if found is not None:
                    self._compare(name, found[0], settings, resume)
            for name, settings in wanted.items():
                value = json.dumps(self._stamped(settings))
                db.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", (name, value))

    def _compare(self, name: str, text: Any, settings: dict[str, Any], resume: bool) -> None:
        if not resume:
            raise ValueError(f"{self.path} holds results of {name} already: add --resume, or choose another --out")
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

    @staticmethod
    def _stamped(settings: dict[str, Any]) -> dict[str, Any]:
        return {"format": FORMAT, "version": __version__, **settings}

    def damage(self, what: object) -> ValueError:
        """Return the error that says what is wrong with the file."""
        return ValueError(f"{self.path} is damaged: {what}; choose another --out")

    def _identity(self) -> tuple[int, int]:
        found = os.stat(self.path)
        return found.st_dev, found.st_ino

    def _check_there(self) -> None:
        """Raise an OSError if the file has been taken away: SQLite would go on writing to what nobody can find."""
        try:
            there = self._identity() == self._file
        except OSError:
            there = False
        if not there:
            raise OSError(f"{self.path} was removed or replaced during the run: its results are lost")

    @contextmanager
    def _access(self, begin: str, fresh: bool = False) -> Iterator[sqlite3.Connection]:
        """All that is written inside, or none of it; what is read is of one moment. Other processes wait."""
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

    def write(self, name: str, item: str, rows: Sequence[Row], seconds: float = 0.0) -> None:
        """Add the rows of one piece of work, all or none; the run has taken `seconds` so far."""
        marks = ",".join("?" * (len(COLUMNS) + 1))
        with self._access("BEGIN IMMEDIATE") as db:
            db.executemany(f"INSERT OR IGNORE INTO result VALUES ({marks})", [(name, *r) for r in rows])
            db.execute("INSERT OR IGNORE INTO done VALUES (?, ?)", (name, item))
            db.execute(
                "INSERT INTO time VALUES (?, ?, ?)"
                " ON CONFLICT (name, run) DO UPDATE SET seconds = MAX(seconds, excluded.seconds)",
                (name, self._run, seconds),
            )

    def read(self, name: str, experiments: int, trials: int) -> Contents:
        """Return what is on disk (not in the memory of this connection) of the first instances of an experiment."""
        with self._access("BEGIN", fresh=True) as db:
            done = {item for (item,) in db.execute("SELECT item FROM done WHERE name = ?", (name,))}
            (seconds,) = db.execute("SELECT TOTAL(seconds) FROM time WHERE name = ?", (name,)).fetchone()
            keys = ", ".join(COLUMNS[:6])
            number = "CASE method WHEN 'exact' THEN 1 ELSE ?2 END"
            means = db.execute(
                f"SELECT {keys}, AVG(free_energy), AVG(seconds), COUNT(*) = {number} AND MAX(trial) = {number} - 1"
                " AND MIN(trial) = 0 AND MAX(ABS(free_energy)) < 1e100 AND MIN(typeof(trial) = 'integer' AND"
                " typeof(free_energy) = 'real' AND typeof(seconds) IN ('real', 'null')) FROM result"
                f" WHERE name = ?1 AND instance < ?3 GROUP BY {keys} ORDER BY {keys}",
                (name, trials, experiments),
            ).fetchall()
        spoilt = sum(not row[-1] for row in means)
        if spoilt:
            raise self.damage(f"{spoilt} results of {name} cannot be read")
        return Contents(done, [row[:-1] for row in means], seconds)

    def export(self, name: str, path: Path) -> None:
        """Write every row of an experiment as CSV."""

        def write(file: IO[bytes]) -> None:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            writer = csv.writer(text)
            writer.writerow(COLUMNS)
            columns, order = ", ".join(COLUMNS), ", ".join(COLUMNS[:7])
            with self._access("BEGIN") as db:
                writer.writerows(db.execute(f"SELECT {columns} FROM result WHERE name = ? ORDER BY {order}", (name,)))
            text.detach()

        write_whole(path, write)

    def close(self) -> None:
        """Close the file."""
        self._db.close()
