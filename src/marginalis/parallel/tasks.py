"""Tasks: the message that is sent to a worker, the reply, and the function that the worker runs."""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import socket
import threading
import time
from collections import OrderedDict
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from .. import __version__

_MOST_JOBS = 4  # Number of jobs that a worker keeps in memory.


class Job(Protocol):
    """Work that consists of independent parts, which can run in any order and in any process."""

    def run(self, part: range, extra: Any, threads: int) -> Any:
        """Run one part; `extra` is the additional data sent with the task."""
        ...


class Task(NamedTuple):
    """The message that asks a worker to run one part of a job."""

    version: str
    job: str  # Digest of the job.
    part: range
    extra: Any
    threads: int
    errors: Any  # The caller's NumPy error state (`numpy.geterr`).


class Reply(NamedTuple):
    """A worker's answer: a result, or that it does not have the job, or that its version differs."""

    machine: str
    version: str
    seconds: float = 0.0
    lacks_job: bool = False
    result: Any = None
    part: range | None = None  # The part of the job that the result belongs to.


_jobs: OrderedDict[str, Job] = OrderedDict()
_lock = threading.Lock()


def packed(job: Job) -> tuple[str, bytes]:
    """Return the digest of a job and its pickled form."""
    data = pickle.dumps(job, 5)
    return hashlib.sha256(data).hexdigest(), data


def work(task: Task, data: bytes | None = None) -> Reply:
    """Run a task; `data` is the pickled job, if it was sent along."""
    if task.version != __version__:
        return Reply(machine(), __version__)
    with _lock:
        job = _jobs.get(task.job)
        if job is None and data is not None:
            job = _jobs[task.job] = pickle.loads(data)
        if job is not None:
            _jobs.move_to_end(task.job)
        while len(_jobs) > _MOST_JOBS:
            _jobs.popitem(last=False)
    if job is None:
        return Reply(machine(), __version__, lacks_job=True)
    begin = time.perf_counter()
    with np.errstate(**task.errors):
        result = job.run(task.part, task.extra, task.threads)
    return Reply(machine(), __version__, time.perf_counter() - begin, result=result, part=task.part)


@cache
def machine() -> str:
    """Return the name of this machine and of its processor."""
    name = ""
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        name = names[0] if names else ""
    text = f"{socket.gethostname()} ({name or platform.processor() or platform.machine()})"
    return "".join(c if c.isprintable() else " " for c in text).replace(";", ",")
