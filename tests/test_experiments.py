"""The paper's experiments at small size: numbers, orderings, and a store that loses nothing."""

import csv
import json
import math
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest

from marginalis.experiments import EXPERIMENTS, STORE, reproduce
from marginalis.experiments.sampling import Setting, derive, exact_row, make_model, sample_rows
from marginalis.experiments.store import Row, Store
from marginalis.experiments.table1 import INV_T, PRINTED, STEPS


def cli(*args):
    command = [sys.executable, "-m", "marginalis", "reproduce", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def rows_of(path):
    return sqlite3.connect(path).execute("SELECT * FROM result ORDER BY 1,2,3,4,5,6,7,8").fetchall()


def without_time(rows):
    return [row[:-1] for row in rows]


def test_the_printed_table_is_consistent():
    """Every printed row obeys the orderings of Theorem 2, so it was copied without slips of order."""
    for true, ais, mais in PRINTED.values():
        assert all(a >= m >= true for a, m in zip(ais, mais, strict=True))
        assert list(ais) == sorted(ais, reverse=True)
    assert set(PRINTED) == set(INV_T)


def test_table1_agrees_where_it_should(tmp_path):
    """At 1/T ≤ 1 a small run agrees with the printed means, and the orderings hold within error."""
    (result,) = reproduce("table1", experiments=12, chains=1000, out=tmp_path)
    rows = {(r["inv_t"], r["steps"], r["method"]): r for r in result.rows}
    assert len(rows) == 7 * 7
    for inv_t in INV_T:
        assert abs(rows[inv_t, None, "true"]["z"]) < 4.5
        for steps in STEPS:
            ais, mais = (rows[inv_t, steps, m] for m in ("ais", "mais"))
            assert ais["error"] > mais["error"] - 4.5 * math.hypot(ais["error_stderr"], mais["error_stderr"])
            assert mais["error"] > -4.5 * mais["error_stderr"]
            if inv_t <= 1:
                assert abs(ais["z_error"]) < 4.5
                assert abs(mais["z_error"]) < 4.5
    assert rows[8.0, 10, "ais"]["printed"] == -3.70846
    assert rows[8.0, 10, "ais"]["printed_error"] == pytest.approx(0.09435)


def test_both_estimates_of_one_run_are_those_of_separate_runs():
    setting = Setting(0, "hopfield", 40, 2.0)
    model = make_model("x", 0, setting)
    both = sample_rows(model, setting, 20, ("ais", "mais"), 5, 64, trials=3)
    alone = sample_rows(model, setting, 20, ("ais",), 5, 64, trials=3)
    alone += sample_rows(model, setting, 20, ("mais",), 5, 64, trials=3)
    assert without_time(both) == without_time(alone)
    assert {r.trial for r in both} == {0, 1, 2}
    assert exact_row(model, setting).method == "exact"


def test_seeds_are_unrelated():
    assert derive(0, "a", 1) != derive(0, "a", 2) != derive(1, "a", 2)
    a, b = (make_model("x", 0, Setting(0, "gaussian", 40, t)) for t in (1.0, 8.0))
    assert np.array_equal(a.weights, b.weights)
    assert not np.array_equal(a.weights, make_model("x", 0, Setting(1, "gaussian", 40, 1.0)).weights)


@pytest.mark.parametrize("name", ["ape-temperature", "size-ratio", "convergence"])
def test_each_figure_at_small_size(tmp_path, name):
    (result,) = reproduce(name, experiments=2, chains=64, out=tmp_path)
    assert result.rows
    assert all(np.isfinite(r["mean"]) and r["experiments"] == 2 for r in result.rows)
    assert result.figure.read_bytes().startswith(b"\x89PNG")
    with open(tmp_path / f"{name}.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(result.rows)
    page = (tmp_path / "report.html").read_text()
    assert "data:image/png;base64" in page
    assert result.experiment.title in page


def test_command_line(tmp_path):
    out = tmp_path / "out"
    done = cli("size-ratio", "--experiments", 1, "--chains", 32, "--out", out, "--json", "--csv")
    assert done.returncode == 0
    rows = json.loads(done.stdout, parse_constant=pytest.fail)["rows"]
    assert {"alpha", "inv_t", "steps", "method", "mean", "stderr"} <= set(rows[0])
    with open(out / "size-ratio-runs.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 5 * 3 * (1 + 3 * 2)
    again = cli("size-ratio", "--experiments", 1, "--chains", 32, "--out", out)
    assert again.returncode == 2
    assert "add --resume" in again.stderr
    other = cli("size-ratio", "--experiments", 1, "--chains", 33, "--seed", 4, "--out", out, "--resume")
    assert other.returncode == 2
    assert "chains was 32, is 33; seed was 0, is 4" in other.stderr
    unknown = cli("table2", "--out", tmp_path / "no")
    assert unknown.returncode == 2
    assert "table1, ape-temperature, size-ratio, convergence, all" in unknown.stderr


def test_a_store_of_another_version_is_refused(tmp_path):
    reproduce("ape-temperature", experiments=1, chains=16, out=tmp_path)
    with sqlite3.connect(tmp_path / STORE) as db:
        (text,) = db.execute("SELECT value FROM settings").fetchone()
        db.execute("UPDATE settings SET value = ?", (text.replace('"version": "', '"version": "0.0.old-'),))
    with pytest.raises(ValueError, match=r"version was '0\.0\.old-"):
        reproduce("ape-temperature", experiments=1, chains=16, out=tmp_path, resume=True)
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / STORE).write_bytes(b"this is not a database, it is a text file" * 50)
    with pytest.raises(ValueError, match="not a store of results"):
        reproduce("ape-temperature", out=tmp_path / "junk")


def test_killed_and_resumed_ends_with_the_same_bits(tmp_path):
    arguments = ("ape-temperature", "--experiments", 12, "--chains", 1000)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert cli(*arguments, "--out", whole).returncode == 0
    command = [sys.executable, "-m", "marginalis", "reproduce", *map(str, arguments), "--out", str(broken)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if sqlite3.connect(broken / STORE).execute("SELECT COUNT(*) FROM done").fetchone()[0] >= 2:
                break
        except sqlite3.OperationalError:
            pass
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 0 < len(rows_of(broken / STORE)) < len(rows_of(whole / STORE))
    assert cli(*arguments, "--out", broken, "--resume").returncode == 0
    assert without_time(rows_of(broken / STORE)) == without_time(rows_of(whole / STORE))
    same = [(folder / "ape-temperature.csv").read_text().splitlines() for folder in (whole, broken)]
    assert [line.split(",")[:6] for line in same[0]] == [line.split(",")[:6] for line in same[1]]


def test_two_runs_on_one_file(tmp_path):
    """Both finish, and the store holds each row once, as one run would have left it."""
    arguments = ("ape-temperature", "--experiments", 3, "--chains", 200)
    reproduce("ape-temperature", experiments=1, chains=200, out=tmp_path / "two")
    command = [sys.executable, "-m", "marginalis", "reproduce", *map(str, arguments)]
    command += ["--out", str(tmp_path / "two"), "--resume"]
    runs = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [run.wait(timeout=200) for run in runs] == [0, 0]
    reproduce("ape-temperature", experiments=3, chains=200, out=tmp_path / "one")
    assert without_time(rows_of(tmp_path / "two" / STORE)) == without_time(rows_of(tmp_path / "one" / STORE))


def test_a_full_disk_leaves_what_was_written(tmp_path):
    store = Store(tmp_path / STORE)
    store.begin({"x": {}}, resume=False)
    row = Row(0, "gaussian", 40, 1.0, 10, "ais", 0, -1.0, None)
    store.write("x", "first", [row])
    size = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {size + 1}")
    many = [row._replace(trial=i) for i in range(1, 20_000)]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.write("x", "second", many)
    assert store.done("x") == {"first"}
    assert len(rows_of(tmp_path / STORE)) == 1
    store.write("x", "third", [row._replace(instance=1)])
    assert store.done("x") == {"first", "third"}


def test_a_refused_claim_leaves_no_trace(tmp_path):
    """`all` on a store that holds one experiment is refused whole: the others are not claimed by it."""
    reproduce("ape-temperature", experiments=1, chains=16, out=tmp_path)
    with pytest.raises(ValueError, match="holds results of ape-temperature already"):
        reproduce("all", experiments=1, chains=16, out=tmp_path)
    reproduce("size-ratio", experiments=1, chains=8, seed=5, out=tmp_path)


def test_two_claims_at_once_cannot_both_win(tmp_path):
    stores = [Store(tmp_path / STORE) for _ in range(2)]
    stores[0].begin({"x": {"seed": 1}}, resume=True)
    with pytest.raises(ValueError, match="seed was 1, is 2"):
        stores[1].begin({"x": {"seed": 2}}, resume=True)


@pytest.mark.parametrize(
    ("options", "message"), [(dict(experiments=0), "experiments is 0"), (dict(chains=0), "chains is 0")]
)
def test_bad_numbers_leave_no_store(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        reproduce("table1", out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_names_and_defaults_are_the_papers():
    assert {name: (e.experiments, e.chains) for name, e in EXPERIMENTS.items()} == {
        "table1": (1000, 1000),
        "ape-temperature": (1000, 1000),
        "size-ratio": (4000, 1000),
        "convergence": (1000, 10000),
    }
