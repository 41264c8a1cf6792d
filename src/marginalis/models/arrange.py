"""The choice of the variables that are summed out, and of the blocks in which the others are drawn.

The hidden variables of a model are a large independent set of its graph, on a bipartite graph one of its sides. The
visible variables are the rest, sorted by the classes of a colouring, so that a Gibbs sweep draws each class at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from ..checks import Array, as_list, shown
from ..parallel.threads import cores, run_jobs
from .forms import Grid, Indices, Layers, Split
from .model import MRF
from .units import Units

# Above this fraction of coupled pairs the visible variables are drawn one by one and their couplings stored densely.
_DENSE = 0.25
# Largest number of entries of the matrix of couplings.
_MOST_EDGES = 2**31
# Graphs with at least this many variables use compiled functions, which take a few seconds to compile once.
_LARGE = 20_000


def arrange(
    units: Units,
    bias: Array,
    links: Any,
    *,
    summed: Sequence[int] | None = None,
    visible: Indices | None = None,
    temperature: float = 1.0,
    offset: float = 0.0,
    labels: Sequence[Any] | None = None,
    layout: Grid | Layers | None = None,
) -> MRF:
    """Return the model of variables of one kind on any graph, in the caller's order.

    `links` is a square sparse matrix between features that holds each coupling once, above or below the diagonal.
    `summed` has the numbers of the variables to be summed out; by default they are chosen here.
    """
    if links.nnz > _MOST_EDGES:
        raise ValueError(f"the graph has {links.nnz} couplings; there may be at most 2^31")
    both = sp.csr_array(links + links.T)
    both.eliminate_zeros()
    owners = units.owners(len(bias))
    n = units.variables(len(bias))
    if n == len(bias):  # Every variable has one feature.
        both.sort_indices()
        short = np.int32 if both.nnz < 2**31 else np.int64  # Short indices make the colouring faster.
        at = both.indices.astype(short), both.indptr.astype(short)
        graph = sp.csr_array((np.ones(both.nnz, dtype=np.int8), *at), shape=(n, n))
        loops = np.flatnonzero(both.diagonal())
    else:
        rows, columns = sp.coo_array(both).coords
        graph = sp.csr_array((np.ones(len(rows), dtype=np.int8), (owners[rows], owners[columns])), shape=(n, n))
        loops = owners[rows[owners[rows] == owners[columns]]]
    if len(loops):
        alone = int(loops[0])
        raise ValueError(f"the variable {shown(alone if labels is None else labels[alone])} is coupled to itself")
    split = split_variables(graph, summed, labels)
    if visible is not None:
        split = Split(visible, split.hidden)
    v, h = (_features_of(side, owners, n) for side in (split.visible, split.hidden))
    of_visible = both[v]
    inside, weights = sp.csr_array(of_visible[:, v]), of_visible[:, h]
    if _is_dense(inside):
        inside, weights = inside.toarray(), weights.toarray()
    return MRF(
        weights,
        bias[v],
        bias[h],
        units.take(split.visible),
        units.take(split.hidden),
        temperature,
        offset,
        split,
        layout,
        lateral=inside if (inside.nnz if sp.issparse(inside) else inside.any()) else None,
        labels=labels,  # type: ignore[arg-type]
    )


def rearrange(model: MRF, summed: Sequence[Any], visible: Indices | None = None) -> MRF:
    """Return the same model with other variables summed out, given by their labels.

    Raises a ValueError that names an edge if two of them are coupled. `visible` has the numbers of the other variables
    in the order of the sweep; by default the order is chosen here.
    """
    hidden = numbers_of(model, summed)
    if visible is None and np.array_equal(hidden, np.sort(model.split.hidden)):
        return model
    if visible is None and model.is_bipartite and np.array_equal(hidden, np.sort(model.split.visible)):
        return model.transposed()
    if not model.visible_units.is_like(model.hidden_units):
        raise ValueError("summed must name all variables of one side, because the sides have different kinds of units")
    w = sp.csr_array(model.weights)
    inside = sp.csr_array((w.shape[0],) * 2) if model.lateral is None else sp.triu(sp.csr_array(model.lateral))
    links = sp.csr_array(sp.block_array([[inside, w], [None, sp.csr_array((w.shape[1],) * 2)]]))
    place = np.argsort(np.concatenate(_callers(model)), kind="stable")
    return arrange(
        _joined(model),
        np.concatenate([model.visible_bias, model.hidden_bias])[place],
        links[place][:, place],
        summed=hidden,  # type: ignore[arg-type]
        visible=visible,
        temperature=model.temperature,
        offset=model.offset,
        labels=model.labels,
        layout=model.layout,
    )


def shared_split(a: MRF, b: MRF) -> tuple[MRF, MRF]:
    """Return two models of the same variables, arranged with the same variables summed out in both."""
    if list(a.labels) != list(b.labels):
        raise ValueError("a and b must have the same variables: their labels differ")
    if _same_split(a, b):
        return a, b
    if a.is_bipartite and _same_split(a.transposed(), b):
        return a.transposed(), b
    split = split_variables(_graph(a) + _graph(b))
    summed = [a.labels[i] for i in split.hidden]
    return rearrange(a, summed, split.visible), rearrange(b, summed, split.visible)


def _same_split(a: MRF, b: MRF) -> bool:
    return np.array_equal(a.split.visible, b.split.visible) and np.array_equal(a.split.hidden, b.split.hidden)


def _graph(model: MRF) -> Any:
    """Return the graph of a model as a symmetric matrix, variables in the caller's order."""
    v, h = model.split.visible, model.split.hidden
    pairs = [(v[model.edges[:, 0]], h[model.edges[:, 1]]), (v[model.lateral_edges[:, 0]], v[model.lateral_edges[:, 1]])]
    i, j = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    n = model.n_variables
    half = sp.csr_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(n, n))
    return sp.csr_array(half + half.T)


def numbers_of(model: MRF, labels: Any) -> Indices:
    """Return the sorted numbers of the variables with these labels; each label must exist and occur once."""
    wanted = as_list(labels, "summed", "a list of labels of variables")
    try:
        if isinstance(model.labels, range):
            numbers = [model.labels.index(x) for x in wanted]
        else:
            known = {label: i for i, label in enumerate(model.labels)}
            numbers = [known[x] for x in wanted]
    except (KeyError, ValueError, TypeError):
        raise ValueError(
            f"summed names {shown(_first_unknown(model, wanted))}, which is no label of the model"
        ) from None
    if not numbers:
        raise ValueError("summed is empty: name at least one variable, or use method 'ais'")
    if len(set(numbers)) < len(numbers):
        raise ValueError("summed names a variable twice")
    return np.sort(np.array(numbers, dtype=np.int64))


def _first_unknown(model: MRF, wanted: list[Any]) -> Any:
    for x in wanted:
        try:
            if x not in model.labels:
                return x
        except TypeError:
            return x
    return wanted[0]


def _callers(model: MRF) -> tuple[Indices, Indices]:
    """Return, for each visible and each hidden feature, the number of its variable in the caller's order."""
    v, h = model.visible_units.owners(len(model.visible_bias)), model.hidden_units.owners(len(model.hidden_bias))
    return model.split.visible[v], model.split.hidden[h]


def _joined(model: MRF) -> Units:
    """Return the kind of all variables in the caller's order; both sides are of one kind."""
    from_sides = np.argsort(np.concatenate([model.split.visible, model.split.hidden]))
    features = len(model.visible_bias), len(model.hidden_bias)
    return model.visible_units.joined(model.hidden_units, features, from_sides)


def split_variables(graph: Any, summed: Any = None, labels: Sequence[Any] | None = None) -> Split:
    """Split the variables of a graph (a symmetric sparse matrix) into an independent set and the rest.

    A bipartite graph is split into its two sides; the first variable of each connected part is visible.
    """
    n = graph.shape[0]
    if summed is not None:
        chosen = np.zeros(n, dtype=bool)
        chosen[summed] = True
        a, b = sp.coo_array(sp.triu(graph, 1)).coords
        clash = np.flatnonzero(chosen[a] & chosen[b])
        if len(clash):
            names = [str(i if labels is None else labels[i])[:40] for i in (a[clash[0]], b[clash[0]])]
            raise ValueError(f"summed is not an independent set: {names[0]} - {names[1]} is an edge")
        return Split(_sweep_order(graph, np.flatnonzero(~chosen)), np.flatnonzero(chosen))
    colour = two_colour(graph)
    if colour is not None:
        return Split(np.flatnonzero(colour == 0), np.flatnonzero(colour == 1))
    hidden = _independent_set(graph)
    chosen = np.zeros(n, dtype=bool)
    chosen[hidden] = True
    return Split(_sweep_order(graph, np.flatnonzero(~chosen)), hidden)


def two_colour(graph: Any) -> Indices | None:
    """Return a two-colouring, 0 (visible) and 1 (hidden), or None if the graph is not bipartite.

    The first variable of each connected part is visible. In the double cover, with edges (i, 0)–(j, 1) and
    (i, 1)–(j, 0), the two copies of i are connected exactly if the part of i has an odd cycle.
    """
    n = graph.shape[0]
    if n >= _LARGE:
        from .colouring import two_colours  # The import is here because Numba is slow to load.

        sides = two_colours(*_neighbours(graph))
        return sides if len(sides) else None
    cover = sp.block_array([[None, graph], [graph.T, None]], format="csr") if graph.nnz else sp.csr_array((2 * n,) * 2)
    _, part = connected_components(cover, directed=False)
    if (part[:n] == part[n:]).any():
        return None
    colour = (part[:n] > part[n:]).astype(np.int64)
    component = np.minimum(part[:n], part[n:])
    _, lowest, index = np.unique(component, return_index=True, return_inverse=True)
    return colour ^ colour[lowest][index]


def _independent_set(graph: Any) -> Indices:
    """Return a large independent set: the largest class of a colouring, or the result of the greedy algorithm."""
    ways = [_greedy_set] if _is_dense(graph) else [_greedy_set, _largest_class]
    found: dict[int, Indices] = {}

    def run(number: int) -> Iterator[float]:
        found[number] = ways[number](graph)
        yield 1.0

    # For a large graph each takes a second or more, in which the other can run.
    threads = min(len(ways), cores(None)) if graph.shape[0] >= _LARGE else 1
    run_jobs(run, range(len(ways)), len(ways), threads, lambda fraction: None)
    return max((found[number] for number in range(len(ways))), key=len)


def _largest_class(graph: Any) -> Indices:
    colour = _colours(graph)
    return np.flatnonzero(colour == np.bincount(colour).argmax())


def _is_dense(graph: Any) -> bool:
    return graph.nnz > _DENSE * graph.shape[0] * (graph.shape[0] - 1)


def _colours(graph: Any) -> Indices:
    if graph.shape[0] >= _LARGE:
        from .colouring import smallest_last  # The import is here because Numba is slow to load.

        return smallest_last(*_neighbours(graph))
    import networkx as nx  # The import is here because it is slow.

    colours = nx.greedy_color(nx.from_scipy_sparse_array(graph), "smallest_last")
    return np.array([colours[i] for i in range(graph.shape[0])], dtype=np.int64)


def _greedy_set(graph: Any) -> Indices:
    """Return the independent set that repeatedly takes the variable of lowest degree and removes its neighbours."""
    n = graph.shape[0]
    if n >= _LARGE:
        from .colouring import greedy_set  # The import is here because Numba is slow to load.

        return greedy_set(*_neighbours(graph))
    indptr, indices = graph.indptr.tolist(), graph.indices
    degree = np.diff(graph.indptr).tolist()
    heap = [(d, i) for i, d in enumerate(degree)]
    heapq.heapify(heap)
    left = bytearray(b"\1") * n
    taken = []
    while heap:
        d, i = heapq.heappop(heap)
        if not left[i] or d != degree[i]:
            continue
        taken.append(i)
        left[i] = 0
        dropped = [j for j in indices[indptr[i] : indptr[i + 1]].tolist() if left[j]]
        for j in dropped:
            left[j] = 0
        for j in dropped:
            for k in indices[indptr[j] : indptr[j + 1]].tolist():
                if left[k]:
                    degree[k] -= 1
                    heapq.heappush(heap, (degree[k], k))
    return np.sort(np.array(taken, dtype=np.int64))


def _neighbours(graph: Any) -> tuple[Indices, Indices]:
    """Return the neighbours of all variables in ascending order, preceded by where those of each variable start."""
    if not graph.has_sorted_indices:
        graph = graph.sorted_indices()
    return graph.indptr.astype(np.int64), graph.indices


def _sweep_order(graph: Any, visible: Indices) -> Indices:
    """Sort the visible variables by the classes of a colouring; on a dense graph, keep their order."""
    inside = sp.csr_array(graph[visible][:, visible])
    if inside.nnz == 0 or _is_dense(inside):
        return visible
    return visible[np.argsort(_colours(inside), kind="stable")]


def _features_of(side: Indices, owners: Indices, n: int) -> Indices:
    """Return the features of the variables of a side, in the order of the side."""
    if n == len(owners):
        return np.asarray(side, dtype=np.int64)
    rank = np.full(n, -1)
    rank[side] = np.arange(len(side))
    features = np.flatnonzero(rank[owners] >= 0)
    return features[np.argsort(rank[owners[features]], kind="stable")]
