"""Philox against its published known answers, and the addressing of the uniforms."""

import numpy as np
import pytest

from marginalis.options import DRAWS
from marginalis.random import HIDDEN, JOINT, PLANES, VISIBLE, philox, uniforms

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
def test_philox_known_answer_vectors(counter, key, words):
    assert tuple(int(w) for w in philox(counter, key)) == words


def word(chain, step, group, side, number):
    """One word of a call with the seed 7."""
    return int(philox((chain, step, group, side), (7, 0))[number])


def by_hand(draws, chain, step, side, unit):
    """The 32 bits of a unit, as the table of addresses says."""
    if draws == "words":
        return word(chain, step, unit // 4, side, unit % 4)
    planes = [word(chain // 32, step, 8 * unit + p // 4, side + PLANES, p % 4) for p in range(32)]
    return int("".join(str(plane >> chain % 32 & 1) for plane in planes), 2)


@pytest.mark.parametrize("draws", DRAWS)
def test_an_address_decides_the_value(draws):
    chains = np.arange(100, dtype=np.uint64)
    all_of_them = uniforms(7, chains, 3, HIDDEN, 19, draws)
    assert np.array_equal(all_of_them[40:60], uniforms(7, chains[40:60], 3, HIDDEN, 19, draws))
    assert np.array_equal(all_of_them[:, :5], uniforms(7, chains, 3, HIDDEN, 5, draws))
    for chain, unit in ((55, 6), (0, 0), (99, 18), (32, 12), (31, 9)):
        assert all_of_them[chain, unit] == (by_hand(draws, chain, 3, HIDDEN, unit) + 0.5) / 2**32


def test_uniforms_differ_between_addresses():
    chains = np.arange(50, dtype=np.uint64)
    found = [
        uniforms(s, chains, k, side, 8, draws)
        for s in (0, 2**40)
        for k in (0, 1)
        for side in (VISIBLE, HIDDEN, JOINT)
        for draws in DRAWS
    ]
    assert len(np.unique(np.stack(found))) == np.stack(found).size


@pytest.mark.parametrize("draws", DRAWS)
def test_uniform_in_the_open_interval(draws):
    found = uniforms(1, np.arange(20000, dtype=np.uint64), 0, VISIBLE, 10, draws)
    assert found.min() > 0
    assert found.max() < 1
    for scale in (1, 2**16):  # all bits, and the lower half of them
        counts = np.histogram(found * scale % 1.0, bins=100, range=(0, 1))[0]
        chi2 = ((counts - 2000) ** 2 / 2000).sum()
        assert abs(chi2 - 99) < 4.5 * np.sqrt(2 * 99)


@pytest.mark.parametrize("draws", DRAWS)
def test_bits_are_independent(draws):
    """Bits of a uniform among themselves, of neighbouring units, of neighbouring chains, and of two steps."""
    chains = np.arange(64 * 256, dtype=np.uint64)
    now, then = (uniforms(3, chains, step, VISIBLE, 2, draws) for step in (1, 2))
    words = (np.concatenate([now, then], axis=1) * 2.0**32).astype(np.uint64)
    bits = [words >> np.uint64(b) & np.uint64(1) for b in (31, 30, 17, 16, 15, 1, 0)]
    signs = 2.0 * np.concatenate(bits, axis=1).astype(float) - 1.0
    for shift in (0, 1, 32):
        together = signs[: len(signs) - shift].T @ signs[shift:] / np.sqrt(len(signs) - shift)
        if shift == 0:
            together -= np.diag(np.diag(together))
        assert np.abs(together).max() < 4.5
