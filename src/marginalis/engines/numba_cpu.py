"""The fast engine: blocks of LANES chains annealed from β = 0 to β = 1 inside the cache, one block per thread.

A block's state is laid out [unit][lane], so a unit's spins over the chains of a block are one SIMD vector.
Units come in tiles of four: four fields are accumulated in registers, and one Philox call serves their four
draws. With e = exp(−2|a|) computed once per unit the draw needs no division, and ln 2cosh a = |a| + ln(1+e)
needs only the product of (1+e), of which one logarithm is taken per 64 units.

All two-state units are spins here (`BipartiteMRF.spin_form`); the arithmetic is otherwise that of `annealing`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit, uint64
from numba.extending import overload

from ..parallel import Tick, run_jobs
from ..plan import Plan
from ..random import HIDDEN, JOINT, KEY_STEPS, MASK, MULTIPLIERS, VISIBLE
from ..units import Array
from .simd import (
    LANES,
    absolute,
    aligned,
    draw_spin,
    exp2_nonpositive,
    fma,
    lane_numbers,
    load,
    log,
    rise,
    splat,
    store,
    widen,
)

logger = logging.getLogger("marginalis")

TILE = 4  # units per Philox call
FLUSH = 16  # tiles per logarithm: a product of 64 factors in [1, 2] stays in float32 range
_M0, _M1 = (np.uint64(m) for m in MULTIPLIERS)
_W0, _W1 = (np.uint64(w) for w in KEY_STEPS)
_LOW, _32 = np.uint64(MASK), np.uint64(32)
_MINUS_2_LOG2_E = -2.0 / math.log(2.0)
_INLINE = {"nogil": True, "error_model": "numpy", "forceinline": True}


@njit(**_INLINE)
def _philox(chain, step, group, side, k0, k1):
    """Philox-4x32-10 at the counters (chain, step, group, side); only `chain` differs between lanes.

    The first two rounds are spelled out: what is the same in all lanes is scalar there, and the two
    products that depend on the chain alone leave the loops over steps and units.
    """
    p0 = (chain & _LOW) * _M0
    s1 = group * _M1
    s0 = ((s1 >> _32) ^ step ^ k0) * _M0
    p1 = (((p0 >> _32) ^ (side ^ k1)) & _LOW) * _M1
    k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    c0 = (p1 >> _32) ^ ((s1 & _LOW) ^ k0)
    c1 = p1
    c2 = (p0 & _LOW) ^ ((s0 >> _32) ^ k1)
    c3 = splat(s0)
    for _ in range(8):
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
        p0 = (c0 & _LOW) * _M0
        p1 = (c2 & _LOW) * _M1
        c0 = (p1 >> _32) ^ c1 ^ k0
        c2 = (p0 >> _32) ^ c3 ^ k1
        c1 = p1
        c3 = p0
    return c0, c1, c2, c3


def _fields(coupling, state, offset, tile, start):
    """Fields of the four units of a tile: start + Σ weight·state of the other side."""
    raise NotImplementedError


@overload(_fields, jit_options=_INLINE)
def _fields_overload(coupling, state, offset, tile, start):
    if not hasattr(coupling, "ndim"):
        return _fields_sparse
    return _fields_dense


def _fields_dense(coupling, state, offset, tile, start):
    # coupling[tile, other unit, unit in tile]
    a0, a1 = splat(start[TILE * tile]), splat(start[TILE * tile + 1])
    a2, a3 = splat(start[TILE * tile + 2]), splat(start[TILE * tile + 3])
    for i in range(coupling.shape[1]):
        x = load(state, offset + i * LANES)
        a0 = fma(coupling[tile, i, 0], x, a0)
        a1 = fma(coupling[tile, i, 1], x, a1)
        a2 = fma(coupling[tile, i, 2], x, a2)
        a3 = fma(coupling[tile, i, 3], x, a3)
    return a0, a1, a2, a3


def _fields_sparse(coupling, state, offset, tile, start):
    unit = TILE * tile
    return (
        _row(coupling, state, offset, unit, start),
        _row(coupling, state, offset, unit + 1, start),
        _row(coupling, state, offset, unit + 2, start),
        _row(coupling, state, offset, unit + 3, start),
    )


@njit(**_INLINE)
def _row(coupling, state, offset, unit, start):
    indptr, indices, data = coupling
    a = splat(start[unit])
    for p in range(indptr[unit], indptr[unit + 1]):
        a = fma(data[p], load(state, offset + indices[p] * LANES), a)
    return a


@njit(**_INLINE)
def _under(base, beta, gap, unit):
    """Return base + β·gap, the field of a unit under β. (The added zero keeps −0 from deciding a sign.)"""
    if base is None:
        return fma(gap, beta, 0.0)
    return fma(gap, beta, splat(base[unit]))


@njit(**_INLINE)
def _boltzmann(a):
    """e = exp(−2|a|)."""
    return exp2_nonpositive(absolute(a) * _MINUS_2_LOG2_E)


@njit(**_INLINE)
def _weigh(joint, base, beta, beta_before, per_step, gap, unit, word, linear, top, bottom):
    """Add one summed-out unit to the weight of step k. Returns its field under β_k, e, and the sums.

    mAIS adds ln 2cosh a_k − ln 2cosh a_{k−1}; AIS draws h from P_{k−1}(h|v) and adds h·gap.
    """
    now = _under(base, beta, gap, unit)
    before = _under(base, beta_before, gap, unit)
    e = _boltzmann(now)
    e_before = _boltzmann(before)
    if joint is None:
        if base is None:
            linear = linear + absolute(gap)
        else:
            linear = linear + rise(now, before, gap, per_step)
        top = fma(top, e, top)
        bottom = fma(bottom, e_before, bottom)
    else:
        linear = fma(draw_spin(before, e_before, word), gap, linear)
    return now, e, linear, top, bottom


@njit(**_INLINE)
def _words(joint, chain, step, tile, k0, k1):
    """Random bits for the h of the joint state, drawn at the end of the step before."""
    if joint is None:
        z = splat(uint64(0))
        return z, z, z, z
    return _philox(chain, step, tile, uint64(JOINT), k0, k1)


@njit(nogil=True, error_model="numpy", cache=True)
def _anneal(
    joint,
    up,
    down,
    gap_v,
    gap_h,
    base_v,
    base_h,
    betas,
    differences,
    seed,
    sides,
    first_chain,
    v,
    h,
    log_weights,
    span,
):
    """Carry the blocks in v, h and log_weights from step span[0] to step span[1] of 0 … K.

    `up` holds the weights into the summed-out side, `down` those into the sampled one. `joint` and the
    bases are None or not at compile time: mAIS or AIS, uniform base or fields.
    """
    steps = len(betas) - 1
    k0, k1 = seed & _LOW, seed >> _32
    side_v, side_h = uint64(sides[0]), uint64(sides[1])
    zero = splat(betas[0])
    one = zero + 1.0
    for block in range(v.shape[0]):
        chain = lane_numbers() + uint64(first_chain + block * LANES)
        at_v, at_h, at_w = block * v.shape[1] * LANES, block * h.shape[1] * LANES, block * LANES
        if span[0] == 0:
            for tile in range(v.shape[1] // TILE):
                words = _philox(chain, uint64(0), uint64(tile), side_v, k0, k1)
                for m in range(TILE):
                    unit = TILE * tile + m
                    a = _under(base_v, betas[0], zero, unit)
                    store(v, at_v + unit * LANES, draw_spin(a, _boltzmann(a), words[m]))
        for k in range(span[0] + 1, span[1] + 1):
            beta, beta_before, difference = betas[k], betas[k - 1], differences[k - 1]
            per_step = 1.0 / difference
            weight = load(log_weights, at_w)
            linear, top, bottom = zero, one, one
            for i in range(len(gap_v)):
                linear = fma(gap_v[i], load(v, at_v + i * LANES), linear)
                if i % (TILE * FLUSH) == TILE * FLUSH - 1:
                    weight = weight + widen(linear) * difference
                    linear = zero
            for tile in range(h.shape[1] // TILE):
                gaps = _fields(up, v, at_v, tile, gap_h)
                earlier = _words(joint, chain, uint64(k - 1), uint64(tile), k0, k1)
                words = _philox(chain, uint64(k), uint64(tile), side_h, k0, k1)
                for m in range(TILE):
                    unit = TILE * tile + m
                    a, e, linear, top, bottom = _weigh(
                        joint,
                        base_h,
                        beta,
                        beta_before,
                        per_step,
                        gaps[m],
                        unit,
                        earlier[m],
                        linear,
                        top,
                        bottom,
                    )
                    store(h, at_h + unit * LANES, draw_spin(a, e, words[m]))
                if tile % FLUSH == FLUSH - 1:
                    weight = weight + widen(linear) * difference + widen(log(top / bottom))
                    linear, top, bottom = zero, one, one
            store(log_weights, at_w, weight + widen(linear) * difference + widen(log(top / bottom)))
            if k < steps:
                for tile in range(v.shape[1] // TILE):
                    gaps = _fields(down, h, at_h, tile, gap_v)
                    words = _philox(chain, uint64(k), uint64(tile), side_v, k0, k1)
                    for m in range(TILE):
                        unit = TILE * tile + m
                        a = _under(base_v, beta, gaps[m], unit)
                        store(v, at_v + unit * LANES, draw_spin(a, _boltzmann(a), words[m]))


@dataclass(frozen=True)
class _Prepared:
    """A plan in the kernel's terms."""

    kernel_args: tuple[Any, ...]  # joint … sides
    rows_v: int
    rows_h: int
    dtype: type
    constant: float  # what the change to spins adds to every log-weight
    operations: int  # rough cost of one chain·step, in multiply-adds


def _prepare(plan: Plan) -> _Prepared:
    swap = plan.method == "mais-h"
    model = plan.model.transposed() if swap else plan.model
    base = plan.base.transposed() if swap else plan.base
    form = model.spin_form
    assert form is not None
    v, h = model.visible_units, model.hidden_units
    b0, c0 = v.scale * base.visible, h.scale * base.hidden  # type: ignore[attr-defined]
    constant = form.constant - v.offset * math.fsum(base.visible) - h.offset * math.fsum(base.hidden)  # type: ignore[attr-defined]
    dtype = np.float64 if plan.precision == "double" or _single_is_poor(form) else np.float32

    def pad(x: Array) -> np.ndarray:
        return np.pad(x, (0, -len(x) % TILE)).astype(dtype)

    uniform = base.is_uniform
    args = (
        True if plan.method == "ais" else None,
        _pack(form.weights, dtype),
        _pack(form.weights.T, dtype),
        pad(form.visible_bias - b0),
        pad(form.hidden_bias - c0),
        None if uniform else pad(b0),
        None if uniform else pad(c0),
        plan.betas.astype(dtype),
        np.diff(plan.betas),
        np.uint64(plan.seed),
        (HIDDEN, VISIBLE) if swap else (VISIBLE, HIDDEN),
    )
    entries = form.weights.nnz if sp.issparse(form.weights) else form.weights.size
    return _Prepared(args, len(args[3]), len(args[4]), dtype, constant, 2 * entries + 40 * model.n_variables)


def _single_is_poor(form: Any) -> bool:
    """Whether float32 fields would cost a log-weight more than about 0.001."""
    reach = abs(form.weights)
    largest = np.concatenate(
        [
            np.abs(form.visible_bias) + np.asarray(reach.sum(axis=1)).ravel(),
            np.abs(form.hidden_bias) + np.asarray(reach.sum(axis=0)).ravel(),
        ]
    )
    return float(np.linalg.norm(largest)) * 2.0**-24 > 1e-3


def _pack(weights: Any, dtype: type) -> Any:
    """Weights from the rows' side into the columns' side, in the order the kernel reads them."""
    rows, columns = weights.shape
    if sp.issparse(weights):
        into = sp.csr_array(weights.T)
        indptr = np.pad(into.indptr, (0, -columns % TILE), mode="edge").astype(np.int64)
        return indptr, into.indices.astype(np.int64), into.data.astype(dtype)
    padded = np.pad(weights, ((0, 0), (0, -columns % TILE))).astype(dtype)
    return np.ascontiguousarray(padded.reshape(rows, -1, TILE).transpose(1, 0, 2))


_CALL_OPERATIONS = 5e8  # multiply-adds per kernel call: some ten milliseconds, so that an interrupt is prompt
_JOB_BYTES = 1 << 20  # states of the blocks of one job


def anneal(plan: Plan, threads: int, tick: Tick) -> Array:
    """Return ln W of every chain of the plan (Z_0 left out); `tick` hears the fraction done."""
    prepared = _prepare(plan)
    _compile(prepared)
    log_weights = np.empty(plan.chains)
    per_block = (prepared.rows_v + prepared.rows_h) * LANES * np.dtype(prepared.dtype).itemsize
    blocks = -(-plan.chains // LANES)
    job_blocks = max(1, min(_JOB_BYTES // per_block, -(-blocks // (4 * threads))))

    def job(first: int) -> Iterator[int]:
        """Anneal blocks first, first+1, …; yields the number of block·steps done by each kernel call."""
        count = min(job_blocks, blocks - first)
        v = aligned((count, prepared.rows_v, LANES), prepared.dtype)
        h = aligned((count, prepared.rows_h, LANES), prepared.dtype)
        weights = aligned((count, LANES), np.float64)
        first_chain = np.uint64(plan.first_chain + first * LANES)
        stride = max(1, int(_CALL_OPERATIONS / (prepared.operations * LANES * count)))
        for k in range(0, plan.steps, stride):
            span = (k, min(k + stride, plan.steps))
            _anneal(*prepared.kernel_args, first_chain, v, h, weights, span)
            if span[1] == plan.steps:
                part = log_weights[first * LANES : (first + count) * LANES]
                part[:] = weights.ravel()[: len(part)] + prepared.constant
            yield (span[1] - span[0]) * count

    run_jobs(job, range(0, blocks, job_blocks), plan.steps * blocks, threads, tick)
    return log_weights


def _compile(prepared: _Prepared) -> None:
    """Compile or fetch from the cache on disk what this plan needs; a slow start is announced once."""
    notice = threading.Timer(
        0.8,
        logger.info,
        ["compiling the kernels for this kind of model (a few seconds, cached for the next run)"],
    )
    notice.start()
    try:
        v = aligned((0, prepared.rows_v, LANES), prepared.dtype)
        h = aligned((0, prepared.rows_h, LANES), prepared.dtype)
        _anneal(*prepared.kernel_args, np.uint64(0), v, h, aligned((0, LANES), np.float64), (0, 0))
    finally:
        notice.cancel()
