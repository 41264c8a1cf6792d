"""The gradient of ln Z: by finite differences of exact values, and through the recipes of the documentation."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import marginalis as mg

RNG = np.random.default_rng(8)
W, B, C = RNG.normal(size=(4, 3)) * 0.5, RNG.normal(size=4) * 0.3, RNG.normal(size=3) * 0.2
STEP = 1e-5


def by_differences(make, array):
    """∂ ln Z by every entry of an array."""
    found = np.zeros(array.shape)
    for place in np.ndindex(array.shape):
        ends = []
        for sign in (1.0, -1.0):
            moved = array.copy()
            moved[place] += sign * STEP
            ends.append(mg.exact_log_z(make(moved)))
        found[place] = (ends[0] - ends[1]) / (2.0 * STEP)
    return found


@pytest.mark.parametrize("units", ["spin", "binary", ("spin", "gaussian"), ("categorical:2", "binary")])
def test_gradient_of_an_rbm_is_the_difference_quotient(units):
    def make(w=W, b=B, c=C):
        return mg.rbm(w, b, c, units=units, temperature=1.4)

    exact = mg.expectations(make(), exact=True)
    gradient = exact.gradient()
    for name, array in (("weights", W), ("visible_bias", B), ("hidden_bias", C)):
        key = {"weights": "w", "visible_bias": "b", "hidden_bias": "c"}[name]
        wanted = by_differences(lambda x, key=key: make(**{key: x}), array)
        assert getattr(gradient, name) == pytest.approx(wanted, abs=1e-7)
        assert not getattr(gradient, f"{name}_error").any()
    assert exact.log_z == mg.exact_log_z(make())


def test_gradient_from_chains_agrees_within_its_errors():
    model = mg.rbm(W, B, C, units="binary")
    exact = mg.expectations(model, exact=True).gradient()
    found = mg.expectations(model, exact=False, steps=60, chains=400, seed=3)
    assert found.log_z == found.estimate.log_z
    gradient = found.gradient()
    for name in ("weights", "visible_bias", "hidden_bias"):
        z = (getattr(gradient, name) - getattr(exact, name)) / getattr(gradient, f"{name}_error")
        assert np.abs(z).max() < 4.5


def test_gradient_on_any_graph_has_the_shape_of_its_couplings():
    edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2), (5, 0)]
    model = mg.from_edges(edges, coupling=RNG.normal(size=7), field=RNG.normal(size=6) / 3, temperature=0.8)
    gradient = mg.expectations(model, exact=True).gradient()
    assert gradient.weights.shape == model.weights.shape
    assert sp.issparse(gradient.weights) == sp.issparse(model.weights)

    def entries(matrix):
        return matrix.toarray() if sp.issparse(matrix) else matrix

    w, inside = entries(model.weights), entries(model.lateral)
    for i, j in np.argwhere(w):
        ends = []
        for sign in (1.0, -1.0):
            moved = w.copy()
            moved[i, j] += sign * STEP
            ends.append(mg.exact_log_z(replace(model, weights=sp.csr_array(moved))))
        assert entries(gradient.weights)[i, j] == pytest.approx((ends[0] - ends[1]) / (2 * STEP), abs=1e-7)
    i, j = np.argwhere(inside)[0]
    ends = []
    for sign in (1.0, -1.0):
        moved = inside.copy()
        moved[i, j] += sign * STEP
        moved[j, i] += sign * STEP
        ends.append(mg.exact_log_z(replace(model, lateral=moved)))
    assert entries(gradient.lateral)[i, j] == pytest.approx((ends[0] - ends[1]) / (2 * STEP), abs=1e-7)
    assert entries(gradient.lateral) == pytest.approx(entries(gradient.lateral).T)


def test_gradients_by_absent_couplings_are_refused():
    zeros = W.copy()
    zeros[0, 0] = 0.0
    with pytest.raises(ValueError, match="weights has 1 zeros, and ∂ ln Z by these is not known"):
        mg.expectations(mg.rbm(zeros, B, C)).gradient()
    sparse = mg.expectations(mg.rbm(sp.csr_array(zeros), B, C)).gradient()
    assert sparse.weights.nnz == 11
    tiny = np.where(zeros == 0.0, 1e-300, zeros)
    wanted = by_differences(lambda w: mg.rbm(w, B, C), zeros)
    assert mg.expectations(mg.rbm(tiny, B, C), exact=True).gradient().weights == pytest.approx(wanted, abs=1e-7)
    hard = mg.FactorModel((2, 2, 2), ((0, 1, 2),), (RNG.normal(size=(2, 2, 2)),))
    with pytest.raises(ValueError, match="a model of factors has no biases and couplings"):
        mg.expectations(hard).gradient()


def recipe(name):
    """The code of a section of the page."""
    page = Path(__file__).parents[2] / "docs" / "gradients.md"
    if not page.exists():
        pytest.skip("the documentation is not here")
    code = re.search(rf"## {name}\n.*?```py\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[1]
    names = {}
    exec(compile(code, str(page), "exec"), names)
    return names


def test_the_recipe_for_torch():
    torch = pytest.importorskip("torch")
    names = recipe("PyTorch")
    rows = RNG.integers(0, 2, (7, 4)).astype(float)
    parameters = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (W, B, C)]
    value = names["log_likelihood"](torch.tensor(rows), *parameters, exact=True)
    wanted = mg.log_likelihood(mg.rbm(W, B, C, units="binary"), rows)
    assert value.item() == pytest.approx(wanted.mean, rel=1e-10)
    value.backward()

    def likelihood(w, b, c):
        return mg.log_likelihood(mg.rbm(w, b, c, units="binary"), rows).mean

    moved = [x.copy() for x in (W, B, C)]
    for parameter, array in zip(parameters, moved, strict=True):
        place = (0,) * array.ndim
        ends = []
        for sign in (1.0, -2.0):
            array[place] += sign * STEP
            ends.append(likelihood(*moved))
        array[place] += STEP
        assert float(parameter.grad[place]) == pytest.approx((ends[0] - ends[1]) / (2 * STEP), abs=1e-6)


def test_the_recipe_for_jax():
    jax = pytest.importorskip("jax")
    names = recipe("JAX")
    arrays = [jax.numpy.asarray(x, dtype="float32") for x in (W, B, C)]
    value, gradient = jax.jit(jax.value_and_grad(names["log_z"], argnums=(0, 1, 2)))(*arrays)
    wanted = mg.expectations(mg.rbm(W, B, C, units="binary"), exact=True)
    assert float(value) == pytest.approx(wanted.log_z, rel=1e-5)
    assert np.asarray(gradient[0]) == pytest.approx(wanted.gradient().weights, abs=1e-5)
