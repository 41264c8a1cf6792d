"""Every part of a run is done once, whatever becomes of those who have it."""

import numpy as np
import pytest

from marginalis.parallel import ledger
from marginalis.parallel.ledger import Ledger


@pytest.mark.parametrize("seed", range(5))
def test_all_units_are_done_if_workers_die(seed):
    rng = np.random.default_rng(seed)
    book, out, now = Ledger(1000, 0.05, start=int(rng.integers(1000))), [], 0.0
    times = np.zeros(1000, dtype=int)
    while not book.complete:
        now += 1.0
        while len(out) < 8 and (part := book.take(now, 4)) is not None:
            out.append(part)
        part = out.pop(rng.integers(len(out)))
        if rng.random() < 0.3:
            book.lose(part)
        elif book.finish(part, 0.05 * len(part)):
            times[part.start : part.stop] += 1
    assert (times == 1).all()
    assert book.take(now, 4) is None


def test_parts_take_the_time_that_was_meant():
    book = Ledger(10**8, 1e-7)  # a guess that is wrong by far
    part = book.take(0.0, 1)
    for _ in range(10):
        book.finish(part, 1e-4 * len(part))
        part = book.take(0.0, 1)
    assert 1e-4 * len(part) == pytest.approx(ledger.SECONDS, rel=0.01)
    many = ledger.SECONDS + ledger.PER_WORKER * 400  # one who serves many gives out longer parts
    assert 1e-4 * len(book.take(0.0, 400)) == pytest.approx(many, rel=0.01)


def test_no_part_is_larger_than_allowed():
    assert len(Ledger(1000, 1e-9, most=7).take(0.0, 1)) == 7


def test_what_is_done_already_is_left_out():
    book = Ledger(100, 1e-9)
    book.finish(range(0, 40))
    book.finish(range(60, 80))
    assert [book.take(0.0, 1), book.take(0.0, 1), book.take(0.0, 1)] == [range(40, 60), range(80, 100), None]


def test_a_part_that_never_comes_back_is_given_to_another():
    book = Ledger(10, 1.0)
    parts = [book.take(0.0, 2) for _ in range(20)]
    parts = [part for part in parts if part is not None]
    for part in parts[1:]:
        book.finish(part, 1.0)
    assert book.take(ledger.PATIENCE - 1.0, 2) is None
    assert book.take(ledger.PATIENCE + 1.0, 2) == parts[0]
    assert book.take(ledger.PATIENCE + 2.0, 2) is None  # its time begins anew
    assert book.lose(parts[0])  # one of the two who have it
    assert book.take(ledger.PATIENCE + 3.0, 2) is None
    assert book.finish(parts[0], 1.0)
    assert book.complete
    assert not book.finish(parts[0], 1.0)


def test_a_part_that_kills_every_worker_is_given_up():
    book = Ledger(4, 10.0)
    found = []
    for _ in range(ledger.MOST_LOSSES + 1):
        part = book.take(0.0, 1)
        found.append(book.lose(part))
        for _ in range(3):  # the others are well
            other = book.take(0.0, 1)
            if other != part:
                book.finish(other, 1.0)
            else:
                book.lose(other)
                break
    assert not all(found)
