"""Every command takes every model file; convert goes between them."""

import json
import math

import numpy as np
import pytest
from conftest import answer
from conftest import command as run

import marginalis as mg

HARD = "MARKOV 3 2 2 2 2 2 0 1 2 1 2 4 1 0 0 2 4 1 2 3 4\n"


def test_every_command_takes_evidence(network, tmp_path):
    evidence = tmp_path / "m.evid"
    exact = answer("exact", network, "--evidence", evidence)
    whole = answer("exact", network)
    model = mg.load(network, evidence)
    assert exact["log_z"] == mg.exact_log_z(model) < whole["log_z"]
    got = answer("estimate", network, "--evidence", evidence, "--steps", 20, "--chains", 50)
    assert abs(got["log_z"] - exact["log_z"]) < 4.5 * got["stderr"] + 1e-9
    assert answer("info", network, "--evidence", evidence)["variables"] == 3
    bounds = answer("bound", network, "--evidence", evidence, "--steps", 5, "--chains", 20)
    assert bounds["lower"] <= -exact["log_z"] <= bounds["upper"]
    curve = answer("thermodynamics", network, "--evidence", evidence, "--betas", "0.5,1", "--steps", 5, "--chains", 20)
    assert [row["beta"] for row in curve["rows"]] == [0.5, 1.0]
    other = tmp_path / "other.uai"
    other.write_text(network.read_text().replace(" 5", " 9"))
    between = answer("difference", network, other, "--evidence", evidence, "--steps", 5, "--chains", 20)
    wanted = answer("exact", other, "--evidence", evidence)["log_z"] - exact["log_z"]
    assert abs(between["log_ratio"] - wanted) < 4.5 * between["stderr"]
    data = tmp_path / "data.csv"
    data.write_text(",".join(["1"] * model.n_visible) + "\n")
    likelihood = answer("likelihood", network, data, "--evidence", evidence)
    assert likelihood["log_z"] == pytest.approx(exact["log_z"], rel=1e-12)


def test_decimal_logarithms_and_pr_files(network, tmp_path):
    for words in (("exact",), ("estimate", "--steps", 10, "--chains", 10)):
        out = tmp_path / "m.PR"
        got = answer(words[0], network, *words[1:], "--log10", "--pr", out)
        assert got["log10_z"] == pytest.approx(got["log_z"] / math.log(10.0), rel=1e-15)
        word, value = out.read_text().split()
        assert word == "PR"
        assert float(value) == pytest.approx(got["log10_z"], rel=1e-11)
        shown = run(words[0], network, *words[1:], "--log10").stdout
        assert f"log10 Z = {got['log10_z']:.5g}"[:13] in shown
    refused = run("exact", network, "--pr", network)
    assert refused.returncode == 2
    assert "named twice" in refused.stderr


def test_converted_files_hold_the_same_model(network, tmp_path):
    wanted = answer("exact", network)["log_z"]
    path = network
    for ending in (".npz", ".json", ".uai.gz", ".uai"):
        out = tmp_path / f"next{ending}"
        done = run("convert", path, out)
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        assert answer("exact", out)["log_z"] == pytest.approx(wanted, rel=1e-12)
        path = out
    held = tmp_path / "held.npz"
    assert run("convert", network, held, "--evidence", tmp_path / "m.evid").returncode == 0
    assert answer("exact", held)["log_z"] == answer("exact", network, "--evidence", tmp_path / "m.evid")["log_z"]


def test_convert_refuses_what_a_format_cannot_hold(network, tmp_path):
    before = network.read_text()
    for out, problem in (
        (tmp_path / "m.h5", "its ending must be one of .npz, .uai, .json, .coo, .rudy"),
        (tmp_path / "m", "its ending must be one of"),
        (tmp_path / "m.rudy", "a rudy file holds couplings only"),
        (tmp_path / "m.coo", "cannot hold the constant"),
        (network, "named twice"),
    ):
        done = run("convert", network, out)
        assert done.returncode == 2
        assert problem in done.stderr
        assert done.stderr.count("\n") == 1
    assert network.read_text() == before


def test_zeros_and_larger_factors(tmp_path):
    path = tmp_path / "hard.uai"
    path.write_text(HARD)
    done = run("bound", path)
    assert done.returncode == 2
    assert "forbids some states (zeros): only mg.free_energy, mg.estimate and exact sums take that" in done.stderr
    path.write_text("MARKOV 3 2 2 2 1 3 0 1 2 8 1 2 3 4 5 6 7 8")
    done = run("difference", path, path, "--steps", 5, "--chains", 50, "--json")
    assert done.returncode == 0
    assert abs(json.loads(done.stdout)["log_ratio"]) < 1e-9


def test_updates_of_a_run(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["model_type"] = "BBRBM"
        for update in (2, 10):
            params = file.create_group(f"update_{update}/params")
            params["weight_matrix"], params["vbias"], params["hbias"] = (
                np.full((3, 2), update),
                np.zeros(3),
                np.zeros(2),
            )
    last, first = answer("exact", path)["log_z"], answer("exact", path, "--update", 2)["log_z"]
    assert last > first == mg.exact_log_z(mg.rbm(np.full((3, 2), 2.0), np.zeros(3), np.zeros(2), units="binary"))
    missing = run("exact", path, "--update", 5)
    assert missing.returncode == 2
    assert "has no update 5; it has 2, 10" in missing.stderr


def test_maxcut_turns_weights_into_couplings_of_the_opposite_sign(tmp_path):
    path = tmp_path / "g.rudy"
    path.write_text("3 3\n1 2 1\n2 3 1\n3 1 1\n")
    plain, cut = answer("exact", path)["log_z"], answer("exact", path, "--maxcut")["log_z"]
    assert plain == pytest.approx(math.log(2 * math.exp(3) + 6 * math.exp(-1)), rel=1e-13)
    assert cut == pytest.approx(math.log(2 * math.exp(-3) + 6 * math.exp(1)), rel=1e-13)
