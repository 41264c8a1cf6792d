"""Site-by-site transfer against brute force, other methods and the reference file."""

import math

import numpy as np
import pytest
from conftest import LCG
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marginalis.exact import transfer
from marginalis.exact.elimination import eliminate_log_z
from marginalis.exact.transfer import transfer_cost, transfer_log_z

KC = 0.44068679350977147
BOUNDARIES = [(False, False), (True, False), (False, True), (True, True)]


def brute_force(field, horizontal, vertical, periodic, diagonal=0.0):
    rows, cols = field.shape
    digits = (np.arange(1 << field.size)[:, None] >> np.arange(field.size)) & 1
    s = (2.0 * digits - 1.0).reshape(-1, rows, cols)
    horizontal, vertical, diagonal = (
        np.array(np.broadcast_to(x, field.shape)) for x in (horizontal, vertical, diagonal)
    )
    if not periodic[0]:
        vertical[-1] = diagonal[-1] = 0.0
    if not periodic[1]:
        horizontal[:, -1] = diagonal[:, -1] = 0.0
    exponents = s * (field + horizontal * np.roll(s, -1, 2) + vertical * np.roll(s, -1, 1))
    exponents += s * diagonal * np.roll(s, (-1, -1), (1, 2))
    return np.logaddexp.reduce(exponents.sum(axis=(1, 2)))


scales = st.sampled_from([0.0, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e6])


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 6),
    st.integers(1, 6),
    st.tuples(st.booleans(), st.booleans()),
    scales,
    scales,
    scales,
)
@example(1, 2, 2, (True, True), 1.0, 1.0, 1.0)
@example(2, 2, 2, (False, True), 1e4, 1e4, 1.0)
@example(3, 3, 3, (True, True), 1e6, 1.0, 1e4)
def test_transfer_agrees_with_the_sum_over_all_states(seed, rows, cols, periodic, h, j, k):
    if rows * cols > 12:
        cols = 12 // rows
    periodic = (periodic[0] and rows > 1, periodic[1] and cols > 1)
    rng = np.random.default_rng(seed)
    field, horizontal, vertical = rng.normal(size=(3, rows, cols)) * [[[h]], [[j]], [[k]]]
    result = transfer_log_z(field, horizontal, vertical, periodic)
    expected = brute_force(field, horizontal, vertical, periodic)
    assert result == pytest.approx(expected, rel=1e-13, abs=1e-13 * (1 + h + j + k))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 6),
    st.integers(1, 6),
    st.tuples(st.booleans(), st.booleans()),
    st.tuples(scales, scales, scales, scales),
)
@example(1, 2, 2, (True, True), (1.0, 1.0, 1.0, 1.0))
@example(2, 2, 3, (True, False), (1.0, 1e4, 1.0, 1e4))
@example(3, 3, 3, (True, True), (0.0, 1.0, 1.0, 1.0))
def test_triangular_transfer_agrees_with_the_sum_over_all_states(seed, rows, cols, periodic, sizes):
    if rows * cols > 12:
        cols = 12 // rows
    periodic = (periodic[0] and rows > 1, periodic[1] and cols > 1)
    field, *bonds = np.random.default_rng(seed).normal(size=(4, rows, cols)) * np.array(sizes)[:, None, None]
    expected = brute_force(field, *bonds[:2], periodic, bonds[2])
    result = transfer_log_z(field, *bonds[:2], periodic, bonds[2])
    assert result == pytest.approx(expected, rel=1e-13, abs=1e-13 * (1 + sum(sizes)))


@pytest.mark.parametrize("periodic", BOUNDARIES)
def test_triangular_logs_and_linear_agree(monkeypatch, periodic):
    field, horizontal, vertical, diagonal = np.random.default_rng(1).normal(size=(4, 6, 7))
    linear = transfer_log_z(field, horizontal, vertical, periodic, diagonal)
    assert transfer_log_z(field, horizontal, vertical, periodic, diagonal, threads=2) == linear
    monkeypatch.setattr(transfer, "_SAFE_RANGE", 0.0)
    assert transfer_log_z(field, horizontal, vertical, periodic, diagonal) == pytest.approx(linear, rel=1e-13)


@pytest.mark.parametrize("periodic", BOUNDARIES)
def test_a_diagonal_of_zeros_changes_nothing(periodic):
    field, horizontal, vertical = np.random.default_rng(2).normal(size=(3, 5, 6))
    square = transfer_log_z(field, horizontal, vertical, periodic)
    assert transfer_log_z(field, horizontal, vertical, periodic, 0 * field) == pytest.approx(square, rel=1e-14)


def test_a_triangular_lattice_may_be_read_along_any_of_its_axes():
    """(r, c) → (r, c − r) makes diagonals of columns and columns of the other diagonals, on a torus of one side."""
    n = 5
    field, horizontal, vertical, diagonal = np.random.default_rng(3).normal(size=(4, n, n))
    rows, cols = np.indices((n, n))

    def shear(x):
        sheared = np.empty_like(x)
        sheared[rows, (cols - rows) % n] = x
        return sheared

    # of the bonds after it one leads down, the diagonal; one down and left, the column: mirrored, down and right
    mirrored = [shear(x)[:, ::-1] for x in (field, horizontal, diagonal, vertical)]
    mirrored[1] = np.roll(mirrored[1], -1, axis=1)
    value = transfer_log_z(field, horizontal, vertical, (True, True), diagonal)
    assert transfer_log_z(*mirrored[:3], (True, True), mirrored[3]) == pytest.approx(value, rel=1e-13)


def test_a_state_that_vanishes_may_come_back():
    # The first spin is up by e^1000; the second, held to it by e^20000, is down by e^4000. Both are down.
    field, bond = np.array([[500.0], [-2000.0]]), np.array([[1e4], [0.0]])
    assert transfer_log_z(field, 0 * bond, bond, (False, False)) == pytest.approx(11_500.0, rel=1e-15)


@pytest.mark.parametrize("periodic", BOUNDARIES)
def test_logs_and_linear_agree(monkeypatch, periodic):
    field, horizontal, vertical = np.random.default_rng(1).normal(size=(3, 6, 7))
    linear = transfer_log_z(field, horizontal, vertical, periodic)
    monkeypatch.setattr(transfer, "_SAFE_RANGE", 0.0)
    assert transfer_log_z(field, horizontal, vertical, periodic) == pytest.approx(linear, rel=1e-13)


@pytest.mark.parametrize("periodic", BOUNDARIES)
def test_transfer_agrees_with_elimination(periodic):
    rng = np.random.default_rng(2)
    rows, cols = 5, 6
    field, horizontal, vertical = 2.0 * rng.normal(size=(3, rows, cols))
    site = np.arange(rows * cols).reshape(rows, cols)
    edges, couplings = [], []
    for axis, bonds in ((1, horizontal), (0, vertical)):
        keep = np.ones((rows, cols), dtype=bool)
        if not periodic[axis]:
            keep[(slice(None),) * axis + (-1,)] = False
        edges += list(zip(site[keep].tolist(), np.roll(site, -1, axis)[keep].tolist(), strict=True))
        couplings += bonds[keep].tolist()
    tables = [j * np.array([[1.0, -1.0], [-1.0, 1.0]]) for j in couplings]
    unary = [np.array([-h, h]) for h in field.ravel()]
    expected = eliminate_log_z([2] * field.size, unary, edges, tables)
    assert transfer_log_z(field, horizontal, vertical, periodic) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("periodic", BOUNDARIES)
def test_transposed_and_mirrored(periodic):
    field, horizontal, vertical = np.random.default_rng(4).normal(size=(3, 7, 8))
    result = transfer_log_z(field, horizontal, vertical, periodic)
    transposed = transfer_log_z(field.T, vertical.T, horizontal.T, periodic[::-1])
    upside_down = transfer_log_z(
        field[::-1], horizontal[::-1], np.roll(vertical[::-1], -1, axis=0), periodic, threads=2
    )
    assert transposed == pytest.approx(result, rel=1e-13)
    assert upside_down == pytest.approx(result, rel=1e-13)


def test_threads_do_not_change_the_bits():
    grid = np.random.default_rng(5).normal(size=(3, 8, 9))
    ticks = []
    result = transfer_log_z(*grid, (True, True), threads=2, tick=ticks.append)
    assert result == transfer_log_z(*grid, (True, True))
    assert ticks[-1] == 1.0


def test_without_fields_half_the_states_do():
    _, horizontal, vertical = np.random.default_rng(6).normal(size=(3, 5, 6))
    zero, tiny = np.zeros((5, 6)), np.full((5, 6), 1e-30)
    expected = transfer_log_z(tiny, horizontal, vertical, (True, True))
    assert transfer_log_z(zero, horizontal, vertical, (True, True)) == pytest.approx(expected, rel=1e-14)


def _uniform(shape, coupling, periodic):
    bonds = np.full(shape, coupling)
    return np.zeros(shape), bonds, bonds, periodic


def _spin_glass():
    lcg = LCG(8)
    return lcg.normal(0.2, 8, 8), lcg.sign(8, 8), lcg.sign(8, 8), (True, True)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("ising_torus_4x4_K0.3", lambda: _uniform((4, 4), 0.3, (True, True))),
        ("ising_torus_8x8_K0.4407", lambda: _uniform((8, 8), KC, (True, True))),
        ("ising_torus_8x12_Kc", lambda: _uniform((12, 8), KC, (True, True))),
        ("ising_open_8x8_K0.4407", lambda: _uniform((8, 8), KC, (False, False))),
        ("ising_open_16x16_K0.6", lambda: _uniform((16, 16), 0.6, (False, False))),
        ("ising_torus_8x8_pmJ_field", _spin_glass),
        (
            "ising_ring_24_field",
            lambda: (np.full((1, 24), 0.3), np.full((1, 24), 0.7), np.zeros((1, 24)), (False, True)),
        ),
    ],
)
def test_transfer_agrees_with_the_reference_values(reference, name, model):
    assert transfer_log_z(*model()) == pytest.approx(reference[name]["logZ"], rel=1e-12)


@pytest.mark.parametrize(
    ("shape", "periodic", "operations", "entries"),
    [
        ((20, 20), (False, False), math.log2(400) + 20, 20),
        ((20, 100), (False, False), math.log2(2000) + 20, 20),
        ((20, 100), (True, False), math.log2(2000) + 20, 20),
        ((20, 100), (False, True), math.log2(2020) + 40, 20),
        ((4, 6), (True, False), math.log2(24) + 4, 4),
        ((4, 6), (False, True), math.log2(24) + 6, 6),
        ((8, 8), (True, True), math.log2(72) + 16, 8),
    ],
)
def test_predicted_cost_of_a_transfer(shape, periodic, operations, entries):
    assert transfer_cost(shape, periodic) == pytest.approx((operations, entries))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"field": np.zeros((2, 2))}, "of one shape, got"),
        ({"field": np.full((3, 3), np.nan)}, "field must be finite"),
        ({"vertical": np.full((3, 3), np.inf)}, "vertical must be finite"),
    ],
)
def test_bad_input(change, message):
    model = {"field": np.zeros((3, 3)), "horizontal": np.zeros((3, 3)), "vertical": np.zeros((3, 3))}
    with pytest.raises(ValueError, match=message):
        transfer_log_z(**(model | change), periodic=(True, True))


def test_one_row_cannot_wrap():
    with pytest.raises(ValueError, match="periodic: a side of 1"):
        transfer_log_z(*np.zeros((3, 1, 5)), (True, True))
    with pytest.raises(ValueError, match="periodic: a side of 1"):
        transfer_log_z(*np.zeros((3, 5, 1)), (False, True))
