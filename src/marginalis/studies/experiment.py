"""An experiment: its pieces of work, how each is measured, and how results become a table and a figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..checks import Array
from ..files.store import Row
from ..options import Engine
from ..parallel.threads import Tick
from .sampling import EXACT_SECONDS, Run, Setting, exact_rows, make_models, sample_rows, seconds_of

Summary = list[dict[str, Any]]


class Key(NamedTuple):
    """A column of the results: the properties that all its instances share."""

    model: str
    hidden: int
    inv_t: float
    steps: int
    method: str


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
    constants: dict[str, Any]  # Values that the results depend on, for the report and for the store.
    items: Callable[[int], list[tuple[Any, ...]]]  # Returns the pieces of work of one instance.
    settings: Callable[[tuple[Any, ...]], list[Setting]]  # Returns the models of a piece.
    runs: Callable[[Setting, int], list[Run]]  # Returns the runs of a model, from a seed.
    summarise: Callable[[Columns], Summary]
    figure: Callable[[Columns, Summary], Any]
    text: str  # Text of the report: what the paper shows and what to look for.
    trials: int = 1  # Number of trials of every estimate.

    def keys(self, item: tuple[Any, ...]) -> set[tuple[int, Key]]:
        """Return the instance and column of every result of a piece of work."""
        found = set()
        for setting in self.settings(item):
            columns = [(0, "exact")]
            columns += [(run.steps, name) for run in self.runs(setting, 0) for name in run.names]
            rest = setting.model, setting.hidden, setting.inv_t
            found |= {(setting.instance, Key(*rest, *column)) for column in columns}
        return found

    def measured(
        self, seed: int, chains: int, engine: Engine, items: Sequence[tuple[Any, ...]], tick: Tick
    ) -> list[list[Row]]:
        """Return the results of several pieces of work, whose models run together where they have one shape."""
        parts = [self.settings(item) for item in items]
        settings = [setting for part in parts for setting in part]
        models = make_models(self.name, seed, settings)
        rows = [{row[:6]: row} for row in exact_rows(models, settings, engine, tick)]
        jobs = [(number, run) for number, setting in enumerate(settings) for run in self.runs(setting, seed)]
        which, runs = [number for number, _ in jobs], [run for _, run in jobs]
        own = [models[number] for number in which], [settings[number] for number in which]
        found = sample_rows(*own, runs, chains, self.trials, engine, tick)
        for number, some in zip(which, found, strict=True):
            rows[number] |= {row[:6]: row for row in some}  # A later run replaces the same results of an earlier one.
        each = iter(rows)
        return [[row for _ in part for row in next(each).values()] for part in parts]

    def seconds_of(self, item: tuple[Any, ...], chains: int, engine: Engine) -> float:
        """Return the estimated time of a piece of work on one core, in seconds."""
        settings = self.settings(item)
        models = make_models(self.name, 0, settings)
        runs = [self.runs(setting, 0) for setting in settings]
        own = [model for model, some in zip(models, runs, strict=True) for _ in some]
        seconds = seconds_of(own, [run for some in runs for run in some], chains * self.trials, engine)
        return seconds + EXACT_SECONDS * len(settings)


def mean_and_error(x: Array) -> tuple[float, float]:
    """Return mean and standard error of the finite entries."""
    x = x[np.isfinite(x)]
    if not len(x):
        return math.nan, math.nan
    return float(x.mean()), float(x.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else math.nan
