"""Colourings and independent sets of large graphs, compiled.

They are those that `arrange` finds for small graphs, vertex by vertex: networkx's colouring "smallest last", which
takes vertices of one degree out of a Python set, whose order is part of the result, and greed by degree. A graph is
given by the neighbours of each vertex, in ascending order, as in a CSR matrix.
"""

import numpy as np

from ..simd.cache import kernel

_EMPTY, _DELETED = -1, -2  # entries of the table of a set that hold no number
_FIRST = 8  # entries of the table of a new set
_LINEAR = 9  # entries that are tried one after the other
_SHIFT = 5  # bits of the hash that are used up with each jump
_LARGE = 50_000  # numbers from which on a set grows by less


@kernel()
def smallest_last(starts, neighbours):
    """Return the colour of each vertex.

    The vertices are taken away one by one, always one of the lowest degree in what is left, and coloured in the
    reverse order with the first colour that no neighbour has.
    """
    n = len(starts) - 1
    degree = np.empty(n, dtype=np.int32)
    for v in range(n):
        degree[v] = starts[v + 1] - starts[v]
    most = max(1, degree.max()) + 1 if n else 1
    tables = [np.full(_FIRST, _EMPTY, dtype=np.int32) for _ in range(most)]
    state = np.zeros((most, 3), dtype=np.int64)  # numbers in each set, entries of its table ever used, next to look at
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
    taken_by = np.full(n + 1, -1, dtype=np.int32)  # the vertex whose neighbour was last seen with each colour
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
    """Return where a number is in the table of a Python set, or else where it would be put.

    That is the last deleted entry that is passed before the first empty one, or the empty one.
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
    """Add a number that is not there; return the table, a larger one if need be."""
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
    """Take the next number out of a set."""
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
    """Return the table of a new set, as an empty one is thrown away."""
    state[:] = 0
    if len(table) == _FIRST:
        table[:] = _EMPTY
        return table
    return np.full(_FIRST, _EMPTY, dtype=np.int32)


@kernel()
def greedy_set(starts, neighbours):
    """Return an independent set: the first vertex with the fewest neighbours left, these being dropped, and so on."""
    n = len(starts) - 1
    degree = np.empty(n, dtype=np.int32)
    for v in range(n):
        degree[v] = starts[v + 1] - starts[v]
    most = degree.max() + 1 if n else 1
    # A heap of vertices for each degree; where the degree of one has changed, an old entry stays behind.
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
    """Add a vertex to a binary heap; return the heap, a larger one if need be."""
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
    """Take the smallest vertex out of a binary heap."""
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
    """Return 0 and 1 for the two sides of each part, 0 for its first vertex; nothing if a part has no two sides."""
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
