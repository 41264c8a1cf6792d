"""Models of factors, summed by elimination: tables of any number of variables, zeros among them."""

import itertools
import math

import numpy as np
import pytest
from conftest import log_z_of_factors
from hypothesis import given, settings
from hypothesis import strategies as st

import marginalis as mg
from marginalis.exact.elimination import eliminate_factors


def random_model(seed, zeros):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    cards = tuple(int(x) for x in rng.integers(1, 4, n))
    scopes = [tuple(rng.permutation(n)[: rng.integers(0, min(n, 4) + 1)].tolist()) for _ in range(rng.integers(0, 9))]
    tables = []
    for scope in scopes:
        table = 3.0 * rng.normal(size=[cards[v] for v in scope])
        tables.append(np.where(rng.random(table.shape) < zeros, -np.inf, table))
    return mg.FactorModel(cards, tuple(scopes), tuple(tables), float(rng.normal()))


@settings(deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.2, 0.5]))
def test_random_factors_against_brute_force(seed, zeros):
    model = random_model(seed, zeros)
    wanted = log_z_of_factors(model)
    order = np.random.default_rng(seed).permutation(len(model.cards)).tolist()
    value = model.offset + eliminate_factors(model.cards, zip(model.scopes, model.tables, strict=True), order)
    assert value == pytest.approx(wanted, rel=1e-12, abs=1e-12)
    if wanted > -math.inf:
        assert mg.exact_log_z(model) == pytest.approx(wanted, rel=1e-12, abs=1e-12)
        return
    with pytest.raises(ValueError, match="Z = 0"):
        mg.exact_log_z(model)


def test_parity_has_half_of_the_states():
    """A chain of parities of three spins each: every one halves the states."""
    n = 60
    odd = np.indices((2, 2, 2)).sum(axis=0) % 2
    parity = np.where(odd == 0, 0.0, -np.inf)
    scopes = tuple((i, i + 1, i + 2) for i in range(n - 2))
    model = mg.FactorModel((2,) * n, scopes, (parity,) * (n - 2))
    result = mg.exact_log_z(model)
    assert result == pytest.approx(2 * math.log(2.0), rel=1e-12)
    assert result.method == "elimination"


def test_contradictions_that_propagation_does_not_see():
    """Three variables of two states that all differ: no state of one is impossible by itself."""
    differ = np.where(np.eye(2) == 1, -np.inf, 0.0)
    model = mg.FactorModel((2,) * 3, ((0, 1), (1, 2), (0, 2)), (differ,) * 3)
    assert model.given().n_variables == 3
    with pytest.raises(ValueError, match="Z = 0: the factors contradict each other, no state is possible"):
        mg.exact_log_z(model)


def test_hard_core_model_counts_independent_sets():
    """Of a ring of n sites they are the Lucas numbers."""
    n, lucas = 30, [2, 1]
    while len(lucas) <= n:
        lucas.append(lucas[-1] + lucas[-2])
    core = np.array([[0.0, 0.0], [0.0, -np.inf]])
    model = mg.FactorModel((2,) * n, tuple((i, (i + 1) % n) for i in range(n)), (core,) * n)
    assert mg.exact_log_z(model) == pytest.approx(math.log(lucas[n]), rel=1e-13)


def test_factors_that_are_pairs_are_summed_as_such():
    rng = np.random.default_rng(1)
    scopes = tuple((i, 8 + j) for i in range(8) for j in range(9))
    model = mg.FactorModel((2,) * 17, scopes, tuple(rng.normal(size=(2, 2)) for _ in scopes))
    result = mg.exact_log_z(model)
    assert result.method == "enumeration"
    assert result == pytest.approx(mg.exact_log_z(model.as_mrf(), method="elimination"), rel=1e-12)


def test_other_methods_and_too_large_models():
    rng = np.random.default_rng(2)
    scopes = tuple(itertools.combinations(range(36), 3))[::3]
    model = mg.FactorModel((2,) * 36, scopes, tuple(rng.normal(size=(2, 2, 2)) for _ in scopes))
    with pytest.raises(mg.ModelTooLarge, match=r"variable elimination with tables of 2\^\d\d entries"):
        mg.exact_log_z(model, max_seconds=1.0)
    with pytest.raises(ValueError, match="method 'transfer' does not apply to this model"):
        mg.exact_log_z(model, method="transfer")
    with pytest.raises(ValueError, match="method is 'magic'"):
        mg.exact_log_z(model, method="magic")


def test_a_model_without_variables_left():
    model = mg.FactorModel((2, 2), ((0, 1),), (np.array([[1.0, 2.0], [3.0, 4.0]]),)).given({0: 1, 1: 0})
    assert mg.exact_log_z(model) == 3.0
