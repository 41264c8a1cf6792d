"""A store that loses nothing: one row per (experiment, instance, setting, method, trial) in an SQLite file.

The rows of one piece of work are written in one transaction with a mark that it is done, so a run killed at
any moment leaves whole pieces only, and two runs on one file at worst do a piece twice.
"""

from __future__ import annotations

import csv
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__

FORMAT = 1
COLUMNS = ("instance", "model", "hidden", "inv_t", "steps", "method", "trial", "free_energy", "seconds")


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


class Store:
    """The results of one or more experiments."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(path, timeout=60.0, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.executescript(
                """
                CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
                CREATE TABLE IF NOT EXISTS done (
                    name TEXT, item TEXT, PRIMARY KEY (name, item)
                ) WITHOUT ROWID;
                CREATE TABLE IF NOT EXISTS result (
                    name TEXT, instance INTEGER, model TEXT, hidden INTEGER, inv_t REAL, steps INTEGER,
                    method TEXT, trial INTEGER, free_energy REAL NOT NULL, seconds REAL,
                    PRIMARY KEY (name, instance, model, hidden, inv_t, steps, method, trial)
                ) WITHOUT ROWID;
                """
            )
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{path} is not a store of results: {error}") from None

    def begin(self, wanted: dict[str, dict[str, Any]], resume: bool) -> None:
        """Claim experiments by name: new ones, or resumed with the same settings; else say what differs."""
        with self._lock, self._transaction():
            for name, settings in wanted.items():
                found = self._db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
                if found is not None:
                    self._compare(name, json.loads(found[0]), settings, resume)
            for name, settings in wanted.items():
                value = json.dumps(self._stamped(settings))
                self._db.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", (name, value))

    def _compare(self, name: str, had: dict[str, Any], settings: dict[str, Any], resume: bool) -> None:
        if not resume:
            raise ValueError(f"{self.path} holds results of {name} already: add --resume, or choose another --out")
        wanted = self._stamped(settings)
        differs = [
            f"{key} was {had.get(key)!r}, is {wanted.get(key)!r}"
            for key in sorted(had | wanted)
            if had.get(key) != wanted.get(key)
        ]
        if differs:
            raise ValueError(f"{self.path} cannot be resumed: {'; '.join(differs)}")

    @staticmethod
    def _stamped(settings: dict[str, Any]) -> dict[str, Any]:
        return {"format": FORMAT, "version": __version__, **settings}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All that is written inside, or none of it; other processes wait."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def done(self, name: str) -> set[str]:
        """Return the pieces of work that are finished."""
        return {item for (item,) in self._db.execute("SELECT item FROM done WHERE name = ?", (name,))}

    def write(self, name: str, item: str, rows: Sequence[Row]) -> None:
        """Add the rows of one piece of work, all or none."""
        marks = ",".join("?" * (len(COLUMNS) + 1))
        with self._lock, self._transaction():
            self._db.executemany(f"INSERT OR IGNORE INTO result VALUES ({marks})", [(name, *r) for r in rows])
            self._db.execute("INSERT OR IGNORE INTO done VALUES (?, ?)", (name, item))

    def means(self, name: str, experiments: int) -> list[tuple[Any, ...]]:
        """Return (instance, model, hidden, inv_t, steps, method, mean F over trials, mean seconds)."""
        return self._db.execute(
            "SELECT instance, model, hidden, inv_t, steps, method, AVG(free_energy), AVG(seconds) FROM result"
            " WHERE name = ? AND instance < ? GROUP BY instance, model, hidden, inv_t, steps, method"
            " ORDER BY instance, model, hidden, inv_t, steps, method",
            (name, experiments),
        ).fetchall()

    def export(self, name: str, path: Path) -> None:
        """Write every row of an experiment as CSV."""
        rows: Iterable[Any] = self._db.execute(
            f"SELECT {', '.join(COLUMNS)} FROM result WHERE name = ? ORDER BY {', '.join(COLUMNS[:7])}",
            (name,),
        )
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(rows)

    def close(self) -> None:
        """Close the file."""
        self._db.close()
