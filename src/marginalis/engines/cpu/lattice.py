"""Lattices: Ising models whose couplings are all ±J, so that few fields are possible.

The neighbours of a spin add up to a whole number s, and its field is J·s + b. A kind of site is a pair of fields b, its
own and that of the base. For every step of the path, kind of site and s, tables hold the probability that the spin is
set against its field, and the change of ln 2cosh of the field.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...checks import Array
from ...random import HIDDEN, VISIBLE
from ...simd.draws import TILE
from ...simd.functions import HAS_AVX512
from ...simd.vector import LANES, aligned
from ..lattice_tables import gains, thresholds, whole_gains
from ..plan import Plan
from . import population
from .lattice_kernel import MOST, anneal_lattice
from .population import Prepared, chains_together

CHUNK = 512  # Number of steps whose tables are made together.


class Neighbours(NamedTuple):
    """The neighbours, on one side, of every site of one side, whose number is padded to whole tiles."""

    begin: np.ndarray
    minus: np.ndarray  # Where the neighbours with a coupling of −J begin.
    places: np.ndarray  # Their places in the array of states.


class Lattice(NamedTuple):
    """The path from a base to a lattice."""

    coupling: float
    hidden: Neighbours  # Neighbours of hidden sites on the visible side.
    visible: Neighbours  # Neighbours of visible sites on the hidden side.
    beside: Neighbours | None  # Neighbours of visible sites on the visible side.
    before: Neighbours | None  # Those neighbours that are drawn before the site.
    kinds: tuple[np.ndarray, np.ndarray]  # Kinds of the visible sites, and of the hidden ones.
    slopes: Array  # The slope in β of the field of each kind of site.
    bases: Array  # The field of each kind at β = 0.


def lay_out(plan: Plan) -> Lattice:
    """Return the lattice of a plan that satisfies `is_lattice`."""
    path = plan.path.spins
    weights = sp.csr_array(path.weights)
    sides = path.slope_v + 1j * path.base_v, path.slope_h + 1j * path.base_h
    padded = [np.pad(side, (0, -len(side) % TILE)) for side in sides]
    fields, of_sites = np.unique(np.concatenate(padded), return_inverse=True)
    kinds = np.split(of_sites.astype(np.int64), [len(padded[0])])
    return Lattice(
        float(np.abs(weights.data).max()),
        _neighbours(weights.T),
        _neighbours(weights),
        None if path.lateral is None else _neighbours(path.lateral),
        None if path.lateral is None else _neighbours(sp.tril(path.lateral)),
        (kinds[0], kinds[1]),
        fields.real.copy(),
        fields.imag.copy(),
    )


def _neighbours(couplings: Any) -> Neighbours:
    """Return the neighbours given by couplings, a matrix with a row for each site and a column for each neighbour."""
    into = sp.csr_array(couplings, copy=True)
    into.eliminate_zeros()
    rows = np.repeat(np.arange(into.shape[0]), np.diff(into.indptr))
    order = np.lexsort((into.indices, into.data < 0, rows))
    begin = np.pad(into.indptr, (0, -into.shape[0] % TILE), mode="edge").astype(np.int64)
    minus = begin[1:] - np.diff(np.concatenate([[0], np.cumsum(into.data < 0)])[begin])
    return Neighbours(begin, minus, into.indices[order].astype(np.int64) * LANES)


class Tables(NamedTuple):
    """Tables [step][kind of site][sum of neighbours] for the steps after `first`."""

    first: int
    thresholds: np.ndarray  # A spin is set against its field if its random word is below this.
    likelier: np.ndarray  # The spin along the field, as bytes.
    gains: np.ndarray  # Changes of ln 2cosh, in multiples of the scale of each step.
    scale: Array


class TableMaker:
    """Makes the tables of a path, CHUNK steps at a time; all threads share the most recent ones."""

    def __init__(self, lattice: Lattice, betas: Array) -> None:
        self.lattice, self.betas = lattice, betas
        self.of_chunk = lru_cache(maxsize=8)(self._make)

    def _make(self, chunk: int) -> Tables:
        lattice, first = self.lattice, chunk * CHUNK
        betas = self.betas[first : first + CHUNK + 1]
        slopes = lattice.coupling * (np.arange(LANES) - MOST) + lattice.slopes[:, None]
        fields = lattice.bases[:, None] + betas[:, None, None] * slopes
        numbers, scale = whole_gains(gains(fields))
        whole = aligned(numbers.shape, np.int32)
        whole[:] = numbers
        return Tables(first, *draw_tables(fields[1:]), whole.view(np.uint32), scale)


def draw_tables(fields: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the thresholds of draws, and the more likely spins."""
    words, spins = aligned(fields.shape, np.uint32), aligned(fields.shape, np.int8)
    words[:], spins[:] = thresholds(fields), np.copysign(1.0, fields)
    return words, spins.view(np.uint8)


class LatticeArguments(NamedTuple):
    """A plan as arguments of the kernel; the code for fields that are None is left out when it is compiled."""

    hidden: Neighbours
    visible: Neighbours
    beside: Neighbours | None
    before: Neighbours | None
    kinds: tuple[np.ndarray, np.ndarray]
    coupling: float
    start: tuple[np.ndarray, np.ndarray]  # Threshold and likelier spin of visible sites under the base.
    slope_v: np.ndarray
    slope_h: np.ndarray
    rises: np.ndarray | None  # The slopes of the visible side, or None if all are zero.
    differences: Array  # β_k − β_{k−1}.
    seed: np.uint64
    sides: tuple[int, int]


def serves(plan: Plan) -> bool:
    """Whether the kernel supports the plan of a lattice; it was faster than multiply-adds on all that were tried."""
    return HAS_AVX512 and plan.placement.precision == "single" and plan.placement.draws == "words"


def prepare(plan: Plan) -> Prepared:
    """Convert a plan to the arguments of the kernel."""
    lattice = lay_out(plan)
    path = plan.path.spins
    slope_v, slope_h, base_v = (np.pad(x, (0, -len(x) % TILE)) for x in (path.slope_v, path.slope_h, path.base_v))
    arguments = LatticeArguments(
        lattice.hidden,
        lattice.visible,
        lattice.beside,
        lattice.before,
        lattice.kinds,
        lattice.coupling,
        draw_tables(base_v),
        slope_v,
        slope_h,
        slope_v if slope_v.any() else None,
        np.diff(plan.betas),
        np.uint64(plan.chains.seed),
        (HIDDEN, VISIBLE) if plan.path.is_turned else (VISIBLE, HIDDEN),
    )
    return Prepared(
        arguments,
        len(path.base_v),
        np.uint8,
        path.constants(plan.betas),
        path.offset,
        path.scale,
        20 * (len(slope_v) + len(slope_h)),
        chains_together(len(slope_v) + len(slope_h), 1),
        table_maker=TableMaker(lattice, plan.betas),
    )


class Population(population.Population):
    """Blocks of LANES chains on a lattice, whose spins are stored as bytes."""

    def _run_kernel(self, to_step: int) -> None:
        while True:
            tables = self.prepared.table_maker.of_chunk(self.step // CHUNK)
            stop = min(to_step, tables.first + CHUNK)
            self._call_kernel(tables, stop)
            self.step, self.fresh = stop, 0
            if stop == to_step:
                return

    def _call_kernel(self, tables: Any, stop: int) -> None:
        """Take the steps up to `stop` with the tables of these steps."""
        spins = self.spins_v, self.spins_h
        anneal_lattice(*self.prepared.arguments, *tables, self.first, *spins, self.weights, self.step, stop, self.fresh)

    def _spins(self) -> Array:
        return super()._spins().view(np.int8)

    def _put(self, spins: Array) -> None:
        super()._put(spins.astype(np.int8).view(np.uint8))
