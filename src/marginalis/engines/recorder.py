"""Recording of log-weights, and of a function of the states, after chosen steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..checks import Array

if TYPE_CHECKING:
    from .plan import Plan

Measure = Callable[[int, Array], Array]


def the_states(k: int, v: Array) -> Array:
    """Return the states unchanged: the identity function, to record the states themselves."""
    return v


class Recorder:
    """Records of all chains after the given steps: `log_weights` [step, chain] and `values` [step, chain, number].

    After step k the weights are W_k = w_1 … w_k, and with them the states, moved by τ_k already unless k = K,
    follow P_k: weighted means over the chains estimate means under P_k. `measure` turns each state of the sampled side
    into `width` numbers. Every `group` recorded steps share a row, which has the mean of their numbers and the
    log-weights of the last of them. With `at_end` only the last states are measured, in a row of their own.
    """

    def __init__(
        self,
        steps: Sequence[int] | NDArray[np.int64],
        chains: int,
        measure: Measure | None = None,
        width: int = 0,
        group: int = 1,
        at_end: bool = False,
    ) -> None:
        self.steps = np.asarray(steps, dtype=np.int64)
        rows = len(self.steps) // group
        self.log_weights = np.empty((rows, chains))
        self.values = np.zeros((1 if at_end else rows, chains, width))
        self.measure, self._group, self._at_end = measure, group, at_end
        self._rows = {int(k): place // group for place, k in enumerate(self.steps)}

    @classmethod
    def of_final_states(cls, plan: Plan) -> Recorder:
        """Return a recorder of the log-weights and states of all chains of a plan after its last step."""
        return cls([plan.steps], plan.chains.count, the_states, plan.path.width)

    def like(self, chains: int) -> Recorder:
        """Return an empty recorder with the same settings for this number of chains."""
        return Recorder(self.steps, chains, self.measure, self.values.shape[2], self._group, self._at_end)

    @property
    def bytes_per_chain(self) -> int:
        """Memory per chain, in bytes."""
        return 8 * (len(self.log_weights) + len(self.values) * self.values.shape[2])

    def put(self, chains: slice, part: Recorder) -> None:
        """Copy the records of these chains from another recorder."""
        self.log_weights[:, chains], self.values[:, chains] = part.log_weights, part.values

    def __contains__(self, k: int) -> bool:
        return k in self._rows

    def wants_states(self, k: int) -> bool:
        """Whether the states after step k are to be measured."""
        return self.measure is not None and (k == self.steps[-1] or not self._at_end)

    def next_step(self, k: int, last: int) -> int:
        """Return the first recorded step after k, or `last`."""
        after = np.searchsorted(self.steps, k, side="right")
        return int(self.steps[after]) if after < len(self.steps) else last

    def record(self, k: int, chains: slice, log_weights: Array, v: Array | None) -> None:
        """Record the log-weights of these chains after step k, and the values of their states."""
        row = self._rows[k]
        self.log_weights[row, chains] = log_weights
        if self.measure is not None and v is not None:
            self.values[0 if self._at_end else row, chains] += self.measure(k, v) / self._group
