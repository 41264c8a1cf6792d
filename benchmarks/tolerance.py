"""What `tolerance=` costs beside the best fixed choice of steps and chains in hindsight.

    python benchmarks/tolerance.py [--tolerance 0.01]

The best fixed choice is looked for among K = 4, 8, 16, … with the linear and with a fitted schedule: for each K the
relative variance of the weights is measured with 4000 chains, and N follows from it and the tolerance. The cheapest
ones are run, and the first whose result carries no warning is taken. Times are CPU seconds, best of three.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import marginalis as mg
from marginalis.examples import rbm_gaussian, rbm_hopfield
from marginalis.planning.pilots import plan_with_pilots
from marginalis.running.session import Session

MODELS: dict[str, Callable[[], Any]] = {
    **{
        f"{name} 20x40, 1/T = {t}": lambda t=t, make=make: make(20, 40, temperature=1 / t, seed=1)
        for name, make in (("gaussian", rbm_gaussian), ("hopfield", rbm_hopfield))
        for t in (1, 2, 8, 20)
    },
    "Ising torus 16x16, critical": lambda: mg.ising_grid((16, 16), coupling=0.44068679, periodic=True),
    "binary 100x50": lambda: binary(100, 50),
}


def binary(n: int, m: int) -> Any:
    import numpy as np

    rng = np.random.default_rng(3)
    return mg.rbm(rng.normal(size=(n, m)) * 0.3, rng.normal(size=n) - 1.0, rng.normal(size=m), units="binary")


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    best, result = math.inf, None
    for _ in range(3):
        start = time.process_time()
        result = run()
        best = min(best, time.process_time() - start)
    return best, result


def half_width(r: mg.Estimate) -> float:
    return (r.interval[1] - r.interval[0]) / 2


def best_fixed(model: Any, tolerance: float) -> tuple[float, str]:
    """Return the seconds of the cheapest choice that meets the tolerance without a warning, and its name."""
    choices = []
    for schedule in ("linear", "adaptive"):
        least = math.inf
        for steps in (2**k for k in range(2, 17)):
            betas = plan_with_pilots(model, Session(2), steps=steps, schedule=schedule).betas
            trial = mg.estimate(model, schedule=betas, chains=4000, seed=99)
            if trial.warnings:
                continue
            chains = max(32, math.ceil(1.05 * (trial.chains / trial.ess - 1.0) * (1.96 / tolerance) ** 2))
            choices.append((chains * steps, schedule, steps, chains, betas))
            least = min(least, chains * steps)
            if chains * steps > 3 * least:  # and it will not get better
                break
    for _, schedule, steps, chains, betas in sorted(choices, key=lambda choice: choice[0]):
        seconds, r = timed(lambda betas=betas, n=chains: mg.estimate(model, schedule=betas, chains=n))
        if not r.warnings and half_width(r) < 1.1 * tolerance:
            return seconds, f"{schedule} K = {steps}, N = {chains}"
    return math.inf, "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tolerance", type=float, default=0.01)
    tolerance = parser.parse_args().tolerance
    mg.estimate(rbm_gaussian(20, 40), tolerance=0.1)  # compile
    for name, make in MODELS.items():
        model = make()
        mg.estimate(model, tolerance=0.3)
        seconds, r = timed(lambda model=model: mg.estimate(model, tolerance=tolerance))
        best, choice = best_fixed(model, tolerance)
        met = half_width(r) <= tolerance and not r.warnings
        print(
            f"{name:30} tolerance= {seconds:7.3f} s (K = {r.steps}, N = {r.chains}, {'met' if met else 'not met'});"
            f" best fixed {best:7.3f} s ({choice}); ratio {seconds / best:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
