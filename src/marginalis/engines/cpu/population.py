"""Spins on a bipartite graph: plans laid out for `bipartite_kernel`, and the populations that it advances."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...checks import Array
from ...paths.spins import SignedPath
from ...random import HIDDEN, VISIBLE
from ...simd.draws import TILE
from ...simd.functions import HAS_AVX512
from ...simd.lookup import SPINS
from ...simd.vector import LANES, aligned
from ..plan import Plan
from .bipartite_kernel import anneal_blocks
from .packing import is_band, pack, pack_flips, pack_tables

_CALL_OPERATIONS = 5e8  # multiply-adds per kernel call: some ten milliseconds, so that an interrupt is prompt
JOB_BYTES = 1 << 20  # states of the chains that are advanced together


class Model(NamedTuple):
    """A plan in the kernel's terms, spins throughout; what is None is left out when the kernel is compiled."""

    flips: tuple[np.ndarray, ...] | None  # weights as the Metropolis sweeps read them
    sweeps: int
    up: tuple[np.ndarray, ...]  # weights into the summed-out side
    down: tuple[np.ndarray, ...]  # weights into the sampled side
    slope_v: np.ndarray
    slope_h: np.ndarray
    base_v: np.ndarray | None
    base_h: np.ndarray | None
    betas: np.ndarray
    differences: Array  # β_k − β_{k−1}
    seed: np.uint64
    sides: tuple[int, int]
    mixture: Any  # a Components, or None


class Components(NamedTuple):
    """A mixture whose component is drawn, as `tables_kernel` reads it."""

    own: np.ndarray  # what the exponents start from, and the logarithms of the shares in P_0
    shares: np.ndarray
    up: tuple[np.ndarray, ...]  # into the exponents, from the sampled side and from the other
    down: tuple[np.ndarray, ...]
    pulls_v: np.ndarray  # fields of each unit in all components, which fill so many registers
    pulls_h: np.ndarray
    registers: int
    last: bool  # whether the component is drawn after the sampled units in a sweep


class Prepared(NamedTuple):
    """What the populations of one plan share."""

    model: Any  # a Model, or what another kernel has in its place
    n_visible: int
    dtype: type
    constants: Array  # what the change to spins adds to every log-weight up to each step
    offset: float  # a visible unit is offset + scale·(±1)
    scale: float
    operations: int  # rough cost of one chain·step, in multiply-adds
    looked_up: tuple[tuple[np.ndarray, ...], ...] = ()  # the couplings that tables are made of, if any
    maker: Any = None  # `lattice.TableMaker`, for `lattice_kernel`


def prepare(plan: Plan) -> Prepared:
    """Lay out a plan for the kernel."""
    model, base, swap = plan.path.end, plan.path.start, plan.path.is_turned
    path = plan.path.spins
    dtype = np.float32 if plan.placement.precision == "single" else np.float64

    def pad(x: Array) -> np.ndarray:
        return np.pad(x, (0, -len(x) % TILE)).astype(dtype)

    uniform = base.is_uniform
    slope_v, slope_h = pad(path.slope_v), pad(path.slope_h)
    looked_up = _is_looked_up(plan, path.weights)
    if looked_up:
        up, down = pack_tables(_with_slopes(path.weights, slope_v, len(slope_h))), pack_tables(path.weights.T)
    else:
        up, down = pack(path.weights, dtype), pack(path.weights.T, dtype)
    laid_out = Model(
        pack_flips(path.weights, up, dtype) if plan.move.kind == "metropolis" else None,
        plan.move.sweeps,
        up,
        down,
        slope_v,
        slope_h,
        None if uniform else pad(path.base_v),
        None if uniform else pad(path.base_h),
        plan.betas.astype(dtype),
        np.diff(plan.betas),
        np.uint64(plan.chains.seed),
        (HIDDEN, VISIBLE) if swap else (VISIBLE, HIDDEN),
        _components(plan, path, len(slope_v), len(slope_h)),
    )
    entries = path.weights.nnz if sp.issparse(path.weights) else path.weights.size
    operations = (1 if looked_up else 2 + 20 * plan.move.sweeps) * entries + 40 * model.n_variables
    more: tuple[Any, ...] = ()
    if laid_out.mixture is not None:
        more = laid_out.mixture.up, laid_out.mixture.down
        operations += len(laid_out.mixture.own) * (model.n_variables + 40)
    constants = path.constants(plan.betas)
    return Prepared(
        laid_out,
        model.n_visible,
        dtype,
        constants,
        path.offset,
        path.scale,
        operations,
        (up, down, *more) if looked_up else (),
    )


def serves(plan: Plan) -> bool:
    """Whether a plan is for these kernels: spins on a bipartite graph, from independent units or a mixture of such."""
    model, base = plan.path.end, plan.path.start
    if model.spin_form is None or not model.is_bipartite or base.is_coupled:
        return False
    return plan.path.mixture is None or (plan.path.mixture.is_drawn and _is_looked_up(plan, model.weights))


def _components(plan: Plan, path: SignedPath, rows: int, columns: int) -> Components | None:
    """Lay out the mixture of a plan, for sides padded to so many units."""
    fields, hidden, own = path.component_fields, path.component_hidden, path.component_weights
    if plan.path.mixture is None or fields is None or hidden is None or own is None:
        return None
    natural, registers = plan.path.end.natural, -(-len(own) // LANES)
    shares = plan.path.mixture.log_shares(natural.visible_units, natural.hidden_units)

    def pulls(of: Array, units: int) -> np.ndarray:
        table = aligned((units, registers * LANES), np.float32)
        table[: of.shape[1], : len(own)] = of.T
        return table.ravel()

    return Components(
        own.astype(np.float32),
        (shares - shares.max()).astype(np.float32),
        pack_tables(_padded(fields, rows).T),
        pack_tables(_padded(hidden, columns).T),
        pulls(fields, rows),
        pulls(hidden, columns),
        registers,
        plan.path.mixture.drawn_last,
    )


def _padded(fields: Array, units: int) -> Array:
    return np.pad(fields, ((0, 0), (0, units - fields.shape[1])))


def _is_looked_up(plan: Plan, weights: Any) -> bool:
    """Whether `tables_kernel` takes the plan: it was faster than multiply-adds for all dense couplings, if slightly so
    below 8×8. Never a matter of the number of chains: rounding would depend on it.
    """
    possible = HAS_AVX512 and plan.placement.precision == "single" and plan.move.kind == "gibbs"
    return possible and is_band(weights) and is_band(weights.T)


def _with_slopes(weights: Any, slope_v: Array, columns: int) -> Any:
    """Weights with one more column, after the padding: the slopes of the sampled side, as of one more unit."""
    n, m = weights.shape
    more = np.zeros((n, columns - m + 1))
    more[:, -1] = slope_v[:n]
    return sp.csr_array(sp.hstack([weights, more])) if sp.issparse(weights) else np.hstack([weights, more])


class Population:
    """Blocks of LANES chains, all at the same step. AIS carries the weights of mAIS along, on the same path."""

    joint: np.ndarray | None
    weights: np.ndarray
    spins_v: np.ndarray
    carried: np.ndarray | None = None  # what goes with a chain, if it is more than the sampled units

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        self.prepared, self.chains, self.step = prepared, chains, 0
        self._allocate(-(-len(chains) // LANES), plan.method == "ais")
        self.first = np.uint64(plan.chains.first + chains.start)
        self.fresh = 1  # the states are still to be drawn from the base
        if plan.chains.start is not None:
            self._set_states(plan.chains.start[chains.start : chains.stop])
        self.stride = max(1, int(_CALL_OPERATIONS / (prepared.operations * LANES * max(1, len(self.weights)))))

    def _allocate(self, blocks: int, joint: bool) -> None:
        model = self.prepared.model
        if model.flips is not None:
            blocks += blocks % 2  # Metropolis sweeps take blocks in pairs
        self.spins_v, self.spins_h = (
            aligned((blocks, len(x), LANES), self.prepared.dtype) for x in (model.slope_v, model.slope_h)
        )
        self.weights = aligned((blocks, LANES), np.float64)
        self.joint = aligned((blocks, LANES), np.float64) if joint else None

    def advance(self, to_step: int) -> None:
        """Take steps until `to_step` of them have been taken in all."""
        anneal_blocks(
            self.prepared.model,
            self.first,
            self.spins_v,
            self.spins_h,
            self.weights,
            self.joint,
            self.step,
            to_step,
            self.fresh,
        )
        self.step, self.fresh = to_step, 0

    @property
    def log_weights(self) -> Array:
        """Return ln W of the plan's own method."""
        return self._weights(self.weights if self.joint is None else self.joint)

    @property
    def marginal_log_weights(self) -> Array:
        """Return ln Λ, also where the plan is AIS."""
        return self._weights(self.weights)

    def _weights(self, of: np.ndarray) -> Array:
        return of.ravel()[: len(self.chains)] + self.prepared.constants[self.step]

    def states(self) -> Array:
        """Return the states of the sampled side, [chain, unit], in the model's units."""
        rows = self._spins()[: len(self.chains), : self.prepared.n_visible]
        return self.prepared.offset + self.prepared.scale * rows.astype(np.float64)

    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Go on from the states of these chains, one for each; log-weights stay where they are."""
        moved = np.flatnonzero(ancestors != np.arange(len(ancestors)))
        (block, lane), (from_block, from_lane) = (np.divmod(x, LANES) for x in (moved, ancestors[moved]))
        carried = self.spins_v if self.carried is None else self.carried
        carried[block, :, lane] = carried[from_block, :, from_lane]
        self.fresh = 2

    def _set_states(self, states: Array) -> None:
        padded = np.ones((len(self.spins_v) * LANES, len(self.prepared.model.slope_v)))
        padded[: len(states), : self.prepared.n_visible] = (states - self.prepared.offset) / self.prepared.scale
        self._put(padded)
        self.fresh = 2

    def _spins(self) -> Array:
        """Return the states of the sampled side as the kernel has them, [chain, unit], padded."""
        return self.spins_v.transpose(0, 2, 1).reshape(-1, self.spins_v.shape[1])

    def _put(self, spins: Array) -> None:
        self.spins_v[:] = spins.reshape(-1, LANES, spins.shape[1]).transpose(0, 2, 1)


def chains_together(prepared: Prepared) -> int:
    """Return how many chains to advance together at most."""
    units = len(prepared.model.slope_v) + len(prepared.model.slope_h)
    size = LANES * np.dtype(prepared.dtype).itemsize
    if prepared.looked_up:  # tables made for many chains want many, and four spins take the place of one
        size //= 4 * SPINS if isinstance(prepared.model, Model) else 4
    return LANES * max(1, JOB_BYTES // (units * size))
