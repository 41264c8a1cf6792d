"""Variable elimination for any discrete pairwise model on a graph of low width.

Summing variables out one at a time, each sum leaving a table over the variable's neighbours (bucket
elimination: Dechter, Artificial Intelligence 113, 41 (1999)), costs about the size of the largest table.
That is set by the order, which greedy searches find well: always the variable whose elimination joins the
fewest pairs of neighbours (min-fill: Kjærulff, Statistics and Computing 2, 7 (1992)), or, on lattices, a
sweep from a corner.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Factor = tuple[tuple[int, ...], Array]  # the variables, in order of elimination, and the table over them

MAX_LOG2_TABLE = 27.0  # 1 GiB of float64; a table and its sum take half as much again
_CHEAP = 12.0  # log2 of a table that is not worth looking for a better order
_HUB = 64  # neighbours beyond which pairs are not counted: such a variable waits for its turn anyway


def elimination_order(
    n: int, edges: Sequence[tuple[int, int]], cards: Sequence[int], *, stop_above: float = 40.0
) -> tuple[list[int], float]:
    """Return an order of elimination and log2 of the entries of the largest table it makes.

    The better of min-fill, which is near best on trees and irregular graphs, and, unless that is cheap
    already, of sweeps from a few corners, which are on lattices. No search goes on with tables above
    2^`stop_above` entries: if none stays below, the number is what min-fill came to before it was stopped,
    and the rest of the order is arbitrary.
    """
    neighbours: list[set[int]] = [set() for _ in range(n)]
    for i, j in edges:
        if i == j:
            raise ValueError(f"edges: variable {i} is joined to itself")
        neighbours[i].add(j)
        neighbours[j].add(i)
    if len(cards) != n:
        raise ValueError(f"cards must have one entry per variable: {n}, got {len(cards)}")
    logs = [math.log2(c) for c in cards]
    order, width = _min_fill([set(s) for s in neighbours], logs, stop_above)
    if width > _CHEAP:
        for start in dict.fromkeys([0, n - 1, *_far_ends(neighbours), *range(0, n, max(1, n // 8))]):
            below = min(width, math.nextafter(stop_above, math.inf))
            order, width = _sweep([set(s) for s in neighbours], logs, start, below) or (order, width)
    return order, width


def _min_fill(neighbours: list[set[int]], logs: list[float], stop_above: float) -> tuple[list[int], float]:
    """Eliminate the variable that joins the fewest pairs of neighbours, ties going to the smaller table."""
    n = len(neighbours)
    sizes = [logs[v] + math.fsum(logs[u] for u in neighbours[v]) for v in range(n)]
    fills = [_fill(neighbours, v) for v in range(n)]
    # Entries go stale when a variable's numbers change; the current ones are always in the heap too.
    heap = [(fills[v], sizes[v], v) for v in range(n)]
    heapq.heapify(heap)
    order: dict[int, None] = {}
    width = 0.0
    while heap:
        fill, size, v = heapq.heappop(heap)
        if v in order or fill != fills[v] or size != sizes[v]:
            continue
        width = max(width, size)
        if width > stop_above:
            break
        order[v] = None
        changed = neighbours[v]
        for u in changed:
            neighbours[u].discard(v)
            sizes[u] -= logs[v]
        if fill:
            changed = changed | _join(neighbours, changed, fills, sizes, logs)
        for u in neighbours[v]:
            fills[u] = _fill(neighbours, u)
        for u in changed:
            heapq.heappush(heap, (fills[u], sizes[u], u))
    return list(dict.fromkeys([*order, *range(n)])), width


def _sweep(neighbours: list[set[int]], logs: list[float], start: int, below: float) -> tuple[list[int], float] | None:
    """Eliminate the variable with the smallest table among those that have lost a neighbour already.

    So the eliminated ones stay in one piece, and the tables are no larger than its rim. None unless all
    are smaller than `below`.
    """
    order: dict[int, None] = {}
    width = 0.0
    rest = iter(range(len(neighbours)))
    heap = [(0.0, start)]
    while len(order) < len(neighbours):
        size, v = heapq.heappop(heap) if heap else (0.0, next(rest))
        if v in order:
            continue
        around = neighbours[v]
        actual = logs[v] + sum(logs[u] for u in around)
        if size and size != actual:
            continue
        width = max(width, actual)
        if width >= below:
            return None
        order[v] = None
        for u in around:
            neighbours[u] |= around
            neighbours[u] -= {u, v}
        for u in around:
            heapq.heappush(heap, (logs[u] + sum(logs[w] for w in neighbours[u]), u))
    return list(order), width


def _far_ends(neighbours: list[set[int]]) -> list[int]:
    """Return variables far from each other: the last that a breadth-first search reaches, twice."""
    ends = [0]
    for _ in range(2):
        reached, queue = {ends[-1]}, [ends[-1]]
        for v in queue:
            fresh = neighbours[v] - reached
            reached |= fresh
            queue += fresh
        ends.append(queue[-1])
    return ends[1:]


def _fill(neighbours: list[set[int]], v: int) -> int:
    """Count the pairs of neighbours of v that are not joined; all pairs, if v has very many."""
    around = neighbours[v]
    d = len(around)
    if d < 2:
        return 0
    joined = sum(len(neighbours[u] & around) for u in around) if d <= _HUB else 0
    return (d * (d - 1) - joined) // 2


def _join(
    neighbours: list[set[int]], group: set[int], fills: list[int], sizes: list[float], logs: list[float]
) -> set[int]:
    """Join all pairs of the group; return the variables outside it whose fill got smaller by that."""
    outside = set()
    for a in group:
        for b in group - neighbours[a]:
            if b <= a:
                continue
            for w in neighbours[a] & neighbours[b]:
                if w not in group and len(neighbours[w]) <= _HUB:
                    fills[w] -= 1
                    outside.add(w)
            neighbours[a].add(b)
            neighbours[b].add(a)
            sizes[a] += logs[b]
            sizes[b] += logs[a]
    return outside


def eliminate_log_z(
    cards: Sequence[int],
    unary: Sequence[Array],
    edges: Sequence[tuple[int, int]],
    tables: Sequence[Array],
    order: Sequence[int] | None = None,
) -> float:
    """Return ln Σ_x exp(Σ_i unary[i][x_i] + Σ_e tables[e][x_i, x_j]), x_i running over cards[i] states.

    Edges may repeat, variables may be isolated, and entries may be −∞ (forbidden states). Tables are kept
    as logarithms, each with its largest entry at zero. `order` is that of `elimination_order` by default;
    `ValueError` if it needs a table of more than 2^27 entries.
    """
    n = len(cards)
    hard = _check(cards, unary, edges, tables)
    if order is None:
        order, _ = elimination_order(n, edges, cards)
    if sorted(order) != list(range(n)):
        raise ValueError(f"order must name each of the {n} variables once")
    rank = [0] * n
    for k, v in enumerate(order):
        rank[v] = k

    single = [np.array(u, dtype=float) for u in unary]  # what is known about each variable alone
    buckets: list[list[Factor]] = [[] for _ in range(n)]
    messages: list[list[Factor]] = [[] for _ in range(n)]
    for (i, j), table in zip(edges, tables, strict=True):
        table = np.asarray(table, dtype=float)
        if cards[i] == 1 or cards[j] == 1:
            single[j if cards[i] == 1 else i] += table.ravel()
        elif rank[i] < rank[j]:
            buckets[i].append(((i, j), table))
        else:
            buckets[j].append(((j, i), table.T))

    constants = []
    for v in order:
        factors = buckets[v] + messages[v]
        buckets[v] = messages[v] = []
        # Axes in order of elimination: v is the first, and a message keeps the axes of its factors in order.
        rest = sorted({u for scope, _ in factors for u in scope[1:]}, key=rank.__getitem__)
        message, top = _sum_out(single[v], factors, rest, cards, hard)
        constants.append(top)
        if len(rest) == 1:
            single[rest[0]] += message
        elif rest:
            _deliver(messages[rest[0]], tuple(rest), message, cards)
    return math.fsum(constants)


def _deliver(bucket: list[Factor], scope: tuple[int, ...], message: Array, cards: Sequence[int]) -> None:
    """Put a message into a bucket, or add it to one that is there: hundreds must not wait side by side."""
    for other, table in bucket:
        if set(scope) <= set(other):
            table += _spread(scope[1:], message, other[1:], cards)
            return
    bucket.append((scope, message))


def _spread(scope: Sequence[int], table: Array, onto: Sequence[int], cards: Sequence[int]) -> Array:
    """Give the table axes of length one for the variables of `onto` that it lacks, its first axis apart."""
    members = set(scope)
    return table.reshape(-1, *(cards[u] if u in members else 1 for u in onto))


def _sum_out(
    own: Array,
    factors: list[tuple[tuple[int, ...], Array]],
    rest: list[int],
    cards: Sequence[int],
    hard: bool,
) -> tuple[Array, float]:
    """ln Σ_{x_v} exp(own(x_v) + Σ factors(x_v, …)) as a table over the rest, and the maximum taken off it."""
    shape = (len(own), *(cards[u] for u in rest))
    log2_entries = math.fsum(math.log2(c) for c in shape)
    if log2_entries > MAX_LOG2_TABLE:
        raise ValueError(f"order: it needs a table of 2^{log2_entries:.4g} entries (limit 2^{MAX_LOG2_TABLE:g})")
    # Axis before axis, each with the factors that it completes: most are added while the table is small,
    # and along long runs of it.
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
    flat -= largest
    np.exp(flat, out=flat)
    message = flat.sum(axis=0)
    with np.errstate(divide="ignore"):
        np.log(message, out=message)
    message += largest
    top = float(message.max())
    if top == -math.inf:
        return np.zeros(shape[1:]), top
    message -= top
    return message.reshape(shape[1:]), top


def _check(cards: Sequence[int], unary: Sequence[Array], edges: Sequence[Any], tables: Sequence[Array]) -> bool:
    """Raise `ValueError` for what does not fit together; return whether there are forbidden states."""
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
