"""Who has which part of a run: parts are cut to take some seconds, given out, and given out again when they are lost.

Nothing here knows what the parts are, nor how they travel; `benchmarks/cluster_simulation.py` runs the same code with
thousands of workers that do not exist.
"""

from __future__ import annotations

import statistics
from collections import deque

import numpy as np

SECONDS = 2.0  # that a part should take,
PER_WORKER = 1 / 100  # and this much more for every worker: the one who gives parts out must keep up
LEAST = 1.0  # seconds of the last parts, which are cut smaller so that all workers end together
PATIENCE = 60.0  # seconds after which a part that should be back by now is given to another worker, too,
OVERDUE = 10.0  # or this many times what it should take, whichever is longer
MOST_LOSSES = 5  # of one part, after which it is not the workers' fault
_OPEN, _GIVEN, _DONE = 0, 1, 2


class Ledger:
    """The units 0 … n−1 of a run (sixteen chains, a population, a model), and what has become of each."""

    def __init__(
        self, units: int, seconds: float, *, most: int | None = None, start: int = 0, length: float = 0.0
    ) -> None:
        """`seconds` is a guess of what a unit takes; parts have `most` units at most, and take `length` seconds, or as
        many as are good for the number of workers; the first begins at `start`.
        """
        self._length = length
        self._state = np.zeros(units, dtype=np.uint8)
        self._seen: deque[float] = deque(maxlen=64)  # seconds per unit of the last parts
        self._guess, self._most, self._cursor = max(seconds, 1e-12), most or units, start
        self._again: deque[range] = deque()
        self._out: dict[range, list[float]] = {}  # part: when it was given out last, and how many have it
        self._losses: dict[range, int] = {}
        self._calm_until = 0.0  # before that no part can be overdue
        self.total, self.done, self._open = units, 0, units

    @property
    def complete(self) -> bool:
        """Whether every unit is done."""
        return self.done == len(self._state)

    @property
    def pace(self) -> float:
        """Seconds that a unit takes, as seen lately, or as guessed."""
        return statistics.median(self._seen) if self._seen else self._guess

    def take(self, now: float, workers: int) -> range | None:
        """Return the next part for one of some workers, or None if there is none to give at this moment."""
        while self._again:
            part = self._again.popleft()
            if not (self._state[part.start : part.stop] == _DONE).all():
                return self._give(part, now)
        first = self._next_open()
        if first is None:
            return self._overdue(now)
        seconds = self._length or SECONDS + PER_WORKER * workers
        left = self._open * self.pace / max(workers, 1)
        if left < 2.0 * seconds:  # the end is near
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
        """Return the part that has been out longest, if it should be back by now."""
        if not self._out or now < self._calm_until:
            return None
        part = min(self._out, key=lambda x: self._out[x][0])
        patience = max(PATIENCE, OVERDUE * self.pace * len(part))
        self._calm_until = self._out[part][0] + patience
        return self._give(part, now) if now > self._calm_until else None

    def finish(self, part: range, seconds: float | None = None) -> bool:
        """Note that a part is done, in so many seconds; return whether any of it was not done before."""
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
        """Note that one who had a part will not bring it; return False if that has happened to it too often."""
        if part not in self._out:  # another has brought it
            return True
        self._out[part][1] -= 1
        if self._out[part][1] <= 0:
            del self._out[part]
            self._again.append(part)
        self._losses[part] = self._losses.get(part, 0) + 1
        return self._losses[part] <= MOST_LOSSES
