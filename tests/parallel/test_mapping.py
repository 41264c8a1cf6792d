"""Calls for many items, some of them at a time, on threads of a worker."""

import threading

import pytest

from marginalis.parallel.mapping import MapJob


def test_a_task_uses_the_threads_of_its_worker():
    together = threading.Barrier(3)

    def square(batch, tick):
        together.wait(20.0)  # only if three of them run at a time
        return [x * x for x in batch]

    assert MapJob(square).run(range(9), list(range(9)), 3) == [x * x for x in range(9)]


def test_the_first_error_stops_the_other_calls():
    started = []

    def fail(batch, tick):
        started.extend(batch)
        if 1 in batch:
            raise ValueError("one is too many")
        while True:
            tick(0.5)

    with pytest.raises(ValueError, match="one is too many"):
        MapJob(fail).run(range(100), list(range(100)), 3)
    assert len(started) < 10


def test_a_batch_is_no_larger_than_asked_for_and_every_item_is_in_one():
    sizes = []

    def negate(batch, tick):
        sizes.append(len(batch))
        return [-x for x in batch]

    assert MapJob(negate, 4).run(range(21), list(range(21)), 2) == [-x for x in range(21)]
    assert max(sizes) == 4
    sizes.clear()
    assert MapJob(negate, 100).run(range(9), list(range(9)), 3) == [-x for x in range(9)]
    assert sizes == [3, 3, 3]  # every thread has work
