"""The paper's experiments at small size: numbers, orderings, and a store that loses nothing."""

import contextlib
import csv
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from conftest import command

from marginalis.exact import duration
from marginalis.experiments import EXPERIMENTS, STORE, reproduce, sampling, table1
from marginalis.experiments.sampling import Setting, derive, exact_row, make_model, sample_rows
from marginalis.experiments.store import Row, Store
from marginalis.experiments.table1 import INV_T, PRINTED, STEPS


@pytest.fixture(autouse=True, scope="module")
def exact_once():
    """Sum each model once: the same few come in many of these tests, and the sum takes longest."""
    known, real = {}, sampling.exact_log_z

    def exact(model, **options):
        key = model.weights.tobytes(), model.visible_bias.tobytes(), model.hidden_bias.tobytes(), model.temperature
        if key not in known:
            known[key] = real(model, **options)
        return known[key]

    with mock.patch.object(sampling, "exact_log_z", exact):
        yield


def cli(*args, **options):
    return command("reproduce", *args, **options)


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


def test_table1_agrees_where_it_should(tmp_path, monkeypatch):
    """At 1/T ≤ 1 a small run agrees with the printed means, and the orderings hold within error."""
    some = (0.4, 1.0, 4.0, 8.0)  # of the temperatures
    monkeypatch.setattr(table1, "INV_T", some)
    (result,) = reproduce("table1", experiments=6, chains=1000, out=tmp_path)
    rows = {(r["inv_t"], r["steps"], r["method"]): r for r in result.rows}
    assert len(rows) == 4 * 7
    for inv_t in some:
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


KILLED = """
import os, signal, sys
from marginalis.experiments import reproduce
from marginalis.experiments.store import Store
write, pieces = Store.write, []
def fatal(store, *args):
    write(store, *args)
    pieces.append(args)
    if len(pieces) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
Store.write = fatal
reproduce("ape-temperature", experiments=3, chains=100, out=sys.argv[1], threads=1)
"""


def test_killed_and_resumed_ends_with_the_same_bits(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(broken)], timeout=300)
    assert killed.returncode == -signal.SIGKILL
    reproduce("ape-temperature", experiments=3, chains=100, out=whole)
    assert 3 * len(rows_of(broken / STORE)) == len(rows_of(whole / STORE)) > 0
    assert cli("ape-temperature", "--experiments", 3, "--chains", 100, "--out", broken, "--resume").returncode == 0
    assert without_time(rows_of(broken / STORE)) == without_time(rows_of(whole / STORE))
    same = [(folder / "ape-temperature.csv").read_text().splitlines() for folder in (whole, broken)]
    assert [line.split(",")[:6] for line in same[0]] == [line.split(",")[:6] for line in same[1]]


def test_two_runs_on_one_file(tmp_path):
    """Both finish, and the store holds each row once, as one run would have left it."""
    arguments = ("ape-temperature", "--experiments", 2, "--chains", 20)
    reproduce("ape-temperature", experiments=1, chains=20, out=tmp_path / "two")
    command = [sys.executable, "-m", "marginalis", "reproduce", *map(str, arguments)]
    command += ["--out", str(tmp_path / "two"), "--resume"]
    runs = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [run.wait(timeout=200) for run in runs] == [0, 0]
    reproduce("ape-temperature", experiments=2, chains=20, out=tmp_path / "one")
    assert without_time(rows_of(tmp_path / "two" / STORE)) == without_time(rows_of(tmp_path / "one" / STORE))


ROW = Row(0, "gaussian", 40, 1.0, 10, "ais", 0, -1.0, None)


def test_a_full_disk_leaves_what_was_written(tmp_path):
    store = Store(tmp_path / STORE)
    store.begin({"x": {}}, resume=False)
    store.write("x", "first", [ROW])
    size = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {size + 1}")
    many = [ROW._replace(trial=i) for i in range(1, 20_000)]
    with pytest.raises(OSError, match="full; what was finished is in it"):
        store.write("x", "second", many)
    assert store.read("x", 1, 1).done == {"first"}
    assert len(rows_of(tmp_path / STORE)) == 1
    store.write("x", "third", [ROW._replace(instance=1)])
    assert store.read("x", 2, 1).done == {"first", "third"}


def test_the_time_is_that_of_all_runs(tmp_path):
    """Of a run that was killed it is known up to the last piece; a run on an older store makes the table."""
    for item, seconds in (("a", 2.0), ("b", 5.0)):
        store = Store(tmp_path / STORE)
        store.begin({"x": {}}, resume=True)
        for part in (seconds, 3 * seconds, 2 * seconds):  # threads do not write in order
            store.write("x", f"{item}{part}", [], part)
        store.close()
    assert Store(tmp_path / STORE).read("x", 1, 1).seconds == 6.0 + 15.0
    with sqlite3.connect(tmp_path / STORE) as db:
        db.execute("DROP TABLE time")
    assert Store(tmp_path / STORE).read("x", 1, 1).seconds == 0.0
    (first,) = reproduce("ape-temperature", experiments=1, chains=16, out=tmp_path / "out")
    (second,) = reproduce("ape-temperature", experiments=1, chains=16, out=tmp_path / "out", resume=True)
    assert second.seconds == first.seconds > 0.0
    assert f"<dt>run time</dt><dd>{duration(first.seconds)}</dd>" in (tmp_path / "out" / "report.html").read_text()


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A finished store, as bytes, and its table."""
    folder = tmp_path_factory.mktemp("good")
    (result,) = reproduce("ape-temperature", experiments=2, chains=16, out=folder)
    return (folder / STORE).read_bytes(), result.rows


def resumed(folder, experiments=2):
    return cli("ape-temperature", "--experiments", experiments, "--chains", 16, "--out", folder, "--resume", "--json")


def assert_refused(done, message, code=2):
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("marginalis: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 300


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DELETE FROM result WHERE method = 'exact'", "24 results of ape-temperature are missing"),
        ("DELETE FROM result WHERE steps > 10", "96 results of ape-temperature are missing"),
        ("DELETE FROM result WHERE instance = 1", "84 results of ape-temperature are missing"),
        ("DELETE FROM result", "168 results of ape-temperature are missing"),
        ("DELETE FROM done", "168 results of ape-temperature are missing, or should not be there"),
        ("UPDATE result SET method = 'magic' WHERE method = 'ais'", "should not be there"),
        ("UPDATE result SET trial = 1 WHERE method = 'ais'", "72 results of ape-temperature cannot be read"),
        ("UPDATE result SET free_energy = 'low' WHERE instance = 0", "84 results of ape-temperature cannot be read"),
        ("UPDATE result SET free_energy = 9e999 WHERE instance = 0", "84 results of ape-temperature cannot be read"),
        ("UPDATE result SET method = CAST(x'ff' AS TEXT) WHERE method = 'ais'", "damaged: Could not decode"),
        ("UPDATE settings SET value = '[1, 2]'", "the settings of ape-temperature cannot be read"),
        ("UPDATE settings SET value = 7", "the settings of ape-temperature cannot be read"),
        ("UPDATE settings SET value = x'ff'", "the settings of ape-temperature cannot be read"),
        ("UPDATE settings SET value = printf('%.*c', 100000, '[')", "the settings of ape-temperature cannot be read"),
        ("UPDATE settings SET value = json_object('seed', printf('%.*c', 10000, 'x'))", "cannot be resumed"),
        ("DROP TABLE done", "its tables are other ones"),
        ("DROP TABLE result; CREATE TABLE result (a, b)", "its tables are other ones"),
        ("ALTER TABLE result RENAME TO other; CREATE VIEW result AS SELECT * FROM other", "its tables are other ones"),
    ],
)
def test_a_store_that_was_tampered_with_is_refused(good, tmp_path, change, message):
    (tmp_path / STORE).write_bytes(good[0])
    with contextlib.closing(sqlite3.connect(tmp_path / STORE)) as db:
        db.executescript(change)
    assert_refused(resumed(tmp_path), message)


def test_damaged_bytes_are_refused_or_harmless(good, tmp_path):
    """Whatever happens to the bytes, the answer is one line, or a whole table."""
    rng, refused = np.random.default_rng(0), 0
    for trial in range(60):
        damaged = bytearray(good[0])
        if trial % 3 == 0:  # a page of zeros
            page = 4096 * (trial // 3 % (len(damaged) // 4096))
            damaged[page : page + 4096] = bytes(4096)
        elif trial % 3 == 1:
            del damaged[rng.integers(1, len(damaged)) :]
        else:
            for place in rng.integers(len(damaged), size=30):
                damaged[place] = rng.integers(256)
        folder = tmp_path / str(trial)
        folder.mkdir()
        (folder / STORE).write_bytes(damaged)
        done = resumed(folder)
        if done.returncode:
            assert_refused(done, STORE)
            refused += 1
        else:
            assert len(json.loads(done.stdout)["rows"]) == len(good[1])
    assert refused > 40


def test_a_damaged_part_that_is_not_asked_for_is_refused_too(good, tmp_path):
    for page in range(0, len(good[0]), 4096):
        folder = tmp_path / str(page)
        folder.mkdir()
        (folder / STORE).write_bytes(good[0][:page] + bytes(4096) + good[0][page + 4096 :])
        assert_refused(resumed(folder, experiments=1), STORE)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_that_vanishes_is_an_error(tmp_path, monkeypatch, replaced):
    write = Store.write

    def spoil(store, *args):
        write(store, *args)
        store.path.unlink()
        if replaced:
            store.path.touch()

    monkeypatch.setattr(Store, "write", spoil)
    done = cli("ape-temperature", "--experiments", 1, "--chains", 16, "--out", tmp_path)
    assert_refused(done, "was removed or replaced during the run", code=1)


def test_a_failed_export_keeps_the_earlier_one(tmp_path, monkeypatch):
    store, path = Store(tmp_path / STORE), tmp_path / "out" / "x-runs.csv"
    path.parent.mkdir()
    store.begin({"x": {}}, resume=False)
    store.write("x", "first", [ROW])
    store.export("x", path)
    before = path.read_text()
    assert before.splitlines()[1] == "0,gaussian,40,1.0,10,ais,0,-1.0,"

    class Full:
        def __init__(self, file):
            self.writerow = csv_writer(file).writerow

        def writerows(self, rows):
            raise OSError(28, "No space left on device")

    csv_writer = csv.writer
    monkeypatch.setattr(csv, "writer", Full)
    with pytest.raises(OSError, match=r"x-runs\.csv: No space left"):
        store.export("x", path)
    assert path.read_text() == before
    assert os.listdir(path.parent) == [path.name]


def test_an_interrupt_does_not_wait_for_the_pieces_in_hand(tmp_path):
    """These would take minutes."""

    def tick(fraction):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce("convergence", experiments=1, chains=10**6, out=tmp_path, threads=2, progress=tick)


@pytest.mark.parametrize("name", ["report.html", "ape-temperature.png", "ape-temperature-runs.csv"])
def test_outputs_are_checked_before_the_work(tmp_path, name):
    (tmp_path / name).mkdir()
    done = cli("ape-temperature", "--csv", "--out", tmp_path)
    assert_refused(done, f"{name}: it is a folder")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_table_fits_a_terminal(tmp_path, monkeypatch, encoding):
    monkeypatch.setenv("COLUMNS", "80")
    done = cli("table1", "--experiments", 2, "--chains", 16, "--out", tmp_path, encoding=encoding)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    starts = [i for i, line in enumerate(lines) if line.split()[:3] == ["t", "steps", "method"]]
    assert [lines[i].split()[3:] for i in starts] == [
        ["mean", "stderr", "printed", "z"],
        ["error", "stderr", "error", "error"],
    ]
    first = lines[starts[0] + 1].split()
    assert first[:2] == ["0.2", "true"]
    assert float(first[2]) == pytest.approx(-0.6976, abs=1e-3)
    assert first[4] == "-0.69759"
    assert len(lines[starts[0] + 1 :]) > 49


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
