"""Progress bars for work that takes more than a second: on a terminal (stderr), or in a notebook."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..checks import shown
from ..display.words import escaped
from .threads import Tick

logger = logging.getLogger("marginalis")

_PATIENCE = 1.0  # Seconds before a progress bar appears.
_PAUSE = 0.2  # Seconds between two updates of a progress bar in a notebook.


@contextmanager
def ticker(progress: bool | Tick, label: str) -> Iterator[Tick]:
    """Yield the callback that receives the progress, from 0 to 1: `progress` itself, a bar for True, or a no-op."""
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
    patient = _Patient(update)
    _open.append(patient)
    try:
        yield patient
    finally:
        _open.remove(patient)
        stop()


# A progress bar: a function that shows a fraction and a text, and one that removes the bar.
Bar = tuple[Callable[[float, str], None], Callable[[], None]]


_open: list[_Patient] = []  # The callbacks whose bars may be seen at this moment.


def tell(text: str, *values: object) -> None:
    """Report the current activity to the log, as ``logger.info`` does, and beside the progress bar, if there is one."""
    logger.info(text, *values)
    for patient in _open:
        patient.say(text % values)


class _Patient:
    """A progress callback that shows its bar, and a short text beside it, only after a delay."""

    def __init__(self, update: Callable[[float, str], None]) -> None:
        self._update, self._born, self._words, self._fraction = update, time.monotonic(), "", 0.0

    def __call__(self, fraction: float) -> None:
        self._fraction = fraction
        self._show()

    def say(self, words: str) -> None:
        """Set the text beside the bar."""
        self._words = words
        self._show()

    def _show(self) -> None:
        if time.monotonic() - self._born >= _PATIENCE:
            self._update(self._fraction, self._words)


def text_setter(tick: Tick) -> Callable[[str], None]:
    """Return the function that sets the text beside the progress bar; a no-op if there is no bar."""
    return tick.say if isinstance(tick, _Patient) else lambda words: None


def _terminal_bar(label: str) -> Bar | None:
    """Return a progress bar on stderr if that is a terminal, otherwise None."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        return None
    percent, words_beside = TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.description}")
    columns = (TextColumn(label), BarColumn(), percent, TimeRemainingColumn(), words_beside)
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("", total=1.0)

    def update(fraction: float, words: str) -> None:
        if not bar.live.is_started:
            bar.start()
        bar.update(task, completed=fraction, description=words)

    return update, bar.stop


def _in_notebook() -> bool:
    """Whether the process is a notebook kernel; it cannot be one unless IPython is already imported."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _notebook_bar(label: str) -> Bar:
    """Return a progress bar in the output of a notebook cell; plain HTML, which needs no widgets."""
    from IPython.display import HTML, display

    handle: Any = None
    last = -1.0

    def update(fraction: float, words: str) -> None:
        nonlocal handle, last
        now = time.monotonic()
        if now - last < _PAUSE:
            return
        last = now
        bar = f'<progress value="{fraction:.3f}" max="1" style="width:20em;vertical-align:middle"></progress>'
        look = HTML(f"<div>{escaped(label)} {bar} {100 * fraction:.0f}% {escaped(words)}</div>")
        if handle is None:
            handle = display(look, display_id=True)
        else:
            handle.update(look)

    def stop() -> None:
        if handle is not None:
            handle.update(HTML(""))

    return update, stop
