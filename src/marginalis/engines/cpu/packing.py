"""Plans of spins as arguments of the kernels: the couplings in the order in which they are read, and the fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ...checks import Array
from ...paths.path import SpinPath
from ...random import HIDDEN, VISIBLE
from ...simd.cache import kernel
from ...simd.draws import TILE
from ...simd.lookup import COLUMNS, SPINS
from ..plan import Plan
from .population import Prepared, chains_together
from .tables_kernel import PANEL

_UNITS = PANEL * TILE
_WORTH_FILLING = 0.25  # A band is faster than lists of neighbours if at least this fraction of it is not zero.


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


def pack(weights: Any, dtype: type) -> tuple[np.ndarray, ...]:
    """Return weights from the rows' side into the columns' side, in the order in which the kernel reads them.

    The result is (data, first, last, begin), a band of inputs for each tile of columns, or (indptr, indices, data), a
    list of neighbours for each column.
    """
    rows, columns = weights.shape
    tiles = -(-columns // TILE)
    if not sp.issparse(weights):
        first, last = np.zeros(tiles, dtype=np.int64), np.full(tiles, rows)
        padded: np.ndarray = np.pad(weights, ((0, 0), (0, -columns % TILE))).astype(dtype)
        data = padded.reshape(rows, tiles, TILE).transpose(1, 0, 2).ravel()
        return data, first, last, np.arange(tiles + 1) * (rows * TILE)
    into = sp.csr_array(weights.T)
    into.sort_indices()
    band = _band(into)
    if band is None:
        return _lists(into, dtype)
    first, last = band
    width = np.maximum(last - first, 0)
    begin = np.concatenate([[0], np.cumsum(width * TILE)])
    data = np.zeros(begin[-1], dtype=dtype)
    unit = np.arange(columns)
    tile = unit // TILE
    shift = begin[tile] - first[tile] * TILE + unit % TILE
    data[np.repeat(shift, np.diff(into.indptr)) + into.indices.astype(np.int64) * TILE] = into.data
    return data, first, last, begin


def is_band(weights: Any) -> bool:
    """Whether `pack` returns bands for these weights."""
    if not sp.issparse(weights):
        return True
    into = sp.csr_array(weights.T)
    into.sort_indices()
    return _band(into) is not None


def _band(into: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the first input of each tile of rows of a CSR matrix and the one after its last, or None for lists."""
    columns, rows = into.shape
    indptr = np.pad(into.indptr, (0, -columns % TILE), mode="edge").astype(np.int64)
    # The indices of a row are sorted, so its inputs reach from the first of them to the last.
    ends = np.concatenate([into.indices, [0]])
    some = np.diff(indptr) > 0
    first = np.where(some, ends[indptr[:-1]], rows).reshape(-1, TILE).min(axis=1).astype(np.int64)
    last = np.where(some, ends[indptr[1:] - 1] + 1, 0).reshape(-1, TILE).max(axis=1).astype(np.int64)
    filled = into.nnz >= _WORTH_FILLING * TILE * np.maximum(last - first, 0).sum()
    return (first, last) if filled else None


def pack_flips(weights: Any, up: tuple[np.ndarray, ...], dtype: type) -> tuple[np.ndarray, ...]:
    """Return weights for the Metropolis sweeps: full bands as they are, everything else as lists."""
    if len(up) == 3 or ((up[1] == 0).all() and (up[2] == weights.shape[0]).all()):
        return up
    return _lists(sp.csr_array(weights.T), dtype)


def _lists(into: Any, dtype: type) -> tuple[np.ndarray, ...]:
    """Return (indptr, indices, data) of a CSR matrix, with rows padded to whole tiles."""
    indptr = np.pad(into.indptr, (0, -into.shape[0] % TILE), mode="edge").astype(np.int64)
    return indptr, into.indices.astype(np.int64), into.data.astype(dtype)


def pack_lists(weights: Any, dtype: type) -> tuple[np.ndarray, ...]:
    """Return weights as `pack` does, but always as lists of neighbours."""
    into = sp.csr_array(sp.csr_array(weights).T)
    into.sort_indices()
    return _lists(into, dtype)


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
    panels = -(-columns // _UNITS)
    inputs = np.zeros((panels, 2), dtype=np.int64)
    begin = np.zeros(panels + 1, dtype=np.int64)
    parts = []
    for panel in range(panels):
        of = slice(_UNITS * panel, min(_UNITS * (panel + 1), columns))
        tiles = -(-(of.stop - of.start) // TILE)
        part = into[:, of].toarray() if sparse else into[:, of]
        some = np.flatnonzero(part.any(axis=1)) if sparse else np.array([0, rows - 1])
        low, high = (some[0] // SPINS, some[-1] // SPINS + 1) if len(some) else (0, 0)
        inputs[panel] = low, high
        made = np.zeros((tiles, high - low, SPINS + 1, COLUMNS), dtype=np.int32)
        _fill(np.ascontiguousarray(part[low * SPINS : high * SPINS]), scales[of], made)
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


@kernel()
def _fill(band, scales, made):
    """Round the weights times their unit's scale; `made` receives the sum of every four, and −2 times each of them."""
    for unit in range(band.shape[1]):
        tile, column = unit // COLUMNS, unit % COLUMNS
        for i in range(band.shape[0]):
            whole = np.int32(np.rint(band[i, unit] * scales[unit]))
            made[tile, i // SPINS, 0, column] += whole
            made[tile, i // SPINS, 1 + i % SPINS, column] = -2 * whole
