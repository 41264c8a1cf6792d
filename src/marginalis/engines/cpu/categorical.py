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


class Rows(NamedTuple):
    """Tables whose rows add up to the fields of each variable: its own fields, then one table for each neighbour."""

    begin: np.ndarray  # Where the tables of each variable begin.
    middle: np.ndarray  # Where those of its own fields and of the sampled variables before it end.
    tables: np.ndarray  # Where each table begins in the values.
    places: np.ndarray  # The place of the state of each neighbour.
    strides: np.ndarray  # The length of the rows; 0 for the own fields of a variable, which are one row.
    values: np.ndarray


class CategoricalArguments(NamedTuple):
    """A plan as arguments of the kernel."""

    starts: np.ndarray  # The first feature of every variable, and the number of features.
    visible: int  # Number of sampled variables.
    rows: Rows  # Slopes of the fields in β.
    bases: np.ndarray  # Fields at β = 0.
    betas: np.ndarray
    differences: Array  # β_k − β_{k−1}.
    seed: np.uint64
    sides: tuple[int, int]


def serves(plan: Plan) -> bool:
    """Whether all variables are categorical, with so many coupled states that adding up rows of couplings is faster.

    Paths from a base with couplings or from a mixture are excluded.
    """
    model, base = plan.path.end, plan.path.start
    if not (model.visible_units.is_one_hot and model.hidden_units.is_one_hot):
        return False
    if base.is_coupled or plan.path.mixture is not None:
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
    rows = _rows(path.weights, path.lateral, np.concatenate([path.slope_v, path.slope_h]), starts, n, dtype)
    arguments = CategoricalArguments(
        starts,
        n,
        rows,
        np.concatenate([path.base_v, path.base_h]).astype(dtype),
        plan.betas.astype(dtype),
        np.diff(plan.betas),
        np.uint64(plan.chains.seed),
        (HIDDEN, VISIBLE) if plan.path.is_turned else (VISIBLE, HIDDEN),
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


def _rows(weights: Any, lateral: Any, slopes: Array, starts: Indices, n: int, dtype: type) -> Rows:
    """Return the tables of all variables, with the neighbours of each in ascending order."""
    features, owners = int(starts[n]), np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    if lateral is None:
        lateral = sp.csr_array((features, features))
    into_visible = (sp.hstack if sp.issparse(weights) or sp.issparse(lateral) else np.hstack)([lateral, weights])
    into_hidden = weights.T
    if sp.issparse(weights):
        into_visible, into_hidden = sp.csr_array(into_visible), sp.csr_array(into_hidden)
    tables, places, strides, begin, middle = [], [], [], [0], []
    parts, size = [], 0
    for variable, (first, last) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        width = row_width(last - first)
        block = into_visible[first:last] if variable < n else into_hidden[first - features : last - features]
        used = np.unique(owners[block.nonzero()[1]])
        chosen: Any = block[:, np.isin(owners[: block.shape[1]], used)]
        table = np.zeros((1 + chosen.shape[1], width), dtype=dtype)
        table[0, : last - first] = slopes[first:last]
        table[1:, : last - first] = (chosen.toarray() if sp.issparse(chosen) else chosen).T
        at = np.cumsum(np.concatenate([[1], np.diff(starts)[used]]))[:-1] if len(used) else np.zeros(0, dtype=np.int64)
        tables += [size, *(size + width * at).tolist()]
        places += [0, *(used * LANES).tolist()]
        strides += [0, *[width] * len(used)]
        middle.append(begin[-1] + 1 + int((used < min(variable, n)).sum()))
        begin.append(len(tables))
        parts.append(table.ravel())
        size += table.size
    values = aligned((size,), dtype)
    np.concatenate(parts, out=values)
    numbers: list[Indices] = [np.array(x, dtype=np.int64) for x in (begin, middle, tables, places)]
    return Rows(*numbers, np.array(strides, dtype=np.uint32), values)  # type: ignore[call-arg]


class Population(factor_tables.Population):
    """Blocks of LANES chains, whose states are numbers, and which draw each variable together."""

    def _allocate(self, blocks: int, joint: bool) -> None:
        model: Any = self.prepared.arguments
        most, dtype = row_width(int(np.diff(model.starts).max())), self.prepared.dtype
        self.x = aligned((blocks, len(model.starts) - 1, LANES), np.uint32)
        places = aligned((int(np.diff(model.rows.begin).max()), LANES), np.uint32)
        self.room = places, *(aligned((most, LANES), dtype) for _ in range(3))
        self.sums = aligned((blocks, 2, LANES), dtype)
        self.rises, self.weights = aligned((blocks, LANES), np.float64), aligned((blocks, LANES), np.float64)
        self.joint, self.drawn = (aligned((blocks, LANES), np.float64) if joint else None for _ in range(2))
        self.spins_v = self.x[:, : model.visible]

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
