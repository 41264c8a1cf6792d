"""Errors of default calls and of calls to a tolerance, by version of the package, on models with known ln Z.

    python benchmarks/before_after.py FOLDER [FOLDER ...] [--out errors.csv] [--seeds 4] [--tolerance 0.1] [--budget 60]
    python benchmarks/before_after.py --figure docs/figures/before-after.png [--out docs/results/before-after.csv]

A folder holds models (.npz: model files, or weights W, b, c of an RBM of zeros and ones) and values.json, which gives
"ln_z" and perhaps its "error" by name. Every call adds a line to the CSV file with the version that made it, so that
two versions are compared by running this file with the one and with the other on the path (PYTHONPATH).
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import marginalis as mg

COLUMNS = ("version", "model", "call", "seed", "error", "low", "high", "held", "warned", "cpu")
FAR = 10.0  # Errors beyond this are drawn at the edge of the figure.
LINEAR = 0.1  # Errors below this are drawn on a linear scale.


def read(path: Path) -> Any:
    """Return the model of a file."""
    with np.load(path) as arrays:
        if set(arrays) == {"W", "b", "c"}:
            return mg.rbm(*(arrays[name].astype(float) for name in "Wbc"), units="binary")
    return mg.load(path)


def measure(folder: Path, options: argparse.Namespace, out: Any) -> None:
    """Make all calls on the models of a folder."""
    for name, known in json.loads((folder / "values.json").read_text()).items():
        if options.models and name not in options.models:
            continue
        model = read(folder / f"{name}.npz")
        calls: dict[str, dict[str, Any]] = {"default": {}, "tolerance": {"tolerance": options.tolerance}}
        if options.budget:
            calls["tolerance"]["budget"] = options.budget
        for call in options.calls:
            for seed in range(options.seeds):
                begin = time.process_time()
                r = mg.estimate(model, seed=seed, threads=1, **calls[call])
                seconds = time.process_time() - begin
                low, high = (-end - known["ln_z"] for end in reversed(r.interval))
                # The known value may be uncertain itself.
                held = low <= 2 * known.get("error", 0.0) and high >= -2 * known.get("error", 0.0)
                row = (mg.__version__, name, call, seed, r.log_z - known["ln_z"], low, high, held, bool(r.warnings))
                out.writerow([round(x, 4) if isinstance(x, float) else x for x in (*row, seconds)])


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Draw the errors of default calls, one row of points per model and version."""
    rows = [row for row in rows if row["call"] == "default"]
    models, versions = (list(dict.fromkeys(row[key] for row in rows)) for key in ("model", "version"))
    figure, panels = mg.plots.figure(1, len(versions), (4.2 * len(versions), 0.3 * len(models) + 1.3))
    for column, version in enumerate(versions):
        axes = panels[0, column]
        axes.axvline(0.0, color="0.6", lw=0.8)
        axes.axvspan(-0.5, 0.5, color="0.93", lw=0)
        for row in (row for row in rows if row["version"] == version):
            error = float(np.clip(float(row["error"]), -FAR, FAR))
            quiet = row["warned"] == "False"
            colour = "C2" if row["held"] == "True" else "C3"
            place = models.index(row["model"]) + 0.12 * (int(row["seed"]) - 1.5)
            axes.plot(error, place, "o", ms=4.5, mec=colour, mfc=colour if quiet else "none", clip_on=False)
        axes.set_xscale("symlog", linthresh=LINEAR, linscale=0.7)
        axes.set_xlim(-FAR, FAR)
        axes.set_xticks([-10, -1, -0.1, 0, 0.1, 1, 10], ["−10", "−1", "−0.1", "0", "0.1", "1", "10"])
        axes.set_ylim(len(models) - 0.4, -0.6)
        axes.set_yticks(range(len(models)), models if column == 0 else [""] * len(models))
        axes.set_title(f"version {version}")
        axes.set_xlabel("error of ln Z")
    for label, style in {
        "interval holds": {"mec": "C2", "mfc": "C2"},
        "interval misses": {"mec": "C3", "mfc": "C3"},
        "with a warning": {"mec": "0.3", "mfc": "none"},
    }.items():
        panels[0, -1].plot([], [], "o", ms=4.5, label=label, **style)
    panels[0, -1].legend(loc="lower right", fontsize="small")
    mg.plots.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results/before-after.csv"))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--tolerance", type=float, default=0.1)
    parser.add_argument("--budget", type=float, default=None)
    parser.add_argument("--calls", nargs="+", choices=("default", "tolerance"), default=["default", "tolerance"])
    parser.add_argument("--models", nargs="+", help="only these models")
    parser.add_argument("--figure", type=Path, help="draw the figure of a finished file")
    options = parser.parse_args()
    if options.folders:
        is_new = not options.out.exists()
        with options.out.open("a", newline="", buffering=1) as file:
            out = csv.writer(file)
            if is_new:
                out.writerow(COLUMNS)
            for folder in options.folders:
                measure(folder, options, out)
    if options.figure:
        with options.out.open(newline="") as file:
            draw(list(csv.DictReader(file)), options.figure)


if __name__ == "__main__":
    main()
