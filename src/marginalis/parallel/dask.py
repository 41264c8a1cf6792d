"""Pools of Dask workers, through the package ``distributed``.

Dask itself restarts the tasks of a dead worker on another worker. Tasks that Dask gives up, or that are lost with the
scheduler, are sent again from here.
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

_ANSWER = 5  # Seconds until a scheduler that does not answer counts as absent.
_WORKERS = 30.0  # Seconds that a cluster may have no workers before the run fails.
_ALIVE = ("running", "connecting")  # A client that reconnects to its scheduler is still usable.
_GONE = (CancelledError, asyncio.CancelledError, CommClosedError, distributed.KilledWorker)


class DaskPool(Pool):
    """The workers of a Dask cluster, whose number may change during the run."""

    def __init__(self, client: distributed.Client, close: Callable[[], None] = lambda: None) -> None:
        super().__init__(client.submit, 1, close)
        self.client = client
        self._jobs: dict[str, Any] = {}
        self._known: set[str] = set()
        self._looked, self._number = -1.0, 0
        self._lonely_since = time.monotonic()
        self.workers()

    def workers(self) -> int:
        """Return how many tasks the cluster can run at a time, refreshed once per second."""
        now = time.monotonic()
        if now - self._looked > 1.0:
            if self.client.status not in _ALIVE:
                raise self._gone()
            found: dict[str, int] = {}
            with contextlib.suppress(*_GONE):  # The scheduler may come back.
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
        # The function is from the standard library, so that every worker can run it.
        look = {}
        with contextlib.suppress(*_GONE, ValueError):  # A worker may have left in the meantime.
            look = self.client.run(pkgutil.resolve_name, "marginalis:__version__", workers=workers, on_error="return")
        for address, found in look.items():
            if isinstance(found, ImportError):
                found = None
            if found is None or isinstance(found, str):  # Any other value means that the worker has just left.
                check_version(found, address)
                self._known.add(address)

    def submit(self, task: Task, data: bytes, sure: bool, finished: Finished[Any]) -> Any:
        """Send a task."""
        return self.submit_all([task], data, finished)[0]

    def submit_all(self, tasks: Sequence[Task], data: bytes, finished: Finished[Any]) -> list[Any]:
        """Send several tasks at once.

        The job is a Dask task of its own on which the others depend, so that Dask copies it to the workers.
        """
        name = tasks[0].job
        job = self._jobs.get(name)
        try:
            if job is None or job.status in ("cancelled", "lost", "error"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # Dask warns about large objects, which models may be.
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
        """Yield the results of futures: fetched together, or one by one if some of them are lost."""
        if all(future.status == "finished" for future in futures):
            with contextlib.suppress(Exception):
                yield from self.client.gather(futures)
                return
        yield from super().results(futures)

    def _gone(self) -> OSError:
        return OSError(
            f"the Dask scheduler was lost (client: {self.client.status}); finished chains are in the checkpoint, "
            "if there is one"
        )

    def is_lost(self, error: BaseException) -> bool:
        """Return whether the error means that the worker or the scheduler is gone."""
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
        # A client that finds no scheduler takes long to close, so a bare connection is tried first. It runs on another
        # thread because an event loop may already be running on this one.
        with ThreadPoolExecutor(1) as other_thread:
            other_thread.submit(asyncio.run, _knock(address)).result()
        client = distributed.Client(address, timeout=_ANSWER, set_as_default=False)
    except (OSError, ValueError, TypeError, MemoryError) as error:  # MemoryError: the server speaks another protocol.
        text = " ".join(str(error).split())[:100] or "it does not say hello"
        raise ValueError(f"no Dask scheduler answers at {address!r}: {text}") from None
    return _ours(client, client.close)


async def _knock(address: str) -> None:
    """Raise an error if no scheduler answers at an address."""
    secrets = distributed.Security().get_connection_args("client")
    calling = distributed.comm.connect(distributed.comm.normalize_address(address), timeout=_ANSWER, **secrets)
    (await asyncio.wait_for(calling, _ANSWER + 1)).abort()


def local(cores: int) -> DaskPool:
    """Start a cluster on this machine, one process per core, that is reachable from this machine only."""
    here = "127.0.0.1"
    cluster = distributed.LocalCluster(
        n_workers=cores,
        threads_per_worker=1,
        host=here,
        dashboard_address=f"{here}:0",
        worker_dashboard_address=f"{here}:0",  # Older versions would listen on all network interfaces.
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
