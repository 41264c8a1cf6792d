"""The figure of a watch: a file that is drawn again after updates, and a display in a notebook."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from typing import Any

from ..answers.history import History
from ..files.atomic import write_whole
from ..plots import history as draw_history

_DPI = 110
# The figure may take this share of the time, and in any case this many seconds.
_SHARE, _FREE = 0.02, 2.0


class LiveFigure:
    """The figure in a file and in a notebook, drawn so rarely that it costs little."""

    def __init__(self, path: Path | None, live: bool) -> None:
        self.path, self.live = path, live
        self._begun, self._taken = time.perf_counter(), 0.0
        self._display: Any = None

    def draw(self, history: History, last: bool = False) -> None:
        """Draw the figure, unless drawing has taken too much of the time already."""
        begin = time.perf_counter()
        if self.path is None and not self.live:
            return
        if not last and self._taken > _FREE + _SHARE * (begin - self._begun):
            return
        figure = draw_history(history)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=_DPI)
        try:
            if self.live:
                self._show(file.getvalue())
            if self.path is not None:
                write_whole(self.path, lambda out: out.write(file.getvalue()))
        finally:
            self._taken += time.perf_counter() - begin

    def _show(self, png: bytes) -> None:
        """Show the figure in the notebook, or replace the one that is shown."""
        shell = sys.modules.get("IPython")
        if shell is None or shell.get_ipython() is None:
            return
        from IPython.display import Image, display  # Only a notebook has loaded it.

        if self._display is None:
            self._display = display(Image(png), display_id=True)
        else:
            self._display.update(Image(png))
