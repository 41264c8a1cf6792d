"""Factors of spins: products of two or more of them, as arguments and populations of `factors_kernel`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...checks import Array
from ...models.forms import Indices
from ...models.interacting import InteractingMRF
from ...models.terms import Terms
from ...random import HIDDEN, VISIBLE
from ...simd.draws import TILE
from ...simd.vector import LANES, aligned
from ..plan import Plan
from . import population
from .factors_kernel import anneal_products
from .fields import Products, Pulled
from .packing import pack
from .population import Prepared, chains_together
from .unit_kinds import Spins


class FactorArguments(NamedTuple):
    """A plan as arguments of the kernel; couplings whose names end with 0 are those of the base, or None.

    The others are the slopes in β.
    """

    side: Spins
    up: Products | Pulled  # Into the summed-out units.
    up0: Products | Pulled | None
    before: Products  # Into each sampled unit, from sampled units before it.
    after: Products | Pulled  # All others into the sampled units.
    into0: Products | Pulled | None  # Into the sampled units, from all others.
    slope_v: np.ndarray
    slope_h: np.ndarray
    base_v: np.ndarray
    base_h: np.ndarray
    betas: np.ndarray
    differences: Array  # β_k − β_{k−1}.
    seed: np.uint64
    sides: tuple[int, int]
    mixture: Mixed | None


class Mixed(NamedTuple):
    """The component of a mixture as another sampled variable."""

    components: int
    units: int  # Number of sampled units.
    own: np.ndarray  # Constant parts of the exponents of the components that vanish along the path, padded.
    kept: np.ndarray  # Constant parts of these exponents that remain.
    numbers: np.ndarray  # 0, 1, 2, … as floating-point numbers.
    fields: np.ndarray  # On the sampled units, [unit, component], flat.
    both: tuple[np.ndarray, ...]  # Couplings into the exponents of the components, from all units.
    place: int  # Where the component is stored.
    last: int  # 0 if it is drawn before the sampled units in a sweep, 1 if after them.


def serves(plan: Plan) -> bool:
    """Whether a plan is for factors of spins."""
    return plan.path.end.has_terms and not plan.path.end.visible_units.is_one_hot


def prepare(plan: Plan) -> Prepared:
    """Convert a plan to the arguments of the kernel."""
    model, base = plan.path.end, plan.path.start
    assert isinstance(model, InteractingMRF)
    dtype = np.float32 if plan.placement.precision == "single" else np.float64

    def pad(x: Array) -> np.ndarray:
        return np.pad(x, (0, -len(x) % TILE)).astype(dtype)

    slope_v, slope_h = pad(model.visible_bias - base.visible), pad(model.hidden_bias - base.hidden)
    n, m, rows = len(model.visible_bias), len(model.hidden_bias), len(slope_v)
    slopes = [*model.terms, *(Terms(x.features, -x.couplings) for x in base.terms)]
    before: list[_Into] = []
    after: list[_Into] = []
    for x in _into(slopes, n):
        is_before = x.others[:, -1] < x.targets
        before.append(_Into(x.targets[is_before], x.others[is_before], x.couplings[is_before]))
        after.append(_Into(x.targets[~is_before], x.others[~is_before], x.couplings[~is_before]))

    def packed(parts: Iterable[_Into], units: int) -> Products:
        return _packed(parts, units, n, rows, dtype)

    up: Any = packed(_onto(slopes, n), m)
    into: Any = packed(after, n)
    up0: Any = packed(_onto(base.terms, n), m) if base.has_terms else None
    into0: Any = packed(_into(base.terms, n), n) if base.has_terms else None
    mixture = _mixed(plan, rows, len(slope_h), dtype)
    if mixture is not None:
        assert plan.path.mixture is not None
        assert plan.path.mixture.hidden is not None
        hidden = _flat(plan.path.mixture.hidden, len(slope_h), dtype)
        count, place = mixture.components, mixture.place
        up, up0 = Pulled(up, -hidden, count, place), Pulled(up0, hidden, count, place)
        into, into0 = Pulled(into, -mixture.fields, count, place), Pulled(into0, mixture.fields, count, place)
    arguments = FactorArguments(
        Spins(rows),
        up,
        up0,
        packed(before, n),
        into,
        into0,
        slope_v,
        slope_h,
        pad(base.visible),
        pad(base.hidden),
        plan.betas.astype(dtype),
        np.diff(plan.betas),
        np.uint64(plan.chains.seed),
        (VISIBLE, HIDDEN),
        mixture,
    )
    return Prepared(
        arguments,
        n,
        dtype,
        np.zeros(len(plan.betas)),
        0.0,
        1.0,
        int(plan.path.operations),
        chains_together(len(slope_v) + len(slope_h), np.dtype(dtype).itemsize),
    )


def _mixed(plan: Plan, rows: int, others: int, dtype: type) -> Mixed | None:
    """Return the component of a mixture as a variable; it is stored after all units."""
    mixture = plan.path.mixture
    if mixture is None or mixture.hidden is None:
        return None
    count, n = mixture.fields.shape
    own: np.ndarray = np.pad(mixture.weights, (0, -count % TILE)).astype(dtype)
    both = sp.vstack([sp.csr_array(mixture.fields.T), sp.csr_array((rows - n, count)), sp.csr_array(mixture.hidden.T)])
    return Mixed(
        count,
        n,
        own,
        mixture.log_kept.astype(dtype),
        np.arange(count).astype(dtype),
        _flat(mixture.fields, rows, dtype),
        pack(sp.csr_array(both), dtype),
        (rows + others) * LANES,
        int(mixture.drawn_last),
    )


def _flat(fields: Array, rows: int, dtype: type) -> np.ndarray:
    """Return the fields of all components, given as [component, unit], as [unit, component], flat and padded."""
    padded: np.ndarray = np.zeros((rows, len(fields)), dtype=dtype)
    padded[: fields.shape[1]] = fields.T
    return padded.ravel()


class _Into(NamedTuple):
    """Products of equally many other units, in ascending order, that add to the fields of some units."""

    targets: Indices
    others: Indices
    couplings: Array


def _into(terms: Iterable[Terms], n: int) -> Iterable[_Into]:
    """Yield the products that add to the fields of the first n units."""
    for x in terms:
        for place in range(x.features.shape[1]):
            at = x.features[:, place] < n
            yield _Into(x.features[at, place], np.delete(x.features[at], place, axis=1), x.couplings[at])


def _onto(terms: Iterable[Terms], n: int) -> Iterable[_Into]:
    """Yield the products that add to the fields of the units from n on, numbered from there."""
    for x in terms:
        at = x.features[:, -1] >= n
        yield _Into(x.features[at, -1] - n, x.features[at, :-1], x.couplings[at])


def _packed(parts: Iterable[_Into], units: int, n: int, rows: int, dtype: type) -> Products:
    """Return products in the order of the units whose fields they add to; units from n on have places from `rows`."""
    by_size: dict[int, list[_Into]] = {1: [], 2: [], 3: []}
    for x in parts:
        by_size[min(x.others.shape[1], 3)].append(x)
    arrays: list[np.ndarray] = []
    none = np.zeros(0, dtype=np.int64)
    for size, own in by_size.items():
        targets = np.concatenate([none, *(x.targets for x in own)])
        lengths = np.concatenate([none, *(np.full(*x.others.shape) for x in own)])
        flat = np.concatenate([none, *(x.others.ravel() for x in own)])
        couplings = np.concatenate([np.zeros(0), *(x.couplings for x in own)])
        order = np.argsort(targets, kind="stable")
        starts = np.cumsum(lengths) - lengths
        begin = np.concatenate([[0], np.cumsum(lengths[order])])
        places = flat[np.repeat(starts[order] - begin[:-1], lengths[order]) + np.arange(begin[-1])]
        places = np.where(places < n, places, places - n + rows) * LANES
        ends = np.searchsorted(targets[order], np.arange(units + 1))
        arrays.append(np.pad(ends, (0, -units % TILE), mode="edge").astype(np.int64))
        if size == 3:
            arrays.append(begin.astype(np.int64))
        arrays += [places.astype(np.int64), couplings[order].astype(dtype)]
    return Products(*arrays)


class Population(population.Population):
    """Blocks of LANES chains, whose spins are ±1 in floating point."""

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        super().__init__(plan, prepared, chains)
        if plan.path.mixture is not None and len(chains):
            self._start_from_mixture(plan, chains, self.x[:, -1])

    def _allocate(self, blocks: int, joint: bool) -> None:
        model: Any = self.prepared.arguments
        n, m = len(model.slope_v), len(model.slope_h)
        components = 0 if model.mixture is None else len(model.mixture.own)
        self.x = aligned((blocks, n + m + (components > 0), LANES), self.prepared.dtype)
        self.full_state = self.x
        self.scratch = aligned((max(n, m, 2 * components), LANES), self.prepared.dtype)
        self.rises, self.weights = aligned((blocks, LANES), np.float64), aligned((blocks, LANES), np.float64)
        self.joint = aligned((blocks, LANES), np.float64) if joint else None
        self.spins_v = self.x[:, :n]

    def _run_kernel(self, to_step: int) -> None:
        anneal_products(
            *self.prepared.arguments,
            self.first,
            self.x,
            self.scratch,
            self.rises,
            self.weights,
            self.joint,
            self.step,
            to_step,
            self.fresh,
        )
