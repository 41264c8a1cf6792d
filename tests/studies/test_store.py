"""A store that loses nothing, and that nobody can take in."""

import contextlib
import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import command, posix

from marginalis.exact import duration
from marginalis.files.store import Row, Store
from marginalis.studies import STORE, reproduce


def cli(*args, **options):
    return command("reproduce", *args, **options)


def rows_of(path):
    return sqlite3.connect(path).execute("SELECT * FROM result ORDER BY 1,2,3,4,5,6,7").fetchall()


def without_time(rows):
    return [row[:-1] for row in rows]


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
from marginalis.studies import reproduce
from marginalis.files.store import Store
write, pieces = Store.write, []
def fatal(store, *args):
    write(store, *args)
    pieces.append(args)
    if len(pieces) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
Store.write = fatal
reproduce("ape-temperature", experiments=3, chains=100, out=sys.argv[1], threads=1)
"""


@posix
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


ROW = Row(0, "gaussian", 40, 1.0, 10, "ais", np.array([-1.0]), None)


def test_a_full_disk_leaves_what_was_written(tmp_path):
    store = Store(tmp_path / STORE)
    store.begin({"x": {}}, resume=False)
    store.write("x", [("first", [ROW])])
    size = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {size + 1}")
    many = [ROW._replace(steps=i) for i in range(20, 20_000)]
    with pytest.raises(OSError, match="full; what was finished is in it"):
        store.write("x", [("second", many)])
    assert store.read("x", 1, 1).done == {"first"}
    assert len(rows_of(tmp_path / STORE)) == 1
    store.write("x", [("third", [ROW._replace(instance=1)])])
    assert store.read("x", 2, 1).done == {"first", "third"}


def test_the_time_is_that_of_all_runs(tmp_path):
    """Of a run that was killed it is known up to the last piece; a run on an older store makes the table."""
    for item, seconds in (("a", 2.0), ("b", 5.0)):
        store = Store(tmp_path / STORE)
        store.begin({"x": {}}, resume=True)
        for part in (seconds, 3 * seconds, 2 * seconds):  # threads do not write in order
            store.write("x", [(f"{item}{part}", [])], part)
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


def assert_refused(done, message):
    assert (done.returncode, done.stdout) == (2, "")
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
        ("DELETE FROM done", "168 results of ape-temperature are missing or unexpected"),
        ("UPDATE result SET method = 'magic' WHERE method = 'ais'", "missing or unexpected"),
        (
            "UPDATE result SET free_energies = zeroblob(16) WHERE method = 'ais'",
            "72 results of ape-temperature cannot be read",
        ),
        ("UPDATE result SET free_energies = 'low' WHERE instance = 0", "84 results of ape-temperature cannot be read"),
        (
            "UPDATE result SET free_energies = x'000000000000f07f' WHERE instance = 0",
            "84 results of ape-temperature cannot be read",
        ),
        ("UPDATE result SET method = CAST(x'ff' AS TEXT) WHERE method = 'ais'", "damaged: Could not decode"),
        ("UPDATE settings SET value = '[1, 2]'", "the settings of ape-temperature cannot be read"),
        ("UPDATE settings SET value = 7", "the settings of ape-temperature cannot be read"),
        ("UPDATE settings SET value = x'ff'", "the settings of ape-temperature cannot be read"),
        ("UPDATE settings SET value = printf('%.*c', 100000, '[')", "the settings of ape-temperature cannot be read"),
        ("UPDATE settings SET value = json_object('seed', printf('%.*c', 10000, 'x'))", "cannot be resumed"),
        ("DROP TABLE done", "its tables are different"),
        ("DROP TABLE result; CREATE TABLE result (a, b)", "its tables are different"),
        ("ALTER TABLE result RENAME TO other; CREATE VIEW result AS SELECT * FROM other", "its tables are different"),
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
    assert_refused(done, "was removed or replaced during the run")


def test_a_failed_export_keeps_the_earlier_one(tmp_path, monkeypatch):
    store, path = Store(tmp_path / STORE), tmp_path / "out" / "x-runs.csv"
    path.parent.mkdir()
    store.begin({"x": {}}, resume=False)
    store.write("x", [("first", [ROW])])
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


@pytest.mark.parametrize("name", ["report.html", "ape-temperature.png", "ape-temperature-runs.csv"])
def test_outputs_are_checked_before_the_work(tmp_path, name):
    (tmp_path / name).mkdir()
    done = cli("ape-temperature", "--csv", "--out", tmp_path)
    assert_refused(done, f"{name}: it is a folder")


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


def test_results_on_a_pool_are_those_on_threads(tmp_path):
    arguments = {"experiments": 1, "chains": 20}
    reproduce("ape-temperature", out=tmp_path / "threads", **arguments)
    with ThreadPoolExecutor(2) as pool:
        reproduce("ape-temperature", out=tmp_path / "pool", pool=pool, **arguments)
    assert without_time(rows_of(tmp_path / "pool" / STORE)) == without_time(rows_of(tmp_path / "threads" / STORE))
