"""Drawings of graphs on a sphere or a torus: faces, and the signs that turn a sum over domain walls into a Pfaffian.

An edge e consists of two half-edges, 2e and 2e + 1, one for each direction. A drawing is given by the vertex from which
each half-edge starts and by the next half-edge along the face beside it. An edge thus borders two faces, and each of
its half-edges belongs to one of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, connected_components, dijkstra

from ..models.forms import Indices
from ..models.units import Array

_LARGEST_FACE = 4  # Most half-edges of a face; larger faces are cut by edges without coupling.
_MOST_EDGES = 40_000  # Most edges of a graph that is tested for planarity, which takes about 0.1 ms per edge.
_COARSEST = 12  # Contraction of a minor stops at this number of vertices.


class Drawing(NamedTuple):
    """A graph on a sphere or a torus, with faces of at most four half-edges.

    Edges from `couplings` on have been added to cut large faces; they have no coupling.
    """

    edges: Indices  # The two ends of each edge.
    couplings: int  # Number of edges that belong to the model.
    faces: list[list[int]]  # The half-edges of each face in cyclic order.
    signs: Array  # The sign, +1 or −1, of each edge; see `_signs`.
    positions: Array  # Two coordinates of each face, for the dissection.
    cuts: tuple[Indices, ...]  # Edges of two non-contractible cycles of a torus; empty on a sphere.


def grid_drawing(shape: tuple[int, int], periodic: tuple[bool, bool], triangular: bool = False) -> Drawing:
    """Return the drawing of a square or triangular lattice.

    The edges are those along the rows, those along the columns, and the diagonals from (r, c) to (r + 1, c + 1). Each
    kind is row-major by the first site, and edges wrap around along periodic axes only.
    """
    rows, columns = shape
    site = np.arange(rows * columns).reshape(shape)
    bond = np.full((3, rows, columns), -1)
    steps = ((0, 1), (1, 0), (1, 1))[: 3 if triangular else 2]
    wraps = periodic[0] and rows > 1, periodic[1] and columns > 1
    ends, count = [], 0
    for axis, (down, right) in enumerate(steps):
        here = np.ones(shape, dtype=bool)
        if down and not wraps[0]:
            here[-1] = False
        if right and not wraps[1]:
            here[:, -1] = False
        n = int(here.sum())
        bond[axis][here] = count + np.arange(n)
        count += n
        ends.append(np.stack([site[here], np.roll(site, (-down, -right), (0, 1))[here]], axis=1))
    edges = np.concatenate(ends)

    def arriving(axis: int) -> Indices:
        """Return for each site the half-edge of the bond that ends there."""
        shifted = np.roll(bond[axis], steps[axis], (0, 1))
        return np.where(shifted >= 0, 2 * shifted + 1, -1)

    def leaving(axis: int) -> Indices:
        return np.where(bond[axis] >= 0, 2 * bond[axis], -1)

    around = [leaving(0), arriving(1), arriving(0), leaving(1)]  # The order is east, north, west, south.
    if triangular:
        around = [around[0], around[1], arriving(2), around[2], around[3], leaving(2)]
    after = np.full(2 * count, -1)  # The next half-edge around the same vertex.
    for k, one in enumerate(around):
        for step in range(1, len(around) + 1):
            other = around[(k + step) % len(around)]
            fresh = (one >= 0) & (other >= 0)
            fresh[fresh] = after[one[fresh]] < 0
            after[one[fresh]] = other[fresh]
    cuts = (bond[0][0], bond[1][:, 0]) if all(wraps) else ()

    middle = np.zeros((2 * count, 2))  # Centre of the face beside each half-edge, also where the lattice wraps around.
    r, c = (x.astype(float) for x in np.divmod(edges[:, 0], columns))
    middle[:, 0], middle[:, 1] = np.repeat(r, 2), np.repeat(c, 2)
    along = np.arange(2 * len(ends[0]))
    middle[along, 0] += np.where(along % 2 == 0, 0.5, -0.5)
    middle[along, 1] += 0.5
    if cuts:
        middle[:, 0] %= rows
    weight = np.ones(2 * count)
    weight[along] = 1e6  # Bonds along a row give the most accurate position.
    return _drawn(edges, after[np.arange(2 * count) ^ 1], cuts, (middle, weight))


def planar_drawing(n: int, edges: Indices) -> Drawing | None:
    """Return a drawing on a sphere of a graph without repeated edges.

    The result is None if there is no such drawing or the graph is too large to be tested.
    """
    if n < 2 or len(edges) > min(_MOST_EDGES, max(1, 3 * n - 6)) or _has_dense_minor(n, edges):
        return None
    import networkx as nx  # This import is slow, so it is done only here.

    couplings = len(edges)
    links = sp.csr_array((np.ones(couplings), (edges[:, 0], edges[:, 1])), shape=(n, n))
    parts, part = connected_components(links, directed=False)
    if parts > 1:  # Edges without coupling connect the parts.
        first = np.unique(part, return_index=True)[1]
        edges = np.concatenate([edges, np.stack([first[:-1], first[1:]], axis=1)])
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(edges.tolist())
    is_planar, embedding = nx.check_planarity(graph)
    if not is_planar:
        return None
    half = {}
    for e, (a, b) in enumerate(edges.tolist()):
        half[a, b], half[b, a] = 2 * e, 2 * e + 1
    after = np.empty(2 * len(edges), dtype=np.int64)
    for v in range(n):
        around = [half[v, w] for w in embedding.neighbors_cw_order(v)]
        after[around] = around[1:] + around[:1]
    return _drawn(edges, after[np.arange(2 * len(edges)) ^ 1], (), None, couplings)


def _has_dense_minor(n: int, edges: Indices) -> bool:
    """Whether contractions lead to a minor with more than 3n − 6 edges, so that the graph is not planar.

    Every vertex is repeatedly contracted with its first neighbour in a random order. This recognises most non-planar
    graphs in a small fraction of the time of a complete test.
    """
    rng = np.random.default_rng(0)
    while n > _COARSEST and len(edges):
        both = np.concatenate([edges, edges[:, ::-1]])
        both = both[rng.permutation(len(both))]
        chosen = np.arange(n)
        chosen[both[:, 0]] = both[:, 1]  # Of several assignments to a vertex the last one is kept.
        mutual = np.flatnonzero((chosen[chosen] == np.arange(n)) & (chosen > np.arange(n)))
        if not len(mutual):
            return False
        name = np.arange(n)
        name[chosen[mutual]] = mutual
        kept, name = np.unique(name, return_inverse=True)
        n = len(kept)
        edges = np.sort(name[edges], axis=1)
        edges = edges[edges[:, 0] < edges[:, 1]]
        keys = np.unique(edges[:, 0] * n + edges[:, 1])
        edges = np.stack(np.divmod(keys, n), axis=1)
        if n > 2 and len(edges) > 3 * n - 6:
            return True
    return False


def _drawn(
    edges: Indices,
    following: Indices,
    cuts: tuple[Indices, ...],
    places: tuple[Array, Array] | None,
    couplings: int | None = None,
) -> Drawing:
    """Return the drawing whose faces are the cycles of `following`."""
    origin = edges.ravel().tolist()
    follows = following.tolist()
    faces: list[list[int]] = []
    seen = bytearray(len(origin))
    for h in range(len(origin)):
        if seen[h]:
            continue
        face = []
        while not seen[h]:
            seen[h] = 1
            face.append(h)
            h = follows[h]
        first, cut = [face[0]], 1  # The rest of the face: this half-edge and those from `cut` on.
        # A new edge leads from the end of the third half-edge back to the start.
        while len(face) - cut + 1 > _LARGEST_FACE:
            new = len(origin)
            origin += [origin[face[cut + 2]], origin[face[0]]]
            faces.append([*first, face[cut], face[cut + 1], new])
            first, cut = [new + 1], cut + 2
        face = [*first, *face[cut:]]
        faces.append(face)
    edges_all = np.array(origin, dtype=np.int64).reshape(-1, 2)
    positions = _by_distance(faces, len(origin)) if places is None else _by_place(faces, *places)
    signs = _signs(edges_all, faces)
    return Drawing(edges_all, len(edges) if couplings is None else couplings, faces, signs, positions, cuts)


def face_of(faces: list[list[int]]) -> Indices:
    """Return the face of each half-edge."""
    sizes = [len(face) for face in faces]
    owner = np.empty(sum(sizes), dtype=np.int64)
    owner[np.concatenate(faces).astype(np.int64)] = np.repeat(np.arange(len(faces)), sizes)
    return owner


def _signs(edges: Indices, faces: list[list[int]]) -> Array:
    """Return signs with which every closed domain wall around one vertex counts positively.

    A wall that crosses edge e from half-edge h to h ^ 1 has the sign of e, reversed if h is odd; between two half-edges
    of a face it has + along their order and − against it. As in Kasteleyn's theorem (J. Math. Phys. 4, 287
    (1963)) a wall counts positively if the product of these signs is −1. Signs on the edges of a
    spanning tree achieve that for the walls around single vertices, one after the other from the leaves to the root.
    """
    n = int(edges.max()) + 1
    origin = edges.ravel()
    odd = np.bincount(edges[:, 1], minlength=n)
    # The first half-edge of each face, where its cyclic order starts.
    firsts = np.array([face[0] for face in faces], dtype=np.int64)
    odd += np.bincount(origin[firsts], minlength=n)
    wrong = ((odd + 1) & 1).tolist()
    links = sp.csr_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n))
    order, parent = breadth_first_order(links, 0, directed=False)
    edge_to = {}
    for e, (a, b) in enumerate(edges.tolist()):
        edge_to[a, b] = edge_to[b, a] = e
    signs = np.ones(len(edges))
    for v in order[:0:-1].tolist():
        if wrong[v]:
            above = int(parent[v])
            signs[edge_to[v, above]] *= -1.0
            wrong[above] ^= 1
    return signs


def _by_place(faces: list[list[int]], middle: Array, weight: Array) -> Array:
    """Return the weighted mean position of the half-edges of each face."""
    owner = face_of(faces)[: len(weight)]
    total = np.bincount(owner, weights=weight, minlength=len(faces))
    sums = [np.bincount(owner, weights=weight * x, minlength=len(faces)) for x in middle.T]
    return np.stack(sums, axis=1) / np.maximum(total, 1e-9)[:, None]


def _by_distance(faces: list[list[int]], half_edges: int) -> Array:
    """Return coordinates of each face: the sum and the difference of its distances from two faces far apart."""
    owner = face_of(faces)
    a, b = owner[0:half_edges:2], owner[1:half_edges:2]
    graph = sp.csr_array((np.ones(len(a)), (a, b)), shape=(len(faces),) * 2)

    def away(start: int) -> Array:
        return np.asarray(dijkstra(graph, directed=False, indices=start, unweighted=True), dtype=float)

    one = away(int(away(0).argmax()))
    two = away(int(one.argmax()))
    three = away(int(np.minimum(one, two).argmax()))
    return np.stack([one - two, 2.0 * three], axis=1)
