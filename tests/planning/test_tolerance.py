"""Estimates to a tolerance: it is met, or there is a warning, and planning does not bias the answer."""

import logging
import math
from dataclasses import replace

import numpy as np
import pytest
from conftest import moments_model, z_score

import marginalis as mg
from marginalis.engines import placement
from marginalis.engines.plan import make_plan
from marginalis.examples import rbm_gaussian, rbm_hopfield
from marginalis.planning import draft, narrowing, search, tolerance, tuning
from marginalis.random import OPINION, PILOT, QUENCH, stream
from marginalis.statistics import confidence


def tune(monkeypatch, **changes):
    """Plan with other numbers than those that the package has."""
    monkeypatch.setattr(tuning, "TOLERANCE", replace(tuning.TOLERANCE, **changes))


def half_width(r):
    return (r.interval[1] - r.interval[0]) / 2


@pytest.mark.parametrize("tolerance", [0.1, 0.02])
@pytest.mark.parametrize(
    "model",
    [
        rbm_gaussian(10, 20, temperature=1.0, seed=1),
        rbm_hopfield(10, 20, temperature=1 / 8, seed=1),
        mg.ising_grid((8, 8), coupling=0.44, periodic=True),
    ],
    ids=["easy", "cold", "critical"],
)
def test_tolerance_is_met(model, tolerance):
    r = mg.estimate(model, tolerance=tolerance)
    assert half_width(r) <= tolerance
    assert not r.warnings
    assert abs(r.free_energy + mg.exact_log_z(model)) < 4.5 * r.stderr


def test_the_log_reports_pilots_and_the_plan(caplog):
    with caplog.at_level(logging.INFO, logger="marginalis"):
        mg.estimate(rbm_hopfield(10, 20, temperature=1 / 4), tolerance=0.05)
    text = caplog.text
    assert "pilot run with " in text
    assert "the next run has " in text


def test_populations_where_many_steps_leave_the_weights_uneven(monkeypatch):
    """Chains are resampled if pilots show uneven weights or if it is requested, and never with resample=False."""
    tune(monkeypatch, resampled_steps=32, resampled_cost=32.0)
    model = mg.ising_grid((8, 8), coupling=0.6, periodic=True)
    exact = mg.exact_log_z(model)
    found = mg.estimate(model, tolerance=0.1, base="uniform")
    assert found.populations == len(found.log_weights) >= 32
    assert found.chains == 32 * found.populations
    assert half_width(found) <= 0.1
    assert abs(found.log_z - exact) < 4.5 * found.stderr
    assert mg.estimate(model, tolerance=0.2, base="uniform", resample=False).populations == 0
    monkeypatch.undo()
    easy = mg.rbm(0.1 * np.ones((6, 8)), np.zeros(6), np.zeros(8))
    assert mg.estimate(easy, tolerance=0.1).populations == 0
    assert mg.estimate(easy, tolerance=0.1, resample=0.7).populations >= 32


def test_a_mixture_with_uneven_weights_is_replaced_by_the_plain_path(monkeypatch):
    tune(monkeypatch, variance_pilots=-1.0, most_steps=2048)
    model = rbm_hopfield(10, 20, temperature=1 / 8, seed=1)
    r = mg.estimate(model, tolerance=0.1, base="quenches", resample=False)
    assert r.base == "uniform"
    assert abs(r.log_z - mg.exact_log_z(model)) < 4.5 * r.stderr


def test_budget_runs_out():
    model = mg.ising_grid((32, 32), coupling=0.44, periodic=True)
    r = mg.estimate(model, tolerance=1e-4, budget=0.5)
    assert any("the budget of 0.5 s ran out" in w for w in r.warnings)
    assert half_width(r) > 1e-4
    assert r.seconds < 30  # The limit only detects a run that does not end.


def test_result_does_not_depend_on_threads():
    model = rbm_hopfield(8, 12, temperature=1 / 4)
    one, two = (mg.estimate(model, tolerance=0.05, threads=threads) for threads in (1, 2))
    assert np.array_equal(one.log_weights, two.log_weights)


def test_given_options_are_not_changed():
    model = rbm_gaussian(8, 12, temperature=0.5)
    r = mg.estimate(model, tolerance=0.05, steps=77)
    assert r.steps == 77
    assert half_width(r) <= 0.05
    betas = np.linspace(0, 1, 41) ** 1.2
    assert mg.estimate(model, tolerance=0.05, schedule=betas).steps == 40
    linear = mg.estimate(model, tolerance=0.05, schedule="linear", method="ais", transition="metropolis")
    assert (linear.method, linear.transition) == ("ais", "metropolis")
    again = mg.estimate(
        model, steps=linear.steps, chains=linear.chains, schedule="linear", method="ais", transition="metropolis"
    )
    assert np.array_equal(linear.log_weights, again.log_weights)


def test_an_impossible_tolerance_stops_at_the_largest_number_of_chains(monkeypatch):
    """A tolerance that no number of chains would reach leads to a warning."""
    tune(monkeypatch, most_chains=2000)
    r = mg.estimate(rbm_hopfield(8, 12, temperature=1 / 4), tolerance=1e-5, steps=20)
    assert r.chains == 2000
    assert any("the largest number of chains is reached" in w for w in r.warnings)


def test_exact_models_take_no_time():
    r = mg.estimate(mg.from_edges([(0, 1), (2, 3)]), tolerance=1e-6)
    assert half_width(r) == 0.0


def test_z_stays_unbiased():
    """Schedule, K and N differ from seed to seed; the mean of Ẑ does not."""
    model = moments_model()
    ratio = math.exp(mg.exact_log_z(model)) / 2**5
    runs = [mg.estimate(model, tolerance=0.2, seed=seed, schedule="adaptive") for seed in range(200)]
    assert len({r.steps for r in runs}) > 1
    assert abs(z_score([np.exp(r.log_weights).mean() for r in runs], ratio)) < 4.5
    covered = sum(r.interval[0] <= -mg.exact_log_z(model) <= r.interval[1] for r in runs)
    assert abs(covered - 190) <= 3.5 * math.sqrt(200 * 0.05 * 0.95)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(tolerance=0), "tolerance is 0; it must be positive"),
        (dict(tolerance=-1.0), "tolerance is -1.0"),
        (dict(tolerance="x"), "tolerance"),
        (dict(tolerance=0.1, budget=0), "budget is 0"),
        (dict(budget=3), "budget requires tolerance"),
        (dict(tolerance=0.1, chains=10), "tolerance chooses the chains itself"),
        (dict(tolerance=0.1, steps=0), "steps"),
        (dict(tolerance=1e-200), "tolerance is 1e-200; F is of the size of"),
        (dict(tolerance=5e-324, budget=1e-3), "tolerance is 4.94066e-324"),
        (dict(tolerance=math.inf), "tolerance is inf; it must be finite"),
        (dict(tolerance=0.1, budget=math.nan), "budget is nan; it must be finite"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        mg.estimate(rbm_gaussian(4, 5), **options)


def test_pilots_share_no_chains_with_the_answer(plans):
    model = rbm_hopfield(10, 20, temperature=1 / 8, seed=1)
    r = mg.estimate(model, tolerance=0.05, seed=4, first_chain=500, base="uniform")
    own = stream(4, PILOT)
    pilots, answers = [p for p in plans if p.chains.seed == own], [p for p in plans if p.chains.seed == 4]
    assert own != 4
    assert len(pilots) + len(answers) == len(plans)
    assert [p.chains.first for p in pilots] == np.cumsum([0] + [p.chains.count for p in pilots])[:-1].tolist()
    assert answers[0].chains.first == 500
    assert len(r.log_weights) == sum(count for _, _, count in r.record.runs)
    # A plain call with the same schedule has the same chains.
    _, first, count = r.record.runs[0]
    again = mg.estimate(model, schedule=answers[-1].betas, chains=count, first_chain=first, seed=4)
    assert np.array_equal(again.log_weights, r.log_weights[: again.chains])
    # Steps are short at first, where the weights of a cold model change most.
    assert r.schedule == "adaptive"
    assert np.interp(0.5, np.linspace(0, 1, r.steps + 1), answers[-1].betas) < 0.4


def test_trials_share_no_chains_with_the_answer(plans, monkeypatch):
    """If the path is left open, all runs before the choice have random streams of their own."""
    monkeypatch.setattr(search, "enumerated_states", lambda *_: None)  # Sweeps look for phases.
    r = mg.estimate(rbm_hopfield(10, 20, temperature=1 / 20, seed=1), tolerance=0.02, seed=4, first_chain=500)
    others = {stream(4, purpose) for purpose in (PILOT, QUENCH, OPINION)}
    assert {p.chains.seed for p in plans} == {4} | others
    answers = [p for p in plans if p.chains.seed == 4]
    assert answers[-1] is plans[-1]
    assert [(p.chains.first, p.chains.count) for p in answers][-1] == r.record.runs[-1][1:]
    assert min(p.chains.first for p in answers) == 500


def test_the_trial_of_the_chosen_path_is_the_first_pilot(plans, monkeypatch):
    """If its weights are even, the answer is run next, otherwise pilots with more steps."""
    even = rbm_gaussian(8, 12, temperature=0.5, seed=1)
    mg.estimate(even, tolerance=0.05, seed=4)
    assert [p.chains.count for p in plans if p.chains.seed == stream(4, PILOT)] == [1]  # Only the run that compiles.
    asked, answer = next(p for p in plans if p.chains.seed == stream(4, OPINION)), plans[-1]
    assert np.array_equal(asked.betas, np.linspace(0, 1, asked.steps + 1))
    assert not np.allclose(answer.betas, np.linspace(0, 1, answer.steps + 1))
    plans.clear()
    mg.estimate(rbm_hopfield(10, 20, temperature=1 / 4, seed=1), tolerance=0.1, seed=4)
    assert min(p.steps for p in plans if p.chains.seed == stream(4, PILOT) and p.chains.count > 1) > asked.steps


def test_a_mixture_that_is_far_off_is_given_up(plans, monkeypatch):
    tune(monkeypatch, broken=0.0, far_off=0.0)
    monkeypatch.setattr(confidence, "warnings_of", lambda log_weights: ())
    model = rbm_hopfield(10, 20, temperature=1 / 8, seed=1)
    r = mg.estimate(model, tolerance=0.2, base="quenches")
    assert r.base == "uniform"
    assert any(p.path.mixture is not None for p in plans)


def test_the_plan_is_usually_enough(plans):
    """The goal is nine tenths of the tolerance, so that few runs need more chains."""
    model = rbm_gaussian(8, 12, temperature=0.5, seed=1)
    runs = [mg.estimate(model, tolerance=0.01, steps=40, seed=seed) for seed in range(20)]
    assert np.mean([len(r.record.runs) == 1 for r in runs]) > 0.7
    assert np.mean([half_width(r) for r in runs]) > 0.75 * 0.01  # Not many more chains than needed are run.


def test_chains_that_are_added_later_are_joined(monkeypatch):
    """If pilots predict too few chains, the answer has these chains and those that were added."""
    tune(monkeypatch, margin=2.0)
    r = mg.estimate(rbm_gaussian(8, 12, temperature=0.5, seed=1), tolerance=0.03, steps=40)
    assert half_width(r) <= 0.03
    assert len(r.record.runs) > 1
    assert r.record.runs[0][1] == 0
    assert all(a[1] + a[2] == b[1] for a, b in zip(r.record.runs, r.record.runs[1:], strict=False))
    assert r.chains == sum(count for _, _, count in r.record.runs)


def test_doubts_lead_to_new_pilots(plans, monkeypatch):
    """After a run with doubtful weights there are pilots with more steps, and then a run with other chains."""
    warnings_of, heard = confidence.warnings_of, []

    def doubt_once(log_weights, *unit):
        heard.append(len(log_weights))
        return ("not quite sure",) if len(heard) == 1 else warnings_of(log_weights, *unit)

    monkeypatch.setattr(confidence, "warnings_of", doubt_once)
    r = mg.estimate(rbm_gaussian(8, 12, temperature=0.5, seed=1), tolerance=0.05)
    first = next(k for k, p in enumerate(plans) if p.chains.seed == 0)
    assert plans[first + 1].chains.seed == stream(0, PILOT)
    assert plans[first + 1].steps == 4 * plans[first].steps
    assert r.warnings == ()
    assert r.record.runs[0][1] == heard[0]


def test_results_do_not_depend_on_batches(plans, monkeypatch):
    model = rbm_gaussian(8, 12, temperature=0.5, seed=1)
    options = dict(tolerance=0.01, steps=40, schedule="linear")
    at_once = mg.estimate(model, **options)
    tune(monkeypatch, short_seconds=0.0)  # Every run takes long.
    plans.clear()
    parts = mg.estimate(model, budget=600.0, **options)
    assert next(p.chains.count for p in plans if p.chains.seed == 0) == 256 < parts.chains
    assert np.array_equal(parts.log_weights, at_once.log_weights)


@pytest.mark.parametrize("options", [{}, dict(budget=1e308), dict(budget=1e-300), dict(steps=5)])
@pytest.mark.parametrize("tolerance", [1e154, 1e308])
def test_any_tolerance_is_a_number(tolerance, options):
    r = mg.estimate(rbm_gaussian(4, 5), tolerance=tolerance, **options)
    assert half_width(r) < 1.0
    assert r.chains == 512  # Twice the least number is run, since it costs next to nothing.


def test_a_budget_does_not_pay_for_the_start(monkeypatch):
    """The budget does not include imports and compilation, which may take seconds."""
    now, run = [0.0], narrowing.run_plan

    def slow(plan, *rest):
        now[0] += 100.0 if plan.chains.count == 1 else 0.0  # Only the run that compiles has one chain.
        return run(plan, *rest)

    class Clock:
        perf_counter = staticmethod(lambda: now[0])

    for module in (draft, narrowing):
        monkeypatch.setattr(module, "run_plan", slow)
    for module in (draft, narrowing, tolerance):
        monkeypatch.setattr(module, "time", Clock)
    r = mg.estimate(rbm_gaussian(8, 12, temperature=0.5), tolerance=0.05, budget=1.0)
    assert r.warnings == ()
    assert half_width(r) <= 0.05
    assert r.seconds >= 100.0


def test_rounding_ends_the_search(monkeypatch):
    """More chains would not help: no more are run, and a note is added to the notes of the result."""
    run = narrowing.run_plan

    def coarse(plan, *rest):
        result = run(plan, *rest)
        return replace(result, weights=replace(result.weights, rounding=0.5), notes=("something",))

    for module in (draft, narrowing):
        monkeypatch.setattr(module, "run_plan", coarse)
    r = mg.estimate(rbm_gaussian(4, 5), tolerance=0.1)
    assert r.notes == (
        "something",
        "rounding errors allow no narrower interval: the interval is ± 0.5, the tolerance is 0.1",
    )
    assert r.chains <= 1000


def test_double_precision_is_taken_if_single_is_too_coarse(monkeypatch, plans):
    """The rounding error of single precision alone is larger than the tolerance."""
    monkeypatch.setattr(placement, "_SINGLE", 1e-2)
    r = mg.estimate(rbm_gaussian(8, 12, temperature=0.2), tolerance=0.05, base="uniform")
    assert half_width(r) <= 0.05
    assert {plan.placement.precision for plan in plans[2:]} == {"double"}


def test_a_run_that_shows_more_variance_than_the_pilots_changes_the_prediction():
    """The pilots say that r falls slowly with K; a run with few steps and many chains has shown that it does not."""
    plan = make_plan(rbm_gaussian(6, 8), steps=64)
    pilots = draft.Draft(plan).with_variance(64, 1.6).with_variance(128, 1.2)
    run = pilots.with_variance(45, 50.0)
    assert draft.prediction(pilots).power == pytest.approx(math.log(math.log(2.2) / math.log(2.6)) / math.log(2.0))
    assert draft.prediction(run).power == -1.0
    assert draft.prediction(run.with_variance(64, 1.6)).power == draft.prediction(pilots).power
