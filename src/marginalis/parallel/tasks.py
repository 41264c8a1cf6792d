"""Tasks: what travels to a worker and back, and what the worker does with it."""

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

_MOST_JOBS = 4  # that a worker keeps


class Job(Protocol):
    """Something that can be done in parts, in any order and anywhere."""

    def run(self, part: range, extra: Any, threads: int) -> Any:
        """Do a part of it; `extra` is what comes with the task."""
        ...


class Task(NamedTuple):
    """A part of a job."""

    version: str
    job: str  # digest
    part: range
    extra: Any
    threads: int
    errors: Any  # what NumPy does about an overflow, as with the caller


class Reply(NamedTuple):
    """What comes back: a result, or that the job is not known here, or that the version is another."""

    machine: str
    version: str
    seconds: float = 0.0
    lacks_job: bool = False
    result: Any = None


_jobs: OrderedDict[str, Job] = OrderedDict()
_lock = threading.Lock()


def packed(job: Job) -> tuple[str, bytes]:
    """Return a job as it travels, and its digest."""
    data = pickle.dumps(job, 5)
    return hashlib.sha256(data).hexdigest(), data


def work(task: Task, data: bytes | None = None) -> Reply:
    """Do a task; `data` is its job, where that comes along."""
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
    return Reply(machine(), __version__, time.perf_counter() - begin, result=result)


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
