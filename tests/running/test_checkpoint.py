"""Finished chains on disk: the same command goes on after any stop, with the same bits."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import command, random_rbm

import marginalis as mg
from marginalis.parallel.ledger import Ledger
from marginalis.running import checkpoint, parts

OPTIONS = {"steps": 20, "chains": 1000, "engine": "numpy", "seed": 4, "first_chain": 5}


@pytest.fixture(scope="module")
def model():
    return random_rbm(np.random.default_rng(0), 5, 7)


@pytest.fixture(scope="module")
def alone(model):
    return mg.estimate(model, **OPTIONS)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    def small(units, seconds, start=0, **_):
        return Ledger(units, seconds, most=max(1, units // 10), start=start)

    monkeypatch.setattr(parts, "Ledger", small)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.checkpoint"


class Stopped(Exception):
    pass


def stop_at(share):
    def stop(fraction):
        if fraction >= share:
            raise Stopped

    return stop


def pieces(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT first, chains FROM piece ORDER BY number").fetchall()


def test_a_stopped_run_goes_on_where_it_was(model, alone, path):
    with pytest.raises(Stopped):
        mg.estimate(model, checkpoint=path, progress=stop_at(0.4), **OPTIONS)
    before = pieces(path)
    assert 300 <= sum(chains for _, chains in before) < 900
    heard = []
    shared = mg.estimate(model, checkpoint=path, pool=_Map(), progress=heard.append, **OPTIONS)
    np.testing.assert_array_equal(alone.log_weights, shared.log_weights)
    assert heard[0] > 0.4
    after = pieces(path)
    assert after[: len(before)] == before
    assert sum(chains for _, chains in after) == 1000  # none twice
    assert mg.estimate(model, checkpoint=str(path), **OPTIONS) == alone  # nothing left to do
    assert pieces(path) == after


class _Map:
    def map(self, function, items):
        return [function(item) for item in items]


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, **o: mg.estimate(model, method="ais", steps=9, chains=200, **o).log_weights,
        lambda model, **o: mg.estimate(model, resample=0.9, populations=10, steps=40, chains=200, **o).log_weights,
        lambda model, **o: mg.estimate(model, record=True, steps=20, chains=200, **o).curve.log_weights,
        lambda model, **o: mg.thermodynamics(model, [0.3, 1.0], steps=10, chains=200, **o).heat_capacity,
        lambda model, **o: mg.along([model, model], steps=20, chains=200, **o).log_weights,
        lambda model, **o: np.array(mg.bound(model, steps=5, chains=200, **o).interval),
        lambda model, **o: mg.expectations(model, exact=False, steps=5, chains=200, **o).means,
        lambda model, **o: mg.estimate(model, tolerance=0.3, **o).log_weights,
    ],
)
def test_every_answer_can_be_kept(model, path, ask):
    found = [ask(model, **given) for given in ({}, {"checkpoint": path}, {"checkpoint": path})]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)  # of energies: matrix products round
    np.testing.assert_array_equal(found[1], found[2])
    number = len(pieces(path))
    assert number > 0
    ask(model, checkpoint=path)
    assert len(pieces(path)) == number


def test_the_checkpoint_of_another_run_is_refused(model, path):
    mg.estimate(model, checkpoint=path, **OPTIONS)
    for change in ({"steps": 30}, {"seed": 5}, {"chains": 16}, {"base": "biases"}, {"schedule": [0.0, 0.5, 1.0]}):
        (name,) = change
        options = {**OPTIONS, **change}
        if name == "schedule":
            del options["steps"]
        with pytest.raises(ValueError, match=rf"run.checkpoint cannot be resumed: .*{name} was "):
            mg.estimate(model, checkpoint=path, **options)
    with pytest.raises(ValueError, match="cannot be resumed: model was '"):
        mg.estimate(random_rbm(np.random.default_rng(1), 5, 7), checkpoint=path, **OPTIONS)
    with pytest.raises(ValueError, match="cannot be resumed: answer was 'mais', is 'forward and reverse'"):
        mg.bound(model, checkpoint=path, **OPTIONS)


def test_a_flipped_byte_is_noticed_and_its_chains_run_again(model, alone, path, caplog):
    mg.estimate(model, checkpoint=path, **OPTIONS)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        (data,) = db.execute("SELECT data FROM piece WHERE number = 2").fetchone()
        changed = bytes([data[0] ^ 1]) + data[1:]
        db.execute("UPDATE piece SET data = ? WHERE number = 2", (changed,))
        db.execute("UPDATE piece SET machine = 7 WHERE number = 3")
    assert mg.estimate(model, checkpoint=path, **OPTIONS) == alone
    assert caplog.text.count("a stored result is corrupt") == 2
    assert sum(chains for _, chains in pieces(path)) == 1000


def test_files_that_are_no_checkpoint(model, tmp_path):
    (tmp_path / "text").write_text("no database" * 100)
    with contextlib.closing(sqlite3.connect(tmp_path / "other")) as db:
        db.execute("CREATE TABLE piece (x)")
    for name, words in (
        ("text", "is not a checkpoint"),
        ("other", "is not a checkpoint"),
        ("no/where", "cannot write"),
    ):
        with pytest.raises(ValueError, match=words):
            mg.estimate(model, checkpoint=tmp_path / name, **OPTIONS)
    assert (tmp_path / "text").read_text() == "no database" * 100
    for bad in (3, "", True, ["a"]):
        with pytest.raises(ValueError, match=r"checkpoint is .*; it must be the path of a file"):
            mg.estimate(model, checkpoint=bad, **OPTIONS)


def test_a_full_disk_is_one_line(model, alone, tmp_path, monkeypatch):
    mg.save(model, tmp_path / "m.npz")
    words = ["estimate", tmp_path / "m.npz", "--out", tmp_path / "r.npz", "--checkpoint", "--json"]
    words += [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", value)]
    open_it = checkpoint.Checkpoint.__init__

    def small_disk(self, *args):
        open_it(self, *args)
        self._db.execute(f"PRAGMA max_page_count = {self._db.execute('PRAGMA page_count').fetchone()[0]}")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoint, "__init__", small_disk)
        done = command(*words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "full; what was finished is in it" in done.stderr
    done = command(*words)  # there is room again
    assert json.loads(done.stdout)["log_z"] == alone.log_z
    assert (tmp_path / "r.npz.checkpoint").exists()
    done = command(*words[:2], "--checkpoint", "--steps", 3)
    assert done.returncode == 2
    assert "--checkpoint requires --out FILE" in done.stderr


def test_two_callers_on_one_file(model, alone, path):
    """Both end with all chains, and what one has finished the other need not."""
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(mg.estimate(model, checkpoint=path, **OPTIONS))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone, alone]
    assert {chain for first, n in pieces(path) for chain in range(first, first + n)} == set(range(5, 1005))


KILLED = """
import os, signal, sys
import marginalis as mg
from marginalis.running import parts
from marginalis.running.checkpoint import Checkpoint
from marginalis.parallel.ledger import Ledger
parts.Ledger = lambda units, seconds, **_: Ledger(units, seconds, most=5)
write, written = Checkpoint.write, []
def fatal(store, run, pieces):
    write(store, run, pieces)
    written.append(pieces)
    if len(written) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
Checkpoint.write = fatal
mg.estimate(mg.load(sys.argv[1]), checkpoint=sys.argv[2], steps=20, chains=1000, engine="numpy", seed=4, first_chain=5)
"""


def test_a_killed_run_goes_on(model, alone, path, tmp_path):
    mg.save(model, tmp_path / "m.npz")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "m.npz"), str(path)], timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert sum(chains for _, chains in pieces(path)) == 3 * 5 * 16
    assert mg.estimate(mg.load(tmp_path / "m.npz"), checkpoint=os.fspath(path), **OPTIONS) == alone
    assert sum(chains for _, chains in pieces(path)) == 1000
