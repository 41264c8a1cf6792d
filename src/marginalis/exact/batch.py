"""Exact ln Z of many models: on a GPU those of one shape in one launch, on the CPU one model on each thread."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..checks import needs_gpu
from ..gpu.device import open_device
from ..models.model import MRF
from ..parallel.threads import Tick, run_jobs
from .choice import ExactLogZ, checked_value, exact_log_z
from .on_gpu import sums_on_gpu
from .ways import GpuSum, enumeration_on_gpu

Failure = ValueError | TypeError


def exact_of_many(
    models: Sequence[MRF],
    *,
    method: str = "auto",
    max_seconds: float = 3600.0,
    engine: str = "auto",
    device: int | None = None,
    threads: int = 1,
    tick: Tick = lambda fraction: None,
) -> list[ExactLogZ | Failure]:
    """Return for each model what `exact_log_z` returns for it, or the error that it raises."""
    if needs_gpu(engine):
        return _on_gpu(models, device, tick)
    found: list[Any] = [None] * len(models)

    def run(number: int) -> Iterator[float]:
        try:
            found[number] = exact_log_z(models[number], method=method, threads=1, max_seconds=max_seconds)
        except (ValueError, TypeError) as error:
            found[number] = error
        yield 1.0

    run_jobs(run, range(len(models)), max(1, len(models)), threads, tick)
    return found


def _on_gpu(models: Sequence[MRF], device: int | None, tick: Tick) -> list[ExactLogZ | Failure]:
    """Enumerate on a GPU, models of one shape together."""
    begin = time.perf_counter()
    found: list[Any] = [None] * len(models)
    groups: dict[Any, list[tuple[int, GpuSum]]] = {}
    for number, model in enumerate(models):
        try:
            own = enumeration_on_gpu(model, device)
        except (ValueError, TypeError) as error:
            found[number] = error
            continue
        groups.setdefault((own.form.weights.shape, own.units), []).append((number, own))
    for (_, units), members in groups.items():
        with np.errstate(over="ignore", invalid="ignore"):
            sums = sums_on_gpu([own.form for _, own in members], units, open_device(device), tick)
        for (number, own), value in zip(members, sums, strict=True):
            try:
                log_z = checked_value(own.constant + value, own.method, models[number].natural.offset)
            except ValueError as error:
                found[number] = error
            else:
                found[number] = ExactLogZ.of(log_z, "enumeration", 0.0, own.method.in_words)
    seconds = (time.perf_counter() - begin) / max(1, len(models))
    for value in found:
        if isinstance(value, ExactLogZ):
            value.seconds = seconds
    return found
