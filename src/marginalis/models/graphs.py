"""Models on any graph: from edges, a matrix, a networkx graph, a dimod quadratic model, or tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..checks import (
    a_kind,
    check_room,
    coupling_matrix,
    one_line,
    plain_array,
    precision_vector,
    real_array,
    real_number,
    shown,
    whole,
)
from .arrange import arrange
from .forms import Indices
from .model import MRF
from .networks import has_tables
from .units import BINARY, SPIN, Array, Categorical, Units, parse_units


def from_edges(
    edges: ArrayLike,
    *,
    coupling: ArrayLike = 1.0,
    field: ArrayLike = 0.0,
    n: int | None = None,
    units: str = "spin",
    precision: ArrayLike | None = None,
    labels: Sequence[Any] | None = None,
    temperature: float = 1.0,
) -> MRF:
    """Return the model of spins, binaries or Gaussians on any graph, given by its edges.

    E = −(Σ_i field_i x_i + Σ_edges coupling_e x_i x_j)/T.

    Parameters
    ----------
    edges
        Pairs of variable numbers from 0, of shape (m, 2). Couplings of an edge that is given twice add up.
    coupling
        One number or one for each edge.
    field
        One number or one for each variable.
    n
        Number of variables, if the last ones have no edge.
    units
        ``"spin"`` (−1, +1), ``"binary"`` (0, 1) or ``"gaussian"``.
    precision
        γ > 0 of Gaussian variables, which add −γx²/2 inside the bracket; 1 by default. The model must be normalisable.
    labels
        Names of the variables, their numbers by default.
    temperature
        T > 0, which divides the whole energy.
    """
    pairs, n = checked_edges(edges, n)
    j = as_shape(coupling, (len(pairs),), "coupling")
    b = as_shape(field, (n,), "field")
    return _on_graph(pairs, j, b, _kind(units, n, precision), temperature, labels)


def from_matrix(
    couplings: Any,
    field: ArrayLike = 0.0,
    *,
    units: str = "spin",
    precision: ArrayLike | None = None,
    labels: Sequence[Any] | None = None,
    temperature: float = 1.0,
) -> MRF:
    """Return the model with a matrix of couplings, such as a Boltzmann machine, an SK or a Hopfield model.

    E = −(Σ_i field_i x_i + Σ_{i<j} couplings_ij x_i x_j)/T.

    Parameters
    ----------
    couplings
        A dense or ``scipy.sparse`` matrix, symmetric with zeros on its diagonal; a triangular matrix is symmetrized.
    field
        One number or one for each variable.
    units
        ``"spin"`` (−1, +1), ``"binary"`` (0, 1) or ``"gaussian"``.
    precision
        γ > 0 of Gaussian variables, which add −γx²/2 inside the bracket; 1 by default. The model must be normalisable.
    labels
        Names of the variables, their numbers by default.
    temperature
        T > 0, which divides the whole energy.
    """
    matrix = sp.csr_array(coupling_matrix(couplings, "couplings"))
    n = matrix.shape[0]
    if matrix.shape != (n, n):
        raise ValueError(f"couplings has shape {matrix.shape}; it must be square")
    if matrix.diagonal().any():
        raise ValueError(f"couplings has {int(np.count_nonzero(matrix.diagonal()))} entries on its diagonal")
    upper, lower = sp.triu(matrix, 1), sp.tril(matrix, -1)
    if upper.nnz and lower.nnz and abs(upper - lower.T).max() > 0.0:
        raise ValueError("couplings is neither symmetric nor a triangle")
    links = sp.coo_array(upper if upper.nnz else lower)
    pairs = np.stack(links.coords, axis=1).astype(np.int64)
    b = as_shape(field, (n,), "field")
    return _on_graph(pairs, links.data, b, _kind(units, n, precision), temperature, labels)


def _kind(units: object, n: int, precision: object) -> Units:
    """Return the kind of all variables of a graph."""
    if not isinstance(units, str) or units not in ("spin", "binary", "gaussian"):
        raise ValueError(f"units is {shown(units)}; it must be spin, binary or gaussian")
    return parse_units(units, n, precision_vector(precision, n, "precision"))


def from_graph(
    graph: Any,
    *,
    coupling: str | None = "coupling",
    field: str | None = "field",
    units: str = "spin",
    precision: ArrayLike | None = None,
    temperature: float = 1.0,
) -> MRF:
    """Return the model of spins, binaries or Gaussians on any networkx graph.

    E = −(Σ_i field_i x_i + Σ_edges coupling_e x_i x_j)/T. The nodes are the labels. Parallel edges of a multigraph
    add up.

    Parameters
    ----------
    graph
        An undirected networkx graph. Numeric attributes that are not used raise a ValueError.
    coupling
        The attribute of the edges that holds their couplings. Without it, or if its name is None, a coupling is 1.
    field
        The attribute of the nodes that holds their fields. Without it, or if its name is None, a field is 0.
    units
        ``"spin"`` (−1, +1), ``"binary"`` (0, 1) or ``"gaussian"``.
    precision
        γ > 0 of Gaussian variables, which add −γx²/2 inside the bracket; 1 by default. The model must be normalisable.
    temperature
        T > 0, which divides the whole energy.
    """
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise ValueError(f"graph is {a_kind(graph)}; it must be a networkx graph")
    if has_tables(graph):
        raise ValueError(
            f"graph is {a_kind(graph)}, which is defined by its tables and not by its edges: use from_pgmpy"
        )
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
        if both:  # Such a pair may be two bonds or one bond given twice.
            first, second = (shown(nodes[i]) for i in min(both))
            raise ValueError(f"graph has edges from {first} to {second} and back; make it undirected")
    return _on_graph(edges, j, b, _kind(units, len(nodes), precision), temperature, nodes)


# Attributes in which networkx stores the number of a side or layer; they are not parameters.
_NO_NUMBERS = ("bipartite", "subset")


def _attribute(items: list[Mapping[str, Any]], name: str | None, argument: str, what: str, default: float) -> Array:
    """Return an attribute of the edges or nodes; raise a ValueError if there are other numeric attributes."""
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
    """Return the model of a ``dimod.BinaryQuadraticModel``, SPIN or BINARY.

    Its energy Σ h_i x_i + Σ J_ij x_i x_j + offset is a cost, so fields and couplings change sign. The offset enters
    ln Z. The variables are the labels.

    Parameters
    ----------
    bqm
        The quadratic model, or any object with ``vartype``, ``linear``, ``quadratic`` and ``offset``.
    temperature
        T > 0, which divides the whole energy.
    """
    kind = getattr(getattr(bqm, "vartype", None), "name", None)  # Others have one per variable.
    if kind not in ("SPIN", "BINARY") or not all(hasattr(bqm, x) for x in ("variables", "linear", "quadratic")):
        raise ValueError(f"bqm is {a_kind(bqm)}; it must be a dimod BinaryQuadraticModel")
    labels = list(bqm.variables)
    if not labels:
        raise ValueError("bqm has no variables")
    number = {label: i for i, label in enumerate(labels)}
    b = -real_array([bqm.linear[label] for label in labels], "linear biases", 1)
    edges = np.array([(number[a], number[c]) for a, c in bqm.quadratic], dtype=np.int64).reshape(-1, 2)
    j = -real_array(list(bqm.quadratic.values()), "quadratic biases", 1) if len(edges) else np.zeros(0)
    units = SPIN if kind == "SPIN" else BINARY
    offset = -real_number(bqm.offset, "offset")
    return _on_graph(edges, j, b, units, temperature, labels, offset)


def potts(
    edges: ArrayLike,
    q: int,
    *,
    coupling: ArrayLike = 1.0,
    field: ArrayLike = 0.0,
    n: int | None = None,
    temperature: float = 1.0,
) -> MRF:
    """Return the Potts model x_i ∈ {0, …, q−1}, E = −(Σ_i field[i, x_i] + Σ_edges coupling_e δ(x_i, x_j))/T.

    Parameters
    ----------
    edges
        Pairs of variable numbers from 0, of shape (m, 2).
    q
        Number of states of each variable.
    coupling
        One number or one for each edge.
    field
        One number, one per state (q,), or one per variable and state (n, q).
    n
        Number of variables, if the last ones have no edge.
    temperature
        T > 0, which divides the whole energy.
    """
    pairs, n = checked_edges(edges, n)
    pairs, j = _merge(pairs, as_shape(coupling, (len(pairs),), "coupling"))
    return potts_model(pairs, n, q, j, field, temperature)


def potts_model(
    pairs: Indices,
    n: int,
    q: int,
    coupling: ArrayLike,
    field: ArrayLike,
    temperature: float,
    **rest: Any,
) -> MRF:
    """Return the Potts model on edges that are checked already."""
    q = whole(q, "q", 2, 10**6)
    check_room(50 * (n + len(pairs)) * q, "q", q)
    b = as_shape(field, (n, q), "field", (q,))
    j = as_shape(coupling, (len(pairs),), "coupling")
    return pair_model(pairs, j, sp.eye_array(q), b, temperature, **rest)


def pair_model(pairs: Indices, coupling: Array, table: Any, field: Array, temperature: float, **rest: Any) -> MRF:
    """Return the model −E·T = Σ_i field[i, x_i] + Σ_pairs coupling · table[x_i, x_j] of checked arguments."""
    n, q = field.shape
    nonzero = sp.coo_array(table)
    a, b = nonzero.coords
    entries = (pairs[:, :1] * q + a).ravel(), (pairs[:, 1:] * q + b).ravel()
    links = sp.csr_array(((coupling[:, None] * nonzero.data).ravel(), entries), shape=(n * q, n * q))
    return arrange(Categorical(q), np.ascontiguousarray(field).ravel(), links, temperature=temperature, **rest)


def from_tables(
    unary: Sequence[ArrayLike], pair: Mapping[tuple[int, int], ArrayLike], *, temperature: float = 1.0
) -> MRF:
    """Return the discrete pair model E = −(Σ_i φ_i(x_i) + Σ_ij ψ_ij(x_i, x_j))/T (eq. bipartite_energy_k).

    Parameters
    ----------
    unary
        ``unary[i]`` lists φ_i, one value per state of variable i; variables may have different numbers of states.
    pair
        ``pair[i, j]`` is the table ψ_ij with a row per state of i and a column per state of j.
    temperature
        T > 0, which divides the whole energy.
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
    pairs, _ = checked_edges(list(pair), len(phi))
    tables = []
    for (a, b), table in zip(pairs, pair.values(), strict=True):
        psi = real_array(table, f"pair[{a}, {b}]", 2)
        if psi.shape != (sizes[a], sizes[b]):
            raise ValueError(f"pair[{a}, {b}] has shape {psi.shape}; the states need {(int(sizes[a]), int(sizes[b]))}")
        tables.append(psi)
    if len({frozenset(edge) for edge in pairs.tolist()}) < len(pairs):
        raise ValueError("pair holds a table for (i, j) and another for (j, i)")
    first = np.concatenate([[0], np.cumsum(sizes)])
    data, at = [np.zeros(0)], [np.zeros((2, 0), dtype=np.int64)]
    for (a, b), psi in zip(pairs, tables, strict=True):
        data.append(psi.ravel())
        at.append(np.indices(psi.shape).reshape(2, -1) + [[first[a]], [first[b]]])
    entries = np.concatenate(at, axis=1)
    links = sp.csr_array((np.concatenate(data), (entries[0], entries[1])), shape=(first[-1], first[-1]))
    return arrange(Categorical(tuple(sizes.tolist())), np.concatenate(phi), links, temperature=temperature)


def as_shape(value: ArrayLike, shape: tuple[int, ...], argument: str, *also: tuple[int, ...]) -> Array:
    """Return `value` as an array of this shape; it may have the shape, be one number, or have one of `also`."""
    if 0 in shape:
        return np.zeros(shape)
    array = real_array(value, argument, None)
    if array.shape not in ((), (1,), shape, *also):
        raise ValueError(f"{argument} has shape {array.shape}; it must be one number or {shape}")
    return np.broadcast_to(array, shape)


def checked_edges(edges: ArrayLike, n: int | None) -> tuple[Indices, int]:
    """Return the pairs of variables of the edges, and the number of variables, or raise a ValueError."""
    pairs = plain_array(edges, "edges")
    if pairs.size == 0:
        pairs = np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError("edges must be pairs of variable numbers, shape (m, 2); couplings go to coupling=")
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
    """Return every edge once, with the sum of its couplings."""
    low, high = np.minimum(*pairs.T), np.maximum(*pairs.T)
    n = int(high.max(initial=0)) + 1  # n is at most 2^31, so that a pair fits into one integer.
    keys, index = np.unique(low * n + high, return_inverse=True)
    kept = np.stack(np.divmod(keys, n), axis=1)
    sums = np.bincount(index.ravel(), weights=coupling, minlength=len(kept))
    return kept, sums.astype(np.float64, copy=False)


def _on_graph(
    pairs: Indices,
    coupling: Array,
    field: Array,
    units: Units,
    temperature: float,
    labels: Sequence[Any] | None = None,
    offset: float = 0.0,
) -> MRF:
    """Return the model of variables with one feature each."""
    n = len(field)
    pairs, coupling = _merge(pairs, coupling)
    links = sp.csr_array((coupling, (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return arrange(units, field, links, temperature=temperature, offset=offset, labels=labels)
