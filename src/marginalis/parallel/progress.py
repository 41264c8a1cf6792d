"""Progress bars on stderr, for work that takes more than a second, and only on a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ..checks import shown
from .threads import Tick

_PATIENCE = 1.0  # seconds of silence before a bar appears


@contextmanager
def ticker(progress: bool | Tick, label: str) -> Iterator[Tick]:
    """Give the function that hears the fraction done: `progress` itself, a bar for True, or nothing."""
    if callable(progress):
        yield progress
        return
    if not (progress is None or isinstance(progress, bool | np.bool_)):
        raise ValueError(f"progress is {shown(progress)}; it must be True, False or a function")
    if not progress:
        yield lambda fraction: None
        return

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda fraction: None
        return
    columns = (TextColumn(label), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(label, total=1.0)
    born = time.monotonic()

    def tick(fraction: float) -> None:
        if time.monotonic() - born > _PATIENCE and not bar.live.is_started:
            bar.start()
        bar.update(task, completed=fraction)

    try:
        yield tick
    finally:
        bar.stop()
