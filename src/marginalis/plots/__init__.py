"""Figures of models and results, one function per figure.

Each function returns a `matplotlib` figure, which a notebook displays. With ``ax=`` it draws on the given axes (a list
of axes for a figure with several panels) and returns them. Matplotlib is imported when the first figure is drawn.

`numbers` computes what is drawn, `panels` and `canvas` hold the common style, and `pictures` draws models. The package
imports the answers and the layers below them; the studies, the reports and the command line use it. Read `weights`
first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..answers.along import Along
from ..answers.audit import Audit
from ..answers.averages import Average
from ..answers.bounds import Bounds
from ..answers.difference import Difference
from ..answers.estimates import Estimates
from ..answers.exact_curve import ExactCurve
from ..answers.expectations import Expectations
from ..answers.free_energy import FreeEnergy
from ..answers.history import History
from ..answers.likelihood import LogLikelihood
from ..answers.likelihoods import LogLikelihoods
from ..answers.thermodynamics import Thermodynamics
from ..checks import a_kind
from ..display.sketch import COLOURS as COLOURS
from ..display.words import method_name
from ..files.atomic import write_whole
from ..models.model import MRF
from ..models.units import Array
from ..results.curve import Curve
from ..results.estimate import Estimate
from ..statistics import confidence
from ..statistics.weights import Weights
from . import pictures
from .marks import mark_exact, scale_counts, set_limits, shade_interval, value_text
from .numbers import bins_of, running_means, tail_density
from .panels import figure as figure
from .panels import inline_svg as inline_svg
from .panels import panels as _panels
from .panels import style as style
from .series import average as average
from .series import difference as difference
from .series import free_energies as free_energies
from .series import history as history
from .series import means as means

FORMATS = ("png", "pdf", "svg", "jpg")
_MARKERS = "osD^v"
_POINTS = 400  # Largest number of points of a line; more cannot be told apart.


def weights(estimate: Estimate | Weights, *, exact: float | None = None, ax: Any = None) -> Any:
    """Histogram of the log-weights with their fitted tail, the estimate, its interval and, if given, the exact F."""
    with _panels(ax, 4.2) as (axes,):
        values = estimate.log_z0 + estimate.log_weights[estimate.log_weights > -np.inf]
        edges = bins_of(values)
        counts, _, _ = axes.hist(values, bins=edges, color=COLOURS[1], alpha=0.6, label=estimate.ess_of)
        tail = confidence.fit_tail(estimate.log_weights)
        if tail is not None:
            y, density = tail_density(tail)
            fitted = tail.size * (edges[1] - edges[0]) * density
            label = rf"Pareto tail of the weights, $\hat k$ = {tail.k:.2f}"
            shown = fitted > 0.1  # Bins below the axis would only widen it.
            axes.plot(estimate.log_z0 + y[shown], fitted[shown], color=COLOURS[3], lw=1.8, label=label)
        low, high = estimate.interval
        shade_interval(axes.axvspan, -high, -low, "95 % interval")
        if low == -np.inf < high:
            axes.axvline(-high, color=COLOURS[0], lw=1.5, ls="--", label="lower bound of ln Z (95 %)")
        axes.axvline(
            estimate.log_z, color=COLOURS[0], lw=1.5, label=value_text("ln Z", estimate.log_z, estimate.stderr)
        )
        mark_exact(axes.axvline, None if exact is None else -exact)
        scale_counts(axes, counts)  # The tail consists of few chains and decides how reliable the mean is.
        axes.locator_params(axis="x", nbins=7)
        axes.set_xlabel(f"ln Z$_0$ + log-weight of a {estimate.ess_of[:-1]}")
        axes.set_ylabel(estimate.ess_of)
    return axes.figure if ax is None else ax


def running(estimate: Estimate, *, exact: float | None = None, ax: Any = None) -> Any:
    """F from the first n chains (or populations) against n, with ±1.96 standard errors of the delta method."""
    with _panels(ax, 4.2) as (axes,):
        number, unit = len(estimate.log_weights), estimate.ess_of
        n = np.unique(np.geomspace(1, number, _POINTS).round().astype(np.int64))
        log_mean, errors = (x[n - 1] for x in running_means(estimate.log_weights))
        f, reach = -estimate.log_z0 - log_mean, 1.96 * errors
        few = number <= 10
        axes.plot(n, f, "o-" if few else "-", color=COLOURS[1], lw=1.5, ms=4, label=f"F of the first n {unit}")
        label, band = "±1.96 standard errors", ((f - reach)[1:], (f + reach)[1:])
        if few:
            axes.vlines(n[1:], *band, color=COLOURS[1], alpha=0.5, lw=3, label=label if number > 1 else None)
        else:
            axes.fill_between(n[1:], *band, color=COLOURS[1], alpha=0.25, lw=0, label=label)
        low, high = estimate.interval
        shade_interval(axes.axhspan, low, high, "95 % interval of all")
        axes.axhline(
            f[-1], color=COLOURS[0], lw=1, ls="--", label=value_text("F", estimate.free_energy, estimate.stderr)
        )
        mark_exact(axes.axhline, exact)
        axes.set_xscale("log")
        axes.set_xlim(0.95, 1.05 * number)
        if few:
            axes.set_xticks(n)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        # The first few chains vary so much that they would hide the others.
        late = (n >= math.sqrt(number)) & np.isfinite(reach)
        seen = [f[-1], *(f - reach)[late], *(f + reach)[late], *filter(math.isfinite, (low, high))]
        set_limits(axes.set_ylim, seen)
        axes.set_xlabel(f"number of {unit} n")
        axes.set_ylabel("free energy F")
    return axes.figure if ax is None else ax


def curve(estimate: Estimate | Curve, *, exact: ExactCurve | None = None, ax: Any = None) -> Any:
    """ln Z(β) along the path from the base to the model, with its 95 % interval.

    For a run from the uniform base, the `exact` values of the model at other temperatures can be drawn for comparison.
    """
    whole = estimate if isinstance(estimate, Curve) else estimate.curve
    if whole is None:
        raise ValueError("this estimate has no curve: call estimate with record=True")
    with _panels(ax, 3.2, 1.8) as (top, bottom):
        pick = np.unique(np.linspace(0, len(whole.betas) - 1, _POINTS).round().astype(np.int64))
        part = replace(whole, betas=whole.betas[pick], log_weights=whole.log_weights[pick])
        betas = np.concatenate([[0.0], part.betas])
        log_z = np.concatenate([[whole.log_z0], part.log_z])
        every = max(1, len(part.betas) // 40)
        label = "ln Z(β); dots are equal numbers of steps apart"
        top.plot(betas, log_z, color=COLOURS[0], lw=1.2, marker=".", markevery=every, label=label)
        top.set_ylabel("ln Z(β)")
        bottom.axhline(0.0, color=COLOURS[0], lw=1.2)
        around = np.concatenate([[[0.0, 0.0]], part.intervals - part.log_z[:, None]])
        if np.isfinite(around).all():
            bottom.fill_between(betas, *around.T, color=COLOURS[0], alpha=0.3, lw=0, label="95 % interval")
            set_limits(bottom.set_ylim, around.ravel())
        else:
            bottom.set_yticks([])
            bottom.text(0.5, 0.55, "one chain gives no interval", transform=bottom.transAxes, ha="center")
        if exact is not None:
            x = exact.betas / exact.betas[-1]
            seen = betas >= x[0]
            top.plot(x, exact.log_z, color="black", lw=0.8, label="exact", zorder=0)
            from scipy.interpolate import CubicSpline  # This import is slow, so it is done only here.

            bottom.plot(betas[seen], CubicSpline(x, exact.log_z)(betas[seen]) - log_z[seen], color="black", lw=0.8)
        bottom.set_xlim(-0.02, 1.02)
        bottom.set_ylabel("interval\nless ln Z(β)")
        bottom.set_xlabel("β, from the base (0) to the model (1)")
    return top.figure if ax is None else ax


def works(bounds: Bounds, *, exact: float | None = None, ax: Any = None) -> Any:
    """Histograms of the work of both directions, which cross at F (Crooks), with the bounds and F.

    The forward work −ln W and the negative reverse work, both minus ln Z_0, are on the scale of F.
    """
    with _panels(ax, 4.2) as (axes,):
        forward = -bounds.forward.log_weights - bounds.forward.log_z0
        back = bounds.reverse_log_weights - bounds.forward.log_z0
        edges = bins_of(forward, back)
        for values, colour, name in ((back, COLOURS[2], "reverse"), (forward, COLOURS[1], "forward")):
            axes.hist(values, bins=edges, density=True, color=colour, alpha=0.5, label=f"{name} chains, {len(values)}")
        label = (
            f"bounds, probability ≥ {bounds.confidence:g}" if bounds.is_certified else "bounds, lower one approximate"
        )
        axes.axvspan(bounds.lower, bounds.upper, color="black", alpha=0.07, lw=0)
        for place in (bounds.lower, bounds.upper):
            axes.axvline(place, color="black", lw=1, ls="--", label=label if place == bounds.lower else None)
        by = "Bennett" if bounds.is_two_sided else "forward"
        name = f"{value_text('F', bounds.free_energy, bounds.stderr)}, {by}"
        axes.axvline(bounds.free_energy, color=COLOURS[0], lw=1.5, label=name)
        mark_exact(axes.axvline, exact)
        axes.locator_params(axis="x", nbins=7)
        axes.set_xlabel("work minus ln Z$_0$ (reverse: with the opposite sign)")
        axes.set_ylabel("density of chains")
    return axes.figure if ax is None else ax


def audit(result: Audit, *, ax: Any = None) -> Any:
    """Mean energy of the model against β, mean energy of the samples, the fitted β, and the β of the model."""
    with _panels(ax, 4.2) as (axes,):
        curve = result.curve
        order = np.argsort(curve.betas)
        x, y = curve.betas[order], curve.energy[order]
        reach = 1.96 * curve.energy_error[order]
        axes.plot(x, y, color=COLOURS[1], lw=1.5, label="mean energy of the model")
        axes.fill_between(x, y - reach, y + reach, color=COLOURS[1], alpha=0.25, lw=0)
        low, high = (result.energy + sign * 1.96 * result.energy_error for sign in (-1.0, 1.0))
        axes.axhspan(low, high, color=COLOURS[2], alpha=0.3, lw=0, label=f"mean energy of {result.samples} samples")
        shade_interval(axes.axvspan, *result.interval, "95 % interval of β")
        axes.axvline(result.beta, color=COLOURS[0], lw=1.5, label=value_text("β", result.beta, result.stderr))
        axes.axvline(result.nominal, color="black", lw=1.0, ls="--", label=f"the model, β = {result.nominal:.4g}")
        axes.set_xlabel("inverse temperature β")
        axes.set_ylabel("energy")
    return axes.figure if ax is None else ax


def thermodynamics(result: Thermodynamics, *, exact: ExactCurve | None = None, ax: Any = None) -> Any:
    """Energy, entropy and heat capacity per variable against temperature, or against β if β = 0 is included."""
    with _panels(ax, 2.0, 2.0, 2.0, legend=False) as panels:
        hot = bool((result.betas == 0.0).any())
        x = result.betas if hot else result.temperatures
        order = np.argsort(x)
        names = ("energy", "entropy", "heat_capacity")
        for axes, name, colour in zip(panels, names, COLOURS, strict=False):
            _points_with_errors(axes, x[order], result, name, order, colour)
            axes.set_ylabel(name.replace("_", " "))
            if exact is not None:
                line = exact.betas if hot else 1.0 / exact.betas
                axes.plot(line, getattr(exact, name) / result.variables, color="black", lw=0.8, label="exact")
        if exact is not None:
            panels[-1].legend()
        if not hot and x.max() > 20.0 * x.min():
            panels[-1].set_xscale("log")
        panels[0].set_title(f"per variable, n = {result.variables} (bars: ±2 standard errors)", fontsize="medium")
        panels[-1].set_xlabel("inverse temperature β" if hot else "temperature T")
        panels[0].figure.align_ylabels(panels)
    return panels[0].figure if ax is None else ax


def likelihoods(results: LogLikelihoods | Mapping[str, LogLikelihoods], *, ax: Any = None) -> Any:
    """Mean ln p over a sequence of models, one line per set of rows, with the 95 % band due to the error of ln Z."""
    sets = results if isinstance(results, Mapping) else {"mean ln p": results}
    with _panels(ax, 4.2) as (axes,):
        for place, (name, result) in enumerate(sets.items()):
            colour = COLOURS[place % len(COLOURS)]
            numbers = all(isinstance(x, int | float) for x in result.names)
            x = np.array(result.names if numbers else range(len(result.names)), dtype=np.float64)
            mark = ".-" if len(x) <= 60 else "-"
            axes.plot(x, result.mean, mark, color=colour, lw=1.2, label=f"{name}, {result.samples} rows")
            if np.isfinite(result.intervals).all():
                label = "95 % interval from ln Z" if place == 0 else None
                axes.fill_between(x, *result.intervals.T, color=colour, alpha=0.3, lw=0, label=label)
            if x.min() > 0.0 and x.max() > 50.0 * x.min():  # Training runs are often saved at growing intervals.
                axes.set_xscale("log")
            if not numbers:
                axes.set_xticks(x, [str(name) for name in result.names])
        axes.set_xlabel("model (update)")
        axes.set_ylabel("mean ln p of a row, in nats")
    return axes.figure if ax is None else ax


def heat(result: Thermodynamics, *, exact: ExactCurve | None = None, ax: Any = None) -> Any:
    """ln Z and heat capacity per variable against the inverse temperature, with the exact curves if given."""
    with _panels(ax, 2.1, 2.1, legend=False) as panels:
        order = np.argsort(result.betas)
        for axes, name, colour in zip(panels, ("log_z", "heat_capacity"), COLOURS, strict=False):
            _points_with_errors(axes, result.betas[order], result, name, order, colour)
            axes.set_ylabel(f"{'ln Z' if name == 'log_z' else 'heat capacity'} / n")
            if exact is not None:
                axes.plot(exact.betas, getattr(exact, name) / result.variables, color="black", lw=0.8, label="exact")
                axes.legend()
        panels[-1].set_xlabel("inverse temperature β")
        panels[0].figure.align_ylabels(panels)
    return panels[0].figure if ax is None else ax


def likelihood(result: LogLikelihood, *, ax: Any = None) -> Any:
    """Histogram of ln p of the rows, with the mean."""
    with _panels(ax, 3.4) as (axes,):
        axes.hist(result.per_sample, bins=bins_of(result.per_sample), color=COLOURS[1], alpha=0.6, label="rows")
        axes.axvline(result.mean, color=COLOURS[0], lw=1.5, label=f"mean {result.mean:.4g}")
        axes.set_xlabel("ln p of a row")
        axes.set_ylabel("rows")
    return axes.figure if ax is None else ax


def _points_with_errors(axes: Any, x: Array, result: Thermodynamics, name: str, order: Any, colour: str) -> None:
    """Draw a quantity per variable with two standard errors."""
    value = getattr(result, name)[order] / result.variables
    error = 2.0 * getattr(result, name + "_error")[order] / result.variables
    error[~np.isfinite(error)] = np.nan  # The error is not finite if there is only one chain.
    axes.plot(x, value, color=colour, lw=0.8, alpha=0.4)
    axes.errorbar(x, value, error, fmt="o", ms=3, elinewidth=1.2, capsize=2, color=colour)


def convergence(results: Mapping[str, Sequence[Estimate]], exact: float, *, ax: Any = None) -> Any:
    """F against the number of steps, one line per method, with the exact value."""
    with _panels(ax, 4.0) as (axes,):
        axes.axhline(exact, color="black", lw=1, label="exact")
        number = len(results)
        # Methods are moved apart so that all error bars are visible.
        shifts = 1.04 ** (np.linspace(-1.0, 1.0, number) * min(number - 1, 3))
        for place, ((name, estimates), shift) in enumerate(zip(results.items(), shifts, strict=True)):
            colour, marker = COLOURS[place % len(COLOURS)], _MARKERS[(place + place // len(COLOURS)) % len(_MARKERS)]
            steps = [shift * r.steps for r in estimates]
            values, errors = [r.free_energy for r in estimates], [2 * r.stderr for r in estimates]
            axes.errorbar(
                steps, values, errors, fmt=f"{marker}-", ms=4, lw=1, capsize=3, color=colour, label=method_name(name)
            )
        axes.set_xscale("log")
        axes.set_xlabel("annealing steps K")
        axes.set_ylabel("free energy F (bars: ±2 standard errors)")
    return axes.figure if ax is None else ax


def couplings(model: MRF, *, ax: Any = None) -> Any:
    """Histograms of the couplings and fields of a model."""
    with _panels(ax, 3.4) as (axes,):
        pictures.draw_couplings(axes, model)
    return axes.figure if ax is None else ax


def model(model: MRF, *, ax: Any = None) -> Any:
    """The graph of a small model, or its matrix of couplings. Raises a ValueError if the model is too large to draw."""
    with _panels(ax, 4.2, legend=False) as (axes,):
        pictures.draw_model(axes, model)
    return axes.figure if ax is None else ax


def draw(answer: Any, **options: Any) -> Any:
    """Draw the default figure of an answer or a model; `options` are passed to its function in this module."""
    if isinstance(answer, FreeEnergy):
        if answer.estimate is None:
            return answers({answer.method: (answer.free_energy, *answer.interval)}, **options)
        answer = answer.estimate
    for kind, function in _FIGURES.items():
        if isinstance(answer, kind):
            return function(answer, **options)
    raise ValueError(f"there is no figure of {a_kind(answer)}")


_FIGURES: dict[type, Callable[..., Any]] = {
    Estimate: weights,
    Weights: weights,
    Curve: curve,
    Along: free_energies,
    History: history,
    Average: average,
    Estimates: free_energies,
    Difference: difference,
    Expectations: means,
    Audit: audit,
    Bounds: works,
    Thermodynamics: thermodynamics,
    LogLikelihood: likelihood,
    LogLikelihoods: likelihoods,
    MRF: model,
}


def answers(values: Mapping[str, tuple[float, float, float]], *, exact: float | None = None, ax: Any = None) -> Any:
    """Free energies by several methods: for each name a value (or NaN) and the two ends of its range."""
    with _panels(ax, 1.0 + 0.36 * len(values), legend=False) as (axes,):
        pictures.draw_answers(axes, values, exact)
    return axes.figure if ax is None else ax


def save(drawing: Any, path: str | Path) -> None:
    """Write a figure in the format given by the suffix, or as PNG if there is no suffix."""
    suffix = Path(path).suffix.lstrip(".").lower() or "png"
    write_whole(path, lambda file: drawing.savefig(file, format=suffix, dpi=150))


def check_format(path: str | Path) -> None:
    """Raise a ValueError if the suffix of `path` is not a figure format."""
    suffix = Path(path).suffix.lstrip(".").lower() or "png"
    if suffix not in FORMATS:
        raise ValueError(f"cannot draw {path}: .{suffix} is not one of {', '.join(FORMATS)}")
