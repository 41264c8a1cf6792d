"""Kaufman's formula against transfer, the bulk limit and the reference file."""

import math

import numpy as np
import pytest

from marginalis.exact.kaufman import kaufman_log_z
from marginalis.exact.transfer import transfer_log_z

KC = 0.44068679350977147


def by_transfer(rows, cols, horizontal, vertical):
    ones = np.ones((rows, cols))
    return transfer_log_z(0.0 * ones, horizontal * ones, vertical * ones, (True, True))


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("cols", [2, 3, 4, 7])
def test_kaufman_agrees_with_transfer(rows, cols):
    couplings = [0.0, 1e-300, 1e-9, 0.1, 0.3, KC, 0.7, 3.0, 20.0, 1e4, 1e8]
    for horizontal in [*couplings, -KC, -2.0, -1e4]:
        for vertical in [*couplings, -0.5, -30.0]:
            if (horizontal < 0 and cols % 2) or (vertical < 0 and rows % 2):
                continue
            expected = by_transfer(rows, cols, horizontal, vertical)
            result = kaufman_log_z(rows, cols, horizontal, vertical)
            assert result == pytest.approx(expected, rel=1e-12), (horizontal, vertical)


@pytest.mark.parametrize(
    ("name", "rows", "cols", "coupling"),
    [
        ("ising_torus_4x4_K0.3", 4, 4, 0.3),
        ("ising_torus_8x8_K0.4407", 8, 8, KC),
        ("ising_torus_16x16_K0.4407", 16, 16, KC),
        ("ising_torus_64x64_K0.4407", 64, 64, KC),
        ("ising_torus_8x12_Kc", 12, 8, KC),
        ("ising_torus_8x12_Kc", 8, 12, KC),
    ],
)
def test_kaufman_agrees_with_the_reference_values(reference, name, rows, cols, coupling):
    expected = reference[name]["logZ"]
    assert kaufman_log_z(rows, cols, coupling, coupling) == pytest.approx(expected, rel=1e-13)


def test_critical_finite_size_correction():
    # Ferdinand & Fisher, Phys. Rev. 185, 832 (1969): ln Z = N f + ln(2^{1/4} + 2^{-1/2}) + O(1/N) at Tc,
    # with Onsager's f = ½ ln 2 + 2G/π, G being Catalan's constant.
    catalan = 0.915965594177219015
    for side in (256, 1024):
        excess = kaufman_log_z(side, side, KC, KC) - side**2 * (0.5 * math.log(2.0) + 2.0 * catalan / math.pi)
        assert excess == pytest.approx(math.log(2**0.25 + 2**-0.5), abs=1.0 / side**2 + 1e-16 * side**2)


def test_low_temperature_expansion():
    # two ordered states and, in each, one spin or one pair turned over
    side, k = 3000, 8.0
    spins, pairs = side**2 * math.exp(-8 * k), 2 * side**2 * math.exp(-12 * k)
    expected = 2 * k * side**2 + math.log(2.0) + spins + pairs
    assert kaufman_log_z(side, side, k, k) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("shape", [(50, 31), (2, 200), (999, 3)])
@pytest.mark.parametrize("couplings", [(0.2, 0.9), (KC, KC), (0.4407, 0.4406), (1e-3, 4.0)])
def test_exchanging_rows_and_columns_changes_nothing(shape, couplings):
    rows, cols = shape
    result = kaufman_log_z(rows, cols, *couplings)
    assert kaufman_log_z(cols, rows, *couplings[::-1]) == pytest.approx(result, rel=1e-13)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((1, 4, 0.3, 0.3), "rows must be at least 2"),
        ((4, 0, 0.3, 0.3), "cols must be at least 2"),
        ((4, 5, -0.3, 0.3), "horizontal is -0.3 along a side of odd length"),
        ((5, 4, 0.3, -0.3), "vertical is -0.3 along a side of odd length"),
        ((4, 4, math.nan, 0.3), "horizontal must be finite"),
        ((4, 4, 0.3, math.inf), "vertical must be finite"),
    ],
)
def test_bad_input(args, message):
    with pytest.raises(ValueError, match=message):
        kaufman_log_z(*args)
