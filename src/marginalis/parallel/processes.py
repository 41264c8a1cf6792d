"""Worker processes on this machine that run tasks one at a time.

`concurrent.futures.ProcessPoolExecutor` abandons all its processes when one dies, imports the caller's script in each
of them, and leaves them running when the caller is killed. The processes of this module are replaced one by one,
import nothing of the caller's, and end with the caller.
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
from concurrent.futures import BrokenExecutor, Future
from typing import Any

from .threads import started

_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);from marginalis.parallel.processes import serve; serve()"
)


class WorkerDied(OSError):
    """The process that ran a task ended without an answer."""


class Processes:
    """A fixed number of processes; one thread per process sends tasks to it and waits for the answers."""

    def __init__(self, number: int) -> None:
        self._tasks: queue.SimpleQueue[tuple[Future[Any], bytes] | None] = queue.SimpleQueue()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._able = number  # Number of threads that have a process or may still start one.
        self._threads = started(self._feed, number)
        with self._lock:
            self._able -= number - len(self._threads)

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Call a function, which must be defined in a module, in one of the processes."""
        future: Future[Any] = Future()
        self._tasks.put((future, pickle.dumps((function, args), 5)))
        return future

    def pids(self) -> list[int]:
        """Return the process ids of the current processes."""
        with self._lock:
            return [process.pid for process in self._running]

    def close(self) -> None:
        """Kill all processes immediately."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def _feed(self) -> None:
        """Keep one process running, replacing it when it dies, and send it one task after the other."""
        try:
            self._feed_while_it_starts()
        except OSError as error:  # The memory or the number of processes is limited.
            with self._lock:
                self._able -= 1
                is_last = self._able <= 0
            while is_last and (item := self._tasks.get()) is not None:
                if item[0].set_running_or_notify_cancel():
                    item[0].set_exception(BrokenExecutor(f"no worker process could be started: {error}"))

    def _feed_while_it_starts(self) -> None:
        process = self._start()
        while process is not None and (item := self._tasks.get()) is not None:
            future, data = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                answer = _ask(process, data)
            except (OSError, EOFError, pickle.UnpicklingError):
                self._end(process)
                try:
                    process = self._start()  # Started before the caller learns of the failure and may close the pool.
                finally:
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
                with contextlib.suppress(OSError):  # Unsent data cannot be flushed to a dead process.
                    pipe.close()


def _ask(process: subprocess.Popen[bytes], data: bytes) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(data)
    process.stdin.flush()
    return pickle.load(process.stdout)


class _Failed:
    """An exception that is sent back to the caller."""

    def __init__(self, error: BaseException) -> None:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # Some exceptions cannot be pickled.
            error = RuntimeError(f"{type(error).__name__}: {error}")
        self.error = error


def serve() -> None:
    """Run the tasks that arrive on stdin until it closes, which it does when the caller ends.

    Output that a task prints goes to stderr, because stdout carries the answers.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the caller, which ends this process.
    tasks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            task = pickle.load(tasks)
        except (EOFError, pickle.UnpicklingError):  # UnpicklingError: the caller was killed while it was writing.
            return
        answer: Any
        try:
            answer = task[0](*task[1])
        except BaseException as error:
            answer = _Failed(error)
        try:
            pickle.dump(answer, answers, 5)
            answers.flush()
        except BrokenPipeError:  # The caller was killed in the meantime.
            os._exit(1)
