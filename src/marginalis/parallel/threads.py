"""Independent jobs on threads, with progress and a prompt stop. Kernels release the GIL."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..checks import whole

Job = TypeVar("Job")
Result = TypeVar("Result")
Tick = Callable[[float], None]

THREADS = "MARGINALIS_THREADS"  # the environment variable
_CGROUP = Path("/sys/fs/cgroup")
_PATIENCE = 0.5  # seconds that an interrupt waits for the threads


def cores(threads: int | None) -> int:
    """Return `threads`, or what the environment variable says, or the number of cores this process may use."""
    if threads is not None:
        return whole(threads, "threads", 1, 4096)
    word = os.environ.get(THREADS, "").strip()
    if word:
        return whole(int(word) if word.isdecimal() and len(word) < 10 else word, THREADS, 1, 4096)
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([there, *_allotted()])


def _allotted() -> Iterator[int]:
    """Give the cores that Slurm and the quota of a container leave to this process, where they say so."""
    with contextlib.suppress(ValueError):
        yield max(1, int(os.environ.get("SLURM_CPUS_PER_TASK", "")))
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):  # of both versions of cgroups
        with contextlib.suppress(ValueError, OSError):
            quota, period = (int(x) for name in names for x in (_CGROUP / name).read_text().split())
            if quota > 0 < period:
                yield math.ceil(quota / period)


def jit_is_off() -> bool:
    """Whether the caller has told Numba not to compile: then there are no kernels."""
    try:
        return bool(int(os.environ.get("NUMBA_DISABLE_JIT") or 0))
    except ValueError:  # Numba does not heed it either
        return False


def interruptible(work: Callable[..., Result], *args: Any) -> Result:
    """Return work(*args), done on another thread while this one stays open to Ctrl-C.

    For calls that a signal cannot reach: after an interrupt they end by themselves, and nobody waits.
    """
    if threading.current_thread() is not threading.main_thread():
        return work(*args)
    results: list[Result] = []
    failures: list[BaseException] = []
    state = np.geterr()  # threads do not inherit it

    def run() -> None:
        try:
            with np.errstate(**state):
                results.append(work(*args))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    if failures:
        raise failures[0]
    return results[0]


def run_jobs(
    work: Callable[[Job], Iterator[float]],
    jobs: Iterable[Job],
    total: float,
    threads: int,
    tick: Tick,
    stop: threading.Event | None = None,
) -> None:
    """Exhaust ``work(job)`` for every job; what it yields is progress out of `total`, heard by `tick`.

    Jobs must not depend on each other. When one raises, or the caller is interrupted, the others stop at
    their next yield; those that yield seldom may look at `stop`. Those that do not are not waited for long.
    """
    done = 0.0
    if threads == 1:
        for job in jobs:
            for amount in work(job):
                done += amount
                tick(done / total)
        return

    patience = _PATIENCE if stop is None else threading.TIMEOUT_MAX
    queue, stop, lock = iter(jobs), stop or threading.Event(), threading.Lock()
    failures: list[BaseException] = []
    state = np.geterr()  # threads do not inherit it

    def worker() -> None:
        with np.errstate(**state):
            take_jobs()

    def take_jobs() -> None:
        nonlocal done
        try:
            while not stop.is_set():
                with lock:
                    job = next(queue, None)
                if job is None:
                    return
                for amount in work(job):
                    with lock:
                        done += amount
                    if stop.is_set():
                        return
        except BaseException as error:
            failures.append(error)
            stop.set()

    workers = [threading.Thread(target=worker, daemon=True) for _ in range(threads)]
    try:
        for thread in workers:
            thread.start()
        while any(thread.is_alive() for thread in workers):
            for thread in workers:
                thread.join(0.1 / threads)
            tick(done / total)
        tick(done / total)  # however fast they were
    finally:
        stop.set()
        deadline = time.monotonic() + patience  # a step of a huge model may take seconds, and ends by itself
        for thread in workers:
            if thread.ident is not None:
                thread.join(min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))
    if failures:
        raise failures[0]
