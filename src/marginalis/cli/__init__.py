"""The command line: answers on stdout, messages on stderr; bad input exits with 2 and one line."""

from __future__ import annotations

import logging
import sqlite3
import sys
from typing import NoReturn

import typer

from . import answers, make, studies
from .common import app

__all__ = ["answers", "app", "main", "make", "studies"]


def main() -> None:
    """Run the command line; errors become one line on stderr and an exit code."""
    notices = logging.StreamHandler()
    notices.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("marginalis").addHandler(notices)
    logging.getLogger("marginalis").setLevel(logging.INFO)
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        _leave("interrupted", 130)
    except MemoryError as error:
        _leave(f"not enough memory: {error}", 2)
    except Exception as error:
        # Usage errors know how to word themselves; their class has moved between versions of typer.
        if hasattr(error, "format_message"):
            _leave(error.format_message() or "give a command; see marginalis --help", 2)
        if isinstance(error, sqlite3.OperationalError):
            _leave(f"the store cannot be written: {error}; what was finished is in it", 1)
        if isinstance(error, OSError):
            _leave(str(error), 1)
        if not isinstance(error, ValueError):
            raise
        _leave(str(error), 2)
    if code == 130:  # newer typer turns the interrupt into a code
        _leave("interrupted", 130)
    sys.exit(code)


def _leave(message: str, code: int) -> NoReturn:
    print(f"marginalis: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
