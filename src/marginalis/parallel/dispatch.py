"""The loop that sends the parts of a job to the workers of a pool until all parts are finished."""

from __future__ import annotations

import contextlib
import queue
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any

import numpy as np

from .. import __version__
from ..checks import a_kind
from .ledger import MOST_LOSSES, Ledger
from .pools import Pool, broken, check_version
from .tasks import Job, Reply, Task, packed
from .threads import Tick

_WAIT = 0.2  # Longest wait for a finished task, in seconds.
_REFRESH = 5.0  # Seconds between two calls of `refresh`.
_MOST_REQUESTS = 5  # Times that the job is sent again for one part whose worker answers that it lacks the job.


def dispatch(
    pool: Pool,
    job: Job,
    ledger: Ledger,
    receive: Callable[[range, Reply], None],
    tick: Tick,
    extra: Callable[[range], Any] = lambda part: None,
    refresh: Callable[[], None] | None = None,
) -> None:
    """Run all open parts of the ledger; `receive` is called once for every part, as soon as its result arrives.

    `extra` returns what a part needs besides the job. Parts that are lost with their worker are sent again; an error
    raised by the job itself is raised here. `refresh` is called every few seconds to mark parts that other processes
    have finished.
    """
    digest, data = packed(job)
    finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
    flying: dict[Any, range] = {}
    requests: Counter[range] = Counter()  # Number of requests for the job, by part.
    total, looked = max(1, ledger.total), time.monotonic()

    def task_of(part: range) -> Task:
        return Task(__version__, digest, part, extra(part), pool.threads, np.geterr())

    try:
        while not ledger.complete:
            workers, room = pool.workers(), pool.room()
            parts: list[range] = []
            while len(flying) + len(parts) < room and (part := ledger.take(time.monotonic(), workers)) is not None:
                parts.append(part)
            if parts:
                flying |= zip(pool.submit_all([task_of(part) for part in parts], data, finished), parts, strict=True)
            done = pool.wait(finished, _WAIT)
            for future, result in zip(done, pool.results(done), strict=True):
                if future not in flying:
                    raise ValueError(
                        "the pool has returned one future for several tasks: submit must return a new one each time"
                    )
                part, reply = flying.pop(future), _reply(result, pool)
                if reply is None:
                    if not ledger.lose(part):
                        raise OSError(
                            f"a part of the run was lost {MOST_LOSSES + 1} times because its worker died each time, "
                            "perhaps for lack of memory"
                        )
                elif reply.version != __version__:
                    check_version(reply.version, reply.machine)
                elif reply.lacks_job:
                    requests[part] += 1
                    if requests[part] > _MOST_REQUESTS:
                        raise OSError(
                            f"the worker {reply.machine} lacks the model although it was sent {requests[part]} times: "
                            "the pool must call the function with all its arguments"
                        )
                    flying[pool.submit(task_of(part), data, True, finished)] = part
                elif reply.part != part:
                    raise ValueError(
                        "the pool has returned the result of another task: results must come back in the order of tasks"
                    )
                elif ledger.finish(part, reply.seconds):
                    receive(part, reply)
            if refresh is not None and time.monotonic() - looked > _REFRESH:
                refresh()
                looked = time.monotonic()
            tick(ledger.done / total)
    finally:
        for future in flying:
            with contextlib.suppress(Exception):  # The worker may be gone.
                future.cancel()


def _reply(result: Any, pool: Pool) -> Reply | None:
    """Return the reply, or None if the task was lost with its worker; raise any other error."""
    if isinstance(result, Reply):
        return result
    if not isinstance(result, BaseException):
        raise ValueError(
            f"the pool has returned {a_kind(result)} for a task: it must call the function it is given and return "
            "what that returns"
        )
    if isinstance(result, BrokenExecutor):
        raise broken(result) from None
    if isinstance(result, ModuleNotFoundError) and (result.name or "").split(".")[0] == __package__.split(".")[0]:
        check_version(None, "of the pool")
    if not pool.is_lost(result):
        raise result
    return None
