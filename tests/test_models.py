"""Models are validated once, at the door; binaries are spins in disguise."""

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import PathSums, random_rbm
from hypothesis import given
from hypothesis import strategies as st

import marginalis as mg

GOOD = dict(weights=[[1.0, 2.0, 3.0], [0.0, -1.0, 0.5]], visible_bias=[0.1, 0.2], hidden_bias=[0, 0, 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(weights=[[1, 2, np.nan], [0, 0, 0]]), "weights holds NaN"),
        (dict(visible_bias=[0.1, np.inf]), "visible_bias holds NaN or infinite"),
        (dict(visible_bias=[0.1]), "visible_bias has length 1, but weights has 2 rows"),
        (dict(hidden_bias=[0.1]), "hidden_bias has length 1, but weights has 3 columns"),
        (dict(weights=[1.0, 2.0]), "weights has 1 dimensions"),
        (dict(weights=[[1.0, 2.0, 3.0], [0.0]]), "weights"),
        (dict(weights=np.zeros((0, 3))), "weights is empty"),
        (dict(weights=[["a", "b", "c"]] * 2), "weights has dtype"),
        (dict(weights=np.ones((2, 3), complex)), "weights has dtype complex128"),
        (dict(weights=sp.csr_array(np.array([[1, 2, np.inf], [0, 0, 0]]))), "weights holds NaN"),
        (dict(temperature=0), "temperature is 0.0; it must be positive"),
        (dict(temperature=-1.0), "temperature"),
        (dict(temperature=np.nan), "temperature"),
        (dict(temperature=np.inf), "temperature"),
        (dict(temperature="hot"), "temperature"),
        (dict(temperature=1e-320), "overflow"),
        (
            dict(units="potts?"),
            "visible units is 'potts\\?'; it must be one of binary, categorical:q, gaussian, spin",
        ),
        (dict(units=("spin", "fermion")), "hidden units is 'fermion'"),
        (dict(units=("spin",)), "units"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        mg.rbm(**(GOOD | change))


def test_a_model_is_a_value():
    weights = np.ones((2, 2))
    model = mg.rbm(weights, [0, 0], [0, 0])
    weights[0, 0] = 5
    assert model.weights[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        model.weights[0, 0] = 5
    with pytest.raises(AttributeError):
        model.temperature = 2.0


def test_sparse_stays_sparse():
    model = mg.rbm(sp.random_array((5, 7), density=0.3, rng=1, format="coo"), np.zeros(5), np.zeros(7))
    assert model.is_sparse
    assert sp.issparse(model.transposed().weights)
    assert sp.issparse(model.spin_form.weights)


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 4),
    m=st.integers(1, 4),
    units=st.tuples(*[st.sampled_from(["spin", "binary"])] * 2),
    temperature=st.floats(0.1, 10),
)
def test_spin_form_is_the_same_model(seed, n, m, units, temperature):
    """Every state of the ±1 model has the energy of the state it stands for."""
    model = random_rbm(np.random.default_rng(seed), n, m, units=units, temperature=temperature)
    form = model.spin_form
    spins = mg.rbm(form.weights, form.visible_bias, form.hidden_bias)
    np.testing.assert_allclose(
        PathSums(spins, [0, 1]).log_p[1] + form.constant,
        PathSums(model, [0, 1]).log_p[1],
        rtol=1e-12,
        atol=1e-11,
    )


def test_sizes_and_transpose():
    model = mg.rbm(**GOOD, units=("spin", "binary"), temperature=2)
    assert (model.n_visible, model.n_hidden, model.n_variables) == (2, 3, 5)
    turned = model.transposed()
    assert np.array_equal(turned.weights, model.weights.T)
    assert turned.visible_units.name == "binary"
    assert mg.exact_log_z(turned) == pytest.approx(mg.exact_log_z(model), rel=1e-14)
