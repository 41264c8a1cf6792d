"""Couplings in the order in which the kernels read them: bands of inputs for each tile of units, or lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ...simd.draws import TILE

_WORTH_FILLING = 0.25  # A band is faster than lists of neighbours if at least this fraction of it is not zero.


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
    """Whether `pack` returns bands for these sparse weights."""
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
