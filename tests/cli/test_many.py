"""The command for many model files."""

import contextlib
import csv
import json
import sqlite3

import numpy as np
import pytest
from conftest import command as run
from conftest import random_rbm

import marginalis as mg

FEW = ("--steps", 5, "--chains", 20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three models in three formats or shapes, and a file that is no model."""
    place = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    for name, shape in (("a.npz", (4, 5)), ("b.uai", (4, 5)), ("c.npz", (3, 6))):
        mg.save(random_rbm(rng, *shape), place / name)
    (place / "notes.txt").write_text("no model")
    return place


def test_a_folder_of_models(folder, tmp_path):
    table, store = tmp_path / "out.csv", tmp_path / "runs.sqlite"
    done = run("estimate-many", folder, *FEW, "--csv", table, "--store", store, "--json")
    assert done.returncode == 0
    assert "1 files are not model files and are skipped" in done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["name"] for row in rows] == [str(folder / name) for name in ("a.npz", "b.uai", "c.npz")]
    for t, row in enumerate(rows):
        alone = mg.estimate(mg.load(row["name"]), steps=5, chains=20, seed=t)
        assert (row["log_z"], row["stderr"], tuple(row["interval"])) == (alone.log_z, alone.stderr, alone.interval)
    with table.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["log_z"]) for line in lines] == [row["log_z"] for row in rows]
    assert [float(line["low"]) for line in lines] == [row["interval"][0] for row in rows]
    with contextlib.closing(sqlite3.connect(store)) as db:
        assert db.execute("SELECT name, log_z FROM estimate").fetchall() == [(r["name"], r["log_z"]) for r in rows]
    again = run("estimate-many", folder, *FEW, "--store", store, "--json", "--quiet")
    assert [row["log_z"] for row in json.loads(again.stdout)["rows"]] == [row["log_z"] for row in rows]


def test_temperatures_are_a_batch(folder):
    done = run("estimate-many", folder / "a.npz", *FEW, "--temperatures", "0.5,2", "--json")
    rows = json.loads(done.stdout)["rows"]
    assert [row["name"].rpartition(" ")[2] for row in rows] == ["T=0.5", "T=2"]
    model = mg.load(folder / "a.npz").at_temperature(2.0)
    assert rows[1]["log_z"] == mg.estimate(model, steps=5, chains=20, seed=1).log_z


def test_a_file_that_cannot_be_read_is_named_and_the_others_finish(folder, tmp_path):
    (tmp_path / "bad.npz").write_text("nothing")
    table = tmp_path / "out.csv"
    done = run("estimate-many", folder / "a.npz", tmp_path / "bad.npz", *FEW, "--csv", table, "--quiet")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "1 of 2 models failed" in done.stderr
    assert "bad.npz: is not a readable npz archive" in done.stderr
    assert "failed" in done.stdout
    lines = table.read_text().splitlines()
    assert len(lines) == 3
    assert lines[2].split(",")[1] == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{folder}/none"], "none"),
        (["{empty}"], "holds no model file"),
        (["{folder}", "--csv", "{folder}/a.npz"], "named twice"),
        (["{folder}", "--base", "file.npy"], "base is 'file.npy'; it must be one of"),
        (["{folder}", "--temperatures", "warm"], "temperatures is 'warm'"),
    ],
)
def test_bad_input_is_one_line(folder, tmp_path, words, message):
    done = run("estimate-many", *(w.format(folder=folder, empty=tmp_path) for w in words), *FEW, "--quiet")
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
