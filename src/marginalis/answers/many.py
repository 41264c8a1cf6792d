"""Free energies of many models, such as samples of disorder, temperatures, or checkpoints of a training run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from ..checks import Array, one_line, whole
from ..display.card import Displayed
from ..display.words import decimals
from ..models.layered import as_model
from ..models.model import MRF
from ..options import NOT_OF_A_PLAN, RunOptions, filled_in, takes_options
from ..parallel.mapping import map_items
from ..parallel.tasks import machine
from ..parallel.threads import Tick
from ..running.checkpoint import Checkpoint, StoredResult
from ..running.session import open_session
from .estimate import Estimate, load_estimate
from .estimating import estimate
from .record import Written, plain_name

_NOT_HERE = ("first_chain",)
_RUN = "models"


@dataclass(frozen=True, eq=False, repr=False)
class Estimates(Written, Displayed):
    """The estimates of many models, in the given order and with the given names."""

    names: tuple[Any, ...]
    answers: tuple[Estimate, ...]
    seconds: float
    _is_table = True

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.answers)

    def __getitem__(self, name: Any) -> Estimate:
        """Return the estimate of a model by its name, or by its index in a list."""
        if name in self.names:
            return self.answers[self.names.index(name)]
        if isinstance(name, int) and -len(self) <= name < len(self):
            return self.answers[name]
        raise KeyError(name)

    @property
    def log_z(self) -> Array:
        """ln Z of every model."""
        return np.array([answer.log_z for answer in self.answers])

    @property
    def free_energy(self) -> Array:
        """F of every model."""
        return np.array([answer.free_energy for answer in self.answers])

    @property
    def stderr(self) -> Array:
        """Standard error of every F."""
        return np.array([answer.stderr for answer in self.answers])

    @property
    def intervals(self) -> Array:
        """95 % interval of every F: rows of (low, high)."""
        return np.array([answer.interval for answer in self.answers])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt an estimate, as sentences with the name of the model."""
        return tuple(f"{name}: {w}" for name, x in zip(self.names, self.answers, strict=True) for w in x.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain data."""
        rows = [
            {"name": plain_name(name), **answer.to_dict()}
            for name, answer in zip(self.names, self.answers, strict=True)
        ]
        return {"rows": rows, "seconds": self.seconds}

    def _headline(self) -> str:
        return f"F of {len(self)} models   {self.seconds:.2f} s"

    def __str__(self) -> str:
        lines = [f"{'model':>12} {'F':>24} {'ln Z':>14} {'ESS':>9} {'of':>16} {'steps':>8} {'chains':>9}"]
        for name, x in zip(self.names, self.answers, strict=True):
            digits = decimals(x.stderr)
            value = f"{x.free_energy:.{digits}f} ± {x.stderr:.{digits}f}"
            weights = f"{len(x.log_weights)} {x.ess_of}"
            ends = f"{x.ess:9.1f} {weights:>16} {x.steps:8d} {x.chains:9d}"
            lines.append(f"{one_line(name, 40):>12} {value:>24} {x.log_z:14.{digits}f} {ends}")
        doubtful = sum(bool(x.warnings) for x in self.answers)
        if doubtful:
            lines.append(f"warning: {doubtful} of {len(self.answers)} are doubtful; {self.warnings[0]}")
        return "\n".join(lines)


@takes_options(leave_out=_NOT_HERE)
def estimate_many(
    models: Sequence[Any] | Mapping[Any, Any],
    *,
    tolerance: float | None = None,
    budget: float | None = None,
    **options: Unpack[RunOptions],
) -> Estimates:
    """Estimate the free energy of every model; each model runs on one core, several at a time.

    `models` is a list, or a dictionary from names to models. The options are those of `estimate` and apply to every
    model. Model number t has the seed ``seed + t``, so that errors are independent. With `checkpoint` the results of
    finished models are stored on disk.
    """
    named = dict(models) if isinstance(models, Mapping) else dict(enumerate(models)) if _is_list(models) else {}
    if not named:
        raise ValueError("models must be a list or a dictionary of at least one model")
    chosen = filled_in(options, leave_out=_NOT_HERE)
    seed = whole(chosen["seed"], "seed", 0, 2**64 - len(named))  # Each model has its own seed.
    begin = time.perf_counter()
    own = [as_model(model, f"models[{name!r}]") for name, model in named.items()]
    names = list(named)
    how = {"tolerance": tolerance, "budget": budget}
    given = {name: value for name, value in options.items() if name not in NOT_OF_A_PLAN} | how
    found: dict[int, Estimate] = {}
    with open_session({**chosen, **how}, "models", *own) as session:
        if session.store is not None:
            found = dict(_stored(session.store))
        left = [number for number in range(len(own)) if number not in found]
        items = [(own[number], seed + number, names[number]) for number in left]

        def receive(place: int, answer: Estimate) -> None:
            found[left[place]] = answer
            if session.store is not None:
                session.store.write(_RUN, [StoredResult(left[place], 1, machine(), _to_bytes(answer))])

        if items:
            map_items(partial(_estimate, given), items, receive, session.pool, session.threads, session.tick)
    return Estimates(tuple(names), tuple(found[t] for t in range(len(own))), time.perf_counter() - begin)


def _is_list(models: Any) -> bool:
    return isinstance(models, list | tuple)


def _estimate(given: Mapping[str, Any], item: tuple[MRF, int, Any], tick: Tick) -> Estimate:
    model, seed, name = item
    try:
        return estimate(model, **{**given, "seed": seed}, threads=1, progress=tick)
    except InterruptedError:
        raise
    except (ValueError, TypeError) as error:
        raise type(error)(f"models[{name!r}]: {error}") from None


def _to_bytes(answer: Estimate) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        answer.save(Path(folder) / "estimate.npz")
        return (Path(folder) / "estimate.npz").read_bytes()


def _stored(store: Checkpoint) -> Iterator[tuple[int, Estimate]]:
    """Yield the estimates that a checkpoint holds, with their numbers."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "estimate.npz"
        for _, piece in store.read(_RUN):
            place.write_bytes(piece.data)
            try:
                yield piece.first, load_estimate(place)
            except ValueError as error:
                raise store.damage(error) from None
