"""How often is an answer quietly wrong on models with a phase that appears only at the end of the path?

    python benchmarks/hidden_phases.py [--seeds n] [--model FILE]

Features switch on at β = 1: hidden unit j has the weights s·ξ_j of a pattern and the bias that makes both its states
equally likely with all others off. For every β < 1 the switched-on state has next to no weight. Prints, for the default
call, `tolerance=0.1`, and a plain run of 1000 steps, how many intervals miss the exact ln Z, and how many of those
without a warning.
"""

from __future__ import annotations

import argparse

import marginalis as mg
from marginalis.experiments.families import switching

CASES = [(64, 1, 1.0), (64, 1, 2.0), (64, 2, 1.5), (100, 3, 1.0), (40, 4, 2.0), (200, 2, 1.0)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--model", default=None, help="a model file in the place of those made here")
    options = parser.parse_args()
    models = {f"{n}x{m}, strength {s:g}": switching(s, 1, n, m) for n, m, s in CASES}
    if options.model:
        models = {options.model: mg.load(options.model)}
    calls = {"default": {}, "tolerance=0.1": {"tolerance": 0.1}, "steps=1000": {"steps": 1000}}
    for name, model in models.items():
        exact = -mg.exact_log_z(model)
        for call, given in calls.items():
            results = [mg.estimate(model, seed=seed, **given) for seed in range(options.seeds)]
            missed = [not r.interval[0] <= exact <= r.interval[1] for r in results]
            quiet = [miss and not r.warnings for miss, r in zip(missed, results, strict=True)]
            print(f"{name:24} {call:14} missed {sum(missed):3d}, quietly {sum(quiet):3d} of {len(results)}")


if __name__ == "__main__":
    main()
