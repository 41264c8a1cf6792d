"""Figures of several values: free energies of many models, means of variables, and a difference of two models."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..answers.along import Along
from ..answers.difference import Difference
from ..answers.estimates import Estimates
from ..answers.expectations import Expectations
from ..checks import Array
from ..display.sketch import COLOURS
from .marks import shade_interval, value_text
from .numbers import bins_of
from .panels import panels

_NAMED = 12  # At most so many models or variables have their names on the axis.
_JOINED = 60  # More points than this are drawn as a line without dots.


def free_energies(result: Along | Estimates, *, ax: Any = None) -> Any:
    """F of every model of a sequence or of a table of answers, with 95 % intervals."""
    intervals = -result.intervals[:, ::-1] if isinstance(result, Along) else result.intervals
    with panels(ax, 4.0) as (axes,):
        _points(axes, result.names, result.free_energy, intervals, "F and its 95 % interval", isinstance(result, Along))
        axes.set_xlabel("model")
        axes.set_ylabel("free energy F")
    return axes.figure if ax is None else ax


def means(result: Expectations, *, ax: Any = None) -> Any:
    """Means of all features, in the caller's order, with two standard errors."""
    with panels(ax, 4.0) as (axes,):
        reach = 2.0 * result.mean_errors
        intervals = np.stack([result.means - reach, result.means + reach], axis=1)
        names = tuple(result.feature(i) for i in range(len(result.means)))
        label = "mean (exact)" if result.is_exact else "mean, with two standard errors"
        _points(axes, names, result.means, intervals, label, False)
        axes.set_xlabel("variable")
        axes.set_ylabel("mean")
    return axes.figure if ax is None else ax


def difference(result: Difference, *, ax: Any = None) -> Any:
    """Histograms of the log-weights of both directions, which cross at ln Z_b − ln Z_a (Crooks), with its interval."""
    with panels(ax, 4.2) as (axes,):
        forward, back = result.forward_log_weights, -result.reverse_log_weights
        edges = bins_of(forward, back)
        for values, colour, name in ((back, COLOURS[2], "b to a"), (forward, COLOURS[1], "a to b")):
            label = f"chains from {name}, {len(values)}"
            axes.hist(values, bins=edges, density=True, color=colour, alpha=0.5, label=label)
        shade_interval(axes.axvspan, *result.interval, "95 % interval")
        label = value_text("ln Z$_b$ − ln Z$_a$", result.log_ratio, result.stderr)
        axes.axvline(result.log_ratio, color=COLOURS[0], lw=1.5, label=label)
        axes.locator_params(axis="x", nbins=7)
        axes.set_xlabel("log-weight (b to a: with the sign turned)")
        axes.set_ylabel("density of chains")
    return axes.figure if ax is None else ax


def _points(axes: Any, names: Any, values: Array, intervals: Array, label: str, joined: bool) -> None:
    """Draw values with intervals against the numbers or names of what they belong to."""
    numbers = all(isinstance(name, int | float) for name in names)
    x = np.array(names if numbers else range(len(names)), dtype=np.float64)
    around = np.abs(intervals - values[:, None])
    around[~np.isfinite(around)] = np.nan  # The error is not finite if there is only one chain.
    if joined and len(x) > _JOINED:
        axes.plot(x, values, color=COLOURS[0], lw=1.2, label=label)
        axes.fill_between(x, *intervals.T, color=COLOURS[0], alpha=0.3, lw=0)
    else:
        mark = "o-" if joined else "o"
        axes.errorbar(x, values, around.T, fmt=mark, ms=4, lw=1.0, capsize=2, color=COLOURS[0], label=label)
    if not numbers and len(names) <= _NAMED:
        axes.set_xticks(x, [str(name)[:20] for name in names])
    else:
        axes.xaxis.get_major_locator().set_params(integer=True)
