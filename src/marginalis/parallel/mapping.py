"""Calling a function for each of many items, on threads or on a pool."""

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


@dataclass(frozen=True)
class MapJob:
    """A job that calls a function; the tasks carry the items."""

    function: Callable[[Any, Tick], Any]

    def run(self, part: range, extra: Sequence[Any], threads: int) -> list[Any]:
        """Call the function with some items."""
        found: dict[int, Any] = {}
        _on_threads(self.function, extra, found.__setitem__, threads, lambda fraction: None)
        return [found[number] for number in range(len(extra))]


def map_items(
    function: Callable[[Any, Tick], Any],
    items: Sequence[Any],
    receive: Callable[[int, Any], None],
    pool: Pool | None,
    threads: int,
    tick: Tick,
    seconds: float = 5.0,
) -> None:
    """Call ``function(item, progress)`` for every item and pass each result to ``receive(number, result)`` at once.

    `seconds` is a guess of the time of one call, from which a pool decides how many calls make one task. A function
    that takes long reports its progress, from 0 to 1, by calling ``progress``, which raises an error if another call
    has failed. On a pool the function must be picklable, as functions defined in a module are.
    """
    if pool is not None:

        def receive_some(part: range, reply: Reply) -> None:
            for number, result in zip(part, reply.result, strict=True):
                receive(number, result)

        ledger = Ledger(len(items), seconds)
        dispatch(pool, MapJob(function), ledger, receive_some, tick, lambda part: items[part.start : part.stop])
        return
    _on_threads(function, items, receive, threads, tick)


def _on_threads(
    function: Callable[[Any, Tick], Any],
    items: Sequence[Any],
    receive: Callable[[int, Any], None],
    threads: int,
    tick: Tick,
) -> None:
    """Call a function for every item on threads of this process; an error in one call stops the others."""
    stop = threading.Event()

    def report(fraction: float) -> None:
        if stop.is_set():
            raise InterruptedError("another piece of work failed, or the caller was interrupted")

    def work(number: int) -> Iterator[float]:
        receive(number, function(items[number], report))
        yield 1.0

    run_jobs(work, range(len(items)), max(1, len(items)), threads, tick, stop)
