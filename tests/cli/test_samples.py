"""The command `sample`."""

import json

import numpy as np
import pytest
from conftest import command

import marginalis as mg


def test_exact_samples_come_back_as_data(model, tmp_path):
    out = tmp_path / "rows.npz"
    done = command("sample", model, 50, "-o", out, "--seed", 2, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    facts = json.loads(done.stdout)
    assert (facts["samples"], facts["columns"], facts["is_exact"]) == (50, 20, True)
    expected = mg.sample(mg.load(model), 50, seed=2)
    assert np.array_equal(np.load(out)["data"], expected.rows)
    assert f"exact, by {facts['source']}" in command("sample", model, 3, "-o", tmp_path / "rows.npy").stdout
    assert command("likelihood", model, out).returncode == 0


def test_approximate_samples_say_so(model, tmp_path):
    out = tmp_path / "rows.csv"
    done = command("sample", model, 7, "-o", out, "--estimate", "--chains", 30, "--steps", 20)
    assert "in " + str(out) + ": approximate\nwarning: approximate: 7 states chosen from 30" in done.stdout
    expected = mg.sample(mg.load(model), 7, exact=False, chains=30, steps=20)
    assert np.array_equal(np.loadtxt(out, delimiter=","), expected.rows)
    assert out.read_text().startswith(",".join(f"{x:.0f}" for x in expected.rows[0]) + "\n")


def test_samples_as_state_numbers(tmp_path):
    model = mg.potts_grid((2, 3), q=3, coupling=0.5)
    mg.save(model, tmp_path / "potts.npz")
    command("sample", tmp_path / "potts.npz", 9, "--states", "-o", tmp_path / "rows.npy")
    assert np.array_equal(np.load(tmp_path / "rows.npy"), mg.states(model, mg.sample(model, 9).rows))


@pytest.mark.parametrize(
    ("args", "message"),
    [((5, "-o", "rows.txt"), "must end in .npz, .npy, .csv"), ((0, "-o", "rows.npy"), "n is 0"), ((5,), "--out")],
)
def test_sample_refuses_bad_arguments(model, tmp_path, args, message):
    args = [tmp_path / x if str(x).startswith("rows") else x for x in args]
    done = command("sample", model, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
