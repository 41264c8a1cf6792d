"""Mean products of neighbouring spins on a sphere or a torus, from the inverse of the matrix of the Pfaffian.

Since ∂ ln Pf A / ∂A_ij = (A⁻¹)_ji, the bond of an edge, which stands for no domain wall, is occupied with probability
A_ij (A⁻¹)_ji. The required entries of the inverse follow from those of the sites eliminated later, by going back
through the elimination. On a torus the four inverses are weighted by their Pfaffians. They are averaged after the
edges of the cuts, because the rest of the way back is linear in them.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from ..models.units import Array
from .dissection import Dissection, dissect
from .embedding import Drawing
from .pfaffian import THRESHOLDS, Elimination, Front, closed, faces_joined, weights_of
from .pfaffian_kernel import add_inverse

_AGREE = 1e-10  # Largest difference of the probabilities in two computations.


def bond_means(drawing: Drawing, couplings: Array) -> Array:
    """Return ⟨s_i s_j⟩ for the edges of the model, accurate to 1e-9.

    The means are computed twice, as ln Z is. Raises a ValueError if double precision is not enough.
    """
    tree = dissect(drawing.positions)
    j = np.zeros(len(drawing.edges))
    j[: len(couplings)] = couplings
    found, check = (_no_wall(drawing, tree, j, variant)[: len(couplings)] for variant in range(2))
    if not np.abs(found - check).max(initial=0.0) <= _AGREE:
        raise ValueError("the inverse of the matrix of the Pfaffian loses too many digits")
    return np.clip(2.0 * found - 1.0, -1.0, 1.0)


def _no_wall(drawing: Drawing, tree: Dissection, j: Array, variant: int) -> Array:
    """Return the probability that the ends of each edge are equal, or NaN if a pivot is too small."""
    bonds, walls = weights_of(j, variant)
    begun, part = faces_joined(drawing, tree, bonds, walls, 1, THRESHOLDS[variant], keeps=True)
    assert begun.fronts is not None
    sectors = closed(begun, part, drawing.cuts)
    products = [last.result() for _, last in sectors]
    found = np.zeros(len(j))
    if any(x is None or x.mantissa == 0 for x in products):
        return np.full(len(j), np.nan)
    top = max(x.exponent for x in products if x is not None)
    shares = [x.mantissa * Fraction(2) ** max(x.exponent - top, -2000) for x in products if x is not None]
    total, size = sum(shares), sum(abs(x) for x in shares)
    # The Pfaffians cancel, and too few digits are left.
    if total <= 0 or math.sqrt(len(j)) * 2.0**-52 * float(size / total) > _AGREE:
        return np.full(len(j), np.nan)
    left = np.zeros((len(part.sites),) * 2)
    for share, (way, _) in zip(shares, sectors, strict=True):
        share_of_all = float(share / total)
        inverse = np.zeros((0, 0))
        probability = np.zeros(len(j))
        for step in reversed(way):
            assert step.fronts is not None
            inverse, _ = _back(step.fronts[0], inverse, step, probability)
        found += share_of_all * probability
        left += share_of_all * inverse
    inverses = {0: left}
    inside = np.full(len(j), np.nan)
    for (begin, middle), front in zip(reversed(tree.joins), reversed(begun.fronts), strict=True):
        inverses[begin], inverses[middle] = _back(front, inverses.pop(begin), begun, inside)
    return np.where(np.isnan(inside), found, inside)


def _back(front: Front, left: Array, step: Elimination, probability: Array) -> tuple[Array, Array]:
    """Return the inverse on the sites of both parts of a join, from the inverse on the remaining sites.

    The probabilities of the edges with both ends in these parts are written to `probability`.
    """
    gone, n = len(front.rows), len(front.sites)
    inverse = np.zeros((n, n))
    inverse[gone:, gone:] = left
    add_inverse(front.rows, inverse)
    place = step.places(front.sites)
    even = front.sites[(front.sites % 2 == 0) & step.closes[front.sites >> 1]]
    even = even[place[even ^ 1] >= 0]
    probability[even >> 1] = step.bonds[even >> 1] * inverse[place[even ^ 1], place[even]]
    one, two = place[front.first], place[front.second]
    place[front.sites] = -1
    return inverse[np.ix_(one, one)], inverse[np.ix_(two, two)]
