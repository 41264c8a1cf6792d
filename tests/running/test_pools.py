"""Chains on a pool: the same bits as on threads, whoever runs them and whoever dies."""

import json
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor

import numpy as np
import pytest
from conftest import command, random_rbm

import marginalis as mg
from marginalis.parallel import pools, tasks
from marginalis.parallel.ledger import Ledger
from marginalis.parallel.processes import Processes, WorkerDied
from marginalis.running import parts


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Six parts or more, where there would be one."""
    monkeypatch.setattr(parts, "Ledger", lambda units, seconds, **_: Ledger(units, seconds, most=max(1, units // 6)))


@pytest.fixture(scope="module")
def model():
    return random_rbm(np.random.default_rng(0), 5, 7)


@pytest.fixture(scope="module")
def processes():
    pool = Processes(2)
    yield pool
    pool.close()


class Ducks:
    """Pools of other makers, which all work in this process."""

    class Map:
        def map(self, function, items):
            return [function(item) for item in items]

    class Mpi:
        """mpi4py's executor: submit, and its number of workers under a name of its own."""

        num_workers = 3

        def submit(self, function, *args):
            future = Future()
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)
            return future

    class Multiprocessing:
        def apply_async(self, function, args, callback, error_callback):
            callback(function(*args))


@pytest.mark.parametrize("kind", ["threads", "map", "mpi", "multiprocessing", "processes"])
def test_the_same_bits_on_any_pool(model, processes, kind):
    options = {"steps": 30, "chains": 1000, "seed": 5, "first_chain": 7}
    alone = mg.estimate(model, **options)
    with ThreadPoolExecutor(2) as executor:
        kinds = {"map": Ducks.Map(), "mpi": Ducks.Mpi(), "multiprocessing": Ducks.Multiprocessing()}
        pool = {"threads": executor, "processes": processes, **kinds}[kind]
        heard = []
        shared = mg.estimate(model, pool=pool, progress=heard.append, **options)
    np.testing.assert_array_equal(alone.log_weights, shared.log_weights)
    assert alone == shared
    assert heard[-1] == 1.0
    assert shared.record.machines == tasks.machine()


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_the_same_answers_on_a_pool(model, engine):
    """Weights of both methods, what is recorded on the way, populations, samples from the ends of chains."""
    both = [{}, {"pool": Ducks.Map()}]
    given = {"chains": 200, "seed": 2, "engine": engine}
    for options in ({"method": "ais", "steps": 9}, {"resample": 0.9, "populations": 10, "steps": 40}):
        alone, shared = (mg.estimate(model, **given, **options, **pool) for pool in both)
        assert alone == shared
    alone, shared = (mg.estimate(model, record=True, steps=20, **given, **pool).curve.log_weights for pool in both)
    np.testing.assert_array_equal(alone, shared)
    alone, shared = (mg.thermodynamics(model, [0.3, 1.0], steps=10, **given, **pool) for pool in both)
    np.testing.assert_allclose(alone.energy, shared.energy, rtol=1e-12)  # products of matrices round
    np.testing.assert_array_equal(alone.log_z, shared.log_z)
    assert shared.record.machines == tasks.machine()
    alone, shared = (mg.along([model, model], steps=20, **given, **pool) for pool in both)
    np.testing.assert_array_equal(alone.log_weights, shared.log_weights)
    alone, shared = (mg.difference(model, model, steps=5, **given, **pool) for pool in both)
    assert alone.log_ratio == shared.log_ratio


def test_bounds_and_tolerance_on_a_pool():
    graph = mg.ising_grid((12, 12), coupling=0.1)
    alone, shared = (mg.bound(graph, steps=10, chains=100, **pool) for pool in ({}, {"pool": Ducks.Map()}))
    assert (alone.lower, alone.upper) == (shared.lower, shared.upper)
    found = mg.estimate(graph, tolerance=0.2, pool=Ducks.Map())
    assert (found.interval[1] - found.interval[0]) / 2 <= 0.2


def test_a_killed_process_costs_its_part_only(model, processes):
    before, killed = set(processes.pids()), []

    def kill(fraction):
        if 0.1 < fraction < 0.8 and len(killed) < 2:
            killed.append(processes.pids()[0])
            os.kill(killed[-1], signal.SIGKILL)

    options = {"steps": 50, "chains": 2000, "engine": "numpy"}
    shared = mg.estimate(model, pool=processes, progress=kill, **options)
    assert killed
    assert set(processes.pids()) != before
    np.testing.assert_array_equal(shared.log_weights, mg.estimate(model, **options).log_weights)


def test_a_model_that_kills_every_worker_is_given_up(model):
    class Deadly(Ducks.Mpi):
        def submit(self, function, *args):
            future = Future()
            future.set_exception(WorkerDied("gone"))
            return future

    with pytest.raises(OSError, match="lost 6 times because its worker died"):
        mg.estimate(model, steps=3, chains=16, pool=Deadly())


def test_the_model_is_sent_once_to_each_worker(model, monkeypatch):
    sent = []

    class Counting(Ducks.Mpi):
        def submit(self, function, task, data):
            sent.append(data is not None)
            if len(sent) == 5:
                tasks._jobs.clear()  # as a worker that has just come
            return super().submit(function, task, data)

    mg.estimate(model, steps=30, chains=1000, pool=Counting())
    assert len(sent) >= 8
    assert sum(sent) == Counting.num_workers + 2  # two tasks were on their way to the one who came late


def test_errors_of_a_task_are_those_of_the_run(model, processes, monkeypatch):
    class Failing(Ducks.Mpi):
        def submit(self, function, *args):
            return super().submit(int, "none")

    with pytest.raises(ValueError, match="invalid literal"):
        mg.estimate(model, steps=3, pool=Failing())
    with pytest.raises(ZeroDivisionError):
        processes.submit(divmod, 1, 0).result()


def test_versions_must_be_the_same(model, monkeypatch):
    class Old(Ducks.Mpi):
        def submit(self, function, task, data):
            monkeypatch.setattr(tasks, "__version__", "0.0.1")
            return super().submit(function, task, data)

    with pytest.raises(ValueError, match=r"the worker .* has marginalis 0.0.1, and this is"):
        mg.estimate(model, steps=3, pool=Old())


def test_workers_without_the_package_are_named(model):
    class Bare(Ducks.Mpi):
        def submit(self, function, *args):
            future = Future()
            future.set_exception(ModuleNotFoundError("No module named 'marginalis'", name="marginalis"))
            return future

    with pytest.raises(ValueError, match="worker of the pool has no marginalis"):
        mg.estimate(model, steps=3, pool=Bare())


def pool_that_submits(answer):
    """Return a pool whose `submit` returns what `answer` makes of a function and its arguments."""
    pool = Ducks.Mpi()
    pool.submit = answer
    return pool


def future_of(value):
    future = Future()
    future.set_result(value)
    return future


@pytest.mark.parametrize("garbage", [None, 3, {}, (), "reply", object()])
def test_a_pool_that_returns_something_else_is_refused(model, garbage):
    for pool, words in (
        (pool_that_submits(lambda *args: future_of(garbage)), "has returned .* for a task"),
        (pool_that_submits(lambda *args: garbage), "submit has returned .*; it must return a future"),
    ):
        with pytest.raises(ValueError, match=words):
            mg.estimate(model, steps=3, chains=64, pool=pool)
    pool = Ducks.Map()
    pool.map = lambda function, tasks: garbage
    with pytest.raises(ValueError, match=r"map has returned|for a task"):
        mg.estimate(model, steps=3, chains=64, pool=pool)


def test_results_must_be_those_of_the_tasks(model):
    pool = Ducks.Map()
    pool.map = lambda function, tasks: [function(task) for task in reversed(list(tasks))]
    with pytest.raises(ValueError, match="the result of another task"):
        mg.estimate(model, steps=3, chains=64, pool=pool)
    always = []

    def first(function, *args):
        always.append(always[0] if always else future_of(function(*args)))
        return always[0]

    with pytest.raises(ValueError, match=r"one future for several tasks|the result of another task"):
        mg.estimate(model, steps=3, chains=64, pool=pool_that_submits(first))


def test_a_worker_that_never_takes_the_model_is_given_up(model):
    lacking = tasks.Reply("there", mg.__version__, lacks_job=True)
    with pytest.raises(OSError, match="the worker there lacks the model although it was sent 6 times"):
        mg.estimate(model, steps=3, chains=64, pool=pool_that_submits(lambda *args: future_of(lacking)))


def test_processes_that_cannot_start_end_the_run(model, monkeypatch):
    def none_left(*args, **options):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("marginalis.parallel.processes.subprocess.Popen", none_left)
    with pytest.raises(OSError, match=r"no worker process could be started: .*temporarily unavailable"):
        mg.estimate(model, steps=3, chains=64, pool=2)


def test_invalid_pools_are_refused(model):
    for pool in (0, -1, True, 2.5, "four", "", "dask:", object(), [2], 5000):
        with pytest.raises(ValueError, match=r"^pool is "):
            mg.estimate(model, steps=3, pool=pool)
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(ValueError, match="the pool does not accept tasks"):
        mg.estimate(model, steps=3, pool=executor)


def test_a_broken_executor_is_an_error_with_its_reason(model):
    class Broken(Ducks.Mpi):
        def submit(self, function, *args):
            raise BrokenExecutor("abruptly")

    with pytest.raises(OSError, match="pool is broken"):
        mg.estimate(model, steps=3, pool=Broken())


def test_without_dask_one_line_says_what_to_install(model, monkeypatch):
    def missing(name, package):
        raise ModuleNotFoundError("No module named 'distributed'", name="distributed")

    monkeypatch.setattr(pools.importlib, "import_module", missing)
    with pytest.raises(ValueError, match=r"pip install 'marginalis\[dask\]'"):
        mg.estimate(model, pool="dask-local")


def test_the_command_takes_a_number_of_processes(tmp_path, model):
    mg.save(model, tmp_path / "m.npz")
    words = ("estimate", tmp_path / "m.npz", "--steps", 20, "--chains", 100, "--engine", "numpy", "--json")
    alone, shared = (json.loads(command(*words, *pool).stdout) for pool in ((), ("--pool", 1)))
    assert alone["log_z"] == shared["log_z"]
    assert shared["machines"] == [tasks.machine()]
    done = command(*words, "--pool", "many")
    assert done.returncode == 2
    assert done.stderr.startswith("marginalis: pool is 'many'; it must be")


def test_a_worker_whose_caller_dies_during_a_message_prints_nothing():
    words = [sys.executable, "-c", "from marginalis.parallel.processes import serve; serve()"]
    for task in (b"", pickle.dumps((print, ("a task",)))[:-5]):
        done = subprocess.run(words, input=task, capture_output=True, check=True)
        assert done.stderr == b""
