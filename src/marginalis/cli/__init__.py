"""The command line: answers on stdout, messages on stderr; bad input, and a full disk, exit with 2 and one line.

All that takes time is imported by `main`, once it has taken charge of the signals: an interrupt gets its one line
from the first moment on.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # that of `typing`, without the time to import it
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
LONGEST = 270  # characters of a message
PATIENCE = 0.7  # seconds that workers have to end after an interrupt
_said: list[str] = []  # the last words


def main() -> None:
    """Run the command line; errors become one line on stderr and an exit code."""
    _on_signals(_leave_at_once)
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) in ("strict", "surrogateescape"):  # an ASCII terminal shows ? for ±
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = _run()
    except KeyboardInterrupt:
        _leave("interrupted", 130)
    except MemoryError as error:
        _leave(f"not enough memory: {error}", 2)
    except (ValueError, OSError) as error:  # bad input, or a disk or a pool that fails
        _leave(str(error), 2)
    except Exception as error:
        # Usage errors know how to word themselves; their class has moved between versions of typer.
        if not hasattr(error, "format_message"):
            raise
        _leave(_usage(error), 2)
    if code == 130:  # newer typer turns the interrupt into a code
        _leave("interrupted", 130)
    sys.exit(code)


def _run() -> Any:
    """Import the commands and run the one that is asked for."""
    import logging

    import typer

    # each adds its commands
    from . import (  # noqa: F401
        answers,
        audit,
        expectations,
        formats,
        free_energy,
        make,
        report,
        results,
        samples,
        studies,
    )
    from .common import app
    from .options import with_values

    os.environ.pop("MARGINALIS_WARN", None)  # the commands print all warnings in any case
    notices = logging.StreamHandler()
    notices.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("marginalis").addHandler(notices)
    logging.getLogger("marginalis").setLevel(logging.INFO)
    _on_signals(_stop)
    try:
        return app(with_values(sys.argv[1:]), standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None


def _usage(error: Any) -> str:
    """Return the message of a usage error; a flag that does not exist comes with the one that is probably meant."""
    name, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if name is None or context is None or not hasattr(error, "possibilities"):
        return error.format_message() or "give a command; see marginalis --help"
    from ..options import meant

    flags = [flag for parameter in context.command.params for flag in parameter.opts if flag.startswith("--")]
    known = [flag.removeprefix("--").replace("-", "_") for flag in flags]
    suggestion = meant(name.strip("-").replace("-", "_"), known)
    for flag, word in zip(flags, known, strict=True):
        suggestion = suggestion.replace(repr(word), flag)
    return f"there is no option {name} here{suggestion}"


def _on_signals(handler: Any) -> None:
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup, and jobs in the background of a script
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Unwind: workers end, half-written files are removed. A second signal, or `PATIENCE`, puts an end to that."""
    import threading

    _on_signals(_leave_at_once)
    watchdog = threading.Timer(PATIENCE, _leave_at_once, (number, None))  # a compiler cannot be stopped
    watchdog.daemon = True
    watchdog.start()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _leave_at_once(number: int, frame: FrameType | None) -> NoReturn:
    atomic = sys.modules.get(f"{__package__.rpartition('.')[0]}.files.atomic")
    if atomic is not None:
        atomic.remove_unfinished()
    if number == signal.SIGINT and not _said:
        os.write(2, b"marginalis: interrupted\n")
    os._exit(128 + number)


def _leave(message: str, code: int) -> NoReturn:
    message = "".join(c if c.isprintable() else " " for c in message)
    message = " ".join(message.split())
    if len(message) > LONGEST:  # the ends say what it was about, and why
        message = f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}"
    _said.append(message)
    if sys.stderr is not None:
        try:
            print(f"marginalis: {message}", file=sys.stderr, flush=True)
        except OSError:  # A full disk or a closed pipe; the exit code remains.
            sys.stderr = None
    if code == 130:  # Python's end gives signals back to the system: one more would change the exit code
        _on_signals(signal.SIG_IGN)
    sys.exit(code)
