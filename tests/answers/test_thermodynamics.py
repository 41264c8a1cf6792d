"""Energy, entropy and heat capacity against exact sums over all states."""

import dataclasses
import json
import math

import numpy as np
import pytest
from conftest import PathSums, random_rbm
from scipy.stats import norm

import marginalis as mg
from marginalis.answers.thermodynamics import QUANTITIES, _averages, _is_doubtful
from marginalis.statistics import confidence
from marginalis.statistics.confidence import log_mean_exp
from marginalis.studies.families import switching


def exact(model, beta):
    """ln Z, U, S and C at β by the sum over all states."""
    sums = PathSums(mg.MRF(*parts(model), temperature=1.0, offset=model.offset), [1.0])
    minus_h = sums.log_p[0].ravel()
    log_z = np.logaddexp.reduce(beta * minus_h)
    p = np.exp(beta * minus_h - log_z)
    u = -float(p @ minus_h)
    return log_z, u, log_z + beta * u, beta**2 * (float(p @ minus_h**2) - u**2)


def parts(model):
    return model.weights, model.visible_bias, model.hidden_bias, model.visible_units, model.hidden_units


@pytest.mark.parametrize("method", ["ais", "mais-v", "mais-h"])
@pytest.mark.parametrize("units", ["spin", "binary", ("spin", "binary"), "categorical:2"])
def test_against_exact_sums(units, method):
    rng = np.random.default_rng(3)
    q = 2 if units == "categorical:2" else 1
    model = mg.rbm(rng.normal(size=(3 * q, 2 * q)), rng.normal(size=3 * q), rng.normal(size=2 * q), units=units)
    model = mg.MRF(*parts(model), temperature=7.0, offset=0.7)
    betas = [1.2, 0.0, 0.4]  # in any order
    t = mg.thermodynamics(model, betas, method=method, steps=60, chains=4000, seed=1)
    assert t.betas.tolist() == betas
    for row in t.rows():
        for name, value in zip(QUANTITIES, exact(model, row["beta"]), strict=True):
            assert abs(row[name] - value) <= 4.5 * row[name + "_error"] + 1e-9, (name, row, value)
    assert t.energy_error[1] == 0.0
    assert not t.warnings


def test_temperatures_instead_of_betas():
    model = random_rbm(np.random.default_rng(0), 4, 3)
    options = dict(steps=20, chains=50)
    by_t = mg.thermodynamics(model, temperatures=[2.0, 0.5], **options)
    by_beta = mg.thermodynamics(model, [0.5, 2.0], **options)
    assert np.array_equal(by_t.betas, by_beta.betas)
    assert np.array_equal(by_t.energy, by_beta.energy)
    for given in ({}, {"betas": 1.0, "temperatures": 1.0}):
        with pytest.raises(ValueError, match="give either betas or temperatures"):
            mg.thermodynamics(model, **given)
    with pytest.raises(ValueError, match="temperatures must be a list of positive numbers"):
        mg.thermodynamics(model, temperatures=[1.0, 0.0])


def test_errors_match_the_spread_over_seeds():
    """z-scores over seeds have unit spread, whether averages are over one move or many."""
    model = random_rbm(np.random.default_rng(0), 4, 3)
    truth = np.array(exact(model, 0.8))
    for moves in (1, 10):
        z = []
        for seed in range(150):
            t = mg.thermodynamics(model, [0.8], steps=20, chains=100, moves=moves, seed=seed)
            values = np.array([getattr(t, name)[0] for name in QUANTITIES])
            errors = np.array([getattr(t, name + "_error")[0] for name in QUANTITIES])
            z.append((values - truth) / errors)
        assert np.abs(np.mean(z, axis=0)).max() < 0.45
        assert np.abs(np.std(z, axis=0) - 1).max() < 0.25


def test_more_moves_give_smaller_errors():
    model = random_rbm(np.random.default_rng(0), 4, 3, scale=0.5)
    few, many = (mg.thermodynamics(model, [1.0], steps=20, chains=500, moves=moves) for moves in (1, 20))
    assert many.energy_error[0] < 0.5 * few.energy_error[0]
    assert many.heat_capacity_error[0] < 0.5 * few.heat_capacity_error[0]


def test_lattice_near_its_critical_point():
    """The 8×8 torus: derivatives of Kaufman's exact ln Z."""
    model = mg.ising_grid((8, 8), periodic=True)

    def log_z(beta):
        return mg.exact_log_z(mg.ising_grid((8, 8), periodic=True, temperature=1 / beta))

    betas = np.array([0.2, 0.4, 0.44, 0.5])
    t = mg.thermodynamics(model, betas, steps=500, chains=2000)
    h = 1e-3
    for k, beta in enumerate(betas):
        low, middle, high = log_z(beta - h), log_z(beta), log_z(beta + h)
        assert abs(t.energy[k] + (high - low) / (2 * h)) < 4.5 * t.energy_error[k]
        c = beta**2 * (high - 2 * middle + low) / h**2
        assert abs(t.heat_capacity[k] - c) < 4.5 * t.heat_capacity_error[k]
    assert t.entropy[0] < 64 * math.log(2)


def test_engines_agree():
    model = random_rbm(np.random.default_rng(2), 5, 4)
    fast, slow = (
        mg.thermodynamics(model, [0.5, 1.0], steps=10, chains=200, engine=engine) for engine in ("numba", "numpy")
    )
    for name in QUANTITIES:
        assert getattr(fast, name) == pytest.approx(getattr(slow, name), abs=1e-4)


def test_answer_and_warnings():
    model = mg.ising_grid((20, 20), periodic=True)
    t = mg.thermodynamics(model, [0.1, 2.0], steps=3, chains=50)
    assert any("too uneven" in w for w in t.warnings)
    assert json.loads(t.to_json())["rows"][0]["beta"] == 0.1
    assert "warning" in str(t)
    assert t.temperatures == pytest.approx([10.0, 0.5])
    one = mg.thermodynamics(mg.ising_grid((3, 3)), [0.3], steps=5, chains=1)
    assert json.loads(one.to_json())["rows"][0]["energy_error"] is None
    zero = mg.thermodynamics(model, [0.0])
    assert zero.log_z[0] == pytest.approx(400 * math.log(2))
    assert zero.temperatures[0] == math.inf


@pytest.mark.parametrize(
    ("betas", "options", "message"),
    [
        ([], {}, "betas"),
        ([-1.0], {}, "betas"),
        ([np.nan], {}, "betas"),
        ("x", {}, "betas"),
        ([1.0], dict(base="biases"), "base"),
        ([1.0], dict(moves=0), "moves"),
    ],
)
def test_bad_arguments(betas, options, message):
    with pytest.raises(ValueError, match=message):
        mg.thermodynamics(mg.ising_grid((3, 3)), betas, **options)


def test_tuples_as_models_and_one_beta_as_a_number():
    w, b, c = 0.3 * np.ones((3, 2)), np.zeros(3), np.zeros(2)
    t = mg.thermodynamics((w, b, c, "binary"), 0.7, steps=20, chains=200)
    model = mg.as_model((w, b, c, "binary"))
    assert abs(t.log_z[0] - exact(model, 0.7)[0]) < 4.5 * t.log_z_error[0]
    assert mg.exact_log_z((w, b, c, "binary")) == mg.exact_log_z(model)
    with pytest.raises(ValueError, match="no option 'tolerance'"):
        mg.thermodynamics(model, [1.0], tolerance=0.1)


def test_gaussian_sides_against_closed_forms():
    """Each Gaussian variable adds kT/2 to the energy beyond that of the effective model of the other side."""
    model = mg.rbm([[0.6, -0.3], [0.2, 0.5]], [0.1, -0.2], [0.3, 0.0], units=("gaussian", "spin"))
    t = mg.thermodynamics(model, [1.5, 0.4], steps=50, chains=1000, engine="numpy")
    for row in t.rows():
        beta, step = row["beta"], 1e-3
        low, middle, high = (
            mg.exact_log_z(dataclasses.replace(model, temperature=1.0 / (beta + d))) for d in (-step, 0.0, step)
        )
        slope, bend = (high - low) / (2.0 * step), (high - 2.0 * middle + low) / step**2
        for name, value in zip(QUANTITIES, (middle, -slope, middle - beta * slope, beta**2 * bend), strict=True):
            assert abs(row[name] - value) < 4.5 * row[name + "_error"] + 1e-5, name
    with pytest.raises(ValueError, match="betas must be positive for this model: Gaussian variables have no distrib"):
        mg.thermodynamics(model, [0.0])


@pytest.mark.parametrize("slope", [-0.8, 0.8])
def test_errors_are_those_of_the_jackknife(slope):
    """Between β = 0 and the largest one, with weights that go along with the energies or against them."""
    rng = np.random.default_rng(4)
    n, x, largest, offset = 1000, 0.6, 1.7, 0.3
    mean = rng.normal(2.0, 0.7, n)
    values = np.stack([mean, mean**2 + rng.uniform(0.0, 0.2, n), rng.uniform(0.5, 1.5, n)], axis=1)
    log_weights = slope * mean + 0.2 * rng.normal(size=n)

    def averages(keep):
        log_z = 3.0 + log_mean_exp(log_weights[keep]) + x * offset
        return np.array(_averages(log_weights[keep], log_z, values[keep], x, largest, offset, np.inf))

    parts = np.array([averages(np.arange(n) != k) for k in range(n)])  # one chain left out at a time
    found = averages(np.arange(n))
    for k, name in enumerate(QUANTITIES):
        influence = parts[:, 2 * k].mean() - parts[:, 2 * k]
        jackknife = math.sqrt((n - 1) / n * float(influence @ influence))
        t, too_high, too_low = confidence.reaches(influence)  # which are skewed: twice that error would not cover
        larger = max(t, (too_high + too_low) / 2) / 1.959964
        assert found[2 * k + 1] == pytest.approx(larger * jackknife, rel=0.05), name
    assert larger > 1.02


@pytest.mark.parametrize("size", [1e70, 1e100, 1e150])
def test_huge_couplings(size):
    """Energies to their digits, and what is lost in rounding with an error that says so."""
    model = random_rbm(np.random.default_rng(4), 3, 4)
    huge = mg.rbm(size * model.weights, size * model.visible_bias, size * model.hidden_bias)
    t = mg.thermodynamics(huge, [0.5, 1.0], steps=50, chains=100)
    exact = mg.exact_log_z(huge)
    assert t.energy == pytest.approx([-exact, -exact], rel=1e-9)
    assert t.log_z == pytest.approx([exact / 2, exact], rel=1e-9)
    assert (np.abs(t.entropy) <= 5 * t.entropy_error).all()
    assert (np.abs(t.heat_capacity) <= 5 * t.heat_capacity_error).all()
    assert any("S and C are not accurate" in w for w in t.warnings)


@pytest.mark.parametrize("size", [1e160, 1e300])
def test_couplings_too_large_for_a_heat_capacity(size):
    model = random_rbm(np.random.default_rng(4), 3, 4)
    huge = mg.rbm(size * model.weights, size * model.visible_bias, size * model.hidden_bias)
    with pytest.raises(ValueError, match="too large for floating point"):
        mg.thermodynamics(huge, [0.5, 1.0], steps=50, chains=100)


def test_betas_that_cannot_be_told_apart():
    """Neighbouring doubles may fall together as parts of the largest; and tiny ones vanish beside it."""
    model = random_rbm(np.random.default_rng(4), 3, 4)
    close = [1.8592437497248215, 1.8592437497248218, 3.0, 5e-324, 0.0]
    t = mg.thermodynamics(model, close, steps=50, chains=100)
    assert t.log_z[0] == t.log_z[1]
    assert abs(t.log_z[0] - exact(model, close[0])[0]) < 4.5 * t.log_z_error[0]
    assert t.log_z[3] == t.log_z[4] == pytest.approx(7 * math.log(2.0))
    assert np.isfinite(t.ess).all()
    for beta in (1e308, 5e-324):
        with pytest.raises(ValueError, match="betas go up to"):
            mg.thermodynamics(random_rbm(np.random.default_rng(4), 3, 4, scale=9.0), [beta])
    with pytest.raises(ValueError, match="there is no option 'whole_model' here"):
        mg.thermodynamics(model, [1.0], whole_model=True)


def test_doubts_begin_earlier_than_those_about_log_z():
    """Errors of means are not widened by what the bulk of the log-weights foretells."""
    x = norm.ppf((np.arange(50) + 0.5) / 50)
    assert _is_doubtful(1.5 * x)
    assert not confidence.warnings_of(1.5 * x)
    assert not _is_doubtful(0.5 * x)


def test_a_phase_that_the_chains_miss_is_reported():
    """The phase with the feature on is absent for every β < 1, so the run from β = 0 misses it at β = 1."""
    model = switching(2.0, seed=1, visible=100, features=1)
    found = mg.thermodynamics(model, [1.0], chains=300)
    assert found.log_z[0] < mg.exact_log_z(model) - 0.3
    assert any("at β = 1" in text and "missed states" in text for text in found.warnings)
    assert not mg.thermodynamics(model, [0.5], chains=300).warnings
    # With given steps the method is the plain one, without a search.
    assert not mg.thermodynamics(model, [1.0], chains=300, steps=300).warnings
