"""Figures. Matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .estimate import Estimate
from .io import write_whole

FORMATS = ("png", "pdf", "svg", "jpg")
COLOURS = ("#c44e52", "#4c72b0", "#55a868", "#8172b3")


def weights(estimate: Estimate) -> Any:
    """Histogram of the log-weights with the estimate and its interval: a `matplotlib` figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    values = estimate.log_z0 + estimate.log_weights
    bins = min(80, max(10, int(np.sqrt(len(values))) * 2))
    middle = float(np.median(values))
    reach = max(float(np.abs(values - middle).max()), 1e-9 * max(1.0, abs(middle)))  # all weights may be equal
    axes.hist(values, bins=bins, range=(middle - reach, middle + reach), color=COLOURS[1], alpha=0.6, label="chains")
    low, high = estimate.interval
    if np.isfinite(low):
        axes.axvspan(-high, -low, color=COLOURS[0], alpha=0.3, lw=0, label="95 % interval of ln Z")
    axes.axvline(estimate.log_z, color=COLOURS[0], lw=1.5, label="ln Z estimate")
    axes.set_xlabel("ln Z$_0$ + log-weight of a chain")
    axes.set_ylabel("chains")
    axes.set_title(str(estimate).splitlines()[0].split("   ")[0])
    axes.legend(frameon=False)
    return figure


def convergence(results: Mapping[str, Sequence[Estimate]], exact: float) -> Any:
    """F against the number of steps, one line per method, with the exact value: a `matplotlib` figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.axhline(exact, color="black", lw=1, label="exact")
    for (name, estimates), colour, shift in zip(results.items(), COLOURS, (0.96, 1.04), strict=False):
        steps = [shift * r.steps for r in estimates]  # moved apart, so that both error bars are seen
        values, errors = [r.free_energy for r in estimates], [2 * r.stderr for r in estimates]
        axes.errorbar(steps, values, errors, fmt="o-", ms=4, lw=1, capsize=3, color=colour, label=name)
    axes.set_xscale("log")
    axes.set_xlabel("annealing steps K")
    axes.set_ylabel("free energy F (bars: ±2 standard errors)")
    axes.legend(frameon=False)
    return figure


def save(figure: Any, path: str | Path) -> None:
    """Write a figure in the format that the suffix names; PNG without one."""
    suffix = Path(path).suffix.lstrip(".").lower() or "png"
    write_whole(path, lambda file: figure.savefig(file, format=suffix, dpi=150))


def check_format(path: str | Path) -> None:
    """Raise a ValueError now if the suffix of `path` names no figure format."""
    suffix = Path(path).suffix.lstrip(".").lower() or "png"
    if suffix not in FORMATS:
        raise ValueError(f"cannot draw {path}: .{suffix} is not one of {', '.join(FORMATS)}")
