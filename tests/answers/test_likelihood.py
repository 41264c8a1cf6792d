"""ln p(v) of data: exact where everything can be summed, and the doubt about ln Z carried through."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import PathSums, random_rbm, states
from sklearn.neural_network import BernoulliRBM

import marginalis as mg
from marginalis.answers import likelihood
from marginalis.models.units import Categorical

DISCRETE = ["spin", "binary", "categorical:3", "categorical:2,4"]


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_functions_of_numpy_take_the_samples(rng):
    model = random_rbm(rng, 3, 4)
    found = mg.log_likelihood(model, all_states(model))
    assert np.mean(found) == pytest.approx(found.mean)
    assert np.std(a=found, ddof=1) == pytest.approx(found.per_sample.std(ddof=1))
    np.testing.assert_array_equal(np.asarray(found), found.per_sample)
    np.testing.assert_array_equal(np.concatenate([found, found]), np.tile(found.per_sample, 2))
    np.testing.assert_array_equal(np.exp(found), np.exp(found.per_sample))
    run = mg.log_likelihood(mg.along([model, model], chains=40, engine="numpy"), all_states(model))
    np.testing.assert_allclose(np.mean(run, axis=1), run.mean)


@pytest.mark.parametrize("models", [list, lambda models: dict(enumerate(models))])
def test_several_models_are_answered_with_the_right_function(rng, models):
    several = models([random_rbm(rng, 3, 4) for _ in range(2)])
    for door in (mg.estimate, mg.exact_log_z, lambda x: mg.log_likelihood(x, np.ones((1, 3)))):
        with pytest.raises(ValueError, match=r"of 2 models; .*estimate_many .* log_likelihood\(along\(models\), d"):
            door(several)


def all_states(model):
    return states(model.visible_units, len(model.visible_bias))


def fitted_rbm(hidden=6):
    data = np.random.default_rng(1).integers(0, 2, (60, 9))
    return BernoulliRBM(hidden, n_iter=30, learning_rate=0.1, random_state=0).fit(data), data


@pytest.mark.parametrize("hidden", ["spin", "binary", "categorical:3", "gaussian"])
@pytest.mark.parametrize("visible", DISCRETE)
def test_probabilities_of_all_states_add_up_to_one(rng, visible, hidden):
    model = replace(random_rbm(rng, 6, 3, units=(visible, hidden), temperature=0.7), offset=0.9)
    result = mg.log_likelihood(model, all_states(model))
    assert np.logaddexp.reduce(result.per_sample) == pytest.approx(0.0, abs=1e-10)
    assert result.log_z_source.startswith("exact, by ")
    assert result.warnings == ()


@pytest.mark.parametrize("units", ["spin", "binary", ("categorical:3", "binary"), ("spin", "categorical:3")])
def test_every_state_by_brute_force(rng, units):
    model = replace(random_rbm(rng, 6, 3, units=units, temperature=0.7), offset=-1.3)
    sums = PathSums(model, [0.0, 1.0])
    result = mg.log_likelihood(model, all_states(model))
    np.testing.assert_allclose(result.unnormalised, sums.marginal(1), atol=1e-12)
    np.testing.assert_allclose(result.per_sample, sums.marginal(1) - sums.log_z, atol=1e-12)


@pytest.mark.parametrize("hidden", ["spin", "binary", "gaussian"])
def test_gaussian_density_integrates_to_one(rng, hidden):
    weights, b, c = rng.normal(scale=0.4, size=(2, 3)), rng.normal(size=2), rng.normal(size=3)
    model = mg.rbm(weights, b, c, units=("gaussian", hidden), visible_precision=[0.8, 2.0], temperature=1.7)
    x, step = np.linspace(-25, 25, 501, retstep=True)
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(mg.log_likelihood(model, grid).per_sample)
    # on a smooth density that vanishes at the ends, the rectangle rule is exact to rounding
    assert density.sum() * step**2 == pytest.approx(1.0, abs=1e-9)


def test_a_fitted_scikit_learn_rbm():
    rbm, data = fitted_rbm()
    result = mg.log_likelihood(rbm, data)
    np.testing.assert_allclose(result.unnormalised, -rbm._free_energy(data), rtol=1e-12)
    every = states(mg.as_model(rbm).visible_units, 9)
    assert result.log_z == pytest.approx(np.logaddexp.reduce(-rbm._free_energy(every)), rel=1e-12)
    arrays = rbm.components_.T, rbm.intercept_visible_, rbm.intercept_hidden_, "binary"
    assert np.array_equal(mg.log_likelihood(arrays, data).per_sample, result.per_sample)
    assert np.array_equal(mg.log_likelihood(mg.rbm(*arrays[:3], units="binary"), data).per_sample, result.per_sample)


def test_interval_is_that_of_log_z(rng):
    model = random_rbm(rng, 12, 9, units="binary")
    data = rng.integers(0, 2, (40, 12))
    estimate = mg.estimate(model, steps=50, chains=200)
    result = mg.log_likelihood(model, data, estimate)
    term = result.unnormalised.mean()
    assert result.mean == term - estimate.log_z == pytest.approx(result.per_sample.mean(), rel=1e-12)
    assert result.interval == (term + estimate.interval[0], term + estimate.interval[1])  # F = −ln Z
    assert result.interval[0] < result.mean < result.interval[1]
    assert result.log_z_interval == (-estimate.interval[1], -estimate.interval[0])
    assert result.sampling_error == pytest.approx(result.per_sample.std(ddof=1) / math.sqrt(40), rel=1e-12)
    assert result.log_z_source == f"{estimate.method}, 50 steps, 200 chains, seed 0"
    exact = mg.log_likelihood(model, data)
    assert abs(result.mean - exact.mean) < 4.5 * estimate.stderr


def test_a_number_is_taken_as_exact(rng):
    model = random_rbm(rng, 5, 4)
    data = all_states(model)
    exact = mg.exact_log_z(model)
    for log_z, source in ((exact, f"exact, by {exact.method}"), (float(exact), "given"), (np.float64(exact), "given")):
        result = mg.log_likelihood(model, data, log_z)
        assert result.interval == (result.mean, result.mean)
        assert (result.log_z, result.log_z_source) == (exact, source)
        assert "ln Z taken as exact" in str(result)


def test_a_large_model_is_estimated(rng):
    model = random_rbm(rng, 60, 50, scale=0.2)
    data = rng.choice([-1, 1], (3, 60))
    result = mg.log_likelihood(model, data, steps=20, chains=50, seed=3)
    estimate = mg.estimate(model, steps=20, chains=50, seed=3)
    assert result.log_z == estimate.log_z
    assert result.log_z_source == f"{estimate.method}, 20 steps, 50 chains, seed 3"
    assert "95 % interval from ln Z alone" in str(result)


def test_warnings_of_the_estimate_are_carried(rng):
    model = random_rbm(rng, 10, 10)
    estimate = mg.estimate(model, steps=1, chains=1)
    result = mg.log_likelihood(model, np.ones(10), estimate)
    assert len(estimate.warnings) == 2
    assert result.warnings == estimate.warnings
    assert str(result).count("warning: ") == 2
    assert math.isinf(result.sampling_error)  # one sample
    plain = json.loads(result.to_json())
    assert plain["interval"] == plain["log_z_interval"] == [None, None]
    assert plain["sampling_error"] is None


def test_likelihoods_of_distinct_rows_bound_log_z_from_below(rng):
    model = random_rbm(rng, 6, 4, units="binary")
    every = all_states(model)
    exact = mg.exact_log_z(model)
    (warning,) = mg.log_likelihood(model, every, exact - 1e-3).warnings
    assert f"ln Z must be at least {exact:.4f}" in warning
    assert mg.log_likelihood(model, every, exact).warnings == ()
    assert mg.log_likelihood(model, np.repeat(every, 50, axis=0), exact).warnings == ()  # one state counts once
    density = random_rbm(rng, 2, 3, units=("gaussian", "spin"))
    assert mg.log_likelihood(density, np.zeros((9, 2)), -100.0).warnings == ()  # a density has no bound


@pytest.mark.parametrize("weights", [np.asarray, sp.csr_array])
def test_forms_of_data(rng, monkeypatch, weights):
    w = np.where(rng.random((7, 5)) < 0.5, rng.normal(size=(7, 5)), 0.0)
    model = mg.rbm(weights(w), rng.normal(size=7), rng.normal(size=5), units="binary")
    data = rng.integers(0, 2, (23, 7))
    expected = mg.log_likelihood(model, data).per_sample
    forms = [data.tolist(), data.astype(bool), data.astype(np.float32), np.asfortranarray(data)]
    forms += [kind(data) for kind in (sp.csr_array, sp.coo_array, sp.csr_matrix, sp.csc_array)]
    for form in forms:
        assert np.array_equal(mg.log_likelihood(model, form).per_sample, expected)
    for single in (data[3], data[3].tolist(), sp.coo_array(data[3])):
        np.testing.assert_allclose(mg.log_likelihood(model, single).per_sample, expected[3:4], rtol=1e-14)
    monkeypatch.setattr(likelihood, "_CELLS", 40)  # three rows at a time
    for form in (data, sp.csr_array(data)):
        np.testing.assert_allclose(mg.log_likelihood(model, form).per_sample, expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("units", "data", "message"),
    [
        ("binary", [[0, 1, 0, 0.25, 1, 1]], r"data\[0, 3\] is 0.25; binary units are 0 or 1: binarise"),
        ("binary", [[0, 1, 0, np.nan, 1, 1]], r"data\[0, 3\] is nan"),
        ("spin", [[1, -1, 1, 1, 1, 1], [1, 0, 1, 1, 1, 1]], r"data\[1, 1\] is 0; spin units are -1 or \+1. .*2\*data"),
        ("spin", sp.csr_array(np.eye(6)), r"data\[0, 1\] is 0; spin units"),
        ("categorical:3", [[1, 0, 0, 0, 2, 0]], r"data\[0, 4\] is 2; categorical units are one-hot"),
        ("categorical:3", [[1, 0, 0, 0, 1, 1]], r"data\[0\] gives variable 1 2 states"),
        ("categorical:2,4", [[0, 1, 0, 0, 0, 0]], r"data\[0\] gives variable 1 0 states"),
        ("gaussian", [[0, 0, 0, 0, 0, np.inf]], r"data\[0, 5\] is inf; Gaussian units are finite"),
        ("gaussian", np.full(6, 1e200), "too large for floating point"),
        (
            "categorical:3",
            np.zeros((4, 3)),
            r"data has 3 columns; the model has 6 visible features \(2 variables one-hot",
        ),
        ("binary", np.zeros((4, 5)), "data has 5 columns; the model has 6 visible features, and 9 in all"),
        ("binary", np.zeros((2, 3, 6)), "data has 3 dimensions"),
        ("binary", 1.0, "data has 0 dimensions"),
        ("binary", np.zeros((0, 6)), "data is empty"),
        ("binary", [[0, 1], [0]], "data is not a rectangular array"),
        ("binary", [["a"] * 6], "data has dtype <U1"),
        ("binary", np.ma.masked_equal(np.eye(6), 1), "data has masked entries"),
    ],
)
def test_bad_data(rng, units, data, message):
    model = random_rbm(rng, 6, 3, units=(units, "binary"), scale=0.1)
    with pytest.raises(ValueError, match=message):
        mg.log_likelihood(model, data)


def test_bad_rows_are_numbered_through_the_chunks(rng, monkeypatch):
    monkeypatch.setattr(likelihood, "_CELLS", 1)
    data = np.ones((5, 4))
    data[3, 2] = 0.5
    with pytest.raises(ValueError, match=r"data\[3, 2\] is 0.5"):
        mg.log_likelihood(random_rbm(rng, 4, 3, units="binary"), data)


def test_rows_cover_the_whole_visible_side_of_a_deep_model(rng):
    sizes = (4, 3, 2)
    weights = [rng.normal(size=(n, m)) for n, m in itertools.pairwise(sizes)]
    deep = mg.dbm(weights, [rng.normal(size=n) for n in sizes])
    with pytest.raises(
        ValueError, match=r"data has 4 columns; the model has 6 visible features: .* all its even layers"
    ):
        mg.log_likelihood(deep, np.zeros((2, 4)))
    result = mg.log_likelihood(deep, all_states(deep))
    assert np.logaddexp.reduce(result.per_sample) == pytest.approx(0.0, abs=1e-10)


def test_variables_without_edges(rng):
    model = mg.potts([], 3, n=2, field=rng.normal(size=3))
    assert isinstance(model.visible_units, Categorical)
    result = mg.log_likelihood(model, all_states(model))
    assert np.logaddexp.reduce(result.per_sample) == pytest.approx(0.0, abs=1e-10)


def test_bad_log_z_and_options(rng, monkeypatch):
    model, other = random_rbm(rng, 5, 4), random_rbm(rng, 5, 5)
    data = np.ones(5)
    for log_z, message in (
        (math.nan, "log_z is nan; it must be finite"),
        ("12", "log_z is '12'; it must be one real number"),
        (mg.log_likelihood(model, data), "log_z is a LogLikelihood"),
        (mg.estimate(other, steps=2, chains=2), "log_z belongs to another model"),
    ):
        with pytest.raises(ValueError, match=message):
            mg.log_likelihood(model, data, log_z)
    with pytest.raises(ValueError, match="log_z is given: leave out steps, chains"):
        mg.log_likelihood(model, data, 1.0, steps=5, chains=5)
    with pytest.raises(TypeError, match="stpes"):
        mg.log_likelihood(model, data, stpes=5)
    monkeypatch.setattr(likelihood, "_log_z", lambda *_: pytest.fail("ln Z was sought before the data were checked"))
    with pytest.raises(ValueError, match="spin units"):
        mg.log_likelihood(model, data / 2)


def test_objects_that_can_be_used_as_models():
    model = mg.as_model((np.ones((3, 2)), np.zeros(3), np.zeros(2), "binary"))
    assert model.visible_units.name == model.hidden_units.name == "binary"
    assert mg.as_model(model) is model
    for bad in (BernoulliRBM(), np.ones((3, 2)), (1, 2), None):
        with pytest.raises(ValueError, match=f"rbm is an? {type(bad).__name__}; it must be an MRF"):
            mg.log_likelihood(bad, np.zeros((1, 3)))
    broken, data = fitted_rbm()
    broken.intercept_visible_ = np.full(9, np.nan)
    with pytest.raises(ValueError, match=r"rbm\.intercept_visible_ holds NaN"):
        mg.log_likelihood(broken, data)


def test_rows_more_likely_than_the_interval_allows_are_warned_of(rng):
    model = random_rbm(rng, 6, 4, units="binary")
    every, exact = all_states(model), mg.exact_log_z(model)
    low = 0
    for seed in range(10):
        found = mg.estimate(model, steps=3, chains=50, seed=seed)
        inside = exact <= -found.interval[0]
        low += found.log_z < exact - 0.01 and inside
        told = any("these rows alone" in w for w in mg.log_likelihood(model, every, found).warnings)
        assert told == (not inside)
    assert low > 2


def test_exact_only_where_it_is_quick(rng, monkeypatch):
    asked, exact = [], likelihood.exact_log_z
    monkeypatch.setattr(likelihood, "exact_log_z", lambda *args, **given: asked.append(given) or exact(*args, **given))
    mg.log_likelihood(random_rbm(rng, 5, 4), np.ones(5), threads=2)
    assert asked == [dict(threads=2, progress=False, max_seconds=1.0)]
