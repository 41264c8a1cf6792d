"""The command line as a user meets it: in this process, and in its own where signals and the start matter."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import command as run
from conftest import posix

import marginalis as mg


def test_estimate_and_exact_agree(model, tmp_path):
    out, plot = tmp_path / "w.npz", tmp_path / "w.png"
    done = run("estimate", model, "--json", "--chains", 2000, "--steps", 200, "--out", out, "--plot", plot)
    assert done.returncode == 0
    result = json.loads(done.stdout)
    exact = json.loads(run("exact", model, "--json").stdout)
    assert {"log_z", "free_energy", "method", "seconds"} <= set(exact)
    assert abs(result["log_z"] - exact["log_z"]) < 4.5 * result["stderr"]
    assert exact["log_z"] == pytest.approx(mg.exact_log_z(mg.load(model)), rel=1e-12)
    assert (result["method"], result["steps"], result["chains"], result["engine"]) == (
        "mais-v",
        200,
        2000,
        "numba",
    )
    with np.load(out, allow_pickle=False) as file:
        weights = dict(file)
    assert weights["log_weights"].shape == (2000,)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_text_output(model):
    done = run("estimate", model, "--steps", 1, "--chains", 20, "--method", "ais", "--engine", "numpy")
    assert done.returncode == 0
    assert done.stdout.startswith("F = -")
    assert "warning: steps is 1" in done.stdout
    assert "F = -" in run("exact", model).stdout
    text = run("info", model).stdout
    assert "variables         20 (8 visible + 12 hidden)" in text
    facts = json.loads(run("info", model, "--json").stdout)
    assert (facts["visible"], facts["hidden"], facts["temperature"], facts["mais_is"]) == (
        8,
        12,
        0.5,
        "mais-v",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ising-grid", "--shape", "16x16"), "lattice 16×16, open, 256 spins, 480 couplings, T = 1"),
        (("ising-grid", "--shape", "1x2"), "lattice 1×2, open, 2 spins, 1 coupling, T = 1"),
        (("potts-grid", "--shape", "12x12", "--periodic"), "144 variables of 3 states, 288 couplings, T = 1"),
        (("rbm-gaussian",), "complete bipartite graph, 20 + 40 spins, 800 couplings, T = 1"),
        (("dbm", "--layers", "2,1,2"), "3 layers of 2, 1, 2, 5 binary units, 4 couplings, T = 1"),
    ],
)
def test_made_models_are_described_as_people_say_it(tmp_path, words, said):
    path = tmp_path / "m.npz"
    assert said in run("make", *words, "-o", path).stderr
    lines = dict(line.split("  ", 1) for line in run("info", path).stdout.splitlines())
    assert {"graph", "variables", "units", "couplings", "fields", "temperature", "summed out", "exact"} == set(lines)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("--stpes", 3), "no option --stpes here; did you mean --steps?"),
        (("--n-chains", 3), "no option --n-chains here; did you mean --chains?"),
        (("--K", 3), "no option --K here; did you mean --steps?"),
        (("-K", 3), "no option -K here; did you mean --steps?"),
        (("--verbose",), "no option --verbose here"),
        (("--first_chain", 1), "did you mean --first-chain?"),
        (("--method", "AIS"), "must be one of mais, mais-v, mais-h, ais; did you mean 'ais'?"),
        (("--schedule", "adaptiv"), "did you mean 'adaptive'?"),
        (
            ("--base", "quench"),
            "quenches, a data file or a model file; did you mean 'quenches'?",
        ),
        (("--plot", "a.png", "--plot-kind", "weight"), "did you mean 'weights'?"),
    ],
)
def test_misspelt_flags_and_words_are_answered_with_the_right_ones(model, words, meant):
    done = run("estimate", model, *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert meant in done.stderr


@posix
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_bad_input_exits_with_2_though_nothing_can_be_said(tmp_path, redirection):
    command = f"{sys.executable} -m marginalis info {tmp_path}/none.npz {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")


def test_schedule_file(model, tmp_path):
    (tmp_path / "betas.txt").write_text("0\n0.5\n1\n")
    done = run("estimate", model, "--schedule", tmp_path / "betas.txt", "--chains", 10, "--json")
    assert json.loads(done.stdout)["steps"] == 2


def test_estimate_to_a_tolerance(model):
    done = run("estimate", model, "--tolerance", 0.05, "--json")
    result = json.loads(done.stdout)
    assert result["interval"][1] - result["interval"][0] <= 0.1
    assert result["schedule"] == "adaptive"
    assert "steps: the relative variance of the weights is" in done.stderr


def test_bases_and_schedules(model, tmp_path):
    data = tmp_path / "data.npy"
    np.save(data, np.where(np.random.default_rng(0).random((50, 8)) < 0.5, -1, 1))
    exact = -mg.exact_log_z(mg.load(model))
    for base in ("mean-field", "biases", data):
        done = run("estimate", model, "--base", base, "--schedule", "adaptive", "--steps", 50, "--json")
        result = json.loads(done.stdout)
        assert result["steps"] == 50
        assert result["base"] == ("given" if base == data else base)
        assert abs(result["free_energy"] - exact) < 4.5 * result["stderr"]


def test_the_bound_command(model, tmp_path):
    plot, samples = tmp_path / "works.png", tmp_path / "v.csv"
    exact = -mg.exact_log_z(mg.load(model))
    result = json.loads(run("bound", model, "--steps", 100, "--json", "--plot", plot).stdout)
    assert result["lower"] < exact < result["upper"]
    assert result["samples"] == "exact, by enumeration"
    assert plot.read_bytes().startswith(b"\x89PNG")
    np.savetxt(samples, np.ones((20, 8)), delimiter=",", fmt="%d")
    done = run("bound", model, "--samples", samples, "--steps", 100, "--chains", 50)
    assert done.returncode == 0
    assert "reverse start: given" in done.stdout


def test_the_thermodynamics_command(model, tmp_path):
    plot = tmp_path / "t.svg"
    result = json.loads(run("thermodynamics", model, "--betas", "0:2:3", "--json", "--plot", plot).stdout)
    assert [row["beta"] for row in result["rows"]] == [0.0, 1.0, 2.0]
    exact = mg.exact_log_z(mg.load(model))  # made at T = 1/2
    assert abs(result["rows"][2]["log_z"] - exact) < 4.5 * result["rows"][2]["log_z_error"]
    assert plot.read_text().startswith("<?xml")
    assert "ESS" in run("thermodynamics", model, "--temperatures", "2,1").stdout


@pytest.mark.parametrize("kind", ["weights", "running", "curve"])
def test_plot_kinds(model, tmp_path, kind):
    plot = tmp_path / "figure.png"
    assert run("estimate", model, "--steps", 20, "--plot", plot, "--plot-kind", kind).returncode == 0
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_make_is_seeded(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run("make", "rbm-hopfield", "--seed", seed, "-o", tmp_path / name).returncode == 0
    a, b, c = (mg.load(tmp_path / name).weights for name in "abc")
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    assert set(np.unique(a)) == {-(20**-0.5), 20**-0.5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "command"),
        (["fly"], "No such command"),
        (["estimate"], "MODEL"),
        (["estimate", "none.npz"], "none.npz: No such file"),
        (["estimate", "{model}", "--steps", "x"], "--steps"),
        (["estimate", "{model}", "--steps", "2.5"], "--steps"),
        (["estimate", "{model}", "--steps", "0"], "steps is 0"),
        (["estimate", "{model}", "--chains", "-1"], "chains is -1"),
        (["estimate", "{model}", "--method", "magic"], "method is 'magic'"),
        (["estimate", "{model}", "--engine", "magic"], "engine is 'magic'"),
        (["estimate", "{model}", "--base", "magic"], "base is 'magic'"),
        (
            ["estimate", "{model}", "--schedule", "magic"],
            "schedule is 'magic'; it must be linear, adaptive or a text file",
        ),
        (["estimate", "{model}", "--threads", "0"], "threads is 0"),
        (["estimate", "{model}", "--out", "no/where.npz"], "cannot write no/where.npz"),
        (["estimate", "{model}", "--plot", "no/where.png"], "cannot write no/where.png"),
        (["estimate", "{model}", "--plot", "where.docx"], ".docx"),
        (["estimate", "{model}", "--wings"], "--wings"),
        (["estimate", "{model}", "--out", "{model}"], "named twice"),
        (["estimate", "{model}", "--out", "same.png", "--plot", "same.png"], "named twice"),
        (["estimate", "{model}", "--schedule", "same.npz", "--out", "./same.npz"], "named twice"),
        (["estimate", "{model}", "--checkpoint", "same.npz", "--out", "same.npz"], "named twice"),
        (["sample", "{model}", "3", "--base", "same.csv", "-o", "same.csv"], "named twice"),
        (["bound", "{model}", "--samples", "same.png", "--plot", "same.png"], "named twice"),
        pytest.param(["estimate", "{loop}", "--out", "new.npz"], "Too many levels of symbolic links", marks=posix),
        pytest.param(["likelihood", "{model}", "{loop}", "--out", "x.npy"], "Too many levels of", marks=posix),
        (["estimate", "{model}", "--tolerance", "0"], "tolerance is 0"),
        (["estimate", "{model}", "--tolerance", "0.1", "--chains", "5"], "leave out chains"),
        (["estimate", "{model}", "--budget", "3"], "budget requires tolerance"),
        (["estimate", "{model}", "--base", "none.npy"], "cannot read data file none.npy"),
        (["estimate", "{model}", "--plot-kind", "magic", "--plot", "a.png"], "plot-kind is 'magic'"),
        (["estimate", "{model}", "--plot-kind", "curve"], "requires --plot"),
        (["bound", "{model}", "--confidence", "2"], "confidence is 2"),
        (["bound", "{model}", "--samples", "{model}"], "lacks the key 'data'"),
        (["thermodynamics", "{model}"], "give either --betas or --temperatures"),
        (["thermodynamics", "{model}", "--temperatures", "0"], "temperatures must be"),
        (["thermodynamics", "{model}", "--betas", "a:b:c"], "betas is 'a:b:c'"),
        (["thermodynamics", "{model}", "--betas=-1"], "betas must be"),
        (["calibrate", "--repeats", "0"], "repeats is 0"),
        (["exact", "{model}", "--method", "magic"], "method is 'magic'"),
        (["make", "ising-grid", "--shape", "1x4", "--periodic", "-o", "m.npz"], "coupled to itself"),
        (["make", "ising-grid", "--shape", "axb", "-o", "m.npz"], "shape is 'axb'"),
        (["make", "ising-grid", "--coupling", "levy:1", "-o", "m.npz"], "coupling is 'levy:1'"),
        (["make", "potts-grid", "--states", "1", "-o", "m.npz"], "q is 1"),
        (["make", "dbm", "--layers", "3", "-o", "m.npz"], "one more bias"),
        (["reproduce", "table2"], "experiment is 'table2'"),
        (["make", "rbm-gaussian"], "output"),
        (["make", "rbm-gaussian", "--temperature", "-1", "-o", "m.npz"], "temperature is -1.0"),
        (["make", "rbm-gaussian", "--visible", "0", "-o", "m.npz"], "visible is 0"),
        (["make", "rbm-gaussian", "-o", "no/m.npz"], "cannot write no/m.npz"),
    ],
)
def test_bad_input_exits_2_with_one_line(model, tmp_path, tmp_path_factory, arguments, message):
    loop = tmp_path_factory.mktemp("links") / "loop.npz"
    if os.name != "nt":
        loop.symlink_to(loop)
    done = run(*(a.format(model=model, loop=loop) for a in arguments), cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert message in done.stderr
    assert os.listdir(tmp_path) == []


def test_the_console_script(model):
    done = subprocess.run([Path(sys.executable).parent / "marginalis", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"marginalis {mg.__version__}\n")


def test_long_messages_are_cut_in_the_middle():
    done = run("info", "a\n" + "b" * 3000 + ".npz")
    assert done.returncode == 2
    assert len(done.stderr) < 300
    assert done.stderr.startswith("marginalis: cannot read model file a")
    assert done.stderr.endswith(": File name too long\n")


@pytest.mark.parametrize("arguments", [["estimate", "{model}"], ["exact", "{model}"], ["--help"], ["bound", "{model}"]])
def test_ascii_terminals(model, arguments):
    done = run(*(a.format(model=model) for a in arguments), encoding="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_a_plain_c_locale(model):
    """There Python writes what it cannot encode as an error, though its streams are not called strict."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii:surrogateescape"}
    words = [sys.executable, "-m", "marginalis", "estimate", model, "--steps", "2"]
    done = subprocess.run(words, capture_output=True, env={**os.environ, **plain})
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()


@pytest.mark.parametrize(
    ("arguments", "method"),
    [
        (["ising-grid", "--shape", "6x6", "--coupling", "0.4407", "--periodic"], "kaufman"),
        (["ising-grid", "--shape", "5x5", "--coupling", "gaussian:0.8", "--field", "0.1"], None),
        (["ising-grid", "--shape", "3x5", "--coupling", "gaussian:0.5", "--periodic"], None),
        (["dbm", "--layers", "6,5,4"], None),
        (["chimera", "--size", "1x2", "--field", "uniform:0.3"], None),
        (["potts-grid", "--shape", "3x3", "--states", "3"], None),
    ],
)
def test_every_family_from_file_to_answer(tmp_path, arguments, method):
    path = tmp_path / "m.npz"
    assert run("make", *arguments, "-o", path).returncode == 0
    exact = json.loads(run("exact", path, "--json").stdout)
    assert method in (None, exact["method"])
    found = json.loads(run("estimate", path, "--json", "--steps", 200, "--chains", 500).stdout)
    assert abs(found["log_z"] - exact["log_z"]) < 4.5 * found["stderr"]
    assert json.loads(run("info", path, "--json").stdout)["variables"] > 0


def test_too_large_is_a_clear_error(tmp_path):
    path = tmp_path / "big.npz"
    run("make", "rbm-gaussian", "--visible", 100, "--hidden", 90, "-o", path)
    done = run("exact", path)
    assert done.returncode == 2
    assert "smaller side has 90 units" in done.stderr


def test_importing_is_light():
    heavy = ("numba", "matplotlib", "rich", "typer", "numpy", "scipy", "typing")
    code = f"import sys, marginalis; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_public_names_are_found():
    assert set(mg.__all__) <= set(dir(mg))
    code = "from marginalis import *; print(callable(rbm), callable(estimate), plots.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True True marginalis.plots\n"
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        mg.magic  # noqa: B018


RUN = dict(method="ais", steps=7, chains=9, transition="metropolis", sweeps=2, schedule="adaptive", seed=5)
RUN |= dict(engine="numpy", threads=2)
PRECISE = dict(base="biases", precision="double")


@pytest.mark.parametrize(
    ("command", "place", "options"),
    [
        (
            "estimate",
            ("marginalis.cli.answers", "run_estimate"),
            RUN | PRECISE | dict(first_chain=3, tolerance=0.5, budget=4.0),
        ),
        ("bound", ("marginalis.answers.bounds", "bound"), RUN | PRECISE | dict(confidence=0.7, equilibration=11)),
        ("thermodynamics", ("marginalis.answers.thermodynamics", "thermodynamics"), RUN | dict(moves=4)),
    ],
)
def test_every_option_is_passed_on(model, monkeypatch, command, place, options):
    heard = []

    def hear(*args, **given):
        heard.append(given)
        raise ValueError("heard")

    monkeypatch.setattr(importlib.import_module(place[0]), place[1], hear)
    words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    betas = ["--betas", "0.5"] if command == "thermodynamics" else []
    run(command, model, *words, *betas)
    assert {key: heard[0][key] for key in options} == options


def test_warnings_of_json_go_to_stderr(model):
    done = run("estimate", model, "--steps", 1, "--chains", 20, "--json")
    assert "steps is 1" in json.loads(done.stdout)["warnings"][-1]
    assert "warning: steps is 1" in done.stderr


def test_help_is_complete_in_a_narrow_terminal():
    done = subprocess.run(
        [sys.executable, "-m", "marginalis", "free-energy", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "40"},
    )
    assert done.returncode == 0
    for flag in ("--tolerance", "--temperature", "--populations", "--checkpoint"):
        assert flag in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 60
