"""Who does the work of an answer: threads here, or a pool; and where finished parts are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ..engines.plan import Plan
from ..gpu.device import device_numbers, open_device
from ..parallel.pools import Pool, open_pool
from ..parallel.progress import ticker, words_of
from ..parallel.threads import Tick, cores
from .checkpoint import Checkpoint, open_checkpoint

_SMALL = 5.0  # seconds of a pilot that are not worth a journey


@dataclass(eq=False)
class Workers:
    """Threads of this process, and a pool if there is one. `machines` are those that took part in a pool."""

    threads: int
    pool: Pool | None = None
    store: Checkpoint | None = None
    say: Callable[[str], None] = lambda text: None  # what a bar shows besides the fraction done
    machines: set[str] = field(default_factory=set)

    def for_pilot(self, plan: Plan) -> Workers:
        """Return who runs a plan that is not the answer's own: this machine, unless it would take long."""
        small = plan.chains.count * plan.seconds_per_chain < _SMALL * self.threads
        return replace(self, pool=None, store=None) if small else self

    @property
    def names(self) -> str:
        """The machines of the pool that took part, as a line of text."""
        return "; ".join(sorted(self.machines))


@contextmanager
def at_work(options: Mapping[str, Any], label: str, *models: Any) -> Iterator[tuple[Workers, Tick]]:
    """Give the workers that the options of a run name, and the function that hears the fraction done.

    `label` and `models` say what the run is about, for a checkpoint to tell it from others.
    """
    threads = cores(options["threads"])
    on_gpu = str(options.get("engine")) == "cuda"  # checked later: it may be anything
    if on_gpu and (options["pool"] is None or str(options["pool"]).isdecimal()):
        for number in device_numbers(options.get("device")):
            open_device(number)  # refused before the pilots; a pool elsewhere may have what is missing here
    with ticker(options["progress"], label) as tick, ExitStack() as stack:
        store = open_checkpoint(options, label, models)
        if store is not None:
            stack.callback(store.close)
        pool = None
        if options["pool"] is not None:
            pool = open_pool(options["pool"], options["threads"], threads)
            stack.callback(pool.close)
        yield Workers(threads, pool, store, words_of(tick)), tick
