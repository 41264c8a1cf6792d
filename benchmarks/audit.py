"""Coverage and power of `mg.audit`: exact samples at the model's temperature, and at β 5 % colder and hotter.

    python benchmarks/audit.py [--repeats 200] [--samples 1000] [--models RBM Pegasus]

prints, for each model, the share of 95 % intervals that hold the β the samples were drawn at, the share of audits that
reject the model's own β at 5 %, and the share that object to the samples' being Boltzmann's at any temperature (none of
these are justified). Pieces of the Pegasus and Zephyr graphs need the package dwave-graphs.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import networkx as nx
import numpy as np

import marginalis as mg

FACTORS = (1.0, 1.05, 0.95)  # β of the samples over that of the model


def chimera(rows: int, columns: int, t: int = 4) -> nx.Graph:
    """Return the Chimera graph of cells K_{t,t}, as in `dwave_networkx.chimera_graph`."""
    graph = nx.Graph()
    for i in range(rows):
        for j in range(columns):
            graph.add_edges_from(((i, j, 0, a), (i, j, 1, b)) for a in range(t) for b in range(t))
            if i:
                graph.add_edges_from(((i - 1, j, 0, k), (i, j, 0, k)) for k in range(t))
            if j:
                graph.add_edges_from(((i, j - 1, 1, k), (i, j, 1, k)) for k in range(t))
    return graph


def models() -> dict[str, mg.MRF]:
    """Return models of which exact samples can be drawn."""
    rng = np.random.default_rng(1)
    rbm = mg.rbm(rng.normal(size=(12, 20)) / 3.0, rng.normal(size=12) / 5.0, rng.normal(size=20) / 5.0)
    lattice = mg.ising_grid((8, 8), periodic=True, field=0.05, temperature=2.6)
    graphs = {"Chimera 3x2, ±J": chimera(3, 2)}
    try:
        from dwave.graphs import pegasus_graph, zephyr_graph
    except ImportError:
        print("Pegasus and Zephyr are left out: they need dwave-graphs (pip install dwave-graphs)")
    else:
        graphs |= {"Pegasus 2, ±J": pegasus_graph(2), "Zephyr 1, ±J": zephyr_graph(1)}
    found = {"RBM 12x20": rbm, "torus 8x8": lattice}
    for name, graph in graphs.items():
        for a, b in graph.edges:
            graph.edges[a, b]["coupling"] = rng.choice([-1.0, 1.0])
        for a in graph.nodes:
            graph.nodes[a]["field"] = rng.normal() / 4.0
        found[name] = mg.from_graph(graph, temperature=1.5)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--models", nargs="+", default=[""], help="words with which names of models begin")
    given = parser.parse_args()
    print(
        f"{'model':>16} {'β/β_model':>10} {'covered':>9} {'rejects':>9} {'objects':>9} {'error':>9} {'bias/error':>11}"
    )
    for name, model in models().items():
        if not name.startswith(tuple(given.models)):
            continue
        for factor in FACTORS:
            source = replace(model, temperature=model.temperature / factor)
            start, found = time.perf_counter(), []
            for seed in range(given.repeats):
                rows = mg.sample(source, given.samples, exact=True, seed=1000 + seed).rows
                result = mg.audit(model, rows, bounds=False, seed=seed)
                low, high = result.interval
                true = 1.0 / source.temperature
                found.append(
                    (
                        low <= true <= high,
                        result.p_nominal < 0.05,
                        bool(result.objections),
                        result.stderr,
                        (result.beta - true) / result.stderr,
                    )
                )
            covered, rejects, objects, error, bias = np.array(found, dtype=float).mean(axis=0)
            print(
                f"{name:>16} {factor:10.2f} {covered:9.3f} {rejects:9.3f} {objects:9.3f} {error:9.4f} {bias:11.2f}"
                f"   ({time.perf_counter() - start:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
