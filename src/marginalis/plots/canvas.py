"""What all figures share: one style, and a figure that a notebook shows. Imports matplotlib, so: only when drawing."""

from __future__ import annotations

import io
from typing import Any

from cycler import cycler
from matplotlib import rc_context
from matplotlib.figure import Figure

from ..display.sketch import COLOURS

STYLE: Any = {
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "font.size": 10.0,
    "axes.titlesize": "medium",
    "legend.frameon": False,
    "legend.fontsize": "small",
    "errorbar.capsize": 2.0,
    "svg.fonttype": "none",  # words stay words
}


class Canvas(Figure):
    """A figure that shows itself in a notebook: once, and whether or not pyplot was ever imported."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


def styled() -> Any:
    """Return the context in which figures are made."""
    return rc_context(STYLE)
