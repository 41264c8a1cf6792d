"""Intervals that hold for skewed weights, tail indices, and warnings where they must be."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import trapezoid

import marginalis as mg
from marginalis.examples import ising_grid, rbm_gaussian
from marginalis.statistics import confidence
from marginalis.studies import calibration
from marginalis.studies.intervals import FAST, SLOW, Sample, chosen


def coverage(rows, log_mean=0.0):
    """How many of the intervals hold ln E[W], over all and over those without a warning."""
    ends = np.array([confidence.interval(row) for row in rows])
    held = (ends[:, 0] <= log_mean) & (ends[:, 1] >= log_mean)
    quiet = np.array([not confidence.warnings_of(row) for row in rows])
    return held, quiet


def lognormal(rng, sd, estimates, chains):
    return rng.normal(-(sd**2) / 2, sd, (estimates, chains))


@pytest.mark.parametrize(
    ("sd", "chains"), [(0.05, 20), (0.5, 20), (0.5, 50), (1.0, 50), (1.0, 100), (1.5, 300), (2.0, 1000)]
)
def test_intervals_hold_for_lognormal_weights(sd, chains):
    rows = lognormal(np.random.default_rng(chains), sd, 1000, chains)
    held, _ = coverage(rows)
    assert calibration.inside(held.mean(), len(held), 3.5)


@pytest.mark.parametrize(("method", "steps", "chains"), [("ais", 10, 100), ("mais", 5, 100), ("mais", 2, 300)])
def test_intervals_hold_for_an_rbm(method, steps, chains):
    model = rbm_gaussian(10, 14, temperature=0.8, seed=4)
    run = mg.estimate(model, method=method, steps=steps, chains=1000 * chains, seed=1, threads=1)
    rows = run.log_weights.reshape(-1, chains) + run.log_z0 - mg.exact_log_z(model)
    held, quiet = coverage(rows)
    assert quiet.mean() > 0.95
    assert calibration.inside(held[quiet].mean(), quiet.sum(), 3.5)


def test_the_delta_method_would_not_hold():
    """What the interval is for: log-weights with a standard deviation of 1.5."""
    rows = lognormal(np.random.default_rng(0), 1.5, 1000, 100)
    low, high = FAST["delta"](Sample(rows))
    assert ((low <= 0) & (high >= 0)).mean() < 0.91


@pytest.mark.parametrize("name", [*FAST, *SLOW])
def test_every_interval_that_was_tried_holds_where_all_should(name):
    """Light-tailed weights and enough chains: none of the candidates is broken."""
    rows = lognormal(np.random.default_rng(2), 0.3, 600, 200)
    low, high = (FAST | SLOW)[name](Sample(rows))
    assert calibration.inside(((low <= 0) & (high >= 0)).mean(), 600, 3.5)


def test_the_study_judges_the_real_interval():
    rows = np.random.default_rng(0).normal(size=(3, 40))
    ends = np.array(chosen(Sample(rows)))
    assert ends[:, 1] == pytest.approx(confidence.interval(rows[1]))


def test_intervals_are_nested_by_level():
    x = np.random.default_rng(0).normal(scale=0.5, size=200)
    (a, b), (c, d), (e, f) = (confidence.interval(x, level) for level in (0.5, 0.95, 0.999))
    assert e < c < a < b < d < f


def test_a_constant_shifts_the_interval_and_nothing_else():
    x = np.random.default_rng(0).normal(scale=1.7, size=300)
    for shift in (-1e4, 3.0, 1e5):
        moved = confidence.interval(x + shift)
        assert np.subtract(moved, shift) == pytest.approx(confidence.interval(x), abs=1e-9)
        assert confidence.tail_index(x + shift) == pytest.approx(confidence.tail_index(x), abs=1e-6)
        assert confidence.warnings_of(x + shift) == confidence.warnings_of(x)


def test_equal_weights_are_certain():
    for n in (2, 3, 100):
        assert confidence.interval(np.full(n, 7.0)) == (7.0, 7.0)
        assert confidence.warnings_of(np.full(n, 7.0)) == ()
        assert math.isnan(confidence.tail_index(np.full(n, 7.0)))


def test_few_chains():
    assert confidence.interval(np.array([1.0])) == (-math.inf, math.inf)
    assert confidence.warnings_of(np.array([1.0])) == ("one chain gives no error bar; raise chains",)
    for x in ([0.0, 1.0], [0.0, 0.1, -0.1], [0.0, 800.0], [-800.0, 0.0, 1e-9]):
        low, high = confidence.interval(np.array(x))
        assert low < np.logaddexp.reduce(x) - math.log(len(x)) < high < math.inf
        assert low > -math.inf
        assert f"{len(x)} chains are too few" in confidence.warnings_of(np.array(x))[0]


@pytest.mark.parametrize("chains", [2, 3, 5])
def test_few_chains_with_little_spread(chains):
    held, _ = coverage(lognormal(np.random.default_rng(chains), 0.05, 2000, chains))
    assert calibration.inside(held.mean(), len(held), 3.5)


def test_extreme_log_weights():
    for x in ([0.0] * 99 + [50.0], [-1e4] * 50 + [0.0] * 50, list(range(-1000, 1000, 20)), [0.0] * 97 + [50.0] * 3):
        low, high = confidence.interval(np.array(x, dtype=float))
        assert math.isfinite(low)
        assert math.isfinite(high)
        confidence.tail_index(np.array(x, dtype=float))
    for x in ([0.0] * 99 + [50.0], list(range(-1000, 1000, 20)), [0.0] * 97 + [50.0] * 3):
        assert confidence.warnings_of(np.array(x, dtype=float))


@pytest.mark.parametrize("k", [0.1, 0.4, 0.7, 1.0])
def test_tail_index_of_pareto_weights(k):
    """The mean over samples is the shape, drawn towards 1/2 as M·k + 5 over M + 10."""
    rng = np.random.default_rng(7)
    n = 4000
    found = [confidence.tail_index(np.log1p(np.expm1(k * rng.exponential(size=n)) / k)) for _ in range(60)]
    m = math.ceil(3 * math.sqrt(n))
    expected = (m * k + 5) / (m + 10)
    # the fit has a bias of its own, of order 1/M
    assert abs(np.mean(found) - expected) < 4.5 * np.std(found) / math.sqrt(60) + 2 / m


def test_tail_of_lognormal_weights():
    rng = np.random.default_rng(0)
    small, large = (np.mean([confidence.tail_index(s * rng.normal(size=2000)) for _ in range(30)]) for s in (0.3, 3.0))
    assert small < 0.2
    assert large > 0.7


def test_fitted_tail_describes_the_tail():
    x = np.log1p(np.expm1(0.5 * np.random.default_rng(0).exponential(size=10_000)) / 0.5)
    tail = confidence.fit_tail(x)
    above = np.sort(x[x > tail.threshold])
    assert len(above) == tail.size == 300
    z = np.exp(above - tail.log_scale) - math.exp(tail.threshold - tail.log_scale)
    survival = (1 + tail.k * z) ** (-1 / tail.k)
    empirical = 1 - (np.arange(tail.size) + 0.5) / tail.size
    assert np.abs(survival - empirical).max() < 1.63 / math.sqrt(tail.size)  # Kolmogorov, 1 %


def test_a_bad_case_always_warns():
    model = rbm_gaussian(temperature=0.05, seed=3)
    for seed in range(30):
        for method in ("ais", "mais"):
            assert mg.estimate(model, method=method, steps=2, chains=200, seed=seed, threads=1).warnings


def test_heavy_tails_are_named():
    model = ising_grid((6, 6), periodic=True, temperature=2.27)
    run = mg.estimate(model, steps=2, chains=60_000, threads=1)
    told = [confidence.warnings_of(row) for row in run.log_weights.reshape(-1, 300)]
    assert np.mean([any("heavy tail (k = " in message for message in messages) for messages in told]) > 0.7


def test_an_easy_case_hardly_ever_warns():
    model = rbm_gaussian(12, 16, seed=5)
    for chains in (20, 100, 1000):
        run = mg.estimate(model, steps=30, chains=300 * chains, seed=2, threads=1)
        warned = [bool(confidence.warnings_of(row)) for row in run.log_weights.reshape(-1, chains)]
        assert np.mean(warned) < 0.02


def test_estimate_reports_them():
    run = mg.estimate(rbm_gaussian(8, 8), steps=5, chains=50)
    low, high = confidence.interval(run.log_weights)
    assert run.interval == pytest.approx((-run.log_z0 - high, -run.log_z0 - low))
    assert run.to_dict()["tail_index"] == run.tail_index == confidence.tail_index(run.log_weights)
    assert mg.estimate(rbm_gaussian(8, 8), steps=5, chains=5).to_dict()["tail_index"] is None


def farther(x, error):
    """What the bulk of log-weights says of the upper end, with moments by quadrature over a normal z."""
    low, middle, high = np.quantile(x, (0.1, 0.5, 0.9))
    z90 = stats.norm.ppf(0.9)
    c = (high - 2 * middle + low) / z90**2  # through the three quantiles: middle + s z + c z²/2
    s = (high - low) / (2 * z90)
    assert c < 0.4
    z = np.linspace(-40, 40, 400_001)
    first, second = (trapezoid(np.exp(k * (s * z + c * z * z / 2)) * stats.norm.pdf(z), z) for k in (1, 2))
    foretold = math.sqrt((second / first**2 - 1) / len(x)) * (1 + 2 / math.sqrt(len(x)))
    up = (high - middle) / z90
    return min(max(foretold / error, 1), 4) ** (up**2 / (0.7 + up**2))


def test_the_bulk_of_the_weights_widens_intervals_that_missed_large_ones():
    """Of samples of the same weights, those with the smaller errors have missed the larger weights."""
    rows = lognormal(np.random.default_rng(3), 1.5, 2000, 100)
    errors = np.array([confidence.relative_error(row) for row in rows])
    held, _ = coverage(rows)
    without = FAST["hall-tails"](Sample(rows))
    held_without = (without[0] <= 0) & (without[1] >= 0)
    small = errors < np.quantile(errors, 0.25)
    assert held_without[small].mean() < 0.88
    assert calibration.inside(held[small].mean(), small.sum(), 3.5)
    assert calibration.inside(held.mean(), len(held), 3.5)


@pytest.mark.parametrize(("sd", "chains", "seed"), [(0.3, 20, 20), (1.0, 60, 60), (1.5, 300, 300), (2.0, 100, 6)])
def test_interval_is_the_root_of_halls_cubic(sd, chains, seed):
    """Put together from SciPy's moments and quantile: skewness times 1.25, freedom from the kurtosis."""
    x = np.random.default_rng(seed).normal(scale=sd, size=chains)
    w = np.exp(x)
    a = 1.25 * stats.skew(w) / math.sqrt(chains)
    freedom = min(2 * chains / max(stats.kurtosis(w, fisher=False) - 1, 2.0), chains - 1)
    t = stats.t(freedom).ppf(0.975)
    ends = []
    for u in (t, -t):
        roots = np.roots([a**2 / 27, a / 3, 1.0, a / 6 - u])
        (root,) = roots[np.abs(roots.imag) < 1e-9].real  # it is monotone
        ends.append(1 - stats.sem(w) / w.mean() * root)
    low, high = math.log(max(ends[0], 0.025)), math.log(ends[1])
    error = stats.sem(w) / w.mean()
    assert high > t * error  # for skewed weights Hall's end is the farther one
    high *= farther(x, error)
    assert confidence.interval(x) == pytest.approx((math.log(w.mean()) + low, math.log(w.mean()) + high), abs=1e-9)


def test_upper_end_is_never_nearer_than_the_delta_method():
    x = np.log(np.array([0.1] + [1.0, 1.01, 0.99, 1.02] * 5))
    w = np.exp(x)
    kurtosis = stats.kurtosis(w, fisher=False)
    t = stats.t(2 * 21 / (kurtosis - 1)).ppf(0.975)
    assert stats.skew(w) < 0
    assert confidence.interval(x)[1] == pytest.approx(math.log(w.mean()) + t * stats.sem(w) / w.mean(), abs=1e-9)


def told(log_weights, words):
    return any(words in message for message in confidence.warnings_of(np.asarray(log_weights, float)))


def test_limits_of_the_warnings():
    """Weights on either side of each threshold; quantiles stand for samples."""
    # fewer than 10 chains
    assert told(0.1 * np.arange(9), "9 chains are too few")
    assert not told(0.1 * np.arange(10), "too few")
    # an effective sample size below 5, whatever the spread
    for even, doubtful in ((4, True), (6, False)):
        assert told([0.0] * even + [-50.0] * (1000 - even), "effective sample size") == doubtful
    # half of the weight in one chain
    for share, doubtful in ((0.52, True), (0.48, False)):
        assert told([0.0] * 19 + [math.log(19 * share / (1 - share))], "one chain carries") == doubtful
    # log-normal weights whose mean has a foretold relative error of 1: s²(1 + 1/√N)² = ln(1 + N)
    grid = stats.norm.ppf((np.arange(100) + 0.5) / 100)
    limit = math.sqrt(math.log1p(100)) / (1 + 1 / math.sqrt(100))
    for factor, doubtful in ((1.02, True), (0.98, False)):
        assert told(factor * limit * grid, "effective sample size") == doubtful
    # a wide lower half does not matter where 25 chains count, a wide upper one where 200 do
    for count, doubtful in ((14, True), (30, False)):
        x = np.concatenate([np.linspace(-300.0, 0.0, 200 - count), np.full(count, 2.0)])
        x[90:] = np.maximum(x[90:], -1.0)
        assert confidence.log_spread(x) > 20
        assert told(x, "effective sample size") == doubtful
    for count, doubtful in ((190, True), (210, False)):
        x = np.concatenate([np.linspace(-300.0, -5.0, 2000 - count), np.zeros(count)])
        assert told(x, "effective sample size") == doubtful
    # a tail index above 0.85
    seen = set()
    for k in (0.66, 0.78, 0.83, 0.87, 0.92, 1.2):
        x = np.log1p(np.expm1(-k * np.log1p(-(np.arange(2000) + 0.5) / 2000)) / k)
        index = confidence.tail_index(x)
        assert told(x, "heavy tail") == (index > 0.85)
        seen.add(round(index, 1))
    assert {0.8, 0.9} <= seen
    assert max(seen) > 1.0
    # the standard deviation of Gaussian log-weights from their quartiles
    assert confidence.log_spread(1.7 * stats.norm.ppf((np.arange(1000) + 0.5) / 1000)) == pytest.approx(1.7, rel=2e-3)
