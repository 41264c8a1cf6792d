"""Every answer on models with rectified units, against sums and integrals of their own."""

import json
import math

import numpy as np
import pytest
from conftest import command

import marginalis as mg

ONE_SIDED, TWO_SIDED = mg.ReLU(1.5), mg.dReLU(1.0, 2.0, 0.3, -0.4)
# One real unit against three others of any kind: everything follows from integrals over the one.
PLACES = [
    (ONE_SIDED, "spin"),
    (TWO_SIDED, "binary"),
    ("categorical:3", TWO_SIDED),
    ("gaussian", ONE_SIDED),
    (TWO_SIDED, "gaussian"),
    (ONE_SIDED, TWO_SIDED),
]
MOSTLY_STUDIED = [PLACES[1], *(pytest.param(x, marks=pytest.mark.study) for x in PLACES[:1] + PLACES[2:])]


@pytest.fixture(autouse=True)
def on_the_reference(monkeypatch):
    """The answers are the same on every engine, and the reference needs no kernel compiled."""
    monkeypatch.setenv("MARGINALIS_ENGINE", "numpy")


def model_of(units, seed=0, temperature=1.3):
    """One unit of the first kind (of three states if it is categorical), and three of the second."""
    rng = np.random.default_rng(seed)
    n = 3 if units[0] == "categorical:3" else 1
    return mg.rbm(*(0.4 * rng.normal(size=s) for s in ((n, 3), n, 3)), units=units, temperature=temperature)


def integrals(model, beta=None):
    """ln Z, −⟨H⟩, β²(⟨H²⟩ − ⟨H⟩²) and ⟨v_0⟩ at β, by the integral over v; the sums over h have tests of their own."""
    beta = 1.0 / model.temperature if beta is None else beta
    at = mg.rbm(
        np.asarray(model.weights), model.visible_bias, model.hidden_bias,
        units=(model.visible_units, model.hidden_units), temperature=1.0 / beta,
    )  # fmt: skip
    n = at.natural

    def terms(v):
        v = np.atleast_2d(v)
        fields = n.hidden_bias + v @ np.asarray(n.weights)
        own = v @ n.visible_bias + n.visible_units.own_terms(v)
        mean, variance = n.hidden_units.exponents(fields)
        return own + n.hidden_units.log_normaliser(fields), own + mean, variance, v[:, 0]

    if at.visible_units.is_discrete:
        grid, widths = np.eye(3), np.ones(3)
    else:  # Pieces of 20 Gauss-Legendre points, of which none has 0 inside.
        low = 0.0 if at.visible_units.is_nonnegative else -20.0 / math.sqrt(beta)
        edges = np.linspace(low, 20.0 / math.sqrt(beta), 401)
        edges = np.unique(np.append(edges, 0.0))
        x, w = np.polynomial.legendre.leggauss(20)
        half = 0.5 * np.diff(edges)
        grid = (edges[:-1, None] + half[:, None] * (x + 1.0)).reshape(-1, 1)
        widths = (half[:, None] * w).ravel()
    log_p, mean, variance, v = terms(grid)
    log_z = float(np.logaddexp.reduce(log_p + np.log(widths)))
    p = widths * np.exp(log_p - log_z)
    a = float(p @ mean)
    return log_z, a / beta, float(p @ (variance + (mean - a) ** 2)), float(p @ v)


@pytest.mark.parametrize("method", ["mais-v", "mais-h", "ais"])
@pytest.mark.parametrize("units", PLACES, ids=str)
def test_estimates_against_integrals(units, method):
    for model in (model_of(units), model_of(units).transposed()):
        r = mg.estimate(model, method=method, steps=10, chains=1000, seed=4)
        assert abs(r.log_z - integrals(model_of(units))[0]) < 4.5 * r.stderr


@pytest.mark.parametrize("method", ["mais-v", "mais-h", "ais"])
@pytest.mark.parametrize("units", PLACES, ids=str)
def test_thermodynamics_against_integrals(units, method):
    """Each β is a run of its own, in any order."""
    model, betas = model_of(units), [1.0, 0.2, 2.0]
    t = mg.thermodynamics(model, betas, method=method, steps=30, chains=1000, seed=1)
    for row in t.rows():
        log_z, a, variance, _ = integrals(model, row["beta"])
        exact = log_z, -a, log_z - row["beta"] * a, variance
        for name, value in zip(("log_z", "energy", "entropy", "heat_capacity"), exact, strict=True):
            assert abs(row[name] - value) < 4.5 * row[name + "_error"], (name, row, value)
    assert not t.warnings


def test_thermodynamics_against_derivatives_of_exact_sums():
    model = mg.rbm(*(np.random.default_rng(6).normal(size=s) for s in ((4, 3), 4, 3)), units=("spin", TWO_SIDED))

    def log_z(beta):
        parts = model.weights, model.visible_bias, model.hidden_bias
        return mg.exact_log_z(mg.rbm(*parts, units=("spin", TWO_SIDED), temperature=1.0 / beta))

    t = mg.thermodynamics(model, [0.7], steps=100, chains=2000)
    low, middle, high = (log_z(0.7 + step) for step in (-1e-3, 0.0, 1e-3))
    assert abs(t.energy[0] + (high - low) / 2e-3) < 4.5 * t.energy_error[0] + 1e-5
    assert abs(t.heat_capacity[0] - 0.49 * (high - 2 * middle + low) / 1e-6) < 4.5 * t.heat_capacity_error[0] + 1e-4


def test_real_variables_have_no_thermodynamics_at_infinite_temperature(tmp_path):
    with pytest.raises(ValueError, match="betas must be positive for this model: ReLU units have no distribution"):
        mg.thermodynamics(model_of(("spin", ONE_SIDED)), [0.0, 1.0])
    mg.save(model_of(("spin", ONE_SIDED)), tmp_path / "m.npz")
    told = command("thermodynamics", tmp_path / "m.npz", "--betas", "0.5,1", "--steps", "20", "--json")
    assert len(json.loads(told.stdout)["rows"]) == 2


@pytest.mark.parametrize("method", ["mais-v", "mais-h", "ais"])
@pytest.mark.parametrize("units", PLACES, ids=str)
def test_means_against_integrals(units, method):
    got = mg.expectations(model_of(units), exact=False, method=method, steps=20, chains=500, seed=2)
    assert abs(got.means[0] - integrals(model_of(units))[3]) < 4.5 * got.mean_errors[0]


def test_the_kernel_repeats_the_last_step_without_a_change_of_the_weight():
    """The weights are those of a run without moves at the end; 0/0 in units far from zero made them NaN."""
    model = mg.rbm(np.full((2, 4), 0.1), [0, 0], [-9.0, -1.0, 0.5, 9.0], units=("spin", ONE_SIDED))
    run = dict(method="mais-v", steps=20, chains=100, seed=2, engine="numba")
    once, often = (mg.expectations(model, exact=False, moves=moves, **run) for moves in (1, 10))
    assert once.estimate.log_z == pytest.approx(often.estimate.log_z, rel=1e-6)


@pytest.mark.parametrize("units", [("spin", TWO_SIDED), (ONE_SIDED, "binary"), (ONE_SIDED, TWO_SIDED)], ids=str)
def test_gradients_are_means_of_products(units):
    """∂ ln Z/∂w_ij by differences of ln Z."""
    model = model_of(units, temperature=1.0)
    found = mg.expectations(model, exact=False, steps=100, chains=2000, seed=3).gradient()

    def log_z(step):
        w = np.asarray(model.weights) + step * np.eye(*model.weights.shape)
        changed = mg.rbm(w, model.visible_bias, model.hidden_bias, units=units)
        return mg.exact_log_z(changed) if "spin" in units or "binary" in units else integrals(changed)[0]

    slope = (log_z(1e-4) - log_z(-1e-4)) / 2e-4
    assert abs(found.weights[0, 0] - slope) < 4.5 * found.weights_error[0, 0] + 1e-6


@pytest.mark.parametrize("units", MOSTLY_STUDIED, ids=str)
def test_bounds_differences_and_sequences(units):
    model, near = model_of(units), model_of(units, seed=5)
    exact, other = integrals(model)[0], integrals(near)[0]
    bounds = mg.bound(model, steps=30, chains=300)
    if math.isfinite(bounds.upper):  # It needs exact samples.
        assert bounds.lower < -exact < bounds.upper
    else:
        assert bounds.lower < -exact
    d = mg.difference(model, near, steps=20, chains=300)
    assert abs(d.log_ratio - other + exact) < 4.5 * d.stderr
    found = mg.along([model, near], steps=20, chains=300)
    assert (np.abs(found.log_z - [exact, other]) < 4.5 * found.stderr).all()


@pytest.mark.parametrize("units", MOSTLY_STUDIED, ids=str)
def test_bases_and_options(units):
    """Fields on both sides, rows of data, quenches, resampling and the choice of everything."""
    model = model_of(units)
    exact = integrals(model)[0]
    rows = mg.sample(model, 50, seed=1).rows[:, : len(model.visible_bias)]
    for options in (
        dict(base="biases"),
        dict(base="mean-field"),
        dict(base="quenches"),
        dict(base=(0.5 * model.visible_bias, 0.5 * model.hidden_bias)),
        dict(base=mg.data_base(model, rows)),
        dict(resample=True, populations=10),
        dict(schedule="adaptive"),
    ):
        r = mg.estimate(model, steps=30, chains=500, **options)
        assert abs(r.log_z - exact) < 4.5 * r.stderr, options
    r = mg.free_energy(model, tolerance=0.05)
    assert abs(r.log_z - exact) <= 4.5 * r.stderr + 1e-9
