"""One call for each of many items, on threads of a worker."""

import threading

import pytest

from marginalis.parallel.mapping import MapJob


def test_a_task_uses_the_threads_of_its_worker():
    together = threading.Barrier(3)

    def square(x, tick):
        together.wait(20.0)  # only if three of them run at a time
        return x * x

    assert MapJob(square).run(range(9), list(range(9)), 3) == [x * x for x in range(9)]


def test_the_first_error_stops_the_other_calls():
    started = []

    def fail(x, tick):
        started.append(x)
        if x == 1:
            raise ValueError("one is too many")
        while True:
            tick(0.5)

    with pytest.raises(ValueError, match="one is too many"):
        MapJob(fail).run(range(100), list(range(100)), 3)
    assert len(started) < 10
