"""Bounds that bracket at the promised rate, and say what they rest on."""

import itertools
import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from conftest import PathSums, moments_model, random_rbm, z_score

import marginalis as mg
from marginalis.answers.bounds import _resampled, markov_bound
from marginalis.exact.sampling import sample_visible
from marginalis.examples import rbm_gaussian, rbm_hopfield
from marginalis.studies.families import switching

LINEAR5 = np.linspace(0, 1, 6)


def test_bounds_fail_as_often_as_they_should():
    """Groups of four chains of one run, whose weights take sixteen values: the rates follow from these exactly.

    Markov's inequality is generous: a bound that is wrong in the code would still hold on most models.
    """
    model = random_rbm(np.random.default_rng(5), 4, 3, scale=0.5)
    sums, risk, number = PathSums(model, [0.0, 1.0]), 0.4, 5000
    p = np.exp(sums.marginal(1) - sums.log_z)
    four = np.array(list(itertools.product(range(16), repeat=4)))

    def rate(ratios, law):
        """Probability that both means of two, with the root of the risk, exceed what they estimate."""
        means = np.minimum(ratios[four[:, :2]].mean(axis=1), ratios[four[:, 2:]].mean(axis=1))
        return float(law[four].prod(axis=1) @ (means * math.sqrt(risk) > 1.0))

    whole = mg.bound(model, method="mais-v", steps=1, chains=4 * number, confidence=1.0 - 2.0 * risk)
    assert whole.samples == "exact, by enumeration"
    groups = zip(whole.forward.log_weights.reshape(-1, 4), whole.reverse_log_weights.reshape(-1, 4), strict=True)
    known = whole.forward
    few = [
        replace(whole, forward=replace(known, weights=mg.Weights(x, known.log_z0)), reverse_log_weights=y)
        for x, y in groups
    ]
    for expected, wrong in (
        (rate(16 * p, np.full(16, 1 / 16)), [b.upper < -sums.log_z for b in few]),
        (rate(1 / (16 * p), p), [b.lower > -sums.log_z for b in few]),
    ):
        assert 0.03 < expected < risk
        assert abs(np.mean(wrong) - expected) < 4.5 * math.sqrt(expected * (1 - expected) / number)


def test_each_side_errs_in_its_own_direction():
    """E[F̂ forward] ≥ F ≥ E[F̂ reverse], seen where both are clearly biased."""
    model = rbm_hopfield(8, 12, temperature=0.3, seed=2)
    exact = -mg.exact_log_z(model)
    runs = [mg.bound(model, steps=5, chains=16, seed=seed) for seed in range(60)]
    forward = np.array([b.forward.free_energy for b in runs])
    reverse = np.array([b.reverse_free_energy for b in runs])
    assert z_score(forward, exact) > 4
    assert z_score(reverse, exact) < -4


def test_markov_bound_holds_for_any_weights():
    """Two-valued weights that are nearly always too small or too large: the worst kind for a normal interval."""
    rng = np.random.default_rng(3)
    for p, risk in ((0.01, 0.1), (0.5, 0.3), (0.99, 0.2)):
        mean = p * 10.0 + (1 - p) * 0.1
        log_weights = np.log(np.where(rng.random((2000, 20)) < p, 10.0, 0.1))
        wrong = np.mean([markov_bound(x, risk) > math.log(mean) for x in log_weights])
        assert wrong <= risk + 3.5 * math.sqrt(risk * (1 - risk) / 2000)
    assert markov_bound(np.zeros(1), 0.05) == math.log(0.05)
    assert markov_bound(np.full(100, 2.0), 0.05) == pytest.approx(2.0 + math.log(0.05) / 10)


def test_the_free_energy_is_right_from_given_samples():
    model = rbm_gaussian(6, 9, temperature=0.5, seed=4)
    exact = -mg.exact_log_z(model)
    chains = np.arange(400, dtype=np.uint64)
    v, _ = sample_visible(model, 5, chains)
    for method in ("ais", "mais-v", "mais-h"):
        b = mg.bound(model, v, method=method, steps=50, chains=300)
        assert b.samples == "given"
        assert len(b.reverse_log_weights) == 400
        assert b.forward.chains == 300
        assert not b.warnings
        assert abs(b.free_energy - exact) < 4.5 * b.stderr
        assert b.lower < exact < b.upper
    h, _ = sample_visible(model.transposed(), 6, chains)
    b = mg.bound(model, (v, h), method="mais-h", steps=50)
    assert abs(b.free_energy - exact) < 4.5 * b.stderr
    with pytest.raises(ValueError, match=r"samples has 5 columns; the model has 6"):
        mg.bound(model, v[:, :5])
    with pytest.raises(ValueError, match=r"samples\[0, 0\] is 0.5; spin units"):
        mg.bound(model, 0.5 * np.abs(v))


def test_samples_that_are_not_of_the_model_are_noticed():
    """Uniform states instead of samples at low temperature: the lower bound ends up above the upper one."""
    model = rbm_gaussian(10, 20, temperature=0.1, seed=4)
    v = np.where(np.random.default_rng(0).random((200, 10)) < 0.5, -1.0, 1.0)
    b = mg.bound(model, v, steps=200)
    assert b.lower > -mg.exact_log_z(model)
    assert any("contradict" in w for w in b.warnings)


def test_a_missed_mode_shows_in_the_other_direction():
    """A base in one of two mirror modes: the forward run is sure of half of Z, the reverse run knows both."""
    model = mg.ising_grid((6, 6), periodic=True, temperature=1.2)
    one_mode = (np.full(18, 1.5), np.full(18, 1.5))
    b = mg.bound(model, base=one_mode, steps=200)
    exact = -mg.exact_log_z(model)
    assert not b.forward.warnings
    assert abs(b.forward.free_energy - exact - math.log(2)) < 4.5 * b.forward.stderr
    assert any("the two directions disagree by 0.6" in w or "disagree by 0.7" in w for w in b.warnings)
    assert b.lower < exact


def test_approximate_start_is_labelled():
    model = mg.ising_grid((24, 24), coupling=0.3, periodic=True)
    b = mg.bound(model, steps=200, chains=200)
    assert b.samples == "approximate"
    assert not b.is_certified
    assert any("approximate" in w for w in b.warnings)
    assert "if the reverse chains start at equilibrium" in str(b)
    assert b.lower < -mg.exact_log_z(model) < b.upper
    # no number of Bennett's to quote: his error bar would take these for samples of the model
    forward = b.forward
    assert (b.free_energy, b.stderr, b.interval) == (forward.free_energy, forward.stderr, forward.interval)
    assert b.to_dict()["estimator"] == "forward"
    assert "by the forward chains alone" in str(b)
    assert "Bennett" not in str(b) + json.dumps(b.to_dict())
    assert set(forward.warnings) <= set(b.warnings)


def test_disconnected_and_exact_models():
    parts = mg.from_edges([(0, 1), (2, 3), (4, 5)], coupling=[0.5, -0.7, 1.0])
    b = mg.bound(parts, chains=50)
    assert b.samples == "exact"
    assert b.free_energy == pytest.approx(-mg.exact_log_z(parts), abs=1e-12)
    assert b.stderr == 0.0
    w = np.zeros((12, 17))
    w[:8, :15] = rbm_gaussian(8, 15, temperature=0.5).weights  # the other variables are alone
    model = mg.rbm(w, np.linspace(-1, 1, 12), np.linspace(-1, 1, 17))
    b = mg.bound(model, steps=50, chains=500)
    assert abs(b.free_energy + mg.exact_log_z(model)) < 4.5 * b.stderr
    assert b.lower < -mg.exact_log_z(model) < b.upper


def test_invalid_samples_are_refused():
    model = rbm_gaussian(4, 4, temperature=0.5)
    up = np.ones(4)
    assert len(mg.bound(model, (up, -up), steps=5, chains=20).reverse_log_weights) == 2  # two rows
    with pytest.raises(ValueError, match=r"hidden samples\[0, 0\] is 0.5"):
        mg.bound(model, (np.ones((7, 4)), np.full((7, 4), 0.5)), method="mais-v")
    with pytest.raises(ValueError, match="7 visible samples and 3 hidden"):
        mg.bound(model, (np.ones((7, 4)), np.ones((3, 4))))


def test_the_headline_names_the_source_of_the_samples():
    model = rbm_gaussian(6, 9, temperature=0.5)
    v, _ = sample_visible(model, 5, np.arange(100, dtype=np.uint64))
    given = mg.bound(model, v, steps=50)
    assert not given.is_certified
    assert "if these are independent samples of the model" in str(given)
    certified = mg.bound(model, steps=50, chains=50)
    assert certified.is_certified
    assert certified.to_dict()["estimator"] == given.to_dict()["estimator"] == "bennett"


def test_rounding_is_no_disagreement():
    weak = mg.rbm(1e-8 * np.random.default_rng(1).normal(size=(5, 7)), np.zeros(5), np.zeros(7))
    assert not mg.bound(weak, method="mais-v", steps=60, chains=100).warnings
    assert not mg.bound(rbm_hopfield(6, 9, temperature=2.0), chains=19, steps=1000).warnings
    assert any("too few" in w for w in mg.bound(weak, chains=5).warnings)


def test_models_without_couplings():
    alone = mg.from_edges([], field=[0.1, -0.2, 0.3], n=3)
    b = mg.bound(alone, np.ones((50, 3)), transition="metropolis")
    assert b.free_energy == pytest.approx(-mg.exact_log_z(alone))
    for run in (
        lambda: mg.estimate(alone, record=True, transition="metropolis"),
        lambda: mg.thermodynamics(alone, [1.0]),
    ):
        with pytest.raises(ValueError, match="no couplings"):
            run()


def test_bounds_are_reproducible_and_complete_as_data():
    model = rbm_gaussian(6, 9, temperature=0.5)
    b = mg.bound(model, steps=50, chains=100, threads=1)
    again = mg.bound(model, steps=50, chains=100, threads=2)
    assert np.array_equal(b.reverse_log_weights, again.reverse_log_weights)
    assert not np.array_equal(b.forward.log_weights, -b.reverse_log_weights)
    d = b.to_dict()
    assert d["lower"] < d["interval"][0] < d["free_energy"] == -d["log_z"] < d["interval"][1] < d["upper"]
    assert d["confidence"] == 0.95
    low, high = mg.bound(model, steps=50, chains=100, confidence=0.5).interval
    assert high - low < d["interval"][1] - d["interval"][0]
    one = mg.bound(model, steps=50, chains=1)
    assert one.stderr == math.inf
    assert one.to_dict()["stderr"] is None
    for bad in (dict(confidence=1.0), dict(confidence="x"), dict(equilibration=-1), dict(engine="x")):
        with pytest.raises(ValueError, match=next(iter(bad))):
            mg.bound(model, **bad)


def test_bounds_share_the_risk():
    b = mg.bound(moments_model(), steps=5, chains=50, confidence=0.6)
    assert b.lower == pytest.approx(markov_bound(b.reverse_log_weights, 0.2) - b.forward.log_z0)
    assert b.upper == pytest.approx(-b.forward.log_z0 - markov_bound(b.forward.log_weights, 0.2))


def test_given_samples_start_the_hidden_side():
    """With hidden fields; and where both sides are given only the one that is sampled counts."""
    rng = np.random.default_rng(6)
    model = mg.rbm(rng.normal(size=(3, 4)), rng.normal(size=3), 2.0 * rng.normal(size=4))
    exact = PathSums(model.transposed(), LINEAR5).reverse("mais-v")
    chains = np.arange(20_000, dtype=np.uint64)
    v, h = sample_visible(model, 5, chains)[0], sample_visible(model.transposed(), 6, chains)[0]
    for samples in (v, (v, h), (np.ones_like(v), h)):
        b = mg.bound(model, samples, method="mais-h", steps=5, chains=10)
        assert abs(z_score(b.reverse_log_weights, exact.mean_log)) < 4.5
        assert abs(z_score(np.exp(b.reverse_log_weights), exact.mean)) < 4.5


def test_resampling_follows_the_weights():
    """Systematic: every state comes as often as its weight says, but for rounding."""
    rng = np.random.default_rng(0)
    log_weights = 2.0 * rng.normal(size=500) + 300.0
    expected = 500 * np.exp(log_weights - np.logaddexp.reduce(log_weights))
    for seed in range(20):
        picked = _resampled(log_weights, np.arange(500.0)[:, None], seed)
        counts = np.bincount(picked[:, 0].astype(int), minlength=500)
        assert counts.sum() == 500
        assert np.abs(counts - expected).max() < 1.0 + 1e-6
    assert not np.array_equal(picked, _resampled(log_weights, np.arange(500.0)[:, None], 0))


def test_approximate_start_is_resampled_and_equilibrated(monkeypatch, plans):
    """As many moves under the target as asked for; true samples need none."""
    monkeypatch.setattr(sys.modules["marginalis.answers.bounds"], "sample_visible", lambda *args: None)
    model = random_rbm(np.random.default_rng(3), 4, 5, scale=0.8)
    for equilibration, moves in ((None, 6), (0, 0), (40, 40)):
        b = mg.bound(model, steps=6, chains=4000, method="mais-v", equilibration=equilibration)
        assert b.samples == "approximate"
        assert plans[-1].betas.tolist() == [1.0] * moves + np.linspace(0, 1, 7)[::-1].tolist()
    assert abs(z_score(np.exp(b.reverse_log_weights), np.exp(b.forward.log_z0 - mg.exact_log_z(model)))) < 4.5
    samples, _ = sample_visible(model, 1, np.arange(50, dtype=np.uint64))
    assert mg.bound(model, samples, steps=6, chains=20, equilibration=40).samples == "given"
    assert plans[-1].steps == 6


def test_disagreement_is_measured_by_both_errors():
    rng = np.random.default_rng(1)
    known = mg.estimate(moments_model(), steps=5, chains=10)
    forward = replace(known, weights=mg.Weights(1e-6 * rng.normal(size=400), known.log_z0))
    reverse = rng.normal(size=100)
    reverse -= np.logaddexp.reduce(reverse) - math.log(100)
    for shift, doubtful in ((0.3, False), (1.5, True)):  # the mean of the reverse weights has an error of about 0.13
        b = mg.Bounds(forward, reverse + shift, "given", 0.95, 0.0)
        assert any("disagree" in w for w in b.warnings) == doubtful


def test_bound_refuses_bad_arguments():
    model = rbm_gaussian(4, 4, temperature=0.5)
    for options in (dict(keep_whole=True), dict(record=True), dict(tolerance=0.1), dict(stpes=3)):
        with pytest.raises(ValueError, match=f"there is no option '{next(iter(options))}' here"):
            mg.bound(model, **options)


def test_errors_are_at_least_the_rounding():
    model = rbm_gaussian(4, 4, temperature=0.5)
    b = mg.bound(model, steps=50)
    coarse = replace(b, forward=replace(b.forward, weights=replace(b.forward.weights, rounding=0.5)))
    assert coarse.interval == (b.free_energy - 0.5, b.free_energy + 0.5)
    assert b.interval[0] > coarse.interval[0]


def test_both_directions_take_the_path_that_is_chosen():
    """A phase that is absent for every β < 1: the plain path misses it and the path that is chosen does not."""
    model = switching(1.0, 1, visible=200)
    exact = -mg.exact_log_z(model)
    plain, chosen = (mg.bound(model, threads=1, **options) for options in ({"steps": 1000}, {}))
    assert plain.forward.free_energy - exact > 10 * plain.forward.stderr
    assert abs(chosen.forward.free_energy - exact) < 4.5 * chosen.forward.stderr
    assert abs(chosen.free_energy - exact) < 4.5 * chosen.stderr
    assert chosen.forward.base == "phases"
    assert not chosen.warnings
    assert chosen.upper - chosen.lower < plain.upper - plain.lower
