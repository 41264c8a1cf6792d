"""Nested dissection: the order in which the faces of a drawing are joined to larger and larger parts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..models.forms import Indices
from ..models.units import Array


class Dissection(NamedTuple):
    """A binary tree over the faces, made by repeated halving along the widest direction (George, 1973).

    The faces of a subtree are consecutive in `order`. For each subtree `joins` lists where its two halves begin;
    smaller subtrees come before the larger ones that contain them.
    """

    order: Indices
    joins: list[tuple[int, int]]


def dissect(positions: Array) -> Dissection:
    """Return a dissection of the faces at these positions."""
    order = np.arange(len(positions))
    joins = []
    stack = [(0, len(order))]
    while stack:
        begin, end = stack.pop()
        if end - begin < 2:
            continue
        here = order[begin:end]
        places = positions[here]
        axis = int(np.argmax(places.max(axis=0) - places.min(axis=0)))
        order[begin:end] = here[np.argsort(places[:, axis], kind="stable")]
        middle = (begin + end) // 2
        joins.append((begin, middle))
        stack += [(begin, middle), (middle, end)]
    return Dissection(order, joins[::-1])
