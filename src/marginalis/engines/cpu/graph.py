"""Any model: arguments and populations of `graph_kernel`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...checks import Array
from ...models.units import Units
from ...paths.path import SpinPath
from ...random import HIDDEN, VISIBLE
from ...simd.draws import TILE
from ...simd.functions import HAS_AVX512
from ...simd.lookup import SPINS
from ...simd.vector import LANES, aligned
from ..plan import Plan
from . import population
from .graph_kernel import anneal_graph
from .graph_sampled_side import PAIRS
from .packing import pack, pack_lists
from .population import Prepared, chains_together, start_of_mixture
from .rectified import Half, Halves
from .tables import chains_for_tables, pack_tables, room_for_tables
from .unit_kinds import Normals, OneHot, Spins


class GraphArguments(NamedTuple):
    """A plan as arguments of the kernel; the code for fields that are None is left out when it is compiled.

    Couplings whose names end with 0 are those of the base, the others are the slopes in β.
    """

    visible: Any  # The kind of each side: Spins, Normals, OneHot or Halves.
    hidden: Any
    up: tuple[np.ndarray, ...]  # Couplings into the summed-out side.
    up0: tuple[np.ndarray, ...] | None
    before: tuple[np.ndarray, ...] | None  # Into each sampled unit, from those before its tile.
    after: tuple[np.ndarray, ...]  # From those after its tile, and from the summed-out side.
    dense: tuple[np.ndarray, ...] | None  # Replaces `after` for tables: from all units outside its tile.
    into0: tuple[np.ndarray, ...] | None  # Couplings of the base, from all other units.
    inner: np.ndarray | None  # Between the four units of a tile: 01, 02, 03, 12, 13, 23.
    inner0: np.ndarray | None
    tied: np.ndarray | None  # Whether the units of each tile are coupled to each other.
    slope_v: np.ndarray
    slope_h: np.ndarray
    base_v: np.ndarray
    base_h: np.ndarray
    betas: np.ndarray
    differences: Array  # β_k − β_{k−1}.
    seed: np.uint64
    sides: tuple[int, int]
    mixture: Any  # A Component, or None.
    drawn: Any  # A Drawn component, or None.
    pairs: int | None  # 1 if blocks are swept two at a time (dense graphs), else None.


class Drawn(NamedTuple):
    """The component of a mixture as another sampled variable, stored one-hot after the sampled units."""

    components: int
    own: np.ndarray  # Constant parts of its exponents that vanish along the path, padded.
    kept: np.ndarray  # Constant parts of its exponents that remain.
    up: tuple[np.ndarray, ...]  # Couplings into its exponents, from the sampled units.
    both: tuple[np.ndarray, ...]  # Couplings into its exponents, from all units.
    last: int  # 0 if it is drawn before the sampled units in a sweep, 1 if after them.


class Component(NamedTuple):
    """The component of a mixture as a summed-out variable, whose couplings vanish along the path."""

    side: Any
    up: tuple[np.ndarray, ...]
    up0: tuple[np.ndarray, ...]
    slope: np.ndarray
    base: np.ndarray


def serves(plan: Plan) -> bool:
    """Whether the kernel supports a plan: it supports all."""
    return True


def prepare(plan: Plan) -> Prepared:
    """Convert a plan to the arguments of the kernel."""
    model, base, swap = plan.path.end, plan.path.start, plan.path.is_turned
    path = plan.path.spins
    b0, c0, weights, lateral, lateral0 = path.base_v, path.base_h, path.weights, path.lateral, path.lateral0
    dtype = np.float32 if plan.placement.precision == "single" else np.float64

    def pad(x: Array) -> np.ndarray:
        return np.pad(x, (0, -len(x) % TILE)).astype(dtype)

    slope_v, slope_h = pad(path.slope_v), pad(path.slope_h)
    states = model.visible_units.is_one_hot
    ties = _Ties(lateral, lateral0, len(b0), states)
    below, above_ = ties.split(lateral)
    packed = pack_lists if states and ties.any else pack
    component, pull = _component(path, dtype)
    drawn = _drawn(plan, path, len(slope_v), len(slope_h), dtype)
    up, up0 = weights, path.weights0
    if drawn is not None and path.component_fields is not None and path.component_hidden is not None:
        pull = (path.component_fields,)
        up = _into_hidden(weights, -path.component_hidden, len(slope_v))
        up0 = _into_hidden(sp.csr_array(weights.shape), path.component_hidden, len(slope_v))
    in_between = 0 if drawn is None else len(drawn.own)  # Places of the component before the summed-out side.
    before = None if below is None else packed(below, dtype)
    into = _stacked(above_, weights, pull and -pull[0], len(slope_v), len(slope_h), in_between)
    after = packed(into, dtype)
    if before is not None and len(before) != len(after):
        before, after = pack_lists(below, dtype), pack_lists(into, dtype)
    dense = None
    if before is not None and len(before) == 4 and _is_looked_up(plan):
        outside = _stacked(ties.outside(lateral), weights, None, len(slope_v), len(slope_h))
        dense, after = pack_tables(outside), pack(sp.csr_array(into.shape), dtype)
    into0 = None
    if base.is_coupled or pull:
        start_weights = sp.csr_array(weights.shape) if path.weights0 is None else path.weights0
        into0 = packed(
            _stacked(ties.outside(lateral0), start_weights, pull and pull[0], len(slope_v), len(slope_h), in_between),
            dtype,
        )
    arguments = GraphArguments(
        _side(model.natural.visible_units, len(b0), dtype),
        _side(model.natural.hidden_units, len(c0), dtype),
        pack(up, dtype),
        None if up0 is None else pack(up0, dtype),
        before,
        after,
        dense,
        into0,
        ties.inner(lateral, dtype),
        ties.inner(lateral0, dtype),
        ties.tied,
        slope_v,
        slope_h,
        pad(b0),
        pad(c0),
        plan.betas.astype(dtype),
        np.diff(plan.betas),
        np.uint64(plan.chains.seed),
        (HIDDEN, VISIBLE) if swap else (VISIBLE, HIDDEN),
        component,
        drawn,
        1 if before is not None and len(before) == 4 and into0 is None and dense is None else None,
    )
    couplings = [w for w in (weights, lateral, path.weights0, lateral0) if w is not None]
    entries = sum(w.nnz if sp.issparse(w) else w.size for w in couplings)
    operations = (2 if dense is None else 1) * entries + 60 * (len(b0) + len(c0))
    constants = path.constants(plan.betas)
    return Prepared(
        arguments,
        len(b0),
        dtype,
        constants,
        path.offset,
        path.scale,
        operations,
        chains_together(len(slope_v) + len(slope_h), np.dtype(dtype).itemsize if dense is None else 1),
        LANES if dense is None else chains_for_tables((dense,)),
        looked_up=() if dense is None else (dense,),
    )


def _is_looked_up(plan: Plan) -> bool:
    """Whether to use `graph_tables`, which is faster than multiply-adds for dense graphs of 16 spins or more."""
    model, base = plan.path.end, plan.path.start
    possible = HAS_AVX512 and plan.placement.precision == "single" and not base.is_coupled and plan.path.mixture is None
    return possible and model.spin_form is not None


def _side(units: Units, features: int, dtype: type) -> Any:
    if units.halves is not None:
        gamma_plus, gamma_minus, theta_plus, theta_minus = units.halves
        minus = None if units.is_nonnegative else _half(-theta_minus, gamma_minus, features, dtype)
        return Halves(_half(theta_plus, gamma_plus, features, dtype), minus)
    if units.precisions is not None:
        padded = np.pad(1.0 / units.precisions, (0, -features % TILE))
        return Normals(padded.astype(dtype), np.sqrt(padded).astype(dtype))
    if units.is_one_hot:
        return OneHot(np.append(0, np.cumsum(np.bincount(units.owners(features)))))
    return Spins(features)


def _half(theta: Array, gamma: Array, features: int, dtype: type) -> Half:
    """Return one side of zero of rectified units; padding units have width 1."""
    pad = (0, -features % TILE)
    theta, width = (np.broadcast_to(x, features) for x in (theta, 1.0 / np.sqrt(gamma)))
    return Half(np.pad(theta, pad).astype(dtype), np.pad(width, pad, constant_values=1.0).astype(dtype))


def _stacked(inside: Any, weights: Any, pull: Any, rows: int, others: int, in_between: int = 0) -> Any:
    """Return couplings into the sampled units from all: the sampled ones, the summed-out ones, the component.

    The first two are padded to `rows` and `others`; a component that is drawn takes `in_between` places between them.
    """
    n, m = weights.shape
    if in_between:
        first = sp.csr_array((rows, n)) if inside is None else sp.vstack([inside, sp.csr_array((rows - n, n))])
        nothing = sp.csr_array((in_between - len(pull), n)), sp.csr_array((others - m, n))
        return sp.csr_array(sp.vstack([first, sp.csr_array(pull), nothing[0], sp.csr_array(weights.T), nothing[1]]))
    if inside is None and not sp.issparse(weights):  # The same result, without the overhead of SciPy.
        filled = np.zeros((rows + others + (0 if pull is None else len(pull)), n))
        filled[rows : rows + m] = weights.T
        if pull is not None:
            filled[rows + others :] = pull
        return sp.csr_array(filled)
    parts = [sp.csr_array((rows, n)) if inside is None else sp.vstack([inside, sp.csr_array((rows - n, n))])]
    parts += [sp.csr_array(weights.T), sp.csr_array((others - m, n))]
    if pull is not None:
        parts.append(sp.csr_array(pull))
    return sp.csr_array(sp.vstack(parts))


def _component(path: SpinPath, dtype: type) -> tuple[Component | None, tuple[Array] | None]:
    """Return the component of a mixture as a variable, and its fields on the sampled units (in a tuple)."""
    fields, own = path.component_fields, path.component_weights
    if fields is None or own is None or path.component_hidden is not None:
        return None, None
    padded: np.ndarray = np.pad(own, (0, -len(own) % TILE)).astype(dtype)
    side = OneHot(np.array([0, len(own)], dtype=np.int64))
    return Component(side, pack(-fields.T, dtype), pack(fields.T, dtype), -padded, padded), (fields,)


def _drawn(plan: Plan, path: SpinPath, rows: int, others: int, dtype: type) -> Drawn | None:
    """Return the component of a mixture as a variable, if it is drawn."""
    fields, hidden, own = path.component_fields, path.component_hidden, path.component_weights
    if plan.path.mixture is None or fields is None or hidden is None or own is None:
        return None
    padded: np.ndarray = np.pad(own, (0, -len(own) % TILE)).astype(dtype)
    n, m = fields.shape[1], hidden.shape[1]
    nothing = sp.csr_array((rows - n + len(padded), len(own))), sp.csr_array((others - m, len(own)))
    both = sp.vstack([sp.csr_array(fields.T), nothing[0], sp.csr_array(hidden.T), nothing[1]])
    kept: np.ndarray = plan.path.mixture.log_kept.astype(dtype)
    last = int(plan.path.mixture.drawn_last)
    return Drawn(len(own), padded, kept, pack(fields.T, dtype), pack(sp.csr_array(both), dtype), last)


def _into_hidden(weights: Any, pull: Array, rows: int) -> Any:
    """Return couplings into the summed-out units from the sampled ones, padded to `rows`, and the component."""
    n, m = weights.shape
    return sp.csr_array(sp.vstack([sp.csr_array(weights), sp.csr_array((rows - n, m)), sp.csr_array(pull)]))


class _Ties:
    """Couplings among the sampled units, split by the place of the input: before, in, or after the tile of the unit.

    Categorical variables are drawn one at a time and have no tiles.
    """

    def __init__(self, lateral: Any, lateral0: Any, features: int, states: bool) -> None:
        self.any = lateral is not None or lateral0 is not None
        self.states, self.features = states, features
        self._found: dict[int, tuple[Any, Any, Any]] = {}
        self.tied: np.ndarray | None = None
        self.tiles = -(-features // TILE)
        if self.any and not states:
            self.tied = np.zeros(self.tiles, dtype=np.bool_)
            for w in (lateral, lateral0):
                if w is not None:
                    i, j, _ = self._entries(w)
                    self.tied[(i // TILE)[i // TILE == j // TILE]] = True

    def _entries(self, w: Any) -> tuple[Any, Any, Any]:
        if id(w) not in self._found:  # Splitting a dense matrix is slow, so results are kept.
            links = sp.coo_array(w)
            kept = links.data != 0
            self._found[id(w)] = links.coords[0][kept], links.coords[1][kept], links.data[kept]
        return self._found[id(w)]

    def _chosen(self, w: Any, choose: Any) -> Any:
        i, j, data = self._entries(w)
        kept = choose(i, j)
        return sp.csr_array((data[kept], (i[kept], j[kept])), shape=w.shape)

    def split(self, w: Any) -> tuple[Any, Any]:
        """Return the couplings from inputs before and after the unit's tile (or the unit itself), [input, unit]."""
        if not self.any:
            return None, None
        if w is None:
            w = sp.csr_array((self.features, self.features))
        unit = 1 if self.states else TILE
        return (
            self._chosen(w, lambda i, j: i // unit < j // unit),
            self._chosen(w, lambda i, j: i // unit > j // unit),
        )

    def outside(self, w: Any) -> Any:
        """Return the couplings from inputs outside the tile of the unit."""
        if w is None:
            return None
        return w if self.states else self._chosen(w, lambda i, j: i // TILE != j // TILE)

    def inner(self, w: Any, dtype: type) -> np.ndarray | None:
        """Return the couplings inside each tile."""
        if w is None or self.states:
            return None
        i, j, data = self._entries(w)
        place = np.array([[-1, 0, 1, 2], [-1, -1, 3, 4], [-1, -1, -1, 5], [-1, -1, -1, -1]])
        kept = (i // TILE == j // TILE) & (i < j)
        out: np.ndarray = np.zeros((self.tiles, PAIRS), dtype=dtype)
        out[(i // TILE)[kept], place[(i % TILE)[kept], (j % TILE)[kept]]] = data[kept]
        return out


class Population(population.Population):
    """Blocks of LANES chains on any graph, all at the same step."""

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        super().__init__(plan, prepared, chains)
        if plan.path.mixture is None or not len(chains):
            return
        states, components = start_of_mixture(plan, chains)
        self._set_states(states)
        if components is not None:
            n, places = self.spins_v.shape[1], len(prepared.arguments.drawn.own)
            own = np.zeros((len(self.x) * LANES, places))
            own[:, 0] = 1.0  # Any state serves for the chains that pad the last block.
            own[: len(chains)] = np.eye(places)[components]
            self.x[:, n : n + places] = own.reshape(len(self.x), LANES, places).transpose(0, 2, 1)

    def _allocate(self, blocks: int, joint: bool) -> None:
        model: Any = self.prepared.arguments
        if model.pairs is not None:
            blocks += blocks % 2
        n, m = len(model.slope_v), len(model.slope_h)
        drawn = 0 if model.drawn is None else len(model.drawn.own)
        z = drawn if model.mixture is None else len(model.mixture.slope)
        self.x = aligned((blocks, n + m + z, LANES), self.prepared.dtype)
        self.room = None
        if model.dense is not None:
            tables, together = room_for_tables(self.prepared, blocks, 1)
            bits = aligned((together, (n + m) // SPINS, LANES), np.uint32)
            self.room = bits, aligned((together, 2 * TILE, LANES), np.uint32), tables
        self.scratch = aligned((max(3 * n, 2 * m, 2 * z, blocks), LANES), self.prepared.dtype)
        self.rises, self.weights = aligned((blocks, LANES), np.float64), aligned((blocks, LANES), np.float64)
        self.joint = aligned((blocks, LANES), np.float64) if joint else None
        self.spins_v, self.full_state = self.x[:, :n], self.x[:, : n + drawn]

    def _run_kernel(self, to_step: int) -> None:
        anneal_graph(
            *self.prepared.arguments,
            self.first,
            self.x,
            self.scratch,
            self.room,
            self.rises,
            self.weights,
            self.joint,
            self.step,
            to_step,
            self.fresh,
        )
