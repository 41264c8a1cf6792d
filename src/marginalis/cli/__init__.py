"""The command line: answers go to stdout, messages to stderr; a failure exits with 2 and prints one line.

This module handles signals and errors. Each other module defines one or more commands, which call the public functions
of the package; `common`, `model_file` and `options` hold what commands share. The package may import every other part
of marginalis, and only `__main__` and the console script import it. Slow imports happen in `main` after the signal
handlers are set, so an interrupt during start-up also prints one line only. Read `answers` first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

TYPE_CHECKING = False  # Type checkers treat this name like that of `typing`, which takes time to import.
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
LONGEST = 270  # Largest number of characters of an error message.
PATIENCE = 0.7  # Seconds that workers have to end after an interrupt.
_messages: list[str] = []  # The error message, once it is printed.


def main() -> None:
    """Run the command line; errors become one line on stderr and an exit code."""
    _on_signals(_leave_at_once)
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) in ("strict", "surrogateescape"):  # An ASCII terminal shows ? instead of ±.
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = _run()
    except KeyboardInterrupt:
        _leave("interrupted", 130)
    except MemoryError as error:
        _leave(f"not enough memory: {error}", 2)
    except (ValueError, OSError) as error:  # Bad input, or a failing disk or pool.
        _leave(str(error), 2)
    except Exception as error:
        # Usage errors have a method for their message; their class differs between versions of typer.
        if not hasattr(error, "format_message"):
            raise
        _leave(_usage(error), 2)
    if code == 130:  # Newer versions of typer turn an interrupt into this exit code.
        _leave("interrupted", 130)
    sys.exit(code)


def _run() -> Any:
    """Import the commands and run the given one."""
    import logging

    import typer

    # Each of these modules adds its commands to the application.
    from . import (  # noqa: F401
        answers,
        audit,
        average,
        expectations,
        formats,
        free_energy,
        make,
        many,
        report,
        results,
        samples,
        studies,
    )
    from .common import app
    from .options import with_values

    os.environ.pop("MARGINALIS_WARN", None)  # The commands print all warnings regardless of this variable.
    notices = logging.StreamHandler()
    notices.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("marginalis").addHandler(notices)
    logging.getLogger("marginalis").setLevel(logging.INFO)
    _on_signals(_stop)
    try:
        code = app(with_values(sys.argv[1:]), standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else 0  # The commands of `make` return models.


def _usage(error: Any) -> str:
    """Return the message of a usage error; for an unknown flag it suggests the most similar one."""
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
        # Signals ignored under nohup and in background jobs stay ignored.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Unwind: workers end, unfinished files are removed. A second signal or the end of `PATIENCE` exits at once."""
    import threading

    _on_signals(_leave_at_once)
    watchdog = threading.Timer(PATIENCE, _leave_at_once, (number, None))  # A running compiler cannot be interrupted.
    watchdog.daemon = True
    watchdog.start()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _leave_at_once(number: int, frame: FrameType | None) -> NoReturn:
    with contextlib.suppress(ValueError):  # Only the main thread may change handlers; the watchdog is another thread.
        _on_signals(signal.SIG_IGN)  # A further signal would print the message twice.
    atomic = sys.modules.get(f"{__package__.rpartition('.')[0]}.files.atomic")
    if atomic is not None:
        atomic.remove_unfinished()
    if number == signal.SIGINT and not _messages:
        os.write(2, b"marginalis: interrupted\n")
    os._exit(128 + number)


def _leave(message: str, code: int) -> NoReturn:
    message = "".join(c if c.isprintable() else " " for c in message)
    message = " ".join(message.split())
    if len(message) > LONGEST:  # The beginning names the subject, the end the reason.
        message = f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}"
    _messages.append(message)
    if sys.stderr is not None:
        try:
            print(f"marginalis: {message}", file=sys.stderr, flush=True)
        except OSError:  # A full disk or a closed pipe; the exit code remains.
            sys.stderr = None
    if code == 130:  # A signal while Python shuts down would change the exit code.
        _on_signals(signal.SIG_IGN)
    sys.exit(code)
