"""Chains on a real Dask cluster of two processes: the same bits, nothing lost."""

import contextlib
import logging
import os
import signal
import sqlite3

import numpy as np
import pytest
from conftest import random_rbm

import marginalis as mg
from marginalis.parallel.ledger import Ledger
from marginalis.running import parts

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("marginalis.parallel.dask")

# what Dask leaves behind of connections that were never made
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
QUIET = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL + 1}
OPTIONS = {"steps": 20, "chains": 1000, "engine": "numpy", "seed": 4}


@pytest.fixture(scope="module")
def model():
    return random_rbm(np.random.default_rng(0), 5, 7)


@pytest.fixture(scope="module")
def alone(model):
    return mg.estimate(model, **OPTIONS)


@pytest.fixture(scope="module")
def client():
    """That of ``pool="dask-local"``, which all tests here share."""
    pool = dask.local(2)
    yield pool.client
    pool.close()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "Ledger", lambda units, seconds, **_: Ledger(units, seconds, most=max(1, units // 10)))


def test_a_cluster_gives_the_same_bits(model, alone, client):
    shared = mg.estimate(model, pool=client, **OPTIONS)
    np.testing.assert_array_equal(alone.log_weights, shared.log_weights)
    assert shared.record.machines
    assert mg.estimate(model, pool=f"dask:{client.scheduler.address}", **OPTIONS) == alone
    assert client.status == "running"  # nothing of the caller's is closed


def test_workers_killed_in_mid_run_cost_nothing(model, alone, client):
    killed = []

    def kill(fraction):
        if len(killed) < 2 * fraction:
            killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[-1], signal.SIGKILL)

    shared = mg.estimate(model, pool=client, progress=kill, **OPTIONS)
    assert killed
    np.testing.assert_array_equal(alone.log_weights, shared.log_weights)


def test_workers_with_another_version_are_named(model, client):
    client.wait_for_workers(2, timeout=30)
    worker = min(client.nthreads())
    client.run(_call_it, "0.0.1", workers=[worker])
    try:
        with pytest.raises(ValueError, match=rf"the worker {worker} has marginalis 0.0.1, and this is"):
            mg.estimate(model, pool=client, **OPTIONS)
    finally:
        client.run(_call_it, mg.__version__, workers=[worker])


def _call_it(version):
    import marginalis

    marginalis.__version__ = version


def test_workers_without_the_package_are_named():
    class Client:
        status = "running"

        def submit(self):
            pass

        def nthreads(self):
            return {"tcp://there:1": 1}

        def run(self, *args, **options):
            return {"tcp://there:1": ModuleNotFoundError("No module named 'marginalis'")}

    with pytest.raises(ValueError, match="the worker tcp://there:1 has no marginalis"):
        dask.DaskPool(Client())


def test_a_cluster_without_workers_is_not_waited_for_forever(monkeypatch):
    class Client:
        status = "running"

        def submit(self):
            pass

        def nthreads(self):
            return {}

    pool = dask.DaskPool(Client())
    monkeypatch.setattr(dask, "_WORKERS", -1.0)
    pool._looked = -10.0
    with pytest.raises(OSError, match="no worker"):
        pool.workers()


def test_clients_that_are_closed_and_addresses_of_nobody(model, client, monkeypatch):
    with distributed.Client(client.scheduler.address, set_as_default=False) as closed:
        pass
    with pytest.raises(ValueError, match="pool is a Dask client that is closed"):
        mg.estimate(model, pool=closed)
    monkeypatch.setattr(dask, "_ANSWER", 0.2)
    for address in ("tcp://127.0.0.1:1", "nowhere", "http://127.0.0.1:80"):
        with pytest.raises(ValueError, match=f"no Dask scheduler answers at '{address}'"):
            mg.estimate(model, pool=f"dask:{address}")


def test_a_run_goes_on_after_its_scheduler_was_lost(model, alone, client, tmp_path):
    path = tmp_path / "run.checkpoint"
    few = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "protocol": "tcp://"}
    with distributed.LocalCluster(**few, **QUIET) as short_lived:
        own = distributed.Client(short_lived, set_as_default=False)
        with pytest.raises(OSError, match="the Dask scheduler was lost"):
            mg.estimate(model, pool=own, checkpoint=path, progress=lambda f: f > 0.3 and short_lived.close(), **OPTIONS)
        own.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        (before,) = db.execute("SELECT SUM(chains) FROM piece").fetchone()
    assert 300 <= before < 1000
    assert mg.estimate(model, pool=client, checkpoint=path, **OPTIONS) == alone


def test_our_own_cluster_listens_to_this_machine_only(client):
    psutil = pytest.importorskip("psutil")
    here = psutil.Process()
    found = [c for p in (here, *here.children(recursive=True)) for c in p.net_connections(kind="tcp")]
    assert {c.laddr.ip for c in found if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
