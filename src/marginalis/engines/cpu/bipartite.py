"""Spins on a bipartite graph, from a base of independent units: arguments and populations of `bipartite_kernel`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...checks import Array
from ..plan import Plan
from . import population
from .bipartite_kernel import anneal_blocks
from .packing import pack, pack_flips
from .population import Prepared, common_arguments, is_bipartite, prepared


class BipartiteArguments(NamedTuple):
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


def serves(plan: Plan) -> bool:
    """Whether the kernel supports a plan: spins on a bipartite graph, from independent units, without a mixture."""
    return is_bipartite(plan) and plan.path.mixture is None


def prepare(plan: Plan) -> Prepared:
    """Convert a plan to the arguments of the kernel."""
    path = plan.path.spins
    dtype = np.float32 if plan.placement.precision == "single" else np.float64
    up, down = pack(path.weights, dtype), pack(path.weights.T, dtype)
    flips = pack_flips(path.weights, up, dtype) if plan.move.kind == "metropolis" else None
    model = BipartiteArguments._make((*common_arguments(plan, path, dtype, up, down), flips, plan.move.sweeps))
    return prepared(plan, path, model, 2 + 20 * plan.move.sweeps, np.dtype(dtype).itemsize)


class Population(population.Population):
    """Blocks of LANES chains, whose spins are stored as floating-point numbers."""

    def _allocate(self, blocks: int, joint: bool) -> None:
        if self.prepared.arguments.flips is not None:
            blocks += blocks % 2  # Metropolis sweeps process blocks in pairs.
        super()._allocate(blocks, joint)

    def _run_kernel(self, to_step: int) -> None:
        anneal_blocks(
            *self.prepared.arguments,
            self.first,
            self.spins_v,
            self.spins_h,
            self.weights,
            self.joint,
            self.step,
            to_step,
            self.fresh,
        )
