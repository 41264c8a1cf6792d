"""Models of factors: evidence, impossible states, and what is left of them."""

import contextlib
import math

import numpy as np
import pytest
from conftest import log_z_of_factors
from hypothesis import given, settings
from hypothesis import strategies as st

import marginalis as mg


def random_model(seed, *, largest=2, zeros=0.0, states=(2, 3)):
    rng = np.random.default_rng(seed)
    cards = tuple(int(x) for x in rng.integers(states[0], states[1] + 1, 6))
    scopes = [(i,) for i in range(6)]
    scopes += [tuple(rng.permutation(6)[: rng.integers(2, largest + 1)].tolist()) for _ in range(8)]
    tables = []
    for scope in scopes:
        table = rng.normal(size=[cards[v] for v in scope])
        table[rng.random(table.shape) < zeros] = -np.inf
        tables.append(table)
    return mg.FactorModel(cards, tuple(scopes), tuple(tables), 0.5)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_pairs_become_a_model(seed, two):
    model = random_model(seed, states=(2, 2) if two else (2, 3))
    pairs = model.as_mrf()
    assert (pairs.visible_units.name == "spin") == (set(model.cards) == {2})
    assert mg.exact_log_z(pairs) == pytest.approx(log_z_of_factors(model), rel=1e-11, abs=1e-11)
    back = mg.FactorModel.of(pairs)
    assert back.cards == model.cards
    x = np.random.default_rng(seed).integers(0, model.cards)
    value, again = (
        m.offset + sum(float(t[tuple(x[list(s)])]) for s, t in zip(m.scopes, m.tables, strict=True))
        for m in (model, back)
    )
    assert again == pytest.approx(value, abs=1e-11)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.dictionaries(st.integers(0, 5), st.integers(0, 1), max_size=6))
def test_evidence_and_impossible_states(seed, held):
    model = random_model(seed, largest=3, zeros=0.25)
    wanted = log_z_of_factors(model, held)
    if wanted == -math.inf:
        with contextlib.suppress(ValueError):  # which need not be found out before the sum
            assert log_z_of_factors(model.given(held)) == -math.inf
        return
    left = model.given(held)
    assert log_z_of_factors(left) == pytest.approx(wanted, abs=1e-11)
    assert not set(left.labels) & set(held)
    assert all(card >= 2 for card in left.cards)
    assert len(set(left.scopes)) == len(left.scopes)  # one factor for the same variables
    for scope, table in zip(left.scopes, left.tables, strict=True):
        for axis in range(len(scope)):  # every state that is left can occur as far as one factor knows
            assert (np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1) > -np.inf).any(axis=1).all()


def test_propagation_goes_all_the_way():
    """A chain of implications x_0 = 1 ⇒ x_1 = 1 ⇒ …: nothing is left, and the zeros with it."""
    n = 50
    implies = np.log([[1.0, 1.0], [0.0, 2.0]], where=[[True, True], [False, True]], out=np.full((2, 2), -np.inf))
    scopes = tuple((i, i + 1) for i in range(n - 1))
    model = mg.FactorModel((2,) * n, scopes, (implies,) * (n - 1))
    left = model.given({0: 1})
    assert left.n_variables == 0
    assert left.offset == pytest.approx((n - 1) * math.log(2.0), rel=1e-14)
    with pytest.raises(ValueError, match=r"no variable is left.*ln Z = 33\.96"):
        left.as_mrf()
    with pytest.raises(ValueError, match="Z = 0: the factor of"):
        model.given({0: 1, n - 1: 0})


def test_states_and_not_only_variables_disappear():
    """A zero is gone with the state that it forbids."""
    table = np.array([[0.3, 0.1, -np.inf], [0.2, -0.7, -np.inf], [0.5, 0.9, -np.inf]])
    model = mg.FactorModel((3, 3), ((0, 1),), (table,))
    pairs = model.given().as_mrf()
    assert sorted([pairs.visible_units.name, pairs.hidden_units.name]) == ["categorical:2", "categorical:3"]
    assert mg.exact_log_z(pairs) == pytest.approx(log_z_of_factors(model), rel=1e-13)


def test_tables_that_couple_nothing_leave_no_edge():
    rng = np.random.default_rng(3)
    for cards in ((2, 2, 2), (3, 2, 4)):
        sums = tuple(rng.normal(size=(cards[i], 1)) + rng.normal(size=cards[i + 1]) for i in range(2))
        model = mg.FactorModel(cards, ((0, 1), (1, 2)), sums)
        pairs = model.as_mrf()
        assert pairs.n_edges == 0
        assert mg.exact_log_z(pairs) == pytest.approx(log_z_of_factors(model), rel=1e-13)


def test_a_dense_bipartite_model_is_dense():
    rng = np.random.default_rng(4)
    scopes = tuple((i, 5 + j) for i in range(5) for j in range(6))
    model = mg.FactorModel((2,) * 11, scopes, tuple(rng.normal(size=(2, 2)) for _ in scopes)).as_mrf()
    assert not model.is_sparse
    assert model.weights.shape == (5, 6)


def test_labels_are_kept():
    model = random_model(1)
    left = model.given({0: 1, 3: 0})
    assert left.labels == (1, 2, 4, 5)
    assert tuple(left.as_mrf().labels) == (1, 2, 4, 5)
    named = mg.FactorModel((2, 2), ((0, 1),), (np.zeros((2, 2)),), labels=("rain", "wet"))
    assert named.given({"rain": 1}).labels == ("wet",)
    with pytest.raises(ValueError, match="names the variable 'sun'"):
        named.given({"sun": 1})
    with pytest.raises(ValueError, match="'rain' in state 2; it has 2 states"):
        named.given({"rain": 2})


def test_why_not_annealed():
    triple = random_model(7, largest=3)
    with pytest.raises(ValueError, match="joins 3 variables, and an MRF has pairs only"):
        triple.as_mrf()
    equal = np.where(np.eye(2) == 1, 0.0, -np.inf)
    with pytest.raises(ValueError, match=r"the factor of \(0, 1\) forbids some states"):
        mg.FactorModel((2, 2), ((0, 1),), (equal,)).as_mrf()


@pytest.mark.parametrize(
    ("scopes", "tables", "problem"),
    [
        (((0, 0),), (np.zeros((2, 2)),), "different variables"),
        (((0, 2),), (np.zeros((2, 2)),), "different variables"),
        (((0, 1),), (np.zeros((3, 2)),), "shape"),
        (((0, 1),), (np.full((2, 3), np.nan),), "finite or -inf"),
        (((0, 1),), (np.full((2, 3), np.inf),), "finite or -inf"),
        (((0, 1),), (), "1 scopes for 0 tables"),
    ],
)
def test_invalid_factors_are_refused(scopes, tables, problem):
    with pytest.raises(ValueError, match=problem):
        mg.FactorModel((2, 3), scopes, tables)


def test_gaussian_models_have_no_tables():
    with pytest.raises(ValueError, match="Gaussian variables, which have no tables"):
        mg.FactorModel.of(mg.rbm(np.full((2, 2), 0.1), np.zeros(2), np.zeros(2), units="gaussian"))
