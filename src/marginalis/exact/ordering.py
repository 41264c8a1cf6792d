"""Orders to eliminate the variables of a graph in.

The cost of an elimination is set by its order, which greedy searches find well: always the variable whose
elimination joins the fewest pairs of neighbours (min-fill: Kjærulff, Statistics and Computing 2, 7 (1992)),
or, on lattices, a sweep from a corner.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

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
    """Return how many entries the tables of an order have, all together."""
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
