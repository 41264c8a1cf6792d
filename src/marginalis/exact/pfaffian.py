"""ln Z of Ising models on a sphere or a torus, by Pfaffians of a sum over domain walls.

The spins of a graph on a surface determine its domain walls: sets of edges, an even number of them round every face,
each of which costs a factor e^{−2J}. These sets are counted by dimers (Kasteleyn, J. Math. Phys. 4, 287 (1963);
Fisher, J. Math. Phys. 7, 1776 (1966)). Each half-edge is a site. The two sites of an edge are joined by a bond of
weight e^{2J}, which stands for no wall, and all sites of a face by bonds of weight 1. With the signs of `embedding`

    Z = 2 Π_e e^{−J_e} Pf A                                             on a sphere,
    Z = 2 Π_e e^{−J_e} ¼ (Pf A_00 + Pf A_01 + Pf A_10 + Pf A_11)        on a torus,

where A_pq has reversed signs on one or both of two cycles around the torus. Walls that wind around it an odd number of
times do not correspond to spin states; they cancel between the four terms.

A sum over closed loops of tanh J loses all digits in a spin glass at low temperatures, but a sum over domain walls does
not, because its terms are positive for all signs of J. Pairs of sites are eliminated along a nested dissection (Thomas
& Middleton, Phys. Rev. E 80, 046708 (2009)), always by an entry that is large compared to the rest of its two rows. If
there is none, the sites wait until more of the graph is joined. The entries therefore keep their relative accuracy even
if they are as small as the weight of a wall between two frustrated faces far apart. Digits are lost in two cases only:
if the couplings of a torus favour a winding wall, so that the four terms cancel, and if ±J couplings make entries
cancel exactly. Every result is therefore computed twice, the second time with other pivots and with weights changed by
slightly more than rounding. If the two results differ, both are computed again with twice the digits.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from ..models.forms import Indices
from ..models.units import Array
from .dissection import Dissection, dissect
from .embedding import Drawing
from .pfaffian_kernel import assemble, eliminate, face_matrix

# Largest relative difference of two values of ln Z that agree; far below 1e-9, as agreement may be by chance.
_AGREE = 1e-12
# Relative change of the weights in the second computation, which alters rounding errors but hardly ln Z.
_SHIFT = 2.0**-45
THRESHOLDS = 0.25, 0.1  # Smallest ratio of a pivot to the other entries of its two rows, for each computation.
_BITS = {1: 52, 2: 104}  # Bits of a number that is the sum of this many doubles.


def pfaffian_seconds(vertices: int, width: int) -> float:
    """Return the approximate time for a lattice-like graph of this width at a low temperature."""
    return 1e-3 + vertices * (7e-5 + 1.5e-6 * width)


def pfaffian_log_z(drawing: Drawing, couplings: Array) -> float:
    """Return ln Σ_s exp(Σ_e J_e s_i s_j) for the couplings J of the edges of a drawing, to 1e-9 relative or better.

    Raises a ValueError if twice the digits of a double are not enough.
    """
    tree = dissect(drawing.positions)
    j = np.zeros(len(drawing.edges))
    j[: len(couplings)] = couplings
    ground = math.log(2.0) + math.fsum(np.abs(j))
    for layers in (1, 2):
        (value, error), (check, _) = (_log_sum(drawing, tree, j, layers, variant) for variant in range(2))
        # The comparison is false if a value is not finite.
        if abs(value - check) + error <= _AGREE * abs(ground + value):
            return ground + value
    raise ValueError(
        f"the terms of the Pfaffian method cancel to less than the rounding error of {_BITS[2]} bits: the couplings of "
        f"this {'torus' if drawing.cuts else 'planar graph'}, up to {np.abs(j).max():.3g}, are too large"
    )


def weights_of(j: Array, variant: int) -> tuple[Array, Array]:
    """Return the weights of the bonds of all edges and of the walls across them; `variant` 1 is slightly changed."""
    bonds, walls = np.exp(-2.0 * np.maximum(-j, 0.0)), np.exp(-np.maximum(j, 0.0))
    if variant:
        bonds *= 1.0 + _SHIFT * np.random.default_rng(0).uniform(-1.0, 1.0, len(j))
    return bonds, walls


def _log_sum(drawing: Drawing, tree: Dissection, j: Array, layers: int, variant: int) -> tuple[float, float]:
    """Return ln of Π_e e^{−J_e−|J_e|} times the mean of the Pfaffians, and its error due to cancellation.

    Both are NaN if the mean is not positive.
    """
    bonds, walls = weights_of(j, variant)
    begun, part = faces_joined(drawing, tree, bonds, walls, layers, THRESHOLDS[variant])
    sectors = [last.result() for _, last in closed(begun, part, drawing.cuts)]
    found = [s for s in sectors if s is not None]
    if len(found) < len(sectors):
        return math.nan, math.nan
    top = max(s.exponent for s in found)
    terms = [s.mantissa * Fraction(2) ** max(s.exponent - top, -2000) for s in found]
    total, size = sum(terms), sum(abs(x) for x in terms)
    if total <= 0:
        return math.nan, math.nan
    rounding = math.sqrt(len(j)) * 2.0 ** -_BITS[layers]
    return math.log(total / len(terms)) + top * math.log(2.0), rounding * float(size / total)


class Product(NamedTuple):
    """A number that may be too large or too small for a double: mantissa · 2^exponent."""

    mantissa: Fraction
    exponent: int


class Part(NamedTuple):
    """A part of the graph: the remaining sites, the first `waiting` of which are to be eliminated, and their matrix.

    The matrix has one layer in double precision, or is the sum of two layers for twice the digits.
    """

    sites: Indices
    matrix: Array
    waiting: int


class Front(NamedTuple):
    """Data of a join that the inverse needs: the sites of both parts and the rows of the eliminated sites."""

    sites: Indices  # All sites, starting with the eliminated ones.
    rows: Array
    first: Indices  # The sites of each of the two parts.
    second: Indices


class Elimination:
    """State of an elimination: the eliminated sites in order, and the product of the pivots."""

    def __init__(
        self, bonds: Array, closes: Any, threshold: float, begun: Elimination | None = None, *, keeps: bool = False
    ) -> None:
        self.bonds, self.closes, self.threshold = bonds, closes, threshold
        self.fronts: list[Front] | None = [] if keeps else None
        self._place = np.full(2 * len(bonds), -1)
        self._order: list[Indices] = list(begun._order) if begun else []
        self._product: tuple[float, float] = begun._product if begun else (1.0, 0.0)
        self._exponent: int = begun._exponent if begun else 0

    def join(self, a: Part, b: Part) -> Part:
        """Join two parts, close the edges between them, and eliminate as many sites as possible."""
        sites, matrix, free = assemble(*a, *b, self.bonds, self.closes, self._place)
        two_layers = True if len(matrix) == 2 else None
        gone, high, low, exponent = eliminate(sites, matrix, free, self.threshold, *self._product, two_layers)
        self._product, self._exponent = (high, low), self._exponent + exponent
        if gone:
            self._order.append(sites[:gone])
        if self.fronts is not None:
            self.fronts.append(Front(sites, matrix[0, :gone].copy(), a.sites, b.sites))
        return Part(sites[gone:], np.ascontiguousarray(matrix[:, gone:, gone:]), free - gone)

    def places(self, sites: Indices) -> Indices:
        """Return the position of each site in a list, −1 for other sites; the caller must reset the array."""
        self._place[sites] = np.arange(len(sites))
        return self._place

    def result(self) -> Product | None:
        """Return the Pfaffian in units of the term without walls, or None if a pivot was too small."""
        high, low = self._product
        if not math.isfinite(high):
            return None
        sites = np.concatenate(self._order) if self._order else np.zeros(0, dtype=np.int64)
        n = len(self._place)
        if len(sites) < n:  # There was no pivot for the remaining sites, so the Pfaffian is zero.
            return Product(Fraction(0), 0)
        cycles, _ = connected_components(sp.csr_array((np.ones(n), (np.arange(n), sites)), shape=(n, n)))
        negative = ((n - cycles) + int(np.signbit(self.bonds).sum())) % 2
        return Product((Fraction(high) + Fraction(low)) * (-1) ** negative, self._exponent)


def faces_joined(
    drawing: Drawing,
    tree: Dissection,
    bonds: Array,
    walls: Array,
    layers: int,
    threshold: float,
    *,
    keeps: bool = False,
) -> tuple[Elimination, Part]:
    """Join all faces along the dissection, without the edges of the cuts."""
    signed, closes = bonds * drawing.signs, np.ones(len(bonds), dtype=bool)
    for cut in drawing.cuts:
        closes[cut] = False
    begun = Elimination(signed, closes, threshold, keeps=keeps)
    parts: dict[int, Part] = {}
    for k, face in enumerate(tree.order.tolist()):
        sites = np.array(drawing.faces[face], dtype=np.int64)
        parts[k] = Part(sites, face_matrix(walls[sites >> 1], layers), 0)
    for begin, middle in tree.joins:
        parts[begin] = begun.join(parts[begin], parts.pop(middle))
    return begun, parts[0]


def closed(
    begun: Elimination, part: Part, cuts: tuple[Indices, ...]
) -> list[tuple[tuple[Elimination, ...], Elimination]]:
    """Close the edges of the cuts, one cut after the other, with either sign.

    Returns for each choice of signs the sequence of eliminations and the last of them.
    """
    nothing = Part(np.zeros(0, dtype=np.int64), np.zeros((len(part.matrix), 0, 0)), 0)
    keeps = begun.fronts is not None
    if not cuts:
        last = Elimination(begun.bonds, begun.closes, 0.0, begun, keeps=keeps)
        last.join(part, nothing)
        return [((last,), last)]
    found = []
    for sign in (1.0, -1.0):
        bonds, closes = begun.bonds.copy(), begun.closes.copy()
        bonds[cuts[0]] *= sign
        closes[cuts[0]] = True
        further = Elimination(bonds, closes, begun.threshold, begun, keeps=keeps)
        rest = further.join(part, nothing)
        found += [((further, *way), last) for way, last in closed(further, rest, cuts[1:])]
    return found
