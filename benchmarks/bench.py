"""Print one table of ratios, all measured in this run: marginalis against its limits, itself and others.

    python benchmarks/bench.py [--quick] [--full] [--repeats n]

Every ratio is of the best times of repeats that alternate, so that a busy moment of the machine hits both
sides alike. Rows on several threads also say how many cores the work had. Where other processes took cores
that the work needed even in its best repeat, the row passes no verdict: it says "busy". Nothing here asserts
a time. The other packages are in requirements.txt; a row whose package is missing says so.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

# Before NumPy loads: what marginalis does on n threads of its own, BLAS shall not do on more.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from others import Timing, Unavailable, Worker, cpu_time, model, parameters, timed
from rich.console import Console
from rich.table import Table

import marginalis as mg
from marginalis import examples
from marginalis.examples import random_dbm

HERE = Path(__file__).parent
SMALL, LARGE, DEEP = (20, 40), (784, 500), (784, 500, 1000)
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
COLUMNS = ("time of", "over time of", "first", "second", "ratio", "goal", "met", "remark")
BUSY = 0.1  # cores that the work lacked, because of other processes, beyond which a ratio says nothing
# JAX without the two defaults that cost this job most on a CPU: the new runtime and splittable uniforms.
TUNED_JAX = {"XLA_FLAGS": "--xla_cpu_use_thunk_runtime=false", "JAX_THREEFRY_PARTITIONABLE": "0"}


class Ours:
    """One estimate by marginalis; calling it runs it once and times it."""

    def __init__(self, what, chains: int, steps: int, *, units="spin", threads=1, **plan):
        self.model = model(*what, units) if isinstance(what, tuple) else what
        self.plan = {"threads": threads, **plan}
        self.chains, self.steps = chains, steps
        mg.estimate(self.model, chains=1, steps=1, **self.plan)  # compiles

    def __call__(self) -> Timing:
        timing, self.estimate = timed(
            lambda: mg.estimate(self.model, chains=self.chains, steps=self.steps, **self.plan)
        )
        return timing


class Limit:
    """limit.c on the model of `Ours`; calling it returns the best of its three runs."""

    def __init__(self, chains: int, steps: int) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise Unavailable("no C compiler")
        if "avx512f" not in cpu_info("flags"):
            raise Unavailable("this CPU has no AVX-512")
        self.chains, self.steps = chains, steps
        command = [compiler, "-O3", "-march=native", HERE / "limit.c", "-o", HERE / "limit", "-lm"]
        built = subprocess.run(command, capture_output=True, text=True)
        if built.returncode:
            raise Unavailable(f"limit.c does not compile: {built.stderr.splitlines()[0]}")

    def __call__(self) -> Timing:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "params.f32"
            file.write_bytes(b"".join(x.tobytes() for x in parameters(*SMALL, np.float32)))
            command = [HERE / "limit", str(self.chains), str(self.steps), file]
            before = os.times()
            words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            after = os.times()
        self.log_z = float(words[-1])
        cores = (after.children_user - before.children_user) / (after.elapsed - before.elapsed)
        return Timing(float(words[0]) * 1e-9 * self.chains * self.steps, cores)


class Bench:
    """The table under construction."""

    def __init__(self, repeats: int) -> None:
        self.repeats = repeats
        self.absent: set[str] = set()  # tasks whose package is not installed, said once
        self.table = Table(*COLUMNS, title="ns per chain·step, unless said otherwise; ratios are first/second")
        for column in self.table.columns[2:5]:
            column.justify = "right"

    def best(self, *runs: Callable[[], Timing]) -> list[Timing]:
        """Return the fastest of each run, the runs taking turns."""
        timings: list[list[Timing]] = [[] for _ in runs]
        for _ in range(self.repeats):
            for run, found in zip(runs, timings, strict=True):
                before = cpu_seconds()
                timing = run()
                foreign = (cpu_seconds() - before - 0.02) / timing.seconds - timing.cores  # two clock ticks less
                found.append(timing._replace(foreign=max(0.0, foreign)))
                if isinstance(run, Worker):
                    time.sleep(0.2)  # OpenBLAS threads were seen to spin for 0.11 s after their work
        return [min(found) for found in timings]

    def ratio(self, first: str, second: str, timings, work: int, goal=(), remark="", threads=1) -> None:
        """Add a row for two timings of `work` chain·steps on (at most) that many threads."""
        ns = [1e9 * timing.seconds / work for timing in timings]
        numbers = [f"{x:,.{0 if x > 1000 else 1}f}" for x in ns]
        goal, met = verdict(ns[0] / ns[1], goal)
        if threads > 1 or busy(timings, threads):
            remark = "; ".join(filter(None, (remark, had_cores(timings, threads))))
        met = "busy" if busy(timings, threads) else met
        self.table.add_row(first, second, *numbers, f"{ns[0] / ns[1]:.2f}", goal, met, remark)

    def missing(self, first: str, second: str, why: object) -> None:
        """Add a row that could not be measured."""
        self.table.add_row(first, second, "–", "–", "–", "", "", str(why))


def verdict(value: float, goal: tuple) -> tuple[str, str]:
    """Return the goal in words, and whether the value meets each of its stages."""
    if not goal:
        return "", ""
    sign, *stages = goal
    met = ("yes" if (value <= x if sign == "≤" else value >= x) else "no" for x in stages)
    return f"{sign} " + ", then ".join(map(str, stages)), ", ".join(met)


def busy(timings: list[Timing], threads: int) -> bool:
    """Whether other processes took cores that the work needed."""
    return max(timing.foreign for timing in timings) + threads > CORES + BUSY


def had_cores(timings: list[Timing], threads: int) -> str:
    """Return how many cores each run had, and how many went to other processes if that matters."""
    words = "had " + " and ".join(f"{timing.cores:.2f}" for timing in timings) + " cores"
    if busy(timings, threads):
        words += ", others " + " and ".join(f"{timing.foreign:.2f}" for timing in timings)
    return words


def limits(bench: Bench, chains: int, steps: int, large_steps: int) -> None:
    """marginalis against what the machine can do: hand-written AVX-512, bare matrix products."""
    intel = "Intel" in cpu_info("vendor_id")
    try:
        limit, ours = Limit(chains, steps), Ours(SMALL, chains, steps)
        times = against_limit(bench, ours, limit)
        apart = difference(ours.estimate.log_z - limit.log_z, 2**0.5 * ours.estimate.stderr)
        goal = ("≤", 1.0 if intel else 0.8)
        bench.ratio("mAIS 20×40, 1 thread", "limit.c", times, chains * steps, goal, f"Δ ln Z {apart}")
    except Unavailable as why:
        bench.missing("mAIS 20×40, 1 thread", "limit.c", why)
    for size, most in ((128, 128), 0.6), (LARGE, 0.5), ((2000, 2000), 0.5):
        n, m = size
        k = max(4, large_steps * LARGE[0] * LARGE[1] // (n * m))
        for threads in sorted({1, CORES}) if size == LARGE else (1,):
            bare = Worker("products", n, m, 1000, k, threads=threads)
            times = bench.best(Ours(size, 1000, k, threads=threads), bare)
            bare.close()
            name = f"mAIS {n}×{m}, {threads} thread{'s' * (threads > 1)}"
            goal = ("≤", 0.8 if intel else most)
            bench.ratio(name, "its products in NumPy", times, 1000 * k, goal, threads=threads)
    deep = random_dbm(DEEP)
    bare = Worker("products", DEEP[0] + DEEP[2], DEEP[1], 1000, large_steps, threads=1)
    times = bench.best(Ours(deep, 1000, large_steps), bare)
    bare.close()
    goal = ("≤", 0.8 if intel else 0.5)
    bench.ratio("mAIS DBM 784–500–1000, 1 thread", "its products in NumPy", times, 1000 * large_steps, goal)


def against_limit(bench: Bench, ours: Ours, limit: Limit) -> list[Timing]:
    """Return the CPU times of both, whatever else the machine does; limit.c takes the best of 3, so we do, too."""
    times = bench.best(lambda: min(cpu_time(ours()) for _ in range(3)), limit)
    return [timing._replace(foreign=0.0) for timing in times]


def lattice(bench: Bench, steps: int) -> None:
    """Site updates of the critical 64×64 torus: spins looked up, and chains as bits."""
    torus = mg.ising_grid((64, 64), coupling=0.4406868, periodic=True)
    words, planes = (Ours(torus, 1024, steps, draws=draws) for draws in ("words", "planes"))
    timings = bench.best(lambda: cpu_time(words()), lambda: cpu_time(planes()))
    for draws, goal, timing in zip(("words", "planes"), (1800, 4000), timings, strict=True):
        rate = 64 * 64 * 1024 * steps / timing.seconds / 1e6
        remark = "site updates, weight included, CPU time"
        row = f"64×64 torus, {draws}, 1 thread", "", f"{rate:,.0f} M/s", "", ""
        bench.table.add_row(*row, *verdict(rate, ("≥", goal)), remark)


def graphs(bench: Bench, steps: int) -> None:
    """Graphs that are not bipartite, and units that are not spins."""
    triangular = mg.ising_grid((66, 66), coupling=0.27, triangular=True, periodic=True)
    timing = bench.best(Ours(triangular, 1024, steps))[0]
    rate = 66 * 66 * 1024 * steps / timing.seconds / 1e6
    goal = verdict(rate, ("≥", 400))
    bench.table.add_row("66×66 triangular, 1 thread", "", f"{rate:,.0f} M/s", "", "", *goal, "site updates")
    rng = np.random.default_rng(0)
    glass = mg.from_matrix(np.triu(rng.normal(size=(1000, 1000)), 1) / 1000**0.5)
    bare = Worker("products", 1000, 500, 256, 4 * steps, threads=1)  # twice 1000 × 500 multiply-adds
    times = bench.best(Ours(glass, 256, 4 * steps), bare)
    bare.close()
    bench.ratio("SK 1000, 1 thread", "its n² products in NumPy", times, 256 * 4 * steps, ("≤", 0.6))
    spins, states = mg.ising_grid((8, 8), coupling=0.5), mg.potts_grid((8, 8), 3, coupling=0.5)
    potts, ising = bench.best(Ours(states, 4096, steps), Ours(spins, 4096, steps))
    potts = potts._replace(seconds=potts.seconds / 3)
    bench.ratio("Potts 8×8, q = 3, per state", "Ising 8×8", [potts, ising], 4096 * steps, ("≤", 4))
    sites, q = 50, 21
    pairs = {(i, j): 0.05 * rng.normal(size=(q, q)) for i in range(sites) for j in range(i)}
    protein = mg.from_tables(rng.normal(size=(sites, q)), pairs)
    bare = Worker("products", sites * q, sites * q // 2, 256, steps, threads=1)  # twice half of the square
    times = bench.best(Ours(protein, 256, steps), bare)
    bare.close()
    name = f"Potts on {sites} coupled sites, q = {q}, 1 thread"
    bench.ratio(name, "one-hot states times couplings in NumPy", times, 256 * steps, ("≤", 0.3))
    factors(bench, steps)
    w = 0.1 * rng.normal(size=(20, 40))
    for name, units, copies in (
        ("categorical q = 3", "categorical:3", 3),
        ("Gaussian–Bernoulli", ("gaussian", "binary"), 1),
    ):
        wide = np.kron(w, np.eye(copies))
        rbm = mg.rbm(wide, np.zeros(len(wide)), np.zeros(wide.shape[1]), units=units)
        other, plain = bench.best(Ours(rbm, 4096, 10 * steps), Ours(SMALL, 4096, 10 * steps))
        other = other._replace(seconds=other.seconds / copies)
        bench.ratio(f"mAIS 20×40 {name}, per state", "spins", [other, plain], 4096 * 10 * steps, ("≤", 4))
    for shape, chains, count in ((SMALL, 1024, 10 * steps), (LARGE, 64, steps // 2)):
        zeros = [np.zeros(n) for n in shape]
        for name, kind in (("ReLU", mg.ReLU()), ("dReLU", mg.dReLU(1.0, 1.0, 0.3, -0.3))):
            rbm = mg.rbm(0.5 * rng.normal(size=shape) / shape[0] ** 0.5, *zeros, units=("spin", kind))
            times = bench.best(Ours(rbm, chains, count, method="mais-v"), Ours(shape, chains, count))
            bench.ratio(f"mAIS {shape[0]}×{shape[1]}, {name} hidden", "spins", times, chains * count, ("≤", 3))


def factors(bench: Bench, steps: int) -> None:
    """Updates of variables in p-spin models and networks of tables, without the time to prepare a run."""
    rng = np.random.default_rng(0)
    models = [("p-spin, p = 3, degree 4, 600 spins, 1 thread", examples.p_spin(600, p=3, degree=4, seed=1), 200)]
    for states, arity in (3, 3), (4, 4), (8, 3), (8, 5):
        scopes = [s for _ in range(3) for s in rng.permutation(240).reshape(-1, arity).tolist()]
        tables = [(s, np.exp(rng.normal(scale=0.5, size=(states,) * arity))) for s in scopes]
        models.append(
            (f"tables of {arity} variables of {states} states, degree 3, 240 variables", mg.from_factors(tables), 50)
        )
    mixed = [rng.choice(240, rng.integers(2, 6), replace=False).tolist() for _ in range(170)]
    cards = rng.integers(2, 9, 240)
    tables = [(s, np.exp(rng.normal(scale=0.5, size=cards[s]))) for s in mixed]
    models.append(("tables of 2–5 variables of 2–8 states, 240 variables", mg.from_factors(tables), 50))
    for name, network, goal in models:
        short, long = Ours(network, 256, 1), Ours(network, 256, 10 * steps)
        before, after = bench.best(lambda run=short: cpu_time(run()), lambda run=long: cpu_time(run()))
        rate = network.n_variables * 256 * (10 * steps - 1) / (after.seconds - before.seconds) / 1e6
        row = name, "", f"{rate:,.0f} M/s", "", ""
        bench.table.add_row(*row, *verdict(rate, ("≥", goal)), "updates of variables, weight included, CPU time")


def itself(bench: Bench, chains: int, steps: int) -> None:
    """marginalis against itself: threads, methods, precisions, engines."""
    one, work = Ours(SMALL, chains, steps), chains * steps
    if CORES > 1:
        times = bench.best(one, Ours(SMALL, chains, steps, threads=2))
        bench.ratio("mAIS 20×40, 1 thread", "2 threads", times, work, ("≥", 1.9), threads=2)
    else:
        bench.missing("mAIS 20×40, 1 thread", "2 threads", "one core")
    ais, double, single = bench.best(
        Ours(SMALL, chains, steps, method="ais"), Ours(SMALL, chains, steps, precision="double"), one
    )
    bench.ratio("AIS 20×40, 1 thread", "mAIS", [ais, single], work, ("≤", 1.3))
    bench.ratio("mAIS 20×40 double, 1 thread", "single", [double, single], work)
    metropolis, gibbs = bench.best(
        Ours(SMALL, chains // 4, steps, transition="metropolis"), Ours(SMALL, chains // 4, steps)
    )
    bench.ratio("mAIS 20×40 metropolis, 1 thread", "gibbs", [metropolis, gibbs], work // 4, ("≤", 3))

    steps = steps // 2  # these are slow
    plain, reference = (Worker(task, *SMALL, 1000, steps, threads=1) for task in ("script", "reference"))
    ours = Ours(SMALL, 1000, steps)
    *times, single = bench.best(plain, reference, ours)
    apart = difference(plain.log_z - ours.estimate.log_z, 2**0.5 * ours.estimate.stderr)
    bench.ratio("plain NumPy script 20×40, 1 thread", "mAIS", [times[0], single], 1000 * steps, (), f"Δ ln Z {apart}")
    bench.ratio("NumPy reference engine 20×40, 1 thread", "Numba engine", [times[1], single], 1000 * steps)
    plain.close()
    reference.close()


def exact(bench: Bench, smaller: int) -> None:
    """Exact sums: 2^20 states in milliseconds, 2^30 in seconds, the latter from 2^smaller."""

    def best(size: int, threads: int) -> Timing:
        m = model(size, 40)
        mg.exact_log_z(m, threads=threads)  # compiles
        return bench.best(lambda: timed(lambda: mg.exact_log_z(m, threads=threads))[0])[0]

    ms = 1e3 * best(20, 1).seconds
    bench.table.add_row("exact 20×40, 1 thread", "", f"{ms:.1f} ms", "", "", *verdict(ms, ("≤", 50)), "goal in ms")
    threads = min(2, CORES)
    timing = best(smaller, threads)
    seconds = timing.seconds * 2 ** (30 - smaller)
    remark = f"goal in s; {had_cores([timing], threads)}"
    if smaller < 30:
        remark += f"; {2 ** (30 - smaller)} × that of {smaller}×40"
    name = f"exact 30×40, {threads} thread{'s' * (threads > 1)}"
    bench.table.add_row(name, "", f"{seconds:.1f} s", "", "", *verdict(seconds, ("≤", 60)), remark)


def other_packages(bench: Bench, size: tuple[int, int], steps: int, threads: int) -> None:
    """AIS of other packages against the same method of marginalis, N = 1000."""
    where = f"{size[0]}×{size[1]}, {threads} thread{'s' * (threads > 1)}"
    _, b, c = parameters(*size, np.float64)
    binary = {"units": "binary", "method": "mais-v", "base": (b, 0.0 * c)}  # as rbms has it
    for name, task, environment, second, plan in (
        (f"TFP on JAX {where}", "tfp", {}, "AIS", {"method": "ais"}),
        (f"TFP on JAX, tuned {where}", "tfp", TUNED_JAX, "AIS", {"method": "ais"}),
        (f"rbms (torch) {where}", "rbms", {}, "mAIS-V", binary),
    ):
        if task in bench.absent:
            continue
        try:
            other = Worker(task, *size, 1000, steps, threads=threads, **environment)
            ours = Ours(size, 1000, steps, threads=threads, **plan)
            times = bench.best(other, ours)
            other.close()
        except Unavailable as why:
            if str(why).startswith("not installed"):
                bench.absent.add(task)
                name = name.removesuffix(where).strip(" ,")
            bench.missing(name, second, why)
            continue
        remark = ""
        if size == SMALL:
            log_z = mg.exact_log_z(ours.model)
            remark = f"ln Z − exact {difference(other.log_z - log_z, ours.estimate.stderr)}"
        bench.ratio(name, second, times, 1000 * steps, (), remark, threads=threads)


def difference(value: float, error: float) -> str:
    """Return a difference with its standard error."""
    return f"{value:+.4f} ± {error:.4f}"


def cpu_info(field: str) -> str:
    """Return a field of the first processor, or nothing where the system does not tell."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


def cpu_seconds() -> float:
    """Return the CPU time all processes have used so far, or 0 where the system does not tell."""
    file = Path("/proc/stat")
    if not file.exists():
        return 0.0
    user, nice, system = file.read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


def machine() -> str:
    """Return the machine and the versions, in one line."""
    load = f" (load {os.getloadavg()[0]:.1f})" if hasattr(os, "getloadavg") else ""
    packages = ", ".join(f"{name} {version(name.lower())}" for name in ("NumPy", "Numba"))
    cpu = cpu_info("model name") or platform.processor() or platform.machine()
    return f"{cpu}, {CORES} core{'s' * (CORES > 1)}{load}; Python {platform.python_version()}, {packages}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a rough table in some 20 s, without the others")
    parser.add_argument("--full", action="store_true", help="the exact sum over 2^30 states, not extrapolated")
    parser.add_argument("--repeats", type=int, default=None, help="of every measurement (default 5, quick 3)")
    options = parser.parse_args()
    quick = options.quick
    bench = Bench(max(1, options.repeats or (3 if quick else 5)))
    status = Console(stderr=True)
    start = machine()  # the load before this run adds to it

    with status.status("limits"):
        limits(bench, *((2048, 500, 20) if quick else (8192, 1000, 20)))
    bench.table.add_section()
    with status.status("marginalis against itself"):
        itself(bench, *((8192, 200) if quick else (8192, 1000)))
    with status.status("lattice"):
        lattice(bench, 20 if quick else 100)
    with status.status("graphs and units"):
        graphs(bench, 20 if quick else 100)
    with status.status("exact sums"):
        exact(bench, 30 if options.full else 24 if quick else 28)
    bench.table.add_section()
    if quick:
        bench.missing("TFP on JAX; rbms", "", "left out by --quick")
    for size, steps in () if quick else ((SMALL, 1000), (LARGE, 50)):
        for threads in sorted({1, CORES}):
            with status.status(f"other packages, {size[0]}×{size[1]}, {threads} threads"):
                other_packages(bench, size, steps, threads)

    console = Console() if sys.stdout.isatty() else Console(width=175)
    console.print(bench.table)
    console.print(start, highlight=False)


if __name__ == "__main__":
    main()
