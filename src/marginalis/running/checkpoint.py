"""Finished chains on disk, so that an interrupted run can be resumed.

A piece holds the results of some chains of one run, as bytes with a checksum. The key of a run is a digest of
everything that determines its weights, and chains have their own numbers. So the results do not depend on how a run is
split into pieces, and two processes may share one file.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..checks import Array, shown
from ..engines.plan import Plan, digest, model_digest
from ..engines.recorder import Recorder
from ..files.atomic import check_writable
from ..files.database import Database
from ..models.layered import as_model
from ..models.model import MRF
from ..paths.base import Base

logger = logging.getLogger("marginalis")

_TABLES = {
    "piece": "(number INTEGER PRIMARY KEY, run TEXT NOT NULL, first INTEGER NOT NULL, chains INTEGER NOT NULL,"
    " machine TEXT NOT NULL, data BLOB NOT NULL, checksum INTEGER NOT NULL, UNIQUE (run, first, chains))"
}


class StoredResult(NamedTuple):
    """Stored results of consecutive chains, as bytes."""

    first: int
    chains: int
    machine: str
    data: bytes

    def checksum(self, run: str) -> int:
        """Return a checksum of the piece and its place in the run."""
        return zlib.crc32(self.data, zlib.crc32(f"{run} {self.first} {self.chains} {self.machine}".encode()))


class Checkpoint(Database):
    """File with the pieces of all runs of one call."""

    kind = "checkpoint"
    other = "choose another file"

    def __init__(self, path: Any, settings: Mapping[str, Any]) -> None:
        """Open or create a file; raise a ValueError that names the difference if it belongs to another call."""
        if not isinstance(path, str | Path) or not str(path):
            raise ValueError(f"checkpoint is {shown(path)}; it must be the path of a file")
        check_writable(path)
        try:
            super().__init__(Path(path), _TABLES)
            self.begin({"run": settings}, resume=True)
        except OSError as error:
            raise ValueError(str(error)) from None

    def write(self, run: str, pieces: Sequence[StoredResult]) -> None:
        """Add pieces of a run, either all or none."""
        try:
            with self.access("BEGIN IMMEDIATE") as db:
                db.executemany(
                    "INSERT OR IGNORE INTO piece (run, first, chains, machine, data, checksum) VALUES (?,?,?,?,?,?)",
                    [(run, *piece, piece.checksum(run)) for piece in pieces],
                )
        except OSError as error:  # The disk may be full, for example.
            raise ValueError(str(error)) from None

    def read(self, run: str, after: int = 0) -> Iterator[tuple[int, StoredResult]]:
        """Yield the pieces of a run with numbers above `after`, each with its number.

        A piece whose checksum does not match is dropped, and its chains are run again.
        """
        with self.access("BEGIN") as db:
            query = "SELECT number FROM piece WHERE run = ? AND number > ? ORDER BY number"
            numbers = [number for (number,) in db.execute(query, (run, after))]
        for number in numbers:
            with self.access("BEGIN") as db:
                query = "SELECT first, chains, machine, data, checksum FROM piece WHERE number = ?"
                row = db.execute(query, (number,)).fetchone()
            if row is None:
                continue
            try:
                piece, good = StoredResult(*row[:4]), False
                good = piece.checksum(run) == row[4]
            except (TypeError, ValueError):
                pass
            if good:
                yield number, piece
                continue
            logger.warning("%s: a stored result is corrupt; its chains are run again", self.path)
            with self.access("BEGIN IMMEDIATE") as db:
                db.execute("DELETE FROM piece WHERE number = ?", (number,))


def open_checkpoint(options: Mapping[str, Any], label: str, models: Sequence[Any]) -> Checkpoint:
    """Return the checkpoint that the options name; `label` and `models` identify the call."""
    found = [model_digest(as_model(model))[:16] for model in models]
    settings = settings_of(options)
    return Checkpoint(options["checkpoint"], {"answer": label, "model": " ".join(found), **settings})


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that decide a result as JSON data."""
    own = ("threads", "progress", "pool", "checkpoint")  # These options do not change the result.
    given = {name: _plain(value) for name, value in options.items() if name not in own}
    if given["draws"] == "words":  # Files of older versions, which had no other kind of draws, lack this entry.
        del given["draws"]
    return given


def _plain(value: Any) -> Any:
    """Return the value of an option as JSON data, or a digest if it holds arrays."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, MRF):
        return model_digest(value)[:16]
    if isinstance(value, Base):
        value = [value.visible, value.hidden]
    if isinstance(value, list | tuple) and not all(isinstance(x, float) for x in value):
        return [_plain(x) for x in value]
    if isinstance(value, np.generic):
        return value.item()
    try:
        return hashlib.sha256(np.ascontiguousarray(value, dtype=np.float64).tobytes()).hexdigest()[:16]
    except (TypeError, ValueError):
        return repr(value)


def run_name(plan: Plan, recorder: Recorder | None) -> str:
    """Return the key of a run: a digest of everything that determines its results except the chain numbers."""
    path, chains = plan.path, plan.chains
    words = [plan.fingerprint(), plan.placement.engine, str(chains.seed), repr(path.exact_log_ratio)]
    if not path.is_exact:
        annealed = path.unturned
        words += [model_digest(annealed), str(annealed.sweep)]
    if chains.populations or chains.start is not None:  # Results depend on the whole population, or on the start row.
        words.append(f"{chains.first} {chains.count}")
    arrays: list[Any] = [x for x in (chains.start, chains.start_log_weights) if x is not None]
    if recorder is not None:
        measure = recorder.measure
        words += [str(recorder.bytes_per_chain), getattr(measure, "__qualname__", type(measure).__qualname__)]
        arrays.append(recorder.steps)
    return digest(" ".join(words), arrays)


def to_bytes(log_weights: Array, marginal: Array | None, recorder: Recorder | None) -> bytes:
    """Return the results of some chains as bytes."""
    parts = [log_weights] if recorder is None else [log_weights, recorder.log_weights, recorder.values]
    parts += [] if marginal is None else [marginal]
    return b"".join(np.ascontiguousarray(x, dtype="<f8").tobytes() for x in parts)


def from_bytes(data: bytes, size: int, chains: int, blank: Recorder | None) -> tuple[Array, Array | None, Any]:
    """Return `size` log-weights, those of mAIS if there are any, and the recorded values."""
    numbers = np.frombuffer(data, dtype="<f8").astype(np.float64)
    log_weights, rest = np.split(numbers, [size])
    recorder = None
    if blank is not None:
        recorder = blank.like(chains)
        own, values, rest = np.split(rest, np.cumsum([recorder.log_weights.size, recorder.values.size]))
        recorder.log_weights[:] = own.reshape(recorder.log_weights.shape)
        recorder.values[:] = values.reshape(recorder.values.shape)
    if len(log_weights) != size or len(rest) not in (0, chains):
        raise ValueError("the arrays have other sizes")
    return log_weights, rest if len(rest) else None, recorder
