"""Evidence for models of any format: labels, states, files and texts."""

import json
import math

import networkx as nx
import numpy as np
import pytest
from conftest import command

import marginalis as mg


@pytest.fixture
def small(tmp_path):
    """A small RBM of spins, and its file."""
    rng = np.random.default_rng(0)
    model = mg.rbm(rng.normal(size=(5, 4)), rng.normal(size=5), rng.normal(size=4), units="spin")
    mg.save(model, tmp_path / "m.npz")
    return model, tmp_path / "m.npz"


def log_z_of(*args):
    done = command(*args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["log_z"]


def test_texts_and_files_of_evidence(small, tmp_path):
    model, path = small
    wanted = mg.exact_log_z(model.given({0: 1, 3: -1}))
    (tmp_path / "e.json").write_text('{"0": 1, "3": 0}')
    (tmp_path / "e.txt").write_text("# two spins\n0 = 1\n\n3 = -1\n")
    (tmp_path / "e.evid").write_text("2 0 1 3 0\n")
    for evidence in (
        {0: 1, 3: 0},
        {"0": 1, 3: -1},
        "0=1,3=-1",
        *(tmp_path / f"e.{x}" for x in ("json", "txt", "evid")),
    ):
        assert mg.exact_log_z(mg.load(path, evidence)) == pytest.approx(wanted, rel=1e-12)
        if not isinstance(evidence, dict):
            assert log_z_of("exact", path, "--evidence", evidence) == pytest.approx(wanted, rel=1e-12)


def test_every_command_takes_evidence(small, tmp_path):
    model, path = small
    left = model.given({0: 1.0, 6: -1.0})
    run = ("--steps", 20, "--chains", 200, "--engine", "numpy")
    for words in (("estimate", path, *run), ("free-energy", path)):
        answer = json.loads(command(*words, "--evidence", "0=1,6=0", "--json").stdout)
        assert abs(answer["log_z"] - mg.exact_log_z(left)) <= 4.5 * answer["stderr"] + 1e-9
    for words in (
        ("bound", path, *run),
        ("thermodynamics", path, "--betas", "0.5,1", *run),
        ("expectations", path),
        ("sample", path, 3, "-o", tmp_path / "s.npz"),
        ("difference", path, path, *run),
        ("info", path),
        ("convert", path, tmp_path / "held.npz"),
        ("report", path, "-o", tmp_path / "r.html", *run),
    ):
        done = command(*words, "--evidence", "0=1,6=0")
        assert done.returncode == 0, (words[0], done.stderr)
    assert np.load(tmp_path / "s.npz")["data"].shape == (3, 7)
    assert mg.exact_log_z(mg.load(tmp_path / "held.npz")) == pytest.approx(mg.exact_log_z(left), rel=1e-12)
    (tmp_path / "e").write_text("0 = -1\n")
    command("expectations", path, "--evidence", tmp_path / "e", "--mar", tmp_path / "mar")
    assert (tmp_path / "mar").read_text().split()[1:5] == ["9", "2", "1", "0"]


def test_real_and_categorical_variables(tmp_path):
    rng = np.random.default_rng(1)
    units = "categorical:3", mg.ReLU(2.0)
    model = mg.rbm(rng.normal(size=(6, 2)), rng.normal(size=6), rng.normal(size=2), units=units)
    mg.save(model, tmp_path / "m.npz")
    left = mg.load(tmp_path / "m.npz", "1=2, 2=0.25")
    field = model.hidden_bias + np.asarray(model.weights)[5]
    own = np.asarray(model.weights)[:3, 0] * 0.25
    total = []
    for state in range(3):
        rest = units[1].log_normaliser((field + np.asarray(model.weights)[state])[None, 1:])[0]
        total.append(rest + model.visible_bias[state] + own[state])
    wanted = np.logaddexp.reduce(total) + model.visible_bias[5] + field[0] * 0.25 - 0.0625
    assert mg.exact_log_z(left) == pytest.approx(wanted, rel=1e-12)


def test_labels_in_words(tmp_path):
    model = mg.from_graph(nx.Graph([("a", "b"), ("b", "c=d")]), coupling=None)
    mg.save(model, tmp_path / "m.json")
    for label in ("a", "c=d"):
        found = mg.exact_log_z(mg.load(tmp_path / "m.json", f"{label}=-1"))
        assert found == pytest.approx(mg.exact_log_z(model) - math.log(2.0), rel=1e-12)


@pytest.mark.parametrize(
    ("evidence", "problem"),
    [
        ("9=1", "names the variable '9', which the model does not have"),
        ({(1, 2): 1}, "which the model does not have"),
        ("0=2", "the state of 0 in evidence is 2"),
        ("0=-2", "the state of 0 in evidence is -2"),
        ("0=up", "it must be a number"),
        ("0=1,0=1", "names the variable '0' twice"),
        ("0=1,2", "it must be 'label = state'"),
        ('{"0": 1, "0": 1}', "names the variable '0' twice"),
        ('{"0": [1]}', "the state of 0 in evidence is"),
        ('{"0": 1', "is not JSON"),
        ("0=nan", "the state of 0 in evidence is nan"),
        (3, "it must name a file or map labels to states"),
        ("missing.evid", "missing.evid"),
    ],
)
def test_bad_evidence(small, tmp_path, evidence, problem):
    _, path = small
    if str(evidence).startswith("{") and isinstance(evidence, str):
        (tmp_path / "e.json").write_text(evidence)
        evidence = tmp_path / "e.json"
    with pytest.raises((ValueError, OSError), match=problem.replace("(", r"\(")):
        mg.load(path, evidence)
    if not isinstance(evidence, dict | int):
        done = command("exact", path, "--evidence", evidence)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1


def test_real_values_are_checked(tmp_path):
    mg.save(mg.rbm([[0.3]], [0.0], [0.0], units=("gaussian", mg.ReLU())), tmp_path / "m.npz")
    for evidence, problem in (("1=-0.5", "ReLU units are 0 or larger"), ("0=inf", "in evidence is")):
        with pytest.raises(ValueError, match=problem):
            mg.load(tmp_path / "m.npz", evidence)
