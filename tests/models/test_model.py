"""Models are validated once, at the door; binaries are spins in disguise."""

import copy
import pickle
from dataclasses import fields

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import PathSums, random_rbm
from hypothesis import given
from hypothesis import strategies as st

import marginalis as mg
from marginalis.engines.plan import model_digest
from marginalis.models.forms import Split
from marginalis.models.units import Categorical, Gaussian

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
        (dict(temperature=0), "temperature is 0; it must be positive"),
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


def arrays_of(thing):
    """Every array in a model, and in what it holds."""
    if isinstance(thing, np.ndarray):
        return [thing]
    if sp.issparse(thing):
        return [thing.data, thing.indices, thing.indptr]
    parts = vars(thing).values() if hasattr(thing, "__dict__") else ()
    return [array for part in parts for array in arrays_of(part)]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), lambda m: m])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("weights", [np.full((2, 3), 0.1), sp.csr_array(np.eye(2, 3) * 0.1)])
def test_copies_of_a_model_are_equal_and_read_only(copied, temperature, weights):
    model = mg.rbm(weights, [0, 0.1], [0, 0.2, 0], units=("gaussian", "binary"), temperature=temperature)
    twin = copied(mg.MRF(*(getattr(model, x.name) for x in fields(model)[:7]), Split([4, 0], [1, 2, 3])))
    assert model_digest(twin) == model_digest(model)
    assert twin.split.visible.tolist() == [4, 0]
    assert twin.visible_units.gamma.tolist() == [1, 1]
    found = arrays_of(twin)
    assert len(found) >= 9
    assert not any(array.flags.writeable for array in found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(visible_units="fermion"), "visible_units is 'fermion'"),
        (dict(hidden_units=None), "hidden_units is None"),
        (dict(visible_units=Categorical(3)), "2 features are not a multiple of 3"),
        (dict(visible_units=Gaussian((1.0,))), "visible_units: there are 1 precisions for 2 variables"),
        (dict(hidden_units=Gaussian((1.0, -1.0, 1.0))), "hidden_units: precisions must be positive"),
        (dict(offset=np.inf), "offset is inf"),
        (dict(split=3), "split must number"),
        (dict(split=Split([0.5, 1], [2, 3, 4])), "split must number"),
        (dict(split=Split([0, 1], [2, 3, 2**63])), "split must number"),
    ],
)
def test_the_class_itself_checks_its_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        mg.MRF(**(GOOD | change))


class Tensor:
    """Refuses NumPy as a torch tensor does while it has a gradient, or in a type that NumPy does not know."""

    def __init__(self, values, dtype="torch.float32", grad=True):
        self.values, self.dtype, self.grad = np.array(values, np.float32), dtype, grad

    def detach(self):
        return Tensor(self.values, self.dtype, grad=False)

    def cpu(self):
        return self

    def float(self):
        return Tensor(self.values, grad=self.grad)

    def __array__(self, dtype=None, copy=None):
        if self.grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16"])
def test_tensors_work(dtype):
    weights, b, c = ([[1.0, 2.0]], [0.5], [0.25, 1.0])
    model = mg.rbm(*(Tensor(x, dtype) for x in (weights, b, c)), temperature=Tensor(2.0, dtype))
    assert model_digest(model) == model_digest(mg.rbm(weights, b, c, temperature=2.0))
    deep = mg.dbm([Tensor(weights, dtype)], [Tensor(b, dtype), Tensor(c, dtype)])
    assert deep.weights.tolist() == weights
    rows = Tensor([[1.0], [-1.0]], dtype)
    assert mg.log_likelihood(model, rows).samples == 2
    with pytest.raises(ValueError, match="visible_bias is not a rectangular array of numbers"):
        mg.rbm(weights, [Tensor(0.5, dtype)], c)  # a list of them is not


HUGE_WORD = "x" * 10**5


@pytest.mark.parametrize(
    "value",
    [None, True, 10**5000, HUGE_WORD, "\x1b[31m", [1, [2]], {}, object(), 1j, np.zeros(0), np.zeros((2, 2, 2)), "1"]
    + [np.ma.array([1.0, 2.0], mask=[0, 1]), np.array([1, None]), np.zeros(2, "M8[s]"), np.zeros(2, [("a", "f8")])]
    + [np.array([np.longdouble("1e4000")] * 2), [np.nan, 0.0], Tensor([[[1.0]]])],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("argument", ["weights", "visible_bias", "hidden_bias", "temperature", "units"])
def test_odd_arguments_are_named(argument, value):
    with pytest.raises(ValueError, match=argument.split("_")[0]) as error:
        mg.rbm(**(GOOD | {argument: value}))
    assert len(str(error.value)) < 300
    assert str(error.value).isprintable()


def broken(kind, **arrays):
    matrix = sp.csr_array([[1.0, 2.0], [0.0, 3.0]]).asformat(kind)
    for name, value in arrays.items():
        setattr(matrix, name, value)
    return matrix


def broken_lists():
    matrix = broken("lil")
    matrix.rows[1] = [1, 0, 1, 0, 1] * 1000
    return matrix


def far_key():
    matrix = broken("dok")
    matrix._dict[7, 7] = 1.0
    return matrix


BROKEN = {
    "issue": lambda: sp.csr_array(([1.0, 1.0], [0, 5], [0, 1, 2]), shape=(2, 2)),
    "negative": lambda: sp.csr_array(([1.0, 1.0], [0, -1], [0, 1, 2]), shape=(2, 2)),
    "back": lambda: broken("csr", indptr=np.array([0, 4, 0])),
    "late": lambda: broken("csr", indptr=np.array([1, 2, 3])),
    "short": lambda: broken("csr", indptr=np.array([0, 3])),
    "slack": lambda: broken("csr", indptr=np.array([0, 0, 0])),
    "beyond": lambda: broken("csr", indptr=np.array([0, 2, 9])),
    "fewer data": lambda: broken("csr", data=np.ones(1)),
    "fractions": lambda: broken("csr", indices=np.array([0.0, 1.0, 1.0])),
    "wide": lambda: broken("csr", indices=np.array([0, 1, 2**40])),
    "columns": lambda: broken("csc", indices=np.array([0, 0, 7])),
    "columns back": lambda: broken("csc", indptr=np.array([0, 5, 3])),
    "coo": lambda: broken("coo", coords=(np.array([0, 0, 9]), np.array([0, 1, 1]))),
    "coo negative": lambda: broken("coo", coords=(np.array([0, 0, 1]), np.array([0, 1, -9]))),
    "coo short": lambda: broken("coo", coords=(np.array([0, 0]), np.array([0, 1]))),
    "blocks": lambda: broken("bsr", indices=np.array([5])),
    "block size": lambda: broken("bsr", data=np.ones((3, 5, 5))),
    "diagonals": lambda: broken("dia", offsets=np.array([0, 2**30])),
    "lists": broken_lists,
    "keys": far_key,
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_sparse_matrices_are_refused(case):
    """SciPy trusts the arrays of a sparse matrix: they are looked at before it writes where they point."""
    matrix = BROKEN[case]()
    for call, argument in (
        (lambda: mg.rbm(matrix, [0, 0], [0, 0]), "weights"),
        (lambda: mg.dbm([matrix], [[0, 0], [0, 0]]), r"weights\[0\]"),
        (lambda: mg.log_likelihood(mg.rbm(np.eye(2), [0, 0], [0, 0], units="binary"), matrix), "data"),
    ):
        with pytest.raises(ValueError, match=f"{argument} is a broken .* matrix"):
            call()


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("family", ["array", "matrix"])
def test_every_sparse_format_is_read(kind, family):
    dense = np.array([[0.5, 0.0, -1.0, 0.0], [0.0, 2.0, 0.0, 0.0]])
    matrix = getattr(sp, f"{kind}_{family}")(dense)
    model = mg.rbm(matrix, np.zeros(2), np.zeros(4))
    assert np.array_equal(model.weights.toarray(), dense)
    matrix = getattr(sp, f"{kind}_{family}")(np.eye(2, dtype=bool))
    rows = mg.log_likelihood(mg.rbm(np.eye(2), [0, 0], [0, 0], units="binary"), matrix)
    assert rows.samples == 2


def test_a_sparse_shape_is_compared_before_it_takes_memory():
    for kind in ("csc", "coo", "dok"):
        matrix = sp.coo_array(([1.0], ([0], [0])), shape=(2**40, 2)).asformat(kind)
        with pytest.raises(ValueError, match="visible_bias has length 1, but weights has 1099511627776 rows"):
            mg.rbm(matrix, [0], [0, 0])


@pytest.mark.parametrize("size", [1e150, 1e200, 1e300])
@pytest.mark.parametrize("units", ["spin", "binary", "categorical:2", ("gaussian", "spin"), "gaussian"])
def test_huge_parameters_are_answered_or_refused(size, units):
    """Warnings are errors here: none leaks from the sums."""
    rng, refused = np.random.default_rng(0), []
    for weights, bias in ((size, 0.1), (0.1, size), (size, size), (0.1 / size, size)):
        w, b, c = weights * rng.normal(size=(4, 2)), bias * rng.normal(size=4), bias * rng.normal(size=2)
        for matrix in (w, sp.csr_array(w)):
            try:
                value = mg.exact_log_z(mg.rbm(matrix, b, c, units=units))
            except ValueError as error:
                refused.append(str(error))
            else:
                assert np.isfinite(value)
    assert all("overflow" in x or "not normalisable" in x or "exact" in x for x in refused), refused
    assert "gaussian" in units or not refused
    with pytest.raises(ValueError, match="so large that"):
        mg.rbm([[1.0]], [1e308], [1.0], units=units if units != "categorical:2" else "spin")
    with pytest.raises(ValueError, match="offset"):
        mg.MRF([[1.0]], [0], [0], offset=1e308)


def test_sparse_stays_sparse():
    model = mg.rbm(sp.random(5, 7, density=0.3, random_state=1), np.zeros(5), np.zeros(7))
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
