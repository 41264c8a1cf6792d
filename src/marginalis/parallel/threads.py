"""Running independent jobs on threads, with progress and prompt interruption; the kernels release the GIL."""

from __future__ import annotations

import contextlib
import logging
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

logger = logging.getLogger("marginalis")

THREADS = "MARGINALIS_THREADS"  # The environment variable that sets the default number of threads.
_CGROUP = Path("/sys/fs/cgroup")
_PATIENCE = 0.5  # Seconds that an interrupted run waits for its threads.


def cores(threads: int | None) -> int:
    """Return `threads`, else the value of the environment variable, else the number of cores this process may use."""
    if threads is not None:
        return whole(threads, "threads", 1, 4096)
    word = os.environ.get(THREADS, "").strip()
    if word:
        return whole(int(word) if word.isdecimal() and len(word) < 10 else word, THREADS, 1, 4096)
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([there, *_allotted()])


def _allotted() -> Iterator[int]:
    """Yield the numbers of cores that Slurm and the container's quota grant to this process, if they are set."""
    with contextlib.suppress(ValueError):
        yield max(1, int(os.environ.get("SLURM_CPUS_PER_TASK", "")))
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):  # cgroups version 2, then 1.
        with contextlib.suppress(ValueError, OSError):
            quota, period = (int(x) for name in names for x in (_CGROUP / name).read_text().split())
            if quota > 0 < period:
                yield math.ceil(quota / period)


def started(work: Callable[[], None], threads: int) -> list[threading.Thread]:
    """Return threads that do `work`: as many as asked for, or as the system allows, which is at least one."""
    running: list[threading.Thread] = []
    for _ in range(threads):
        thread = threading.Thread(target=work, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # The memory or the number of processes is limited.
            if not running:
                raise MemoryError("the system cannot start a thread") from None
            logger.info("the system could start only %d threads of %d", len(running), threads)
            break
        running.append(thread)
    return running


def jit_is_off() -> bool:
    """Whether Numba's compilation is switched off by the environment, so that there are no kernels."""
    try:
        return bool(int(os.environ.get("NUMBA_DISABLE_JIT") or 0))
    except ValueError:  # Numba ignores such a value, too.
        return False


def interruptible(work: Callable[..., Result], *args: Any) -> Result:
    """Return work(*args), run on another thread so that Ctrl-C interrupts the caller at once.

    It serves calls that do not return to Python for a long time. After an interrupt such a call goes on in its daemon
    thread until it ends, without anything waiting for it.
    """
    if threading.current_thread() is not threading.main_thread():
        return work(*args)
    results: list[Result] = []
    failures: list[BaseException] = []
    state = np.geterr()  # NumPy keeps it per thread.

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
    """Exhaust the iterator ``work(job)`` for every job; it yields amounts of progress, which add up to `total`.

    `tick` receives the progress of all jobs, from 0 to 1. Jobs must be independent. When one raises, or the caller is
    interrupted, the others stop at their next yield; a job that rarely yields may watch the event `stop`, and without
    that event the caller waits for it only briefly.
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
    state = np.geterr()  # NumPy keeps it per thread.

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

    workers: list[threading.Thread] = []
    try:
        workers += started(worker, threads)
        while any(thread.is_alive() for thread in workers):
            for thread in workers:
                thread.join(0.1 / threads)
            tick(done / total)
        tick(done / total)  # The last report is always made, even if all jobs ended within one interval.
    finally:
        stop.set()
        deadline = time.monotonic() + patience  # A step of a very large model may take seconds; it is not waited for.
        for thread in workers:
            thread.join(min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))
    if failures:
        raise failures[0]
