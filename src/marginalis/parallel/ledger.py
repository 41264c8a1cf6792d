"""The account of a distributed run: which parts are open, running or finished.

A part is cut so that it takes a few seconds; it is assigned to a worker, and assigned again if it is lost. This module
depends neither on what the parts contain nor on how they are sent, so `benchmarks/cluster_simulation.py` can run the
same code with thousands of simulated workers.
"""

from __future__ import annotations

import statistics
from collections import deque

import numpy as np

SECONDS = 2.0  # Target duration of a part, in seconds.
PER_WORKER = 1 / 100  # Seconds added to the target for every worker, so that the scheduler keeps up with large pools.
LEAST = 1.0  # Seconds of the last parts, which are shorter so that all workers finish at about the same time.
# A second worker gets a part that has been running for PATIENCE seconds and for OVERDUE times its expected duration.
PATIENCE = 60.0
OVERDUE = 10.0
MOST_LOSSES = 5  # A run fails if one part is lost more often than this, because then the part itself is the cause.
_OPEN, _GIVEN, _DONE = 0, 1, 2


class Ledger:
    """The state of the units 0 … n−1 of a run; a unit is sixteen chains, a population or a model."""

    def __init__(
        self, units: int, seconds: float, *, most: int | None = None, start: int = 0, length: float = 0.0
    ) -> None:
        """Start with all units open.

        `seconds` is a guess of the time of one unit, `most` the largest number of units in a part, `length` the
        duration of a part in seconds (0: chosen from the number of workers), and `start` the unit at which the first
        part begins.
        """
        self._length = length
        self._state = np.zeros(units, dtype=np.uint8)
        self._seen: deque[float] = deque(maxlen=64)  # Seconds per unit of the last parts.
        self._guess, self._most, self._cursor = max(seconds, 1e-12), most or units, start
        self._again: deque[range] = deque()
        self._out: dict[range, list[float]] = {}  # For each running part: its last start time and number of workers.
        self._losses: dict[range, int] = {}
        self._calm_until = 0.0  # No part can be overdue before this time.
        self.total, self.done, self._open = units, 0, units

    @property
    def complete(self) -> bool:
        """Whether every unit is done."""
        return self.done == len(self._state)

    @property
    def pace(self) -> float:
        """Seconds per unit: the median of recent parts, or the initial guess before any part is back."""
        return statistics.median(self._seen) if self._seen else self._guess

    def take(self, now: float, workers: int) -> range | None:
        """Return the next part to run on a pool of `workers` workers, or None if there is none at this moment."""
        while self._again:
            part = self._again.popleft()
            if not (self._state[part.start : part.stop] == _DONE).all():
                return self._give(part, now)
        first = self._next_open()
        if first is None:
            return self._overdue(now)
        seconds = self._length or SECONDS + PER_WORKER * workers
        left = self._open * self.pace / max(workers, 1)
        if left < 2.0 * seconds:  # The last parts are shorter.
            seconds = min(seconds, max(LEAST, PER_WORKER * workers / 2.0, left / 2.0))
        size = max(1, min(int(seconds / self.pace), self._most))
        taken = np.flatnonzero(self._state[first : first + size] != _OPEN)
        stop = min(first + size, len(self._state)) if not len(taken) else first + int(taken[0])
        self._cursor = stop
        return self._give(range(first, stop), now)

    def _next_open(self) -> int | None:
        """Return the first open unit at or after the cursor, or from the beginning."""
        if not self._open:
            return None
        for low, high in ((self._cursor, len(self._state)), (0, self._cursor)):
            if low < high and self._state[low] == _OPEN:
                return low
            found = self._state[low:high] == _OPEN
            if found.any():
                return low + int(found.argmax())
        return None

    def _give(self, part: range, now: float) -> range:
        here = self._state[part.start : part.stop]
        fresh = here == _OPEN
        self._open -= int(np.count_nonzero(fresh))
        here[fresh] = _GIVEN
        self._out[part] = [now, self._out.get(part, (0.0, 0))[1] + 1]
        return part

    def _overdue(self, now: float) -> range | None:
        """Return the part that has been running longest, if it is overdue."""
        if not self._out or now < self._calm_until:
            return None
        part = min(self._out, key=lambda x: self._out[x][0])
        patience = max(PATIENCE, OVERDUE * self.pace * len(part))
        self._calm_until = self._out[part][0] + patience
        return self._give(part, now) if now > self._calm_until else None

    def finish(self, part: range, seconds: float | None = None) -> bool:
        """Mark a part as finished after `seconds`; return whether any of its units was unfinished before."""
        self._out.pop(part, None)
        self._losses.pop(part, None)
        here = self._state[part.start : part.stop]
        fresh = int(np.count_nonzero(here != _DONE))
        self._open -= int(np.count_nonzero(here == _OPEN))
        here[:] = _DONE
        self.done += fresh
        if seconds is not None:
            self._seen.append(max(seconds, 1e-12) / len(part))
        return fresh > 0

    def lose(self, part: range) -> bool:
        """Mark a part as lost by one of its workers; return False if that part has been lost too often."""
        if part not in self._out:  # Another worker has finished it.
            return True
        self._out[part][1] -= 1
        if self._out[part][1] <= 0:
            del self._out[part]
            self._again.append(part)
        self._losses[part] = self._losses.get(part, 0) + 1
        return self._losses[part] <= MOST_LOSSES
