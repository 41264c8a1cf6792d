"""Spins with dense couplings on a bipartite graph: arguments and populations of `tables_kernel`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...checks import Array
from ...paths.path import SpinPath
from ...simd.draws import TILE
from ...simd.functions import HAS_AVX512
from ...simd.lookup import COLUMNS, SPINS
from ...simd.vector import LANES, aligned
from ..plan import Plan
from ..reference.loop import Distributions, never_one
from . import population
from .packing import is_band
from .population import Prepared, common_arguments, is_bipartite, prepared
from .tables_kernel import ABREAST, PANEL, SLICE, TABLE, anneal_tables

_PANEL_UNITS = PANEL * TILE  # Units of a panel.
_TABLE_BYTES = 1 << 20  # Bytes into which all tables of a model must fit to be made once and kept.
_FEW = 8  # Blocks of chains that are advanced side by side if all tables are kept.
_MANY = 512  # Chains to advance together if tables are made anew, so that making them costs little.


class TableArguments(NamedTuple):
    """A plan as arguments of the kernel, in this order; most fields are those of `BipartiteArguments`."""

    up: tuple[np.ndarray, ...]
    down: tuple[np.ndarray, ...]
    slope_v: np.ndarray
    slope_h: np.ndarray
    base_v: np.ndarray | None
    base_h: np.ndarray | None
    betas: np.ndarray
    differences: Array
    seed: np.uint64
    sides: tuple[int, int]
    mixture: Components | None


class Components(NamedTuple):
    """A mixture whose component is drawn, in the form that `tables_kernel` uses."""

    own: np.ndarray  # Constant parts of the exponents that vanish along the path.
    kept: np.ndarray  # Constant parts of the exponents that remain.
    shares: np.ndarray  # Logarithms of the shares of the components in P_0.
    up: tuple[np.ndarray, ...]  # Couplings into the exponents from the sampled side.
    down: tuple[np.ndarray, ...]  # Couplings into the exponents from the other side.
    pulls_v: np.ndarray  # Fields of each unit in all components.
    pulls_h: np.ndarray
    registers: int  # Number of vector registers that the components of a unit fill.
    last: bool  # Whether the component is drawn after the sampled units in a sweep.


def serves(plan: Plan) -> bool:
    """Whether the kernel supports a plan; it was faster than multiply-adds for all dense couplings that were tried.

    The choice must not depend on the number of chains, because rounding would depend on it, too.
    """
    possible = HAS_AVX512 and plan.placement.precision == "single" and plan.move.kind == "gibbs"
    if not (possible and is_bipartite(plan) and (plan.path.mixture is None or plan.path.mixture.is_drawn)):
        return False
    weights = plan.path.end.partial_spin_form.weights
    return not sp.issparse(weights) or (is_band(weights) and is_band(weights.T))


def prepare(plan: Plan) -> Prepared:
    """Convert a plan to the arguments of the kernel."""
    path = plan.path.spins
    n, m = (len(x) + -len(x) % TILE for x in (path.slope_v, path.slope_h))
    up, down = pack_tables(_with_slopes(path.weights, path.slope_v.astype(np.float32), m)), pack_tables(path.weights.T)
    model = TableArguments._make((*common_arguments(plan, path, np.float32, up, down), _components(plan, path, n, m)))
    found = prepared(plan, path, model, 1, np.dtype(np.float32).itemsize / (4 * SPINS))
    looked_up: tuple[Any, ...] = (up, down)
    if model.mixture is not None:
        looked_up += model.mixture.up, model.mixture.down
        more = len(model.mixture.own) * (plan.path.end.n_variables + 40)
        found = found._replace(operations=found.operations + more)
    return found._replace(looked_up=looked_up, at_least=chains_for_tables(looked_up))


def _components(plan: Plan, path: SpinPath, rows: int, columns: int) -> Components | None:
    """Return the mixture of a plan, with sides padded to `rows` and `columns` units."""
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
        plan.path.mixture.log_kept.astype(np.float32),
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


def _with_slopes(weights: Any, slope_v: Array, columns: int) -> Any:
    """Return weights with one more column after the padding: the slopes of the sampled side, as if of another unit."""
    n, m = weights.shape
    more = np.zeros((n, columns - m + 1))
    more[:, -1] = slope_v[:n]
    return sp.csr_array(sp.hstack([weights, more])) if sp.issparse(weights) else np.hstack([weights, more])


def pack_tables(weights: Any) -> tuple[np.ndarray, ...]:
    """Return weights [input, unit] in the form from which the kernel makes tables: (weights, inputs, begin, scale).

    The weights of a unit are integers times its scale, a power of two such that no sum exceeds 2^30. Their order is
    [panel][tile][four inputs][5][unit], where the five numbers are the arguments of `table_of`. A panel starts at
    begin[panel] and has the inputs from inputs[panel, 0] to inputs[panel, 1], both counted in groups of four inputs.
    """
    rows, columns = weights.shape
    sparse = sp.issparse(weights)
    into = sp.csc_array(weights) if sparse else weights
    scales, scale = scales_of(np.asarray(abs(weights).sum(axis=0)).ravel())
    panels = -(-columns // _PANEL_UNITS)
    inputs = np.zeros((panels, 2), dtype=np.int64)
    begin = np.zeros(panels + 1, dtype=np.int64)
    parts = []
    for panel in range(panels):
        of = slice(_PANEL_UNITS * panel, min(_PANEL_UNITS * (panel + 1), columns))
        tiles = -(-(of.stop - of.start) // TILE)
        part = into[:, of].toarray() if sparse else into[:, of]
        some = np.flatnonzero(part.any(axis=1)) if sparse else np.array([0, rows - 1])
        low, high = (some[0] // SPINS, some[-1] // SPINS + 1) if len(some) else (0, 0)
        inputs[panel] = low, high
        band = part[low * SPINS : high * SPINS]
        whole = np.zeros(((high - low) * SPINS, tiles * COLUMNS), dtype=np.int32)
        np.rint(band * scales[of], out=whole[: len(band), : band.shape[1]], casting="unsafe")
        fours = whole.reshape(high - low, SPINS, tiles, COLUMNS).transpose(2, 0, 1, 3)
        made = np.empty((tiles, high - low, SPINS + 1, COLUMNS), dtype=np.int32)
        made[:, :, 0], made[:, :, 1:] = fours.sum(axis=2, dtype=np.int32), -2 * fours
        parts.append(made.ravel())
        begin[panel + 1] = begin[panel] + tiles * (high - low)
    return np.concatenate(parts).view(np.uint32), inputs, begin, scale


def scales_of(largest: Array) -> tuple[Array, np.ndarray]:
    """Return the numbers 2^k by which weights become integers, and 2^-k in whole tiles, as the kernel reads them.

    `largest` has the sum of the absolute values of the weights of each unit, along the last axis.
    """
    exponent = np.minimum(30 - np.frexp(largest)[1], 126)
    padding = [(0, 0)] * (largest.ndim - 1) + [(0, -largest.shape[-1] % TILE)]
    return np.ldexp(1.0, exponent), np.ldexp(1.0, -np.pad(exponent, padding)).astype(np.float32)


def chains_for_tables(looked_up: tuple[tuple[np.ndarray, ...], ...]) -> int:
    """Return the smallest number of chains to advance together."""
    return LANES * ABREAST if _are_kept(looked_up) else _MANY


def _are_kept(looked_up: tuple[tuple[np.ndarray, ...], ...]) -> bool:
    """Whether all tables of these couplings are made once and kept."""
    return 4 * _numbers(looked_up) <= _TABLE_BYTES


def _numbers(looked_up: tuple[tuple[np.ndarray, ...], ...]) -> int:
    return sum(int(begin[-1]) for _, _, begin, _ in looked_up) * TABLE


def room_for_tables(prepared: Prepared, blocks: int, tiles: int) -> tuple[np.ndarray, int]:
    """Return memory for all tables, or for a slice of those of some tiles, and the number of blocks side by side."""
    whole = _are_kept(prepared.looked_up)
    tables = aligned((_numbers(prepared.looked_up) if whole else tiles * SLICE * TABLE,), np.uint32)
    return tables, max(1, min(blocks, _FEW) if whole else blocks)


class Population(population.Population):
    """Blocks of LANES chains, whose spins are stored as bits, and their components of a mixture."""

    component: np.ndarray | None = None
    logits: np.ndarray | None = None  # Workspace for the exponents of all components.

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        super().__init__(plan, prepared, chains)
        if self.component is not None and plan.chains.start is not None and len(chains):
            path = Distributions(plan, chains)
            path.start_from(never_one(plan.chains.start[chains.start : chains.stop]))
            assert path.z is not None
            self.component.ravel()[: len(chains)] = path.z[: len(chains)]

    def _allocate(self, blocks: int, joint: bool) -> None:
        model: Any = self.prepared.arguments
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

    def _run_kernel(self, to_step: int) -> None:
        anneal_tables(
            *self.prepared.arguments,
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

    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Continue chain i from the state of chain ``ancestors[i]``; the log-weights do not move."""
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
