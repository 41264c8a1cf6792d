"""A store of results in an SQLite file: rows of experiments, and estimates of many models.

A row of an experiment is one free energy by (experiment, instance, setting, method, trial). The rows of one piece of
work are written in one transaction together with a mark that the piece is done. A run killed at any moment therefore
leaves whole pieces only, and two runs on one file at worst compute a piece twice. An estimate of a model is one row by
(run, number of the model).
"""

from __future__ import annotations

import csv
import io
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from .atomic import write_whole
from .database import Database

_AT_A_TIME = 1000  # Estimates that are read at a time.
COLUMNS = ("instance", "model", "hidden", "inv_t", "steps", "method", "trial", "free_energy", "seconds")
TABLES = {
    "done": "(name TEXT, item TEXT, PRIMARY KEY (name, item)) WITHOUT ROWID",
    "result": "(name TEXT, instance INTEGER, model TEXT, hidden INTEGER, inv_t REAL, steps INTEGER,"
    " method TEXT, trial INTEGER, free_energy REAL NOT NULL, seconds REAL,"
    " PRIMARY KEY (name, instance, model, hidden, inv_t, steps, method, trial)) WITHOUT ROWID",
    "time": "(name TEXT, run TEXT, seconds REAL NOT NULL, PRIMARY KEY (name, run)) WITHOUT ROWID",
    "estimate": "(run TEXT, number INTEGER, name TEXT NOT NULL, model TEXT NOT NULL, log_z REAL, stderr REAL,"
    " low REAL, high REAL, ess REAL, tail_index REAL, steps INTEGER, chains INTEGER, seconds REAL,"
    " warnings TEXT NOT NULL, error TEXT NOT NULL, data BLOB, PRIMARY KEY (run, number)) WITHOUT ROWID",
}


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


class EstimateRow(NamedTuple):
    """The estimate of one of many models; numbers that are not known are None."""

    number: int
    name: str
    model: str  # Digest of the model, or an empty text if the model is not valid.
    log_z: float | None
    stderr: float | None
    low: float | None  # The ends of the 95 % interval of F.
    high: float | None
    ess: float | None
    tail_index: float | None
    steps: int | None
    chains: int | None
    seconds: float | None
    warnings: str  # One line each.
    error: str  # Why there is no estimate, or an empty text.
    data: bytes | None = None  # The estimate with its log-weights (see `results.packed`), if they are kept.


class Contents(NamedTuple):
    """The results of one experiment in a store."""

    done: set[str]  # Names of the finished pieces of work.
    # The columns are instance, model, hidden, inv_t, steps, method, mean F over trials and mean seconds.
    means: list[tuple[Any, ...]]
    seconds: float  # Seconds that all runs took, each up to its last piece.


class Store(Database):
    """The results of one or more experiments."""

    # Waiting for the disk after each of thousands of small pieces would take longer than computing them. A killed run
    # loses nothing, and pieces lost in a power failure are computed again.
    synchronous = "NORMAL"

    def __init__(self, path: Path) -> None:
        super().__init__(path, TABLES, later=("time", "estimate"))
        self._run = secrets.token_hex(8)

    def write(self, name: str, item: str, rows: Sequence[Row], seconds: float = 0.0) -> None:
        """Add the rows of one piece of work, all or none; the run has taken `seconds` so far."""
        columns = len(COLUMNS) + 1
        marks = f"({','.join('?' * columns)})"
        with self.access("BEGIN IMMEDIATE") as db:
            # A statement has many rows, as a switch of threads between two statements takes longer than a row.
            most = db.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // columns
            for first in range(0, len(rows), most):
                some = rows[first : first + most]
                values = [value for row in some for value in (name, *row)]
                db.execute(f"INSERT OR IGNORE INTO result VALUES {','.join([marks] * len(some))}", values)
            db.execute("INSERT OR IGNORE INTO done VALUES (?, ?)", (name, item))
            db.execute(
                "INSERT INTO time VALUES (?, ?, ?)"
                " ON CONFLICT (name, run) DO UPDATE SET seconds = MAX(seconds, excluded.seconds)",
                (name, self._run, seconds),
            )

    def read(self, name: str, experiments: int, trials: int) -> Contents:
        """Return the results of the first instances of an experiment as they are on disk."""
        with self.access("BEGIN", fresh=True) as db:
            done = {item for (item,) in db.execute("SELECT item FROM done WHERE name = ?", (name,))}
            (seconds,) = db.execute("SELECT TOTAL(seconds) FROM time WHERE name = ?", (name,)).fetchone()
            keys = ", ".join(COLUMNS[:6])
            number = "CASE method WHEN 'exact' THEN 1 ELSE :trials END"
            means = db.execute(
                f"SELECT {keys}, AVG(free_energy), AVG(seconds), COUNT(*) = {number} AND MAX(trial) = {number} - 1"
                " AND MIN(trial) = 0 AND MAX(ABS(free_energy)) < 1e100 AND MIN(typeof(trial) = 'integer' AND"
                " typeof(free_energy) = 'real' AND typeof(seconds) IN ('real', 'null')) FROM result"
                f" WHERE name = :name AND instance < :experiments GROUP BY {keys} ORDER BY {keys}",
                {"name": name, "trials": trials, "experiments": experiments},
            ).fetchall()
        spoilt = sum(not row[-1] for row in means)
        if spoilt:
            raise self.damage(f"{spoilt} results of {name} cannot be read")
        return Contents(done, [row[:-1] for row in means], seconds)

    def write_estimates(self, run: str, rows: Iterable[EstimateRow]) -> None:
        """Add estimates of some models, all or none; they replace earlier ones of the same models."""
        marks = ",".join("?" * (len(EstimateRow._fields) + 1))
        with self.access("BEGIN IMMEDIATE") as db:
            db.executemany(f"INSERT OR REPLACE INTO estimate VALUES ({marks})", ((run, *row) for row in rows))

    def count_estimates(self, run: str) -> int:
        """Return the number of estimates of a run, without those that failed."""
        with self.access("BEGIN") as db:
            query = "SELECT COUNT(*) FROM estimate WHERE run = ? AND error = ''"
            return int(db.execute(query, (run,)).fetchone()[0])

    def estimates(self, run: str) -> Iterator[EstimateRow]:
        """Yield the estimates of a run in the order of the models, some at a time, without those that failed."""
        after = -1
        columns = ", ".join(EstimateRow._fields)
        query = f"SELECT {columns} FROM estimate WHERE run = ? AND number > ? AND error = '' ORDER BY number"
        while True:
            with self.access("BEGIN") as db:
                rows = db.execute(f"{query} LIMIT {_AT_A_TIME}", (run, after)).fetchall()
            yield from map(EstimateRow._make, rows)
            if len(rows) < _AT_A_TIME:
                return
            after = rows[-1][0]

    def export(self, name: str, path: Path) -> None:
        """Write every row of an experiment as CSV."""

        def write(file: IO[bytes]) -> None:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            writer = csv.writer(text)
            writer.writerow(COLUMNS)
            columns, order = ", ".join(COLUMNS), ", ".join(COLUMNS[:7])
            with self.access("BEGIN") as db:
                writer.writerows(db.execute(f"SELECT {columns} FROM result WHERE name = ? ORDER BY {order}", (name,)))
            text.detach()

        write_whole(path, write)
