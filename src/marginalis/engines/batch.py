"""Many models at once: plans that differ in their parameters and seeds only, run together with the same bits."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import Array
from ..models.units import Units
from ..parallel.threads import Tick, run_jobs
from ..statistics.confidence import log_mean_exp
from .drive import RunResult, advance, begin
from .plan import Plan

_TOGETHER = 512  # Most models that a thread of the CPU prepares together.


def run_batch(plans: Sequence[Plan], threads: int, tick: Tick, group: int = 1) -> list[RunResult]:
    """Run all chains of plans of one shape (see `shape_of`); return for each what `drive.advance` returns for it alone.

    Every plan must have a part to anneal, and its chains must have been `started`. On the CPU every model runs on one
    thread, and small dense models are prepared together. On a GPU the models run in one launch if a kernel supports it.
    With a `group`, the results have ln of the mean weight of every so many consecutive chains.
    """
    if not plans:
        return []
    if plans[0].placement.engine == "cuda":
        return _on_gpu(plans, threads, tick, group)
    found: list[Any] = [None] * len(plans)
    size = max(1, min(_TOGETHER, len(plans) // (2 * threads)))
    parts = [range(first, min(first + size, len(plans))) for first in range(0, len(plans), size)]

    def run(part: range) -> Iterator[float]:
        for found_now in _run_some(plans[part.start : part.stop]):
            results = _means(found_now, group)
            part, own = part[len(results) :], part[: len(results)]
            found[own.start : own.stop] = results
            yield float(len(results))

    run_jobs(run, parts, len(plans), min(threads, len(parts)), tick)
    return found


def _run_some(plans: Sequence[Plan]) -> Iterator[list[RunResult]]:
    """Run plans of one shape on one core, and yield the results of one or more of them at a time."""
    stacked = None
    if len(plans) > 1 and plans[0].placement.engine == "numba":
        from . import cpu  # Numba is imported only when needed, because it takes a second to load.

        stacked = cpu.in_stacks(plans)
    if stacked is None:
        for plan in plans:
            yield [advance(plan, begin(plan), range(plan.chains.count), 1, _ignore)]
        return
    for log_weights, marginal in stacked:
        rows = [None] * len(log_weights) if marginal is None else marginal
        yield [RunResult(own, other) for own, other in zip(log_weights, rows, strict=True)]


def _on_gpu(plans: Sequence[Plan], threads: int, tick: Tick, group: int) -> list[RunResult]:
    """Run plans on their GPU: in one launch if a kernel supports them, otherwise one after the other."""
    from . import cuda  # CuPy is imported only when needed, because it takes a second to load.

    together = cuda.run_batch(plans, tick, group)
    if together is not None:
        return [RunResult(*weights) for weights in together]
    found = []
    for plan in plans:
        found += _means([advance(plan, begin(plan), range(plan.chains.count), threads, _ignore)], group)
        tick(len(found) / len(plans))
    return found


def _means(results: Sequence[RunResult], group: int) -> list[RunResult]:
    """Return results with ln of the mean weight of every `group` of consecutive chains."""
    if group == 1:
        return list(results)

    def mean(log_weights: Array | None) -> Any:
        return None if log_weights is None else log_mean_exp(log_weights.reshape(-1, group), axis=1)

    return [RunResult(mean(x.log_weights), mean(x.marginal)) for x in results]


def _ignore(fraction: float) -> None:
    """Ignore the progress of one model."""


def shape_of(plan: Plan) -> Hashable:
    """Return a key that is equal for plans which `run_batch` can run together.

    These have the same kinds of units, sizes of the sides, places of couplings, method, moves, β, chains and placement.
    Couplings, fields, temperatures and seeds may differ.
    """
    path, chains = plan.path, plan.chains
    common = plan.method, plan.move.kind, plan.move.sweeps, plan.betas.tobytes(), plan.placement
    numbers = chains.first, chains.count, chains.populations, chains.resample_below
    if path.is_exact or path.mixture is not None or path.start.is_coupled or path.end.has_terms:
        return *common, *numbers, id(plan)  # Such plans run alone.
    model = path.end
    sides = _kind(model.visible_units, model.visible_bias), _kind(model.hidden_units, model.hidden_bias)
    places = _pattern(model.weights), _pattern(model.lateral)
    return *common, *numbers, chains.start is None, path.is_turned, path.start.is_uniform, *sides, *places


def by_shape(plans: Sequence[Plan]) -> list[list[int]]:
    """Return the numbers of plans in groups of one shape."""
    groups: dict[Hashable, list[int]] = {}
    shapes: dict[int, Hashable] = {}  # Plans that are made together share the array of β, and have one shape.
    for number, plan in enumerate(plans):
        common = id(plan.betas)
        if common not in shapes:
            shapes[common] = shape_of(plan)
        groups.setdefault(shapes[common], []).append(number)
    return list(groups.values())


def _kind(units: Units, bias: Array) -> Hashable:
    """Return a key of a side: its kind of units and the number of their states, without precisions."""
    return type(units), units.offset, units.scale, len(bias), units.owners(len(bias)).tobytes()


def _pattern(couplings: Any) -> Hashable:
    """Return a key of the places of couplings."""
    if not sp.issparse(couplings):
        return None if couplings is None else couplings.shape
    places = hashlib.blake2b(digest_size=16)
    for indices in (couplings.indptr, couplings.indices):
        places.update(np.ascontiguousarray(indices, dtype=np.int64).data)
    return couplings.shape, places.digest()
