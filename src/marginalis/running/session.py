"""The resources of one call, opened once from its options: threads, a pool, a checkpoint, progress reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..checks import needs_gpu
from ..engines.batch import run_batch
from ..engines.drive import RunResult, advance, begin
from ..engines.plan import Plan
from ..engines.recorder import Recorder
from ..gpu.device import device_numbers, open_device
from ..parallel.pools import Pool, open_pool
from ..parallel.progress import text_setter, ticker
from ..parallel.threads import Tick, cores
from .checkpoint import Checkpoint, open_checkpoint
from .parts import run_in_parts

# A pilot that takes at most this many seconds runs on this machine and not on the pool.
_SMALL = 5.0


def quiet(fraction: float) -> None:
    """Ignore the progress."""


@dataclass(eq=False)
class Session:
    """Runs plans on threads of this process or on a pool; `machines` are the machines of the pool that took part."""

    threads: int = 1
    pool: Pool | None = None
    store: Checkpoint | None = None
    tick: Tick = quiet  # A callback that receives the progress, from 0 to 1.
    say: Callable[[str], None] = lambda text: None  # A callback that receives the text beside the progress bar.
    machines: set[str] = field(default_factory=set)
    begun: float = field(default_factory=time.perf_counter)

    def run(self, plan: Plan, recorder: Recorder | None = None) -> RunResult:
        """Return ln W of every chain of the plan, or of every population if it is resampled, without Z_0.

        A run of AIS may also return the weights of mAIS on the same path. `recorder` stores values along the way; they
        do not include the part of the model that the plan sums exactly.
        """
        shift = plan.path.exact_log_ratio
        if plan.path.is_exact:
            return RunResult(np.full(plan.chains.populations or plan.chains.count, shift), None, recorder)
        plan = plan.started()
        if self.pool is None and self.store is None:
            found = advance(plan, begin(plan), range(plan.chains.count), self.threads, self.tick, recorder)
        else:
            found = run_in_parts(plan, self, recorder)
        for weights in (found.log_weights, found.marginal):
            if weights is not None and shift:
                weights += shift  # The sum is done in place, since there may be many weights.
        return found

    def run_many(self, plans: Sequence[Plan], group: int = 1) -> list[RunResult]:
        """Return what `run` returns for every plan; the plans must have one shape (see `batch.shape_of`).

        The models run on threads of this process, without a checkpoint. With a `group`, the results have ln of the mean
        weight of every so many consecutive chains.
        """
        if plans[0].path.is_exact:
            count = (plans[0].chains.populations or plans[0].chains.count) // group
            return [RunResult(np.full(count, plan.path.exact_log_ratio), None) for plan in plans]
        found = run_batch([plan.started() for plan in plans], self.threads, self.tick, group)
        for plan, own in zip(plans, found, strict=True):
            shift = plan.path.exact_log_ratio
            if shift:
                for weights in (own.log_weights, own.marginal):
                    if weights is not None:
                        weights += shift
        return found

    def pilot(self, plan: Plan, recorder: Recorder | None = None) -> RunResult:
        """Run a pilot without progress reports."""
        return self.for_pilot(plan).run(plan, recorder)

    def for_pilot(self, plan: Plan) -> Session:
        """Return the session that runs a pilot: without the pool if the pilot is short."""
        if plan.chains.count * plan.seconds_per_chain < _SMALL * self.threads:
            return replace(self, tick=quiet, pool=None, store=None)
        return replace(self, tick=quiet)

    def part(self, low: float, high: float) -> Session:
        """Return a session whose progress from 0 to 1 is shown as the progress of this one from `low` to `high`."""
        return replace(self, tick=lambda fraction: self.tick(low + (high - low) * fraction))

    @property
    def names(self) -> str:
        """Names of the machines of the pool that took part, as one line of text."""
        return "; ".join(sorted(self.machines))

    @property
    def seconds(self) -> float:
        """Seconds since the session began."""
        return time.perf_counter() - self.begun


@contextmanager
def open_session(options: Mapping[str, Any], label: str, *models: Any) -> Iterator[Session]:
    """Open the resources that the options name, and close them at the end.

    `label` and `models` identify the call in a checkpoint.
    """
    threads = cores(options["threads"])
    if needs_gpu(options.get("engine")) and (options["pool"] is None or str(options["pool"]).isdecimal()):
        for number in device_numbers(options.get("device")):
            open_device(number)  # A missing device is an error before the pilots; machines of a pool have their own.
    session = Session(threads)
    with ExitStack() as stack:
        if options["progress"] is not False:
            session.tick = stack.enter_context(ticker(options["progress"], label))
            session.say = text_setter(session.tick)
        if options["checkpoint"] is not None:
            session.store = open_checkpoint(options, label, models)
            stack.callback(session.store.close)
        if options["pool"] is not None:
            session.pool = open_pool(options["pool"], options["threads"], threads)
            stack.callback(session.pool.close)
        yield session
