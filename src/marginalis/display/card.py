"""The short text of an answer, and its card in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import marginalis

from .words import escaped, printable

# Largest number of lines of a short text.
_LONGEST = 20
_WARNING = "warning: "
# The notebook's own font and colours of text and background are used, so that light and dark themes work.
_STYLE = (
    "<style>"
    ".marginalis{display:inline-flex;flex-wrap:wrap;gap:.4em 1.6em;align-items:center;max-width:60em;"
    "border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:.6em .9em;line-height:1.45}"
    ".marginalis b{font-size:1.25em;font-weight:600}"
    ".marginalis small{display:block;opacity:.75}"
    ".marginalis pre{margin:.2em 0;font-size:.85em;line-height:1.35;background:none;color:inherit;overflow-x:auto}"
    ".marginalis p{flex-basis:100%;margin:0;padding:.25em .7em;border-left:4px solid #E69F00;"
    "background:rgba(230,159,0,.16)}"
    "</style>"
)


class Displayed:
    """Base class of values that are displayed by a short text, and in a notebook by a card, without their arrays.

    The text is that of `str`; the middle of a long text is left out. The first line is the headline of the card, and
    lines that begin with "warning: " are coloured.
    """

    _is_table = False  # Whether the text is a table, which needs a monospaced font.

    def summary(self) -> str:
        """Return the text that `print` shows."""
        return str(self)

    def plot(self, **options: Any) -> Any:
        """Return the figure of `marginalis.plots` for this value; the options are passed on."""
        return marginalis.plots.draw(self, **options)

    def __repr__(self) -> str:
        return printable("\n".join(_shortened(str(self).splitlines())))

    def _repr_html_(self) -> str:
        lines = str(self).splitlines()
        said = [line.removeprefix(_WARNING) for line in lines if line.startswith(_WARNING)]
        plain = [line for line in lines if not line.startswith(_WARNING)]
        return card(self._headline() or plain.pop(0), plain, said, self._sketch(), self._is_table)

    def _headline(self) -> str:
        """Return the headline of the card if it differs from the first line of the text, else an empty text."""
        return ""

    def _sketch(self) -> str:
        """Return a thumbnail, or an empty text."""
        return ""


def card(head: str, lines: Sequence[str], warnings: Sequence[str] = (), sketch: str = "", table: bool = False) -> str:
    """Return a card: a headline (smaller after three spaces), other lines, warnings and a thumbnail."""
    value, *rest = (escaped(part) for part in head.split("   "))
    text = f"<b>{value}</b>" + "".join(f" &nbsp; {part}" for part in rest if part)
    if table:
        text += f"<pre>{escaped(chr(10).join(_shortened(lines)))}</pre>"
    else:
        text += "".join(f"<small>{escaped(line)}</small>" for line in _shortened(lines))
    notes = "".join(f"<p>⚠ {escaped(warning)}</p>" for warning in warnings)
    return f'{_STYLE}<div class="marginalis"><div>{text}</div>{sketch}{notes}</div>'


def _shortened(lines: Sequence[str]) -> list[str]:
    """Return the lines; if there are too many, only the first and the last ones."""
    if len(lines) <= _LONGEST:
        return list(lines)
    half = _LONGEST // 2
    return [*lines[:half], f"… {len(lines) - 2 * half} more lines …", *lines[-half:]]
