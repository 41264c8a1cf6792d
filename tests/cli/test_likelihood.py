"""The command `likelihood`."""

import json

import numpy as np
import pytest
from conftest import command, random_rbm

import marginalis as mg


def run(*args):
    return command("likelihood", *args)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path, rng = tmp_path_factory.mktemp("likelihood"), np.random.default_rng(0)
    mg.save(random_rbm(rng, 6, 4, units="binary"), path / "rbm.npz")
    mg.save(random_rbm(rng, 60, 50, units="binary", scale=0.1), path / "large.npz")
    data = rng.integers(0, 2, (8, 6))
    np.save(path / "data.npy", data)
    np.savez(path / "data.npz", data=data)
    np.savetxt(path / "data.csv", data, delimiter=",", fmt="%d")
    np.save(path / "wide.npy", rng.integers(0, 2, (8, 60)))
    np.save(path / "grey.npy", rng.random((8, 6)))
    return path


def test_likelihood_prints_and_writes_the_answer(folder):
    done = run(folder / "rbm.npz", folder / "data.npy", "--json", "--out", folder / "out.npy")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    expected = mg.log_likelihood(mg.load(folder / "rbm.npz"), np.load(folder / "data.npy"))
    assert {**answer, "seconds": 0} == {**expected.to_dict(), "seconds": 0}
    assert answer["log_z_source"] == "exact, by enumeration"
    assert np.array_equal(np.load(folder / "out.npy"), expected.per_sample)


def test_likelihood_estimates_ln_z_of_a_large_model(folder):
    done = run(folder / "large.npz", folder / "wide.npy", "--steps", 1, "--chains", 10, "--seed", 2, "--json")
    answer = json.loads(done.stdout)
    assert answer["log_z_source"].endswith("1 steps, 10 chains, seed 2")
    assert done.stderr.count("warning: ") == len(answer["warnings"]) > 0
    done = run(folder / "large.npz", folder / "wide.npy", "--tolerance", 0.3, "--json")
    low, high = json.loads(done.stdout)["interval"]
    assert high - low <= 0.6
    text = run(folder / "large.npz", folder / "wide.npy", "--log-z", 80)
    assert text.stdout.startswith("mean ln p = -")
    assert "ln Z = 80.0000   (given)" in text.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("grey.npy",), "binarise real values"),
        (("absent.npy",), "cannot read data file"),
        (("data.npy", "--log-z", "nan"), "log_z is nan"),
        (("data.npy", "--log-z", "1", "--tolerance", "0.1"), "leave out tolerance"),
        (("data.npy", "--out", "data.npy"), "is named twice"),
    ],
)
def test_likelihood_refuses_bad_input_in_one_line(folder, args, message):
    args = [folder / arg if arg.endswith(".npy") else arg for arg in args]
    done = run(folder / "rbm.npz", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
