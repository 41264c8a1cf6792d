"""Factors of categorical variables: tables, as arguments and populations of `factor_tables_kernel`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...checks import Array
from ...models.forms import Indices
from ...models.interacting import InteractingMRF
from ...models.terms import Table
from ...random import HIDDEN, VISIBLE
from ...simd.lookup import row_width
from ...simd.vector import LANES, aligned
from ..plan import Plan
from . import population
from .factor_tables_kernel import anneal_tables
from .population import Prepared, chains_together

_MOST_ENTRIES = 2**31  # Positions in a table must fit into 31 bits.


class Lookups(NamedTuple):
    """Tables that are looked up, and which of them belong to each variable or to the energy.

    The position of an entry is a sum over variables of state times stride.
    """

    begin: np.ndarray  # Where the tables of each variable begin.
    tables: np.ndarray  # Where each table begins in the values.
    factors: np.ndarray  # Where the variables of each table begin.
    places: np.ndarray  # The places of their states.
    strides: np.ndarray


class FactorTableArguments(NamedTuple):
    """A plan as arguments of the kernel; arrays whose names end with 0 are those of the base, or None.

    The others are the slopes in β.
    """

    starts: np.ndarray  # The first feature of every variable, and the number of features.
    variables: int  # Number of variables, without the component of a mixture, which is one more.
    visible: int  # Number of sampled variables.
    into: Lookups  # For each variable, the tables with its own states last.
    inside: Lookups  # The tables of sampled variables only, all of them for one target.
    into0: Lookups | None
    values: np.ndarray
    slopes: np.ndarray  # Of all features.
    bases: np.ndarray
    betas: np.ndarray
    differences: Array  # β_k − β_{k−1}.
    seed: np.uint64
    sides: tuple[int, int]
    last: int | None  # Without a mixture None, 0 if its component is drawn before the variables in a sweep, 1 if after.


class Component(NamedTuple):
    """The component of a mixture as one more variable, the last one, in the tables of the base."""

    weights: Array
    tables: list[Table]


def serves(plan: Plan) -> bool:
    """Whether a plan is for factors of categorical variables."""
    return plan.path.end.has_terms and plan.path.end.visible_units.is_one_hot


def prepare(plan: Plan) -> Prepared:
    """Convert a plan to the arguments of the kernel."""
    model, base = plan.path.end, plan.path.start
    assert isinstance(model, InteractingMRF)
    dtype = np.float32 if plan.placement.precision == "single" else np.float64
    starts, n, count = model.feature_starts, model.n_visible, model.n_variables
    bias = np.concatenate([model.visible_bias, model.hidden_bias])
    bases = np.concatenate([base.visible, base.hidden])
    slopes = [*model.tables, *(Table(x.variables, -x.values) for x in base.tables)]
    within = [(x.variables, x.values) for x in slopes if x.variables[-1] < n]
    start, last, component = list(base.tables), None, _component(plan)
    if component is not None:  # All its tables vanish along the path.
        assert plan.path.mixture is not None
        slopes += [Table(x.variables, -x.values) for x in component.tables]
        within += [(x.variables, -x.values) for x in component.tables if x.variables[0] < n]
        within.append(((count,), -component.weights))
        start += component.tables
        starts, bases = np.append(starts, starts[-1] + len(component.weights)), np.append(bases, component.weights)
        # The exponents of the component that remain along the path take the place of slopes.
        bias = np.append(bias, component.weights + plan.path.mixture.log_kept)
        last = int(plan.path.mixture.drawn_last)
    values = _Values()
    into = _into_each(slopes, count, values)
    inside = _lookups([within], values)
    into0 = _into_each(start, len(starts) - 1, values) if start else None
    arguments = FactorTableArguments(
        starts,
        count,
        n,
        into,
        inside,
        into0,
        values.flat(dtype),
        (bias - bases).astype(dtype),
        bases.astype(dtype),
        plan.betas.astype(dtype),
        np.diff(plan.betas),
        np.uint64(plan.chains.seed),
        (VISIBLE, HIDDEN),
        last,
    )
    return Prepared(
        arguments,
        len(model.visible_bias),
        dtype,
        np.zeros(len(plan.betas)),
        0.0,
        1.0,
        int(plan.path.operations),
        chains_together(len(starts) - 1, 4),
    )


def _component(plan: Plan) -> Component | None:
    """Return the component of a mixture as a variable, with a table for every other variable."""
    mixture, model = plan.path.mixture, plan.path.end
    if mixture is None or mixture.hidden is None:
        return None
    assert isinstance(model, InteractingMRF)
    fields, starts = np.concatenate([mixture.fields, mixture.hidden], axis=1).T, model.feature_starts
    count = model.n_variables
    return Component(mixture.weights, [Table((v, count), fields[starts[v] : starts[v + 1]]) for v in range(count)])


def _into_each(tables: Sequence[Table], variables: int, flat: _Values) -> Lookups:
    """Return the tables of the first variables, with the axis of their own states last and padded to whole rows."""
    of: list[list[tuple[Sequence[int], Array]]] = [[] for _ in range(variables)]
    for x in tables:
        for axis, v in enumerate(x.variables):
            if v >= variables:
                continue
            values = np.moveaxis(x.values, axis, -1)
            more = row_width(values.shape[-1]) - values.shape[-1]
            padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, more)])
            of[v].append(([u for u in x.variables if u != v], padded))
    return _lookups(of, flat)


def _lookups(of: Sequence[Sequence[tuple[Sequence[int], Array]]], flat: _Values) -> Lookups:
    """Return the tables of some targets, given with the variables of their leading axes."""
    tables: list[int] = []
    places: list[int] = []
    strides: list[int] = []
    factors = [0]
    for own in of:
        for variables, table in own:
            places += [u * LANES for u in variables]
            strides += [int(np.prod(table.shape[k + 1 :])) for k in range(len(variables))]
            factors.append(len(places))
            tables.append(flat.put(table))
    begin = np.cumsum([0, *(len(own) for own in of)])
    numbers: list[Indices] = [np.array(x, dtype=np.int64) for x in (tables, factors, places)]
    return Lookups(begin.astype(np.int64), *numbers, np.array(strides, dtype=np.uint32))  # type: ignore[call-arg]


class _Values:
    """Tables one after the other, each of which begins with a cache line, so that a short row lies in one line."""

    def __init__(self) -> None:
        self.tables: list[tuple[int, Array]] = []
        self.size = LANES

    def put(self, table: Array) -> int:
        """Add a table and return where it begins."""
        at, self.size = self.size, self.size + LANES * -(-table.size // LANES)
        if self.size >= _MOST_ENTRIES:
            raise ValueError("the tables of the factors have 2^31 entries or more, which the kernel cannot hold")
        self.tables.append((at, table))
        return at

    def flat(self, dtype: type) -> np.ndarray:
        """Return all tables."""
        flat = aligned((self.size,), dtype)
        for at, table in self.tables:
            flat[at : at + table.size] = table.ravel()
        return flat


class Population(population.Population):
    """Blocks of LANES chains, whose states are numbers."""

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        super().__init__(plan, prepared, chains)
        if plan.path.mixture is not None and len(chains):
            self._start_from_mixture(plan, chains, self.x[:, -1])

    def _allocate(self, blocks: int, joint: bool) -> None:
        model: Any = self.prepared.arguments
        variables, features = len(model.starts) - 1, int(model.starts[-1])
        self.x = aligned((blocks, variables, LANES), np.uint32)
        self.full_state = self.x
        self.scratch = aligned((3, features + LANES, LANES), self.prepared.dtype)
        most = max(int(np.diff(x.begin).max()) for x in (model.into, model.into0) if x is not None)
        self.rows = aligned((most, LANES), np.uint32)
        self.rises, self.weights = aligned((blocks, LANES), np.float64), aligned((blocks, LANES), np.float64)
        self.joint = aligned((blocks, LANES), np.float64) if joint else None
        self.spins_v = self.x[:, : model.visible]

    def _run_kernel(self, to_step: int) -> None:
        anneal_tables(
            *self.prepared.arguments,
            self.first,
            self.x,
            self.scratch,
            self.rows,
            self.rises,
            self.weights,
            self.joint,
            self.step,
            to_step,
            self.fresh,
        )

    def states(self) -> Array:
        """Return the states of the sampled side as one-hot features, [chain, feature]."""
        starts = self.prepared.arguments.starts
        rows = np.zeros((len(self.chains), self.prepared.n_visible))
        numbers = self._spins()[: len(self.chains)].astype(np.int64)
        rows[np.arange(len(rows))[:, None], starts[: numbers.shape[1]] + numbers] = 1.0
        return rows

    def _set_states(self, states: Array) -> None:
        starts, n = self.prepared.arguments.starts, self.prepared.arguments.visible
        numbers = np.zeros((len(self.x) * LANES, n))
        within = np.arange(self.prepared.n_visible) - np.repeat(starts[:n], np.diff(starts[: n + 1]))
        numbers[: len(states)] = np.add.reduceat(states * within, starts[:n], axis=1)
        self._put(numbers)
        self.fresh = 2
