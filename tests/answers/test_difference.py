"""Differences between two models of the same variables, and ln Z along a sequence of them."""

import json
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from conftest import command, random_rbm

import marginalis as mg
from marginalis.studies.families import switching


def pair(kind):
    rng = np.random.default_rng(5)
    if kind == "rbm":
        return random_rbm(rng, 6, 7), random_rbm(rng, 6, 7)
    if kind == "lattice":
        return mg.ising_grid((4, 4), coupling=0.3), mg.ising_grid((4, 4), coupling=0.5, field=0.1)
    if kind == "graphs":
        return mg.from_graph(nx.wheel_graph(7)), mg.from_matrix(np.triu(rng.normal(size=(7, 7)), 1), units="spin")
    if kind == "offsets":
        a = random_rbm(rng, 3, 4)
        return mg.MRF(a.weights, a.visible_bias, a.hidden_bias, offset=2.5), a
    return random_rbm(rng, 5, 4, units="binary"), random_rbm(rng, 5, 4, units="binary", temperature=0.7)


@pytest.mark.parametrize("kind", ["rbm", "lattice", "graphs", "offsets", "binary"])
def test_the_difference_is_exact_within_errors(kind):
    a, b = pair(kind)
    exact = mg.exact_log_z(b) - mg.exact_log_z(a)
    result = mg.difference(a, b, chains=1000, steps=40, seed=3)
    assert abs(result.log_ratio - exact) < 4.5 * result.stderr + 1e-6
    assert result.bounds[0] <= exact <= result.bounds[1]
    assert all(source.startswith("exact") for source in result.samples)
    assert not result.warnings
    back = mg.difference(b, a, chains=1000, steps=40, seed=4)
    assert abs(back.log_ratio + exact) < 4.5 * back.stderr + 1e-6


def test_errors_of_the_difference_match_its_spread():
    a, b = pair("lattice")
    exact = mg.exact_log_z(b) - mg.exact_log_z(a)
    z = [
        (r.log_ratio - exact) / r.stderr for r in (mg.difference(a, b, chains=100, steps=10, seed=s) for s in range(60))
    ]
    assert abs(np.mean(z)) < 4.5 / np.sqrt(60)
    assert 0.7 < np.std(z) < 1.4


def test_without_exact_samples_there_are_no_bounds_and_honest_errors(monkeypatch):
    monkeypatch.setattr("marginalis.answers.difference.sample_visible", lambda *_: None)
    a, b = pair("lattice")
    exact = mg.exact_log_z(b) - mg.exact_log_z(a)
    result = mg.difference(a, b, chains=1000, steps=40, seed=3)
    assert abs(result.log_ratio - exact) < 4.5 * result.stderr
    assert result.samples == ("approximate", "approximate")
    assert result.to_dict()["bounds"] == [None, None]
    assert "no bounds" in str(result)
    (warning,) = result.warnings
    assert "from a and b start from states annealed" in warning
    uneven = replace(result, start_log_weights=(np.linspace(0.0, 40.0, 1000), None))
    assert uneven.overlap < 60 < result.overlap
    assert any(w.startswith("the states annealed to a: ") for w in uneven.warnings)


def test_errors_are_at_least_the_rounding():
    a, _ = pair("rbm")
    same = mg.difference(a, a, chains=20, steps=5)
    assert same.log_ratio == same.stderr == 0.0
    assert replace(same, rounding=1e-3).interval == (-1e-3, 1e-3)


def test_pairs_of_different_models_are_refused():
    a, _ = pair("rbm")
    with pytest.raises(ValueError, match="labels differ"):
        mg.difference(a, random_rbm(np.random.default_rng(0), 3, 3))
    with pytest.raises(ValueError, match="there is no option 'base'"):
        mg.difference(a, a, base="biases")


def test_the_difference_command(tmp_path):
    a, b = pair("lattice")
    mg.save(a, tmp_path / "a.npz")
    mg.save(b, tmp_path / "b.npz")
    done = command("difference", tmp_path / "a.npz", tmp_path / "b.npz", "--chains", 300, "--steps", 20, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    result = mg.difference(a, b, chains=300, steps=20)
    assert answer["log_ratio"] == result.log_ratio
    assert answer["interval"] == list(result.interval)


class TestAlong:
    def checkpoints(self, n=5):
        rng = np.random.default_rng(2)
        w, b, c = rng.normal(size=(6, 7)), rng.normal(size=6), rng.normal(size=7)
        return [mg.rbm(t * w, b, t * c, units="binary") for t in np.linspace(0.3, 1.5, n)]

    def test_log_z_of_every_model_of_a_sequence(self):
        models = self.checkpoints()
        exact = np.array([mg.exact_log_z(m) for m in models])
        result = mg.along(models, chains=2000, seed=1)
        assert len(result.log_z) == len(models)
        assert (np.abs(result.log_z - exact) < 4.5 * result.stderr).all()
        steps, errors = result.differences
        assert (np.abs(steps - np.diff(exact)) < 4.5 * errors).all()
        assert (errors < np.hypot(result.stderr[1:], result.stderr[:-1])).all()  # neighbours err together
        assert ((result.intervals[:, 0] <= exact) & (exact <= result.intervals[:, 1])).mean() >= 0.8

    def test_likelihoods_of_every_model(self):
        models = self.checkpoints()
        rows = np.random.default_rng(0).integers(0, 2, (30, 6))
        run = mg.along({10 * t: m for t, m in enumerate(models)}, chains=2000, seed=1)
        result = mg.log_likelihood(run, rows)
        exact = np.array([mg.log_likelihood(m, rows, mg.exact_log_z(m)).mean for m in models])
        assert result.names == (0, 10, 20, 30, 40)
        assert (np.abs(result.mean - exact) < 4.5 * run.stderr).all()
        single = mg.log_likelihood(models[3], rows, run[3])
        assert np.array_equal(result.per_sample[3], single.per_sample)
        assert (tuple(result.intervals[3]), result.sampling_error[3]) == (single.interval, single.sampling_error)
        row = result.to_dict()["rows"][3]
        assert (row["model"], row["interval"]) == (30, list(single.interval))
        name, mean, *_ = str(result).splitlines()[4].split()
        assert (name, float(mean)) == ("30", pytest.approx(single.mean, abs=0.01))
        json.loads(replace(run, names=("a", 1, 0.5, np.int64(3), (1, 2))).to_json())
        with pytest.raises(ValueError, match="leave out log_z"):
            mg.log_likelihood(run, rows, 1.0)

    def test_warnings_name_the_model_whose_rows_are_too_likely(self):
        models = self.checkpoints(2)
        every = np.array(np.meshgrid(*[[0, 1]] * 6)).reshape(6, -1).T
        run = mg.along(models, chains=40, populations=4, seed=1)
        low = replace(run, log_weights=run.log_weights - np.array([[0.0], [50.0]]))
        (warning,) = (w for w in mg.log_likelihood(low, every).warnings if "these rows alone" in w)
        assert warning.startswith("model 1: ")

    def test_steps_to_an_easy_first_model_are_few(self):
        easy, hard = (mg.along([mg.rbm(x * np.ones((6, 7)), np.zeros(6), np.zeros(7))], chains=40) for x in (0.01, 1.5))
        assert easy.steps == 32
        assert 32 < hard.steps <= 1000
        assert mg.along(self.checkpoints(1), steps=7, chains=40).steps == 7

    def test_a_sequence_is_reproducible(self):
        models = self.checkpoints(3)
        one, two = (mg.along(models, chains=400, seed=1, threads=n) for n in (1, 2))
        assert np.array_equal(one.log_weights, two.log_weights)

    def test_a_phase_that_the_plain_path_misses_is_found_or_reported(self):
        last = switching(1.0, 1, visible=200)
        exact = mg.exact_log_z(last)
        alone = mg.along([last], threads=1)
        assert abs(alone.log_z[0] - exact) < 4.5 * alone.stderr[0]
        first = mg.rbm(last.weights, last.visible_bias, last.hidden_bias - 12.0, units=("spin", "binary"))
        run = mg.along([first, last], threads=1)
        assert exact - run.log_z[1] > 4.5 * run.stderr[1]
        assert run.warnings[-1].startswith("model 1: an exact sum gives")
        assert not mg.along([first, last], steps=100, threads=1).warnings

    def test_invalid_sequences_are_refused(self):
        with pytest.raises(ValueError, match="models"):
            mg.along([])
        with pytest.raises(ValueError, match="labels differ"):
            mg.along([self.checkpoints()[0], random_rbm(np.random.default_rng(0), 3, 3)])
