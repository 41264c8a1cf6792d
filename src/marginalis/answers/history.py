"""ln Z of a model in training and ln p of some rows, one point for each time that it was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import Array, one_line
from ..display import sketch
from ..display.card import Displayed
from ..display.words import decimals
from ..results.written import Written, finite

CARRIED, FRESH, NOTHING = "carried", "fresh", "nothing"  # Where the ln Z of a point comes from.


@dataclass(frozen=True)
class Point:
    """ln Z and ln p of some rows at one step of training.

    The interval of ln p is that of ln Z, turned round; `rows_error` is the error from the choice of rows.
    """

    step: int
    log_z: float
    log_z_interval: tuple[float, float]
    stderr: float
    log_p: Mapping[str, float] = field(default_factory=dict)  # Mean of every set of rows.
    rows_error: Mapping[str, float] = field(default_factory=dict)
    source: str = CARRIED  # The carried population, a fresh run, or nothing if the model had no ln Z.
    annealing_steps: int = 0  # Steps of all chains for this point.
    seconds: float = 0.0  # Time of this point.
    note: str = ""
    model: str = ""  # Digest of the model.

    def log_p_interval(self, name: str) -> tuple[float, float]:
        """Return the 95 % interval of the mean ln p of a set of rows, from the uncertainty of ln Z alone."""
        low, high = self.log_z_interval
        return self.log_p[name] + self.log_z - high, self.log_p[name] + self.log_z - low

    def columns(self) -> dict[str, Any]:
        """Return the point as one row of a table."""
        row: dict[str, Any] = {"step": self.step, "log_z": self.log_z}
        row |= {"log_z_low": self.log_z_interval[0], "log_z_high": self.log_z_interval[1], "stderr": self.stderr}
        for name, value in self.log_p.items():
            low, high = self.log_p_interval(name)
            row |= {f"{name}_ln_p": value, f"{name}_low": low, f"{name}_high": high}
            row[f"{name}_rows_error"] = self.rows_error[name]
        rest = ("source", "annealing_steps", "seconds", "note")
        return row | {name: getattr(self, name) for name in rest}

    def to_plain(self) -> dict[str, Any]:
        """Return the point as JSON data for `from_plain`."""
        return asdict(self)

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> Point:
        """Return the point in such data."""
        return cls(**{**data, "log_z_interval": tuple(data["log_z_interval"])})

    def __str__(self) -> str:
        digits = max(2, decimals(self.stderr))
        parts = [f"step {self.step}: ln Z = {self.log_z:.{digits}f} ± {self.stderr:.{digits}f}"]
        parts += [f"ln p of {one_line(name, 20)} {value:.{digits}f}" for name, value in self.log_p.items()]
        return ", ".join(parts) + f"   ({self.source}{f': {self.note}' * bool(self.note)})"


@dataclass(frozen=True, eq=False, repr=False)
class History(Written, Displayed):
    """The points of a training run in the order of their steps."""

    points: tuple[Point, ...]  #: One point for each step at which ln Z was noted.
    _is_table = True

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.points)

    def __getitem__(self, place: int) -> Point:
        """Return a point."""
        return self.points[place]

    @cached_property
    def steps(self) -> Array:
        """Steps of training."""
        return np.array([p.step for p in self.points], dtype=np.float64)

    @cached_property
    def log_z(self) -> Array:
        """ln Z at every step."""
        return np.array([p.log_z for p in self.points])

    @cached_property
    def intervals(self) -> Array:
        """95 % intervals of ln Z: rows of (low, high)."""
        return np.array([p.log_z_interval for p in self.points]).reshape(-1, 2)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sets of rows."""
        return tuple(self.points[0].log_p) if self.points else ()

    def log_p(self, name: str) -> Array:
        """Return the mean ln p of a set of rows at every step."""
        return np.array([p.log_p.get(name, math.nan) for p in self.points])

    def log_p_intervals(self, name: str) -> Array:
        """Return the 95 % intervals of the mean ln p from the uncertainty of ln Z alone: rows of (low, high)."""
        return (self.log_p(name) + self.log_z)[:, None] - self.intervals[:, ::-1]

    @property
    def seconds(self) -> float:
        """Seconds that all points took."""
        return sum(p.seconds for p in self.points)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Notes of the points that have one."""
        return tuple(f"step {p.step}: {p.note}" for p in self.points if p.note)

    def to_dict(self) -> dict[str, Any]:
        """Return the points as plain data; infinite numbers and NaN become None."""
        rows = [{k: finite(x) if isinstance(x, float) else x for k, x in p.columns().items()} for p in self.points]
        return {"rows": rows, "seconds": self.seconds}

    def __str__(self) -> str:
        if not self.points:
            return "no points yet"
        heads = "".join(f" {f'ln p of {one_line(name, 20)}':>24}" for name in self.names)
        lines = [f"{'step':>8} {'ln Z':>20}{heads}  from"]
        for p in self.points:
            digits = max(2, decimals(p.stderr))
            cells = [f"{p.log_z:.{digits}f} ± {p.stderr:.{digits}f}"]
            line = f"{p.step:8d} {cells[0]:>20}"
            for name in self.names:
                line += f" {p.log_p.get(name, math.nan):24.{digits}f}"
            lines.append(f"{line}  {p.source}")
        lines.append(f"{len(self.points)} points, {self.seconds:.2f} s")
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])

    def _headline(self) -> str:
        return f"ln Z of a training run at {len(self.points)} steps   ({self.seconds:.2f} s)"

    def _sketch(self) -> str:
        seen = np.isfinite(self.log_z)
        if seen.sum() < 2:
            return ""
        y = self.log_p(self.names[0]) if self.names else self.log_z
        return sketch.line(self.steps[seen], y[seen], None, f"{'mean ln p' if self.names else 'ln Z'} of every step")
