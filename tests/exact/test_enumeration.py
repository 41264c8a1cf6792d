"""The exact sum against reference values, brute force and itself."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import LCG, PathSums, random_rbm
from hypothesis import given, settings
from hypothesis import strategies as st

import marginalis as mg


def reference_rbms():
    def paper(seed, weights, temperature):
        lcg = LCG(seed)
        b, c = lcg.uniform(-0.001, 0.001, 20), lcg.uniform(-0.001, 0.001, 40)
        return mg.rbm(weights(lcg), b, c, temperature=temperature)

    def gaussian(lcg):
        return lcg.normal(60**-0.5, 20, 40)

    def small(seed, n, m, sd, units):
        lcg = LCG(seed)
        b, c = lcg.normal(0.5, n), lcg.normal(0.5, m)
        return mg.rbm(lcg.normal(sd, n, m), b, c, units=units)

    w = np.full((30, 20), 1 / math.sqrt(600))
    return {
        "rbm_pm1_gauss_20x40_invT0.2": paper(1, gaussian, 5.0),
        "rbm_pm1_gauss_20x40_invT2": paper(1, gaussian, 0.5),
        "rbm_pm1_hopfield_20x40_invT2": paper(2, lambda lcg: lcg.sign(20, 40) / math.sqrt(20), 0.5),
        "rbm_pm1_small_8x6": small(3, 8, 6, 0.7, "spin"),
        "rbm_01_12x9": small(4, 12, 9, 0.8, "binary"),
        "bipartite_curie_weiss_30x20": mg.rbm(w, np.full(30, 0.05), np.full(20, -0.02)),
    }


@pytest.mark.parametrize("name", reference_rbms())
def test_reference_values(reference, name):
    model, case = reference_rbms()[name], reference[name]
    assert model.n_variables == case["n_units"]
    if "param_sum" in case:
        total = model.weights.sum() + model.visible_bias.sum() + model.hidden_bias.sum()
        assert total == pytest.approx(case["param_sum"], rel=1e-10)
    assert mg.exact_log_z(model) == pytest.approx(case["logZ"], rel=1e-13)
    estimates = [mg.estimate(model, method=m, steps=300, chains=2000) for m in ("ais", "mais-v", "mais-h")]
    for r in estimates:
        assert abs(r.log_z - case["logZ"]) < 4.5 * r.stderr


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 8),
    m=st.integers(1, 8),
    units=st.tuples(*[st.sampled_from(["spin", "binary"])] * 2),
    temperature=st.sampled_from([10.0, 1.0, 0.1, 0.01, 1e-3, 1e-5]),
)
def test_brute_force(seed, n, m, units, temperature):
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
        assert mg.exact_log_z(model) == pytest.approx(
            np.logaddexp.reduce(np.logaddexp(a, -a).sum(axis=1)), rel=1e-13
        )


def test_sparse_and_many_columns():
    rng = np.random.default_rng(2)
    w = sp.random_array((6, 5000), density=0.2, rng=rng)
    model = mg.rbm(w, np.zeros(6), np.full(5000, 0.1))
    assert mg.exact_log_z(model) == pytest.approx(
        mg.exact_log_z(mg.rbm(w.toarray(), np.zeros(6), np.full(5000, 0.1)))
    )


def test_too_large_says_how_large():
    model = mg.rbm(np.zeros((60, 70)), np.zeros(60), np.zeros(70))
    with pytest.raises(mg.ModelTooLarge, match=r"smaller side has 60 units.*2\^60 states x 70 units.*years"):
        mg.exact_log_z(model)
    with pytest.raises(ValueError, match="universe"):
        mg.exact_log_z(mg.rbm(np.zeros((2000, 2000)), np.zeros(2000), np.zeros(2000)))
    small = mg.rbm(np.zeros((20, 20)), np.zeros(20), np.zeros(20))
    with pytest.raises(mg.ModelTooLarge, match="limit"):
        mg.exact_log_z(small, max_seconds=1e-6)
