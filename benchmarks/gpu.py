"""Print one table of speeds on a GPU, all measured in this run: marginalis beside its limits, PyTorch and the CPU.

    python benchmarks/gpu.py [--device i] [--quick]

Times are those of the GPU between two events, the best of three, without what Python does: the GPU is kept busy for the
millisecond that launching takes. The limit of a row is the time that the part of the work takes that cannot be left
out, all else being free: looking up the tables of five spins in shared memory (small models), the products of bytes
(large ones), drawing the random bits (lattices), multiplying and adding (exact sums). PyTorch runs the same algorithm
in plain tensor operations, the package rbms its own on 0/1 units; a package that is missing is named below the table.
Nothing here asserts a time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import marginalis as mg
from marginalis.engines.cuda import kernel_for
from marginalis.engines.plan import make_plan
from marginalis.gpu.device import Device, open_device

_BUSY = """
extern "C" __global__ void busy(long long cycles) { for (long long begin = clock64(); clock64() - begin < cycles;); }
"""
COLUMNS = ("work", "unit", "marginalis", "goal", "met", "limit", "PyTorch", "rbms", "CPU engine")


def rbm(n: int, m: int) -> mg.MRF:
    """Return an RBM like the paper's, at 1/T = 2."""
    weights = np.random.default_rng(1).normal(size=(n, m)) / np.sqrt(n + m)
    return mg.rbm(weights, np.zeros(n), np.zeros(m), temperature=0.5)


class Bench:
    """Times on one GPU."""

    def __init__(self, device: Device, quick: bool) -> None:
        import cupy

        self.cupy, self.device, self.quick = cupy, device, quick
        self.busy = cupy.RawKernel(_BUSY, "busy")
        self.missing: set[str] = set()  # packages
        properties = cupy.cuda.runtime.getDeviceProperties(device.number)
        self.name = properties["name"].decode()
        # lanes of all multiprocessors per second, each of which starts one operation per cycle
        self.cycles = device.multiprocessors * cupy.cuda.Device(device.number).attributes["ClockRate"] * 1e3

    def seconds(self, work: Callable[[], Any], repeats: int = 3) -> float:
        """Return the best time between two events around some launches."""
        times = []
        for _ in range(repeats):
            launches = work()
            start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            self.busy((1,), (1,), (np.int64(2_000_000),))  # a millisecond, in which Python launches the rest
            start.record()
            launches()
            end.record()
            end.synchronize()
            times.append(self.cupy.cuda.get_elapsed_time(start, end) * 1e-3)
        return min(times)

    def sampling(self, model: mg.MRF, chains: int, steps: int, draws: Any = "words") -> float:
        """Return the seconds of a whole run."""
        here = self.device.number
        plan = make_plan(model, method="mais-v", steps=steps, chains=chains, engine="cuda", device=here, draws=draws)
        kernel = kernel_for(plan)
        prepared = kernel.Population.prepare(plan, self.device)

        def work() -> Callable[[], None]:
            population = kernel.Population(plan, prepared, range(chains))
            return lambda: population.launch(steps)

        return self.seconds(work)

    def torch(self, n: int, m: int, chains: int, steps: int) -> float | None:
        """Return the seconds of mAIS-V in plain tensor operations, in float32."""
        try:
            import torch
        except ImportError:
            self.missing.add("torch")
            return None
        where = torch.device("cuda", self.device.number)
        weights = torch.as_tensor(rbm(n, m).natural.weights.copy(), dtype=torch.float32, device=where)
        torch.backends.cuda.matmul.allow_tf32 = False

        def run() -> None:
            v = torch.randint(0, 2, (chains, n), device=where).float() * 2 - 1
            total = torch.zeros(chains, dtype=torch.float64, device=where)
            for k in range(1, steps + 1):
                fields = v @ weights
                now, before = fields * (k / steps), fields * ((k - 1) / steps)
                total += (torch.logaddexp(now, -now) - torch.logaddexp(before, -before)).sum(1)
                h = (torch.rand_like(now) < torch.sigmoid(2 * now)).float() * 2 - 1
                a = (h @ weights.T) * (k / steps)
                v = (torch.rand_like(a) < torch.sigmoid(2 * a)).float() * 2 - 1

        return self.timed(run)

    def rbms(self, n: int, m: int, chains: int, steps: int) -> float | None:
        """Return the seconds of AIS of the package rbms, which sums h out as mAIS-V does."""
        try:
            import torch
            from rbms.bernoulli_bernoulli.classes import BBRBM
            from rbms.partition_function.ais import compute_partition_function_ais
        except ImportError:
            self.missing.add("rbms")
            return None
        where = torch.device("cuda", self.device.number)
        weights, *biases = (np.asarray(x, np.float32) for x in (rbm(n, m).natural.weights, np.zeros(n), np.zeros(m)))
        w, b, c = (torch.as_tensor(x, device=where) for x in (weights, *biases))
        machine = BBRBM(weight_matrix=w, vbias=b, hbias=c)
        # it counts the inverse temperatures, both ends included
        return self.timed(lambda: compute_partition_function_ais(num_chains=chains, num_beta=steps + 1, params=machine))

    def timed(self, run: Callable[[], Any]) -> float:
        """Return the best of three times of what PyTorch does."""
        import torch

        where = torch.device("cuda", self.device.number)
        run()
        best = float("inf")
        for _ in range(3):
            torch.cuda.synchronize(where)
            start = time.perf_counter()
            run()
            torch.cuda.synchronize(where)
            best = min(best, time.perf_counter() - start)
        return best

    def cpu(self, model: mg.MRF, chains: int, steps: int) -> float | None:
        """Return the seconds of the CPU engine on all threads."""
        if self.quick:
            return None
        mg.estimate(model, steps=2, chains=64, engine="numba")
        start = time.perf_counter()
        mg.estimate(model, method="mais-v", steps=steps, chains=chains, engine="numba")
        return time.perf_counter() - start

    def rows(self) -> list[tuple[str, str, float, float, float | None, float | None, float | None, float | None]]:
        """Work, unit, ours, goal, limit, PyTorch, rbms, CPU; a unit that ends in /ns is better if higher."""
        rows: list[Any] = []
        lookups = 4 * 41 + 8 * 20  # of a chain·step of the 20×40 model, 32 at a time
        for chains, steps, goal, unit in (
            (1 << 20, 1000, 0.09, "ns"),
            (1000, 1000, 0.35, "ms"),
            (10_000, 1000, 2.0, "ms"),
        ):
            work = chains * steps
            scale = 1e9 / work if unit == "ns" else 1e3
            share = 20 if chains == 1 << 20 else 1  # of the steps, for those that take long
            size = 20, 40, chains, steps // share
            others = self.torch(*size), self.rbms(*size), self.cpu(rbm(20, 40), chains // share, steps)
            rows.append((
                f"20×40, N={chains}, K={steps}", unit, scale * self.sampling(rbm(20, 40), chains, steps), goal,
                scale * work * lookups / 32 / self.cycles, *(None if x is None else scale * share * x for x in others),
            ))  # fmt: skip
        operations = 2 * 2 * 3 * 784 * 500
        for chains, steps, goal in ((16384, 100, 8.0), (4096, 200, 9.0), (1024, 600, 15.0)):
            scale = 1e9 / (chains * steps)
            size = 784, 500, chains, 20
            others = self.torch(*size), self.rbms(*size), self.cpu(rbm(784, 500), 512, 40)
            counts = chains * 20, chains * 20, 512 * 40
            times = [None if x is None else x * 1e9 / n for x, n in zip(others, counts, strict=True)]
            ours = scale * self.sampling(rbm(784, 500), chains, steps)
            rows.append((f"784×500, N={chains}", "ns", ours, goal, 1e9 * operations / (8192 * self.cycles), *times))
        for name, kind in (("Gaussian", "gaussian"), ("ReLU", mg.ReLU()), ("dReLU", mg.dReLU(1.0, 1.0, 0.3, -0.3))):
            plain, chains, steps = rbm(20, 40), 1 << 18, 100
            model = mg.rbm(plain.weights, np.zeros(20), np.zeros(40), units=("spin", kind))
            seconds = self.sampling(model, chains, steps), self.cpu(model, 4096, 100)
            ours, cpu = seconds[0] * 1e9 / (chains * steps), None if seconds[1] is None else seconds[1] * 1e9 / 409_600
            rows.append((f"20×40, {name} hidden, N={chains}", "ns", ours, None, None, None, None, cpu))
        rng = np.random.default_rng(0)
        signs = 0.3 * rng.choice([-1.0, 1.0], size=(2, 64, 64))
        anything = tuple(rng.normal(size=(2, 64, 64)))
        for name, coupling, draws, goal in (
            ("one coupling, by planes", 0.3, "planes", 2000.0),
            ("couplings ±J, by planes", tuple(signs), "planes", 2000.0),
            ("one coupling", 0.3, "words", None),
            ("random couplings", anything, "words", 200.0),
        ):
            model, chains, steps = mg.ising_grid((64, 64), coupling=coupling, periodic=True), 1 << 18, 20
            sites = 4096 * chains * steps * 1e-9
            cpu = self.cpu(model, 2048, steps) if draws == "words" else None
            per_site = 10.0 if draws == "words" else 3 * 40 / 32  # operations: forty for four words, or for four planes
            times = None, None, None if cpu is None else 4096 * 2048 * steps * 1e-9 / cpu
            ours, limit = sites / self.sampling(model, chains, steps, draws), 128 * self.cycles * 1e-9 / per_site
            rows.append((f"64×64 torus, {name}", "sites/ns", ours, goal, limit, *times))
        for n, goal in ((30, None), (36, 10.0), *(() if self.quick else ((40, 180.0),))):
            mg.exact_log_z(rbm(18, 40), engine="cuda")
            seconds = mg.exact_log_z(rbm(n, 40), engine="cuda", device=self.device.number).seconds
            limit = 2.0**n * 40 * 2 / (64 * self.cycles)
            rows.append((f"exact, 2^{n} states × 40 units", "s", seconds, goal, limit, None, None, None))
        return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="without the CPU and the longest sum")
    options = parser.parse_args()
    bench = Bench(open_device(options.device), options.quick)
    table = Table(*COLUMNS, title=bench.name)
    with bench.cupy.cuda.Device(options.device):
        rows = bench.rows()
    for work, unit, ours, goal, *others in rows:
        met = "" if goal is None else "yes" if (ours >= goal if unit.endswith("/ns") else ours <= goal) else "no"
        shown = ["" if x is None else f"{x:.3g}" for x in (goal, *others)]
        table.add_row(work, unit, f"{ours:.3g}", shown[0], met, *shown[1:])
    console = Console(width=140)
    console.print(table)
    if bench.missing:
        console.print(f"not installed here: {', '.join(sorted(bench.missing))}")


if __name__ == "__main__":
    main()
