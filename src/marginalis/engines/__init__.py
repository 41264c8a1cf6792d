"""Plans of runs, and the engines that advance populations of chains along them.

`plan` defines a `Plan`, which holds everything that decides a run. `placement` chooses its engine and precision.
`drive` runs it on any engine, with resampling (`resample`) and intermediate results (`recorder`), and `batch` runs the
plans of many models together. The engines are `reference` (NumPy), `cpu` (Numba) and `cuda`. ``begin(plan)`` of an
engine prepares a plan once and returns a `PreparedPlan`, which makes a `Population` for any range of the plan's chains.
Only `drive` and `placement` distinguish engines. Read `plan` first, then `drive` and `reference.loop`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..checks import Array


class Population(Protocol):
    """Chains that an engine advances together, all at the same step."""

    step: int
    stride: int

    def advance(self, to_step: int) -> None:
        """Take steps until `to_step` steps have been taken in total."""
        ...

    @property
    def log_weights(self) -> Array:
        """ln W of every chain up to this step, for the annealed part of the model."""
        ...

    def states(self) -> Array:
        """States of the sampled side, [chain, feature]."""
        ...

    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Continue chain i from the state of chain ``ancestors[i]``."""
        ...


@dataclass(frozen=True)
class PreparedPlan:
    """A plan that an engine has prepared; it makes the population of any range of the plan's chains."""

    population: Callable[[range], Any]
    together: int  # Largest number of chains to advance together.
    at_least: int = 16  # Smallest number, if every thread can have as many.
    carries_marginal: bool = False  # Whether AIS also computes the weights of mAIS (`marginal_log_weights`).
    aligned: int = 0  # If not 0, jobs begin at chains whose numbers are multiples of this.
    at_a_time: int = 0  # If not 0, number of populations to advance at a time, whatever the threads.
