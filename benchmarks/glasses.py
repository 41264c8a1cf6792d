"""Print free energies of public spin-glass instances: exact where that is affordable, intervals for the others.

    python benchmarks/glasses.py FOLDER [--beta 1 3] [--only 2D_EA_PM_L32] [--tolerance 0.1] [--budget 60]

FOLDER holds .npz files of couplings J, as `scipy.sparse.save_npz` writes them, with E = −Σ J_ij s_i s_j, in any
subfolders. Those meant here are in the folder `instances` of `cqsl/sparse-twobody-arnn` on GitHub (Biazzo, Wu &
Carleo, Mach. Learn.: Sci. Technol. 5, 025074 (2024)): two- and three-dimensional ±J tori and random regular graphs.
They are third parties' and not part of this repository. F/(βn) = −ln Z/(βn) is the free energy per spin; a variational
sampler, such as a neural network, reports an upper bound of it.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import scipy.sparse as sp

import marginalis as mg


def row(path: Path, beta: float, options: argparse.Namespace) -> list[str]:
    """Return the cells of the table for one instance at one temperature."""
    model = mg.from_matrix(sp.load_npz(path), temperature=1.0 / beta)
    scale = beta * model.n_variables
    start = time.perf_counter()
    cells = [path.stem, str(model.n_variables), f"{beta:g}"]
    try:
        exact = mg.exact_log_z(model, max_seconds=options.seconds)
    except ValueError:  # too large, or digits would be lost
        found = mg.estimate(model, tolerance=options.tolerance, budget=options.budget)
        low, high = found.interval
        half = f"± {(high - low) / (2.0 * scale):.2g}"
        cells += [f"{found.free_energy / scale:.9f}", half, "annealing", str(len(found.warnings))]
    else:
        cells += [f"{-exact / scale:.9f}", "exact", exact.method, "0"]
    return [*cells, f"{time.perf_counter() - start:.1f}"]


def main() -> None:
    """Sum or estimate, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--beta", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--only", default="", help="part of the names to take")
    parser.add_argument("--tolerance", type=float, default=0.1, help="half width of the intervals of ln Z")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for an estimate")
    parser.add_argument("--seconds", type=float, default=200.0, help="seconds that an exact sum may take")
    options = parser.parse_args()
    paths = [path for path in options.folder.rglob("*.npz") if options.only in path.stem]
    if not paths:
        parser.error(f"no .npz file in {options.folder}")
    titles = "instance", "spins", "β", "F/(βn)", "interval", "method", "warnings", "s"
    print("| " + " | ".join(titles) + " |")
    print("|" + "---|" * len(titles))
    for path in sorted(paths, key=lambda p: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", p.stem)]):
        for beta in options.beta:
            print("| " + " | ".join(row(path, beta, options)) + " |", flush=True)


if __name__ == "__main__":
    main()
