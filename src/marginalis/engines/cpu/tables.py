"""Spins with dense couplings on a bipartite graph: plans laid out for `tables_kernel`, and its populations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checks import Array
from ...simd.draws import TILE
from ...simd.lookup import SPINS
from ...simd.vector import LANES, aligned
from ..plan import Plan
from ..reference.loop import Distributions, never_one
from .population import Population, Prepared
from .tables_kernel import PANEL, SLICE, TABLE, anneal_tables

_TABLE_BYTES = 1 << 20  # all tables of a model are kept if they fit into this
_FEW = 8  # blocks of chains that are carried side by side then


def keeps_tables(prepared: Prepared) -> bool:
    """Whether all tables of a model are made once and kept."""
    return bool(4 * _numbers(prepared) <= _TABLE_BYTES)


def _numbers(prepared: Prepared) -> int:
    return sum(int(begin[-1]) for _, _, begin, _ in prepared.looked_up) * TABLE


def room_for_tables(prepared: Prepared, blocks: int, tiles: int) -> tuple[np.ndarray, int]:
    """Return room for all tables, or for a slice of those of some tiles; and how many blocks to carry side by side."""
    whole = keeps_tables(prepared)
    tables = aligned((_numbers(prepared) if whole else tiles * SLICE * TABLE,), np.uint32)
    return tables, max(1, min(blocks, _FEW) if whole else blocks)


class TablePopulation(Population):
    """Blocks of LANES chains, their spins kept as bits, and the components of a mixture that they are in."""

    component: np.ndarray | None = None
    logits: np.ndarray | None = None  # room for the exponents of all components

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        super().__init__(plan, prepared, chains)
        if self.component is not None and plan.chains.start is not None and len(chains):
            path = Distributions(plan, chains)
            path.start_from(never_one(plan.chains.start[chains.start : chains.stop]))
            assert path.z is not None
            self.component.ravel()[: len(chains)] = path.z[: len(chains)]

    def _allocate(self, blocks: int, joint: bool) -> None:
        model: Any = self.prepared.model
        self.spins_v, self.spins_h = (
            aligned((blocks, len(x) // SPINS, LANES), np.uint32) for x in (model.slope_v, model.slope_h)
        )
        self.tables, together = room_for_tables(self.prepared, blocks, PANEL)
        self.sums = aligned((together, PANEL * TILE, LANES), np.uint32)
        if model.mixture is not None:
            self.component = aligned((blocks, LANES), np.uint32)
            self.logits = aligned((together, len(model.mixture.own), LANES), np.float32)
        self.weights = aligned((blocks, LANES), np.float64)
        self.joint = aligned((blocks, LANES), np.float64) if joint else None

    def advance(self, to_step: int) -> None:
        """Take steps until `to_step` of them have been taken in all."""
        anneal_tables(
            self.prepared.model,
            self.first,
            self.spins_v,
            self.spins_h,
            self.component,
            self.logits,
            self.sums,
            self.tables,
            self.weights,
            self.joint,
            self.step,
            to_step,
            self.fresh,
        )
        self.step, self.fresh = to_step, 0

    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Go on from the states of these chains, one for each; log-weights stay where they are."""
        super().choose(ancestors)
        if self.component is not None:
            components = self.component.ravel()
            components[: len(ancestors)] = components[ancestors]

    def _spins(self) -> Array:
        blocks, fours, _ = self.spins_v.shape
        bits = self.spins_v[:, :, None] >> np.arange(SPINS - 1, -1, -1, dtype=np.uint32)[:, None] & 1
        return 1.0 - 2.0 * bits.transpose(0, 3, 1, 2).reshape(blocks * LANES, fours * SPINS).astype(np.float64)

    def _put(self, spins: Array) -> None:
        blocks, fours, _ = self.spins_v.shape
        down = (spins < 0).reshape(blocks, LANES, fours, SPINS)
        self.spins_v[:] = (down @ (1 << np.arange(SPINS - 1, -1, -1))).transpose(0, 2, 1)
