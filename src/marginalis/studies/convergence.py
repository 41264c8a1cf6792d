"""APE against the number of steps, for Gibbs and for Roussel's transitions (the paper's figs. K_gauss, K_hp)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..display.words import method_name
from ..options import Transition
from ..plots import COLOURS, style
from ..plots import figure as empty_figure
from .ape_temperature import summarise_ape
from .experiment import Columns, Experiment, Summary
from .sampling import VISIBLE, Run, Setting, derive

HIDDEN = 40
MODELS = ("gaussian", "hopfield")
INV_T = (2.0, 20.0)
STEPS = (10, 30, 100, 300, 1000)
TRANSITIONS: tuple[Transition, ...] = ("gibbs", "metropolis")
METHODS = ("ais", "ais+mh", "mais", "mais+mh")
TIMED = 8  # Instances on which mAIS also runs alone, to measure its CPU time.


def items(instance: int) -> list[tuple[Any, ...]]:
    return [(instance, model, inv_t) for model in MODELS for inv_t in INV_T]


def settings(item: tuple[Any, ...]) -> list[Setting]:
    instance, kind, inv_t = item
    return [Setting(instance, kind, HIDDEN, inv_t)]


def runs(setting: Setting, seed: int) -> list[Run]:
    instance, kind, _, inv_t = setting
    found = []
    for steps in STEPS:
        for transition in TRANSITIONS:
            own = derive(seed, "convergence", "chains", instance, kind, inv_t, steps, transition)
            found.append(Run(steps, ("ais", "mais"), own, transition))
            if instance < TIMED:  # The same seed gives the same numbers, and now the time of mAIS alone.
                found.append(Run(steps, ("mais",), own, transition))
    return found


def figure(columns: Columns, summary: Summary) -> Any:
    """APE against K (top row) and against CPU time (bottom row), with a column per model and temperature."""
    with style():
        drawing, panels = empty_figure(2, 4, (12.0, 6.6), sharey="col")
        cases = [(model, inv_t) for model in MODELS for inv_t in INV_T]
        for (above, below), (model, inv_t) in zip(panels.T, cases, strict=True):
            for method, colour, mark in zip(METHODS, COLOURS, "osvD", strict=False):
                rows = [r for r in summary if (r["model"], r["inv_t"], r["method"]) == (model, inv_t, method)]
                x, y, e = (np.array([r[k] for r in rows], dtype=float) for k in ("steps", "mean", "stderr"))
                look = dict(fmt=f"{mark}-", ms=4, lw=1, color=colour, label=method_name(method))
                above.errorbar(x, y, 2 * e, **look)
                seconds = np.array([r["cpu_seconds"] for r in rows], dtype=float)
                below.errorbar(seconds, y, 2 * e, **look)
            title = f"{model.capitalize()} weights, 1/T = {inv_t:g}"
            above.set(xscale="log", yscale="log", xlabel="annealing steps K", title=title)
            below.set(xscale="log", yscale="log", xlabel="CPU seconds")
        for axes in panels[:, 0]:
            axes.set_ylabel("absolute percentage error, mean")
        panels[0, 0].legend()
    return drawing


EXPERIMENT = Experiment(
    name="convergence",
    title="APE against K and CPU time, Gibbs and Metropolis",
    experiments=1000,
    chains=10000,
    constants={"models": MODELS, "inv_t": INV_T, "steps": STEPS, "visible": VISIBLE, "hidden": HIDDEN},
    items=items,
    settings=settings,
    runs=runs,
    summarise=summarise_ape,
    figure=figure,
    text=(
        "Mean APE for RBMs with Gaussian and with Hopfield weights; MH adds one Metropolis sweep over the "
        "hidden units per step. The paper finds mAIS+MH best throughout, mAIS ahead of AIS+MH, and the MH methods "
        "about ten times slower than mAIS; the lower panels show their time here. AIS and mAIS share their paths."
    ),
)
