"""The common base of the families of kernels: prepared plans, and blocks of chains side by side in vector registers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...checks import Array
from ...paths.path import SpinPath
from ...random import HIDDEN, VISIBLE
from ...simd.draws import TILE
from ...simd.vector import LANES, aligned
from ..plan import Plan
from ..reference.loop import Distributions, never_one

CALL_OPERATIONS = 5e8  # Multiply-adds per kernel call: tens of milliseconds, so that interrupts are handled promptly.
JOB_BYTES = 1 << 20  # Bytes of the states of chains that are advanced together.


class Prepared(NamedTuple):
    """The common data of all populations of one plan."""

    arguments: Any  # The arguments of the kernel, which differ between families.
    n_visible: int
    dtype: type
    constants: Array  # Contribution of the conversion to spins to every log-weight, up to each step.
    offset: float  # A visible unit is offset + scale·(±1).
    scale: float
    operations: int  # Rough cost of one chain·step, in multiply-adds.
    together: int  # Largest number of chains to advance together.
    at_least: int = LANES  # Smallest number, if every thread can have as many.
    aligned: int = 0  # If not 0, jobs begin at chains whose numbers are multiples of this.
    looked_up: tuple[tuple[np.ndarray, ...], ...] = ()  # Couplings from which tables are made, if any.
    table_maker: Any = None  # Makes the tables of a lattice, for some steps at a time.


class Population(ABC):
    """Blocks of LANES chains, all at the same step. AIS also computes the weights of mAIS for the same states."""

    joint: np.ndarray | None
    weights: np.ndarray
    spins_v: np.ndarray
    full_state: np.ndarray | None = None  # The state of a chain, if it is more than the sampled units.

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        self.prepared, self.chains, self.step = prepared, chains, 0
        self._allocate(-(-len(chains) // LANES), plan.method == "ais")
        self.first = np.uint64(plan.chains.first + chains.start)
        self.fresh = 1  # 1: the states are still to be drawn from the base.
        if plan.chains.start is not None:
            self._set_states(plan.chains.start[chains.start : chains.stop])
        self.stride = max(1, int(CALL_OPERATIONS / (prepared.operations * LANES * max(1, len(self.weights)))))

    def _allocate(self, blocks: int, joint: bool) -> None:
        model = self.prepared.arguments
        self.spins_v, self.spins_h = (
            aligned((blocks, len(x), LANES), self.prepared.dtype) for x in (model.slope_v, model.slope_h)
        )
        self.weights = aligned((blocks, LANES), np.float64)
        self.joint = aligned((blocks, LANES), np.float64) if joint else None

    @abstractmethod
    def _run_kernel(self, to_step: int) -> None:
        """Call the kernel for the steps up to `to_step`."""

    def advance(self, to_step: int) -> None:
        """Take steps until `to_step` steps have been taken in total."""
        self._run_kernel(to_step)
        self.step, self.fresh = to_step, 0

    @property
    def log_weights(self) -> Array:
        """Return ln W of the plan's own method."""
        return self._weights(self.weights if self.joint is None else self.joint)

    @property
    def marginal_log_weights(self) -> Array:
        """Return ln Λ, also if the plan is AIS."""
        return self._weights(self.weights)

    def _weights(self, of: np.ndarray) -> Array:
        return of.ravel()[: len(self.chains)] + self.prepared.constants[self.step]

    def states(self) -> Array:
        """Return the states of the sampled side, [chain, unit], in the model's units."""
        rows = self._spins()[: len(self.chains), : self.prepared.n_visible]
        return self.prepared.offset + self.prepared.scale * rows.astype(np.float64)

    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Continue chain i from the state of chain ``ancestors[i]``; the log-weights do not move."""
        moved = np.flatnonzero(ancestors != np.arange(len(ancestors)))
        (block, lane), (from_block, from_lane) = (np.divmod(x, LANES) for x in (moved, ancestors[moved]))
        states = self.spins_v if self.full_state is None else self.full_state
        states[block, :, lane] = states[from_block, :, from_lane]
        self.fresh = 2

    def _set_states(self, states: Array) -> None:
        padded = np.ones((len(self.spins_v) * LANES, len(self.prepared.arguments.slope_v)))
        padded[: len(states), : self.prepared.n_visible] = (states - self.prepared.offset) / self.prepared.scale
        self._put(padded)
        self.fresh = 2

    def _start_from_mixture(self, plan: Plan, chains: range, places: np.ndarray) -> None:
        """Set the states of chains at the start of a path from a mixture, and store their components in `places`."""
        states, components = start_of_mixture(plan, chains)
        assert components is not None
        self._set_states(states)
        padded = np.zeros(places.size)
        padded[: len(chains)] = components
        places[:] = padded.reshape(places.shape)

    def _spins(self) -> Array:
        """Return the states of the sampled side as the kernel stores them, [chain, unit], padded."""
        return self.spins_v.transpose(0, 2, 1).reshape(-1, self.spins_v.shape[1])

    def _put(self, spins: Array) -> None:
        self.spins_v[:] = spins.reshape(-1, LANES, spins.shape[1]).transpose(0, 2, 1)


def start_of_mixture(plan: Plan, chains: range) -> tuple[Array, NDArray[np.int64] | None]:
    """Return the states of chains at the start of a path from a mixture, and their components if these are drawn."""
    path = Distributions(plan, chains)
    given = None if plan.chains.start is None else never_one(plan.chains.start[chains.start : chains.stop])
    states = path.start() if given is None else path.start_from(given)
    return states[: len(chains)], None if path.z is None else path.z[: len(chains)]


def chains_together(units: int, bytes_per_unit: float) -> int:
    """Return the largest number of chains to advance together, given the bytes per unit."""
    return LANES * max(1, int(JOB_BYTES // (units * LANES * bytes_per_unit)))


def is_bipartite(plan: Plan) -> bool:
    """Whether a plan concerns spins on a bipartite graph, from a base without couplings."""
    model, base = plan.path.end, plan.path.start
    return model.spin_form is not None and model.is_bipartite and not base.is_coupled


def common_arguments(plan: Plan, path: SpinPath, dtype: type, up: Any, down: Any) -> tuple[Any, ...]:
    """Return the first ten arguments of `bipartite_kernel` and of `tables_kernel`, given the packed couplings."""

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


def prepared(plan: Plan, path: SpinPath, model: Any, per_entry: int, bytes_per_unit: float) -> Prepared:
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
