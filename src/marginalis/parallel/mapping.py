"""Calling a function for many items, some of them at a time, on threads or on a pool."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .dispatch import dispatch
from .ledger import Ledger
from .pools import Pool
from .tasks import Reply
from .threads import Tick, run_jobs

Function = Callable[[Sequence[Any], Tick], Sequence[Any]]
Receive = Callable[[range, Sequence[Any]], None]


@dataclass(frozen=True)
class MapJob:
    """A job that calls a function with batches of at most `together` items, which the tasks carry."""

    function: Function
    together: int = 1

    def run(self, part: range, extra: Sequence[Any], threads: int) -> list[Any]:
        """Return the results of some items."""
        found: list[Any] = [None] * len(extra)

        def receive(numbers: range, results: Sequence[Any]) -> None:
            found[numbers.start : numbers.stop] = results

        _on_threads(self.function, extra, receive, threads, lambda fraction: None, self.together)
        return found


def map_items(
    function: Function,
    items: Sequence[Any],
    receive: Receive,
    pool: Pool | None,
    threads: int,
    tick: Tick,
    seconds: float = 5.0,
    together: int = 1,
) -> None:
    """Call ``function(batch, progress)`` for batches of items; pass the numbers and results of each to `receive`.

    A batch has at most `together` items, and the function returns one result for each. `seconds` is a guess of the time
    of one item, from which a pool decides how many items make one task. A function that takes long reports its
    progress, from 0 to 1, by calling ``progress``, which raises an error if another call has failed. On a pool the
    function must be picklable, as functions defined in a module are.
    """
    if pool is not None:

        def receive_reply(part: range, reply: Reply) -> None:
            receive(part, reply.result)

        ledger = Ledger(len(items), seconds)
        job = MapJob(function, together)
        dispatch(pool, job, ledger, receive_reply, tick, lambda part: items[part.start : part.stop])
        return
    _on_threads(function, items, receive, threads, tick, together)


def _on_threads(
    function: Function,
    items: Sequence[Any],
    receive: Receive,
    threads: int,
    tick: Tick,
    together: int,
) -> None:
    """Call a function for batches of items on threads of this process; an error in one call stops the others."""
    stop = threading.Event()

    def report(fraction: float) -> None:
        if stop.is_set():
            raise InterruptedError("another piece of work failed, or the caller was interrupted")

    def work(numbers: range) -> Iterator[float]:
        receive(numbers, function(items[numbers.start : numbers.stop], report))
        yield float(len(numbers))

    # All threads get work, even if there are few items.
    size = max(1, min(together, -(-len(items) // threads)))
    batches = (range(first, min(first + size, len(items))) for first in range(0, len(items), size))
    run_jobs(work, batches, max(1, len(items)), threads, tick, stop)
