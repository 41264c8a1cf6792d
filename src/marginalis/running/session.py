"""The resources of one call, opened once from its options: threads, a pool, a checkpoint, progress reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..engines.drive import Found, advance, begin
from ..engines.placement import needs_gpu
from ..engines.plan import Plan
from ..engines.recorder import Recorder
from ..gpu.device import device_numbers, open_device
from ..parallel.pools import Pool, open_pool
from ..parallel.progress import ticker, words_of
from ..parallel.threads import Tick, cores
from .checkpoint import Checkpoint, open_checkpoint
from .parts import run_in_parts

_SMALL = 5.0  # Seconds of a pilot up to which it runs here and not on the pool.


def quiet(fraction: float) -> None:
    """Receive the progress, and show nothing."""


@dataclass(eq=False)
class Session:
    """Runs plans on threads of this process or on a pool; `machines` are those of a pool that took part."""

    threads: int = 1
    pool: Pool | None = None
    store: Checkpoint | None = None
    tick: Tick = quiet  # receives the fraction done
    say: Callable[[str], None] = lambda text: None  # what a bar shows besides the fraction done
    machines: set[str] = field(default_factory=set)
    begun: float = field(default_factory=time.perf_counter)

    def run(self, plan: Plan, recorder: Recorder | None = None) -> Found:
        """Return ln W of every chain of the plan, or of every population where it is resampled (Z_0 left out).

        Where AIS carries them along, the weights of mAIS on the same path come with them. `recorder` takes down what it
        wants on the way; it knows nothing of what the plan sums exactly.
        """
        shift = plan.path.exact_log_ratio
        if plan.path.part is None:
            return Found(np.full(plan.chains.populations or plan.chains.count, shift), None, recorder)
        plan = plan.started()
        if self.pool is None and self.store is None:
            found = advance(plan, begin(plan), range(plan.chains.count), self.threads, self.tick, recorder)
        else:
            found = run_in_parts(plan, self, recorder)
        for weights in (found.log_weights, found.marginal):
            if weights is not None and shift:
                weights += shift  # in place: there may be many
        return found

    def pilot(self, plan: Plan, recorder: Recorder | None = None) -> Found:
        """Run a plan that is not the answer's own, in silence."""
        return self.for_pilot(plan).run(plan, recorder)

    def for_pilot(self, plan: Plan) -> Session:
        """Return what runs a pilot: this machine, unless it would take long."""
        if plan.chains.count * plan.seconds_per_chain < _SMALL * self.threads:
            return replace(self, tick=quiet, pool=None, store=None)
        return replace(self, tick=quiet)

    def part(self, low: float, high: float) -> Session:
        """Return the session whose progress from 0 to 1 is that of this one between two fractions."""
        return replace(self, tick=lambda fraction: self.tick(low + (high - low) * fraction))

    @property
    def names(self) -> str:
        """The machines of the pool that took part, as a line of text."""
        return "; ".join(sorted(self.machines))

    @property
    def seconds(self) -> float:
        """Seconds since the session began."""
        return time.perf_counter() - self.begun


@contextmanager
def open_session(options: Mapping[str, Any], label: str, *models: Any) -> Iterator[Session]:
    """Open what the options of a run name, and close it in the end.

    `label` and `models` say what the run is about, for a checkpoint to tell it from others.
    """
    threads = cores(options["threads"])
    if needs_gpu(options.get("engine")) and (options["pool"] is None or str(options["pool"]).isdecimal()):
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
        yield Session(threads, pool, store, tick, words_of(tick))
