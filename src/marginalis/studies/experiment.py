"""An experiment: its pieces of work, how each is measured, and how results become a table and a figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..files.store import Row
from ..models.units import Array
from ..options import Engine
from ..parallel.threads import Tick

Summary = list[dict[str, Any]]


class Key(NamedTuple):
    """A column of the results: the properties that all its instances share."""

    model: str
    hidden: int
    inv_t: float
    steps: int
    method: str


def keys_of(model: str, hidden: int, inv_t: float, steps: Sequence[int], methods: Sequence[str]) -> list[Key]:
    """Return the columns of one model: the exact value, and each method with each K."""
    estimates = [Key(model, hidden, inv_t, k, method) for k in steps for method in methods]
    return [Key(model, hidden, inv_t, 0, "exact"), *estimates]


@dataclass(frozen=True)
class Columns:
    """Results by column: the mean F over the trials and the mean CPU seconds, one entry per instance."""

    free_energy: dict[Key, Array]
    seconds: dict[Key, Array]

    @classmethod
    def of(cls, means: Sequence[tuple[Any, ...]]) -> Columns:
        """Sort the rows of `Store.read` into columns."""
        free: dict[Key, list[float]] = {}
        seconds: dict[Key, list[float]] = {}
        for _, model, hidden, inv_t, steps, method, value, cost in means:
            key = Key(model, hidden, inv_t, steps, method)
            free.setdefault(key, []).append(value)
            seconds.setdefault(key, []).append(math.nan if cost is None else cost)
        arrays = ({k: np.array(x) for k, x in part.items()} for part in (free, seconds))
        return cls(*arrays)

    def exact(self, key: Key) -> Array:
        """Return the exact F of the instances of a column."""
        return self.free_energy[Key(key.model, key.hidden, key.inv_t, 0, "exact")]

    def ape(self, key: Key) -> Array:
        """Absolute percentage error of each instance (eq. ape)."""
        exact = self.exact(key)
        return 100.0 * np.abs(self.free_energy[key] - exact) / np.abs(exact)

    def estimates(self) -> list[Key]:
        """Return the columns that hold estimates, in order."""
        return sorted(key for key in self.free_energy if key.method != "exact")


@dataclass(frozen=True)
class Experiment:
    """One of the paper's tables or figures."""

    name: str
    title: str
    experiments: int  # Default number of instances.
    chains: int  # Default number of chains N.
    settings: dict[str, Any]
    items: Callable[[int], list[tuple[Any, ...]]]  # Returns the pieces of work of one instance.
    keys: Callable[[tuple[Any, ...]], list[Key]]  # Returns the columns that a piece fills.
    # The arguments are the piece, the seed, the number of chains, the engine and the progress callback.
    measure: Callable[[tuple[Any, ...], int, int, Engine, Tick], list[Row]]
    summarise: Callable[[Columns], Summary]
    figure: Callable[[Columns, Summary], Any]
    text: str  # Text of the report: what the paper shows and what to look for.
    trials: int = 1  # Number of trials of every estimate.


def mean_and_error(x: Array) -> tuple[float, float]:
    """Return mean and standard error of the finite entries."""
    x = x[np.isfinite(x)]
    if not len(x):
        return math.nan, math.nan
    return float(x.mean()), float(x.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else math.nan
