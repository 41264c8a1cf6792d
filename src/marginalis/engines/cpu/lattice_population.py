"""Lattices: plans laid out for `lattice_kernel`, and its populations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...checks import Array
from ...random import HIDDEN, VISIBLE
from ...simd.draws import TILE
from ...simd.functions import HAS_AVX512
from ..placement import is_lattice
from ..plan import Plan
from .lattice import CHUNK, Neighbours, TableMaker, draw_tables, lay_out
from .lattice_kernel import anneal_lattice
from .population import Population, Prepared


class Model(NamedTuple):
    """A plan in the kernel's terms; what is None is left out when the kernel is compiled."""

    hidden: Neighbours
    visible: Neighbours
    beside: Neighbours | None
    before: Neighbours | None
    kinds: tuple[np.ndarray, np.ndarray]
    coupling: float
    start: tuple[np.ndarray, np.ndarray]  # threshold and likelier spin of each visible site under the base
    slope_v: np.ndarray
    slope_h: np.ndarray
    rises: np.ndarray | None  # the slopes of the visible side, where there are any
    differences: Array  # β_k − β_{k−1}
    seed: np.uint64
    sides: tuple[int, int]
    flips: None = None


def serves_words(plan: Plan) -> bool:
    """Whether `lattice_kernel` takes the plan: it was faster than multiply-adds for all lattices that were tried."""
    possible = HAS_AVX512 and plan.placement.precision == "single" and plan.placement.draws == "words"
    return possible and is_lattice(plan, any_graph=True)


def prepare_lattice(plan: Plan) -> Prepared:
    """Lay out a plan for the kernel."""
    lattice = lay_out(plan)
    path = plan.path.spins
    slope_v, slope_h, base_v = (np.pad(x, (0, -len(x) % TILE)) for x in (path.slope_v, path.slope_h, path.base_v))
    laid_out = Model(
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
        laid_out,
        len(path.base_v),
        np.uint8,
        path.constants(plan.betas),
        path.offset,
        path.scale,
        operations=20 * (len(slope_v) + len(slope_h)),
        maker=TableMaker(lattice, plan.betas),
    )


class LatticePopulation(Population):
    """Blocks of LANES chains on a lattice, their spins bytes."""

    def advance(self, to_step: int) -> None:
        """Take steps until `to_step` of them have been taken in all."""
        while True:
            tables = self.prepared.maker.of_chunk(self.step // CHUNK)
            stop = min(to_step, tables.first + CHUNK)
            self._carry(tables, stop)
            self.step, self.fresh = stop, 0
            if stop == to_step:
                return

    def _carry(self, tables: Any, stop: int) -> None:
        """Take the steps up to `stop`, which these tables are for."""
        spins = self.spins_v, self.spins_h
        anneal_lattice(self.prepared.model, tables, self.first, *spins, self.weights, self.step, stop, self.fresh)

    def _spins(self) -> Array:
        return super()._spins().view(np.int8)

    def _put(self, spins: Array) -> None:
        super()._put(spins.astype(np.int8).view(np.uint8))
