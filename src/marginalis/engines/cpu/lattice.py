"""Lattices: Ising models whose couplings are all J or −J, so that few fields are possible.

The neighbours of a spin add up to a whole number s, and its field is J·s + b. For every step of the path and every kind
of site (its own field b, and that of the base) all that follows from s is in a table: how likely the spin is to stand
against its field, and what ln 2cosh of it gains.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...checks import Array
from ...sampling.plan import Plan
from ...sampling.signed import signed_path
from ...simd.draws import TILE
from ...simd.vector import LANES, aligned
from .lattice_kernel import MOST

_PER_KIND = 64  # sites at least, for the time that its tables take
CHUNK = 512  # steps that tables are made for at a time
_GAIN_BITS = 24  # of the largest gain: sums over 64 sites are whole numbers of 32 bits


class Sites(NamedTuple):
    """Sites of one side, padded to whole tiles: their neighbours, and their kinds."""

    begin: np.ndarray  # of the neighbours of each
    minus: np.ndarray  # where those with a coupling of −J begin
    places: np.ndarray  # of the neighbours in the array of states
    kinds: np.ndarray


class Lattice(NamedTuple):
    """The path from a base to a lattice."""

    coupling: float
    hidden: Sites
    visible: Sites
    slopes: Array  # of the field of each kind of site in β, and where it starts
    bases: Array


def find_lattice(plan: Plan) -> Lattice | None:
    """Return the lattice of a plan for spins on a bipartite graph, if it is one."""
    if not sp.issparse(plan.oriented()[0].weights):
        return None
    path = signed_path(plan)
    weights = sp.csr_array(path.weights, copy=True)
    weights.eliminate_zeros()
    into = weights, sp.csr_array(weights.T)
    size = np.abs(weights.data)
    if not len(size) or (size != size[0]).any() or max(np.diff(w.indptr).max() for w in into) > MOST:
        return None
    sides = (path.slope_v, path.base_v), (path.slope_h, path.base_h)
    if np.unique(np.hstack(sides), axis=1).shape[1] > max(1, sum(weights.shape) // _PER_KIND):
        return None
    padded = [np.pad(side, ((0, 0), (0, -len(side[0]) % TILE))) for side in sides]
    fields, kinds = np.unique(np.hstack(padded), axis=1, return_inverse=True)
    of_sides = np.split(kinds.ravel(), [padded[0].shape[1]])
    visible, hidden = (_sites(w, kinds) for w, kinds in zip(into, of_sides, strict=True))
    return Lattice(float(size[0]), hidden, visible, fields[0], fields[1])


def _sites(into: Any, kinds: np.ndarray) -> Sites:
    rows = np.repeat(np.arange(into.shape[0]), np.diff(into.indptr))
    order = np.lexsort((into.indices, into.data < 0, rows))
    begin = np.pad(into.indptr, (0, len(kinds) - into.shape[0]), mode="edge").astype(np.int64)
    minus = begin[1:] - np.diff(np.concatenate([[0], np.cumsum(into.data < 0)])[begin])
    return Sites(begin, minus, into.indices[order].astype(np.int64) * LANES, kinds.astype(np.int64))


class Tables(NamedTuple):
    """Tables [step][kind of site][sum of neighbours] for the steps after `first`."""

    first: int
    thresholds: np.ndarray  # words below it make a spin stand against its field
    likelier: np.ndarray  # the spin along the field, as bytes
    gains: np.ndarray  # of ln 2cosh, in whole numbers of the scale of each step
    scale: Array


class TableMaker:
    """Makes the tables of a path, CHUNK steps at a time; the last ones made are kept, for all threads."""

    def __init__(self, lattice: Lattice, betas: Array) -> None:
        self.lattice, self.betas = lattice, betas
        self.of_chunk = lru_cache(maxsize=8)(self._make)

    def _make(self, chunk: int) -> Tables:
        lattice, first = self.lattice, chunk * CHUNK
        betas = self.betas[first : first + CHUNK + 1]
        slopes = lattice.coupling * (np.arange(LANES) - MOST) + lattice.slopes[:, None]
        fields = lattice.bases[:, None] + betas[:, None, None] * slopes
        a = np.abs(fields)
        gains = np.diff(a + np.log1p(np.exp(-2.0 * a)), axis=0)
        exponent = _GAIN_BITS - np.frexp(np.abs(gains).max(axis=(1, 2)))[1]
        whole = aligned(gains.shape, np.int32)
        whole[:] = np.rint(np.ldexp(gains, exponent[:, None, None]))
        return Tables(first, *draw_tables(fields[1:]), whole.view(np.uint32), np.ldexp(1.0, -exponent))


def draw_tables(fields: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return how many of the 2^32 words make a spin stand against its field (u·(1 + e) < e), and the likelier spin."""
    words, spins = aligned(fields.shape, np.uint32), aligned(fields.shape, np.int8)
    e = np.exp(-2.0 * np.abs(fields))
    words[:] = np.maximum(np.ceil(np.ldexp(e / (1.0 + e), 32) - 0.5), 0.0)
    spins[:] = np.copysign(1.0, fields)
    return words, spins.view(np.uint8)
