"""Jobs on threads, and interrupts."""

import _thread
import signal
import threading

import numpy as np
import pytest

from marginalis.parallel.threads import interruptible, run_jobs


def test_long_calls_can_be_interrupted():
    ended = threading.Event()

    def work():
        _thread.interrupt_main()
        ended.wait(60)
        return ended.is_set()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background may not have it
    try:
        with pytest.raises(KeyboardInterrupt):
            interruptible(work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not ended.is_set()
    ended.set()
    assert interruptible(lambda: 3) == 3
    with np.errstate(over="ignore"):
        assert interruptible(lambda: np.float64(1e308) * 10) == np.inf
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 / 0)


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_jobs_run_on_as_many_threads_as_start(monkeypatch, allowed):
    begun = []
    start = threading.Thread.start

    def limited(self):
        if len(begun) == allowed:
            raise RuntimeError("can't start new thread")
        begun.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)
    done = []

    def work(job):
        done.append(job)
        yield 1.0

    if allowed == 0:
        with pytest.raises(MemoryError, match="cannot start a thread"):
            run_jobs(work, range(20), 20, 4, lambda fraction: None)
    else:
        run_jobs(work, range(20), 20, 4, lambda fraction: None)
        assert sorted(done) == list(range(20))


def test_an_interrupt_does_not_wait_for_a_long_call():
    """Two threads are in a kernel call that goes on and on."""
    ended = threading.Event()

    def work(job):
        ended.wait(60)
        yield 1

    def interrupt(fraction):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(work, range(4), 4, 2, interrupt)
    assert not ended.is_set()
    assert threading.active_count() > 1  # they are still there, and nobody waited
    ended.set()
