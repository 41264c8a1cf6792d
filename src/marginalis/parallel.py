"""Independent jobs on threads, with progress and a prompt stop. Kernels release the GIL."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TypeVar

from .checks import whole

Job = TypeVar("Job")
Tick = Callable[[float], None]


def cores(threads: int | None) -> int:
    """Return `threads`, or the number of cores this process may use."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return whole(threads, "threads", 1, 4096)


def run_jobs(
    work: Callable[[Job], Iterator[float]], jobs: Iterable[Job], total: float, threads: int, tick: Tick
) -> None:
    """Exhaust ``work(job)`` for every job; what it yields is progress out of `total`, heard by `tick`.

    Jobs must not depend on each other. When one raises, or the caller is interrupted, the others stop at
    their next yield.
    """
    done = 0.0
    if threads == 1:
        for job in jobs:
            for amount in work(job):
                done += amount
                tick(done / total)
        return

    stop, lock = threading.Event(), threading.Lock()

    def exhaust(job: Job) -> None:
        nonlocal done
        if stop.is_set():
            return
        for amount in work(job):
            with lock:
                done += amount
            if stop.is_set():
                return

    with ThreadPoolExecutor(threads) as pool:
        try:
            pending = {pool.submit(exhaust, job) for job in jobs}
            while pending:
                finished, pending = wait(pending, timeout=0.1, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                tick(done / total)
        finally:
            stop.set()
