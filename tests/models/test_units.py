"""Every kind of unit: its sum, its draws, and the sampler on it, against exact values."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import PathSums, exact_moments, log_weights, states, z_score
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import marginalis as mg
from marginalis.engines.plan import make_plan
from marginalis.engines.reference.loop import Distributions
from marginalis.engines.reference.moves import gibbs
from marginalis.models.units import BINARY, SPIN, Categorical, Gaussian, Units, parse_units

DISCRETE = [(SPIN, 5), (BINARY, 5), (Categorical(3), 6), (Categorical((2, 4, 3)), 9)]


@pytest.mark.parametrize(("units", "features"), DISCRETE)
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_log_normaliser_is_the_sum_over_states(units, features, scale):
    fields = scale * np.random.default_rng(0).normal(size=(4, features))
    expected = np.logaddexp.reduce(fields @ states(units, features).T, axis=1)
    np.testing.assert_allclose(units.log_normaliser(fields), expected, rtol=1e-13)


@pytest.mark.parametrize(("units", "features"), DISCRETE)
def test_draws_follow_the_fields(units, features):
    rng = np.random.default_rng(1)
    fields = rng.normal(size=features)
    n = 40_000
    drawn = units.draw(np.tile(fields, (n, 1)), rng.random((n, units.variables(features))))
    every = states(units, features)
    p = np.exp(every @ fields - units.log_normaliser(fields[None]))
    counts = (drawn[:, None] == every).all(axis=2).sum(axis=0)
    assert counts.sum() == n
    assert stats.chisquare(counts, p * n).pvalue > 1e-5


def test_categorical_draws_at_the_edges():
    """Whatever the uniform, exactly one state; states of no weight are never drawn."""
    units = Categorical((3, 2))
    fields = np.array([[-1e4, 0.0, -1e4, 0.0, -1e4]])
    for u in (2.0**-33, 0.5, 1 - 2.0**-33):
        assert units.draw(fields, np.full((1, 2), u)).tolist() == [[0, 1, 0, 1, 0]]
    one_hot = units.draw(np.zeros((3, 5)), np.array([[2.0**-33] * 2, [0.5, 0.4], [1 - 2.0**-53] * 2]))
    assert one_hot.tolist() == [[1, 0, 0, 1, 0], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1]]


def test_gaussian_sum_and_draws():
    units = Gaussian((0.5, 2.0))
    fields = np.array([[0.3, -1.0]])
    expected = sum(
        0.5 * a * a / g + 0.5 * math.log(2 * math.pi / g) for a, g in zip(fields[0], (0.5, 2.0), strict=True)
    )
    assert units.log_normaliser(fields)[0] == pytest.approx(expected)
    x = units.draw(np.tile(fields, (50_000, 1)), np.random.default_rng(0).random((50_000, 2)))
    for i, (a, g) in enumerate(((0.3, 0.5), (-1.0, 2.0))):
        assert stats.kstest(x[:, i], stats.norm(a / g, g**-0.5).cdf).pvalue > 1e-5


@pytest.mark.parametrize("word", ["spin", "binary", "categorical:3", "categorical:2,4", "gaussian"])
def test_names_are_read_back(word):
    assert parse_units(word, 6).name == word


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("categorical", "whole number"),
        ("categorical:x", "whole number"),
        ("categorical:1", "at least 2 states"),
        ("categorical:4", "6 features are not a multiple of 4"),
        ("categorical:2,3", "5 states in all cannot have 6"),
        ("spin:2", "must be one of"),
        ("", "must be one of"),
        (3, "must be one of"),
    ],
)
def test_bad_words(word, message):
    with pytest.raises(ValueError, match=message):
        parse_units(word, 6)


def test_precisions_are_checked():
    for bad in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="precision"):
            mg.rbm(np.ones((2, 2)), [0, 0], [0, 0], units=("gaussian", "spin"), visible_precision=bad)
    with pytest.raises(ValueError, match="only 'gaussian' units have a precision"):
        mg.rbm(np.ones((2, 2)), [0, 0], [0, 0], hidden_precision=[1, 2])
    with pytest.raises(ValueError, match="hidden_precision has shape"):
        mg.rbm(np.ones((2, 2)), [0, 0], [0, 0], units=("spin", "gaussian"), hidden_precision=[1, 2, 3])


@pytest.mark.parametrize("scale", [1.0, 1.001, 30.0])
def test_gaussian_models_that_cannot_be_normalised(scale):
    """The precision matrix of v and h is positive definite exactly while the norm of W/√(γγ) is below 1."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(4, 3))
    gamma, delta = rng.uniform(0.5, 2, 4), rng.uniform(0.5, 2, 3)
    w *= scale / np.linalg.norm(w / np.sqrt(np.outer(gamma, delta)), 2)
    options = dict(units="gaussian", visible_precision=gamma, hidden_precision=delta)
    with pytest.raises(ValueError, match="not normalisable"):
        mg.rbm(w * (1 + 1e-12), np.zeros(4), np.zeros(3), **options)
    mg.rbm(w * 0.999 / scale, np.zeros(4), np.zeros(3), **options)


def potts_rbm(seed=0, units=("categorical:3", "binary"), n=6, m=3):
    rng = np.random.default_rng(seed)
    return mg.rbm(
        rng.normal(size=(n, m)),
        0.5 * rng.normal(size=n),
        0.5 * rng.normal(size=m),
        units=units,
        temperature=0.9,
    )


MIXED = [
    ("categorical:3", "binary", 6, 3),
    ("spin", "categorical:2", 3, 4),
    ("categorical:2,3", "categorical:3", 5, 3),
]


@pytest.mark.parametrize(("visible", "hidden", "n", "m"), MIXED)
@pytest.mark.parametrize("method", ["ais", "mais-v", "mais-h"])
def test_moments_on_categorical_models(method, visible, hidden, n, m):
    model = potts_rbm(3, (visible, hidden), n, m)
    betas = np.array([0, 0.3, 0.5, 1])
    exact = exact_moments(model, method, betas)
    for engine in ("numpy", "numba"):
        result = mg.estimate(model, method=method, schedule=betas, chains=30_000, engine=engine)
        assert result.engine == engine
        assert abs(z_score(np.exp(result.log_weights), exact.mean)) < 4.5
        assert abs(z_score(result.log_weights, exact.mean_log)) < 4.5
    assert mg.exact_log_z(model) == pytest.approx(PathSums(model, betas).log_z, rel=1e-12)


@pytest.mark.parametrize(("visible", "hidden", "n", "m"), MIXED)
def test_categorical_kernels_leave_the_target_invariant(visible, hidden, n, m):
    model = potts_rbm(4, (visible, hidden), n, m)
    plan = make_plan(model, method="mais-v", steps=4, chains=30_000)
    sums, path = PathSums(model, plan.betas), Distributions(plan, range(plan.chains.count))
    p = np.exp(sums.marginal(2) - np.logaddexp.reduce(sums.marginal(2)))
    v = sums.v_states[np.random.default_rng(0).choice(len(p), size=plan.chains.count, p=p)]
    moved = gibbs(path, 2, v, path.fields(v))
    counts = (moved[:, None] == sums.v_states).all(axis=2).sum(axis=0)
    assert stats.chisquare(counts, p * plan.chains.count).pvalue > 1e-5


def gaussian_rbm(units, seed=0, temperature=0.8):
    rng = np.random.default_rng(seed)
    precision = {"visible_precision": rng.uniform(0.7, 1.5, 4)} if units[0] == "gaussian" else {}
    precision |= {"hidden_precision": rng.uniform(0.7, 1.5, 3)} if units[1] == "gaussian" else {}
    return mg.rbm(
        0.25 * rng.normal(size=(4, 3)),
        rng.normal(size=4),
        rng.normal(size=3),
        units=units,
        temperature=temperature,
        **precision,
    )


@pytest.mark.parametrize("units", [("gaussian", "spin"), ("binary", "gaussian"), ("gaussian", "gaussian")])
@pytest.mark.parametrize("base", ["uniform", "biases"])
def test_gaussian_models_are_estimated(units, base):
    model = gaussian_rbm(units)
    exact = mg.exact_log_z(model)
    for method in ("ais", "mais-v", "mais-h"):
        r = mg.estimate(model, method=method, base=base, steps=60, chains=4000)
        assert abs(r.log_z - exact) < 4.5 * r.stderr
        assert r.stderr < 0.1


@pytest.mark.parametrize("units", [("gaussian", "spin"), ("gaussian", "gaussian")])
def test_gaussian_kernels_leave_the_target_invariant(units):
    """Start at exact draws of P_K and stay there: the mean and covariance of v do not move."""
    model = gaussian_rbm(units)
    n = 40_000
    plan = make_plan(model, method="mais-v", steps=3, chains=n)
    path = Distributions(plan, range(n))
    w, b, c = (x / model.temperature for x in (model.weights, model.visible_bias, model.hidden_bias))
    gamma = model.natural.visible_units.gamma
    rng = np.random.default_rng(5)
    if units[1] == "gaussian":
        joint = np.block([[np.diag(gamma), -w], [-w.T, np.diag(model.natural.hidden_units.gamma)]])
        mean, cov = np.linalg.solve(joint, np.concatenate([b, c])), np.linalg.inv(joint)
        mean, cov = mean[:4], cov[:4, :4]
        v = rng.multivariate_normal(mean, cov, size=n)
    else:
        h = states(SPIN, 3)
        log_p = h @ c + (0.5 * (b + h @ w.T) ** 2 / gamma).sum(axis=1)
        p = np.exp(log_p - np.logaddexp.reduce(log_p))
        means = (b + h @ w.T) / gamma
        mean = p @ means
        cov = np.diag(1 / gamma) + (means - mean).T @ ((means - mean) * p[:, None])
        v = means[rng.choice(8, size=n, p=p)] + rng.normal(size=(n, 4)) / np.sqrt(gamma)
    moved = gibbs(path, 3, v, path.fields(v))
    assert not np.allclose(moved, v)
    for i in range(4):
        assert abs(z_score(moved[:, i], mean[i])) < 4.5
        for j in range(4):
            assert abs(z_score((moved[:, i] - mean[i]) * (moved[:, j] - mean[j]), cov[i, j])) < 4.5


SIDES = ["spin", "binary", "categorical:2", "categorical:3", "categorical:2,3", "categorical:3,2,2"]


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    visible=st.sampled_from(SIDES),
    hidden=st.sampled_from(SIDES),
    density=st.floats(0, 1),
    hot=st.booleans(),
)
def test_random_bipartite_models_against_brute_force(seed, visible, hidden, density, hot):
    """Any discrete units, any pattern of couplings, an offset: every exact method that applies."""
    model = random_model(np.random.default_rng(seed), visible, hidden, density, 2.0 if hot else 0.3)
    expected = PathSums(model, [0, 1]).log_z
    for method in ("auto", "enumeration", "elimination"):
        assert mg.exact_log_z(model, method=method) == pytest.approx(expected, rel=1e-11, abs=1e-11)


def random_model(rng, visible, hidden, density, temperature):
    n, m = (sum(map(int, w[12:].split(","))) * (1 if "," in w else 2) if ":" in w else 3 for w in (visible, hidden))
    w = np.where(rng.random((n, m)) < density, rng.normal(size=(n, m)), 0)
    return mg.MRF(
        sp.csr_array(w) if rng.random() < 0.5 else w,
        rng.normal(size=n),
        rng.normal(size=m),
        parse_units(visible, n),
        parse_units(hidden, m),
        temperature=temperature,
        offset=0.7,
    )


@pytest.mark.parametrize("method", ["ais", "mais-v", "mais-h"])
def test_weights_of_random_models_have_their_exact_moments(method):
    """Any units against any others: ln W and W have the means and variances that the sum over all paths gives."""
    rng, deviations = np.random.default_rng(8), []
    betas, chains = np.array([0, 0.3, 0.6, 1]), 2000
    for visible, hidden in itertools.product(SIDES, SIDES):
        model = random_model(rng, visible, hidden, rng.uniform(0.3, 1), rng.uniform(0.7, 2))
        plan = make_plan(model, method=method, schedule=betas, chains=chains, keep_whole=True)
        log_w = log_weights(plan, "numpy")
        exact = exact_moments(model, method, betas)
        shift = math.log(exact.mean)
        error = math.sqrt(exact.relvar / chains)
        deviations += [z_score(log_w, exact.mean_log), (np.exp(log_w - shift).mean() - 1) / error]
        assert abs(deviations[-2]) < 4.5
        assert exact.relvar > 1e-3  # the weights have something to be wrong about
        assert abs(deviations[-1]) < 4.5 or exact.relvar > 5  # whose means are no longer normal
    assert abs(np.sum(deviations[::2])) < 4.5 * math.sqrt(len(SIDES) ** 2)
    assert np.mean(np.square(deviations[::2])) < 2


@pytest.mark.parametrize(("units", "features"), [*DISCRETE, (Gaussian((0.5, 2.0, 3.0)), 3)])
def test_mean_and_response_are_derivatives_of_the_log_normaliser(units, features):
    rng = np.random.default_rng(2)
    fields, change = rng.normal(size=(2, 4, features))
    step = 1e-4

    def slope(function, direction):
        return (function(fields + step * direction) - function(fields - step * direction)) / (2 * step)

    mean = np.stack([slope(units.log_normaliser, unit) for unit in np.eye(features)], axis=1)
    np.testing.assert_allclose(units.mean(fields), mean, atol=1e-7)
    np.testing.assert_allclose(units.response(fields, change), slope(units.mean, change), atol=1e-7)
    back = units.fields_of(units.mean(fields))
    np.testing.assert_allclose(units.mean(back), units.mean(fields), atol=1e-12)


class ThreeState(Units):
    """A variable that is −1, 0 or 1."""

    name = "three-state"

    def _rates(self, fields):
        weights = np.exp(np.multiply.outer([-1.0, 0.0, 1.0], fields) - np.abs(fields))
        return weights / weights.sum(axis=0)

    def log_normaliser(self, fields):
        return np.logaddexp(np.logaddexp(fields, -fields), 0.0).sum(axis=1)

    def draw(self, fields, uniforms):
        return (uniforms > np.cumsum(self._rates(fields)[:2], axis=0)).sum(axis=0) - 1.0

    def mean(self, fields):
        down, _, up = self._rates(fields)
        return up - down

    def response(self, fields, change):
        down, _, up = self._rates(fields)
        return (up + down - (up - down) ** 2) * change

    def fields_of(self, mean):
        return np.log((mean + np.sqrt(4.0 - 3.0 * mean**2)) / (2.0 * (1.0 - mean)))

    def allows(self, rows):
        return np.isin(rows, (-1.0, 0.0, 1.0)), "three-state units are -1, 0 or 1"


@pytest.mark.parametrize(("method", "base"), [("ais", "uniform"), ("mais-v", "biases"), ("mais-h", "mean-field")])
def test_a_kind_of_unit_is_one_class(method, base):
    """Annealed by the reference, summed exactly, and described, without a line about it anywhere else."""
    rng = np.random.default_rng(0)
    model = mg.rbm(rng.normal(size=(5, 4)), rng.normal(size=5), rng.normal(size=4), units=(ThreeState(), "spin"))
    v = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=5)))
    fields = model.hidden_bias + v @ model.weights
    log_p = v @ model.visible_bias + np.logaddexp(fields, -fields).sum(axis=1)
    log_z = np.logaddexp.reduce(log_p)
    assert mg.exact_log_z(model) == pytest.approx(log_z, rel=1e-12)
    r = mg.estimate(model, steps=100, chains=2000, method=method, base=base)
    assert r.engine == "numpy"
    assert abs(r.log_z - log_z) < 4.5 * r.stderr
    means = mg.expectations(model, steps=100, chains=500).means[:5]
    assert means == pytest.approx(np.exp(log_p - log_z) @ v, abs=1e-9)
    assert "5 three-state units + 4 spins" in str(model)
    with pytest.raises(ValueError, match=r"three-state units are -1, 0 or 1"):
        mg.log_likelihood(model, np.full((1, 5), 0.5))
    with pytest.raises(ValueError, match="engine 'numba' has no kernel for three-state units"):
        mg.estimate(model, engine="numba")
