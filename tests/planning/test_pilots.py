"""Schedules from pilots, bases from the model or from data, and ln Z along the way."""

import math

import numpy as np
import pytest
from conftest import exact_moments, moments_model, random_rbm, z_score

import marginalis as mg
from marginalis.answers import estimate as estimate_file
from marginalis.engines.plan import make_plan
from marginalis.examples import rbm_gaussian, rbm_hopfield
from marginalis.paths.base import make_base
from marginalis.planning import pilots, tuning
from marginalis.planning.pilots import equal_lengths, plan_with_pilots
from marginalis.random import PILOT, stream
from marginalis.running.session import Session


def plan_of(model, **options):
    return plan_with_pilots(model, Session(1), **options)


def spread(result):
    return result.chains / result.ess - 1.0


# ---------------------------------------------------------------- schedules


def test_equal_lengths():
    betas = np.linspace(0, 1, 33)
    even = equal_lengths(betas, np.full(32, 0.01), 10)
    assert even == pytest.approx(np.linspace(0, 1, 11))
    # √g = 1 + 6β has the length β + 3β². A tenth of the length is spread evenly.
    rise, middle = np.diff(betas), (betas[1:] + betas[:-1]) / 2
    found = equal_lengths(betas, (rise * (1 + 6 * middle)) ** 2, 100)
    assert (found[0], found[-1]) == (0.0, 1.0)
    place = 0.9 * (found + 3 * found**2) / 4 + 0.1 * found
    assert np.abs(place - np.linspace(0, 1, 101)).max() < 0.002
    for useless in (np.zeros(32), np.full(32, np.inf), np.full(32, np.nan)):
        assert equal_lengths(betas, useless, 4) == pytest.approx(np.linspace(0, 1, 5))


def test_adaptive_schedules_reduce_the_variance():
    """Fitted schedules give a smaller spread of the weights at the same number of steps."""
    for model, factor in (
        (rbm_gaussian(10, 20, temperature=0.5, seed=1), 1.0),
        (rbm_hopfield(10, 20, temperature=1 / 8, seed=1), 0.7),
        (random_rbm(np.random.default_rng(3), 30, 20, units="binary", scale=1.5), 0.9),
    ):
        linear, adaptive = (
            mg.estimate(model, steps=200, chains=8000, schedule=schedule, seed=2) for schedule in ("linear", "adaptive")
        )
        assert spread(adaptive) < factor * spread(linear)


def test_default_is_adaptive_unless_steps_are_given():
    model = rbm_hopfield(6, 9, temperature=0.25)
    assert plan_of(model).steps == 1000
    assert not np.allclose(plan_of(model).betas, np.linspace(0, 1, 1001))
    assert np.array_equal(plan_of(model, steps=50).betas, np.linspace(0, 1, 51))
    assert plan_of(model, steps=50, schedule="adaptive").steps == 50
    assert np.array_equal(plan_of(model, schedule="linear").betas, np.linspace(0, 1, 1001))
    a = mg.estimate(model, chains=64)
    b = mg.estimate(model, chains=64, schedule=plan_of(model).betas)
    assert np.array_equal(a.log_weights, b.log_weights)


def test_schedule_depends_on_neither_chains_nor_engine():
    model = rbm_hopfield(6, 9, temperature=0.25)
    options = dict(steps=60, schedule="adaptive", seed=3)
    all_ = mg.estimate(model, chains=96, **options)
    parts = [mg.estimate(model, chains=48, first_chain=first, **options) for first in (0, 48)]
    assert np.array_equal(all_.log_weights, (parts[0] + parts[1]).log_weights)
    slow = mg.estimate(model, chains=96, engine="numpy", **options)
    assert np.allclose(all_.log_weights, slow.log_weights, atol=1e-4)
    assert not np.array_equal(plan_of(model, **options).betas, plan_of(model, **{**options, "seed": 4}).betas)


def test_z_stays_unbiased_after_adaptation():
    """Each seed has its own pilot and its own schedule; the mean of Ẑ over seeds is Z."""
    model = moments_model()
    ratio = math.exp(mg.exact_log_z(model)) / 2**5
    means = [
        np.exp(mg.estimate(model, steps=6, chains=50, schedule="adaptive", seed=seed).log_weights).mean()
        for seed in range(400)
    ]
    assert abs(z_score(means, ratio)) < 4.5


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_adaptive_schedules_of_very_few_steps_are_valid_and_unbiased(steps):
    model = moments_model()
    betas = plan_of(model, steps=steps, schedule="adaptive").betas
    assert len(betas) == steps + 1
    assert (betas[0], betas[-1]) == (0.0, 1.0)
    assert (np.diff(betas) > 0.0).all()
    ratio = math.exp(mg.exact_log_z(model)) / 2**5
    options = dict(steps=steps, chains=100, schedule="adaptive")
    means = [np.exp(mg.estimate(model, seed=seed, **options).log_weights).mean() for seed in range(100)]
    assert abs(z_score(means, ratio)) < 4.5


# ---------------------------------------------------------------- bases


def test_mean_field_is_self_consistent():
    model = random_rbm(np.random.default_rng(0), 6, 5, units=("binary", "spin"), scale=0.4, temperature=0.9)
    base = make_base("mean-field", model)
    n = model.natural
    v, h = n.visible_units.mean(base.visible[None]), n.hidden_units.mean(base.hidden[None])
    assert base.visible == pytest.approx((n.visible_bias + h @ n.weights.T)[0], abs=1e-8)
    assert base.hidden == pytest.approx((n.hidden_bias + v @ n.weights)[0], abs=1e-8)


def test_mean_field_breaks_no_symmetry():
    """Below the critical temperature of mean-field theory a solution would sit in one of two mirror modes."""
    rng = np.random.default_rng(1)
    cold = mg.ising_grid((6, 6), coupling=1.0, field=1e-3 * rng.normal(size=(6, 6)), temperature=1.0)
    base = make_base("mean-field", cold)
    assert max(np.abs(base.visible).max(), np.abs(base.hidden).max()) < 0.05
    r = mg.estimate(cold, base="mean-field", chains=4000)
    assert abs(r.free_energy + mg.exact_log_z(cold)) < 4.5 * r.stderr
    assert not r.warnings


def test_mean_field_pays_where_fields_rule():
    model = random_rbm(np.random.default_rng(4), 30, 20, units="binary", scale=1.0)
    uniform, mean_field = (mg.estimate(model, steps=100, chains=4000, base=base) for base in ("uniform", "mean-field"))
    assert spread(mean_field) < 0.5 * spread(uniform)
    exact = -mg.exact_log_z(model)
    assert abs(mean_field.free_energy - exact) < 4.5 * mean_field.stderr


@pytest.mark.parametrize("units", ["categorical:3", "gaussian", "spin"])
def test_mean_field_of_every_unit(units):
    rng = np.random.default_rng(6)
    model = mg.rbm(0.15 * rng.normal(size=(6, 6)), rng.normal(size=6), rng.normal(size=6), units=units)
    r = mg.estimate(model, base="mean-field", steps=100, chains=2000)
    assert abs(r.free_energy + mg.exact_log_z(model)) < 4.5 * r.stderr + 1e-9


def test_data_base():
    data = np.array([[0, 1, 1], [0, 1, 0], [0, 1, 1]])
    model = mg.rbm(np.ones((3, 2)), np.zeros(3), np.zeros(2), units="binary")
    base = mg.data_base(model, data)
    assert 1 / (1 + np.exp(-base.visible)) == pytest.approx([1 / 5, 4 / 5, 3 / 5])
    on = 1 / (1 + np.exp(-np.array([2.0, 1.0, 2.0])))  # P(h = 1 | v) of each row, alike for both hidden units
    assert 1 / (1 + np.exp(-base.hidden)) == pytest.approx(np.full(2, (on.sum() + 1) / 5))
    spins = mg.rbm(np.ones((3, 2)), np.zeros(3), np.zeros(2))
    assert np.tanh(mg.data_base(spins, 2 * data - 1).visible) == pytest.approx([-3 / 5, 3 / 5, 1 / 5])
    half = mg.data_base(model, data, pseudo_count=0.5)
    assert 1 / (1 + np.exp(-half.visible)) == pytest.approx([0.5 / 4, 3.5 / 4, 2.5 / 4])
    potts = mg.rbm(np.ones((3, 2)), np.zeros(3), np.zeros(2), units=("categorical:3", "spin"))
    base = mg.data_base(potts, np.eye(3)[[0, 0, 1]])
    assert np.exp(base.visible) == pytest.approx([3 / 6, 2 / 6, 1 / 6])
    gauss = mg.rbm(np.ones((1, 2)), [0.0], np.zeros(2), units=("gaussian", "spin"), visible_precision=[2.0])
    assert mg.data_base(gauss, [[1.0], [2.0]]).visible == pytest.approx([3.0])
    r = mg.estimate(model, base=mg.data_base(model, data), chains=4000, steps=100)
    assert abs(r.free_energy + mg.exact_log_z(model)) < 4.5 * r.stderr + 1e-9
    with pytest.raises(ValueError, match="pseudo_count"):
        mg.data_base(model, data, pseudo_count=0.0)
    with pytest.raises(ValueError, match=r"data\[0, 0\] is 2"):
        mg.data_base(model, data + 2)


# ---------------------------------------------------------------- ln Z along the way


@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("method", ["ais", "mais-v", "mais-h"])
def test_curve_has_the_exact_means(method, engine):
    """After step k the mean weight is Z(β_k)/Z_0, the exact one of the path cut there."""
    rng = np.random.default_rng(7)
    model = random_rbm(rng, 3, 2, units=("binary", "spin"))
    base = (rng.normal(size=3), rng.normal(size=2))
    r = mg.estimate(model, method=method, steps=5, chains=40_000, base=base, record=True, engine=engine)
    assert r.curve.betas == pytest.approx(np.linspace(0.2, 1, 5))
    natural = model.natural
    rows = zip(r.curve.betas, r.curve.log_weights, r.curve.log_z, r.curve.stderr, strict=True)
    for beta, log_weights, log_z, error in rows:
        between = mg.rbm(
            beta * natural.weights,
            (1 - beta) * base[0] + beta * natural.visible_bias,
            (1 - beta) * base[1] + beta * natural.hidden_bias,
            units=("binary", "spin"),
        )
        exact = mg.exact_log_z(between)
        assert abs(z_score(np.exp(log_weights + r.log_z0 - exact), 1.0)) < 4.5
        assert abs(log_z - exact) < 4.5 * error
    assert np.array_equal(r.curve.log_weights[-1], r.log_weights)
    assert r.curve.log_z[-1] == pytest.approx(r.log_z)
    assert r.curve.stderr[-1] == pytest.approx(r.stderr)
    assert r.curve.intervals[-1] == pytest.approx([-r.interval[1], -r.interval[0]])
    assert exact_moments(model, method, np.linspace(0, 1, 6), base).mean == pytest.approx(
        math.exp(mg.exact_log_z(model) - r.log_z0)
    )


def test_seeds_with_schedules_of_their_own_do_not_join():
    model = rbm_hopfield(6, 9, temperature=0.25)
    with pytest.raises(ValueError, match="adaptive schedules depend on the seed"):
        mg.estimate(model, chains=9) + mg.estimate(model, chains=9, seed=1)


def test_equal_weights_in_single_precision():
    """All weights are equal by symmetry, and all off by the same rounding: the interval allows for it."""
    model = mg.rbm(np.full((1, 40), 0.6), [0.0], np.zeros(40))
    r = mg.estimate(model, steps=200, chains=64, method="mais-v")
    low, high = r.interval
    assert low <= -mg.exact_log_z(model) <= high
    assert 0 < high - low < 1e-4
    double = mg.estimate(model, steps=200, chains=64, method="mais-v", precision="double")
    assert double.interval[1] - double.interval[0] < 1e-10


def test_recording_changes_nothing_else():
    model = rbm_gaussian(6, 9, temperature=0.5)
    plain = mg.estimate(model, steps=40, chains=300)
    recorded = mg.estimate(model, steps=40, chains=300, record=True, threads=2)
    assert plain.curve is None
    assert np.array_equal(plain.log_weights, recorded.log_weights)
    halves = [mg.estimate(model, steps=40, chains=150, first_chain=f, record=True) for f in (0, 150)]
    assert np.array_equal((halves[0] + halves[1]).curve.log_weights, recorded.curve.log_weights)
    assert (plain.curve, (halves[0] + mg.estimate(model, steps=40, chains=9, seed=1)).curve) == (None, None)


def test_curve_of_parts_and_offset():
    """Nothing is summed beforehand when the path is recorded, and an offset grows with β."""
    model = mg.from_edges([(0, 1), (2, 3)], coupling=[0.5, -0.7], field=[0.1, 0.2, 0.3, 0.4])
    shifted = mg.MRF(
        model.weights, model.visible_bias, model.hidden_bias, model.visible_units, model.hidden_units, 2.0, offset=3.0
    )
    r = mg.estimate(shifted, steps=10, chains=2000, record=True)
    half = mg.MRF(
        model.weights, model.visible_bias, model.hidden_bias, model.visible_units, model.hidden_units, 4.0, offset=3.0
    )
    assert r.curve.betas[4] == pytest.approx(0.5)
    assert abs(r.curve.log_z[4] - mg.exact_log_z(half)) < 4.5 * r.curve.stderr[4]
    assert abs(r.log_z - mg.exact_log_z(shifted)) < 4.5 * r.stderr


def test_record_is_thinned_to_its_room(monkeypatch):
    monkeypatch.setattr(estimate_file, "_RECORD_BYTES", 8 * 100 * 7)
    r = mg.estimate(rbm_gaussian(4, 5), steps=50, chains=100, record=True)
    assert len(r.curve.betas) == 7
    assert r.curve.betas[-1] == 1.0
    assert make_plan(rbm_gaussian(4, 5)).steps == 1000


def test_pilots_are_no_chains_of_the_run(plans):
    r = mg.estimate(rbm_hopfield(6, 9, temperature=0.25), steps=60, chains=50, schedule="adaptive", seed=3)
    own = stream(3, PILOT)
    assert own != 3
    assert [(p.chains.seed, p.chains.first, p.chains.count) for p in plans] == [(own, 0, 64), (own, 64, 64), (3, 0, 50)]
    assert not np.allclose(
        plans[1].betas, np.linspace(0, 1, 33)
    )  # The second pilot has the steps that the first one suggests.
    assert r.schedule == "adaptive"


def test_equal_lengths_of_an_uneven_path():
    """The path of a pilot does not matter, only g along it: here 1 everywhere, so that all steps become equal."""
    betas = np.linspace(0, 1, 65) ** 2
    assert equal_lengths(betas, np.diff(betas) ** 2, 10) == pytest.approx(np.linspace(0, 1, 11))


def test_data_base_of_gaussians_knows_the_temperature():
    model = mg.rbm([[0.2]], [0.0], [0.0], units=("gaussian", "spin"), visible_precision=[3.0], temperature=2.0)
    base = mg.data_base(model, [[1.0], [2.0]])
    assert base.visible == pytest.approx([1.5 * 3.0 / 2.0])
    assert model.natural.visible_units.mean(base.visible[None]) == pytest.approx(np.array([[1.5]]))


@pytest.mark.parametrize(("units", "scale"), [("spin", 1.0), ("binary", 4.0)])
def test_mean_field_stops_where_it_becomes_unstable(units, scale):
    """All pairs coupled by J/n: mean-field theory is stable to βJ = 1, for binaries about ½ to βJ = 4."""
    for strength, reached in ((0.5, 1.0), (0.8, 1.0), (3.0, 0.3), (1.5, 0.6)):
        coupling = strength * scale
        bias = 0.01 - (0.5 * coupling if units == "binary" else 0.0)  # The model is nearly symmetric.
        model = mg.rbm(np.full((6, 6), coupling / 6), np.full(6, bias), np.full(6, bias), units=units)
        base = make_base("mean-field", model)
        mean = model.hidden_units.mean(base.hidden[None])[0]
        beta = base.visible / (model.visible_bias + model.weights @ mean)
        assert beta == pytest.approx(np.full(6, beta[0]))
        assert beta[0] == pytest.approx(round(20 * beta[0]) / 20, abs=1e-6)  # β(b + W⟨h⟩) at one of twenty β
        assert 0.75 * reached <= beta[0] <= reached + 1e-6


def test_curves_of_other_steps_are_not_joined():
    one, two = (mg.estimate(moments_model(), steps=steps, chains=5, record=True) for steps in (4, 8))
    with pytest.raises(ValueError, match="different steps"):
        one.curve + two.curve


@pytest.mark.parametrize("steps", [1, 7, 32, 500, 4000])
def test_schedules_of_paths_from_phases_end_in_ever_shorter_steps(steps):
    betas = pilots.linear_with_fine_end(steps)
    fine = pilots._fine_steps(steps)
    rise = np.diff(betas)
    assert len(betas) == steps + 1
    assert (betas[0], betas[-1]) == (0.0, 1.0)
    assert (rise > 0.0).all()
    assert np.allclose(rise[: steps - fine - 1], 1.0 / (steps - fine))
    if fine:
        assert rise[-1] == pytest.approx(tuning.PILOTS.last_step)
        assert (np.diff(rise[-1 - fine : -1]) < 0.0).all()
    # A schedule that ends in a step as short as that has no room for shorter ones, and is interpolated.
    short = np.array([0.0, 1.0 - 1e-6, 1.0])
    assert np.array_equal(pilots.with_fine_end(short, 4), pilots.interpolated(short, 4))
