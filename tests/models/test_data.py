"""Rows of categorical variables as numbers of states, wherever rows are taken."""

import numpy as np
import pytest

import marginalis as mg
from marginalis.models.data import split_rows

RNG = np.random.default_rng(4)


def potts_rbm(visible=3, hidden=4, q=3):
    shape = visible * q, hidden
    return mg.rbm(
        RNG.normal(size=shape), RNG.normal(size=shape[0]), RNG.normal(size=hidden), units=(f"categorical:{q}", "binary")
    )


def one_hot(states, q):
    return np.eye(q)[states].reshape(len(states), -1)


def test_visible_states_are_one_hot_features():
    model = potts_rbm()
    states = RNG.integers(0, 3, (20, 3))
    rows = one_hot(states, 3)
    by_state, by_feature = (mg.log_likelihood(model, x).per_sample for x in (states, rows))
    assert np.array_equal(by_state, by_feature)
    assert np.array_equal(mg.log_likelihood(model, states[0].astype(float)).per_sample, by_feature[:1])
    assert np.array_equal(mg.data_base(model, states).visible, mg.data_base(model, rows).visible)
    options = dict(steps=5, chains=20, engine="numpy")
    one, two = (mg.bound(model, x, **options).reverse_log_weights for x in (states, rows))
    assert np.array_equal(one, two)
    assert np.array_equal(mg.states(model, rows), states)
    assert np.array_equal(mg.states(model, states), states)


def test_states_of_all_variables_in_the_callers_order():
    """On an open chain of 5 Potts variables the sides are the odd and the even ones."""
    model = mg.potts([(0, 1), (1, 2), (2, 3), (3, 4)], q=3, coupling=0.7, field=RNG.normal(size=(5, 3)))
    states = RNG.integers(0, 3, (30, 5))
    whole = [mg.log_likelihood(model, x).per_sample for x in (states, one_hot(states, 3))]
    assert whole[0] == pytest.approx(whole[1], abs=1e-12)
    assert np.array_equal(mg.states(model, one_hot(states, 3)), states)
    drawn = mg.sample(model, 50)
    assert np.array_equal(one_hot(mg.states(model, drawn.rows), 3), drawn.rows)


def test_hidden_states_of_a_pair_of_samples():
    w = RNG.normal(size=(6, 9))
    model = mg.rbm(w, np.zeros(6), np.zeros(9), units="categorical:3")
    v, h = RNG.integers(0, 3, (10, 2)), RNG.integers(0, 3, (10, 3))
    options = dict(steps=5, chains=10, engine="numpy", method="mais-h")
    one, two = (mg.bound(model, x, **options).reverse_log_weights for x in ((v, h), (one_hot(v, 3), one_hot(h, 3))))
    assert np.array_equal(one, two)


def test_two_state_variables_have_states():
    model = mg.ising_grid((2, 2))
    assert mg.states(model, [[-1, 1, 1, -1]]).tolist() == [[0, 1, 1, 0]]
    gaussian = mg.rbm(np.ones((2, 2)) / 9, np.zeros(2), np.zeros(2), units=("gaussian", "spin"))
    with pytest.raises(ValueError, match="a Gaussian variable has no states"):
        mg.states(gaussian, [[0.1, 0.2]])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0, 1, 3]], r"data\[0, 2\] is 3; the states of that variable are numbered from 0 to 2"),
        ([[0, 1, 2], [0.5, 1, 2]], r"data\[1, 0\] is 0.5; the states"),
        ([[0, -1, 2]], r"data\[0, 1\] is -1; the states"),
        (
            np.zeros((2, 4)),
            r"data has 4 columns; the model has 9 visible features \(3 variables one-hot, or 3 columns of states\), "
            r"and 13 in all \(or 7 columns of states\)",
        ),
    ],
)
def test_bad_states(rows, message):
    with pytest.raises(ValueError, match=message):
        mg.log_likelihood(potts_rbm(), rows)


def test_an_ambiguous_shape_is_one_hot_or_refused():
    """2 variables of 3 states and 4 binaries: 6 visible features, 6 variables."""
    model = potts_rbm(2, 4)
    visible, hidden = split_rows(model, one_hot(np.array([[0, 2]]), 3))
    assert hidden is None
    assert visible.tolist() == [[1, 0, 0, 0, 0, 1]]
    with pytest.raises(ValueError, match=r"could be 6 visible features or the states of 6 variables: give all 10 feat"):
        mg.log_likelihood(model, [[0, 2, 1, 1, 0, 0]])
    with pytest.raises(ValueError, match=r"exactly one of them 1\. 6 columns could be"):
        mg.log_likelihood(model, [[0, 0, 1, 1, 0, 1]])
