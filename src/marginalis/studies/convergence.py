"""APE against the number of steps, for Gibbs and for Roussel's transitions (the paper's figs. K_gauss, K_hp)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..display.words import method_name
from ..files.store import Row
from ..options import Engine
from ..parallel.threads import Tick
from ..plots import COLOURS, style
from ..plots import figure as empty_figure
from .ape_temperature import summarise_ape
from .experiment import Columns, Experiment, Key, Summary, keys_of
from .sampling import VISIBLE, Setting, derive, exact_row, make_model, sample_rows

HIDDEN = 40
MODELS = ("gaussian", "hopfield")
INV_T = (2.0, 20.0)
STEPS = (10, 30, 100, 300, 1000)
METHODS = ("ais", "ais+mh", "mais", "mais+mh")
TIMED = 8  # Instances on which mAIS also runs alone, to measure its CPU time.


def items(instance: int) -> list[tuple[Any, ...]]:
    return [(instance, model, inv_t) for model in MODELS for inv_t in INV_T]


def keys(item: tuple[Any, ...]) -> list[Key]:
    _, kind, inv_t = item
    return keys_of(kind, HIDDEN, inv_t, STEPS, METHODS)


def measure(item: tuple[Any, ...], seed: int, chains: int, engine: Engine, tick: Tick) -> list[Row]:
    instance, kind, inv_t = item
    setting = Setting(instance, kind, HIDDEN, inv_t)
    model = make_model("convergence", seed, setting)
    rows = [exact_row(model, setting, engine)]
    for steps in STEPS:
        for transition in ("gibbs", "metropolis"):
            own = derive(seed, "convergence", "chains", instance, kind, inv_t, steps, transition)
            found = sample_rows(
                model, setting, steps, ("ais", "mais"), own, chains, transition=transition, engine=engine, tick=tick
            )
            if instance < TIMED:  # The same seed gives the same numbers, and now the time of mAIS alone.
                alone = sample_rows(
                    model, setting, steps, ("mais",), own, chains, transition=transition, engine=engine, tick=tick
                )
                found = found[:1] + alone
            rows += found
    return rows


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
    settings={"models": MODELS, "inv_t": INV_T, "steps": STEPS, "visible": VISIBLE, "hidden": HIDDEN},
    items=items,
    keys=keys,
    measure=measure,
    summarise=summarise_ape,
    figure=figure,
    text=(
        "Mean APE for RBMs with Gaussian and with Hopfield weights; MH adds one Metropolis sweep over the "
        "hidden units per step. The paper finds mAIS+MH best throughout, mAIS ahead of AIS+MH, and the MH methods "
        "about ten times slower than mAIS; the lower panels show their time here. AIS and mAIS share their paths."
    ),
)
