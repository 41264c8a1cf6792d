"""Orders of elimination for the variables of a graph.

The order determines the cost of an elimination. Greedy searches find good orders: each step eliminates the variable
that joins the fewest pairs of neighbours (min-fill: Kjærulff, Statistics and Computing 2, 7 (1992)). On lattices a
sweep from a corner is better.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

_CHEAP = 12.0  # If log2 of the largest table is at most this, no better order is searched for.
_HUB = 64  # For variables with more neighbours, pairs are not counted; they are eliminated late anyway.


def elimination_order(
    n: int, edges: Sequence[tuple[int, int]], cards: Sequence[int], *, stop_above: float = 40.0
) -> tuple[list[int], float]:
    """Return an order of elimination and log2 of the entries of its largest table.

    Min-fill is close to optimal on trees and irregular graphs. Unless its order is cheap, sweeps from a few corners,
    which are close to optimal on lattices, are tried as well, and the best order is returned. Searches stop at tables
    with more than 2^`stop_above` entries. If all of them stop, the number is that of min-fill when it stopped, and the
    rest of the order is arbitrary.
    """
    neighbours = _neighbours(n, edges)
    if len(cards) != n:
        raise ValueError(f"cards must have one entry per variable: {n}, got {len(cards)}")
    logs = [math.log2(c) for c in cards]
    order, width = _min_fill([set(s) for s in neighbours], logs, stop_above)
    if width > _CHEAP:
        for start in dict.fromkeys([0, n - 1, *_far_ends(neighbours), *range(0, n, max(1, n // 8))]):
            below = min(width, math.nextafter(stop_above, math.inf))
            order, width = _sweep([set(s) for s in neighbours], logs, start, below) or (order, width)
    return order, width


def table_entries(edges: Sequence[tuple[int, int]], cards: Sequence[int], order: Sequence[int]) -> int:
    """Return the total number of entries of the tables of an order."""
    neighbours = _neighbours(len(cards), edges)
    total = 0
    for v in order:
        around = neighbours[v]
        total += cards[v] * math.prod(cards[u] for u in around)
        for u in around:
            neighbours[u] |= around
            neighbours[u] -= {u, v}
    return total


def _neighbours(n: int, edges: Sequence[tuple[int, int]]) -> list[set[int]]:
    neighbours: list[set[int]] = [set() for _ in range(n)]
    for i, j in edges:
        if i == j:
            raise ValueError(f"edges: variable {i} is joined to itself")
        neighbours[i].add(j)
        neighbours[j].add(i)
    return neighbours


def _min_fill(neighbours: list[set[int]], logs: list[float], stop_above: float) -> tuple[list[int], float]:
    """Return the min-fill order and log2 of its largest table; ties are decided by the smaller table."""
    n = len(neighbours)
    sizes = [logs[v] + math.fsum(logs[u] for u in neighbours[v]) for v in range(n)]
    fills = [_fill(neighbours, v) for v in range(n)]
    # Entries of the heap become outdated when a variable changes; the current ones are always in the heap as well.
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
    """Eliminate the variable with the smallest table among the neighbours of eliminated variables.

    The eliminated variables thus stay connected, and tables are no larger than their boundary. The result is None
    unless all tables are smaller than `below`.
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
    """Return two variables far from each other, the last ones reached by two breadth-first searches."""
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
    """Count the pairs of neighbours of v that are not joined, or all pairs if v has very many neighbours."""
    around = neighbours[v]
    d = len(around)
    if d < 2:
        return 0
    joined = sum(len(neighbours[u] & around) for u in around) if d <= _HUB else 0
    return (d * (d - 1) - joined) // 2


def _join(
    neighbours: list[set[int]], group: set[int], fills: list[int], sizes: list[float], logs: list[float]
) -> set[int]:
    """Join all pairs of the group; return the variables outside it whose fill decreases."""
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
