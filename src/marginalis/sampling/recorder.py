"""What is noted of a run on its way: log-weights after some steps, and what is made of the states there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..models.units import Array


class Watch:
    """Notes of all chains after the given steps: `log_weights` [step, chain], `values` [step, chain, number].

    After step k the weights are W_k = w_1 … w_k, and with them the states, moved by τ_k already unless k = K,
    follow P_k: weighted means over the chains estimate means under P_k. `look` makes `width` numbers of each
    state of the sampled side; `group` watched steps at a time share a row, where their numbers are averaged and
    the log-weights are those of the last.
    """

    def __init__(
        self,
        steps: Sequence[int] | NDArray[np.int64],
        chains: int,
        look: Callable[[int, Array], Array] | None = None,
        width: int = 0,
        group: int = 1,
    ) -> None:
        self.steps = np.asarray(steps, dtype=np.int64)
        rows = len(self.steps) // group
        self.log_weights = np.empty((rows, chains))
        self.values = np.zeros((rows, chains, width))
        self._look, self._group = look, group
        self._rows = {int(k): place // group for place, k in enumerate(self.steps)}

    def __contains__(self, k: int) -> bool:
        return k in self._rows

    def next_stop(self, k: int, last: int) -> int:
        """Return the first watched step after k, or `last`."""
        after = np.searchsorted(self.steps, k, side="right")
        return int(self.steps[after]) if after < len(self.steps) else last

    @property
    def looks(self) -> bool:
        """Whether the states are wanted, too."""
        return self._look is not None

    def note(self, k: int, part: slice, log_weights: Array, v: Array | None) -> None:
        """Hear of the chains `part` after step k."""
        row = self._rows[k]
        self.log_weights[row, part] = log_weights
        if self._look is not None and v is not None:
            self.values[row, part] += self._look(k, v) / self._group
