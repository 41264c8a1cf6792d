"""The common style of all figures, and a figure that a notebook displays.

This module imports matplotlib, so it is imported only when a figure is drawn.
"""

from __future__ import annotations

import io
import re
import zlib
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
    "axes.formatter.useoffset": False,  # Numbers are written in full, without an offset such as −2.432e1.
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "font.size": 10.0,
    "axes.titlesize": "medium",
    "legend.frameon": False,
    "legend.fontsize": "small",
    "errorbar.capsize": 2.0,
    "svg.fonttype": "none",  # Text stays text, not outlines.
}


class Canvas(Figure):
    """A figure that a notebook displays exactly once, whether or not pyplot has been imported."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


def styled() -> Any:
    """Return the style context in which figures are made."""
    return rc_context(STYLE)


INLINE: Any = {
    "figure.figsize": (5.6, 4.2),
    "figure.facecolor": "none",  # The background of the page, light or dark, shows through.
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.hashsalt": "marginalis",
}


def inline_svg(figure: Figure) -> str:
    """Return a figure as SVG for an HTML page, with unique ids and the text colour of the page instead of black."""
    file = io.StringIO()
    with rc_context({**STYLE, **INLINE}):
        figure.savefig(file, format="svg")
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    mark = f"f{zlib.crc32(text.encode()):08x}"
    text = re.sub(r'(<g|<path|<image) id="[^"#]*_\d+"', r"\1", text)
    for name in set(re.findall(r' id="([^"]+)"', text)):
        text = text.replace(f'"{name}"', f'"{mark}-{name}"').replace(f"#{name}", f"#{mark}-{name}")
    text = re.sub(r'(<svg [^>]*?)width="([\d.]+)pt" height="[\d.]+pt"', r'\1width="\2"', text, count=1)
    return text.replace("#000000", "currentColor").strip()
