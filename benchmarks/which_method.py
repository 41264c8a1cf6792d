"""Which method when: rms error of ln Z at equal cost, beside the exact value.

    python benchmarks/which_method.py [--seeds 16] [--chains 500] [--only WORD] [--uai DIR]
                                      [--out docs/results/which-method.csv] [--figure docs/figures/which-method.png]
    python benchmarks/which_method.py --tolerance 0.05 [--seeds 4] [--only WORD]

The cost that all share is that of `mg.estimate(model, chains=500)`, which chooses its path itself. It is counted in
steps of one chain on the plain path (a sweep of all blocks). Everything that moves chains counts: pilots, quenches,
opinions, burn-in; steps from a mixture are dearer by what `Plan.operations` says of them. Two things do not: fitting
mixtures, and the exact sum that the default call may ask. They are in the CPU seconds of one thread, a column of the
CSV. Methods that have K to choose are run with 250 and with 1000 steps, and the better one is told; parallel tempering
finds its ladder by a pilot. Takes about 15 minutes of CPU time, most of it for tempering, which is plain NumPy.

With `--tolerance` it prints what `mg.estimate(model, tolerance=…)` costs as it is, and where no exact sum is asked.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import runpy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import parallel_tempering

import marginalis as mg
from marginalis.examples import ising_grid, rbm_gaussian, rbm_hopfield
from marginalis.planning import tuning
from marginalis.running.session import Session

ROOT = Path(__file__).parents[1]
STEPS = (250, 1000)
PLAIN = {"base": "uniform", "schedule": "adaptive"}
FIXED: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "20 populations": {**PLAIN, "resample": True, "populations": 20},
    "mixture of quenches": {"base": "quenches", "schedule": "adaptive"},
}
METHODS = [*FIXED, "default call", "tempering + Bennett"]
TRANSITION = 1.0 / math.log1p(math.sqrt(8.0))  # of the 8-state Potts model on the infinite square lattice
CRITICAL = 2.0 / math.log1p(math.sqrt(2.0))  # of the Ising model


def trained() -> mg.MRF:
    """Return the 64×20 RBM of examples/training.py after its last epoch."""
    training = runpy.run_path(str(ROOT / "examples" / "training.py"))
    rows, _ = training["digits"]()
    *_, last = training["pcd"](rows, 20, training["EPOCHS"][-1], rate=0.05, batch=200)
    return mg.rbm(*last, units="binary")


MODELS: dict[str, Callable[[], mg.MRF]] = {
    "Gaussian RBM 20×40, 1/T = 2": lambda: rbm_gaussian(20, 40, temperature=1 / 2),
    "Gaussian RBM 20×40, 1/T = 8": lambda: rbm_gaussian(20, 40, temperature=1 / 8),
    "Gaussian RBM 20×40, 1/T = 20": lambda: rbm_gaussian(20, 40, temperature=1 / 20),
    "Hopfield RBM 20×40, 1/T = 4": lambda: rbm_hopfield(20, 40, temperature=1 / 4),
    "Hopfield RBM 20×40, 1/T = 20": lambda: rbm_hopfield(20, 40, temperature=1 / 20),
    "RBM 64×20 trained on digits": trained,
    "Ising torus 16×16, T = 1.5": lambda: mg.ising_grid((16, 16), periodic=True, temperature=1.5),
    "Ising torus 16×16, critical": lambda: mg.ising_grid((16, 16), periodic=True, temperature=CRITICAL),
    "±J glass 8×8, T = 0.5": lambda: ising_grid((8, 8), coupling="pm:1", temperature=0.5),
    "±J glass 12×12, T = 0.5": lambda: ising_grid((12, 12), coupling="pm:1", temperature=0.5),
    "8-state Potts 8×6, at its transition": lambda: mg.potts_grid(
        (8, 6), 8, periodic=(False, True), temperature=TRANSITION
    ),
}
UAI = "grid10x10.f10"


@contextmanager
def counted() -> Iterator[list[tuple[float, float]]]:
    """Note steps of all chains and their price for every run of the driver, pilots and all."""
    runs: list[tuple[float, float]] = []
    own = Session.run

    def run(session: Session, plan: Any, *others: Any) -> Any:
        runs.append((plan.steps * plan.chains.count, plan.path.operations))
        return own(session, plan, *others)

    Session.run = run  # type: ignore[method-assign]
    try:
        yield runs
    finally:
        Session.run = own  # type: ignore[method-assign]


def estimated(model: mg.MRF, price: float, **options: Any) -> tuple[mg.Estimate, float, float]:
    """Return an estimate, what it cost in steps on the plain path, and its CPU seconds."""
    with counted() as runs:
        begin = time.process_time()
        result = mg.estimate(model, threads=1, **options)
        return result, sum(n * each for n, each in runs) / price, time.process_time() - begin


def measure(name: str, model: mg.MRF, seeds: int, chains: int) -> Iterator[dict[str, Any]]:
    """Give a row for every method, and every number of steps where that is to be chosen."""
    exact = mg.exact_log_z(model, max_seconds=60)
    with counted() as runs:
        mg.estimate(model, steps=10, chains=20)
        price = runs[0][1]
    mg.estimate(model, chains=chains, threads=1)  # compile
    found = [estimated(model, price, chains=chains, seed=seed) for seed in range(seeds)]
    budget = float(np.mean([cost for _, cost, _ in found]))

    def row(method: str, log_z: list[float], cost: float, seconds: float, steps: int, chains: int) -> dict[str, Any]:
        errors = np.array(log_z) - exact
        rms = float(np.sqrt(np.mean(errors**2)))
        made = dict(model=name, method=method, steps=steps, chains=chains, rms_error=rms, bias=float(errors.mean()))
        made |= dict(cost=round(cost), cpu_seconds=round(seconds, 3), seeds=len(log_z))
        print(" ".join(f"{x:.3g}" if isinstance(x, float) else f"{x}" for x in made.values()), flush=True)
        return made

    def row_of(method: str, found: list[tuple[mg.Estimate, float, float]]) -> dict[str, Any]:
        answers, costs, seconds = zip(*found, strict=True)
        first = answers[0]
        return row(
            method, [r.log_z for r in answers], np.mean(costs), float(np.mean(seconds)), first.steps, first.chains
        )

    yield row_of("default call", found)
    for method, options in FIXED.items():
        for steps in STEPS:
            options = {**options, "steps": steps}
            with counted() as runs:
                mg.estimate(model, chains=40, **options)
            *before, (_, each) = runs
            left = budget - sum(n * one for n, one in before) / price
            n = max(2, round(left * price / (steps * each) / 20)) * 20
            yield row_of(method, [estimated(model, price, chains=n, seed=seed, **options) for seed in range(seeds)])
    begin = time.process_time()
    betas, pilots = parallel_tempering.ladder(model, 0)
    sweeps = int((budget - pilots) / len(betas))
    values = parallel_tempering.log_z(model, betas, sweeps, seeds, 1)
    seconds = (time.process_time() - begin) / seeds
    yield row(METHODS[-1], list(values), sweeps * len(betas) + pilots, seconds, sweeps, len(betas))


def tolerance_row(name: str, model: mg.MRF, seeds: int, tolerance: float) -> str:
    """Return what a tolerance costs where an exact sum may keep watch, and where it may not, in millions of steps."""
    with counted() as runs:
        mg.estimate(model, steps=10, chains=20)
        price = runs[0][1]
    own, costs = tuning.TUNING, []
    for numbers in (own, replace(own, exact_most=0.0)):
        tuning.TUNING = numbers
        found = [estimated(model, price, tolerance=tolerance, seed=seed) for seed in range(seeds)]
        costs.append(float(np.mean([cost for _, cost, _ in found])) / 1e6)
        tuning.TUNING = own
    return f"| {name} | {costs[0]:.2g} | {costs[1]:.2g} | {costs[1] / costs[0]:.1f} |"


def best(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the better row of each model and method."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        of_model = found.setdefault(row["model"], {})
        known = of_model.get(row["method"])
        if known is None or row["rms_error"] < known["rms_error"]:
            of_model[row["method"]] = row
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Return the errors as a table in Markdown; the least one of a model, and what cannot be told from it, are bold."""
    lines = ["| model | cost | " + " | ".join(METHODS) + " |", "|" + "---|" * (len(METHODS) + 2)]
    for name, of_model in best(rows).items():
        least = min(x["rms_error"] for x in of_model.values())
        cells = [name, f"{of_model['default call']['cost'] / 1e6:.2f}"]
        for method in METHODS:
            row = of_model[method]
            near = row["rms_error"] < least * (1.0 + 1.5 / math.sqrt(row["seeds"]))  # one and a half errors of a ratio
            text = f"{row['rms_error']:.2g}" if row["rms_error"] < 9.95 else f"{row['rms_error']:.0f}"
            cells.append(f"**{text}**" if near else text)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the errors, a line for each model."""
    found = best(rows)
    with mg.plots.style():
        figure, panels = mg.plots.figure(1, 1, (7.6, 0.36 * len(found) + 1.5))
        axes = panels[0, 0]
        for k, method in enumerate(METHODS):
            x = [of_model[method]["rms_error"] for of_model in found.values()]
            style = {"marker": "osD*^"[k], "ms": 10 if method == "default call" else 6, "color": mg.plots.COLOURS[k]}
            axes.plot(x, range(len(x)), ls="", alpha=0.85, label=method, **style)
        axes.set_xscale("log")
        axes.set_yticks(range(len(found)), list(found))
        axes.invert_yaxis()
        axes.set_xlabel("rms error of ln Z at equal cost")
        figure.legend(loc="outside upper center", ncols=3)
    mg.plots.save(figure, path)


def main() -> None:
    """Measure, print, and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--chains", type=int, default=500, help="of the default call")
    parser.add_argument("--only", default="", help="models whose names hold this word")
    parser.add_argument("--tolerance", type=float, help="only tell what this costs, with and without an exact sum")
    parser.add_argument("--uai", type=Path, help=f"folder that holds {UAI}.uai, one more model")
    parser.add_argument("--out", type=Path, help="CSV; rows of other models that it has stay")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    models = dict(MODELS)
    if options.uai:
        models[f"UAI {UAI}"] = lambda: mg.load(options.uai / f"{UAI}.uai")
    chosen = {name: make for name, make in models.items() if options.only in name}
    if options.tolerance:
        print("| model | exact sum asked | not asked | ratio |\n|---|---|---|---|")
        for name, make in chosen.items():
            print(tolerance_row(name, make(), options.seeds, options.tolerance), flush=True)
        return
    rows: list[dict[str, Any]] = []
    if options.out and options.out.exists():
        with open(options.out, encoding="utf-8", newline="") as file:
            rows = [
                {k: x if k in ("model", "method") else json.loads(x) for k, x in row.items()}
                for row in csv.DictReader(file)
            ]
    for name, make in chosen.items():
        rows = [row for row in rows if row["model"] != name]
        rows += measure(name, make(), options.seeds, options.chains)
    order = {name: k for k, name in enumerate([*MODELS, f"UAI {UAI}"])}
    rows.sort(key=lambda row: order[row["model"]])
    print(table(rows))
    if options.out:
        with open(options.out, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if options.figure:
        draw(rows, options.figure)


if __name__ == "__main__":
    main()
