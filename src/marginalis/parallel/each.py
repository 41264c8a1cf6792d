"""One call for each of many items, on threads or on a pool."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .ledger import Ledger
from .pools import Pool
from .share import share_out
from .tasks import Reply
from .threads import Tick, run_jobs


@dataclass(frozen=True)
class Calls:
    """Calls of a function as a job; their items come with the tasks."""

    function: Callable[[Any, Tick], Any]

    def run(self, part: range, extra: Sequence[Any], threads: int) -> list[Any]:
        """Call the function with some items."""
        found: dict[int, Any] = {}
        _on_threads(self.function, extra, found.__setitem__, threads, lambda fraction: None)
        return [found[number] for number in range(len(extra))]


def call_each(
    function: Callable[[Any, Tick], Any],
    items: Sequence[Any],
    receive: Callable[[int, Any], None],
    pool: Pool | None,
    threads: int,
    tick: Tick,
    seconds: float = 5.0,
) -> None:
    """Have ``function(item, heed)`` called for every item; ``receive(number, result)`` gets what comes back, at once.

    `seconds` is a guess of what a call takes, for a pool, which gets calls of a second or two at a time.
    A function that takes long calls `heed` with its progress, which raises an error when the others have stopped. For a
    pool it must be one that can be pickled, as those of a module can.
    """
    if pool is not None:

        def receive_some(part: range, reply: Reply) -> None:
            for number, result in zip(part, reply.result, strict=True):
                receive(number, result)

        ledger = Ledger(len(items), seconds)
        share_out(pool, Calls(function), ledger, receive_some, tick, lambda part: items[part.start : part.stop])
        return
    _on_threads(function, items, receive, threads, tick)


def _on_threads(
    function: Callable[[Any, Tick], Any],
    items: Sequence[Any],
    receive: Callable[[int, Any], None],
    threads: int,
    tick: Tick,
) -> None:
    """Call a function for every item here; an error in one call stops the others."""
    stop = threading.Event()

    def heed(fraction: float) -> None:
        if stop.is_set():
            raise InterruptedError("another piece of work failed, or the caller was interrupted")

    def work(number: int) -> Iterator[float]:
        receive(number, function(items[number], heed))
        yield 1.0

    run_jobs(work, range(len(items)), max(1, len(items)), threads, tick, stop)
