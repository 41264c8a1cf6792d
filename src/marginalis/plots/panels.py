"""Panels to draw on, either of a new figure or given by the caller, in the common style."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..checks import shown


def figure(rows: int, columns: int, size: tuple[float, float], **shared: Any) -> tuple[Any, Any]:
    """Return an empty figure and its panels, to be drawn within `style`; sizes are in inches, 0 is the default."""
    from matplotlib import rcParams

    from .canvas import Canvas

    usual = rcParams["figure.figsize"]
    drawing = Canvas(figsize=(size[0] or usual[0], size[1] or usual[1]), layout="constrained")
    return drawing, drawing.subplots(rows, columns, squeeze=False, **shared)


def style() -> Any:
    """Return the style context (``with style():``) in which all figures of the package are made."""
    try:
        from .canvas import styled
    except ImportError:
        raise ValueError("figures need matplotlib: pip install matplotlib") from None
    return styled()


def inline_svg(draw: Callable[[], Any]) -> str:
    """Return the figure that `draw` makes as SVG for an HTML page, in the colours of the page."""
    with style():
        from .canvas import INLINE, inline_svg, rc_context

        with rc_context(INLINE):
            return inline_svg(draw())


@contextmanager
def panels(ax: Any, *heights: float, legend: bool = True) -> Iterator[list[Any]]:
    """Yield axes to draw on, one per height in inches: the axes of the caller, or those of a new figure."""
    with style():
        if ax is None:
            drawing, made = figure(len(heights), 1, (0.0, sum(heights)), sharex=True, height_ratios=heights)
            yield list(made[:, 0])
            if legend:  # The legend is above the panels, where it covers no data.
                drawing.legend(loc="outside upper center", ncols=2)
            return
        given = [ax] if hasattr(ax, "plot") else list(np.ravel(ax))
        if len(given) != len(heights) or not all(hasattr(x, "plot") for x in given):
            wanted = "matplotlib axes" if len(heights) == 1 else f"a list of {len(heights)} matplotlib axes"
            raise ValueError(f"ax is {shown(ax)}; it must be {wanted}")
        yield given
        if legend:
            given[0].legend()
