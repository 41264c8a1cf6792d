"""Compiled colourings and independent sets of large graphs.

The results equal those of `arrange` for small graphs vertex by vertex: networkx's colouring "smallest last" and a
greedy independent set. networkx takes vertices of one degree out of a Python set, whose order affects the result, so
the hash table of such a set is reproduced here. A graph is given by the neighbours of each vertex, in ascending order,
as in a CSR matrix.
"""

import numpy as np

from ..simd.cache import kernel

# Marks of entries of the hash table of a set that hold no number.
_EMPTY, _DELETED = -1, -2
# Number of entries of the table of a new set.
_FIRST = 8
# Number of consecutive entries that are tried before a jump.
_LINEAR = 9
# Number of bits of the hash that each jump uses.
_SHIFT = 5
# Sets with more numbers than this grow by a smaller factor.
_LARGE = 50_000


@kernel()
def smallest_last(starts, neighbours):
    """Return the colour of each vertex in the colouring "smallest last".

    The vertices are removed one by one, always one of the lowest degree in the remaining graph, and coloured in the
    reverse order with the first colour that no neighbour has.
    """
    n = len(starts) - 1
    degree = np.empty(n, dtype=np.int32)
    for v in range(n):
        degree[v] = starts[v + 1] - starts[v]
    most = max(1, degree.max()) + 1 if n else 1
    tables = [np.full(_FIRST, _EMPTY, dtype=np.int32) for _ in range(most)]
    # A row holds the numbers in a set, the entries of its table ever used, and the entry to look at next.
    state = np.zeros((most, 3), dtype=np.int64)
    for v in range(n):
        tables[degree[v]] = _add(tables[degree[v]], state[degree[v]], v)
    order = np.empty(n, dtype=np.int32)
    gone = np.zeros(n, dtype=np.bool_)
    lowest = 0
    for k in range(n):
        while state[lowest, 0] == 0:
            lowest += 1
        u = _pop(tables[lowest], state[lowest])
        if state[lowest, 0] == 0:
            tables[lowest] = _emptied(tables[lowest], state[lowest])
        order[k] = u
        gone[u] = True
        for p in range(starts[u], starts[u + 1]):
            v = neighbours[p]
            if gone[v]:
                continue
            d = degree[v]
            _remove(tables[d], state[d], v)
            if state[d, 0] == 0:
                tables[d] = _emptied(tables[d], state[d])
            degree[v] = d - 1
            tables[d - 1] = _add(tables[d - 1], state[d - 1], v)
        lowest = max(0, lowest - 1)
    return _first_free_colours(starts, neighbours, order[::-1])


@kernel()
def _first_free_colours(starts, neighbours, order):
    n = len(order)
    colour = np.full(n, -1, dtype=np.int32)
    taken_by = np.full(n + 1, -1, dtype=np.int32)  # The last vertex found to have a neighbour of each colour.
    for u in order:
        for p in range(starts[u], starts[u + 1]):
            c = colour[neighbours[p]]
            if c >= 0:
                taken_by[c] = u
        c = 0
        while taken_by[c] == u:
            c += 1
        colour[u] = c
    return colour.astype(np.int64)


@kernel()
def _place(table, key):
    """Return the place of a number in the table of a Python set, or the place where it would be inserted.

    A new number goes to the last deleted entry before the first empty one, or else to the empty entry.
    """
    mask = len(table) - 1
    i = key & mask
    perturb = key
    deleted = -1
    while True:
        for at in range(i, i + (_LINEAR if i + _LINEAR <= mask else 0) + 1):
            if table[at] == key:
                return at
            if table[at] == _EMPTY:
                return at if deleted < 0 else deleted
            if table[at] == _DELETED:
                deleted = at
        perturb >>= _SHIFT
        i = (i * 5 + 1 + perturb) & mask


@kernel()
def _add(table, state, key):
    """Add a new number to a set; return its table, enlarged if necessary."""
    at = _place(table, key)
    state[0] += 1
    fresh = table[at] == _EMPTY
    table[at] = key
    if not fresh:
        return table
    state[1] += 1
    if state[1] * 5 < (len(table) - 1) * 3:
        return table
    wanted = state[0] * (2 if state[0] > _LARGE else 4)
    size = _FIRST
    while size <= wanted:
        size *= 2
    larger = np.full(size, _EMPTY, dtype=np.int32)
    for x in table:
        if x >= 0:
            larger[_place(larger, x)] = x
    state[1] = state[0]
    return larger


@kernel()
def _remove(table, state, key):
    table[_place(table, key)] = _DELETED
    state[0] -= 1


@kernel()
def _pop(table, state):
    """Remove the next number from a set and return it."""
    at = state[2] & (len(table) - 1)
    while table[at] < 0:
        at = at + 1 if at + 1 < len(table) else 0
    key = table[at]
    table[at] = _DELETED
    state[0] -= 1
    state[2] = at + 1
    return key


@kernel()
def _emptied(table, state):
    """Return the table of a new set, which replaces an empty one."""
    state[:] = 0
    if len(table) == _FIRST:
        table[:] = _EMPTY
        return table
    return np.full(_FIRST, _EMPTY, dtype=np.int32)


@kernel()
def greedy_set(starts, neighbours):
    """Return the independent set that repeatedly takes the first vertex of lowest degree and removes its neighbours."""
    n = len(starts) - 1
    degree = np.empty(n, dtype=np.int32)
    for v in range(n):
        degree[v] = starts[v + 1] - starts[v]
    most = degree.max() + 1 if n else 1
    # There is a heap of vertices for each degree; outdated entries stay when the degree of a vertex changes.
    heaps = [np.empty(_FIRST, dtype=np.int32) for _ in range(most)]
    sizes = np.zeros(most, dtype=np.int64)
    for v in range(n):
        heaps[degree[v]] = _push(heaps[degree[v]], sizes, degree[v], v)
    left = np.ones(n, dtype=np.bool_)
    taken = np.zeros(n, dtype=np.bool_)
    d = 0
    while d < most:
        if sizes[d] == 0:
            d += 1
            continue
        i = _pop_first(heaps[d], sizes, d)
        if not left[i] or d != degree[i]:
            continue
        taken[i] = True
        left[i] = False
        for p in range(starts[i], starts[i + 1]):
            j = neighbours[p]
            if left[j]:
                left[j] = False
                for q in range(starts[j], starts[j + 1]):
                    k = neighbours[q]
                    if left[k]:
                        e = degree[k] - 1
                        degree[k] = e
                        heaps[e] = _push(heaps[e], sizes, e, k)
                        d = min(d, e)
    return np.flatnonzero(taken)


@kernel()
def _push(heap, sizes, d, v):
    """Add a vertex to a binary heap; return the heap, enlarged if necessary."""
    at = sizes[d]
    if at == len(heap):
        larger = np.empty(2 * at, dtype=np.int32)
        larger[:at] = heap
        heap = larger
    sizes[d] = at + 1
    while at > 0 and heap[(at - 1) >> 1] > v:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = v
    return heap


@kernel()
def _pop_first(heap, sizes, d):
    """Remove the smallest vertex from a binary heap and return it."""
    first = heap[0]
    sizes[d] -= 1
    n = sizes[d]
    v = heap[n]
    at = 0
    while 2 * at + 1 < n:
        below = 2 * at + 1
        if below + 1 < n and heap[below + 1] < heap[below]:
            below += 1
        if heap[below] >= v:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = v
    return first


@kernel()
def two_colours(starts, neighbours):
    """Return a two-colouring with 0 for the first vertex of each part; an empty array if there is none."""
    n = len(starts) - 1
    colour = np.full(n, -1)
    queue = np.empty(n, dtype=np.int64)
    for first in range(n):
        if colour[first] >= 0:
            continue
        colour[first], queue[0] = 0, first
        begin, end = 0, 1
        while begin < end:
            u = queue[begin]
            begin += 1
            for p in range(starts[u], starts[u + 1]):
                v = neighbours[p]
                if colour[v] < 0:
                    colour[v] = 1 - colour[u]
                    queue[end] = v
                    end += 1
                elif colour[v] == colour[u]:
                    return colour[:0].copy()
    return colour
