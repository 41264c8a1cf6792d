"""Interrupts and other signals: a prompt end, the right exit code, nothing left behind."""

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import posix

pytestmark = posix


def start(*args, python=(), **options):
    """Start the command line in its own process, its streams in pipes."""
    return subprocess.Popen(
        [sys.executable, *python, "-m", "marginalis", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job may inherit it ignored
        **options,
    )


LONG = ("--tolerance", 1e-6, "--budget", 300)  # the pilots speak before the long run


def wait_for(stream, word):
    """Read a stream up to the line with a word."""
    for line in stream:
        if word in line:
            return
    pytest.fail(f"no {word!r} in the output")


WRITING = """
import os, signal, sys
from marginalis import cli
from marginalis.files import atomic
cli._on_signals(getattr(cli, sys.argv[1]))
atomic.write_whole("file", lambda file: os.kill(os.getpid(), getattr(signal, sys.argv[2])))
"""


@pytest.mark.parametrize(
    ("handler", "name", "code"),
    [("_stop", "SIGTERM", 143), ("_leave_at_once", "SIGINT", 130), ("_stop", "SIGHUP", 129)],
)
def test_signals_leave_nothing_behind(tmp_path, handler, name, code):
    done = subprocess.run([sys.executable, "-c", WRITING, handler, name], cwd=tmp_path, capture_output=True)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []


STUCK = """
import os, signal, threading, time
from marginalis import cli
cli._on_signals(cli._stop)
worker = threading.Thread(target=time.sleep, args=(300,))
worker.start()
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(300)
finally:
    worker.join()
"""


def test_an_interrupt_does_not_wait_for_ever():
    """As for a worker that compiles."""
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, b"marginalis: interrupted\n")


def test_termination_unwinds(model):
    with start("estimate", model, *LONG) as process:
        try:
            wait_for(process.stderr, "pilot")
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 143
    assert "Traceback" not in out + err


@pytest.mark.parametrize("module", ["numpy", "scipy.sparse", "typer", "marginalis.cli.answers"])
def test_an_interrupt_while_importing(model, module):
    """All that takes time is imported after the first handler is in place."""
    with start("info", model, python=["-X", "importtime"]) as process:
        try:
            wait_for(process.stderr, module)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "marginalis: interrupted"


@pytest.mark.parametrize("times", [1, 2, 5, 40])
def test_interrupt_exits_130(model, times):
    """Also if further ones come while Python ends."""
    with start("estimate", model, *LONG) as process:
        try:
            wait_for(process.stderr, "pilot")
            for _ in range(times):
                process.send_signal(signal.SIGINT)
                time.sleep(0.008 if times > 5 else 0.0)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines().count("marginalis: interrupted") == 1
    assert "Traceback" not in err
