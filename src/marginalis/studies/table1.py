"""Table I: the true free energy per variable and the trial averages of AIS and mAIS."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtr

from ..display.words import method_name
from ..plots import COLOURS, style
from ..plots import figure as empty_figure
from .experiment import Columns, Experiment, Key, Summary, mean_and_error
from .sampling import VISIBLE, Run, Setting, derive

HIDDEN, TRIALS = 40, 30
INV_T = (0.2, 0.4, 0.8, 1.0, 2.0, 4.0, 8.0)
STEPS = (10, 30, 60)
PRINTED_RBMS = 1000  # Number of RBMs behind the printed means.
# Values of the paper's Table I by 1/T: the true one, then AIS and mAIS for K = 10, 30, 60.
PRINTED = {
    0.2: (-0.69759, (-0.69759, -0.69759, -0.69759), (-0.69759, -0.69759, -0.69759)),
    0.4: (-0.71084, (-0.71083, -0.71084, -0.71084), (-0.71084, -0.71084, -0.71084)),
    0.8: (-0.76376, (-0.76373, -0.76375, -0.76375), (-0.76375, -0.76376, -0.76376)),
    1.0: (-0.80306, (-0.80300, -0.80305, -0.80305), (-0.80305, -0.80306, -0.80306)),
    2.0: (-1.10992, (-1.10782, -1.10977, -1.10987), (-1.10963, -1.10987, -1.10990)),
    4.0: (-1.95593, (-1.93328, -1.95345, -1.95545), (-1.95143, -1.95535, -1.95575)),
    8.0: (-3.80281, (-3.70846, -3.78813, -3.79920), (-3.78087, -3.79925, -3.80186)),
}
_LINEAR = 1e-5  # Errors below this are drawn on a linear scale.
_ROUNDING = 1e-5 / math.sqrt(12)  # Standard error due to rounding of a number printed with five decimals.


def items(instance: int) -> list[tuple[Any, ...]]:
    return [(instance, inv_t) for inv_t in INV_T]


def settings(item: tuple[Any, ...]) -> list[Setting]:
    instance, inv_t = item
    return [Setting(instance, "gaussian", HIDDEN, inv_t)]


def runs(setting: Setting, seed: int) -> list[Run]:
    instance, _, _, inv_t = setting
    return [Run(k, ("ais", "mais"), derive(seed, "table1", "chains", instance, inv_t, k)) for k in STEPS]


def printed(key: Key) -> float:
    """Return the value printed in the paper."""
    true, ais, mais = PRINTED[key.inv_t]
    if key.method == "exact":
        return true
    return (ais if key.method == "ais" else mais)[STEPS.index(key.steps)]


def summarise(columns: Columns) -> Summary:
    """Mean f and mean error f̂ − f with standard errors over the RBMs, and z against the printed values.

    The printed means have the sampling error of 1000 other RBMs, which is assumed to be of the same size.
    """
    n = VISIBLE + HIDDEN
    rows = []
    for key in sorted(columns.free_energy):
        f = columns.free_energy[key] / n
        error = (columns.free_energy[key] - columns.exact(key)) / n
        mean, stderr = mean_and_error(f)
        bias, bias_stderr = mean_and_error(error)
        paper = printed(key)
        paper_bias = paper - PRINTED[key.inv_t][0]
        both = math.sqrt(1.0 + len(f) / PRINTED_RBMS)
        row: dict[str, Any] = {
            "inv_t": key.inv_t,
            "steps": key.steps or None,
            "method": "true" if key.method == "exact" else key.method,
            "mean": mean,
            "stderr": stderr,
            "printed": paper,
            "z": _z(mean - paper, len(f), stderr * both, _ROUNDING),
            "experiments": len(f),
        }
        if key.method != "exact":
            row |= {
                "error": bias,
                "error_stderr": bias_stderr,
                "printed_error": round(paper_bias, 5),
                "z_error": _z(bias - paper_bias, len(f), bias_stderr * both, _ROUNDING * math.sqrt(2)),
            }
        rows.append(row)
    return rows


def _z(difference: float, n: int, *errors: float) -> float:
    """Return the normal z value with the same probability as a difference divided by its standard error.

    The standard error comes from n RBMs, so the ratio follows Student's t with n − 1 degrees of freedom.
    """
    t = difference / math.hypot(*errors)
    tail = float(stdtr(n - 1, -abs(t))) if n > 1 else math.nan
    return math.copysign(float(ndtri(tail)), t) if tail > 0.0 or math.isnan(tail) else t


def figure(columns: Columns, summary: Summary) -> Any:
    """The mean error f̂ − f against 1/T, measured and printed."""
    with style():
        drawing, panels = empty_figure(1, 3, (9.0, 3.8), sharey=True)
        for axes, steps in zip(panels[0], STEPS, strict=True):
            axes.axhline(0.0, color="black", lw=0.8)
            for method, colour, mark in zip(("ais", "mais"), COLOURS, "os", strict=False):
                name = method_name(method)
                rows = [r for r in summary if r["method"] == method and r["steps"] == steps]
                x, y, e = (np.array([r[k] for r in rows]) for k in ("inv_t", "error", "error_stderr"))
                axes.errorbar(x, y, 2 * e, fmt=f"{mark}-", ms=4, lw=1, color=colour, label=f"{name}, measured")
                p = [r["printed_error"] for r in rows]
                axes.plot(x, p, "x", ms=7, color=colour, label=f"{name}, in the paper")
            axes.set(xscale="log", xlabel="inverse temperature 1/T", title=f"K = {steps}")
            axes.set_yscale("symlog", linthresh=_LINEAR)  # Errors change sign, and most printed ones are 0.
            axes.set(yticks=(0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1), ylim=(-_LINEAR, 0.2))
            labelled = [x for x in INV_T if x != 0.8]  # The label of 0.8 would touch that of 1.
            axes.set_xticks(labelled, [f"{x:g}" for x in labelled])
            axes.minorticks_off()
        panels[0, 0].set_ylabel("mean error of f")
        panels[0, 0].legend()
    return drawing


EXPERIMENT = Experiment(
    name="table1",
    title="Table I: free energy per variable, true and estimated",
    experiments=1000,
    chains=1000,
    constants={"inv_t": INV_T, "steps": STEPS, "trials": TRIALS, "visible": VISIBLE, "hidden": HIDDEN},
    items=items,
    settings=settings,
    runs=runs,
    trials=TRIALS,
    summarise=summarise,
    figure=figure,
    text=(
        "Means over RBMs of the trial averages of f, beside the printed values. E[F_AIS] ≥ E[F_mAIS] ≥ F must "
        "hold (Theorem 2). Both estimates come from one run: AIS takes the path of mAIS-V. The columns z compare "
        "with the printed means and with the printed mean errors f̂ − f; the latter vary far less from RBM to "
        "RBM and so are the sharper comparison."
    ),
)
