"""Mixtures of quenches, and the choice of a path: missed phases are found, or there is a warning."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from conftest import random_rbm, run, with_mixture, z_score

import marginalis as mg
from marginalis.engines.plan import make_plan
from marginalis.examples import rbm_hopfield
from marginalis.paths.mixture import Mixture, fit_mixture
from marginalis.planning import phases, search, tuning
from marginalis.planning.choose import Choice
from marginalis.planning.quenches import quench, quenched_mixture
from marginalis.planning.run_chosen import _few_effective
from marginalis.planning.trial import is_lower
from marginalis.planning.tuning import Level
from marginalis.random import PILOT
from marginalis.running.session import Session
from marginalis.statistics.confidence import effective_size
from marginalis.statistics.weights import Weights
from marginalis.studies.hard_families import prototypes


def quiet(fraction):
    pass


def switching(visible=100, strength=2.0, seed=1, features=1):
    """An RBM whose features switch on at β = 1: for every β < 1 the phase with one of them on has no weight."""
    rng = np.random.default_rng(seed)
    w = strength * np.sign(rng.normal(size=(visible, features)))
    c = -np.log(np.cosh(w)).sum(axis=0)
    return mg.rbm(w, np.zeros(visible), c, units=("spin", "binary"))


MODELS = {
    "rbm": random_rbm(np.random.default_rng(0), 6, 7),
    "binary": random_rbm(np.random.default_rng(1), 6, 7, units="binary"),
    "any graph": mg.from_graph(nx.wheel_graph(7)),
    "dense": mg.from_matrix(np.triu(np.random.default_rng(2).normal(size=(8, 8)), 1)),
    "potts": mg.potts(list(nx.wheel_graph(6).edges), 3, coupling=0.7),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", ["mais", "ais"])
def test_paths_from_a_mixture_are_unbiased_on_both_engines(name, method):
    model = MODELS[name]
    rng = np.random.default_rng(3)
    features = make_plan(model, method=method).path.width
    mixture = Mixture(rng.normal(size=5), rng.normal(size=(5, features)))
    slow, fast = (
        run(
            with_mixture(make_plan(model, method=method, steps=20, chains=64, seed=3, engine=engine), mixture),
        )
        for engine in ("numpy", "numba")
    )
    assert np.mean(np.abs(slow - fast) < 1e-3) >= 0.97
    plan = with_mixture(make_plan(model, method=method, steps=10, chains=20_000, seed=1), mixture)
    w = run(plan, 2)
    assert abs(z_score(np.exp(w + plan.path.log_z0 - mg.exact_log_z(model)), 1.0)) < 4.5


def test_a_mixture_finds_what_its_rows_hold():
    rng = np.random.default_rng(0)
    units = mg.rbm(np.ones((10, 1)), np.zeros(10), np.zeros(1)).visible_units
    centres = np.sign(rng.normal(size=(2, 10)))
    rows = centres[rng.integers(2, size=300)] * np.where(rng.random((300, 10)) < 0.05, -1.0, 1.0)
    mixture = fit_mixture(units, rows, 8, 0.1, seed=1)
    assert np.isclose(np.exp(mixture.log_z(units)), 1.0)  # The mixture is normalised.
    means = np.tanh(mixture.fields)
    assert (mixture.fields[0] == 0.0).all()  # The first component is uniform.
    for centre in centres:
        assert (means @ centre).max() > 8.0
    assert np.abs(means).max() <= 0.96 + 1e-9


def test_quenches_end_in_both_phases():
    model = switching()
    rows = quench(make_plan(model, method="mais-v", seed=2), Session(2))
    overlap = rows @ np.sign(model.weights[:, 0]) / 100
    assert 0.05 < np.mean(overlap > 0.8) < 0.95


@pytest.fixture
def without_exact_sums(monkeypatch):
    """Every model counts as too large for an exact sum in the choice of a path."""
    monkeypatch.setattr(search, "soon", lambda *_: None)
    monkeypatch.setattr(search, "enumerated_states", lambda *_: None)


def test_the_default_call_finds_a_hidden_phase(without_exact_sums):
    """Plain runs miss it by ln 2 without a warning; the default call takes another path."""
    model = switching()
    exact = mg.exact_log_z(model)
    plain = [mg.estimate(model, steps=300, chains=300, seed=seed) for seed in range(5)]
    assert sum(abs(r.log_z - exact + np.log(2.0)) < 4.5 * r.stderr and not r.warnings for r in plain) >= 3
    for options in ({"chains": 500}, {"tolerance": 0.1}):
        results = [mg.estimate(model, seed=seed, **options) for seed in range(6)]
        assert max(abs(r.log_z - exact) / r.stderr for r in results) < 4.5
        assert all(r.base == "phases" for r in results)


def test_the_rows_of_a_likelihood_are_used_to_find_phases(monkeypatch):
    model = switching()
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [np.sign(rng.normal(size=(50, 100))), np.repeat(np.sign(model.weights[:, 0])[None], 50, axis=0)]
    )
    exact = mg.log_likelihood(model, rows)
    monkeypatch.setattr("marginalis.answers.likelihood._CHEAP", 0.0)
    result = mg.log_likelihood(model, rows, chains=500)
    assert result.log_z_source.startswith("mais")
    low, high = result.interval
    assert low - (high - low) < exact.mean < high + (high - low)


def test_the_plain_path_is_kept_where_it_does_as_well():
    model = random_rbm(np.random.default_rng(4), 8, 10, scale=0.4)
    result = mg.estimate(model, seed=3)
    assert result.base == "uniform"
    same = mg.estimate(model, seed=3, schedule="adaptive")
    assert np.array_equal(result.log_weights, same.log_weights)


def test_paths_are_tried_on_any_graph(without_exact_sums):
    choice = Choice(make_plan(MODELS["any graph"], seed=1), Session(2))
    choice.choose()
    assert {x.name for x in choice.trials} == {"uniform", "phases"}
    exact = mg.exact_log_z(MODELS["any graph"])
    assert all(abs(x.log_z - exact) < 4.5 * x.error for x in choice.trials)


def test_a_small_model_is_summed_exactly():
    choice = Choice(make_plan(MODELS["rbm"], seed=1), Session(2))
    plan = choice.choose()
    assert [x.name for x in choice.trials] == ["uniform", "an exact sum"]
    assert choice.trials[1].log_z == pytest.approx(mg.exact_log_z(MODELS["rbm"]), abs=1e-9)
    assert plan.path.mixture is None


def test_an_answer_below_the_exact_sum_is_replaced_or_has_a_warning(monkeypatch):
    """Without a search only the exact sum shows the missed phase, and the answer has a warning."""
    model = switching()
    exact = mg.exact_log_z(model)
    found = mg.estimate(model, seed=1, chains=300)
    assert abs(found.log_z - exact) < 4.5 * found.stderr
    assert found.base == "phases"
    monkeypatch.setattr(Choice, "search", lambda self, plain: None)
    for options in ({"chains": 300}, {"tolerance": 0.1}):
        missed = mg.estimate(model, seed=1, **options)
        assert abs(missed.log_z - exact + np.log(2.0)) < 4.5 * missed.stderr
        assert any(f"an exact sum gives ln Z = {exact:.8g}" in w for w in missed.warnings)


def test_shares_follow_the_pilots_and_none_is_lost():
    """Sweeps find the states of a cold machine but not their weights, which pilots measure."""
    model = rbm_hopfield(10, 20, temperature=1 / 20, seed=1)
    plan = make_plan(model, seed=1, steps=64)
    rows = phases.sweep(plan, Session(2), phases.starts_from_many_sides(plan, 256), 20)
    mixture = phases.mixture_of(plan, [phases.alike(rows)], 16)
    pilot = with_mixture(plan, mixture).pilot(PILOT, 512)
    again = phases.with_refitted_shares(pilot, 0.0, run(pilot), [])
    natural = plan.path.end.natural
    before, after = (x.log_shares(natural.visible_units, natural.hidden_units) for x in (mixture, again))
    assert np.allclose([np.logaddexp.reduce(before), np.logaddexp.reduce(after)], 0.0)
    assert after.min() > np.log(0.1 / mixture.components)
    assert np.array_equal(again.fields, mixture.fields)
    first, second = (run(with_mixture(plan, x).pilot(PILOT, 512, first=512)) for x in (mixture, again))
    assert effective_size(second) > 1.2 * effective_size(first)


@pytest.mark.parametrize("options", [{}, {"tolerance": 0.1}])
def test_phases_that_different_sources_find_are_added_up(options, without_exact_sums):
    """Many weak couplings are stronger than the biases: the plain path finds one phase, and sweeps the other."""
    rng = np.random.default_rng(1)
    units, rows = 30, 60
    w = 0.12 * np.where(rng.random((rows, units)) < 0.5, 1.0, -1.0)
    pull = np.sign(w.sum(axis=1))
    w = np.abs(w) * pull[:, None]
    low, high = -6.0, 6.0
    for _ in range(40):  # Bisection finds the field at which both phases have the same weight.
        c = 0.5 * (low + high)
        model = mg.rbm(w, -0.9 * pull, np.full(units, c), units=("spin", "binary"))
        v = -pull
        on = np.logaddexp(0.0, c + v @ w).sum() + 0.9 * rows, np.logaddexp(0.0, c - v @ w).sum() - 0.9 * rows
        low, high = (c, high) if on[1] < on[0] else (low, c)
    exact = mg.exact_log_z(model)
    results = [mg.estimate(model, seed=seed, **options) for seed in range(3)]
    assert all(abs(r.log_z - exact) < 4.5 * r.stderr for r in results if not r.warnings)
    assert sum(not r.warnings for r in results) >= 2


def test_gaussian_units_start_from_quenches_too():
    """Spins pull real numbers far from where the plain path starts."""
    rng = np.random.default_rng(1)
    w = 1.2 * rng.normal(size=(6, 12))
    model = mg.rbm(w, np.zeros(6), np.zeros(12), units=("gaussian", "spin"), temperature=0.5)
    options = dict(method="mais-v", steps=30, chains=1000, seed=2)
    plain, mixed = (mg.estimate(model, base=base, **options) for base in ("uniform", "quenches"))
    assert mixed.ess > 20 * plain.ess
    assert abs(mixed.log_z - mg.exact_log_z(model)) < 4.5 * mixed.stderr


def test_the_path_from_the_biases_is_tried_but_not_taken(without_exact_sums):
    model = random_rbm(np.random.default_rng(1), 6, 7, units="binary")
    choice = Choice(make_plan(model, seed=1), Session(2))
    choice.choose()
    biases = next(x for x in choice.trials if x.name == "biases")
    assert abs(biases.log_z - mg.exact_log_z(model)) < 4.5 * biases.error
    assert not biases.is_open


def test_trials_decide_whether_to_resample(without_exact_sums):
    cold = mg.ising_grid((12, 12), coupling=1.5 * np.sign(np.random.default_rng(2).normal(size=(2, 12, 12))))
    found = mg.estimate(cold, seed=1, chains=400)
    assert found.populations == 20
    assert mg.estimate(cold, seed=1, chains=400, resample=False).populations == 0
    assert mg.estimate(cold, seed=1, chains=100).populations == 0  # Populations would have too few chains.
    assert mg.estimate(MODELS["rbm"], seed=1).populations == 0


def test_quenches_as_a_base_give_an_unbiased_estimate():
    model = MODELS["rbm"]
    exact = mg.exact_log_z(model)
    result = mg.estimate(model, base="quenches", steps=50, chains=2000, seed=1)
    assert result.base == "quenches"
    assert abs(result.log_z - exact) < 4.5 * result.stderr
    one = mg.from_edges([(0, 1), (2, 3)])  # The whole model is summed exactly.
    assert quenched_mixture(make_plan(one), Session(1)) is None
    with pytest.raises(ValueError, match="base is 'quench'"):
        mg.estimate(model, base="quench")


def test_no_deeper_search_begins_after_the_deadline(without_exact_sums):
    model = switching()
    longer = make_plan(model, steps=512, seed=1)
    trials = []
    for deadline in (-np.inf, np.inf):
        choice = Choice(longer, Session(2), worth=1e6, deadline=deadline)
        choice.choose()
        trials.append(len(choice.trials))
    assert trials[0] < trials[1]
    assert trials[0] == 4  # The plain path, the biases, and two trials of the first mixture.


def test_exact_samples_describe_the_phases_of_cold_models():
    """Sweeps of this model stay where they start, and only the exact sum knows all of its phases."""
    model = prototypes(2.0, 3)
    choice = Choice(make_plan(model, seed=1), Session(2))
    exact = choice.sum_exactly(1e12)
    drawn = choice._draw_exactly(1e12)
    assert drawn.shape[1] == choice.plan.path.width
    trial = choice._take_mixture([phases.alike(drawn)], tuning.TUNING.levels[-1])
    assert not is_lower(trial, exact, 4.5)
    assert trial.tells


def test_a_mixture_grows_where_the_chains_of_an_answer_end(without_exact_sums, monkeypatch):
    """Every run counts as far too wide, so that components are added as often as the package allows."""
    monkeypatch.setattr(
        tuning,
        "TOLERANCE",
        replace(tuning.TOLERANCE, far_off_phases=0.0, growths=2, least_chains_phases=256, first_part_phases=8.0),
    )
    monkeypatch.setattr(tuning, "TUNING", replace(tuning.TUNING, growth=Level(64, 10, 16, 10, 4, 64, 20)))
    sizes = []
    grow_from = Choice.grow_from

    def noted(self, plan, log_weights, states):
        sizes.append(plan.path.mixture.components)
        assert len(states) == len(log_weights)
        grow_from(self, plan, log_weights, states)
        sizes.append(self.chosen_plan.path.mixture.components)

    monkeypatch.setattr(Choice, "grow_from", noted)
    model = switching(64, 1.5, features=2)
    exact = mg.exact_log_z(model)
    results = [mg.estimate(model, seed=seed, tolerance=0.05) for seed in range(4)]
    assert all(after > before for before, after in zip(sizes[::2], sizes[1::2], strict=True))
    assert len(sizes) >= 4
    assert max(abs(r.log_z - exact) / r.stderr for r in results) < 4.5


def test_few_effective_chains_from_a_mixture_are_reported():
    few, many = Weights(np.r_[np.zeros(100), 5.0], 0.0), Weights(np.zeros(100), 0.0)
    assert _few_effective(few, is_mixed=True)
    assert "effective number of chains is 2" in _few_effective(few, is_mixed=True)[0]
    assert not _few_effective(few, is_mixed=False)
    assert not _few_effective(many, is_mixed=True)
