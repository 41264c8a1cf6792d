"""Variable elimination for any discrete pairwise model on a graph of low width.

Variables are summed out one at a time, and each sum leaves a table over the neighbours of the variable (bucket
elimination: Dechter, Artificial Intelligence 113, 41 (1999)). The cost is about the size of the largest table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..checks import Array
from ..models.reduction import Factor
from .ordering import elimination_order

_ENTRIES_AT_ONCE = 1 << 24  # Number of entries between two checks for interrupts.
MAX_LOG2_TABLE = 27.0  # log2 of the most entries of a table: 1 GiB of float64, plus half as much for its sum.


class Conditional(NamedTuple):
    """The distribution of a variable given those eliminated later: P(x ≤ k | given) for all states k but the last.

    `below` has one column per state of the `given` variables, the last of which changes fastest.
    """

    variable: int
    given: list[int]
    below: Array


def eliminate_log_z(
    cards: Sequence[int],
    unary: Sequence[Array],
    edges: Sequence[tuple[int, int]],
    tables: Sequence[Array],
    order: Sequence[int] | None = None,
    conditionals: list[Conditional] | None = None,
) -> float:
    """Return ln Σ_x exp(Σ_i unary[i][x_i] + Σ_e tables[e][x_i, x_j]), with cards[i] states of x_i.

    Edges may repeat, variables may be isolated, and entries may be −∞ (forbidden states). Tables are kept as
    logarithms, shifted to a largest entry of zero. The default `order` is that of `elimination_order`. Raises a
    ValueError if it needs a table of more than 2^27 entries. If `conditionals` is a list, the conditional
    distribution of each variable is appended to it, in that order.
    """
    hard = _check(cards, unary, edges, tables)
    if order is None:
        order, _ = elimination_order(len(cards), edges, cards)
    factors = [((i,), u) for i, u in enumerate(unary)] + list(zip(edges, tables, strict=True))
    return eliminate_factors(cards, factors, order, hard=hard, conditionals=conditionals)


def eliminate_factors(
    cards: Sequence[int],
    given: Iterable[tuple[tuple[int, ...], Array]],
    order: Sequence[int],
    *,
    hard: bool = True,
    conditionals: list[Conditional] | None = None,
) -> float:
    """Return ln Σ_x exp(Σ_a table_a[x_scope(a)]) for factors (scope, table) of any number of variables.

    `hard` says whether entries may be −∞. The rest is as in `eliminate_log_z`, but the arguments are not checked.
    """
    n = len(cards)
    if sorted(order) != list(range(n)):
        raise ValueError(f"order must name each of the {n} variables once")
    rank = [0] * n
    for k, v in enumerate(order):
        rank[v] = k

    single = [np.zeros(card) for card in cards]  # The sum of all tables over each variable alone.
    buckets: list[list[Factor]] = [[] for _ in range(n)]
    messages: list[list[Factor]] = [[] for _ in range(n)]
    constants = []
    for scope, table in given:
        scope, table = _in_order(scope, np.asarray(table, dtype=float), cards, rank)
        if len(scope) > 1:
            buckets[scope[0]].append((scope, table))
        elif scope:
            single[scope[0]] += table
        else:
            constants.append(float(table))

    for v in order:
        factors = buckets[v] + messages[v]
        buckets[v] = messages[v] = []
        # Axes are in order of elimination: v is the first, and a message keeps the order of the axes of its factors.
        rest = sorted({u for scope, _ in factors for u in scope[1:]}, key=rank.__getitem__)
        weights, largest = _weights(single[v], factors, rest, cards, hard)
        if conditionals is not None:
            with np.errstate(invalid="ignore"):  # Forbidden states have no conditional distribution.
                conditionals.append(Conditional(v, rest, weights[:-1].cumsum(axis=0) / weights.sum(axis=0)))
        message, top = _log_sum(weights, largest)
        del weights  # The memory is freed before the next table is made.
        message = message.reshape([cards[u] for u in rest])
        constants.append(top)
        if len(rest) == 1:
            single[rest[0]] += message
        elif rest:
            _deliver(messages[rest[0]], tuple(rest), message, cards)
    return math.fsum(constants)


def _in_order(scope: Sequence[int], table: Array, cards: Sequence[int], rank: Sequence[int]) -> Factor:
    """Return a factor with axes in order of elimination; one-state variables are removed from larger tables."""
    if len(scope) > 1 and any(cards[v] == 1 for v in scope):
        table = table.reshape([cards[v] for v in scope if cards[v] > 1])
        scope = [v for v in scope if cards[v] > 1]
    axes = sorted(range(len(scope)), key=lambda k: rank[scope[k]])
    return tuple(scope[k] for k in axes), table.transpose(axes)


def _deliver(bucket: list[Factor], scope: tuple[int, ...], message: Array, cards: Sequence[int]) -> None:
    """Add a message to a table of the bucket that covers its variables, or append it; this keeps buckets short."""
    for other, table in bucket:
        if set(scope) <= set(other):
            table += _spread(scope[1:], message, other[1:], cards)
            return
    bucket.append((scope, message))


def _spread(scope: Sequence[int], table: Array, onto: Sequence[int], cards: Sequence[int]) -> Array:
    """Insert axes of length one, after the first axis, for the variables of `onto` that the table lacks."""
    members = set(scope)
    return table.reshape(-1, *(cards[u] if u in members else 1 for u in onto))


def _weights(
    own: Array,
    factors: list[tuple[tuple[int, ...], Array]],
    rest: list[int],
    cards: Sequence[int],
    hard: bool,
) -> tuple[Array, Array]:
    """Return exp(own(x_v) + Σ factors(x_v, …)), with a row per x_v and a column per state of the rest, and scales.

    Each column is divided by its maximum; the second array holds ln of the maxima.
    """
    shape = (len(own), *(cards[u] for u in rest))
    log2_entries = math.fsum(math.log2(c) for c in shape)
    if log2_entries > MAX_LOG2_TABLE:
        raise ValueError(f"order: it needs a table of 2^{log2_entries:.4g} entries (limit 2^{MAX_LOG2_TABLE:g})")
    # Axes are added one by one, each with the factors that it completes, so most factors are added while the table is
    # small and along long runs of it.
    table = own.copy()
    for k, u in reversed(list(enumerate(rest))):
        table = table[:, None]
        for scope, factor in factors:
            if scope[1] == u:
                factor = _spread(scope[1:], factor, rest[k:], cards)
                full = np.broadcast_shapes(table.shape, factor.shape)
                table = np.add(table, factor, out=table if table.shape == full else np.empty(full))
    flat = table.reshape(len(own), -1)
    largest = flat.max(axis=0)
    if hard:
        largest[largest == -np.inf] = 0.0
    for part in _columns(flat):
        flat[:, part] -= largest[part]
        np.exp(flat[:, part], out=flat[:, part])
    return flat, largest


def _columns(flat: Array) -> Iterator[slice]:
    """Cut a table into pieces that take little time, so that interrupts take effect soon."""
    step = max(1, _ENTRIES_AT_ONCE // len(flat))
    return (slice(start, start + step) for start in range(0, flat.shape[1], step))


def _log_sum(weights: Array, largest: Array) -> tuple[Array, float]:
    """Return ln Σ of each column of the result of `_weights`, minus the maximum over columns, and that maximum."""
    message = weights.sum(axis=0)
    with np.errstate(divide="ignore"):
        for part in _columns(message[None]):
            np.log(message[part], out=message[part])
    message += largest
    top = float(message.max())
    if top == -math.inf:
        return np.zeros_like(message), top
    message -= top
    return message, top


def _check(cards: Sequence[int], unary: Sequence[Array], edges: Sequence[Any], tables: Sequence[Array]) -> bool:
    """Raise a ValueError for arguments that do not match; return whether there are forbidden states."""
    if len(unary) != len(cards) or len(tables) != len(edges):
        raise ValueError(
            f"unary and tables must match cards and edges: {len(unary)} for {len(cards)} variables, "
            f"{len(tables)} for {len(edges)} edges"
        )
    for i, u in enumerate(unary):
        if np.shape(u) != (cards[i],):
            raise ValueError(f"unary[{i}] must have shape ({cards[i]},), got {np.shape(u)}")
    for e, (i, j) in enumerate(edges):
        if not (0 <= i < len(cards) and 0 <= j < len(cards) and i != j):
            raise ValueError(f"edges[{e}] = ({i}, {j}) must join two of the {len(cards)} variables")
        if np.shape(tables[e]) != (cards[i], cards[j]):
            raise ValueError(f"tables[{e}] must have shape ({cards[i]}, {cards[j]}), got {np.shape(tables[e])}")
    if not len(cards):
        return False
    values = np.concatenate([np.ravel(x) for x in (*unary, *tables)])
    if np.isnan(values).any() or np.isposinf(values).any():
        raise ValueError("unary, tables: entries must be finite or -inf")
    return bool(np.isneginf(values).any())
