"""The fast engine: plans laid out for `anneal_kernel`, and its blocks of chains spread over threads."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...models.model import BipartiteMRF, total
from ...models.units import Array
from ...parallel.threads import Tick, run_jobs
from ...random import HIDDEN, VISIBLE
from ...sampling.base import Base
from ...sampling.plan import Plan
from ...sampling.recorder import Watch
from ...simd.draws import TILE
from ...simd.vector import LANES, aligned
from .anneal_kernel import anneal_blocks

logger = logging.getLogger("marginalis")

_CALL_OPERATIONS = 5e8  # multiply-adds per kernel call: some ten milliseconds, so that an interrupt is prompt
_JOB_BYTES = 1 << 20  # states of the blocks of one job


@dataclass(frozen=True)
class _Prepared:
    """A plan in the kernel's terms."""

    kernel_args: tuple[Any, ...]  # flips … sides
    n_visible: int
    rows_v: int
    rows_h: int
    dtype: type
    constant: float  # what the change to spins adds to every log-weight, per unit of β
    spin: tuple[float, float]  # a visible unit is spin[0] + spin[1]·(±1)
    operations: int  # rough cost of one chain·step, in multiply-adds


def _prepare(plan: Plan) -> _Prepared:
    model, base, swap = plan.oriented()
    form = model.spin_form
    assert form is not None
    v, h = model.visible_units, model.hidden_units
    b0, c0 = _spin_base(model, base)
    constant = form.constant - v.offset * total(base.visible) - h.offset * total(base.hidden)  # type: ignore[attr-defined]
    dtype = np.float32 if takes_single(plan) else np.float64

    def pad(x: Array) -> np.ndarray:
        return np.pad(x, (0, -len(x) % TILE)).astype(dtype)

    uniform, metropolis = base.is_uniform, plan.transition == "metropolis"
    gap_v, gap_h = pad(form.visible_bias - b0), pad(form.hidden_bias - c0)
    up = _pack(form.weights, dtype)
    args = (
        _flips(form.weights, up, dtype) if metropolis else None,
        plan.sweeps,
        up,
        _pack(form.weights.T, dtype),
        gap_v,
        gap_h,
        None if uniform else pad(b0),
        None if uniform else pad(c0),
        plan.betas.astype(dtype),
        np.diff(plan.betas),
        np.uint64(plan.seed),
        (HIDDEN, VISIBLE) if swap else (VISIBLE, HIDDEN),
    )
    entries = form.weights.nnz if sp.issparse(form.weights) else form.weights.size
    operations = (2 + 20 * plan.sweeps) * entries + 40 * model.n_variables
    spin = v.offset, v.scale  # type: ignore[attr-defined]
    return _Prepared(args, model.n_visible, len(gap_v), len(gap_h), dtype, constant, spin, operations)


def _spin_base(model: BipartiteMRF, base: Base) -> tuple[Array, Array]:
    """Return the fields of a base on spins."""
    return model.visible_units.scale * base.visible, model.hidden_units.scale * base.hidden  # type: ignore[attr-defined]


def takes_single(plan: Plan) -> bool:
    """Whether the plan is run in single precision: asked for, and good enough."""
    model, base, _ = plan.oriented()
    return plan.precision == "single" and not _single_is_poor(model.spin_form, *_spin_base(model, base), plan.steps)


def _single_is_poor(form: Any, b0: Array, c0: Array, steps: int) -> bool:
    """Whether float32 would spoil the weights.

    Fields of size a cost a log-weight about 2^-24·a each, which is too much beyond 0.001 in all. At the other
    end the log-weights of weakly coupled spins spread by no more than about Σw²/√K, beside which the rounding
    of every step must not show.
    """
    w = form.weights
    gaps = form.visible_bias - b0, form.hidden_bias - c0
    reach = abs(w)
    largest = np.concatenate(
        [
            np.maximum(np.abs(b0), np.abs(form.visible_bias) + np.asarray(reach.sum(axis=1)).ravel()),
            np.maximum(np.abs(c0), np.abs(form.hidden_bias) + np.asarray(reach.sum(axis=0)).ravel()),
        ]
    )
    if float(np.linalg.norm(np.minimum(largest, 1e9))) * 2.0**-24 > 1e-3:
        return True
    squares = sum(float(np.square(x).sum()) for x in (w.data if sp.issparse(w) else w, *gaps))
    return squares < 0.03 * math.sqrt(steps)


_WORTH_FILLING = 0.25  # a band is faster than lists of neighbours if at least this part of it is not zero


def _pack(weights: Any, dtype: type) -> tuple[np.ndarray, ...]:
    """Weights from the rows' side into the columns' side, in the order the kernel reads them.

    Either (data, first, last, begin), a band of inputs for each tile of columns, or (indptr, indices, data),
    a list of neighbours for each column.
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
    indptr = np.pad(into.indptr, (0, -columns % TILE), mode="edge").astype(np.int64)
    # the indices of a column are sorted: its inputs reach from the first to the last of them
    ends = np.concatenate([into.indices, [0]])
    some = np.diff(indptr) > 0
    first = np.where(some, ends[indptr[:-1]], rows).reshape(tiles, TILE).min(axis=1).astype(np.int64)
    last = np.where(some, ends[indptr[1:] - 1] + 1, 0).reshape(tiles, TILE).max(axis=1).astype(np.int64)
    width = np.maximum(last - first, 0)
    if into.nnz < _WORTH_FILLING * TILE * width.sum():
        return _lists(into, dtype)
    begin = np.concatenate([[0], np.cumsum(width * TILE)])
    data = np.zeros(begin[-1], dtype=dtype)
    unit = np.arange(columns)
    tile = unit // TILE
    shift = begin[tile] - first[tile] * TILE + unit % TILE
    data[np.repeat(shift, np.diff(into.indptr)) + into.indices.astype(np.int64) * TILE] = into.data
    return data, first, last, begin


def _flips(weights: Any, up: tuple[np.ndarray, ...], dtype: type) -> tuple[np.ndarray, ...]:
    """Weights as the Metropolis sweeps read them: full bands as they are, anything else as lists."""
    if len(up) == 3 or ((up[1] == 0).all() and (up[2] == weights.shape[0]).all()):
        return up
    return _lists(sp.csr_array(weights.T), dtype)


def _lists(into: Any, dtype: type) -> tuple[np.ndarray, ...]:
    """(indptr, indices, data) of a CSR matrix, its rows padded to whole tiles."""
    indptr = np.pad(into.indptr, (0, -into.shape[0] % TILE), mode="edge").astype(np.int64)
    return indptr, into.indices.astype(np.int64), into.data.astype(dtype)


def anneal(plan: Plan, threads: int, tick: Tick, watch: Watch | None = None) -> tuple[Array, Array | None]:
    """Return ln Λ of every chain for the annealed part of the plan and, if the method is AIS, ln W.

    AIS takes the path of mAIS-V, so that both come from one run. `tick` hears the fraction done.
    """
    prepared = _prepare(plan)
    joint = plan.method == "ais"
    _compile(prepared, joint)
    out = np.empty((2 if joint else 1, plan.chains))
    per_block = (prepared.rows_v + prepared.rows_h) * LANES * np.dtype(prepared.dtype).itemsize
    blocks = -(-plan.chains // LANES)
    # a watched run stops often: larger jobs keep the kernel calls long
    job_blocks = max(1, min(_JOB_BYTES // per_block, -(-blocks // (4 * threads if watch is None else threads))))
    constants = prepared.constant * (plan.betas - plan.betas[0])

    def job(first: int) -> Iterator[int]:
        """Anneal blocks first, first+1, …; yields the number of block·steps done by each kernel call."""
        count = min(job_blocks, blocks - first)
        rows = count + (count % 2 if plan.sweeps else 0)  # Metropolis sweeps take blocks in pairs
        state = _state(prepared, rows, joint)
        part = slice(first * LANES, min((first + count) * LANES, plan.chains))
        if plan.start is not None:
            _set_visible(state[0], plan.start[part], prepared)
        first_chain = np.uint64(plan.first_chain + first * LANES)
        stride = max(1, int(_CALL_OPERATIONS / (prepared.operations * LANES * count)))
        k = 0
        while k < plan.steps:
            stop = min(k + stride, plan.steps if watch is None else watch.next_stop(k, plan.steps))
            anneal_blocks(*prepared.kernel_args, first_chain, *state, (k, stop, int(k == 0 and plan.start is None)))
            if watch is not None and stop in watch:
                weights = state[3 if joint else 2].ravel()[: part.stop - part.start] + constants[stop]
                watch.note(stop, part, weights, _visible(state[0], part, prepared) if watch.looks else None)
            yield (stop - k) * count
            k = stop
        for done, weights in zip(out, state[2:], strict=False):
            done[part] = weights.ravel()[: part.stop - part.start] + constants[-1]

    run_jobs(job, range(0, blocks, job_blocks), plan.steps * blocks, threads, tick)
    return out[0], out[1] if joint else None


def _set_visible(spins: np.ndarray, start: Array, prepared: _Prepared) -> None:
    """Put given states of the sampled side, [chain, unit], in the kernel's place for them."""
    offset, scale = prepared.spin
    padded = np.ones((spins.shape[0] * LANES, prepared.rows_v))
    padded[: len(start), : prepared.n_visible] = (start - offset) / scale
    spins[:] = padded.reshape(spins.shape[0], LANES, prepared.rows_v).transpose(0, 2, 1)


def _visible(spins: np.ndarray, part: slice, prepared: _Prepared) -> Array:
    """Return the states of the sampled side, [chain, unit], in the model's units."""
    offset, scale = prepared.spin
    rows = spins.transpose(0, 2, 1).reshape(-1, prepared.rows_v)[: part.stop - part.start, : prepared.n_visible]
    return offset + scale * rows.astype(np.float64)


def _state(prepared: _Prepared, blocks: int, joint: bool) -> tuple[Any, ...]:
    """States of both sides and log-weights (those of AIS last) of some blocks."""
    return (
        aligned((blocks, prepared.rows_v, LANES), prepared.dtype),
        aligned((blocks, prepared.rows_h, LANES), prepared.dtype),
        aligned((blocks, LANES), np.float64),
        aligned((blocks, LANES), np.float64) if joint else None,
    )


def _compile(prepared: _Prepared, joint: bool) -> None:
    """Compile or fetch from the cache on disk what this plan needs; a slow start is announced once."""
    notice = threading.Timer(0.8, _announce)
    notice.start()
    try:
        anneal_blocks(*prepared.kernel_args, np.uint64(0), *_state(prepared, 0, joint), (0, 0, 0))
    finally:
        notice.cancel()


@cache
def _announce() -> None:
    logger.info("compiling the kernels for this kind of model (some seconds, kept for the next run)")
