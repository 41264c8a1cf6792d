"""A run on thousands of workers that do not exist: how much of them is used, by the length of the tasks.

    python benchmarks/cluster_simulation.py --figure docs/figures/clusters.png

The parts are given out by the package's own `Ledger`; only workers and time are made up. Everyone works for five
minutes if nothing is wasted. Workers differ in speed, die (once an hour on average, and with them what they hold) and
come back after a minute; every message takes 20 ms on its way, and the one who gives parts out needs `--handling`
seconds for each (see benchmarks/cluster.py for what was measured).
"""

from __future__ import annotations

import argparse
import heapq
from pathlib import Path

import numpy as np

from marginalis.parallel.ledger import Ledger

LATENCY = 0.02
RETURN = 60.0  # seconds after which a dead worker is back
UNIT = 0.5  # seconds that a unit takes an average worker
START = 5.0  # seconds a worker needs to begin: import, kernels, the model


def simulate(workers: int, each: float, handling: float, lifetime: float, seconds: float | None, seed: int = 0) -> dict:
    """Return what share of the workers' time was of use, for parts of some seconds, or of the ledger's own choice."""
    rng = np.random.default_rng(seed)
    units = int(workers * each / UNIT)
    book = Ledger(units, UNIT, length=seconds or 0.0)
    speed = rng.lognormal(sigma=0.2, size=workers)
    speed *= workers / speed.sum()
    alive, epoch = np.ones(workers, dtype=bool), np.zeros(workers, dtype=int)
    begun = rng.uniform(0.0, START, size=workers)
    queue: list[list[range]] = [[] for _ in range(workers)]
    busy_until, now, lost, tasks = 0.0, 0.0, 0, 0
    times = np.zeros(units, dtype=np.uint8)  # how often each unit has come back
    events: list[tuple[float, int, str, int, int, range | None]] = []
    number = 0

    def push(when: float, kind: str, worker: int, part: range | None = None) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (when, number, kind, worker, int(epoch[worker]), part))

    def give(worker: int) -> None:
        """The one who gives parts out has a worker with room before it."""
        nonlocal busy_until, tasks
        part = book.take(now, workers)
        if part is None:
            push(now + 5.0, "asks", worker)
            return
        busy_until = max(busy_until, now) + handling
        tasks += 1
        push(busy_until + LATENCY, "arrives", worker, part)

    def start(worker: int) -> None:
        part = queue[worker][0]
        push(max(now, begun[worker]) + len(part) * UNIT / speed[worker], "done", worker, part)

    held: list[set[range]] = [set() for _ in range(workers)]
    for worker in range(workers):
        push(rng.exponential(lifetime), "dies", worker)
        for _ in range(2):
            push(0.0, "asks", worker)
    while not book.complete:
        now, _, kind, worker, when, part = heapq.heappop(events)
        if kind == "returns":
            alive[worker], begun[worker] = True, now + START
            push(now + rng.exponential(lifetime), "dies", worker)
            push(now, "asks", worker)
            push(now, "asks", worker)
        elif kind == "dies":
            if not alive[worker]:
                continue
            alive[worker] = False
            epoch[worker] += 1
            queue[worker].clear()
            for mine in held[worker]:
                lost += 1
                book.lose(mine)
            held[worker].clear()
            push(now + RETURN, "returns", worker)
        elif when != epoch[worker]:
            if kind == "arrives" and part is not None:  # to one who is gone
                book.lose(part)
        elif kind == "asks":
            give(worker)
        elif kind == "arrives" and part is not None:
            held[worker].add(part)
            queue[worker].append(part)
            if len(queue[worker]) == 1:
                start(worker)
        elif kind == "done" and part is not None:
            queue[worker].pop(0)
            held[worker].discard(part)
            push(now + LATENCY, "back", worker, part)
            if queue[worker]:
                start(worker)
        elif kind == "back" and part is not None:
            busy_until = max(busy_until, now) + handling
            if book.finish(part, len(part) * UNIT / speed[worker]):
                times[part.start : part.stop] += 1
            push(busy_until, "asks", worker)
    assert (times == 1).all(), "a unit was lost, or counted twice"
    return {"workers": workers, "efficiency": each / now, "tasks": tasks, "lost": lost, "seconds": now}


RULES = (("tasks of 1 s", 1.0), ("tasks of 10 s", 10.0), ("tasks of 100 s", 100.0), ("as the package cuts them", None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--minutes", type=float, default=5.0, help="that everyone works, if nothing is wasted")
    parser.add_argument(
        "--handling", type=float, default=0.001, help="seconds that a task takes the one who gives it out"
    )
    parser.add_argument("--lifetime", type=float, default=3600.0, help="mean seconds to a worker's death")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    rows: dict[str, list[dict]] = {}
    print(f"{'':26}{'workers':>8}{'used':>8}{'tasks':>9}{'lost':>7}{'minutes':>9}")
    for name, seconds in RULES:
        for workers in options.workers:
            if seconds == 1.0 and workers > 1000:
                continue  # hopeless, and long to compute
            row = simulate(workers, 60 * options.minutes, options.handling, options.lifetime, seconds)
            rows.setdefault(name, []).append(row)
            print(
                f"{name:26}{workers:8d}{row['efficiency']:8.1%}{row['tasks']:9d}{row['lost']:7d}"
                f"{row['seconds'] / 60:9.1f}",
                flush=True,
            )
    if options.figure:
        draw(rows, options)


def draw(rows: dict[str, list[dict]], options: argparse.Namespace) -> None:
    from matplotlib.figure import Figure

    from marginalis.plots import COLOURS

    drawing = Figure(figsize=(6.4, 3.9), layout="constrained")
    axes = drawing.subplots()
    for (name, found), colour, mark in zip(rows.items(), COLOURS, "sv^o", strict=False):
        x, y = zip(*((row["workers"], 100 * row["efficiency"]) for row in found), strict=True)
        axes.plot(x, y, f"{mark}-", color=colour, ms=5, lw=2 if name.startswith("as") else 1, label=name)
    axes.axvline(1 / (2 * options.handling), color="0.6", lw=0.8, ls=":")
    axes.annotate(
        "1 s tasks saturate", (1 / (2 * options.handling), 3), rotation=90, ha="right", fontsize=8, color="0.4"
    )
    axes.set(xscale="log", xlabel="workers", ylabel="share of their time that is of use / %", ylim=(0, 102))
    axes.legend(frameon=False, loc="lower left")
    drawing.savefig(options.figure, dpi=150)


if __name__ == "__main__":
    main()
