"""Weighted graphs in the format of rudy, Gset and Biq Mac: ``n m``, then ``i j w`` for every edge, numbered from 1.

A weight is a coupling, E = −Σ w s s′. With `maxcut` it is the gain of cutting the edge: E = Σ w s s′ up to a constant.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ..models.factors import FactorModel
from ..models.graphs import from_edges
from ..models.model import MRF
from .quadratic import quadratic_form
from .text import Tokens, write_text


def parse_rudy(text: str, maxcut: bool = False) -> MRF:
    """Return the model of spins on the graph of a text."""
    tokens = Tokens(text)
    n = tokens.whole("the number of nodes", 1, 2**31)
    tokens.check_count(n, "the number of nodes")
    m = tokens.whole("the number of edges", 0)
    values = tokens.numbers("an end or a weight of an edge")
    if len(values) != 3 * m:
        tokens.fail(f"{m} edges take {3 * m} numbers; there are {len(values)}")
    rows = values.reshape(m, 3)
    wrong = np.flatnonzero(~((rows[:, :2] >= 1) & (rows[:, :2] <= n) & (rows[:, :2] % 1 == 0)).all(axis=1))
    if len(wrong):
        tokens.fail(f"an edge must join two of the nodes 1 to {n}", tokens.at + 3 * int(wrong[0]))
    if not np.isfinite(rows[:, 2]).all():
        tokens.fail("a weight is not finite", tokens.at + 3 * int(np.flatnonzero(~np.isfinite(rows[:, 2]))[0]) + 2)
    sign = -1.0 if maxcut else 1.0
    return from_edges(rows[:, :2].astype(np.int64) - 1, coupling=sign * rows[:, 2], n=n, labels=tuple(range(1, n + 1)))


def write_rudy(model: MRF | FactorModel, path: str | Path) -> None:
    """Write a model of spins without fields; the format holds couplings only."""
    form = quadratic_form(model, "spin", "a rudy file")
    if form.field.any():
        raise ValueError("a rudy file holds couplings only; the model has fields")
    if form.offset:
        raise ValueError("a rudy file holds couplings only; the model has a constant")
    links = sp.coo_array(form.couplings)
    lines = [f"{len(form.field)} {links.nnz}"]
    lines += [
        f"{i + 1} {j + 1} {w!r}" for i, j, w in zip(*(x.tolist() for x in (*links.coords, links.data)), strict=True)
    ]
    write_text(path, "\n".join(lines) + "\n")
