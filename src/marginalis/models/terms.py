"""Factors of two or more variables as products of spins or tables of states, and the fields that they give."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..checks import Array
from .forms import Indices


class Terms(NamedTuple):
    """Products of equally many features: their numbers [term, place], visible features first, and their couplings."""

    features: Indices
    couplings: Array


class Table(NamedTuple):
    """A table of the states of some variables, numbered with the visible ones first, in ascending order."""

    variables: tuple[int, ...]
    values: Array


# The numbers of states of some variables, and their factors: scopes and tables of logarithms.
Factors = tuple[list[int], list[tuple[tuple[int, ...], Array]]]


def in_ascending_order(variables: Sequence[int], values: Array) -> Table:
    """Return a table with its variables in ascending order."""
    axes = sorted(range(len(variables)), key=variables.__getitem__)
    return Table(tuple(variables[k] for k in axes), np.ascontiguousarray(values.transpose(axes)))


class _Products(NamedTuple):
    """The other features of some terms, and the matrix that adds their products to the fields of the targets."""

    others: NDArray[np.int64]
    onto: sp.csr_array

    def add(self, fields: Array, rows: Array) -> None:
        """Add the contributions to the fields of the targets."""
        fields += (self.onto @ _products(rows, self.others)).T


class _Lookup(NamedTuple):
    """A table, flat but for the states of its target, whose fields are `columns`, and the features of the others."""

    columns: slice
    others: list[tuple[slice, int]]
    table: Array

    def add(self, fields: Array, rows: Array) -> None:
        """Add the contributions to the fields of the target's states."""
        fields[:, self.columns] += self.table[_index(rows, self.others)]


class TermFields:
    """The contributions of terms and tables to −E and to the fields of features, given rows of all features.

    `starts` has the first feature of every variable, and `n` is the number of visible features.
    """

    def __init__(self, terms: Sequence[Terms], tables: Sequence[Table], starts: NDArray[np.int64], n: int) -> None:
        self._terms, self._tables, self._starts = terms, tables, starts
        inside = [(x, x.features[:, -1] < n) for x in terms]
        self._visible = [(x.features[at], x.couplings[at]) for x, at in inside]
        owners = int(np.searchsorted(starts, n))
        self._visible_tables = [
            (self._features(x.variables), x.values.ravel()) for x in tables if max(x.variables) < owners
        ]
        self._m = int(starts[-1]) - n
        self._hidden = self.block(np.arange(n, n + self._m))

    def _features(self, variables: Sequence[int]) -> list[tuple[slice, int]]:
        """Return the features and the number of states of some variables."""
        return [(slice(self._starts[v], self._starts[v + 1]), int(np.diff(self._starts)[v])) for v in variables]

    def block(self, features: NDArray[np.int64]) -> list[Any]:
        """Return the terms that add to the fields of some features, which are those of whole variables."""
        found = [_pull(x, features, place) for x in self._terms for place in range(x.features.shape[1])]
        lookups: list[Any] = [pull for pull in found if pull is not None]
        column = {int(f): k for k, f in enumerate(features)}
        for x in self._tables:
            for axis, v in enumerate(x.variables):
                if (first := column.get(int(self._starts[v]))) is not None:
                    count = x.values.shape[axis]
                    table = np.moveaxis(x.values, axis, -1).reshape(-1, count)
                    others = self._features([u for u in x.variables if u != v])
                    lookups.append(_Lookup(slice(first, first + count), others, table))
        return lookups

    def rise(self, v: Array) -> Array:
        """Return the sum of the terms of visible features."""
        total = np.zeros(len(v))
        for features, couplings in self._visible:
            total += _products(v, features).T @ couplings
        for variables, table in self._visible_tables:
            total += table[_index(v, variables)]
        return total

    def on_visible(self, v: Array, h: Array) -> Array:
        """Return the fields of the visible features, each given all others."""
        return pulled(self._visible_block, np.concatenate([v, h], axis=1), v.shape[1])

    @cached_property
    def _visible_block(self) -> list[Any]:
        return self.block(np.arange(int(self._starts[-1]) - self._m))

    def on_hidden(self, v: Array) -> Array:
        """Return the fields of the hidden features, given the visible ones."""
        return pulled(self._hidden, v, self._m)


def pulled(pulls: list[Any], rows: Array, targets: int) -> Array:
    """Return the fields of some features, given all others."""
    fields = np.zeros((len(rows), targets))
    for pull in pulls:
        pull.add(fields, rows)
    return fields


def _index(rows: Array, variables: list[tuple[slice, int]]) -> NDArray[np.int64]:
    """Return the flat index of the states of some variables, the last one changing fastest."""
    index = np.zeros(len(rows), dtype=np.int64)
    for at, count in variables:
        index = index * count + (rows[:, at] @ np.arange(count)).astype(np.int64)
    return index


def _products(rows: Array, features: NDArray[np.int64]) -> Array:
    """Return the products of some features, [product, row]."""
    columns = np.ascontiguousarray(rows.T)
    found: Array = columns[features[:, 0]]
    for place in range(1, features.shape[1]):
        found *= columns[features[:, place]]
    return found


def _pull(terms: Terms, targets: NDArray[np.int64], place: int) -> _Products | None:
    """Return the contribution to the targets' fields of the terms that have a target at this place, or None."""
    at = np.flatnonzero(np.isin(terms.features[:, place], targets))
    if not len(at):
        return None
    column = np.searchsorted(targets, terms.features[at, place])
    onto = sp.csr_array((terms.couplings[at], (column, np.arange(len(at)))), shape=(len(targets), len(at)))
    return _Products(np.delete(terms.features[at], place, axis=1), onto)
