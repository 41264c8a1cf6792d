"""The page about a model: what is on it, and that it stands alone."""

import json
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from dataclasses import replace
from html import escape
from html.parser import HTMLParser

import numpy as np
import pytest
from conftest import command, random_rbm

import marginalis as mg
from marginalis.reporting.html import page_of

QUICK = {"engine": "numpy", "steps": 10, "chains": 40}
SECTIONS = ["model", "bounds", "weights", "temperature", "opinion", "exact", "likelihood", "provenance"]
MODEL = random_rbm(np.random.default_rng(3), 4, 5)
ROWS = np.random.default_rng(4).choice([-1.0, 1.0], (30, 4))


class Page(HTMLParser):
    """The text of every section, all links, and whether every tag is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.links, self.ids, self.name = [], {"": ""}, [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag == "section":
            self.name = found["id"]
            self.text[self.name] = ""
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[key] for key in ("href", "src", "xlink:href") if key in found]
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "title"} & set(self.open):
            self.text[self.name] += data


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    result = mg.report(MODEL, path, data=ROWS, title="<i>name</i>", **QUICK)
    return result, path.read_text()


@pytest.fixture
def plain(monkeypatch):
    """Pages without figures are made faster."""
    monkeypatch.setattr("marginalis.plots.inline_svg", lambda draw: "<svg></svg>")


def test_the_page_has_every_section(made):
    result, text = made
    page = Page(text)
    assert list(page.text) == ["", *SECTIONS]
    e = result.estimate
    assert f"F = {e.free_energy:.4f}"[:9] in page.text[""]
    first, second = (page.text[""].index(words) for words in (f"F = {-mg.exact_log_z(MODEL):.10g}", "estimate: F = "))
    assert first < second  # the best number is the one in large type
    assert result.exact == pytest.approx(mg.exact_log_z(MODEL))
    assert f"{result.bounds.lower:.3f}"[:5] in page.text["bounds"]
    assert f"{result.likelihood.mean:.4f}" in page.text["likelihood"]
    assert result.likelihood.mean == pytest.approx(mg.log_likelihood(MODEL, ROWS, float(result.exact)).mean)
    assert "complete bipartite graph" in page.text["model"]
    assert result.estimate.record.model in page.text["provenance"]
    assert "mg.report(model, " in page.text["provenance"]
    assert "seed=0" in page.text["provenance"]
    assert text.count("<figure>") == 8
    assert text.count(">exact<") == 3  # beside all answers, along ln Z, along the heat capacity
    assert result.thermodynamics.betas[-1] == pytest.approx(1.0 / MODEL.temperature)


def test_the_page_loads_no_other_file_and_supports_dark_mode(made):
    page = Page(made[1])
    local = ("#", "data:")
    assert [link for link in page.links if not link.startswith(local)] == []
    assert not re.search(r"url\((?!#)|@import|<script", made[1])
    assert len(page.ids) == len(set(page.ids))
    assert "#000000" not in made[1]
    assert "prefers-color-scheme: dark" in made[1]


def test_names_are_escaped_in_html(made):
    assert "<h1>&lt;i&gt;name&lt;/i&gt;</h1>" in made[1]
    assert "<i>" not in made[1]


def test_the_json_has_the_numbers_of_the_page(made):
    (link,) = (link for link in Page(made[1]).links if link.startswith("data:application/json;base64,"))
    found = json.loads(b64decode(link.partition(",")[2]))
    assert found == json.loads(json.dumps(made[0].to_dict()))
    assert found["estimate"]["free_energy"] == made[0].estimate.free_energy


def test_one_figure_compares_all_estimates_of_f(made):
    said = made[0].said()
    assert len(said) == 4
    for value, low, high in said.values():
        assert low <= high
        assert np.isnan(value) or low <= value <= high


@pytest.mark.usefixtures("plain")
def test_the_same_call_makes_the_same_answers(made, tmp_path):
    again = mg.report(MODEL, tmp_path / "again.html", **QUICK, exact_seconds=0.0)
    assert again.estimate == made[0].estimate
    assert again.exact is None
    assert again.bounds.lower == made[0].bounds.lower
    page = Page((tmp_path / "again.html").read_text())
    assert "Not computed: " in page.text["exact"]
    assert "No data were given" in page.text["likelihood"]
    assert repr(again).startswith("F = ")


@pytest.mark.usefixtures("plain")
def test_the_page_says_whether_other_paths_were_tried(made):
    assert not made[0].was_free
    assert "no other path was tried" in Page(made[1]).text["opinion"]
    free = Page(page_of(replace(made[0], was_free=True)).decode())
    assert "Short trial runs along other paths" in free.text["opinion"]
    doubtful = replace(made[0].estimate, notes=("the path from <elsewhere> finds more",))
    noted = Page(page_of(replace(made[0], was_free=True, estimate=doubtful)).decode())
    assert "the path from <elsewhere> finds more" in noted.text["opinion"]
    assert "⚠ the path from <elsewhere> finds more" in noted.text[""]


def test_a_model_of_factors_has_all_answers(tmp_path):
    factors = mg.FactorModel((2, 2, 2), ((0, 1, 2),), (np.log(np.arange(1.0, 9.0)).reshape(2, 2, 2),))
    result = mg.report(factors, tmp_path / "f.html", steps=20, chains=100)
    assert result.free_energy == pytest.approx(-np.log(36.0))
    assert result.bounds.lower < result.free_energy < result.bounds.upper
    page = Page((tmp_path / "f.html").read_text())
    assert {"bounds", "temperature", "exact"} < set(page.text)
    assert "largest factor" in page.text["model"]


def test_a_model_with_zeros_has_its_exact_value_only(tmp_path):
    tables = np.log(np.arange(1.0, 9.0)).reshape(2, 2, 2)
    tables[0, 1, 0] = -np.inf
    factors = mg.FactorModel((2, 2, 2), ((0, 1, 2),), (tables,))
    result = mg.report(factors, tmp_path / "f.html")
    assert result.free_energy == pytest.approx(-np.log(33.0))
    page = Page((tmp_path / "f.html").read_text())
    assert list(page.text) == ["", "estimate", "model", "exact", "likelihood", "provenance"]
    with pytest.raises(ValueError, match="there is no likelihood"):
        mg.report(factors, tmp_path / "g.html", data=ROWS)
    with pytest.raises(mg.ModelTooLarge, match="there is no estimate"):
        mg.report(factors, tmp_path / "g.html", exact_seconds=0.0)


@pytest.mark.usefixtures("plain")
def test_each_warning_is_in_the_section_it_concerns(made):
    """What is doubtful about F comes first; remarks about a part stand there."""
    b = replace(made[0].bounds, samples="approximate")
    odd = replace(made[0].thermodynamics, warnings=("hot",))
    page = Page(page_of(replace(made[0], bounds=b, thermodynamics=odd)).decode())
    start = b.warnings[0]
    assert start in page.text["bounds"]
    assert start not in page.text[""]
    assert "⚠ hot" in page.text["temperature"]
    assert "hot" not in page.text[""]
    doubtful = replace(made[0].estimate, notes=("look out",))
    assert "⚠ look out" in Page(page_of(replace(made[0], estimate=doubtful)).decode()).text[""]


@pytest.mark.usefixtures("plain")
def test_missing_sections_of_large_and_gaussian_models_have_a_reason(tmp_path):
    big = mg.rbm(np.full((2, 401), 0.01), np.zeros(2), np.zeros(401))
    mg.report(big, tmp_path / "big.html", steps=2, chains=5, engine="numpy")
    assert "403 variables and 802 couplings are too many to draw" in (tmp_path / "big.html").read_text()
    smooth = mg.rbm(np.full((2, 2), 0.1), np.zeros(2), np.zeros(2), units=("gaussian", "spin"))
    result = mg.report(smooth, tmp_path / "smooth.html", **QUICK)
    assert result.thermodynamics is None
    assert [mg.report(smooth, tmp_path / "x.html", method=m, **QUICK).summed_out for m in ("ais", "mais-h")] == [0, 2]
    assert "no state at infinite temperature" in Page((tmp_path / "smooth.html").read_text()).text["temperature"]


def test_without_matplotlib_there_are_no_figures(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "marginalis.plots.canvas", raising=False)
    mg.report(MODEL, tmp_path / "bare.html", **QUICK)
    text = (tmp_path / "bare.html").read_text()
    assert text.count("No figure: figures need matplotlib") == 7
    assert list(Page(text).text) == ["", *SECTIONS]


@pytest.mark.parametrize("path", ["nowhere/report.html", "."])
def test_a_page_that_cannot_be_written_is_refused_before_the_work(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("marginalis.reporting.report.exact_log_z", None)  # which comes first
    with pytest.raises(ValueError, match="cannot write"):
        mg.report(MODEL, path)


def test_bad_rows_are_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("marginalis.reporting.report.exact_log_z", None)
    with pytest.raises(ValueError, match="data has 3 columns"):
        mg.report(MODEL, tmp_path / "r.html", data=ROWS[:, :3])
    assert list(tmp_path.iterdir()) == []


def test_the_report_command(tmp_path):
    mg.save(MODEL, tmp_path / "m.npz")
    np.save(tmp_path / "rows.npy", ROWS)
    out, flags = tmp_path / "r.html", ["--steps", 10, "--chains", 40, "--engine", "numpy"]
    done = command("report", tmp_path / "m.npz", "-o", out, "--data", tmp_path / "rows.npy", "--json", *flags)
    assert done.returncode == 0
    assert json.loads(done.stdout)["estimate"]["steps"] == 10
    page = Page(out.read_text())
    assert f"marginalis report {tmp_path / 'm.npz'} -o {out} --data" in page.text["provenance"]
    assert "m.npz" in page.text[""]
    done = command("report", tmp_path / "m.npz", "-o", tmp_path / "m.npz")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "named twice" in done.stderr


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PROBE = """<!doctype html><meta charset="utf-8"><body><script>
function look(frame) {
  const page = frame.contentDocument.documentElement;
  const said = document.createElement("p");
  said.textContent = [frame.width, page.scrollWidth, page.querySelectorAll("section").length,
    page.querySelectorAll("svg").length, page.querySelector(".value").getBoundingClientRect().top].join(" ");
  document.body.append(said);
}
</script>
FRAMES
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_in_a_browser_nothing_overflows(made, tmp_path):
    """At the width of a phone and of a screen, without a word on the console."""
    frame = '<iframe width="{}" height="900" onload="look(this)" srcdoc="{}"></iframe>'
    frames = "".join(frame.format(width, escape(made[1])) for width in (420, 1100))
    (tmp_path / "probe.html").write_text(PROBE.replace("FRAMES", frames))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=5000"]
    home = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [CHROMIUM, *flags, home, "--dump-dom", (tmp_path / "probe.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.findall(r"<p>(\d+) (\d+) (\d+) (\d+) ([\d.]+)</p>", done.stdout)
    assert {width for width, *_ in found} == {"420", "1100"}
    for width, scroll, sections, figures, top in found:
        assert int(scroll) <= int(width)
        assert (int(sections), int(figures)) == (len(SECTIONS), 8)
        assert float(top) < 300.0  # the value is seen first
    assert "CONSOLE" not in done.stderr
