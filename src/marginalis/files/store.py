"""A store of results in an SQLite file: rows of experiments, and estimates of many models.

A row of an experiment has the free energies of all trials by (experiment, instance, setting, method). The rows of a
piece of work are written in one transaction together with a mark that the piece is done. A run killed at any moment
therefore leaves whole pieces only, and two runs on one file at worst compute a piece twice. An estimate of a model is
one row by (run, number of the model).
"""

from __future__ import annotations

import csv
import io
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ..checks import Array
from .atomic import write_whole
from .database import Database

_LARGEST = 1e100  # A free energy of this size is a damaged number.
_AT_A_TIME = 1000  # Estimates that are read at a time.
# Columns of the exported CSV.
COLUMNS = ("instance", "model", "hidden", "inv_t", "steps", "method", "trial", "free_energy", "seconds")
TABLES = {
    "done": "(name TEXT, item TEXT, PRIMARY KEY (name, item)) WITHOUT ROWID",
    "result": "(name TEXT, instance INTEGER, model TEXT, hidden INTEGER, inv_t REAL, steps INTEGER,"
    " method TEXT, free_energies BLOB NOT NULL, seconds REAL,"  # One little-endian float64 for each trial.
    " PRIMARY KEY (name, instance, model, hidden, inv_t, steps, method)) WITHOUT ROWID",
    "time": "(name TEXT, run TEXT, seconds REAL NOT NULL, PRIMARY KEY (name, run)) WITHOUT ROWID",
    "estimate": "(run TEXT, number INTEGER, name TEXT NOT NULL, model TEXT NOT NULL, log_z REAL, stderr REAL,"
    " low REAL, high REAL, ess REAL, tail_index REAL, steps INTEGER, chains INTEGER, seconds REAL,"
    " warnings TEXT NOT NULL, error TEXT NOT NULL, data BLOB, PRIMARY KEY (run, number)) WITHOUT ROWID",
    "further": "(run TEXT, number INTEGER, numbers BLOB NOT NULL,"  # Little-endian float64.
    " PRIMARY KEY (run, number)) WITHOUT ROWID",
}


class Row(NamedTuple):
    """The free energies of one model by one method (or the exact value: method ``exact``, steps 0)."""

    instance: int
    model: str
    hidden: int
    inv_t: float
    steps: int
    method: str
    free_energies: Array  # One for each trial.
    seconds: float | None  # CPU seconds of a trial.


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
        super().__init__(path, TABLES, later=("time", "estimate", "further"))
        self._run = secrets.token_hex(8)

    def write(self, name: str, pieces: Iterable[tuple[str, Sequence[Row]]], seconds: float = 0.0) -> None:
        """Add the rows of some pieces of work, all or none; the run has taken `seconds` so far."""
        pieces = list(pieces)
        values = [
            (name, *row[:6], np.asarray(row.free_energies, "<f8").tobytes(), row.seconds)
            for _, rows in pieces
            for row in rows
        ]
        with self.access("BEGIN IMMEDIATE") as db:
            db.executemany("INSERT OR IGNORE INTO result VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            db.executemany("INSERT OR IGNORE INTO done VALUES (?, ?)", [(name, item) for item, _ in pieces])
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
            rows = db.execute(
                f"SELECT {keys}, free_energies, seconds, typeof(free_energies) = 'blob' AND"
                " typeof(seconds) IN ('real', 'null') AND length(free_energies) ="
                " CASE method WHEN 'exact' THEN 8 ELSE 8 * :trials END FROM result"
                f" WHERE name = :name AND instance < :experiments ORDER BY {keys}",
                {"name": name, "trials": trials, "experiments": experiments},
            ).fetchall()
        good = [row for row in rows if row[-1]]
        means = _means([row[-3] for row in good])
        spoilt = len(rows) - sum(abs(mean) < _LARGEST for mean in means)
        if spoilt:
            raise self.damage(f"{spoilt} results of {name} cannot be read")
        found = [(*row[:-3], mean, row[-2]) for row, mean in zip(good, means, strict=True)]
        return Contents(done, found, seconds)

    def write_estimates(self, run: str, rows: Iterable[EstimateRow], further: Iterable[tuple[int, Array]] = ()) -> None:
        """Add estimates of some models, all or none; they replace earlier ones of the same models.

        `further` has further numbers by the numbers of the models.
        """
        marks = ",".join("?" * (len(EstimateRow._fields) + 1))
        blobs = ((run, number, np.asarray(values, "<f8").tobytes()) for number, values in further)
        with self.access("BEGIN IMMEDIATE") as db:
            db.executemany(f"INSERT OR REPLACE INTO estimate VALUES ({marks})", ((run, *row) for row in rows))
            db.executemany("INSERT OR REPLACE INTO further VALUES (?, ?, ?)", blobs)

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

    def further(self, run: str) -> Iterator[tuple[int, Array]]:
        """Yield the further numbers of a run by the numbers of the models, in their order, some at a time."""
        after = -1
        query = "SELECT number, numbers FROM further WHERE run = ? AND number > ? ORDER BY number"
        while True:
            with self.access("BEGIN") as db:
                rows = db.execute(f"{query} LIMIT {_AT_A_TIME}", (run, after)).fetchall()
            for number, data in rows:
                if not isinstance(data, bytes) or len(data) % 8:
                    raise self.damage(f"the further numbers of model {number} cannot be read")
                yield int(number), np.frombuffer(data, "<f8").astype(np.float64)
            if len(rows) < _AT_A_TIME:
                return
            after = rows[-1][0]

    def export(self, name: str, path: Path) -> None:
        """Write every free energy of an experiment as one line of CSV."""

        def write(file: IO[bytes]) -> None:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            writer = csv.writer(text)
            writer.writerow(COLUMNS)
            order = ", ".join(COLUMNS[:6])
            select = f"SELECT {order}, free_energies, seconds FROM result"
            with self.access("BEGIN") as db:
                for *key, trials, seconds in db.execute(f"{select} WHERE name = ? ORDER BY {order}", (name,)):
                    values = np.frombuffer(trials, "<f8").tolist()
                    writer.writerows((*key, trial, value, seconds) for trial, value in enumerate(values))
            text.detach()

        write_whole(path, write)


def _means(rows: Sequence[bytes]) -> list[float]:
    """Return the means of the free energies of rows, added up one after the other on every machine."""
    found = np.empty(len(rows))
    sizes = np.array([len(row) for row in rows], dtype=np.int64)
    with np.errstate(all="ignore"):  # A sum that is not finite is refused.
        for size in np.unique(sizes).tolist():
            some = np.flatnonzero(sizes == size)
            values = np.frombuffer(b"".join(rows[i] for i in some.tolist()), "<f8").reshape(len(some), -1)
            found[some] = np.cumsum(values, axis=1)[:, -1] / values.shape[1]
    return found.tolist()
