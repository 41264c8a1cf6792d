"""Variables with any number of states, as one-hot features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...checks import Array
from .kind import Units


@dataclass(frozen=True)
class Categorical(Units):
    """Variables with `sizes` states each (one number for all, or one per variable), as one-hot features.

    Features are ordered by variable, then by state. With a field and a weight for every feature this is the paper's
    general discrete bipartite energy (eq. bipartite_energy_k).
    """

    sizes: int | tuple[int, ...]

    is_discrete = True
    is_one_hot = True

    def __post_init__(self) -> None:
        if isinstance(self.sizes, tuple) and len(set(self.sizes)) == 1:
            object.__setattr__(self, "sizes", self.sizes[0])
        if min(np.atleast_1d(self.sizes)) < 2:
            raise ValueError(f"a categorical variable needs at least 2 states, not {min(np.atleast_1d(self.sizes))}")

    @property
    def name(self) -> str:
        return f"categorical:{','.join(str(q) for q in np.atleast_1d(self.sizes))}"

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0

    @property
    def noun(self) -> tuple[str, str]:
        sizes = np.unique(np.atleast_1d(self.sizes))
        return "variable", f" of {sizes[0]}" + (f" to {sizes[-1]}" if len(sizes) > 1 else "") + " states"

    def counts(self, features: int) -> NDArray[np.int64]:
        """Return the number of states of each variable."""
        if isinstance(self.sizes, int):
            if features % self.sizes:
                raise ValueError(f"{features} features are not a multiple of {self.sizes}, the states of a variable")
            return np.full(features // self.sizes, self.sizes)
        if sum(self.sizes) != features:
            raise ValueError(f"variables of {sum(self.sizes)} states in all cannot have {features} features")
        return np.array(self.sizes)

    def equal_states(self, features: int) -> list[Array]:
        counts = self.counts(features)
        first, found = np.cumsum(counts) - counts, []
        for state in range(int(counts.max(initial=0))):
            x = np.zeros(features)
            x[first + np.minimum(state, counts - 1)] = 1.0
            found.append(x)
        return found

    def variables(self, features: int) -> int:
        return len(self.counts(features))

    def owners(self, features: int) -> NDArray[np.int64]:
        counts = self.counts(features)
        return np.repeat(np.arange(len(counts)), counts)

    def take(self, variables: NDArray[np.int64]) -> Categorical:
        if isinstance(self.sizes, int):
            return self
        return Categorical(tuple(self.sizes[i] for i in variables) or 2)  # A side without variables may have any size.

    def joined(self, other: Self, features: tuple[int, int], order: NDArray[np.int64]) -> Categorical:
        counts = np.concatenate([self.counts(features[0]), other.counts(features[1])])
        return Categorical(tuple(counts[order].tolist()))

    def check(self, features: int, argument: str) -> None:
        self.counts(features)

    def log2_states(self, variables: int) -> Array:
        return np.log2(np.broadcast_to(np.asarray(self.sizes, dtype=np.float64), (variables,)))

    def log_normaliser(self, fields: Array) -> Array:
        starts, _, top, weights = self._weights(fields)
        return (top + np.log(np.add.reduceat(weights, starts, axis=1))).sum(axis=1)

    def draw(self, fields: Array, uniforms: Array) -> Array:
        """Draw by inversion: the first state of each variable whose cumulative probability exceeds u."""
        starts, owners, _, weights = self._weights(fields)
        below = np.cumsum(weights, axis=1)
        before = below[:, starts] - weights[:, starts]
        total = np.add.reduceat(weights, starts, axis=1)
        passed = below - before[:, owners] > (uniforms * total)[:, owners]
        # A state is drawn if its cumulative sum exceeds u and that of the state before it does not.
        one_hot = passed.astype(np.float64)
        one_hot[:, 1:] -= passed[:, :-1] & (owners[1:] == owners[:-1])
        # Rounding may leave a variable without a state; then its last state is drawn.
        missed = np.add.reduceat(one_hot, starts, axis=1) == 0
        if missed.any():
            ends = np.append(starts[1:], fields.shape[1]) - 1
            one_hot[:, ends] += missed
        return one_hot

    def mean(self, fields: Array) -> Array:
        starts, owners, _, weights = self._weights(fields)
        return weights / np.add.reduceat(weights, starts, axis=1)[:, owners]

    def response(self, fields: Array, change: Array) -> Array:
        starts, owners, _, _ = self._weights(fields)
        p = self.mean(fields)
        return p * (change - np.add.reduceat(p * change, starts, axis=1)[:, owners])

    def fields_of(self, mean: Array) -> Array:
        return np.log(mean)

    def allows(self, rows: Array) -> tuple[NDArray[np.bool_], str]:
        return (rows == 0.0) | (rows == 1.0), "categorical units are one-hot features, 0 or 1"

    def check_rows(self, rows: Array, first: int = 0, argument: str = "data", columns: Any = None) -> None:
        super().check_rows(rows, first, argument)  # The columns are features, which have no names.
        counts = self.counts(rows.shape[1])
        chosen = np.add.reduceat(rows, np.cumsum(counts) - counts, axis=1)
        if (chosen != 1.0).any():
            row, variable = np.argwhere(chosen != 1.0)[0]
            raise ValueError(
                f"{argument}[{first + row}] gives variable {variable} {chosen[row, variable]:g} states; "
                "categorical units are one-hot features, exactly one of them 1"
            )

    def states_of(self, rows: Array) -> NDArray[np.int64]:
        counts = self.counts(rows.shape[1])
        starts = np.cumsum(counts) - counts
        numbers = np.arange(rows.shape[1]) - np.repeat(starts, counts)
        return np.add.reduceat(rows * numbers, starts, axis=1).astype(np.int64)

    def mean_of_rates(self, rows: Array, extra: float) -> Array:
        mean: Array = (rows.sum(axis=0) + extra) / (len(rows) + extra * self._states(rows.shape[1]))
        return mean

    def inside(self, means: Array, share: float) -> Array:
        return share * means + (1.0 - share) / self._states(means.shape[1])

    def mean_ends(self, low: Array, high: Array) -> tuple[Array, Array]:
        return np.zeros_like(low), np.ones_like(high)

    def may_be_missed(self, start: Array, low: Array, high: Array, by: float, against: float) -> NDArray[np.bool_]:
        owners = self.owners(len(start))
        favourite = np.lexsort((start, owners))[np.cumsum(self.counts(len(start))) - 1][owners]
        missed: NDArray[np.bool_] = (start[favourite] - start > by) & (high - low[favourite] > against)
        return missed

    def _states(self, features: int) -> NDArray[np.int64]:
        """Return, for every feature, the number of states of its variable."""
        return self.counts(features)[self.owners(features)]

    def _weights(self, fields: Array) -> tuple[NDArray[np.int64], NDArray[np.int64], Array, Array]:
        counts = self.counts(fields.shape[1])
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        owners = np.repeat(np.arange(len(counts)), counts)
        top = np.maximum.reduceat(fields, starts, axis=1)
        return starts, owners, top, np.exp(fields - top[:, owners])
