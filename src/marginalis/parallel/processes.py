"""Processes on this machine that take tasks one at a time.

`concurrent.futures.ProcessPoolExecutor` gives up all its processes when one dies, runs the caller's script once more
in each, and leaves them behind when the caller is killed; these are replaced one by one, import nothing of the
caller's, and end with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);from marginalis.parallel.processes import serve; serve()"
)


class WorkerDied(OSError):
    """The process that had a task has ended without an answer."""


class Processes:
    """So many processes; each serves a thread here, which feeds it and waits for it."""

    def __init__(self, number: int) -> None:
        self._tasks: queue.SimpleQueue[tuple[Future[Any], bytes] | None] = queue.SimpleQueue()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._threads = [threading.Thread(target=self._feed, daemon=True) for _ in range(number)]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Have a function of some module called in one of the processes."""
        future: Future[Any] = Future()
        self._tasks.put((future, pickle.dumps((function, args), 5)))
        return future

    def pids(self) -> list[int]:
        """Return the numbers of the processes there are now."""
        with self._lock:
            return [process.pid for process in self._running]

    def close(self) -> None:
        """End all processes now, whatever they do."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def _feed(self) -> None:
        """Start a process, and another whenever it is gone; give it one task after the other."""
        process = self._start()
        while process is not None and (item := self._tasks.get()) is not None:
            future, data = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                answer = _ask(process, data)
            except (OSError, EOFError, pickle.UnpicklingError):
                self._end(process)
                process = self._start()  # before anyone hears of it, and may end
                future.set_exception(WorkerDied("a worker process has died"))
                continue
            except BaseException as error:
                future.set_exception(error)
                continue
            if isinstance(answer, _Failed):
                future.set_exception(answer.error)
            else:
                future.set_result(answer)
        if process is not None:
            self._end(process)

    def _start(self) -> subprocess.Popen[bytes] | None:
        command = [sys.executable, "-c", _CODE, json.dumps(sys.path)]
        with self._lock:
            if self._closed:
                return None
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._running.add(process)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running.discard(process)
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not sent yet
                    pipe.close()


def _ask(process: subprocess.Popen[bytes], data: bytes) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(data)
    process.stdin.flush()
    return pickle.load(process.stdout)


class _Failed:
    """An exception on its way back."""

    def __init__(self, error: BaseException) -> None:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # some cannot travel
            error = RuntimeError(f"{type(error).__name__}: {error}")
        self.error = error


def serve() -> None:
    """Answer tasks on stdin until it ends, as it does when the caller is gone. What is printed goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller, who ends this process
    tasks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            task = pickle.load(tasks)
        except (EOFError, pickle.UnpicklingError):  # the latter if the caller is killed while it writes
            return
        answer: Any
        try:
            answer = task[0](*task[1])
        except BaseException as error:
            answer = _Failed(error)
        try:
            pickle.dump(answer, answers, 5)
            answers.flush()
        except BrokenPipeError:  # the caller was killed meanwhile
            os._exit(1)
