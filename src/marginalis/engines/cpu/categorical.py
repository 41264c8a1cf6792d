"""Densely coupled categorical variables of many states: arguments and populations of `categorical_kernel`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...checks import Array
from ...models.forms import Indices
from ...random import HIDDEN, VISIBLE
from ...simd.lookup import row_width
from ...simd.vector import LANES, aligned
from ..plan import Plan
from . import factor_tables
from .categorical_kernel import anneal_categorical
from .population import Prepared, chains_together

_MOST_ENTRIES = 2**31  # Positions in a table must fit into 31 bits.
# Multiply-adds of the general kernel that take as long as adding up a row of up to LANES couplings in every lane.
_PER_ROW = 2 * LANES
# Least number of chains in a job, for which the couplings of a variable are read from memory once.
_FEWEST_TOGETHER = 8 * LANES


class RowTables(NamedTuple):
    """Tables whose rows add up to the fields of each variable: its own fields, then one table for each neighbour."""

    begin: np.ndarray  # Where the tables of each variable begin.
    middle: np.ndarray  # Where those of its own fields and of the sampled variables before it end.
    tables: np.ndarray  # Where each table begins in the values.
    places: np.ndarray  # The place of the state of each neighbour.
    strides: np.ndarray  # The length of the rows; 0 for the own fields of a variable, which are one row.
    values: np.ndarray


class Drawn(NamedTuple):
    """The component of a mixture as another variable, whose state is stored after those of all others."""

    components: int
    kept: np.ndarray  # Constant parts of its exponents that remain along the path.
    exponents: RowTables  # The other parts: constants, the sampled variables, and the summed-out ones after `middle`.
    bases: RowTables  # Fields of the other variables at β = 0: constants, and those of the component.
    last: int  # 0 if it is drawn before the sampled variables in a sweep, 1 if after them.


class CategoricalArguments(NamedTuple):
    """A plan as arguments of the kernel."""

    starts: np.ndarray  # The first feature of every variable, and the number of features.
    visible: int  # Number of sampled variables.
    rows: RowTables  # Slopes of the fields in β.
    bases: np.ndarray  # Fields at β = 0.
    betas: np.ndarray
    differences: Array  # β_k − β_{k−1}.
    seed: np.uint64
    sides: tuple[int, int]
    component: Drawn | None


def serves(plan: Plan) -> bool:
    """Whether all variables are categorical, with so many coupled states that adding up rows of couplings is faster.

    Paths from a base with couplings, or from a mixture whose component is summed out, are excluded.
    """
    model, base = plan.path.end, plan.path.start
    if not (model.visible_units.is_one_hot and model.hidden_units.is_one_hot):
        return False
    if base.is_coupled or (plan.path.mixture is not None and not plan.path.mixture.is_drawn):
        return False
    counts = np.diff(_starts(plan))
    widths = np.array([row_width(int(count)) for count in counts])
    i, j = np.concatenate([model.edges + np.array([0, model.n_visible]), model.lateral_edges]).T
    rows = float((np.maximum(LANES, widths)[i] + np.maximum(LANES, widths)[j]).sum()) / LANES
    entries = sum(_entries(w) for w in (model.weights, model.weights, model.lateral) if w is not None)
    return rows * _PER_ROW < entries and int((counts[i] * widths[j]).max(initial=0)) < _MOST_ENTRIES


def _entries(w: Any) -> int:
    return int(w.nnz if sp.issparse(w) else w.size)


def _starts(plan: Plan) -> Indices:
    """Return the first feature of every variable, sampled ones first, and the number of features."""
    model = plan.path.end
    sides = (model.visible_units, model.visible_bias), (model.hidden_units, model.hidden_bias)
    counts = [np.bincount(units.owners(len(bias)), minlength=units.variables(len(bias))) for units, bias in sides]
    return np.concatenate([[0], np.cumsum(np.concatenate(counts))])


def prepare(plan: Plan) -> Prepared:
    """Convert a plan to the arguments of the kernel."""
    path, model = plan.path.spins, plan.path.end
    dtype = np.float32 if plan.placement.precision == "single" else np.float64
    starts, n = _starts(plan), model.n_visible
    slopes, bases = np.concatenate([path.slope_v, path.slope_h]), np.concatenate([path.base_v, path.base_h])
    pull = None
    if path.component_fields is not None and path.component_hidden is not None:
        pull = np.concatenate([path.component_fields, path.component_hidden], axis=1)
    rows = _rows(path.weights, path.lateral, slopes, starts, n, pull, dtype)
    arguments = CategoricalArguments(
        starts,
        n,
        rows,
        bases.astype(dtype),
        plan.betas.astype(dtype),
        np.diff(plan.betas),
        np.uint64(plan.chains.seed),
        (HIDDEN, VISIBLE) if plan.path.is_turned else (VISIBLE, HIDDEN),
        None if pull is None else _drawn(plan, pull, bases, starts, dtype),
    )
    widths = np.repeat([row_width(int(x)) for x in np.diff(starts)], np.diff(rows.begin))
    return Prepared(
        arguments,
        len(path.base_v),
        dtype,
        path.constants(plan.betas),
        path.offset,
        path.scale,
        int(np.maximum(widths, LANES).sum()) * _PER_ROW // LANES + 60 * int(starts[-1]),
        chains_together(len(starts) - 1, 4),
        _FEWEST_TOGETHER,
    )


def _rows(
    weights: Any, lateral: Any, slopes: Array, starts: Indices, n: int, pull: Array | None, dtype: type
) -> RowTables:
    """Return the tables of all variables: of the neighbours of each in ascending order, and of the component.

    The fields of the components of a mixture, `pull`, vanish along the path.
    """
    features, owners = int(starts[n]), np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    if lateral is None:
        lateral = sp.csr_array((features, features))
    into_visible = (sp.hstack if sp.issparse(weights) or sp.issparse(lateral) else np.hstack)([lateral, weights])
    into_hidden = weights.T
    if sp.issparse(weights):
        into_visible, into_hidden = sp.csr_array(into_visible), sp.csr_array(into_hidden)
    counts, found = np.diff(starts), _Tables(dtype)
    for variable, (first, last) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        block = into_visible[first:last] if variable < n else into_hidden[first - features : last - features]
        used = np.unique(owners[block.nonzero()[1]])
        chosen: Any = block[:, np.isin(owners[: block.shape[1]], used)]
        into, sizes = (chosen.toarray() if sp.issparse(chosen) else chosen).T, counts[used]
        before = int((used < min(variable, n)).sum())
        if pull is not None:
            into = np.concatenate([into, -pull[:, first:last]])
            used, sizes = np.append(used, len(counts)), np.append(sizes, len(pull))
        found.add(slopes[first:last], into, used, sizes, before)
    return found.rows()


def _drawn(plan: Plan, pull: Array, bases: Array, starts: Indices, dtype: type) -> Drawn:
    """Return the component of a mixture, whose fields on all variables are `pull`, as a variable."""
    mixture, counts = plan.path.mixture, np.diff(starts)
    assert mixture is not None
    exponents, fields = _Tables(dtype), _Tables(dtype)
    own = plan.path.spins.component_weights
    exponents.add(own, pull.T, np.arange(len(counts)), counts, plan.path.end.n_visible)
    at, number = np.array([len(counts)]), np.array([len(pull)])
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        fields.add(bases[first:last], pull[:, first:last], at, number, 0)
    kept: np.ndarray = mixture.log_kept.astype(dtype)
    return Drawn(len(pull), kept, exponents.rows(), fields.rows(), int(mixture.drawn_last))


class _Tables:
    """Tables of one variable after the other."""

    def __init__(self, dtype: type) -> None:
        self.dtype, self.size = dtype, 0
        self.parts: list[np.ndarray] = []
        self.tables: list[int] = []
        self.places: list[int] = []
        self.strides: list[int] = []
        self.begin, self.middle = [0], list[int]()

    def add(self, own: Any, into: Array, neighbours: Indices, sizes: Indices, before: int) -> None:
        """Add the tables of a variable: its own fields, and the couplings [state of a neighbour, state].

        The tables of the first `before` neighbours belong to the part of the sum that is needed by itself.
        """
        width = row_width(len(own))
        table: np.ndarray = np.zeros((1 + len(into), width), dtype=self.dtype)
        table[0, : len(own)], table[1:, : len(own)] = own, into
        at = np.cumsum(np.concatenate([[1], sizes]))[:-1]
        self.tables += [self.size, *(self.size + width * at).tolist()]
        self.places += [0, *(neighbours * LANES).tolist()]
        self.strides += [0, *[width] * len(neighbours)]
        self.middle.append(self.begin[-1] + 1 + before)
        self.begin.append(len(self.tables))
        self.parts.append(table.ravel())
        self.size += table.size

    def rows(self) -> RowTables:
        """Return the arrays for the kernel."""
        values = aligned((self.size,), self.dtype)
        np.concatenate(self.parts, out=values)
        numbers: list[Indices] = [np.array(x, np.int64) for x in (self.begin, self.middle, self.tables, self.places)]
        return RowTables(*numbers, np.array(self.strides, dtype=np.uint32), values)  # type: ignore[call-arg]


class Population(factor_tables.Population):
    """Blocks of LANES chains, whose states are numbers, and which draw each variable together."""

    def _allocate(self, blocks: int, joint: bool) -> None:
        model: Any = self.prepared.arguments
        most, dtype = row_width(int(np.diff(model.starts).max())), self.prepared.dtype
        variables, of = len(model.starts) - 1, int(np.diff(model.rows.begin).max())
        numbers = 3  # Arrays of a number for each state.
        if model.component is not None:
            most, of = max(most, row_width(model.component.components)), max(of, variables + 1)
            variables, numbers = variables + 1, 4
        self.x = aligned((blocks, variables, LANES), np.uint32)
        self.room = aligned((of, LANES), np.uint32), *(aligned((most, LANES), dtype) for _ in range(numbers))
        self.sums = aligned((blocks, 2, LANES), dtype)
        self.rises, self.weights = aligned((blocks, LANES), np.float64), aligned((blocks, LANES), np.float64)
        self.joint, self.drawn = (aligned((blocks, LANES), np.float64) if joint else None for _ in range(2))
        self.spins_v = self.x[:, : model.visible]
        self.full_state = None if model.component is None else self.x

    def _run_kernel(self, to_step: int) -> None:
        anneal_categorical(
            *self.prepared.arguments,
            self.first,
            self.x,
            self.room,
            self.sums,
            self.rises,
            self.weights,
            self.joint,
            self.drawn,
            self.step,
            to_step,
            self.fresh,
        )
