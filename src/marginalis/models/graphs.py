"""Models on any bipartite graph: from edges, a networkx graph, a dimod quadratic model, or tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import breadth_first_order, connected_components

from ..checks import check_room, one_line, plain_array, real_array, real_number, shown, whole
from .model import MRF, Indices, Split
from .units import BINARY, SPIN, Array, Categorical, TwoState


def from_edges(
    edges: ArrayLike,
    *,
    coupling: ArrayLike = 1.0,
    field: ArrayLike = 0.0,
    n: int | None = None,
    units: str = "spin",
    temperature: float = 1.0,
) -> MRF:
    """Model of spins (or binaries) on the graph with these edges.

    E = −(Σ_i field_i x_i + Σ_edges coupling_e x_i x_j)/T. `edges` has shape (m, 2) and numbers the
    variables from 0; `n` is their number if some of the last have no edge. Raises a ValueError that names
    an odd cycle when the graph is not bipartite. An edge that is given twice is two bonds, which add up.
    """
    pairs, n = _edges(edges, n)
    j = spread(coupling, (len(pairs),), "coupling")
    b = spread(field, (n,), "field")
    if not isinstance(units, str) or units not in ("spin", "binary"):
        raise ValueError(f"units is {shown(units)}; it must be spin or binary")
    return _two_state(pairs, j, b, SPIN if units == "spin" else BINARY, temperature)


def from_graph(
    graph: Any, *, coupling: str | None = "coupling", field: str | None = "field", temperature: float = 1.0
) -> MRF:
    """Spins on a networkx graph; `coupling` names an attribute of its edges, `field` one of its nodes.

    They default to 1 and 0 where a graph has no such attributes, or all over with None. Numbers that would go
    unread are an error. Parallel edges of a multigraph add up. Variables are numbered in the order of
    ``graph.nodes``.
    """
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise ValueError(f"graph is a {type(graph).__name__}; it must be a networkx graph")
    nodes = list(graph.nodes)
    if not nodes:
        raise ValueError("graph has no nodes")
    number = {node: i for i, node in enumerate(nodes)}
    links = list(graph.edges(data=True))
    edges = np.array([(number[a], number[b]) for a, b, _ in links], dtype=np.int64).reshape(-1, 2)
    b = _attribute([graph.nodes[node] for node in nodes], field, "field", "node", 0.0)
    j = _attribute([data for _, _, data in links], coupling, "coupling", "edge", 1.0)
    if graph.is_directed():
        both = {(a, b) for a, b in edges.tolist() if a < b} & {(b, a) for a, b in edges.tolist() if a > b}
        if both:  # two bonds, or one that is told twice?
            first, second = (shown(nodes[i]) for i in min(both))
            raise ValueError(f"graph has edges from {first} to {second} and back; make it undirected")
    return _two_state(edges, j, b, SPIN, temperature, nodes)


_NO_NUMBERS = ("bipartite", "subset")  # networkx numbers the sides and layers of its own graphs so


def _attribute(items: list[Mapping[str, Any]], name: str | None, argument: str, what: str, default: float) -> Array:
    """Return an attribute of the edges or nodes, or raise a ValueError where other numbers would go unread."""
    if not (name is None or isinstance(name, str)):
        raise ValueError(f"{argument} is {shown(name)}; it must name an attribute of the {what}s")
    if name is not None:
        unread = {key for x in items if name not in x for key, value in x.items() if _is_number(value)}
        unread -= {*_NO_NUMBERS}
        if unread:
            some = one_line(", ".join(sorted(map(repr, unread))), 100)
            raise ValueError(
                f"graph has {what}s without the attribute {shown(name)} but with {some}: say which is the "
                f"{argument}, as in {argument}={shown(min(unread, key=repr))}, or {argument}=None for {default:g}"
            )
        if name != argument and items and not any(name in x for x in items):
            raise ValueError(f"{argument} is {shown(name)}, an attribute that no {what} has")
    if not items:
        return np.zeros(0)
    values = [default if name is None else x.get(name, default) for x in items]
    return real_array(values, f"{what} attribute {one_line(name, 80)}", 1)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    return isinstance(value, Number) or getattr(getattr(value, "dtype", None), "kind", "") in tuple("fiuc")


def from_bqm(bqm: Any, *, temperature: float = 1.0) -> MRF:
    """Model of a ``dimod.BinaryQuadraticModel``, SPIN or BINARY.

    Its energy Σ h_i x_i + Σ J_ij x_i x_j + offset is a cost, so fields and couplings change sign and the
    offset enters ln Z. Variables are numbered in the order of ``bqm.variables``.
    """
    kind = getattr(getattr(bqm, "vartype", None), "name", None)  # of other models each variable has its own
    if kind not in ("SPIN", "BINARY") or not all(hasattr(bqm, x) for x in ("variables", "linear", "quadratic")):
        raise ValueError(f"bqm is a {type(bqm).__name__}; it must be a dimod BinaryQuadraticModel")
    labels = list(bqm.variables)
    if not labels:
        raise ValueError("bqm has no variables")
    number = {label: i for i, label in enumerate(labels)}
    b = -real_array([bqm.linear[label] for label in labels], "linear biases", 1)
    edges = np.array([(number[a], number[c]) for a, c in bqm.quadratic], dtype=np.int64).reshape(-1, 2)
    j = -real_array(list(bqm.quadratic.values()), "quadratic biases", 1) if len(edges) else np.zeros(0)
    units = SPIN if kind == "SPIN" else BINARY
    offset = -real_number(bqm.offset, "offset")
    return _two_state(edges, j, b, units, temperature, labels, offset=offset)


def potts(
    edges: ArrayLike,
    q: int,
    *,
    coupling: ArrayLike = 1.0,
    field: ArrayLike = 0.0,
    n: int | None = None,
    temperature: float = 1.0,
) -> MRF:
    """Potts model: x_i ∈ {0, …, q−1} and E = −(Σ_i field[i, x_i] + Σ_edges coupling_e δ(x_i, x_j))/T.

    `field` is one number, one per state (q,), or one per variable and state (n, q).
    """
    pairs, n = _edges(edges, n)
    pairs, j = _merge(pairs, spread(coupling, (len(pairs),), "coupling"))
    return potts_model(pairs, two_colour(pairs, n), q, j, field, temperature)


def potts_model(
    pairs: Indices,
    colour: Indices,
    q: int,
    coupling: ArrayLike,
    field: ArrayLike,
    temperature: float,
    **rest: Any,
) -> MRF:
    """Potts model on edges whose variables have been coloured already."""
    q = whole(q, "q", 2, 10**6)
    check_room(50 * (len(colour) + len(pairs)) * q, "q", q)
    j = spread(coupling, (len(pairs),), "coupling")
    b = spread(field, (len(colour), q), "field", (q,))
    split, rows, columns = _place(pairs, colour)
    states = np.arange(q)
    entries = ((rows[:, None] * q + states).ravel(), (columns[:, None] * q + states).ravel())
    shape = (len(split.visible) * q, len(split.hidden) * q)
    weights = sp.csr_array((np.repeat(j, q), entries), shape=shape)
    units = Categorical(q)
    biases = b[split.visible].ravel(), b[split.hidden].ravel()
    return MRF(weights, *biases, units, units, temperature, split=split, **rest)


def from_tables(
    unary: Sequence[ArrayLike], pair: Mapping[tuple[int, int], ArrayLike], *, temperature: float = 1.0
) -> MRF:
    """General discrete pair model: E = −(Σ_i φ_i(x_i) + Σ_ij ψ_ij(x_i, x_j))/T (eq. bipartite_energy_k).

    ``unary[i]`` lists φ_i, one value per state of variable i (their numbers may differ); ``pair[i, j]`` is
    the table ψ_ij with a row per state of i and a column per state of j.
    """
    if not np.iterable(unary):
        raise ValueError(f"unary is {shown(unary)}; it must list the values of every variable")
    phi = [real_array(x, f"unary[{i}]", 1) for i, x in enumerate(unary)]
    if not phi:
        raise ValueError("unary lists no variables")
    sizes = np.array([len(x) for x in phi])
    if sizes.min() < 2:
        raise ValueError(f"unary[{int(sizes.argmin())}] has one state; a variable needs at least 2")
    if not isinstance(pair, Mapping) or not all(isinstance(key, tuple) and len(key) == 2 for key in pair):
        raise ValueError("pair must map pairs (i, j) of variables to tables")
    pairs, n = _edges(list(pair), len(phi))
    tables = []
    for (a, b), table in zip(pairs, pair.values(), strict=True):
        psi = real_array(table, f"pair[{a}, {b}]", 2)
        if psi.shape != (sizes[a], sizes[b]):
            raise ValueError(f"pair[{a}, {b}] has shape {psi.shape}; the states want {(int(sizes[a]), int(sizes[b]))}")
        tables.append(psi)
    colour = two_colour(pairs, n)
    if len({frozenset(edge) for edge in pairs.tolist()}) < len(pairs):
        raise ValueError("pair holds a table for (i, j) and another for (j, i)")
    split, rows, columns = _place(pairs, colour)
    first = [np.concatenate([[0], np.cumsum(sizes[side])]) for side in (split.visible, split.hidden)]
    data, at = [np.zeros(0)], [np.zeros((2, 0), dtype=np.int64)]
    for (a, _), psi, row, column in zip(pairs, tables, rows, columns, strict=True):
        psi = psi if colour[a] == 0 else psi.T
        data.append(psi.ravel())
        at.append(np.indices(psi.shape).reshape(2, -1) + [[first[0][row]], [first[1][column]]])
    entries = np.concatenate(at, axis=1)
    weights = sp.csr_array((np.concatenate(data), (entries[0], entries[1])), shape=(first[0][-1], first[1][-1]))

    def side(variables: Indices) -> tuple[Array, Categorical]:
        counts = tuple(sizes[variables].tolist())
        return np.concatenate([np.zeros(0), *(phi[i] for i in variables)]), Categorical(counts or 2)

    (b, visible), (c, hidden) = side(split.visible), side(split.hidden)
    return MRF(weights, b, c, visible, hidden, temperature, split=split)


def two_colour(edges: Indices, n: int, labels: Sequence[Any] | None = None) -> Indices:
    """Colour the variables 0 (visible) and 1 (hidden) so that every edge joins the two colours.

    The lowest-numbered variable of each connected part is visible. In the double cover, with edges
    (i, 0)–(j, 1) and (i, 1)–(j, 0), the two copies of i meet exactly if its part has an odd cycle.
    """
    a, b = edges.T
    heads, tails = np.concatenate([a, a + n]), np.concatenate([b + n, b])
    ones = np.ones(len(heads), dtype=np.int8)
    cover = sp.csr_array((ones, (heads, tails)), shape=(2 * n, 2 * n))
    _, part = connected_components(cover, directed=False)
    if (part[:n] == part[n:]).any():
        cycle = _odd_cycle(cover, int(np.argmax(part[:n] == part[n:])), n)
        names = [one_line(i if labels is None else labels[i], 15) for i in cycle]
        shown = names if len(names) <= 13 else names[:10] + ["…"] + names[-2:]
        raise ValueError(
            f"the graph is not bipartite: {' - '.join([*shown, names[0]])} is an odd cycle of {len(names)}"
        )
    colour = (part[:n] > part[n:]).astype(np.int64)
    component = np.minimum(part[:n], part[n:])
    _, lowest, index = np.unique(component, return_index=True, return_inverse=True)
    return colour ^ colour[lowest][index]


def _odd_cycle(cover: Any, start: int, n: int) -> list[int]:
    """Return a simple cycle of odd length in the part of `start`."""
    _, before = breadth_first_order(cover, start, directed=False)
    walk, at = [], start + n
    while at != start:
        walk.append(at % n)
        at = int(before[at])
    seen: dict[int, int] = {}
    path: list[int] = []
    for node in [
        *walk,
        start,
    ]:  # a closed odd walk: cut even detours until a node returns after an odd number
        if node in seen:
            loop = path[seen[node] :]
            if len(loop) % 2:
                return loop
            for left in loop:
                del seen[left]
            del path[-len(loop) :]
        seen[node] = len(path)
        path.append(node)
    raise AssertionError("an odd closed walk contains an odd cycle")


def spread(value: ArrayLike, shape: tuple[int, ...], argument: str, *also: tuple[int, ...]) -> Array:
    """Return `value` as an array of this shape: given whole, as one number, or in one of the shapes `also`."""
    if 0 in shape:
        return np.zeros(shape)
    array = real_array(value, argument, None)
    if array.shape not in ((), (1,), shape, *also):
        raise ValueError(f"{argument} has shape {array.shape}; it must be one number or {shape}")
    return np.broadcast_to(array, shape)


def _edges(edges: ArrayLike, n: int | None) -> tuple[Indices, int]:
    pairs = plain_array(edges, "edges")
    if pairs.size == 0:
        pairs = np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError("edges must be pairs of variable numbers, shape (m, 2)")
    if pairs.size and pairs.min() < 0:
        raise ValueError(f"edges name variable {int(pairs.min())}; numbers start at 0")
    needed = int(pairs.max()) + 1 if pairs.size else 1
    whole(needed, "number of variables", 1, 2**31)
    count = needed if n is None else whole(n, "n", 1, 2**31)
    check_room(200 * count, "number of variables", count)
    if needed > count:
        raise ValueError(f"edges name variable {needed - 1}, but there are only {count} variables")
    return pairs.astype(np.int64), count


def _merge(pairs: Indices, coupling: Array) -> tuple[Indices, Array]:
    """Return every edge once, with the sum of its couplings where it is given several times."""
    kept, index = np.unique(np.sort(pairs, axis=1), axis=0, return_inverse=True)
    sums = np.bincount(index.ravel(), weights=coupling, minlength=len(kept))
    return kept, sums.astype(np.float64, copy=False)


def _place(pairs: Indices, colour: Indices) -> tuple[Split, Indices, Indices]:
    """Split the variables by colour; return also each edge's row and column."""
    split = Split(np.flatnonzero(colour == 0), np.flatnonzero(colour == 1))
    position = np.empty(len(colour), dtype=np.int64)
    position[split.visible] = np.arange(len(split.visible))
    position[split.hidden] = np.arange(len(split.hidden))
    flipped = colour[pairs[:, 0]] == 1
    rows = position[np.where(flipped, pairs[:, 1], pairs[:, 0])]
    columns = position[np.where(flipped, pairs[:, 0], pairs[:, 1])]
    return split, rows, columns


def _two_state(
    pairs: Indices,
    coupling: Array,
    field: Array,
    units: TwoState,
    temperature: float,
    labels: Sequence[Any] | None = None,
    offset: float = 0.0,
) -> MRF:
    pairs, coupling = _merge(pairs, coupling)
    pairs, coupling = pairs[coupling != 0], coupling[coupling != 0]
    split, rows, columns = _place(pairs, two_colour(pairs, len(field), labels))
    weights = sp.csr_array((coupling, (rows, columns)), shape=(len(split.visible), len(split.hidden)))
    biases = field[split.visible], field[split.hidden]
    return MRF(weights, *biases, units, units, temperature, offset, split)
