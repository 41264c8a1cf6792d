"""Machines of RestrictedBoltzmannMachines.jl with units of every kind, against sums and integrals of their own."""

import itertools
import math

import numpy as np
import pytest
from julia_files import write_julia
from scipy.integrate import quad

import marginalis as mg

h5py = pytest.importorskip("h5py")

VALUES = {"Binary": (0.0, 1.0), "Spin": (-1.0, 1.0)}


def side_states(kind, n):
    """All states of a side as features in Julia's order of memory."""
    if kind.startswith("Potts"):
        return np.array([np.eye(3)[list(x)].ravel() for x in itertools.product(range(3), repeat=n)])
    return np.array(list(itertools.product(VALUES[kind], repeat=n)))


@pytest.mark.parametrize("rbm_type", ["RBM", "CenteredRBM", "StandardizedRBM"])
@pytest.mark.parametrize(
    "kinds", [("Binary", "Binary"), ("Spin", "Binary"), ("Potts", "Spin"), ("Spin", "PottsGumbel")]
)
def test_julia_machines(tmp_path, kinds, rbm_type):
    arrays = write_julia(tmp_path / "m.h5", kinds=kinds, rbm_type=rbm_type)
    flat = {name: x.ravel(order="F") for name, x in arrays.items()}
    v, h = side_states(kinds[0], 3), side_states(kinds[1], 2)
    w = flat["weights"].reshape(v.shape[1], h.shape[1], order="F")
    x = (v - flat.get("offset_v", 0.0)) / flat.get("scale_v", 1.0)
    y = (h - flat.get("offset_h", 0.0)) / flat.get("scale_h", 1.0)
    terms = (v @ flat["visible_par"])[:, None] + h @ flat["hidden_par"] + x @ w @ y.T
    model = mg.load(tmp_path / "m.h5")
    assert mg.exact_log_z(model) == pytest.approx(np.logaddexp.reduce(terms, axis=None), rel=1e-12)


def rectified_energies(kind, par):
    """θ and γ of both sides of the units of a layer, as RestrictedBoltzmannMachines.jl computes them."""
    if kind == "ReLU":
        return par[0], None, np.abs(par[1]), None
    if kind == "dReLU":
        return par[0], par[1], np.abs(par[2]), np.abs(par[3])
    theta, gamma, delta, eta = par if len(par) == 4 else (par[0], np.ones(par.shape[1]), par[1], par[2])
    eta = eta if kind == "pReLU" else eta / (1.0 + np.abs(eta))
    gamma = np.abs(gamma)
    return theta + delta / (1.0 + eta), theta - delta / (1.0 - eta), gamma / (1.0 + eta), gamma / (1.0 - eta)


@pytest.mark.parametrize("rbm_type", ["RBM", "CenteredRBM", "StandardizedRBM"])
@pytest.mark.parametrize("kind", ["ReLU", "dReLU", "pReLU", "xReLU", "nsReLU"])
def test_rectified_hidden_units(tmp_path, kind, rbm_type):
    arrays = write_julia(tmp_path / "m.h5", kinds=("Spin", kind), rbm_type=rbm_type)
    theta_plus, theta_minus, gamma_plus, gamma_minus = rectified_energies(kind, arrays["hidden_par"])
    v = side_states("Spin", 3)
    x = (v - arrays.get("offset_v", 0.0)) / arrays.get("scale_v", 1.0)
    inputs = x @ (arrays["weights"] / arrays.get("scale_h", np.ones(2)))
    terms = v @ arrays["visible_par"][0] - inputs @ arrays.get("offset_h", np.zeros(2))
    for unit in range(2):
        for row, field in enumerate(inputs[:, unit]):
            up, g = theta_plus[unit] + field, gamma_plus[unit]
            whole = quad(lambda h, a=up, g=g: math.exp(a * h - 0.5 * g * h * h), 0.0, math.inf, epsrel=1e-12)[0]
            if theta_minus is not None:
                down, g = theta_minus[unit] + field, gamma_minus[unit]
                whole += quad(lambda h, a=down, g=g: math.exp(a * h - 0.5 * g * h * h), -math.inf, 0.0, epsrel=1e-12)[0]
            terms[row] += math.log(whole)
    assert mg.exact_log_z(mg.load(tmp_path / "m.h5")) == pytest.approx(np.logaddexp.reduce(terms), rel=1e-10)


def test_an_xrelu_without_scale_and_one_that_is_open(tmp_path):
    """Newer versions leave γ = 1 out; η = ±1 would leave a side without a bound."""
    write_julia(tmp_path / "a.h5", kinds=("Spin", "nsReLU"))
    write_julia(tmp_path / "b.h5", kinds=("Spin", "pReLU"))
    exact = mg.exact_log_z(mg.load(tmp_path / "a.h5"))
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        del file["hidden_type"]
        file["hidden_type"] = "xReLU"
    assert mg.exact_log_z(mg.load(tmp_path / "a.h5")) == exact
    with h5py.File(tmp_path / "b.h5", "r+") as file:
        file["hidden_par"][0, 3] = -1.0
    with pytest.raises(ValueError, match="has pReLU units with η = -1; it must lie between -1 and 1"):
        mg.load(tmp_path / "b.h5")


@pytest.mark.parametrize("rbm_type", ["RBM", "StandardizedRBM"])
def test_gaussian_hidden_units(tmp_path, rbm_type):
    arrays = write_julia(tmp_path / "m.h5", kinds=("Spin", "Gaussian"), rbm_type=rbm_type)
    v = side_states("Spin", 3)
    field, gamma = arrays["hidden_par"][0], np.abs(arrays["hidden_par"][1])
    x = (v - arrays.get("offset_v", 0.0)) / arrays.get("scale_v", 1.0)
    inputs = x @ (arrays["weights"] / arrays.get("scale_h", np.ones(2)))
    # ∫ exp(θh − γh²/2 + I (h − λ)) dh, one by one
    terms = v @ arrays["visible_par"][0] - inputs @ arrays.get("offset_h", np.zeros(2))
    terms += (0.5 * (field + inputs) ** 2 / gamma + 0.5 * np.log(2.0 * math.pi / gamma)).sum(axis=1)
    assert mg.exact_log_z(mg.load(tmp_path / "m.h5")) == pytest.approx(np.logaddexp.reduce(terms), rel=1e-12)
