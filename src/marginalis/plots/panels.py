"""What all figures are drawn on: panels of a figure of their own, or of the caller's, in one style."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..checks import shown


def figure(rows: int, columns: int, size: tuple[float, float], **shared: Any) -> tuple[Any, Any]:
    """Return an empty figure and its panels, to be filled within `style`; its size is in inches, 0: as usual."""
    from matplotlib import rcParams

    from .canvas import Canvas

    usual = rcParams["figure.figsize"]
    drawing = Canvas(figsize=(size[0] or usual[0], size[1] or usual[1]), layout="constrained")
    return drawing, drawing.subplots(rows, columns, squeeze=False, **shared)


def style() -> Any:
    """Return the context (``with style():``) in which all figures of the package are made."""
    try:
        from .canvas import styled
    except ImportError:
        raise ValueError("figures need matplotlib: pip install matplotlib") from None
    return styled()


def inline_svg(draw: Callable[[], Any]) -> str:
    """Return the figure that `draw` makes as SVG for a page of HTML, whose colours it takes."""
    with style():
        from .canvas import INLINE, inline_svg, rc_context

        with rc_context(INLINE):
            return inline_svg(draw())


@contextmanager
def panels(ax: Any, *heights: float, legend: bool = True) -> Iterator[list[Any]]:
    """Give axes to draw on, one for every height in inches: those of the caller, or those of a figure of their own."""
    with style():
        if ax is None:
            drawing, made = figure(len(heights), 1, (0.0, sum(heights)), sharex=True, height_ratios=heights)
            yield list(made[:, 0])
            if legend:  # above the panels, where it hides nothing
                drawing.legend(loc="outside upper center", ncols=2)
            return
        given = [ax] if hasattr(ax, "plot") else list(np.ravel(ax))
        if len(given) != len(heights) or not all(hasattr(x, "plot") for x in given):
            wanted = "matplotlib axes" if len(heights) == 1 else f"a list of {len(heights)} matplotlib axes"
            raise ValueError(f"ax is {shown(ax)}; it must be {wanted}")
        yield given
        if legend:
            given[0].legend()
