"""ln Z(β) along the annealing path."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import Array
from ..display import sketch
from ..display.card import Displayed
from ..display.words import decimals
from ..statistics.weights import Weights
from .written import Written, finite


class LogZRows:
    """ln Z of several distributions, from a row of log-weights for each."""

    log_weights: Array  # [distribution, chain]; Z_0 is not included.
    log_z0: float
    unseen: float  # See `Estimate.unseen`.
    ess_of: str  # What a log-weight belongs to: "chains" or "populations".

    @cached_property
    def weights(self) -> tuple[Weights, ...]:
        """The weights of every row."""
        return tuple(Weights(row, self.log_z0, unseen=self.unseen, of=self.ess_of) for row in self.log_weights)

    @cached_property
    def log_z(self) -> Array:
        """ln Z of every row."""
        return np.array([row.log_z for row in self.weights])

    @property
    def free_energy(self) -> Array:
        """F = −ln Z of every row."""
        return -self.log_z

    @cached_property
    def stderr(self) -> Array:
        """Standard error of every ln Z, by the delta method."""
        return np.array([row.stderr for row in self.weights])

    @cached_property
    def intervals(self) -> Array:
        """95 % interval of every ln Z: rows of (low, high)."""
        return -np.array([row.interval[::-1] for row in self.weights])


@dataclass(frozen=True, eq=False, repr=False)
class Curve(LogZRows, Written, Displayed):
    """ln Z(β) along the path from the base to the model, from the weights of the chains after each step.

    Z(β) is that of the intermediate distribution P_β. With a uniform base and discrete variables this is the model at
    temperature T/β; real variables keep their own terms, such as −γx²/2, along the path.
    """

    betas: Array  #: β of each point.
    log_weights: Array  #: [step, chain]; Z_0 is not included.
    log_z0: float  #: ln Z_0 of the base.
    unseen: float = 0.0  #: See `Estimate.unseen`.
    ess_of = "chains"

    def to_dict(self) -> dict[str, Any]:
        """Return ln Z(β) as plain data, with one row for each β."""
        columns = zip(self.betas, self.log_z, self.stderr, self.intervals, strict=True)
        rows = [
            {
                "beta": float(beta),
                "log_z": float(z),
                "free_energy": -float(z),
                "stderr": finite(float(error)),
                "interval": [finite(-float(x)) for x in interval[::-1]],
            }
            for beta, z, error, interval in columns
        ]
        return {"rows": rows, "log_z0": self.log_z0}

    def __str__(self) -> str:
        steps, chains = self.log_weights.shape
        error = float(self.stderr[-1])
        digits = decimals(error)
        beta, value = f"{self.betas[-1]:.4g}", self.log_z[-1]
        return (
            f"F({beta}) = {-value:.{digits}f} ± {error:.{digits}f}   ln Z({beta}) = {value:.{digits}f}   "
            f"(ln Z(0) = {self.log_z0:.{digits}f}; after {steps} steps, {chains} chains)"
        )

    def _sketch(self) -> str:
        return sketch.line(self.betas, self.log_z, about="ln Z against β")

    def __add__(self, other: Curve) -> Curve:
        """Return the curve from the chains of both curves, which must have the same steps."""
        if not np.array_equal(self.betas, other.betas):
            raise ValueError("cannot join curves recorded at different steps")
        both = np.concatenate([self.log_weights, other.log_weights], axis=1)
        return replace(self, log_weights=both, unseen=self.unseen * self.log_weights.shape[1] / both.shape[1])
