"""ns per chain·step and weight against the size of the model, beside the two bare matrix products; a figure of it.

    python benchmarks/curve.py measure out.json [--repeats n]
    python benchmarks/curve.py draw docs/figures/speed.svg out.json [other-machine.json ...]

The two sides of every point alternate in one run (see bench.py). One thread is measured by its CPU time, which others
on the machine disturb less; on all threads, where each has its share of the chains, the clock on the wall counts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench import CORES, SMALL, Bench, Limit, Ours, against_limit, busy, machine
from others import Unavailable, Worker, cpu_time
from rich.console import Console
from rich.table import Table

SIZES = (SMALL, (64, 64), (128, 128), (256, 256), (784, 500), (1000, 1000), (2000, 2000), (4000, 4000))
WORK = 2e10  # multiply-adds of one run on one thread, about
CHAINS = 512  # per thread: a whole number of blocks in every job


def point(bench: Bench, size: tuple[int, int], threads: int) -> dict:
    """Measure one size on some threads; times in ns per chain·step."""
    weights = size[0] * size[1]
    chains = CHAINS * threads
    steps = int(max(6, min(1000, WORK / (2 * weights * CHAINS))))
    bare = Worker("products", *size, chains, steps, threads=threads)
    runs = [Ours(size, chains, k, threads=threads) for k in (steps, 1)] + [bare]
    if threads == 1:
        ours, short, blas = bench.best(*(lambda run=run: cpu_time(run()) for run in runs))
    else:
        ours, short, blas = bench.best(*runs)
    bare.close()
    return {
        "size": size,
        "threads": threads,
        "marginalis": 1e9 * (ours.seconds - short.seconds) / (chains * (steps - 1)),  # laying out the model aside
        "blas": 1e9 * blas.seconds / (chains * steps),
        "busy": threads > 1 and busy([ours, blas], threads),
    }


def scaling(bench: Bench, size: tuple[int, int], steps: int) -> list[dict]:
    """Measure one size on 1, 2, 4, … threads, the same chains on each."""
    counts = sorted({min(2**i, CORES) for i in range(10)})
    times = bench.best(*(Ours(size, CHAINS * CORES, steps, threads=n) for n in counts))
    return [
        {"size": size, "threads": n, "speedup": times[0].seconds / t.seconds}
        for n, t in zip(counts, times, strict=True)
    ]


def measure(path: Path, repeats: int) -> None:
    """Write all points of this machine to a file, and print them."""
    bench, console = Bench(repeats), Console(width=150)
    found: dict = {"machine": machine(), "points": [], "scaling": []}
    for size in SIZES:
        for threads in sorted({1, CORES}):
            found["points"].append(point(bench, size, threads))
            path.write_text(json.dumps(found, indent=1))
    for size, steps in ((SMALL, 1000), ((784, 500), 60)):
        found["scaling"] += scaling(bench, size, steps)
    try:
        limit, ours = Limit(8192, 500), Ours(SMALL, 8192, 500)
        times = against_limit(bench, ours, limit)
        found["limit"] = times[0].seconds / times[1].seconds
    except Unavailable as why:
        found["limit"] = None
        console.print(f"limit.c: {why}")
    path.write_text(json.dumps(found, indent=1))
    console.print(summary(found))


def summary(found: dict) -> Table:
    """Return the points as a table."""
    columns = ("size", "threads", "ns per chain·step", "ps per weight", "products in BLAS", "ratio")
    table = Table(*columns, title=found["machine"])
    for p in found["points"]:
        weights = p["size"][0] * p["size"][1]
        name = "×".join(map(str, p["size"]))
        ratio = f"{p['marginalis'] / p['blas']:.2f}" + " (busy)" * p["busy"]
        table.add_row(name, str(p["threads"]), f"{p['marginalis']:,.1f}", f"{1e3 * p['marginalis'] / weights:.1f}",
                      f"{1e3 * p['blas'] / weights:.1f}", ratio)  # fmt: skip
    for s in found["scaling"]:
        table.add_row("×".join(map(str, s["size"])), str(s["threads"]), "", "", "", f"{s['speedup']:.2f} × one thread")
    if found["limit"]:
        table.add_row("20×40", "1", "", "", "limit.c", f"{found['limit']:.2f}")
    return table


def draw(figure: Path, files: list[Path]) -> None:
    """Draw the curves of one or more machines, one panel each."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(files), figsize=(5.2 * len(files), 3.8), sharey=True, squeeze=False)
    for axis, file in zip(axes[0], files, strict=True):
        found = json.loads(file.read_text())
        for threads, style in zip(sorted({p["threads"] for p in found["points"]}), ("-", "--"), strict=False):
            points = [p for p in found["points"] if p["threads"] == threads and not p["busy"]]
            weights = [p["size"][0] * p["size"][1] for p in points]
            on = f"{threads} thread{'s' * (threads > 1)}"
            for key, colour, name in (
                ("marginalis", "C0", "marginalis, all included"),
                ("blas", "C1", "bare products"),
            ):
                ns = [1e3 * threads * p[key] / w for p, w in zip(points, weights, strict=True)]
                axis.plot(weights, ns, style, marker="o", color=colour, label=f"{name}, {on}")
        axis.set(xscale="log", xlabel="weights", title=found["machine"].split(" (load")[0])
        axis.grid(alpha=0.3, which="both")
    axes[0][0].set_ylabel("ps per chain·step and weight, × threads")
    axes[0][0].set_ylim(bottom=0)
    axes[0][-1].legend(fontsize=7)
    fig.tight_layout()
    fig.savefig(figure)


def main() -> None:
    """Measure or draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["measure", "draw"])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.what == "measure":
        measure(options.files[0], options.repeats)
    else:
        draw(options.files[0], options.files[1:])


if __name__ == "__main__":
    main()
