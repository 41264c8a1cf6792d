"""Spins on a bipartite graph, from a base of independent units: arguments and populations of `bipartite_kernel`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...checks import Array
from ...paths.spins import SignedPath
from ...random import HIDDEN, VISIBLE
from ...simd.draws import TILE
from ..plan import Plan
from . import population
from .bipartite_kernel import anneal_blocks
from .packing import pack, pack_flips
from .population import Prepared, chains_together


class Model(NamedTuple):
    """A plan as arguments of the kernel, in this order; all units are spins.

    The code for fields that are None is left out when the kernel is compiled.
    """

    up: tuple[np.ndarray, ...]  # Weights into the summed-out side.
    down: tuple[np.ndarray, ...]  # Weights into the sampled side.
    slope_v: np.ndarray
    slope_h: np.ndarray
    base_v: np.ndarray | None
    base_h: np.ndarray | None
    betas: np.ndarray
    differences: Array  # β_k − β_{k−1}.
    seed: np.uint64
    sides: tuple[int, int]
    flips: tuple[np.ndarray, ...] | None  # Weights in the order of the Metropolis sweeps.
    sweeps: int


def is_bipartite(plan: Plan) -> bool:
    """Whether a plan concerns spins on a bipartite graph, from a base without couplings."""
    model, base = plan.path.end, plan.path.start
    return model.spin_form is not None and model.is_bipartite and not base.is_coupled


def serves(plan: Plan) -> bool:
    """Whether the kernel supports a plan: spins on a bipartite graph, from independent units, without a mixture."""
    return is_bipartite(plan) and plan.path.mixture is None


def prepare(plan: Plan) -> Prepared:
    """Convert a plan to the arguments of the kernel."""
    path = plan.path.spins
    dtype = np.float32 if plan.placement.precision == "single" else np.float64
    up, down = pack(path.weights, dtype), pack(path.weights.T, dtype)
    flips = pack_flips(path.weights, up, dtype) if plan.move.kind == "metropolis" else None
    model = Model._make((*laid_out(plan, path, dtype, up, down), flips, plan.move.sweeps))
    return prepared(plan, path, model, 2 + 20 * plan.move.sweeps, np.dtype(dtype).itemsize)


def laid_out(plan: Plan, path: SignedPath, dtype: type, up: Any, down: Any) -> tuple[Any, ...]:
    """Return the first ten fields of a `Model`, given its couplings; `tables.Model` has the same."""

    def pad(x: Array) -> np.ndarray:
        return np.pad(x, (0, -len(x) % TILE)).astype(dtype)

    base, swap = plan.path.start, plan.path.is_turned
    uniform = base.is_uniform
    return (
        up,
        down,
        pad(path.slope_v),
        pad(path.slope_h),
        None if uniform else pad(path.base_v),
        None if uniform else pad(path.base_h),
        plan.betas.astype(dtype),
        np.diff(plan.betas),
        np.uint64(plan.chains.seed),
        (HIDDEN, VISIBLE) if swap else (VISIBLE, HIDDEN),
    )


def prepared(plan: Plan, path: SignedPath, model: Any, per_entry: int, bytes_per_unit: float) -> Prepared:
    """Return the common data of the populations of a plan, at `per_entry` multiply-adds per coupling."""
    entries = path.weights.nnz if sp.issparse(path.weights) else path.weights.size
    variables = plan.path.end.n_variables
    return Prepared(
        model,
        len(path.base_v),
        model.slope_v.dtype.type,
        path.constants(plan.betas),
        path.offset,
        path.scale,
        per_entry * entries + 40 * variables,
        chains_together(len(model.slope_v) + len(model.slope_h), bytes_per_unit),
    )


class Population(population.Population):
    """Blocks of LANES chains, whose spins are stored as floating-point numbers."""

    def _allocate(self, blocks: int, joint: bool) -> None:
        if self.prepared.model.flips is not None:
            blocks += blocks % 2  # Metropolis sweeps process blocks in pairs.
        super()._allocate(blocks, joint)

    def _carry(self, to_step: int) -> None:
        anneal_blocks(
            *self.prepared.model,
            self.first,
            self.spins_v,
            self.spins_h,
            self.weights,
            self.joint,
            self.step,
            to_step,
            self.fresh,
        )
