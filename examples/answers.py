"""Estimates to a tolerance beside the exact value, on eight kinds of model: the picture of the README.

Writes docs/figures/answers.png, or the file that is named as argument; takes about half a minute.
"""

import sys
import time

import networkx as nx
import numpy as np
from matplotlib.figure import Figure

import marginalis as mg
from marginalis import plots
from marginalis.examples import random_dbm, rbm_gaussian, rbm_hopfield

TOLERANCE = 0.05


def models() -> dict[str, mg.MRF]:
    """Return models whose ln Z can be computed exactly, the hardest first."""
    rng = np.random.default_rng(0)
    bonds = rng.normal(size=(16, 16)), rng.normal(size=(16, 16))
    clique = np.triu(rng.normal(size=(22, 22)) / 22**0.5, 1)
    ladder = nx.convert_node_labels_to_integers(nx.triangular_lattice_graph(10, 16))
    return {
        "Ising torus 32×32 at T$_c$": mg.ising_grid((32, 32), coupling=0.4406868, periodic=True),
        "spin glass 16×16, T = 1": mg.ising_grid((16, 16), coupling=bonds),
        "RBM 20×40, 1/T = 2": rbm_gaussian(20, 40, temperature=0.5),
        "Hopfield RBM 20×40, 1/T = 4": rbm_hopfield(20, 40, temperature=0.25),
        "deep Boltzmann machine 12–20–12": random_dbm([12, 20, 12], scale=4.0),
        "Potts grid 10×10, q = 3": mg.potts_grid((10, 10), 3, coupling=0.9),
        "triangular antiferromagnet, 99 sites": mg.from_edges(list(ladder.edges), coupling=-0.7),
        "Sherrington–Kirkpatrick, 22 spins": mg.from_matrix(clique + clique.T, temperature=0.5),
    }


def main(path: str) -> None:
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    names = models()
    for row, (name, model) in enumerate(names.items()):
        exact = -mg.exact_log_z(model)
        begin = time.perf_counter()
        result = mg.estimate(model, tolerance=TOLERANCE)
        seconds = time.perf_counter() - begin
        low, high = result.interval
        print(f"{name:38} {result.free_energy:.4f}, exact {exact:.4f}, {seconds:.1f} s", *result.warnings, sep="\n  ")
        axes.plot([low - exact, high - exact], [row, row], color="#0072b2", lw=5, alpha=0.35, solid_capstyle="butt")
        axes.plot(result.free_energy - exact, row, "o", color="#0072b2", ms=6)
        axes.text(0.118, row, f"F = {exact:.2f}".replace("-", "−"), va="center", ha="right", fontsize=9, color="#444")
    axes.axvline(0, color="black", lw=1)
    axes.set_yticks(range(len(names)), list(names))
    axes.set_xlim(-0.07, 0.12)
    axes.set_xticks([-0.05, 0, 0.05])
    axes.invert_yaxis()
    axes.set_xlabel("estimate − exact value, in nats (bars: 95 % intervals)")
    axes.spines[["top", "right"]].set_visible(False)
    plots.save(figure, path)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "docs/figures/answers.png")
