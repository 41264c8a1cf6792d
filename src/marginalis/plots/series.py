"""Figures of several values: free energies of many models, means of variables, and a difference of two models."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np

from ..answers.along import Along
from ..answers.averages import Average, words_of
from ..answers.difference import Difference
from ..answers.estimates import Estimates
from ..answers.expectations import Expectations
from ..answers.history import FRESH, History
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


def average(result: Average | Mapping[str, Average], *, ax: Any = None) -> Any:
    """Means over disorder against temperature with their 95 % bands, one line per answer.

    The light band is the standard deviation over the disorder. At one temperature the figure is a histogram of the
    values, with the mean and its interval.
    """
    sets = result if isinstance(result, Mapping) else {"": result}
    with panels(ax, 4.0) as (axes,):
        for (name, own), colour in zip(sets.items(), cycle(COLOURS[1:]), strict=False):
            words = words_of(own.quantity)
            temperatures = own.temperatures
            if temperatures is None:
                _distribution(axes, own, f"{name} samples".strip(), colour)
                axes.set_xlabel(words)
                axes.set_ylabel("samples of disorder")
                continue
            order = np.argsort(temperatures)
            t, mean, spread = temperatures[order], own.value[order], own.spread[order]
            label = f"{name + ', ' if name else ''}mean over {own.count} samples"
            axes.fill_between(t, mean - spread, mean + spread, color=colour, alpha=0.12, lw=0)
            axes.fill_between(t, *_without_infinities(own.interval[order]), color=colour, alpha=0.45, lw=0)
            axes.plot(t, mean, ".-" if len(t) <= _JOINED else "-", color=colour, lw=1.2, label=label)
            axes.set_xlabel("temperature T")
            axes.set_ylabel(words)
    return axes.figure if ax is None else ax


def _distribution(axes: Any, result: Average, label: str, colour: str) -> None:
    """Draw a histogram of the values of the samples, with the mean and its interval."""
    axes.hist(result.values, bins=bins_of(result.values), color=colour, alpha=0.5, label=label)
    low, high = result.interval
    shade_interval(axes.axvspan, low, high, "95 % interval of the mean")
    text = value_text(words_of(result.quantity), result.value, result.stderr)
    axes.axvline(result.value, color=COLOURS[0], lw=1.5, label=text)
    axes.locator_params(axis="x", nbins=7)


def history(result: History, *, ax: Any = None) -> Any:
    """Mean ln p of the rows and ln Z along a training run, with the 95 % bands due to the error of ln Z."""
    sets = result.names
    with panels(ax, *((2.6,) if sets else ()), 2.2) as drawn:
        x = result.steps
        mark = ".-" if len(x) <= _JOINED else "-"
        for place, name in enumerate(sets):
            colour = COLOURS[(place + 1) % len(COLOURS)]
            drawn[0].plot(x, result.log_p(name), mark, color=colour, lw=1.2, label=f"mean ln p, {name}")
            drawn[0].fill_between(x, *_without_infinities(result.log_p_intervals(name)), color=colour, alpha=0.25, lw=0)
        if sets:
            drawn[0].set_ylabel("mean ln p of a row, nats")
        label = "ln Z (bands: 95 % intervals)"
        drawn[-1].plot(x, result.log_z, mark, color=COLOURS[0], lw=1.2, label=label)
        drawn[-1].fill_between(x, *_without_infinities(result.intervals), color=COLOURS[0], alpha=0.25, lw=0)
        fresh = [p.step for p in result.points[1:] if p.source == FRESH]
        for axes in drawn:
            axes.vlines(fresh, 0.0, 1.0, transform=axes.get_xaxis_transform(), color="black", lw=0.7, ls=":", zorder=0)
        if fresh:
            drawn[-1].plot([], [], color="black", lw=0.7, ls=":", label="fresh run")
        drawn[-1].set_ylabel("ln Z")
        drawn[-1].set_xlabel("step of training")
        drawn[-1].xaxis.get_major_locator().set_params(integer=True)
    return drawn[0].figure if ax is None else ax


def _without_infinities(intervals: Array) -> Array:
    """Return the ends of intervals, with gaps where they are not finite."""
    known = np.isfinite(intervals[:, 0]) & np.isfinite(intervals[:, 1])
    return np.where(known, intervals.T, np.nan)


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
