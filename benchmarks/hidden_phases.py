"""How often is an answer quietly wrong on models with a phase that appears only at the end of the path?

    python benchmarks/hidden_phases.py [--seeds n] [--model FILE] [--without-exact]

Features switch on at β = 1 (`experiments.families.switching`): for every β < 1 the state with a pattern has next to no
weight. Prints, for the default call, `tolerance=0.1`, and a plain run of 1000 steps, how many intervals miss the exact
ln Z, and how many of those without a warning. These models are so small that an exact sum is the second opinion of the
first two calls; `--without-exact` takes it away, as with larger models of the kind: only paths from quenches are asked.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from typing import Any

import marginalis as mg
from marginalis.planning import tuning
from marginalis.studies.families import switching

CASES = [(64, 1, 1.0), (64, 1, 2.0), (64, 2, 1.5), (100, 3, 1.0), (40, 4, 2.0), (200, 2, 1.0)]
CALLS: dict[str, dict[str, Any]] = {"default": {}, "tolerance=0.1": {"tolerance": 0.1}, "steps=1000": {"steps": 1000}}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--model", default=None, help="a model file in the place of those made here")
    parser.add_argument("--without-exact", action="store_true", help="no exact sum as the second opinion")
    options = parser.parse_args()
    models = {f"{n}x{m}, strength {s:g}": switching(s, 1, n, m) for n, m, s in CASES}
    if options.model:
        models = {options.model: mg.load(options.model)}
    exact = {name: -mg.exact_log_z(model) for name, model in models.items()}
    if options.without_exact:
        tuning.TUNING = replace(tuning.TUNING, exact_most=0.0)
    missed, quietly = Counter[str](), Counter[str]()
    for name, model in models.items():
        for call, given in CALLS.items():
            results = [mg.estimate(model, seed=seed, **given) for seed in range(options.seeds)]
            wrong = [r for r in results if not r.interval[0] <= exact[name] <= r.interval[1]]
            quiet = sum(not r.warnings for r in wrong)
            missed[call] += len(wrong)
            quietly[call] += quiet
            print(f"{name:24} {call:14} missed {len(wrong):3d}, quietly {quiet:3d} of {len(results)}", flush=True)
    for call in CALLS:
        total = options.seeds * len(models)
        print(f"{'all':24} {call:14} missed {missed[call]:3d}, quietly {quietly[call]:3d} of {total}")


if __name__ == "__main__":
    main()
