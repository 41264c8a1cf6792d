"""Fresh seeds, and what the environment decides: threads, engine, Python warnings."""

import os
import warnings

import numpy as np
import pytest
from conftest import command, random_rbm

import marginalis as mg
from marginalis import options as run_options
from marginalis.parallel import threads
from marginalis.parallel.threads import cores

OPTIONS = dict(steps=10, chains=20)


@pytest.fixture
def model():
    return random_rbm(np.random.default_rng(0), 3, 4)


@pytest.fixture(autouse=True)
def plain(monkeypatch, tmp_path):
    """No variables, no quota, eight cores."""
    for name in ("MARGINALIS_THREADS", "MARGINALIS_ENGINE", "MARGINALIS_WARN", "SLURM_CPUS_PER_TASK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)


# ---------------------------------------------------------------- seeds


def test_a_seed_of_none_is_fresh_and_on_record(model):
    first, second = (mg.estimate(model, **OPTIONS, seed=None) for _ in range(2))
    assert first.seed != second.seed
    assert 0 <= first.seed < 2**63
    assert first + second != first
    assert mg.estimate(model, **OPTIONS, seed=first.seed) == first


def test_pilots_and_answer_share_a_fresh_seed(model):
    for options in (dict(tolerance=0.1), dict(chains=64), dict(chains=64, schedule="adaptive")):
        result = mg.estimate(model, **options, seed=None)
        assert np.array_equal(mg.estimate(model, **options, seed=result.seed).log_weights, result.log_weights)


def test_every_function_takes_a_fresh_seed(model):
    for answer in (
        mg.bound(model, **OPTIONS, seed=None),
        mg.thermodynamics(model, [1.0], **OPTIONS, seed=None),
        mg.difference(model, model, **OPTIONS, seed=None),
        mg.along([model, model], **OPTIONS, seed=None),
    ):
        assert answer.seed > 0


# ---------------------------------------------------------------- threads


def test_threads_of_the_environment(monkeypatch):
    assert cores(None) == 8
    monkeypatch.setenv("MARGINALIS_THREADS", " 3 ")
    assert cores(None) == 3
    assert cores(5) == 5
    monkeypatch.setenv("MARGINALIS_THREADS", "")
    assert cores(None) == 8


@pytest.mark.parametrize("word", ["0", "-1", "many", "2.5", "9" * 5000, "4097", "²"])
def test_bad_threads_name_the_variable(model, monkeypatch, word):
    monkeypatch.setenv("MARGINALIS_THREADS", word)
    with pytest.raises(ValueError, match="MARGINALIS_THREADS is") as caught:
        mg.estimate(model, **OPTIONS)
    assert len(str(caught.value)) < 200
    assert mg.estimate(model, **OPTIONS, threads=1).chains == 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("5000 100000", 1), ("1600000 100000", 8), ("", 8)],
)
def test_quota_of_a_container(tmp_path, text, expected):
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert cores(None) == expected


@pytest.mark.parametrize(("quota", "expected"), [(-1, 8), (300000, 3)])
def test_quota_of_an_older_container(tmp_path, quota, expected):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cores(None) == expected


def test_threads_granted_by_slurm_and_the_container(monkeypatch, tmp_path):
    for word, expected in (("4", 4), ("16", 8), ("0", 1), ("some", 8), ("", 8)):
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", word)
        assert cores(None) == expected
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    assert cores(None) == 2
    monkeypatch.setenv("MARGINALIS_THREADS", "6")  # whoever says so, means it
    assert cores(None) == 6


# ---------------------------------------------------------------- engines


def test_engine_of_the_environment(model, monkeypatch):
    monkeypatch.setenv("MARGINALIS_ENGINE", "numpy")
    assert mg.estimate(model, **OPTIONS).engine == "numpy"
    assert mg.estimate(model, **OPTIONS, engine="numba").engine == "numba"
    monkeypatch.setenv("MARGINALIS_ENGINE", "")
    assert mg.estimate(model, **OPTIONS).engine == "numba"


def test_bad_engines_name_the_variable(model, monkeypatch, tmp_path):
    monkeypatch.setenv("MARGINALIS_ENGINE", "magic")
    with pytest.raises(ValueError, match="MARGINALIS_ENGINE is 'magic'; it must be one of auto, numpy, numba"):
        mg.estimate(model, **OPTIONS)
    assert mg.estimate(model, **OPTIONS, engine="numpy").engine == "numpy"
    mg.save(model, tmp_path / "m.npz")
    done = command("estimate", tmp_path / "m.npz")
    assert done.returncode == 2
    assert done.stderr.startswith("marginalis: MARGINALIS_ENGINE is 'magic'")
    assert done.stderr.count("\n") == 1


# ---------------------------------------------------------------- warnings


def test_warnings_of_answers_are_python_warnings_once_if_asked_for(model, monkeypatch):
    monkeypatch.setattr(run_options, "_told", set())
    assert mg.estimate(model, steps=1, chains=20).warnings  # and nothing is raised
    monkeypatch.setenv("MARGINALIS_WARN", "1")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = mg.estimate(model, steps=1, chains=20)
    assert [str(w.message) for w in caught] == list(result.warnings)
    assert caught[0].filename == __file__
    assert mg.estimate(model, steps=1, chains=20) == result  # told before
    with pytest.warns(UserWarning, match="these rows alone"):
        mg.log_likelihood(model, np.ones((1, 3)), -50.0)
    monkeypatch.setenv("MARGINALIS_WARN", "0")
    mg.estimate(model, steps=1, chains=21)


def test_the_command_line_prints_warnings_once(model, tmp_path, monkeypatch):
    monkeypatch.setenv("MARGINALIS_WARN", "1")
    mg.save(model, tmp_path / "m.npz")
    done = command("estimate", tmp_path / "m.npz", "--steps", 1, "--chains", 20, "--json")
    assert done.stderr.count("steps is 1") == 1
    assert "UserWarning" not in done.stderr
