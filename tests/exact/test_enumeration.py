"""The exact sum over one side against brute force and itself."""

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import PathSums, random_rbm
from hypothesis import given, settings
from hypothesis import strategies as st

import marginalis as mg


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 8),
    m=st.integers(1, 8),
    units=st.tuples(*[st.sampled_from(["spin", "binary"])] * 2),
    temperature=st.sampled_from([10.0, 1.0, 0.1, 0.01, 1e-3, 1e-5]),
)
def test_enumeration_agrees_with_the_sum_over_all_states(seed, n, m, units, temperature):
    model = random_rbm(np.random.default_rng(seed), n, m, units=units, temperature=temperature)
    # ln Z of binaries may nearly cancel, so the error is measured against the size of the exponents
    size = 1 + abs(model.natural.weights).sum()
    assert mg.exact_log_z(model) == pytest.approx(PathSums(model, [0, 1]).log_z, rel=1e-13, abs=1e-14 * size)


def test_threads_do_not_change_the_bits():
    model = random_rbm(np.random.default_rng(0), 14, 17)
    assert mg.exact_log_z(model, threads=1) == mg.exact_log_z(model, threads=3)


def test_both_forms_of_the_tables_agree():
    """Around the switch to logarithms the two kernels meet (13 spins)."""
    rng = np.random.default_rng(1)
    w = rng.normal(size=(13, 30))
    scale = 300.0 / np.abs(w).sum(axis=0).max()
    for factor in (0.99, 1.01):
        model = mg.rbm(w * scale * factor, np.zeros(13), np.zeros(30))
        v = 2.0 * ((np.arange(2**13)[:, None] >> np.arange(13)) & 1) - 1
        a = v @ model.weights
        assert mg.exact_log_z(model) == pytest.approx(np.logaddexp.reduce(np.logaddexp(a, -a).sum(axis=1)), rel=1e-13)


def test_sparse_and_many_columns():
    rng = np.random.default_rng(2)
    w = sp.csr_array(np.where(rng.random((6, 5000)) < 0.2, rng.random((6, 5000)), 0.0))
    model = mg.rbm(w, np.zeros(6), np.full(5000, 0.1))
    assert mg.exact_log_z(model) == pytest.approx(mg.exact_log_z(mg.rbm(w.toarray(), np.zeros(6), np.full(5000, 0.1))))


def test_too_large_says_how_large():
    model = mg.rbm(np.ones((60, 70)), np.zeros(60), np.zeros(70))
    with pytest.raises(mg.ModelTooLarge, match=r"smaller side has 60 units.*2\^60 states x 70 units.*years"):
        mg.exact_log_z(model)
    with pytest.raises(ValueError, match="universe"):
        mg.exact_log_z(mg.rbm(np.ones((2000, 2000)), np.zeros(2000), np.zeros(2000)))
    small = mg.rbm(np.ones((20, 20)), np.zeros(20), np.zeros(20))
    with pytest.raises(mg.ModelTooLarge, match="limit"):
        mg.exact_log_z(small, max_seconds=1e-6)


def test_a_large_model_without_couplings_is_easy():
    model = mg.rbm(np.zeros((60, 70)), np.full(60, 0.3), np.zeros(70))
    log_z = mg.exact_log_z(model)
    assert log_z == pytest.approx(60 * np.log(2 * np.cosh(0.3)) + 70 * np.log(2))
    assert log_z.method == "elimination"
