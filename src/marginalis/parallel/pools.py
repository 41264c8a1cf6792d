"""Pools of workers (local processes, an executor, an object with ``map``, a Dask cluster) behind one interface.

A task is a part of a job. The job itself, which holds the model, is sent to a worker once: tasks refer to it by its
digest, and a worker that does not have it yet answers that it is missing.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from typing import Any

import numpy as np

from .. import __version__
from ..checks import a_kind, shown, whole
from .processes import Processes, WorkerDied
from .tasks import Task, work

Finished = queue.SimpleQueue  # A queue of finished futures.
MOST_WORKERS = 4096
_KINDS = (
    "a number of processes, an executor, an object with map or submit, a Dask client, 'dask:' and its address, "
    "or 'dask-local'"
)


class Pool:
    """Workers behind a function ``submit(function, *args)`` that returns a future."""

    threads = 1  # Threads of each task.

    def __init__(self, submit: Callable[..., Any], workers: int, close: Callable[[], None] = lambda: None) -> None:
        self._submit, self._workers, self.close = submit, workers, close
        self._sent: dict[str, int] = {}

    def workers(self) -> int:
        """Return how many tasks can run at a time."""
        return self._workers

    def room(self) -> int:
        """Return how many tasks to keep submitted: one waiting task for each running one."""
        return 2 * self.workers()

    def submit(self, task: Task, data: bytes, sure: bool, finished: Finished[Any]) -> Any:
        """Send a task; its future is put into the queue `finished` when it is done.

        The job is sent along if `sure` is true, and with the first tasks, because no worker can have it yet.
        """
        sure = sure or self._sent.get(task.job, 0) < self._workers
        if sure:
            self._sent[task.job] = self._sent.get(task.job, 0) + 1
        try:
            future = self._submit(work, task, data if sure else None)
        except BrokenExecutor as error:
            raise broken(error) from None
        except RuntimeError as error:  # An executor that is shut down raises it.
            raise ValueError(f"the pool does not accept tasks: {error}") from None
        if not callable(getattr(future, "add_done_callback", None)):
            raise ValueError(
                f"the pool's submit has returned {a_kind(future)}; it must return a future, as those of "
                "concurrent.futures are"
            )
        future.add_done_callback(finished.put)
        return future

    def submit_all(self, tasks: Sequence[Task], data: bytes, finished: Finished[Any]) -> list[Any]:
        """Send several tasks of one job."""
        return [self.submit(task, data, False, finished) for task in tasks]

    def results(self, futures: Sequence[Any]) -> Iterator[Any]:
        """Yield the result of each finished future: a reply, or an exception as a value."""
        for future in futures:
            try:
                yield future.result()
            except Exception as error:
                yield error

    def wait(self, finished: Finished[Any], seconds: float) -> list[Any]:
        """Return the finished futures, waiting for the first for `seconds` at most."""
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(finished.get(timeout=seconds))
            while True:
                found.append(finished.get_nowait())
        return found

    def is_lost(self, error: BaseException) -> bool:
        """Return whether an error means that the worker is gone rather than that the task failed."""
        return isinstance(error, WorkerDied | CancelledError)


class MapPool(Pool):
    """Workers behind a function ``map(function, tasks)``, which is called with several tasks at a time."""

    def __init__(self, call: Callable[..., Any], workers: int) -> None:
        super().__init__(self._keep, workers)
        self._map = call
        self._waiting: list[tuple[Future[Any], tuple[Any, ...]]] = []

    def _keep(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append((future, args))
        return future

    def wait(self, finished: Finished[Any], seconds: float) -> list[Any]:
        """Run all waiting tasks and return their futures."""
        tasks, self._waiting = self._waiting, []
        found: Any = self._map(_work_on, [args for _, args in tasks])
        answers = list(found) if np.iterable(found) else []
        if len(answers) != len(tasks):
            what = f"{len(answers)} results" if np.iterable(found) else a_kind(found)
            raise ValueError(f"the pool's map has returned {what} for {len(tasks)} tasks")
        for (future, _), answer in zip(tasks, answers, strict=True):
            future.set_result(answer)
        return super().wait(finished, 0.0)


def _work_on(args: tuple[Any, ...]) -> Any:
    return work(*args)


def broken(error: BaseException) -> OSError:
    """Return the error to raise when a pool cannot be used any longer."""
    return OSError(f"the pool is broken: {error}")


def open_pool(pool: Any, threads: int | None, cores: int) -> Pool:
    """Return the pool that the option `pool` names; each task uses `threads`, by default its share of the cores."""
    if isinstance(pool, str):
        found = _named(pool, cores)
    elif isinstance(pool, int) and not isinstance(pool, bool):
        number = whole(pool, "pool", 1, MOST_WORKERS)
        processes = Processes(number)
        found = Pool(processes.submit, number, processes.close)
        found.threads = max(1, cores // number)
    elif type(pool).__module__.split(".")[0] in ("distributed", "dask"):
        found = _dask().of_client(pool)
    elif callable(getattr(pool, "submit", None)):
        found = Pool(pool.submit, _number_of_workers(pool))
    elif callable(getattr(pool, "apply_async", None)):
        found = Pool(_submit_to(pool), _number_of_workers(pool))
    elif callable(getattr(pool, "map", None)):
        found = MapPool(pool.map, _number_of_workers(pool))
    else:
        raise _no_pool(pool)
    if threads is not None:
        found.threads = threads
    return found


def _no_pool(pool: Any) -> ValueError:
    return ValueError(f"pool is {shown(pool)}; it must be {_KINDS}")


def _named(pool: str, cores: int) -> Pool:
    """Return the pool that a string names: a number of processes, a Dask scheduler, or a local Dask cluster."""
    if pool.isdecimal() and len(pool) < 10:
        return open_pool(int(pool), None, cores)
    if pool == "dask-local":
        return _dask().local(cores)
    if pool.startswith("dask:") and len(pool) > len("dask:"):
        return _dask().at(pool.removeprefix("dask:"))
    if "://" in pool:
        return _dask().at(pool)
    raise _no_pool(pool)


def _dask() -> Any:
    try:
        return importlib.import_module(".dask", __package__)
    except ImportError as error:
        if not (error.name or "").startswith(("distributed", "dask")):
            raise
        raise ValueError("a pool of Dask needs the package distributed: pip install 'marginalis[dask]'") from None


def _number_of_workers(pool: Any) -> int:
    """Return the number of workers of an executor, from the usual attributes, or else the number of cores."""
    for name in ("num_workers", "_max_workers", "_processes", "size"):
        number = getattr(pool, name, None)
        if isinstance(number, int) and 0 < number <= 10**6:
            return number
    return os.cpu_count() or 1


def _submit_to(pool: Any) -> Callable[..., Any]:
    """Return ``submit`` for a pool of `multiprocessing`."""

    def submit(function: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        pool.apply_async(function, args, callback=future.set_result, error_callback=future.set_exception)
        return future

    return submit


def check_version(found: object, where: str) -> None:
    """Raise a ValueError if a worker has no marginalis, or another version than the caller."""
    if found is None:
        raise ValueError(f"the worker {where} has no marginalis: install version {__version__} there")
    if found != __version__:
        raise ValueError(f"the worker {where} has marginalis {found}, and this is {__version__}: they must be the same")
