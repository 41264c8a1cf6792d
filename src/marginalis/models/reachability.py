"""Whether moves of single variables reach every possible state of a factor model with zeros.

Variables are removed one after another. A variable can be removed if, for any possible states of its neighbours and
after any change of one of them, it has a state that is allowed both before and after the change. Then every walk of
single moves of the other variables can be extended to it: it moves to such a state before each change. So if single
moves connect the possible states of the others, they connect those of all. The condition is sufficient, not necessary.

Examples: independent sets and other models in which each variable has a state that is always allowed; colourings of a
graph whose subgraphs all have a vertex of at most q − 2 neighbours. Parity checks and permutations are not of this
kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_STATES = 1 << 16  # Largest number of joint states of a variable and its neighbours that are listed.

_Mask = NDArray[np.bool_]


def single_moves_reach_all(cards: Sequence[int], scopes: Sequence[tuple[int, ...]], tables: Sequence[Any]) -> bool:
    """Whether every variable can be removed; entries of −∞ in the tables of logarithms forbid a state."""
    factors: dict[int, tuple[tuple[int, ...], _Mask]] = {}
    around: list[set[int]] = [set() for _ in cards]
    for number, (scope, table) in enumerate(zip(scopes, tables, strict=True)):
        _put(number, tuple(scope), np.asarray(table) > -np.inf, factors, around)
    waiting = [v for v, own in enumerate(around) if own]
    while waiting:
        v = waiting.pop()
        own = [factors[a] for a in around[v]]
        if not own or not _is_free(v, own, cards):
            continue
        for a in list(around[v]):
            scope, allowed = factors.pop(a)
            for u in scope:
                around[u].discard(a)
            axis = scope.index(v)
            _put(a, scope[:axis] + scope[axis + 1 :], np.asarray(allowed.any(axis=axis)), factors, around)
        waiting += {u for scope, _ in own for u in scope if u != v and around[u]}
    return not factors


def _put(
    number: int, scope: tuple[int, ...], allowed: _Mask, factors: dict[int, tuple[tuple[int, ...], _Mask]], around: Any
) -> None:
    """Add a factor if it forbids anything."""
    if not allowed.all():
        factors[number] = scope, allowed
        for u in scope:
            around[u].add(number)


def _is_free(v: int, own: Sequence[tuple[tuple[int, ...], _Mask]], cards: Sequence[int]) -> bool:
    """Whether a variable always has a state that is allowed before and after a change of one neighbour."""
    always = np.ones(cards[v], dtype=bool)
    forbidden: dict[int, int] = {}  # For each neighbour, the most states that the factors shared with it forbid.
    total = 0
    for scope, allowed in own:
        rows = np.moveaxis(allowed, scope.index(v), -1).reshape(-1, cards[v])
        rows = rows[rows.any(axis=1)]
        always &= rows.all(axis=0)
        most = int((~rows).sum(axis=1).max(initial=0))
        total += most
        for u in scope:
            if u != v:
                forbidden[u] = forbidden.get(u, 0) + most
    if always.any() or total + max(forbidden.values(), default=0) < cards[v]:
        return True
    near = sorted(forbidden)
    if math.prod(cards[u] for u in near) * cards[v] > _MOST_STATES:
        return False
    place = {u: k for k, u in enumerate([*near, v])}
    joint = np.ones([cards[u] for u in place], dtype=bool)
    possible = np.ones(joint.shape[:-1], dtype=bool)
    for scope, allowed in own:
        axes = np.argsort([place[u] for u in scope])
        shape = [1] * joint.ndim
        for u in scope:
            shape[place[u]] = cards[u]
        spread = allowed.transpose(axes).reshape(shape)
        joint &= spread
        possible &= spread.any(axis=-1)
    for axis in range(len(near)):
        mask, states = np.moveaxis(possible, axis, 0), np.moveaxis(joint, axis, 0)
        for one in range(len(mask)):
            both = mask[one] & mask[one:]  # A change to the same state checks that there is a state at all.
            if (both & ~(states[one] & states[one:]).any(axis=-1)).any():
                return False
    return True
