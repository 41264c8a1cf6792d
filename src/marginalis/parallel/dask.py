"""Pools of a Dask cluster, by the package ``distributed``.

Dask starts the tasks of a worker that has died on another one. What it gives up, or what is lost with its scheduler,
is sent again from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import pkgutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import distributed
from distributed.comm import CommClosedError

from ..checks import a_kind
from .pools import Finished, Pool, check_version
from .tasks import Task, work

_ANSWER = 5  # seconds that a scheduler has to answer
_WORKERS = 30.0  # seconds that a cluster without workers has to find some
_ALIVE = ("running", "connecting")  # the client gives a scheduler that is gone some time to come back
_GONE = (CancelledError, asyncio.CancelledError, CommClosedError, distributed.KilledWorker)


class DaskPool(Pool):
    """The workers of a Dask cluster, as many as there are at the time."""

    def __init__(self, client: distributed.Client, close: Callable[[], None] = lambda: None) -> None:
        super().__init__(client.submit, 1, close)
        self.client = client
        self._jobs: dict[str, Any] = {}
        self._known: set[str] = set()
        self._looked, self._number = -1.0, 0
        self._lonely_since = time.monotonic()
        self.workers()

    def workers(self) -> int:
        """Return how many tasks the cluster can run at a time; a second's old news will do."""
        now = time.monotonic()
        if now - self._looked > 1.0:
            if self.client.status not in _ALIVE:
                raise self._gone()
            found: dict[str, int] = {}
            with contextlib.suppress(*_GONE):  # a scheduler that is gone may come back
                found = self.client.nthreads() if self.client.status == "running" else {}
            self._number, self._looked = sum(found.values()), now
            if set(found) - self._known:
                self._check_versions(sorted(set(found) - self._known))
            if self._number:
                self._lonely_since = now
            elif now - self._lonely_since > _WORKERS:
                raise OSError(f"the Dask cluster has had no worker for {_WORKERS:.0f} s")
        return self._number

    def _check_versions(self, workers: list[str]) -> None:
        """Raise a ValueError that names a worker without marginalis, or with another version."""
        # a function of the standard library, which every worker has
        look = {}
        with contextlib.suppress(*_GONE, ValueError):  # a worker that has gone meanwhile
            look = self.client.run(pkgutil.resolve_name, "marginalis:__version__", workers=workers, on_error="return")
        for address, found in look.items():
            if isinstance(found, ImportError):
                found = None
            if found is None or isinstance(found, str):  # else it has just gone
                check_version(found, address)
                self._known.add(address)

    def submit(self, task: Task, data: bytes, sure: bool, finished: Finished[Any]) -> Any:
        """Send a task."""
        return self.submit_all([task], data, finished)[0]

    def submit_all(self, tasks: Sequence[Task], data: bytes, finished: Finished[Any]) -> list[Any]:
        """Send some tasks at once; the job is a task of its own, on which they depend: Dask takes it where they go."""
        name = tasks[0].job
        job = self._jobs.get(name)
        try:
            if job is None or job.status in ("cancelled", "lost", "error"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # a model may be larger than Dask likes
                    job = self.client.submit(bytes, data, key=f"marginalis-job-{name}")
                self._jobs = {name: job}
            futures: list[Any] = self.client.map(work, tasks, data=job, pure=False)
        except Exception:
            if self.client.status in _ALIVE:
                raise
            raise self._gone() from None
        for future in futures:
            future.add_done_callback(finished.put)
        return futures

    def results(self, futures: Sequence[Any]) -> Iterator[Any]:
        """Give what futures hold: fetched together, or one by one if some of it is lost."""
        if all(future.status == "finished" for future in futures):
            with contextlib.suppress(Exception):
                yield from self.client.gather(futures)
                return
        yield from super().results(futures)

    def _gone(self) -> OSError:
        return OSError(
            f"the scheduler is gone, and the Dask client {self.client.status}: what is finished is in the checkpoint, "
            "if there is one"
        )

    def is_lost(self, error: BaseException) -> bool:
        """Tell if the worker or the scheduler is gone."""
        return isinstance(error, _GONE) or super().is_lost(error)


def of_client(client: Any) -> DaskPool:
    """Return the pool of a client, or of a cluster."""
    if isinstance(client, distributed.deploy.Cluster):
        own = distributed.Client(client)
        return DaskPool(own, own.close)
    if not isinstance(client, distributed.Client):
        raise ValueError(f"pool is {a_kind(client)} of Dask; it must be a Client")
    if client.asynchronous:
        raise ValueError("pool is an asynchronous Dask client; it must be a synchronous one")
    if client.status != "running":
        raise ValueError(f"pool is a Dask client that is {client.status}")
    return DaskPool(client)


def at(address: str) -> DaskPool:
    """Return the pool of the scheduler at an address, if one answers there."""
    try:
        # a client that finds nobody would take long to go, and here a loop may be running already
        with ThreadPoolExecutor(1) as other_thread:
            other_thread.submit(asyncio.run, _knock(address)).result()
        client = distributed.Client(address, timeout=_ANSWER, set_as_default=False)
    except (OSError, ValueError, TypeError, MemoryError) as error:  # MemoryError: who answers speaks another language
        text = " ".join(str(error).split())[:100] or "it does not say hello"
        raise ValueError(f"no Dask scheduler answers at {address!r}: {text}") from None
    return _ours(client, client.close)


async def _knock(address: str) -> None:
    """Raise an error if nobody answers at an address as a scheduler does."""
    secrets = distributed.Security().get_connection_args("client")
    calling = distributed.comm.connect(distributed.comm.normalize_address(address), timeout=_ANSWER, **secrets)
    (await asyncio.wait_for(calling, _ANSWER + 1)).abort()


def local(cores: int) -> DaskPool:
    """Return a cluster of our own on this machine, a process for each core, which listens to this machine only."""
    here = "127.0.0.1"
    cluster = distributed.LocalCluster(
        n_workers=cores,
        threads_per_worker=1,
        host=here,
        dashboard_address=f"{here}:0",
        worker_dashboard_address=f"{here}:0",  # older versions would listen to everybody
        silence_logs=100,
    )
    client = distributed.Client(cluster, set_as_default=False)

    def close() -> None:
        client.close()
        cluster.close()

    return _ours(client, close)


def _ours(client: distributed.Client, close: Callable[[], None]) -> DaskPool:
    try:
        return DaskPool(client, close)
    except BaseException:
        close()
        raise
