"""Readable names and numbers for display; files and JSON keep their keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

_METHODS = {"ais": "AIS", "mais": "mAIS", "mais-v": "mAIS-V", "mais-h": "mAIS-H"}
_HEADINGS = {
    "inv_t": "1/T",
    "steps": "steps K",
    "chains": "chains N",
    "alpha": "α = |H|/|V|",
    "stderr": "standard error",
    "error_stderr": "its standard error",
    "printed": "paper",
    "printed_error": "error in the paper",
    "z": "z to the paper",
    "z_error": "z of the error",
    "experiments": "RBMs",
    "cpu_seconds": "CPU seconds",
}
# The columns that hold the standard errors of other columns.
_ERRORS = {"mean": "stderr", "median": "stderr", "error": "error_stderr"}
# Deviations of more standard errors than this are highlighted.
_FAR = 3.0


# Characters for layout, allowed in addition to printable ones.
_LAYOUT = "\n\xa0"


def printable(text: str) -> str:
    """Return a text with ``?`` for control characters, which labels from any source may contain."""
    return "".join(c if c.isprintable() or c in _LAYOUT else "?" for c in text)


def escaped(text: str) -> str:
    """Return a text escaped for a page of HTML."""
    return escape(printable(text))


def method_name(method: str) -> str:
    """Return a method in the paper's spelling, and any other name unchanged."""
    name, mark, rest = method.partition("+")
    return _METHODS[name] + mark + rest.upper() if name in _METHODS else method


def heading(key: str) -> str:
    """Return the readable heading of a column."""
    return _HEADINGS.get(key, key.replace("_", " "))


def cell_text(key: str, value: Any, row: Mapping[str, Any] | None = None) -> str:
    """Return the text of a cell, rounded to two digits of its standard error if the row has one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        if _compares(key):
            return f"{value:+.1f}"
        if key.startswith("printed"):
            return f"{value:.5f}"
        error = (row or {}).get(_ERRORS.get(key, ""))
        if isinstance(error, float) and 0.0 < error < math.inf:
            return f"{value:.{max(0, 1 - math.floor(math.log10(error)))}f}"
        digits = "#.2g" if "stderr" in key else ".2g" if "seconds" in key else ".3g" if "error" in key else ".5g"
        return f"{value:{digits}}"
    return method_name(value) if isinstance(value, str) else str(value)


def is_far(key: str, value: Any) -> bool | None:
    """Whether a cell that compares with a printed value is far from it; None for other cells."""
    return abs(value) > _FAR if _compares(key) and isinstance(value, float) and not math.isnan(value) else None


def _compares(key: str) -> bool:
    return key == "z" or key.startswith("z_")


def decimals(error: float) -> int:
    """Return the number of decimals that shows two significant digits of the error."""
    if not 0.0 < error < math.inf:
        return 6
    return min(12, max(0, 1 - math.floor(math.log10(error))))
