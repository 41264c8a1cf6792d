"""Philox against its published known answers, and the addressing of the uniforms."""

import numpy as np
import pytest

from marginalis.random import HIDDEN, JOINT, VISIBLE, philox, uniforms

# Known answers for philox4x32-10 distributed with Random123 (Salmon, Moraes, Dror, Shaw 2011).
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter, key, words):
    assert tuple(int(w) for w in philox(counter, key)) == words


def test_an_address_decides_the_value():
    chains = np.arange(100, dtype=np.uint64)
    all_of_them = uniforms(7, chains, 3, HIDDEN, 9)
    assert np.array_equal(all_of_them[40:60], uniforms(7, chains[40:60], 3, HIDDEN, 9))
    assert np.array_equal(all_of_them[:, :5], uniforms(7, chains, 3, HIDDEN, 5))
    word = philox((55, 3, 1, HIDDEN), (7, 0))[2]
    assert all_of_them[55, 6] == (int(word) + 0.5) / 2**32


def test_addresses_differ():
    chains = np.arange(50, dtype=np.uint64)
    draws = [uniforms(s, chains, k, side, 8) for s in (0, 2**40) for k in (0, 1) for side in (VISIBLE, HIDDEN, JOINT)]
    assert len(np.unique(np.stack(draws))) == np.stack(draws).size


def test_uniform_in_the_open_interval():
    draws = uniforms(1, np.arange(20000, dtype=np.uint64), 0, VISIBLE, 10).ravel()
    assert draws.min() > 0
    assert draws.max() < 1
    counts = np.histogram(draws, bins=100, range=(0, 1))[0]
    chi2 = ((counts - 2000) ** 2 / 2000).sum()
    assert abs(chi2 - 99) < 4.5 * np.sqrt(2 * 99)
