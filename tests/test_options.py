"""The options of a run, listed once: every door has them, explains them, and refuses others by name."""

import inspect
import math
import pydoc
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import scipy.sparse as sp
import typer
from conftest import command, random_rbm

import marginalis as mg
from marginalis.cli import answers, report  # noqa: F401  # they add the commands
from marginalis.cli.common import app
from marginalis.engines.plan import make_plan
from marginalis.options import DEFAULTS, PlanOptions, RunOptions, notes

# What a door cannot use: bounds and ln Z(β) need chains of their own weights, ln Z(β) starts where it must.
LEFT_OUT = {
    "estimate": set(),
    "bound": {"resample", "populations"},
    "thermodynamics": {"base", "first_chain", "resample", "populations"},
    "report": set(),
}
DOORS = {"estimate": mg.estimate, "bound": mg.bound, "thermodynamics": mg.thermodynamics, "report": mg.report}
HINTS = get_type_hints(RunOptions)
WORDS = {name: get_args(hint) for name, hint in HINTS.items() if get_origin(hint) is Literal}


@pytest.fixture
def model():
    return random_rbm(np.random.default_rng(0), 3, 4)


def test_every_option_is_listed_once():
    assert set(DEFAULTS) == set(HINTS) == set(notes())
    assert set(PlanOptions.__annotations__) < set(DEFAULTS)
    assert all(note.strip() for note in notes().values())


@pytest.mark.parametrize("door", DOORS)
def test_every_option_is_a_parameter_and_a_flag(door):
    wanted = set(DEFAULTS) - LEFT_OUT[door]
    parameters = inspect.signature(DOORS[door]).parameters
    assert wanted == set(DEFAULTS) & set(parameters)
    assert {name: parameters[name].default for name in wanted} == {name: DEFAULTS[name] for name in wanted}
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in wanted)
    flags = {flag for parameter in typer.main.get_command(app).commands[door].params for flag in parameter.opts}
    assert {f"--{name.replace('_', '-')}" for name in wanted - {"progress"}} <= flags
    assert not {f"--{name.replace('_', '-')}" for name in LEFT_OUT[door]} & flags


@pytest.mark.parametrize("door", DOORS)
def test_help_explains_every_option(door):
    page = "".join(pydoc.plain(pydoc.render_doc(DOORS[door])).replace("|", " ").split())  # wherever lines are broken
    for name in set(DEFAULTS) - LEFT_OUT[door]:
        assert "".join(f"{name} {notes()[name]}".split()) in page


def test_flags_keep_the_capitals_of_their_notes():
    flags = {flag.name: flag.help for flag in typer.main.get_command(app).commands["estimate"].params}
    assert flags["steps"].startswith("Annealing steps K;")
    assert "GPU" in flags["device"]


@pytest.mark.parametrize("door", DOORS)
def test_unknown_options_are_named(door, model):
    given = {"thermodynamics": ([1.0],), "report": ("report.html",)}.get(door, ())
    for name in {"stpes", *LEFT_OUT[door]} - {"base"}:
        for kind in (ValueError, TypeError):  # bad input, and what Python says itself
            with pytest.raises(kind, match=f"no option '{name}'"):
                DOORS[door](model, *given, **{name: 1})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("K", "did you mean 'steps'"),
        ("N", "did you mean 'chains'"),
        ("n_chains", "did you mean 'chains'"),
        ("Seed", "did you mean 'seed'"),
        ("tolerence", "did you mean 'tolerance'"),
        ("tol", "did you mean 'tolerance'"),
        ("verbose", "did you mean 'progress'"),
        ("temperature", "the temperature belongs to the model"),
        ("betas", "did you mean 'schedule'"),
    ],
)
def test_misspelt_options_are_answered_with_the_right_ones(name, meant, model):
    with pytest.raises(ValueError, match=f"there is no option '{name}' here[:;] {meant}"):
        mg.estimate(model, **{name: 1})
    with pytest.raises(ValueError, match=f"no option '{name}' here[:;] {meant}"):
        mg.log_likelihood(model, np.ones((1, 3)), **{name: 1})


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_misspelt_option_is_recognised(name, model):
    for wrong in (name.upper() + "S", name + "_", f"n_{name}", name[0] + name[2:], name[1] + name[0] + name[2:]):
        if wrong not in DEFAULTS:
            with pytest.raises(ValueError, match=f"no option '{wrong}' here; did you mean '{name}'"):
                mg.estimate(model, **{wrong: 1})


class Broken:
    """An object whose every method fails."""

    def __array__(self, *args, **kwargs):
        raise KeyError

    def __repr__(self):
        raise RuntimeError

    def __iter__(self):
        raise KeyError

    def __eq__(self, other):
        raise KeyError

    __hash__ = None


ODD = {
    "complex numbers": np.array([0, 0.5 + 1j, 1]),
    "complex zeros": np.array([0, 1], complex),
    "a complex number": 1j,
    "a sparse array": sp.csr_array(np.eye(2)),
    "a sparse matrix": sp.csr_matrix(np.eye(2)),
    "masked": np.ma.masked_array([0, 0.5, 1], [0, 1, 0]),
    "bytes": b"ab",
    "a dict": {"a": 1},
    "nan": math.nan,
    "a huge number": 10**400,
    "a long double": np.longdouble("1e4000"),
    "a long text": "9" * 5000,
    "broken": Broken(),
    "objects": np.array([0, object(), 1], dtype=object),
    "a nested list": [[0, 1], [2]],
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "a record": np.zeros(2, [("a", float)]),
    "an ellipsis": ...,
    "a type": int,
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", [*DEFAULTS, "tolerance", "budget", "record"])
def test_values_of_odd_types_are_refused_with_one_line(name, kind, model, tmp_path, monkeypatch):
    """Nothing but a ValueError or an OSError leaves a door, and no warning of another package."""
    monkeypatch.chdir(tmp_path)
    given = {"engine": "numpy", "chains": 4, "steps": 2, name: ODD[kind]}
    if name in ("tolerance", "budget"):
        given = {"engine": "numpy", "tolerance": 0.5, name: ODD[kind]}
    if (name, kind) == ("progress", "a type"):
        pytest.skip("a type can be called: it takes the progress")
    if (name, kind) == ("summed", "complex zeros"):  # 0j == 0, which is a label
        mg.estimate(model, **given)
        return
    with pytest.raises((ValueError, OSError), match=r"\A.{1,350}\Z"):
        mg.estimate(model, **given)


def test_unknown_flags_are_named(tmp_path, model):
    mg.save(model, tmp_path / "m.npz")
    done = command("estimate", tmp_path / "m.npz", "--stpes", 3)
    assert done.returncode == 2
    assert "--stpes" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", WORDS)
def test_plans_take_the_words_of_each_type_and_no_other(name, model):
    assert DEFAULTS[name] in WORDS[name]
    for word in WORDS[name]:
        make_plan(model, steps=3, chains=4, **{name: word})
    for word in ("magic", "", None, 3):
        with pytest.raises(ValueError, match=f"{name} is .*; it must be one of {', '.join(WORDS[name])}"):
            make_plan(model, **{name: word})
