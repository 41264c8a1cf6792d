"""Variables summed out of a model of factors before anything else is done with it."""

import math

import numpy as np
import pytest
from conftest import log_z_of_factors
from hypothesis import given, settings
from hypothesis import strategies as st

import marginalis as mg
from marginalis.models.reduction import split


def random_model(seed, zeros):
    rng = np.random.default_rng(seed)
    cards = tuple(int(x) for x in rng.integers(2, 4, 7))
    scopes = [tuple(rng.permutation(7)[: rng.integers(1, 5)].tolist()) for _ in range(8)]
    tables = []
    for scope in scopes:
        table = 3.0 * rng.normal(size=[cards[v] for v in scope])
        table[rng.random(table.shape) < zeros] = -np.inf
        tables.append(table)
    return mg.FactorModel(cards, tuple(scopes), tuple(tables), 0.5, tuple("abcdefg"))


@settings(deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 2.5, 6.0, 20.0]))
def test_reduction_does_not_change_ln_z(seed, zeros, bound):
    model = random_model(seed, zeros)
    wanted = log_z_of_factors(model)
    if wanted == -math.inf:
        with pytest.raises(ValueError, match="Z = 0"):
            mg.exact_log_z(model.reduced(bound))
        return
    left = model.reduced(bound)
    assert set(left.labels) <= set(model.labels)
    assert log_z_of_factors(left) == pytest.approx(wanted, rel=1e-12, abs=1e-12)
    if bound == 20.0:
        assert left.n_variables == 0


def network(n, parents, rng):
    """A Bayesian network in which no variable is far from the first ones, and whose width is large."""
    scopes, tables = [], []
    for v in range(n):
        scope = (*rng.choice(v, min(v, parents), replace=False).tolist(), v)
        weights = rng.dirichlet(np.ones(2), size=(2,) * (len(scope) - 1))
        scopes.append(scope)
        tables.append(np.log(weights))
    return mg.FactorModel((2,) * n, tuple(scopes), tuple(tables))


def test_barren_variables_disappear():
    model = network(300, 4, np.random.default_rng(0))
    left = model.reduced(0.0)
    assert left.n_variables == 0
    assert left.offset == pytest.approx(0.0, abs=1e-11)
    held = model.given({250: 0}).reduced(0.0)  # all that 250 does not depend on disappears
    ancestors, todo = {250}, [250]
    while todo:
        scope = model.scopes[todo.pop()]
        fresh = set(scope) - ancestors
        ancestors |= fresh
        todo += fresh
    assert set(held.labels) <= ancestors


def test_a_table_that_is_a_sum_is_split():
    rng = np.random.default_rng(1)
    one, two = rng.normal(size=3), rng.normal(size=(2, 4))
    one[1] = -np.inf
    parts = split((5, 7, 9), one[None, :, None] + two[:, None, :] + 0.25)
    assert parts.scope == (5, 9)
    ((variable, own),) = parts.single
    assert variable == 7
    again = parts.constant + own[None, :, None] + parts.table[:, None, :]
    assert np.allclose(np.exp(again), np.exp(one[None, :, None] + two[:, None, :] + 0.25), rtol=1e-14)
    assert split((1, 2), np.full((2, 3), -np.inf)).constant == -math.inf
    assert split((1, 2), rng.normal(size=(2, 3))).scope == (1, 2)


def test_pairs_are_reduced_too():
    model = mg.FactorModel.of(mg.ising_grid((3, 30), coupling=0.7, field=0.1))
    left = model.reduced(20.0)
    assert left.n_variables == 0
    assert left.offset == pytest.approx(mg.exact_log_z(mg.ising_grid((3, 30), coupling=0.7, field=0.1)), rel=1e-12)


def test_bad_input():
    model = mg.FactorModel((2, 2), ((0, 1),), (np.zeros((2, 2)),))
    with pytest.raises(ValueError, match="bound is nan"):
        model.reduced(math.nan)
    differ = np.where(np.eye(2) == 1, -np.inf, 0.0)
    with pytest.raises(ValueError, match="Z = 0"):
        mg.FactorModel((2,) * 3, ((0, 1), (1, 2), (0, 2)), (differ,) * 3).reduced()
