"""Figures. Matplotlib is imported when one is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .estimate import Estimate
from .io import write_whole


def weights(estimate: Estimate) -> Any:
    """Histogram of the log-weights with the estimate and its interval: a `matplotlib` figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    values = estimate.log_z0 + estimate.log_weights
    axes.hist(values, bins=min(80, max(10, int(np.sqrt(len(values))) * 2)), color="#7aa6c2", label="chains")
    low, high = estimate.interval
    if np.isfinite(low):
        axes.axvspan(-high, -low, color="#c44e52", alpha=0.3, lw=0, label="95 % interval of ln Z")
    axes.axvline(estimate.log_z, color="#c44e52", lw=1.5, label="ln Z estimate")
    axes.set_xlabel("ln Z$_0$ + log-weight of a chain")
    axes.set_ylabel("chains")
    axes.set_title(str(estimate).splitlines()[0].split("   ")[0])
    axes.legend(frameon=False)
    return figure


def save(figure: Any, path: str | Path) -> None:
    """Write a figure in the format that the suffix names; PNG without one."""
    suffix = Path(path).suffix.lstrip(".").lower() or "png"
    write_whole(path, lambda file: figure.savefig(file, format=suffix, dpi=150))


def check_format(path: str | Path) -> None:
    """Raise a ValueError now if the suffix of `path` names no figure format."""
    from matplotlib.backend_bases import FigureCanvasBase

    suffix = Path(path).suffix.lstrip(".").lower() or "png"
    known = FigureCanvasBase.get_supported_filetypes()
    if suffix not in known:
        raise ValueError(f"cannot draw {path}: .{suffix} is not one of {', '.join(sorted(known))}")
