"""Do the errors of mean values hold? Coverage of ±1.96 errors over seeds on models with exact means.

A line per model, chains N and steps K: seeds without and with a warning, and how often means and correlations lie
within 1.96 errors of the exact ones, all of a run taken together. Takes some minutes.
"""

import numpy as np

import marginalis as mg
from marginalis.examples import rbm_gaussian, rbm_hopfield

SEEDS = 100


def families() -> dict[str, mg.MRF]:
    rng = np.random.default_rng(0)
    signs = tuple(rng.choice([-1.0, 1.0], (4, 5)) for _ in range(2))
    return {
        "RBM, T = 1": rbm_gaussian(8, 12, temperature=1.0, seed=1),
        "RBM, T = 1/4": rbm_gaussian(8, 12, temperature=0.25, seed=1),
        "RBM, T = 1/10": rbm_gaussian(8, 12, temperature=0.1, seed=1),
        "Hopfield, T = 1/4": rbm_hopfield(12, 6, temperature=0.25, seed=2),
        "Ising 4×4, T = 2.3": mg.ising_grid((4, 4), coupling=1.0, field=0.05, temperature=2.3),
        "Ising 4×4, T = 1.5": mg.ising_grid((4, 4), coupling=1.0, field=0.05, temperature=1.5),
        "±J glass 4×5, T = 0.6": mg.ising_grid((4, 5), coupling=signs, field=0.1, temperature=0.6),
        "Potts 3×3, q = 3": mg.potts_grid((3, 3), q=3, coupling=1.2),
        "SK, 10 spins": mg.from_matrix(np.triu(rng.normal(size=(10, 10)), 1) * 2 / np.sqrt(10), units="spin"),
    }


def covered(found: mg.Expectations, exact: mg.Expectations) -> tuple[float, float]:
    """Return the shares of means and of correlations within 1.96 errors."""
    means = np.abs(found.means - exact.means) <= 1.96 * found.mean_errors + 1e-12
    products = np.abs(found.correlations - exact.correlations) <= 1.96 * found.correlation_errors + 1e-12
    return float(means.mean()), float(products.mean())


def cell(shares: list[tuple[float, float]]) -> str:
    values = "{:6.1%} {:6.1%}".format(*np.mean(shares, axis=0)) if shares else "      -      -"
    return f"{len(shares):6d} {values}"


def main() -> None:
    print(f"{'':22} {'N':>4} {'K':>4} | {'quiet':>5}  means   corr | {'warned':>6} means   corr")
    total: dict[int, tuple[list, list]] = {50: ([], []), 200: ([], [])}
    for name, model in families().items():
        exact = mg.expectations(model, exact=True)
        for chains, both in total.items():
            for steps in (20, 200):
                own: tuple[list, list] = ([], [])
                for seed in range(SEEDS):
                    found = mg.expectations(model, exact=False, chains=chains, steps=steps, seed=seed)
                    own[bool(found.warnings)].append(covered(found, exact))
                print(f"{name:22} {chains:4d} {steps:4d} |{cell(own[0])} |{cell(own[1])}", flush=True)
                for all_of, some in zip(both, own, strict=True):
                    all_of += some
    for chains, (quiet, warned) in total.items():
        print(f"{'all':22} {chains:4d}      |{cell(quiet)} |{cell(warned)}")


if __name__ == "__main__":
    main()
