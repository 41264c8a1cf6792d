"""Marks that several figures share: values in legends, exact values, intervals, limits of an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import Array
from ..display.sketch import COLOURS
from ..display.words import decimals
from .numbers import span_of

_MANY = 100  # Bars of this height need a logarithmic axis.


def value_text(name: str, value: float, error: float) -> str:
    """Return a value with its standard error, for a legend."""
    digits = decimals(error)
    return f"{name} = {value:.{digits}f}" + (f" ± {error:.{digits}f}" if math.isfinite(error) else "")


def mark_exact(line: Any, value: float | None) -> None:
    """Mark the exact value, if there is one."""
    if value is not None:
        line(value, color="black", lw=1.2, ls=(0, (4, 2)), label=f"exact: {value:.6g}")


def shade_interval(span: Any, low: float, high: float, label: str) -> None:
    """Shade an interval, unless an end of it is infinite."""
    if math.isfinite(low) and math.isfinite(high):
        span(low, high, color=COLOURS[0], alpha=0.25, lw=0, label=label)


def set_limits(limit: Any, values: Sequence[float] | Array) -> None:
    """Set the limits of an axis slightly outside the values."""
    low, high = span_of(np.asarray(values))
    margin = 0.05 * (high - low)
    limit(low - margin, high + margin)


def scale_counts(axes: Any, counts: Sequence[float] | Array) -> None:
    """Use a logarithmic axis for a histogram with many counts, whose tail is invisible on a linear one."""
    if np.max(counts) >= _MANY:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.5)
    else:
        axes.yaxis.get_major_locator().set_params(integer=True)
