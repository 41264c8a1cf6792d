"""Results that `estimate --out` writes, and `join`."""

import json

import numpy as np
import pytest
from conftest import command as run

import marginalis as mg

FLAGS = ("--steps", 20, "--chains", 40)


@pytest.fixture(scope="module")
def results(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    paths = [folder / f"r{seed}.npz" for seed in range(3)]
    for seed, path in enumerate(paths):
        done = run("estimate", model, *FLAGS, "--seed", seed, "--out", path)
        assert done.returncode == 0, done.stderr
    return paths


def test_the_file_of_out_is_a_loadable_result(model, results):
    expected = mg.estimate(mg.load(model), steps=20, chains=40)
    assert mg.load_estimate(results[0]) == expected
    with np.load(results[0], allow_pickle=False) as file:
        assert np.array_equal(file["log_weights"], expected.log_weights)
        assert file["log_z0"] == expected.log_z0
        assert json.loads(str(file["summary"]))["log_z"] == expected.log_z


def test_join_adds_results(results, tmp_path):
    done = run("join", *results, "-o", tmp_path / "all.npz", "--json")
    assert done.returncode == 0, done.stderr
    expected = sum(map(mg.load_estimate, results))
    assert json.loads(done.stdout) == expected.to_dict()
    assert json.loads(done.stdout)["chains"] == 120
    assert json.loads(done.stdout)["runs"] == [[0, 0, 40], [1, 0, 40], [2, 0, 40]]
    assert mg.load_estimate(tmp_path / "all.npz") == expected
    assert run("join", *results).stdout.splitlines()[0] == str(expected).splitlines()[0]


def test_one_result_is_shown(results):
    done = run("join", results[0])
    assert done.stdout.splitlines() == str(mg.load_estimate(results[0])).splitlines()


def test_warnings_go_to_stderr(model, tmp_path):
    path = tmp_path / "one.npz"
    run("estimate", model, "--steps", 1, "--chains", 1, "--out", path)
    done = run("join", path, "--json")
    assert len(json.loads(done.stdout)["warnings"]) == done.stderr.count("warning: ") > 0


def test_join_refuses_other_files_and_plans(model, results, tmp_path):
    run("estimate", model, "--steps", 21, "--chains", 40, "--seed", 9, "--out", tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("hello")
    before = results[0].read_bytes()
    for words, message in (
        ((results[0], tmp_path / "other.npz"), "other.npz: cannot join estimates of different models or plans"),
        ((results[0], results[0]), "r0.npz: cannot join: both hold chains 0 to 39 of seed 0"),
        ((results[0], model), "lacks the key 'kind'"),
        ((tmp_path / "text.npz",), "is not a readable npz archive"),
        ((tmp_path / "none.npz",), "No such file"),
        ((*results, "-o", results[0]), "is named twice"),
        ((*results, "-o", tmp_path / "no" / "r.npz"), "cannot write"),
        ((), "RESULT"),
    ):
        done = run("join", *words)
        assert done.returncode == 2
        assert done.stdout == ""
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert results[0].read_bytes() == before
