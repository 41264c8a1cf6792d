"""Lattices whose chains are stored as bits: arguments and populations of `planes_kernel`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...checks import Array
from ...random import HIDDEN, PLANES, VISIBLE
from ...simd.vector import LANES, aligned
from ..lattice_tables import gains, in_products, thresholds
from ..plan import Plan
from . import lattice
from .lattice import CHUNK
from .planes_kernel import DIGITS, TOGETHER, anneal_planes
from .population import Prepared, chains_together

GROUP = TOGETHER * LANES  # Number of chains in a vector.
ONES = np.uint32(0xFFFFFFFF)  # A word with all bits set.


class Kinds(NamedTuple):
    """Kinds of sites, which differ in their number of neighbours or in their fields."""

    counters: np.ndarray  # Number of counters of each kind: one fewer than its classes.
    classes: np.ndarray  # Coefficients of the two digits of the class, without fields.


class Sites(NamedTuple):
    """Sites of one side, sorted by kind, and their neighbours, padded to an even number per site."""

    kinds: np.ndarray  # The kinds that occur.
    begin: np.ndarray  # Where the sites of each kind begin.
    units: np.ndarray
    widths: np.ndarray  # Number of neighbours of a site of each kind.
    first: np.ndarray  # Where the places of their neighbours begin.
    places: np.ndarray
    signs: np.ndarray | None  # Bits to invert if the coupling is −J.


class PlaneArguments(NamedTuple):
    """A plan as arguments of the kernel; the code for fields that are None is left out when it is compiled."""

    hidden: Sites
    visible: Sites
    kinds: Kinds
    wide: int | None  # 1 if a class has three digits, None if two.
    start: tuple[np.ndarray, np.ndarray]  # Thresholds and favoured spins under the base.
    rises: np.ndarray  # Slopes of the fields of each kind.
    rising: bool  # Whether any slope is not zero.
    differences: Array  # β_k − β_{k−1}.
    seed: np.uint64
    sides: tuple[int, int]
    units: tuple[int, int]  # Units of the sampled side, and of the summed-out one.


class Tables(NamedTuple):
    """Tables [step][kind of site][coefficient] for the steps after `first`."""

    first: int
    thresholds: np.ndarray
    favoured: np.ndarray
    worth: Array  # Contributions to the log-weight.


class TableMaker:
    """Makes the tables of a path, CHUNK steps at a time; all threads share the most recent ones.

    `kinds` are the number of neighbours, the slope of the field and its start. A site is in class q if q neighbours
    are up, or, without fields, if q neighbours are either up or down.
    """

    def __init__(self, coupling: float, kinds: Array, betas: Array) -> None:
        self.coupling, self.betas = coupling, betas
        self.degrees, self.slopes, self.bases = kinds[:, :, None]
        self.of_chunk = lru_cache(maxsize=8)(self._make)

    def _make(self, chunk: int) -> Tables:
        first = chunk * CHUNK
        slopes = self.coupling * (2 * np.arange(DIGITS) - self.degrees) + self.slopes
        fields = self.bases + self.betas[first : first + CHUNK + 1, None, None] * slopes
        return Tables(first, *draw_tables(fields[1:]), in_products(gains(fields), np.subtract).ravel())


def draw_tables(fields: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of thresholds and of favoured spins for fields [step, kind, neighbours up]."""
    favoured = np.where(np.copysign(1.0, fields) > 0, ONES, np.uint32(0))
    words, spins = (in_products(x, np.bitwise_xor).ravel() for x in (thresholds(fields), favoured))
    return words, spins


def serves(plan: Plan) -> bool:
    """Whether a plan draws by planes, which `unserved` has checked before."""
    return plan.placement.draws == "planes"


def prepare(plan: Plan) -> Prepared:
    """Convert a plan to the arguments of the kernel."""
    path = plan.path.spins
    weights = sp.csr_array(path.weights, copy=True)
    weights.eliminate_zeros()
    into = weights, sp.csr_array(weights.T)
    degrees = np.concatenate([np.diff(w.indptr) for w in into])
    slopes, bases = np.concatenate([path.slope_v, path.slope_h]), np.concatenate([path.base_v, path.base_h])
    fields = np.unique(slopes + 1j * bases, return_inverse=True)[1]
    _, one, of_sites = np.unique(degrees + (degrees.max() + 1) * fields, return_index=True, return_inverse=True)
    kinds = np.array([degrees[one], slopes[one], bases[one]])
    wide = bool(kinds[1:].any())
    visible, hidden = (
        _sites(w, own, bool((weights.data < 0).any()))
        for w, own in zip(into, np.split(of_sites, [weights.shape[0]]), strict=True)
    )
    degrees = degrees[one].astype(np.int64)
    up = np.arange(DIGITS)
    classes = np.maximum(np.minimum(up, degrees[:, None] - up), 0).astype(np.uint32)
    digits = np.stack([classes & 1, classes >> 1], axis=1) * ONES
    sides_v, sides_h = VISIBLE | PLANES, HIDDEN | PLANES
    arguments = PlaneArguments(
        hidden,
        visible,
        Kinds(degrees if wide else degrees // 2, in_products(digits, np.bitwise_xor).ravel()),
        1 if wide else None,
        draw_tables(np.repeat(kinds[2][None, :, None], DIGITS, axis=2)),
        kinds[1].copy(),
        bool(path.slope_v.any()),
        np.diff(plan.betas),
        np.uint64(plan.chains.seed),
        (sides_h, sides_v) if plan.path.is_turned else (sides_v, sides_h),
        weights.shape,
    )
    return Prepared(
        arguments,
        weights.shape[0],
        np.uint32,
        path.constants(plan.betas),
        path.offset,
        path.scale,
        200 * sum(weights.shape),  # A rough cost; one vector operation serves LANES words.
        TOGETHER * chains_together(sum(weights.shape), 4),
        GROUP,
        aligned=GROUP,
        table_maker=TableMaker(float(abs(weights.data[0])), kinds, plan.betas),
    )


def _sites(into: Any, kinds: np.ndarray, signed: bool) -> Sites:
    units = np.argsort(kinds, kind="stable")
    found, begin, sizes = np.unique(kinds[units], return_index=True, return_counts=True)
    degrees = np.diff(into.indptr)
    widths = degrees[units[begin]] + degrees[units[begin]] % 2
    first = np.concatenate([[0], np.cumsum(widths * sizes)])
    start = np.empty(len(units), dtype=np.int64)  # Where the neighbours of each unit begin.
    start[units] = np.repeat(first[:-1] - begin * widths, sizes) + np.arange(len(units)) * np.repeat(widths, sizes)
    at = np.repeat(start - into.indptr[:-1], degrees) + np.arange(into.nnz)
    places = np.full(first[-1], into.shape[1], dtype=np.int64)  # Padding refers to a site that is always down.
    signs = np.zeros(first[-1], dtype=np.uint32)
    places[at] = into.indices
    signs[at[into.data < 0]] = ONES
    begin = np.append(begin, len(units))
    found, widths = found.astype(np.int64), widths.astype(np.int64)
    return Sites(found, begin, units, widths, first.astype(np.int64), places * LANES, signs if signed else None)


class Population(lattice.Population):
    """Chains stored as bits, 32 to a word and 512 to a vector; a chain's bit is its number modulo 32."""

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        self.lead = (plan.chains.first + chains.start) % TOGETHER  # Chains of the first word that precede the range.
        super().__init__(plan, prepared, chains)

    def _allocate(self, blocks: int, joint: bool) -> None:
        units = self.prepared.arguments.units
        groups = -(-(self.lead + len(self.chains)) // GROUP) if len(self.chains) else 0
        self.spins_v, self.spins_h = (aligned((groups, n + 1, LANES), np.uint32) for n in units)
        self.weights, self.joint = aligned((groups, TOGETHER, LANES), np.float64), None
        self.alive = aligned((groups, LANES), np.uint32)
        self.alive[:] = self._words(np.ones((len(self.chains), 1), dtype=bool))[:, 0]
        digits = max(units).bit_length()
        self.scratch = (
            aligned(((DIGITS - 1) * 2 * digits * LANES,), np.uint32),
            aligned((TOGETHER * DIGITS,), np.uint32),
            np.zeros(2),
        )

    def _call_kernel(self, tables: Any, stop: int) -> None:
        anneal_planes(
            *self.prepared.arguments,
            *tables,
            self.first // np.uint64(TOGETHER),
            self.alive,
            self.spins_v,
            self.spins_h,
            self.scratch,
            self.weights,
            self.step,
            stop,
            self.fresh,
        )

    def _weights(self, of: np.ndarray) -> Array:
        own = of.transpose(0, 2, 1).ravel()[self.lead : self.lead + len(self.chains)]
        return own + self.prepared.constants[self.step]

    def _spins(self) -> Array:
        words = np.ascontiguousarray(self.spins_v[:, :-1].transpose(0, 2, 1)).view(np.uint8)
        words = words.reshape(len(words), LANES, -1, TOGETHER // 8)
        bits = np.unpackbits(words, axis=3, bitorder="little").transpose(0, 1, 3, 2)
        return 2.0 * bits.reshape(-1, bits.shape[3])[self.lead :].astype(np.float64) - 1.0

    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Continue chain i from the state of chain ``ancestors[i]``; the log-weights do not move."""
        self._set_states(self.states()[ancestors])

    def _set_states(self, states: Array) -> None:
        self.spins_v[:, :-1] = self._words((states - self.prepared.offset) / self.prepared.scale > 0)
        self.fresh = 2

    def _words(self, rows: np.ndarray) -> np.ndarray:
        """Return bits of the chains, one row for each, as words [group, unit, lane]."""
        padded = np.zeros((len(self.alive) * GROUP, rows.shape[1]), dtype=bool)
        padded[self.lead : self.lead + len(rows)] = rows
        packed = np.packbits(padded.reshape(-1, LANES, TOGETHER, rows.shape[1]), axis=2, bitorder="little")
        return np.ascontiguousarray(packed.transpose(0, 3, 1, 2)).view(np.uint32)[..., 0]
