"""A search for orders of elimination by many greedy runs with a little noise.

The best of many cheap randomised runs beats any single greedy order by several powers of two on irregular networks
(Kask, Gelfand, Otten & Dechter, AAAI 2011).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from ..simd.cache import kernel

_CRITERIA = 4  # Number of ways to score a variable; the runs use them in turn.
_NOISE = (0.05, 0.2, 0.5)  # Relative noise of the scores; the runs use these in turn after one round without noise.
_LARGEST = 4096  # Most variables of a graph that is searched; the time of a run grows with their square.
_NEVER = 1e9  # log2 of the cost that stands for an abandoned order.


def search_order(
    n: int,
    edges: Sequence[tuple[int, int]],
    cards: Sequence[int],
    *,
    seconds: float,
    below: float,
    seed: int = 1,
) -> tuple[list[int], float] | None:
    """Return the cheapest order found in time and log2 of all its entries, or None if none is `below` this limit."""
    if n > _LARGEST or n == 0:
        return None
    links = np.zeros((n, (n + 63) // 64), dtype=np.uint64)
    one = np.uint64(1)
    for i, j in edges:
        links[i, j >> 6] |= one << np.uint64(j & 63)
        links[j, i >> 6] |= one << np.uint64(i & 63)
    logs = np.log2(np.asarray(cards, dtype=float))
    state = np.array([0x9E3779B97F4A7C15 ^ seed], dtype=np.uint64)
    order = np.empty(n, dtype=np.int64)
    best: list[int] | None = None
    begin, k, idle = time.thread_time(), 0, 0
    while k < 2 or (time.thread_time() - begin < seconds and idle < 200 + 20 * n):
        noise = 0.0 if k < _CRITERIA else _NOISE[k // _CRITERIA % len(_NOISE)]
        cost = _greedy(links, logs, k % _CRITERIA, noise, state, below, order)
        idle += 1
        if cost < below:
            best, below, idle = order.tolist(), cost, 0
        k += 1
    return None if best is None else (best, below)


@kernel()
def _uniform(state):
    state[0] ^= state[0] << np.uint64(13)
    state[0] ^= state[0] >> np.uint64(7)
    state[0] ^= state[0] << np.uint64(17)
    return np.float64(state[0] >> np.uint64(11)) * 2.0**-53


@kernel()
def _count(x):
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel()
def _members(row, out):
    """Write the indices of the set bits of a row; return their number."""
    found = 0
    for word in range(row.shape[0]):
        x = row[word]
        while x != np.uint64(0):
            low = x & (~x + np.uint64(1))
            out[found] = 64 * word + _count(low - np.uint64(1))
            found += 1
            x ^= low
    return found


@kernel()
def _greedy(links0, logs, criterion, noise, state, below, order):
    """Write a greedy order; return log2 of the entries of its tables, or `_NEVER` if that is not `below` the limit."""
    n = links0.shape[0]
    words = links0.shape[1]
    links = links0.copy()
    alive = np.ones(n, np.bool_)
    stale = np.ones(n, np.bool_)
    score = np.empty(n)
    size = np.empty(n)
    near = np.empty(n, np.int64)
    further = np.empty(n, np.int64)
    total = 0.0
    most = 2.0 ** min(below, 1000.0)
    one = np.uint64(1)
    for step in range(n):
        least = np.inf
        chosen = -1
        for v in range(n):
            if not alive[v]:
                continue
            if stale[v]:
                stale[v] = False
                degree = _members(links[v], near)
                entries = logs[v]
                missing = -degree  # No neighbour is linked to itself.
                for a in range(degree):
                    u = near[a]
                    entries += logs[u]
                    for word in range(words):
                        missing += _count(links[v, word] & ~links[u, word])
                size[v] = entries
                fill = 0.5 * missing
                if criterion == 0:
                    score[v] = fill + 1e-3 * entries
                elif criterion == 1:
                    score[v] = fill * (entries - logs[v]) / max(degree, 1) + 1e-3 * entries
                elif criterion == 2:
                    score[v] = entries if fill > 0 else 0.0
                else:
                    score[v] = fill / max(degree, 1) + 0.5 * entries if fill > 0 else 0.0
            value = score[v] * (1.0 + noise * _uniform(state)) + 1e-9 * _uniform(state)
            if value < least:
                least = value
                chosen = v
        v = chosen
        total += 2.0 ** min(size[v], 1000.0)
        if total >= most:
            return _NEVER
        order[step] = v
        alive[v] = False
        degree = _members(links[v], near)
        for a in range(degree):
            u = near[a]
            for word in range(words):
                links[u, word] |= links[v, word]
            links[u, u >> 6] &= ~(one << np.uint64(u & 63))
            links[u, v >> 6] &= ~(one << np.uint64(v & 63))
            stale[u] = True
        for a in range(degree):
            for b in range(_members(links[near[a]], further)):
                stale[further[b]] = True
    return math.log2(total)
