"""Planar determinants against transfer, at all temperatures, and the reference file."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marginalis.exact import planar
from marginalis.exact.planar import boundary_log_z, kac_ward_log_z
from marginalis.exact.transfer import transfer_log_z

KC = 0.44068679350977147


def by_transfer(horizontal, vertical):
    return transfer_log_z(np.zeros(horizontal.shape), horizontal, vertical, (False, False))


def bonds(rng, kind, strength, shape):
    values = {
        "ferromagnet": np.ones((2, *shape)),
        "signs": rng.choice([-1.0, 1.0], size=(2, *shape)),
        "normal": rng.normal(size=(2, *shape)),
        "diluted": rng.choice([-1.0, 0.0, 1.0], size=(2, *shape)),
        "hierarchy": rng.choice([-1.0, 1e-3, 0.1, 1.0], size=(2, *shape)),
    }[kind]
    return strength * values


@settings(max_examples=120, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from(["ferromagnet", "signs", "normal", "diluted", "hierarchy"]),
    st.sampled_from([0.0, 0.1, KC, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 20.0]),
)
@example(0, 1, 1, "signs", 1.0)
@example(0, 2, 2, "signs", 20.0)
def test_planar_methods_agree_with_transfer(seed, rows, cols, kind, strength):
    horizontal, vertical = bonds(np.random.default_rng(seed), kind, strength, (rows, cols))
    expected = by_transfer(horizontal, vertical)
    assert kac_ward_log_z(horizontal, vertical) == pytest.approx(expected, rel=1e-10)
    assert boundary_log_z(horizontal, vertical) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("kind", ["signs", "normal"])
@pytest.mark.parametrize("strength", [3.0, 20.0])
def test_larger_spin_glass(kind, strength):
    horizontal, vertical = bonds(np.random.default_rng(7), kind, strength, (14, 15))
    expected = by_transfer(horizontal, vertical)
    assert kac_ward_log_z(horizontal, vertical) == pytest.approx(expected, rel=1e-10)
    assert boundary_log_z(horizontal, vertical) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("strength", [0.3, 1.0, 1.5])
def test_determinant_and_sweep_agree(strength):
    horizontal, vertical = bonds(np.random.default_rng(3), "signs", strength, (20, 20))
    t_h, t_v = np.tanh(horizontal[:, :-1]), np.tanh(vertical[:-1])
    determinant = planar._half_log_det(t_h, t_v)
    assert planar._sweep(t_h, t_v, 1.0) == pytest.approx(determinant, rel=1e-11)
    t_h, t_v = planar._tanh_fixed(horizontal[:, :-1], 100), planar._tanh_fixed(vertical[:-1], 100)
    fixed = planar._sweep(t_h, t_v, 1 << 100, 100)
    assert fixed == pytest.approx(determinant, rel=1e-11)


@pytest.mark.parametrize("coupling", [20.0, 1e4, 1e8])
def test_without_frustration_any_strength_will_do(coupling):
    # a ferromagnet in disguise: spins turned at random
    turn = np.random.default_rng(1).choice([-1.0, 1.0], size=(12, 12))
    horizontal, vertical = coupling * turn * np.roll(turn, -1, 1), coupling * turn * np.roll(turn, -1, 0)
    expected = coupling * 2 * 12 * 11 + math.log(2.0)
    assert kac_ward_log_z(horizontal, vertical) == pytest.approx(expected, rel=1e-14)


def test_strongly_frustrated_lattices_are_refused():
    horizontal, vertical = bonds(np.random.default_rng(2), "signs", 1e4, (4, 4))
    with pytest.raises(ValueError, match=r"largest 1e\+04\) are too strong .* 2048 bits"):
        kac_ward_log_z(horizontal, vertical)
    with pytest.raises(ValueError, match="64 bits"):
        kac_ward_log_z(horizontal / 1e3, vertical / 1e3, max_bits=64)


def test_a_long_chain_has_its_closed_form():
    coupling = np.random.default_rng(4).normal(size=(1, 5000))
    expected = 5000 * math.log(2.0) + np.log(np.cosh(coupling[0, :-1])).sum()
    assert kac_ward_log_z(coupling, coupling) == pytest.approx(expected, rel=1e-13)
    assert kac_ward_log_z(coupling.T, coupling.T) == pytest.approx(expected, rel=1e-13)


def test_a_64x64_grid_is_invariant_under_symmetries():
    horizontal, vertical = bonds(np.random.default_rng(5), "normal", 1.0, (64, 64))
    result = boundary_log_z(horizontal, vertical)
    assert boundary_log_z(vertical.T, horizontal.T) == pytest.approx(result, rel=1e-12)
    # turning one spin of the middle changes nothing
    horizontal[30, [29, 30]] *= -1.0
    vertical[[29, 30], 30] *= -1.0
    assert boundary_log_z(horizontal, vertical) == pytest.approx(result, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "side", "coupling"), [("ising_open_8x8_K0.4407", 8, KC), ("ising_open_16x16_K0.6", 16, 0.6)]
)
def test_planar_methods_agree_with_the_reference_values(reference, name, side, coupling):
    grid = np.full((side, side), coupling)
    assert boundary_log_z(grid, grid) == pytest.approx(reference[name]["logZ"], rel=1e-12)
    assert kac_ward_log_z(grid, grid) == pytest.approx(reference[name]["logZ"], rel=1e-12)


def test_wrap_bonds_are_not_used():
    horizontal, vertical = bonds(np.random.default_rng(8), "normal", 1.0, (3, 4))
    expected = kac_ward_log_z(horizontal, vertical)
    horizontal[:, -1], vertical[-1] = np.nan, np.inf
    assert kac_ward_log_z(horizontal, vertical) == expected


@pytest.mark.parametrize(
    ("horizontal", "vertical", "message"),
    [
        (np.zeros((2, 2)), np.zeros((2, 3)), r"alike, got shapes \(2, 2\) and \(2, 3\)"),
        (np.zeros(4), np.zeros(4), "two-dimensional"),
        (np.full((2, 2), np.nan), np.zeros((2, 2)), "horizontal must be finite"),
        (np.zeros((2, 2)), np.full((2, 2), np.inf), "vertical must be finite"),
    ],
)
def test_bad_input(horizontal, vertical, message):
    with pytest.raises(ValueError, match=message):
        kac_ward_log_z(horizontal, vertical)
