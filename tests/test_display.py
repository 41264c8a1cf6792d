"""What people see of answers: short texts and cards, never arrays; and what comes from files is escaped."""

import os
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from conftest import make_estimate, posix, random_rbm

import marginalis as mg
from marginalis.checks import a_kind
from marginalis.display import sketch
from marginalis.display.card import card
from marginalis.display.words import cell_text, heading, is_far, method_name
from marginalis.results.curve import Curve

RNG = np.random.default_rng(3)
MODEL = random_rbm(RNG, 4, 5)
QUICK = {"engine": "numpy", "chains": 40, "steps": 10}


@pytest.fixture(scope="module")
def answers():
    watch = mg.Watch(rows=RNG.choice([-1.0, 1.0], (30, 4)))
    for _ in range(3):
        watch.update(MODEL)
    return {
        "Watch": watch,
        "History": watch.history,
        "Estimate": mg.estimate(MODEL, **QUICK),
        "Audit": mg.audit(MODEL, mg.sample(MODEL, 50).rows, bounds=False, **QUICK),
        "Bounds": mg.bound(MODEL, **QUICK),
        "Difference": mg.difference(MODEL, random_rbm(RNG, 4, 5), **QUICK),
        "Along": mg.along([MODEL] * 50, **QUICK),
        "Thermodynamics": mg.thermodynamics(MODEL, np.linspace(0.0, 1.0, 60), **QUICK),
        "LogLikelihood": mg.log_likelihood(MODEL, RNG.choice([-1.0, 1.0], (3000, 4))),
        "LogLikelihoods": mg.log_likelihood(mg.along([MODEL] * 50, **QUICK), RNG.choice([-1.0, 1.0], (30, 4))),
        "Expectations": mg.expectations(MODEL),
        "Average": mg.average([MODEL] * 30, exact=False, **QUICK),
        "Estimates": mg.estimate_many([MODEL] * 40, **QUICK),
        "Samples": mg.sample(MODEL, 3000),
        "Curve": mg.estimate(MODEL, record=True, **QUICK).curve,
        "MRF": mg.rbm(RNG.normal(size=(300, 200)), np.zeros(300), np.zeros(200)),
        "FreeEnergy": mg.free_energy(MODEL),
        "Weights": mg.Weights(RNG.normal(size=500)),
        "FactorModel": mg.FactorModel((2, 3), ((0, 1),), (np.zeros((2, 3)),)),
    }


NAMES = [
    "Audit", "Estimate", "Bounds", "Difference", "Along", "Thermodynamics", "LogLikelihood", "LogLikelihoods",
    "Expectations", "Average",
    "Estimates", "Samples", "Curve", "MRF", "FactorModel", "FreeEnergy", "Weights",
    "Watch", "History",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_repr_is_a_short_text(answers, name):
    answer = answers[name]
    assert type(answer).__name__ == name
    assert len(repr(answer)) < 2500
    assert "array(" not in repr(answer)
    assert repr(answer).splitlines()[0] == str(answer).splitlines()[0]


@pytest.mark.parametrize("name", NAMES)
def test_cards_are_small_and_sound(answers, name):
    html = answers[name]._repr_html_()
    assert len(html) < 20_000
    body = re.sub(r"<style>.*?</style>", "", html).replace("&nbsp;", " ")
    tree = ElementTree.fromstring(body)
    assert (tree.find("svg") is not None) == (name not in ("Estimates", "Samples", "FactorModel", "FreeEnergy"))
    assert "".join(tree.find("div/b").itertext())


def test_every_answer_is_looked_at():
    classes = {name for name in mg.__all__ if isinstance(getattr(mg, name), type)}
    assert classes - {"ModelTooLarge", "Report"} == set(NAMES)


def test_models_in_words():
    assert "(complete bipartite graph, 4 + 5 spins, 20 couplings, T = 1)" in repr(MODEL)
    assert "lattice 4×4, periodic, 16 spins" in repr(mg.ising_grid((4, 4), periodic=True))
    assert "(lattice 3×4, open, 12 spins, 17 couplings, T = 2)" in repr(mg.ising_grid((3, 4), temperature=2.0))
    assert "4 variables of 3 states, 4 couplings" in repr(mg.potts_grid((2, 2), 3))
    assert "288 couplings" in repr(mg.potts_grid((12, 12), 4, periodic=True))  # of pairs of variables, not of states
    assert "MRF of 1 variable   (lattice 1×1, open, 1 spin, 0 couplings" in repr(mg.ising_grid((1, 1)))
    pair = mg.rbm([[1.0]], [0.0], [0.0], units=("binary", "gaussian"))
    assert "1 binary unit + 1 Gaussian variable, 1 coupling, T = 1" in repr(pair)
    triangle = mg.from_edges([(0, 1), (1, 2), (0, 2)], coupling=[1.0, 1.0, -1.0])
    assert "graph in 3 blocks" in repr(triangle)
    assert "3 couplings" in repr(triangle)


def test_long_tables_lose_their_middle(answers):
    lines = repr(answers["Thermodynamics"]).splitlines()
    full = str(answers["Thermodynamics"]).splitlines()
    assert lines[:10] == full[:10]
    assert lines[-10:] == full[-10:]
    assert lines[10] == f"… {len(full) - 20} more lines …"


def test_warnings_are_coloured_and_escaped():
    e = make_estimate(np.zeros(30), notes=("<script>alert(1)</script>",))
    html = e._repr_html_()
    assert "<p>⚠ &lt;script&gt;alert(1)&lt;/script&gt;</p>" in html
    assert "<script" not in html
    assert "<script" not in card("<script>", ["<script>"], ["<script>"], table=True)


def heights(svg, colour):
    return [float(x.get("height")) for x in ElementTree.fromstring(svg).iter("rect") if x.get("fill") == colour]


def test_sketch_of_weights():
    x = RNG.normal(size=500)
    svg = sketch.histogram(x, at=[0.0, 99.0], span=(-0.5, 0.5), about="a < b")
    tall = heights(svg, sketch.BLUE)
    counts = np.histogram(x, bins=36)[0]
    assert tall == pytest.approx(np.log1p(counts[counts > 0]) / np.log1p(counts.max()) * 52, abs=0.06)
    assert heights(svg, sketch.RED) == [56.0, 56.0]  # the interval, and one place: the other is outside
    assert 'aria-label="a &lt; b"' in svg


@pytest.mark.parametrize("x", [[], [1.0], [2.0, 2.0], [np.nan, np.inf], [1.0, np.nan, 3.0], [-1e300, 1e300]])
def test_sketches_of_few_points(x):
    values = np.array(x)
    for svg in (sketch.histogram(values, span=(-np.inf, np.inf)), sketch.line(values, values, np.abs(values))):
        assert "nan" not in svg
        assert "inf" not in svg
        assert svg == "" or ElementTree.fromstring(svg) is not None


def test_sketch_of_many_points_is_small():
    curve = Curve(np.linspace(0.001, 1.0, 5000), np.zeros((5000, 2)), 1.0)
    assert len(curve._repr_html_()) < 5000


def test_names_and_numbers_as_people_read_them():
    names = ["ais", "mais", "mais-v", "ais+mh", "mais+mh", "true", "ln r"]
    assert list(map(method_name, names)) == ["AIS", "mAIS", "mAIS-V", "AIS+MH", "mAIS+MH", "true", "ln r"]
    assert [heading(key) for key in ("inv_t", "z", "median", "cpu_seconds")] == [
        "1/T", "z to the paper", "median", "CPU seconds",
    ]  # fmt: skip
    assert [cell_text("stderr", 0.0012345), cell_text("z", 2.25), cell_text("mean", -0.697590123)] == [
        "0.0012", "+2.2", "-0.69759",
    ]  # fmt: skip
    assert [cell_text("mean", None), cell_text("mean", float("nan")), cell_text("steps", 10)] == ["", "", "10"]
    row = {"mean": 1.23456, "stderr": 0.012, "error": -1.0075e-06, "error_stderr": 7.0e-07, "printed": -0.6976}
    shown = ["1.235", "0.012", "-0.00000101", "7.0e-07", "-0.69760"]
    assert [cell_text(key, value, row) for key, value in row.items()] == shown
    far = [is_far("z", 3.5), is_far("z_error", -2.0), is_far("mean", 9.0), is_far("z", None)]
    assert far == [True, False, None, None]
    assert [a_kind(x) for x in (1, 1.5, object(), MODEL)] == ["an int", "a float", "an object", "an MRF"]


def test_labels_cannot_command_a_terminal_or_reorder_a_page(tmp_path):
    """Labels and names come from files of strangers: U+202E turns text around, escape sequences clear a screen."""
    bad = "a\u202eb\x1b[2J"
    model = mg.from_edges([[0, 1], [1, 2]], labels=[bad, "y", ("t", bad)], field=0.1)
    answers = [
        mg.expectations(model),
        mg.expectations(model, {bad: lambda rows: rows[:, 0]}, exact=False, steps=10, chains=20),
        mg.estimate_many({bad: model}, steps=10, chains=20),
        mg.along({bad: model, "w": model}, chains=50),
    ]
    for answer in answers:
        for text in (str(answer), repr(answer), answer._repr_html_()):
            assert "a?b?[2J" in text or answer is answers[0]
            assert [c for c in text if not c.isprintable() and c not in "\n\xa0"] == []
    page = mg.report(model, tmp_path / "page.html", title=bad, steps=10, chains=20).path.read_text()
    assert "a?b?[2J" in page
    assert not any(c in page for c in bad if not c.isprintable())


@posix
def test_a_report_at_a_name_that_is_not_utf8(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.html"
    mg.report(mg.from_edges([[0, 1]]), os.fsdecode(path), steps=10, chains=20)
    with open(path, "rb") as file:
        assert "</html>" in file.read().decode()
