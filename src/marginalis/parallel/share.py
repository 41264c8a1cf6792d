"""Jobs shared out to the workers of a pool, part by part, until all parts are back."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any

import numpy as np

from .. import __version__
from .ledger import MOST_LOSSES, Ledger
from .pools import Pool, broken, check_version
from .tasks import Job, Reply, Task, packed
from .threads import Tick

_WAIT = 0.2  # seconds between two looks at the clock
_REFRESH = 5.0  # seconds between two looks at what others have done


def share_out(
    pool: Pool,
    job: Job,
    ledger: Ledger,
    receive: Callable[[range, Reply], None],
    tick: Tick,
    extra: Callable[[range], Any] = lambda part: None,
    refresh: Callable[[], None] | None = None,
) -> None:
    """Have all that is open in the ledger done; every part comes to `receive` once, as soon as it is back.

    `extra` is what a part needs besides the job. Parts that are lost with their worker are given out again; an
    error of the job itself is raised here. `refresh` looks now and then if others have done parts, too.
    """
    digest, data = packed(job)
    finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
    flying: dict[Any, range] = {}
    total, looked = max(1, ledger.total), time.monotonic()

    def send(part: range, sure: bool = False) -> None:
        task = Task(__version__, digest, part, extra(part), pool.threads, np.geterr())
        flying[pool.submit(task, data, sure, finished)] = part

    try:
        while not ledger.complete:
            workers, room = pool.workers(), pool.room()
            while len(flying) < room and (part := ledger.take(time.monotonic(), workers)) is not None:
                send(part)
            for future in pool.wait(finished, _WAIT):
                part = flying.pop(future)
                reply = _reply(future, pool)
                if reply is None:
                    if not ledger.lose(part):
                        raise OSError(
                            f"a part of the run was lost {MOST_LOSSES + 1} times, its worker having died each time: "
                            "perhaps for want of memory"
                        )
                elif reply.version != __version__:
                    check_version(reply.version, reply.machine)
                elif reply.lacks_job:
                    send(part, sure=True)
                elif ledger.finish(part, reply.seconds):
                    receive(part, reply)
            if refresh is not None and time.monotonic() - looked > _REFRESH:
                refresh()
                looked = time.monotonic()
            tick(ledger.done / total)
    finally:
        for future in flying:
            with contextlib.suppress(Exception):  # whoever had it may be gone
                future.cancel()


def _reply(future: Any, pool: Pool) -> Reply | None:
    """Return what a future holds, or None if it went down with its worker."""
    try:
        return future.result()
    except BrokenExecutor as error:
        raise broken(error) from None
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != __package__.split(".")[0]:
            raise
        check_version(None, "of the pool")
        raise
    except Exception as error:
        if not pool.is_lost(error):
            raise
        return None
