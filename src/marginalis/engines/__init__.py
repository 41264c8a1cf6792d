"""Engines advance populations of chains; one driver runs them.

An engine has ``begin(plan)``, which lays a plan out once and returns a function from a range of chains to a
population, and says how many chains to advance together. A population has the step it is at, ``advance(to_step)``,
``log_weights`` (float64), ``states()``, ``choose(ancestors)``, and the ``stride`` of steps between two looks at the
clock. Nothing but `drive` knows which engine runs.
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
        """Take steps until `to_step` of them have been taken in all."""
        ...

    @property
    def log_weights(self) -> Array:
        """ln W of every chain up to this step, for what is annealed of the plan."""
        ...

    def states(self) -> Array:
        """States of the sampled side, [chain, feature]."""
        ...

    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Go on from the states of these chains, one for each."""
        ...


@dataclass(frozen=True)
class Begun:
    """A plan that an engine has laid out: makes the population of a range of the plan's chains."""

    population: Callable[[range], Any]
    together: int  # chains to advance together at most
    at_least: int = 16  # and at least, where there are so many for every thread
    carries_marginal: bool = False  # whether AIS carries the weights of mAIS along, as `marginal_log_weights`
    aligned: int = 0  # if not 0, jobs begin at chains whose numbers are multiples of this
    at_a_time: int = 0  # populations that are advanced at a time, where that has nothing to do with threads
