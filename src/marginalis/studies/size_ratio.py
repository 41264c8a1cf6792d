"""Relative accuracy of AIS and mAIS against the ratio of the layers' sizes (the paper's figs. dist_beta*)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import Array
from ..plots import figure as empty_figure
from ..plots import style
from .experiment import Columns, Experiment, Key, Summary, mean_and_error
from .sampling import VISIBLE, Run, Setting, derive

ALPHA = (0.5, 1.0, 2.0, 3.0, 4.0)
INV_T = (0.5, 1.0, 2.0)
STEPS = (10, 30, 60)
METHODS = ("ais", "mais")
BANDWIDTH = 0.25  # Bandwidth of the kernel density estimate of ln r.


def items(instance: int) -> list[tuple[Any, ...]]:
    return [(instance,)]


def settings(item: tuple[Any, ...]) -> list[Setting]:
    (instance,) = item
    return [Setting(instance, "gaussian", int(alpha * VISIBLE), inv_t) for alpha in ALPHA for inv_t in INV_T]


def runs(setting: Setting, seed: int) -> list[Run]:
    """Return separate runs of AIS and mAIS, which the ratio r compares."""
    instance, _, hidden, inv_t = setting
    words = instance, hidden / VISIBLE, inv_t
    return [Run(k, (method,), derive(seed, "size-ratio", method, *words, k)) for k in STEPS for method in METHODS]


def log_ratio(columns: Columns, hidden: int, inv_t: float, steps: int) -> Array:
    """ln r of each instance: APE of AIS over APE of mAIS."""
    ais, mais = (columns.ape(Key("gaussian", hidden, inv_t, steps, m)) for m in ("ais", "mais"))
    return np.log(ais / mais)


def summarise(columns: Columns) -> Summary:
    """Mean and median of ln r."""
    rows = []
    for key in columns.estimates():
        if key.method != "ais":
            continue
        values = log_ratio(columns, key.hidden, key.inv_t, key.steps)
        mean, stderr = mean_and_error(values)
        rows.append(
            {
                "alpha": key.hidden / VISIBLE,
                "inv_t": key.inv_t,
                "steps": key.steps,
                "method": "ln r",
                "mean": mean,
                "stderr": stderr,
                "median": float(np.median(values)),
                "experiments": len(values),
            }
        )
    return rows


def figure(columns: Columns, summary: Summary) -> Any:
    """Densities of ln r, with a row per temperature, a column per K and a line per α."""
    with style():
        from matplotlib import colormaps

        drawing, panels = empty_figure(3, 3, (9.0, 8.0), sharex=True, sharey=True)
        grid = np.linspace(-4, 8, 241)
        for row, inv_t in zip(panels, INV_T, strict=True):
            for axes, steps in zip(row, STEPS, strict=True):
                for alpha, shade in zip(ALPHA, np.linspace(0.1, 0.85, len(ALPHA)), strict=True):
                    values = log_ratio(columns, int(alpha * VISIBLE), inv_t, steps)
                    density = np.exp(-0.5 * ((grid[:, None] - values) / BANDWIDTH) ** 2).mean(axis=1)
                    density /= BANDWIDTH * np.sqrt(2 * np.pi)
                    axes.plot(grid, density, lw=1.3, color=colormaps["viridis"](shade), label=f"α = {alpha:g}")
                axes.axvline(0, color="black", lw=0.8, ls=":")
                axes.set_title(f"1/T = {inv_t:g}, K = {steps}")
        for axes in panels[-1]:
            axes.set_xlabel("ln r; right of 0 mAIS is better")
        for axes in panels[:, 0]:
            axes.set_ylabel("density")
        panels[0, 0].legend()
    return drawing


EXPERIMENT = Experiment(
    name="size-ratio",
    title="Densities of ln r for several ratios α = |H|/|V|",
    experiments=4000,
    chains=1000,
    constants={"alpha": ALPHA, "inv_t": INV_T, "steps": STEPS, "visible": VISIBLE, "bandwidth": BANDWIDTH},
    items=items,
    settings=settings,
    runs=runs,
    summarise=summarise,
    figure=figure,
    text=(
        "r is the APE of AIS over that of an independent run of mAIS-V (Gaussian kernel, bandwidth 0.25). The "
        "paper finds that the densities move to the right as α grows: sum out the larger side."
    ),
)
