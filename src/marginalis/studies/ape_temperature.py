"""Absolute percentage error against the inverse temperature (the paper's fig. ape_vs_T)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..display.words import method_name
from ..plots import COLOURS, style
from ..plots import figure as empty_figure
from .experiment import Columns, Experiment, Summary, mean_and_error
from .sampling import VISIBLE, Run, Setting, derive

HIDDEN = 40
INV_T = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
STEPS = (10, 30, 60)


def items(instance: int) -> list[tuple[Any, ...]]:
    return [(instance,)]


def settings(item: tuple[Any, ...]) -> list[Setting]:
    (instance,) = item
    return [Setting(instance, "gaussian", HIDDEN, inv_t) for inv_t in INV_T]


def runs(setting: Setting, seed: int) -> list[Run]:
    instance, _, _, inv_t = setting
    words = seed, "ape-temperature", "chains", instance, inv_t
    return [Run(k, ("ais", "mais"), derive(*words, k)) for k in STEPS]


def summarise_ape(columns: Columns) -> Summary:
    """Mean APE with its standard error for every column."""
    rows = []
    for key in columns.estimates():
        ape, stderr = mean_and_error(columns.ape(key))
        known = columns.seconds[key][np.isfinite(columns.seconds[key])]
        rows.append(
            {
                "model": key.model,
                "inv_t": key.inv_t,
                "steps": key.steps,
                "method": key.method,
                "mean": ape,
                "stderr": stderr,
                # The median is not affected by the first run, which includes compilation.
                "cpu_seconds": float(np.median(known)) if len(known) else None,
                "experiments": len(columns.free_energy[key]),
            }
        )
    return rows


def figure(columns: Columns, summary: Summary) -> Any:
    """APE against 1/T, with one panel per K."""
    with style():
        drawing, panels = empty_figure(1, 3, (9.0, 3.6), sharey=True)
        for axes, steps in zip(panels[0], STEPS, strict=True):
            for method, colour, mark in zip(("ais", "mais"), COLOURS, "os", strict=False):
                rows = [r for r in summary if r["method"] == method and r["steps"] == steps]
                x, y, e = ([r[k] for r in rows] for k in ("inv_t", "mean", "stderr"))
                label = method_name(method)
                axes.errorbar(x, y, [2 * s for s in e], fmt=f"{mark}-", ms=4, lw=1, color=colour, label=label)
            axes.set(yscale="log", xlabel="inverse temperature 1/T", title=f"K = {steps}")
        panels[0, 0].set_ylabel("absolute percentage error, mean")
        panels[0, 0].legend()
    return drawing


EXPERIMENT = Experiment(
    name="ape-temperature",
    title="APE against 1/T",
    experiments=1000,
    chains=1000,
    constants={"inv_t": INV_T, "steps": STEPS, "visible": VISIBLE, "hidden": HIDDEN},
    items=items,
    settings=settings,
    runs=runs,
    summarise=summarise_ape,
    figure=figure,
    text=(
        "Mean absolute percentage error of f over RBMs with Gaussian weights. The paper finds mAIS below AIS "
        "at every temperature, most of all at high temperature. Both estimates come from one run."
    ),
)
