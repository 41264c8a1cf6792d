"""Progress bars for work that takes more than a second: on a terminal (stderr), or in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import numpy as np

from ..checks import shown
from .threads import Tick

_PATIENCE = 1.0  # seconds of silence before a bar appears
_PAUSE = 0.2  # seconds between two looks of a bar in a notebook


@contextmanager
def ticker(progress: bool | Tick, label: str) -> Iterator[Tick]:
    """Give the function that hears the fraction done: `progress` itself, a bar for True, or nothing."""
    if callable(progress):
        yield progress
        return
    if not (progress is None or isinstance(progress, bool | np.bool_)):
        raise ValueError(f"progress is {shown(progress)}; it must be True, False or a function")
    bar = None
    if progress:
        bar = _notebook_bar(label) if _in_notebook() else _terminal_bar(label)
    if bar is None:
        yield lambda fraction: None
        return
    update, stop = bar
    born = time.monotonic()

    def tick(fraction: float) -> None:
        if time.monotonic() - born >= _PATIENCE:
            update(fraction)

    try:
        yield tick
    finally:
        stop()


Bar = tuple[Tick, Callable[[], None]]  # what shows the fraction done, and what takes the bar away


def _terminal_bar(label: str) -> Bar | None:
    """Return a bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        return None
    columns = (TextColumn(label), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(label, total=1.0)

    def update(fraction: float) -> None:
        if not bar.live.is_started:
            bar.start()
        bar.update(task, completed=fraction)

    return update, bar.stop


def _in_notebook() -> bool:
    """Whether this is the kernel of a notebook; without IPython, which is not imported here, it cannot be one."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _notebook_bar(label: str) -> Bar:
    """Return a bar in the output of a cell: plain HTML, which needs no widgets."""
    from IPython.display import HTML, display

    handle: Any = None
    last = -1.0

    def update(fraction: float) -> None:
        nonlocal handle, last
        now = time.monotonic()
        if now - last < _PAUSE:
            return
        last = now
        bar = f'<progress value="{fraction:.3f}" max="1" style="width:20em;vertical-align:middle"></progress>'
        look = HTML(f"<div>{escape(label)} {bar} {100 * fraction:.0f}%</div>")
        if handle is None:
            handle = display(look, display_id=True)
        else:
            handle.update(look)

    def stop() -> None:
        if handle is not None:
            handle.update(HTML(""))

    return update, stop
