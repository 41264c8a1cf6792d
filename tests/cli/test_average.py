"""The command for means over disorder."""

import csv
import json

import numpy as np
import pytest
from conftest import command as run
from conftest import random_rbm

import marginalis as mg
from marginalis.cli.make import Made
from marginalis.examples import ising_grid

GLASSES = "ising-grid --shape 4x4 --coupling pm:1 --periodic --temperature 1.5"


def glass(seed):
    return ising_grid((4, 4), coupling="pm:1", periodic=True, temperature=1.5, seed=seed)


def test_random_models_are_made_from_seeds(tmp_path):
    table, figure, store = (tmp_path / name for name in ("out.csv", "out.svg", "out.sqlite"))
    words = ("average", "--make", GLASSES, "--samples", 20, "--seed", 3, "--store", store, "--json")
    done = run(*words, "--csv", table, "--plot", figure)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    exact = [-float(mg.exact_log_z(glass(3 + t))) for t in range(20)]
    assert data["value"] == pytest.approx(np.mean(exact), rel=1e-12)
    assert (data["samples"], data["exact_samples"], data["warnings"]) == (20, 20, [])
    with table.open(newline="") as file:
        lines = list(csv.DictReader(file))
    np.testing.assert_allclose([float(line["value"]) for line in lines], exact)
    assert [line["name"] for line in lines[:2]] == ["3", "4"]
    assert b"<svg" in figure.read_bytes()
    assert json.loads(run(*words).stdout)["value"] == data["value"]


def test_model_files_at_several_temperatures(tmp_path):
    rng = np.random.default_rng(0)
    models = [random_rbm(rng, 3, 4) for _ in range(3)]
    for t, model in enumerate(models):
        mg.save(model, tmp_path / f"{t}.npz")
    few = ("--steps", 10, "--chains", 16, "--no-exact", "--quiet")
    done = run("average", tmp_path, "--quantity", "energy", "--temperatures", "1,2", *few, "--json", "--strict")
    assert done.returncode == 3  # Three samples are too few.
    rows = json.loads(done.stdout)["rows"]
    options = {"temperatures": [1.0, 2.0], "steps": 10, "chains": 16, "exact": False}
    assert [row["value"] for row in rows] == mg.average(models, "energy", **options).value.tolist()
    text = run("average", tmp_path, "--temperatures", "1,2", *few).stdout
    assert text.splitlines()[0].split()[:2] == ["T", "F"]


def test_a_file_that_cannot_be_read_is_named_and_the_others_finish(tmp_path):
    mg.save(random_rbm(np.random.default_rng(0), 3, 4), tmp_path / "a.npz")
    (tmp_path / "b.npz").write_text("nothing")
    done = run("average", tmp_path, "--quiet")
    assert done.returncode == 2
    assert "1 of 2 models failed" in done.stderr
    assert "b.npz" in done.stderr
    assert "F = " in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give model files, or --make"),
        (["--make", "clock", "--samples", 3], "No such option: --seed"),
        (["--make", "glass", "--samples", 3], "No such command 'glass'"),
        (["--make", "rbm-gaussian --visible x", "--samples", 3], "Invalid value for '--visible'"),
        (["--make", "rbm-gaussian --visible -3", "--samples", 3], "visible is -3"),
        (["--make", "rbm-gaussian 'x", "--samples", 3], "No closing quotation"),
        (["--make", "rbm-gaussian"], "samples must be given"),
        (["--make", "rbm-gaussian", "--samples", 3, "--quantity", "F"], "quantity is 'F'"),
        (["--make", "rbm-gaussian", "--samples", 3, "--temperatures", "0,1"], "all must be positive"),
        (["--make", "rbm-gaussian", "--samples", 3, "--base", "file.npy"], "base is 'file.npy'"),
        (["none"], "none"),
    ],
)
def test_bad_input_is_one_line(words, message):
    done = run("average", *words, "--quiet")
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_made_model_is_that_of_the_command():
    a, b = Made(tuple(GLASSES.split()))(5), glass(5)
    assert (abs(a.weights - b.weights)).sum() == 0.0
    assert a.temperature == b.temperature
