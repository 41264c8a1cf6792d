"""The study of intervals and warnings: its cells, its families, its whole calls, its command."""

import json
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import command

import marginalis as mg
from marginalis.examples import rbm_gaussian
from marginalis.studies import calibration, calls, families
from marginalis.studies.intervals import FAST, SLOW


@pytest.fixture
def small_study(monkeypatch):
    """Two cells per method, and no whole calls."""
    small = calibration.Scale((2,), (20, 100), 3, 240, 3_000_000, 100_000, 0, True)
    case = families.CASES[0]._replace(settings=(1.0,), make=lambda x, seed: rbm_gaussian(6, 9, seed=seed))
    monkeypatch.setattr(calibration, "USUAL", small)
    monkeypatch.setattr(families, "CASES", (case,))


def test_a_small_study(small_study, tmp_path):
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


def test_the_command(small_study, tmp_path):
    options = ["calibrate", "--repeats", 150, "--out", tmp_path]
    done = command(*options)
    assert done.returncode == 0
    assert "chosen" in done.stdout
    assert "alarms" in done.stdout
    rows = json.loads(command(*options, "--json").stdout)["rows"]
    assert len(rows) == 4
    assert rows[0]["model"] == "rbm-gaussian"
    with pytest.raises(ValueError, match="repeats"):
        calibration.calibrate(repeats=3)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot write"):
        calibration.make_folder(tmp_path / "file" / "deeper")


def test_whole_calls_are_judged(monkeypatch):
    """Every answer of a model that is easy holds nearly always; one that is wrong, and says nothing, is counted."""
    monkeypatch.setattr(calls, "BENNETT_GROUPS", 20)
    easy = families.Case("easy", "", (1.0,), lambda x, seed: rbm_gaussian(6, 9, seed=seed))
    rows = calls.judge_calls([easy], 2, 0, 1)
    assert [(row["answer"], row["model"], row["runs"]) for row in rows] == [
        (name, model, runs)
        for name, runs in zip(calls.ANSWERS, (2, 2, 40, 8), strict=True)
        for model in ("easy", "all")
    ]
    assert all(row["held"] >= 0.7 * row["runs"] and row["quiet"] == row["runs"] for row in rows)
    monkeypatch.setattr(calls, "exact_log_z", lambda model, **options: -1000.0)
    wrong = calls.judge_calls([easy], 1, 0, 1)
    assert all(row["held"] == 0 and row["quiet_and_wrong"] == row["runs"] for row in wrong)


@pytest.mark.parametrize("case", families.CASES, ids=lambda case: case.name)
def test_every_family_is_exact_and_seeded(case):
    if case.name == "digits":
        case = case._replace(settings=(1,))
    for setting in case.settings[:1]:
        first, again, other = (case.make(setting, seed) for seed in (1, 1, 2))
        assert mg.exact_log_z(first) == mg.exact_log_z(again) != mg.exact_log_z(other)


def test_a_family_without_its_data_is_left_out(monkeypatch, caplog):
    monkeypatch.setattr(families, "_digits_data", lambda: None)
    assert "digits" not in [case.name for case in families.available()]
    assert "digits is left out" in caplog.text


@pytest.mark.study
def test_unwarned_intervals_hold_in_every_quiet_cell():
    result = calibration.calibrate(quick=True, repeats=600)
    quiet = [row for row in result.cells if row["warned"] <= 0.5]
    assert len(quiet) > 30
    for row in quiet:
        assert calibration.inside(row["coverage_unwarned"], round(row["repeats"] * (1 - row["warned"])), 3.5), row
    for row in result.cells:  # where the interval fails, hardly a failure goes without a warning
        assert row["silent_miss"] < 0.07 + 3.5 * math.sqrt(0.05 * 0.95 / row["repeats"]), row
