"""The study of intervals and warnings: its cells, its families, its whole calls, its command."""

import itertools
import json
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import command
from scipy.special import logsumexp

import marginalis as mg
from marginalis.examples import rbm_gaussian
from marginalis.planning import search, tuning
from marginalis.studies import calibration, calls, families, hard_families, training
from marginalis.studies.finished_parts import FinishedParts
from marginalis.studies.intervals import FAST, SLOW


@pytest.fixture
def small_study(monkeypatch):
    """Two cells per method, and no whole calls."""
    small = calibration.Scale((2,), (20, 100), 3, 240, 3_000_000, 100_000, 0, True)
    case = families.CASES[0]._replace(settings=(1.0,), make=lambda x, seed: rbm_gaussian(6, 9, seed=seed))
    monkeypatch.setattr(calibration, "USUAL", small)
    monkeypatch.setattr(families, "CASES", (case,))
    monkeypatch.setattr(calibration, "FEW", {"rbm-gaussian": (1.0,)})


def test_a_study_does_not_depend_on_threads_or_pools(small_study, tmp_path):
    result = calibration.calibrate(repeats=240, seed=3, threads=1)
    assert result == calibration.calibrate(repeats=240, seed=3, threads=3)
    with ThreadPoolExecutor(2) as pool:
        assert result == calibration.calibrate(repeats=240, seed=3, pool=pool)
    assert sorted((r["method"], r["chains"]) for r in result.cells) == [
        ("ais", 20),
        ("ais", 100),
        ("mais", 20),
        ("mais", 100),
    ]
    assert all(row["repeats"] == 240 and row["ess"] < row["chains"] for row in result.cells)
    assert {row["interval"] for row in result.intervals} == {"chosen", *FAST, *SLOW}
    for table in (result.alarms, result.families):
        assert sum(row["cells"] for row in table) == len(result.cells) == 4
    assert result.calls == []
    calibration.make_folder(tmp_path / "new")
    calibration.write(result, tmp_path / "new")
    assert (tmp_path / "new" / "calibration.csv").read_text().count("\n") == 5


def test_the_calibrate_command(small_study, tmp_path):
    options = ["calibrate", "--repeats", 150, "--out", tmp_path]
    done = command(*options)
    assert done.returncode == 0
    assert "chosen" in done.stdout
    assert "alarms" in done.stdout
    lines = (tmp_path / "parts.jsonl").read_text().splitlines()
    assert len(lines) == 3
    (tmp_path / "parts.jsonl").write_text("\n".join([lines[0], lines[2][:100]]))  # Stopped while writing a part.
    tables = json.loads(command(*options, "--json", "--resume").stdout)
    assert len(tables["rows"]) == 4
    assert tables["rows"][0]["model"] == "rbm-gaussian"
    assert {row["interval"] for row in tables["intervals"]} == {"chosen", *FAST, *SLOW}
    assert [row["chains"] for row in tables["families"]] == [20, 100]
    again = (tmp_path / "parts.jsonl").read_text().splitlines()
    assert again[0] == lines[0]
    assert sorted(again) == sorted(lines)
    with pytest.raises(ValueError, match="resume needs keep"):
        calibration.calibrate(resume=True)
    with pytest.raises(ValueError, match=r"families is 'bars'; it must be one of rbm-gaussian"):
        calibration.calibrate(families=["bars"])
    with pytest.raises(ValueError, match="repeats"):
        calibration.calibrate(repeats=3)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot write"):
        calibration.make_folder(tmp_path / "file" / "deeper")


def test_whole_calls_are_judged(monkeypatch):
    """Nearly every answer about an easy model holds; an answer that is wrong without a warning is counted."""
    monkeypatch.setattr(calls, "BENNETT_GROUPS", 20)
    easy = families.Case("easy", "", (1.0,), lambda x, seed: rbm_gaussian(6, 9, seed=seed))
    rows = calls.judge_calls([easy], 4, 0, 1)
    assert [(row["answer"], row["model"], row["runs"]) for row in rows] == [
        (name, model, runs)
        for name, runs in zip(calls.ANSWERS, (4, 4, 4, 4, 16, 80), strict=True)
        for model in ("easy", "all")
    ]
    assert all(row["held"] >= 0.7 * row["numbers"] and row["quiet"] == row["runs"] for row in rows)
    assert {row["numbers"] / row["runs"] for row in rows} == {1, 15}
    wrong = calls.judge_calls([easy._replace(exact=lambda model: -1000.0)], 1, 0, 1)
    for row in wrong:
        assert (row["held"] == 0) == (row["answer"] != "means")
        assert row["numbers"] - row["held"] == row["quiet_and_wrong"]
        assert row["quiet_and_far_off"] == (row["answer"] in ("default call", "tolerance=0.1"))


def test_whole_calls_without_exact_sums_and_resumed(monkeypatch, tmp_path):
    """No exact sum confirms a path, the switch is restored, and finished parts are not repeated."""
    easy = families.Case("easy", "", (1.0,), lambda x, seed: rbm_gaussian(6, 9, seed=seed))
    asked = []
    soon = search.soon
    monkeypatch.setattr(search, "soon", lambda *given: asked.append(1) or soon(*given))
    monkeypatch.setattr(calls, "ANSWERS", {"default call": calls.ANSWERS["default call"]})
    before = tuning.TUNING
    first = calls.judge_calls([easy], 1, 0, 1, without_exact=True, parts=FinishedParts(tmp_path / "parts"))
    assert not asked
    assert before == tuning.TUNING
    monkeypatch.setattr(calls, "estimate", None)
    assert (
        calls.judge_calls([easy], 1, 0, 1, without_exact=True, parts=FinishedParts(tmp_path / "parts", True)) == first
    )
    monkeypatch.undo()
    calls.judge_calls([easy], 1, 0, 1)


@pytest.mark.parametrize("case", families.CASES, ids=lambda case: case.name)
def test_every_family_is_exact_and_seeded(case):
    for setting in case.settings[:1]:
        first, again, other = (case.make(setting, seed) for seed in (1, 1, 2))
        assert case.log_z(first) == case.log_z(again) != case.log_z(other)


def test_states_counted_by_their_numbers():
    """ln Z of models in which all pairs interact alike, beside a sum over all states."""
    table = np.array([[0.3, -0.2, 0.1], [-0.2, 1.0, 0.4], [0.1, 0.4, -0.5]])
    model = hard_families._complete(5, table, np.array([0.2, -0.4, 0.1]), 0.7)
    assert hard_families.log_z_of_counts(model) == pytest.approx(mg.exact_log_z(model), abs=1e-12)
    spins = hard_families._spin_one(6, 0.4, 0.3)
    squares = [sum(s) ** 2 / 12 - 0.4 * sum(x * x for x in s) for s in itertools.product((-1, 0, 1), repeat=6)]
    assert hard_families.log_z_of_counts(spins) == pytest.approx(np.logaddexp.reduce(np.array(squares) / 0.3))


def test_phases_of_equal_weight():
    """The two phases of `fields_against` weigh the same, and those of `blume_capel` do."""
    model = hard_families.fields_against(1.0, 3)
    features, w = model.n_hidden, model.weights
    weights = [
        on * model.hidden_bias.sum() + np.logaddexp(f := model.visible_bias + on * w.sum(axis=1), -f).sum()
        for on in (0, 1)
    ]
    assert features == 14
    assert weights[0] == pytest.approx(weights[1])
    assert np.logaddexp(*weights) <= mg.exact_log_z(model) < np.logaddexp(*weights) + 0.1
    counts, log_weights = hard_families._by_counts(hard_families.blume_capel(0.25, 0))
    ordered = abs(counts[:, 0] - counts[:, 2]) > 20
    assert logsumexp(log_weights[ordered]) == pytest.approx(logsumexp(log_weights[~ordered]), abs=1e-6)


def test_trained_machines_give_their_data_a_higher_likelihood():
    """Bars and stripes become more likely than independent pixels make them, by each way of training."""
    data = training.bars_and_stripes(3)
    assert len(np.unique(data, axis=0)) == 14
    for options in ({}, {"persistent": False, "sweeps": 5}, {"biases_of_data": False}):
        model = training.contrastive_divergence(data, 8, 300, 1, rate=0.5, **options)
        assert mg.log_likelihood(model, data).mean > -9 * np.log(2.0) + 1.0


def test_families_without_their_data_are_left_out(monkeypatch, caplog):
    monkeypatch.setattr(training, "digits", lambda: None)
    names = [case.name for case in families.available()]
    assert "bars" in names
    assert not any("digits" in name for name in names)
    assert "digits, digits-cd, digits-sklearn, zeros-and-ones are left out" in caplog.text


@pytest.mark.study
def test_unwarned_intervals_hold_in_every_quiet_cell():
    result = calibration.calibrate(quick=True, repeats=600, calls=0)
    quiet = [row for row in result.cells if row["warned"] <= 0.5]
    assert len(quiet) > 30
    for row in quiet:
        assert calibration.inside(row["coverage_unwarned"], round(row["repeats"] * (1 - row["warned"])), 3.5), row
    for row in result.cells:  # where the interval fails, hardly a failure goes without a warning
        assert row["silent_miss"] < 0.07 + 3.5 * math.sqrt(0.05 * 0.95 / row["repeats"]), row
