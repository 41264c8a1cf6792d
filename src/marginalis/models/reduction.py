"""Exact reduction of a factor model: variables with small tables are summed out one after another.

The sum over a variable multiplies its tables and leaves a message, which is a function of its neighbours. A message
whose logarithm is a function of one variable plus a function of the others is split into the two, and an axis on which
it does not depend is removed. So all variables of a Bayesian network that have no evidence below them (barren nodes)
are removed, whatever the treewidth, and messages keep few variables.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..checks import Array

# Differences up to this fraction of the largest logarithm of a table are rounding errors.
_ROUNDING = 2.0**-48
# The sum over a variable that may leave no joint table is tried if its own table has at most 2^12 entries.
_BARREN = 12.0

# The variables of a factor, and the table over their states.
Factor = tuple[tuple[int, ...], Array]


class Parts(NamedTuple):
    """A table as a sum of a constant, functions of one variable each, and a table of the other variables."""

    constant: float
    single: list[tuple[int, Array]]
    scope: tuple[int, ...]
    table: Array


def split(scope: Sequence[int], table: Array) -> Parts:
    """Split a table of logarithms, which may be −∞, into parts."""
    left = [v for v, card in zip(scope, table.shape, strict=True) if card > 1]
    if len(left) < len(scope):
        table = table.reshape([card for card in table.shape if card > 1])
    finite = np.isfinite(table)
    hard = not finite.all()
    if hard and not finite.any():
        return Parts(-math.inf, [], (), np.zeros(()))
    largest = np.abs(table[finite] if hard else table).max()
    error = _ROUNDING * (1.0 + float(largest))
    single: list[tuple[int, Array]] = []
    axis = 0
    while axis < len(left):
        own, rest = _own_part(np.moveaxis(table, axis, 0), error, hard)
        if own is None:
            axis += 1
            continue
        if not (np.abs(own) <= error).all():
            single.append((left[axis], own))
        del left[axis]
        table = rest
    if not left:
        return Parts(float(table), single, (), np.zeros(()))
    top = float(table.max())
    return Parts(top, single, tuple(left), table - top)


def _own_part(table: Array, error: float, hard: bool) -> tuple[Array | None, Array]:
    """Return f and g with table(x, y) = f(x) + g(y) up to an error; f is None if there are none."""
    rows = table.reshape(len(table), -1)
    if not hard:
        own = rows[:, :1] - rows[0, 0]
        fits = float(np.abs(rows - rows[0] - own).max()) <= error
        return (own.ravel(), table[0]) if fits else (None, table)
    finite = np.isfinite(rows)
    possible, columns = np.asarray(finite.any(axis=1)), np.asarray(finite.any(axis=0))
    if not (finite == possible[:, None] & columns).all():
        return None, table
    inner = rows[np.ix_(possible, columns)]
    differences = inner[:, :1] - inner[0, 0]
    if not float(np.abs(inner - inner[0] - differences).max()) <= error:
        return None, table
    own = np.full(len(table), -np.inf)
    own[possible] = differences.ravel()
    return own, table[int(possible.argmax())]


class Network:
    """Factors while variables are summed out: `alive` are the factors left, `constants` the logarithms of sums."""

    def __init__(self, cards: Sequence[int], factors: Iterable[Factor], constant: float = 0.0) -> None:
        self.cards = list(cards)
        self.alive = set(range(len(self.cards)))
        self.constants = [constant]
        self.factors: dict[int, Factor] = {}
        self._around: list[set[int]] = [set() for _ in self.cards]  # The numbers of the factors of each variable.
        self._next = 0
        for scope, table in factors:
            self._add_parts(split(scope, table))

    def reduce(self, bound: float) -> None:
        """Sum out all variables that leave no joint table, then variables whose tables have at most 2^bound entries."""
        self._sum(_BARREN, barren=True)
        self._sum(bound, barren=False)

    def _sum(self, bound: float, *, barren: bool) -> None:
        """Sum out variables, smallest tables first; with `barren` only variables that leave no joint table."""
        current = {v: self._log2_size(v) for v in self.alive}
        heap = [(size, v) for v, size in current.items()]
        heapq.heapify(heap)
        while heap:
            size, v = heapq.heappop(heap)
            if v not in self.alive or current[v] != size:
                continue
            if size > bound:
                return
            parts = split(*self._summed(v))
            if barren and parts.scope:
                continue
            near = self._neighbours(v)
            self._remove(v)
            self._add_parts(parts)
            for u in near:
                fresh = self._log2_size(u)
                if fresh != current[u] or barren:
                    current[u] = fresh
                    heapq.heappush(heap, (fresh, u))

    def _neighbours(self, v: int) -> set[int]:
        near = {u for number in self._around[v] for u in self.factors[number][0]}
        near.discard(v)
        return near

    def _log2_size(self, v: int) -> float:
        return math.log2(self.cards[v]) + math.fsum(math.log2(self.cards[u]) for u in self._neighbours(v))

    def _summed(self, v: int) -> Factor:
        """Return the neighbours of a variable and the logarithm of its tables' product, summed over its states."""
        rest = sorted(self._neighbours(v))
        place = {u: k for k, u in enumerate([v, *rest])}
        total = np.zeros([self.cards[v], *(self.cards[u] for u in rest)])
        for number in self._around[v]:
            scope, table = self.factors[number]
            axes = np.argsort([place[u] for u in scope]).tolist()
            shape = [1] * total.ndim
            for u in scope:
                shape[place[u]] = self.cards[u]
            total += table.transpose(axes).reshape(shape)
        top = np.asarray(total.max(axis=0))
        top = np.where(np.isneginf(top), 0.0, top)
        total -= top
        with np.errstate(divide="ignore"):
            return tuple(rest), np.asarray(np.log(np.exp(total, out=total).sum(axis=0)) + top)

    def _remove(self, v: int) -> None:
        for number in list(self._around[v]):
            for u in self.factors.pop(number)[0]:
                self._around[u].discard(number)
        self.alive.discard(v)

    def _add_parts(self, parts: Parts) -> None:
        self.constants.append(parts.constant)
        for v, table in parts.single:
            self._add((v,), table)
        if parts.scope:
            self._add(parts.scope, parts.table)

    def _add(self, scope: tuple[int, ...], table: Array) -> None:
        """Add a factor; it is multiplied with the factor of the same variables if there is one."""
        for number in self._around[scope[0]]:
            other, values = self.factors[number]
            if len(other) == len(scope) and set(other) == set(scope):
                self.factors[number] = other, values + table.transpose([scope.index(v) for v in other])
                return
        self.factors[self._next] = scope, table
        for v in scope:
            self._around[v].add(self._next)
        self._next += 1
