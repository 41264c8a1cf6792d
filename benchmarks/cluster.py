"""What a pool costs: overhead beside threads, bytes and time of a task, workers killed in mid-run, the client's memory.

python benchmarks/cluster.py overhead [--seconds 30] [--processes 2]
python benchmarks/cluster.py processor [--chains 220000]
python benchmarks/cluster.py tasks
python benchmarks/cluster.py kills [--tasks 1000] [--every 10]
python benchmarks/cluster.py memory
python benchmarks/cluster.py models [--batch 100] [--tasks 100]
"""

from __future__ import annotations

import argparse
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

import marginalis as mg
from marginalis.answers.batches import Batch, BatchJob
from marginalis.engines.plan import make_plan
from marginalis.models.stacked import Stack, as_stack
from marginalis.options import filled_in, plan_options
from marginalis.parallel import ledger
from marginalis.parallel.dispatch import dispatch
from marginalis.parallel.ledger import Ledger
from marginalis.parallel.pools import open_pool
from marginalis.parallel.processes import Processes
from marginalis.parallel.tasks import Reply, Task, machine, packed


def model() -> mg.MRF:
    rng = np.random.default_rng(0)
    return mg.rbm(rng.normal(scale=0.1, size=(100, 200)), rng.normal(size=100), rng.normal(size=200))


class Nothing:
    """A job that takes some seconds and gives some numbers."""

    def __init__(self, seconds: float, numbers: int) -> None:
        self.seconds, self.numbers = seconds, numbers

    def run(self, part: range, extra: Any, threads: int) -> Any:
        end = time.perf_counter() + self.seconds * len(part)
        while time.perf_counter() < end:
            time.sleep(max(0.0, end - time.perf_counter()))
        return np.full(len(part) * self.numbers, float(part.start))


def overhead(options: argparse.Namespace) -> None:
    """Compare wall times of one run on threads and on a pool that is warm, and on one that is not."""
    m, steps = model(), 300
    begin = time.perf_counter()
    mg.estimate(m, steps=steps, chains=16_000, threads=options.processes)
    begin = time.perf_counter()
    mg.estimate(m, steps=steps, chains=16_000, threads=options.processes)
    chains = int(16_000 * options.seconds / (time.perf_counter() - begin)) // 16 * 16
    print(f"RBM 100 x 200, {steps} steps, {chains} chains, {options.processes} cores")
    pool, client = Processes(options.processes), None
    ways: dict[str, dict[str, Any]] = {
        "threads": {"threads": options.processes},
        "processes, warm": {"pool": pool, "threads": 1},
        f"pool={options.processes}": {"pool": options.processes},
    }
    try:
        import distributed

        client = distributed.Client(n_workers=options.processes, threads_per_worker=1, dashboard_address="127.0.0.1:0")
        ways["Dask, warm"] = {"pool": client}
    except ImportError:
        pass
    best: dict[str, float] = {}
    weights: dict[str, Any] = {}
    for way in ways.values():  # kernels, imports
        mg.estimate(m, steps=steps, chains=1600, **way)
    for _ in range(options.repeats):
        for name, way in ways.items():
            begin = time.perf_counter()
            found = mg.estimate(m, steps=steps, chains=chains, **way)
            best[name] = min(best.get(name, np.inf), time.perf_counter() - begin)
            weights[name] = found.log_weights
    for name, seconds in best.items():
        same = np.array_equal(weights[name], weights["threads"])
        print(f"{name:18}{seconds:8.2f} s {seconds / best['threads'] - 1:+8.1%}   same bits: {same}")
    pool.close()
    if client is not None:
        client.close()


def processor(options: argparse.Namespace) -> None:
    """Compare the processor time of whole runs, start and imports included: for machines that others use, too."""
    found = {}
    for name, way in (("threads", f"threads={options.processes}"), ("pool", f"pool={options.processes}")):
        code = f"import cluster; cluster.mg.estimate(cluster.model(), steps=300, chains={options.chains}, {way})"
        begin = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=True)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        found[name] = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
        print(f"{name:10}{found[name]:8.2f} s of the processor {found[name] / found['threads'] - 1:+8.1%}", flush=True)


def tasks(options: argparse.Namespace) -> None:
    """Measure bytes and client time of tasks."""
    plan = make_plan(model(), steps=300, chains=1000)
    from marginalis.engines.drive import RunResult
    from marginalis.running.parts import ChainsOfPlan

    digest, data = packed(ChainsOfPlan(plan, None))
    task = Task(mg.__version__, digest, range(0, 1), None, 1, np.geterr())
    reply = Reply(machine(), mg.__version__, 1.0, False, RunResult(np.zeros(1600), None), range(100))
    print(f"the job (an RBM 100 x 200, sent once to each worker): {len(data)} bytes")
    print(f"a task: {len(pickle.dumps(task, 5))} bytes; the reply for 1600 chains: {len(pickle.dumps(reply, 5))} bytes")
    for name, pool in _pools(options):
        rates = []
        for number in (200, options.tasks, options.tasks, options.tasks):
            book = Ledger(number, 1.0, most=1)
            begin, cpu = time.perf_counter(), time.process_time()
            dispatch(pool, Nothing(0.0, 1), book, lambda part, reply: None, lambda fraction: None)
            rates.append((number / (time.perf_counter() - begin), (time.process_time() - cpu) / number))
        rate, cost = max(rates)
        print(f"{name}: {rate:.0f} empty tasks a second; {1e3 * cost:.2f} ms of the client's processor each")
        pool.close()


def models(options: argparse.Namespace) -> None:
    """Measure what a batch of small models costs besides its computation, which lasts next to nothing here.

    The computation is that of the same batches on one thread of this process.
    """
    rng = np.random.default_rng(0)
    count, units = options.batch * options.tasks, "spin"
    arrays = rng.normal(size=(count, 20, 40)) / 8.0, rng.normal(size=(count, 20)), rng.normal(size=(count, 40))
    job = BatchJob(dict(plan_options(filled_in({"steps": 5, "chains": 16}))), {}, False, False)
    stack = as_stack((*arrays, units))

    def batch(part: range) -> Batch:
        own = slice(part.start * options.batch, part.stop * options.batch)
        some = Stack(stack.weights[own], stack.visible_bias[own], stack.hidden_bias[own], stack.units)
        return Batch(some, range(own.start, own.stop))

    job.run(range(1), batch(range(1)), 1)  # Kernels.
    begin = time.process_time()
    for number in range(options.tasks):
        job.run(range(1), batch(range(number, number + 1)), 1)
    alone = (time.process_time() - begin) / count
    print(f"{count} models 20 x 40 in batches of {options.batch}: {1e3 * alone:.3f} ms of computation each")
    for name, pool in _pools(options):
        best = (np.inf, np.inf)
        for _ in range(options.repeats):
            spent, replies = [0.0], [0]

            def receive(part: range, reply: Reply, spent: Any = spent, replies: Any = replies) -> None:
                spent[0] += reply.seconds
                replies[0] += len(part)

            book = Ledger(options.tasks, 1.0, most=1)
            begin, cpu = time.perf_counter(), time.process_time()
            dispatch(pool, job, book, receive, lambda fraction: None, batch)
            wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
            assert replies[0] == options.tasks
            # Wall time of the pool that was not spent in the computation by the workers, and time of the client.
            best = min(best, ((wall * options.processes - spent[0]) / count, cpu / count))
        print(f"{name}: {1e3 * best[0]:.3f} ms per model besides it; {1e3 * best[1]:.3f} ms of the client's processor")
        pool.close()


def _pools(options: argparse.Namespace) -> list[tuple[str, Any]]:
    """Return the pools that can be had here, by name."""
    specs: list[tuple[str, Any]] = [(f"pool={options.processes}", options.processes)]
    try:
        import distributed

        client = distributed.Client(
            n_workers=options.processes, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=100
        )
        specs.append((f"Dask, {options.processes} processes", client))
    except ImportError:
        pass
    return [(name, open_pool(spec, 1, 1)) for name, spec in specs]


def kills(options: argparse.Namespace) -> None:
    """Run many tasks while a worker is killed after every few of them; count what was lost, and what ran twice."""
    pool = Processes(options.processes)
    number, received, killed = options.tasks, [], []

    def receive(part: range, reply: Reply) -> None:
        received.append(part)
        if len(received) % options.every == 0:
            pids = pool.pids()
            if pids:
                killed.append(pids[len(killed) % len(pids)])
                os.kill(killed[-1], signal.SIGKILL)

    begin = time.perf_counter()
    book = Ledger(number, 1.0, most=1)
    dispatch(open_pool(pool, 1, 1), Nothing(options.length, 1), book, receive, lambda fraction: None)
    wall = time.perf_counter() - begin
    pool.close()
    units = sorted(i for part in received for i in part)
    print(
        f"{number} tasks of {options.length:g} s on {options.processes} processes, {len(killed)} of which were killed: "
        f"all back once: {units == list(range(number))}; {wall:.0f} s, and "
        f"{number * options.length / options.processes:.0f} s if none had died"
    )


def memory(options: argparse.Namespace) -> None:
    """Peak memory of the client for the same chains in few and in many tasks."""
    m, chains = model(), 400_000
    for most in (100_000, 1000, 100):
        ledger.SECONDS = ledger.LEAST = 1e-9 * most  # sizes are limited by `most` alone
        tracemalloc.start()
        peak = _peak(m, chains, most)
        print(f"{chains} chains in parts of {16 * most:8d}: {peak / chains:6.1f} bytes for each chain")
        tracemalloc.stop()


def _peak(m: mg.MRF, chains: int, most: int) -> float:
    from marginalis.engines.drive import RunResult
    from marginalis.running import parts
    from marginalis.running.session import Session

    class Instant:
        """Workers that know the answer."""

        def map(self, function: Any, items: Any) -> Any:
            for task, _ in items:
                size = min(16 * task.part.stop, chains) - 16 * task.part.start
                yield Reply("here", task.version, 1.0, False, RunResult(np.zeros(size), None), task.part)

    old = parts.Ledger
    parts.Ledger = lambda units, seconds, **_: old(units, 1e-12, most=most)  # type: ignore[assignment,misc]
    plan = make_plan(m, steps=3, chains=chains)
    session = Session(1, open_pool(Instant(), 1, 1))
    session.run(plan)  # modules
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    session.run(plan)
    peak = tracemalloc.get_traced_memory()[1] - before
    parts.Ledger = old  # type: ignore[misc]
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overhead", "processor", "tasks", "kills", "memory", "models"])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--chains", type=int, default=220_000)
    parser.add_argument("--batch", type=int, default=100, help="models of a task")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--length", type=float, default=1.0, help="seconds of a task that kills are tried on")
    options = parser.parse_args()
    globals()[options.what](options)


if __name__ == "__main__":
    from cluster import main as run  # of a module that workers can import, too

    run()
