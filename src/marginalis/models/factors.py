"""Discrete models of factors: tables over any number of variables, which may forbid states.

    P(x) ∝ exp(offset + Σ_a table_a[x_scope(a)]),    entries finite or −∞

Files of graphical models hold such factors. Evidence and impossible states are removed exactly. If only finite tables
of pairs are left, the model is an `MRF`; the module `annealed` converts larger tables and tables with zeros.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import Array, frozen, one_line, positive, real_number, shown
from ..display.card import Displayed
from .arrange import arrange
from .forms import Indices
from .model import MRF
from .reduction import Network
from .units import SPIN, Categorical, Units

# Above this fraction of coupled pairs a dense matrix product is faster than a sparse one.
_DENSE = 0.25
BUT_EXACT = ": only mg.free_energy, mg.estimate and exact sums take that"
# Couplings up to this fraction of the largest entry of a table are rounding errors and count as zero.
_EPS = 2.0**-50


@dataclass(frozen=True, eq=False, repr=False)
class FactorModel(Displayed):
    """Discrete variables and factors that join them.

    Parameters
    ----------
    cards
        The number of states of each variable.
    scopes, tables
        Variables of each factor, and the logarithms of its values with an axis per variable; −∞ forbids a state.
    offset
        A constant in the exponent.
    labels
        The caller's names of the variables; by default their numbers.
    """

    cards: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    tables: tuple[Array, ...]
    offset: float = 0.0
    labels: Sequence[Any] = None  # type: ignore[assignment]  # Set in __post_init__.

    def __post_init__(self) -> None:
        if self.labels is None:
            object.__setattr__(self, "labels", range(len(self.cards)))
        if len(self.labels) != len(self.cards):
            raise ValueError(f"there are {len(self.labels)} labels for {len(self.cards)} variables")
        if len(self.scopes) != len(self.tables):
            raise ValueError(f"there are {len(self.scopes)} scopes for {len(self.tables)} tables")
        n = len(self.cards)
        for scope, table in zip(self.scopes, self.tables, strict=True):
            if len(set(scope)) < len(scope) or not all(0 <= v < n for v in scope):
                raise ValueError(f"scope {shown(scope)} must name different variables, numbered from 0 to {n - 1}")
            shape = tuple(self.cards[v] for v in scope)
            if table.shape != shape:
                raise ValueError(f"the table of {shown(scope)} has shape {table.shape}; it must be {shape}")
        if np.isnan(self._entries).any() or np.isposinf(self._entries).any():
            raise ValueError("tables must be finite or -inf")
        for table in self.tables:
            frozen(table)

    def __str__(self) -> str:
        facts = f"{len(self.scopes)} factors of up to {self.largest_scope} variables"
        return f"FactorModel of {self.n_variables} variables   ({facts})"

    @cached_property
    def _entries(self) -> Array:
        return np.concatenate([np.zeros(0), *(table.ravel() for table in self.tables)])

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.cards)

    @property
    def largest_scope(self) -> int:
        """Number of variables of the largest factor."""
        return max(map(len, self.scopes), default=0)

    @property
    def is_hard(self) -> bool:
        """Whether some joint states have probability 0."""
        return bool(np.isneginf(self._entries).any())

    def name_of(self, variable: int) -> str:
        """Return the label of a variable, for messages."""
        return one_line(self.labels[variable], 40)

    @classmethod
    def of(cls, model: MRF) -> FactorModel:
        """Return a discrete model as factors at temperature 1, with the variables in the caller's order."""
        natural = model.natural
        sides = (
            (natural.visible_units, natural.visible_bias, model.split.visible),
            (natural.hidden_units, natural.hidden_bias, model.split.hidden),
        )
        unary: dict[int, Array] = {}
        for units, bias, numbers in sides:
            for i, own, states in zip(numbers.tolist(), _own(units, bias), _states(units, bias), strict=True):
                unary[i] = states @ bias[own]
        pairs: dict[tuple[int, int], Array] = {}
        for block, one, two in ((natural.weights, *sides), (natural.lateral, sides[0], sides[0])):
            if block is not None:
                pairs |= _pair_tables(sp.triu(block) if one is two else block, one, two)
        cards = tuple(len(unary[i]) for i in range(model.n_variables))
        scopes = tuple((i,) for i in range(model.n_variables)) + tuple(pairs)
        tables = tuple(unary[i] for i in range(model.n_variables)) + tuple(pairs.values())
        return cls(cards, scopes, tables, natural.offset, model.labels)

    def given(self, evidence: Mapping[Any, int] | None = None) -> FactorModel:
        """Return the model with variables held in states, by label, and without states that cannot occur.

        A variable with one state left is absorbed into the constant and its neighbours' tables, and factors of the same
        variables are multiplied. Raises a ValueError if no state is left, that is, Z = 0.
        """
        possible = [np.ones(card, dtype=bool) for card in self.cards]
        number = self.labels if isinstance(self.labels, range) else {x: i for i, x in enumerate(self.labels)}
        if not isinstance(evidence, Mapping | None):
            raise ValueError(f"evidence is {shown(evidence)}; it must map labels to states")
        for label, state in (evidence or {}).items():
            if label not in number:
                raise ValueError(f"evidence names the variable {shown(label)}, which the model does not have")
            i = number.index(label) if isinstance(number, range) else number[label]
            is_whole = isinstance(state, Real) and float(state).is_integer()
            if not (is_whole and 0 <= state < self.cards[i]):
                raise ValueError(
                    f"evidence holds variable {shown(label)} in state {shown(state)}; "
                    f"it has {self.cards[i]} states, from 0"
                )
            possible[i] &= np.arange(self.cards[i]) == int(state)
        self._propagate(possible)
        before, left = self, self._restricted(possible)
        while left.is_hard and len(left.scopes) < len(before.scopes):  # A product of factors may forbid more states.
            possible = [np.ones(card, dtype=bool) for card in left.cards]
            left._propagate(possible)
            before, left = left, left._restricted(possible)
        return left

    def reduced(self, bound: float = 8.0) -> FactorModel:
        """Return a model of fewer variables with the same Z, in which some variables are summed out exactly.

        First come variables whose sum leaves no joint table of others (in a Bayesian network, all variables without
        evidence below them), then variables whose own table has at most 2^`bound` entries. After every sum, axes on
        which the result does not depend are removed, and functions of one variable are split off. Raises a ValueError
        if Z = 0.
        """
        bound = real_number(bound, "bound")
        given = self.given()
        network = Network(given.cards, zip(given.scopes, given.tables, strict=True), given.offset)
        network.reduce(bound)
        offset = math.fsum(network.constants)
        if offset == -math.inf:
            raise ValueError("Z = 0: the factors contradict each other, no state is possible")
        left = sorted(network.alive)
        place = {v: k for k, v in enumerate(left)}
        factors = list(network.factors.values())
        return FactorModel(
            tuple(network.cards[v] for v in left),
            tuple(tuple(place[v] for v in scope) for scope, _ in factors),
            tuple(table for _, table in factors),
            offset,
            tuple(given.labels[v] for v in left),
        )

    def _propagate(self, possible: list[Any]) -> None:
        """Remove states that some factor forbids for all states of the other variables, until none is left."""
        ends = np.cumsum([table.size for table in self.tables])
        hard = np.unique(np.searchsorted(ends, np.flatnonzero(np.isneginf(self._entries)), side="right")).tolist()
        around: dict[int, list[int]] = {}
        for a in hard:
            for v in self.scopes[a]:
                around.setdefault(v, []).append(a)
        waiting, queued = deque(hard), set(hard)
        while waiting:
            a = waiting.popleft()
            queued.discard(a)
            scope, allowed = self.scopes[a], ~np.isneginf(self.tables[a])
            for axis, v in enumerate(scope):
                allowed &= possible[v].reshape([-1 if k == axis else 1 for k in range(len(scope))])
            if not allowed.any():
                names = ", ".join(self.name_of(v) for v in scope)
                raise ValueError(f"Z = 0: the factor of ({names}) forbids all states that are left")
            for axis, v in enumerate(scope):
                left = allowed.any(axis=tuple(k for k in range(len(scope)) if k != axis))
                if (left < possible[v]).any():
                    possible[v] = left
                    fresh = [b for b in around[v] if b not in queued]
                    waiting.extend(fresh)
                    queued.update(fresh)

    def _restricted(self, possible: list[Any]) -> FactorModel:
        """Return the model restricted to the possible states, without variables that have only one."""
        counts = [int(x.sum()) for x in possible]
        only = [int(x.argmax()) if count == 1 else -1 for x, count in zip(possible, counts, strict=True)]
        kept = [v for v, count in enumerate(counts) if count > 1]
        place = {v: i for i, v in enumerate(kept)}
        whole = [count == card for count, card in zip(counts, self.cards, strict=True)]
        constants = [self.offset]
        merged: dict[tuple[int, ...], Array] = {}
        for scope, given in zip(self.scopes, self.tables, strict=True):
            table = given[tuple(slice(None) if only[v] < 0 else only[v] for v in scope)]
            scope = tuple(v for v in scope if only[v] < 0)
            for axis, v in enumerate(scope):
                if not whole[v]:
                    table = np.compress(possible[v], table, axis=axis)
            if not scope:
                constants.append(float(table))
                continue
            order = sorted(range(len(scope)), key=scope.__getitem__)
            table, scope = table.transpose(order), tuple(place[scope[k]] for k in order)
            merged[scope] = merged[scope] + table if scope in merged else table
        labels = self.labels if len(kept) == len(self.cards) else tuple(self.labels[v] for v in kept)
        cards = tuple(counts[v] for v in kept)
        return FactorModel(cards, tuple(merged), tuple(merged.values()), math.fsum(constants), labels)

    def at_temperature(self, temperature: float) -> FactorModel:
        """Return the model of P(x)^(1/T), up to normalisation; forbidden states stay forbidden."""
        t = positive(temperature, "temperature")
        return replace(self, tables=tuple(table / t for table in self.tables), offset=self.offset / t)

    def why_not_annealed(self) -> str | None:
        """Return the reason why the model is not an `MRF` of pairs, in words, or None."""
        if not self.cards:
            return f"no variable is left, all have one state: ln Z = {self.offset:.12g}, exactly"
        if self.is_hard:
            scope = next(s for s, table in zip(self.scopes, self.tables, strict=True) if np.isneginf(table).any())
            names = one_line(", ".join(map(self.name_of, scope)), 60)
            return f"the factor of ({names}) forbids some states (zeros){BUT_EXACT}"
        largest = max(self.scopes, key=len, default=())
        if len(largest) > 2:
            names = one_line(", ".join(map(self.name_of, largest)), 60)
            return f"the factor of ({names}) joins {len(largest)} variables, and an MRF has pairs only"
        return None

    def as_mrf(self) -> MRF:
        """Return the model as an `MRF`, or raise a ValueError with the reason why it is not a model of pairs.

        Two-state variables are spins, state 0 down and 1 up. If any variable has more states, all are categorical.
        """
        reason = self.why_not_annealed()
        if reason is not None:
            raise ValueError(reason)
        labels = None if self.labels == range(len(self.cards)) else self.labels
        unary = [np.zeros(card) for card in self.cards]
        pairs: list[tuple[tuple[int, ...], Array]] = []
        constants = [self.offset]
        for scope, table in zip(self.scopes, self.tables, strict=True):
            if len(scope) == 1:
                unary[scope[0]] += table
            elif scope:
                pairs.append((scope, table))
            else:
                constants.append(float(table))
        build = _spins if set(self.cards) == {2} else _categorical
        units, bias, links, more = build(unary, pairs)
        model = arrange(units, bias, links, offset=math.fsum([*constants, *more]), labels=labels)
        w = model.weights
        if model.is_bipartite and sp.issparse(w) and w.nnz > _DENSE * math.prod(w.shape):
            model = replace(model, weights=w.toarray())
        return model


def _spins(unary: list[Array], pairs: list[tuple[tuple[int, ...], Array]]) -> tuple[Units, Array, Any, list[float]]:
    """Return the parameters of spins s = ±1: a positive 2 × 2 table is exp(J s s′ + h s + h′ s′ + constant)."""
    n = len(unary)
    own = np.array(unary)
    bias = (own[:, 1] - own[:, 0]) / 2.0
    i, j = np.array([scope for scope, _ in pairs], dtype=np.int64).reshape(-1, 2).T
    psi = np.array([table for _, table in pairs]).reshape(-1, 2, 2)
    coupling = ((psi[:, 0, 0] - psi[:, 0, 1]) + (psi[:, 1, 1] - psi[:, 1, 0])) / 4.0
    coupling[np.abs(coupling) <= _EPS * np.abs(psi).max(axis=(1, 2), initial=0.0)] = 0.0
    np.add.at(bias, i, ((psi[:, 1, 0] - psi[:, 0, 0]) + (psi[:, 1, 1] - psi[:, 0, 1])) / 4.0)
    np.add.at(bias, j, ((psi[:, 0, 1] - psi[:, 0, 0]) + (psi[:, 1, 1] - psi[:, 1, 0])) / 4.0)
    links = sp.csr_array((coupling, (i, j)), shape=(n, n))
    return SPIN, bias, links, [*(own.sum(axis=1) / 2.0), *(psi.sum(axis=(1, 2)) / 4.0)]


def _categorical(
    unary: list[Array], pairs: list[tuple[tuple[int, ...], Array]]
) -> tuple[Units, Array, Any, list[float]]:
    sizes = np.array([len(x) for x in unary])
    first = np.concatenate([[0], np.cumsum(sizes)])
    data, at = [np.zeros(0)], [np.zeros((2, 0), dtype=np.int64)]
    for (a, b), psi in pairs:
        rows, columns = psi.mean(axis=1, keepdims=True), psi.mean(axis=0, keepdims=True)
        if np.abs(psi - rows - columns + psi.mean()).max() <= _EPS * np.abs(psi).max():  # The table has no coupling.
            unary[a] = unary[a] + rows.ravel()
            unary[b] = unary[b] + columns.ravel() - psi.mean()
            continue
        data.append(psi.ravel())
        at.append(np.indices(psi.shape).reshape(2, -1) + [[first[a]], [first[b]]])
    entries = np.concatenate(at, axis=1)
    links = sp.csr_array((np.concatenate(data), (entries[0], entries[1])), shape=(first[-1], first[-1]))
    return Categorical(tuple(sizes.tolist())), np.concatenate(unary), links, []


_Side = tuple[Units, Array, Indices]


def _own(units: Units, bias: Array) -> Iterator[slice]:
    """Yield the features of each variable of a side."""
    starts = np.flatnonzero(np.diff(units.owners(len(bias)), prepend=-1))
    return (slice(a, b) for a, b in pairwise([*starts.tolist(), len(bias)]))


def _states(units: Units, bias: Array) -> Iterator[Array]:
    """Yield, for each variable of a side, its features in each of its states."""
    if not units.is_discrete:
        raise ValueError(f"the model has {units.noun[0]}s, which have no tables")
    if units.values is not None:
        values = np.array(units.values)[:, None]
        return (values for _ in bias)
    return (np.eye(q) for q in np.bincount(units.owners(len(bias))).tolist())


def _pair_tables(block: Any, one: _Side, two: _Side) -> dict[tuple[int, int], Array]:
    """Return the tables of the couplings between two sides, keyed by variables in the caller's order."""
    links = sp.coo_array(block)
    used = links.data != 0
    row, column = (at[used] for at in links.coords)
    i, j = one[0].owners(len(one[1]))[row], two[0].owners(len(two[1]))[column]
    own, other = (list(_own(units, bias)) for units, bias, _ in (one, two))
    states, others = (list(_states(units, bias)) for units, bias, _ in (one, two))
    blocks: dict[tuple[int, int], Array] = {}
    found = zip(i.tolist(), j.tolist(), row.tolist(), column.tolist(), links.data[used].tolist(), strict=True)
    for a, b, r, c, value in found:
        if (a, b) not in blocks:
            blocks[a, b] = np.zeros((states[a].shape[1], others[b].shape[1]))
        blocks[a, b][r - own[a].start, c - other[b].start] = value
    return {(int(one[2][a]), int(two[2][b])): states[a] @ table @ others[b].T for (a, b), table in blocks.items()}
