"""Runs that are split into parts, for a pool or a checkpoint."""

from __future__ import annotations

import math
import secrets
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import Array
from ..engines import PreparedPlan
from ..engines.drive import LANES, RunResult, advance, begin
from ..engines.plan import Plan
from ..engines.recorder import Recorder
from ..parallel.dispatch import dispatch
from ..parallel.ledger import Ledger
from ..parallel.tasks import Reply, machine
from ..parallel.threads import Tick
from .checkpoint import StoredResult, from_bytes, run_name, to_bytes

if TYPE_CHECKING:
    from .session import Session

# Interval, in seconds, at which a run on threads writes to its checkpoint.
_KEEP_EVERY = 10.0
# Largest size, in bytes, of the results of one part.
_MOST_BYTES = 1 << 25


@dataclass(eq=False)
class ChainsOfPlan:
    """The chains of a plan as a job whose units are populations, or sixteen chains each."""

    plan: Plan
    blank: Recorder | None  # An empty recorder, copied for every part.
    _prepared: list[PreparedPlan] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        return {"plan": self.plan, "blank": self.blank, "_prepared": []}

    @property
    def unit(self) -> int:
        """Number of chains of one unit, which are always run together."""
        return self.plan.chains.population_size if self.plan.chains.populations else LANES

    def chains(self, part: range) -> range:
        """Return the chains of some units."""
        return range(part.start * self.unit, min(part.stop * self.unit, self.plan.chains.count))

    def run(self, part: range, extra: Any, threads: int, tick: Tick = lambda fraction: None) -> RunResult:
        """Run the chains of some units."""
        if not self._prepared:
            self._prepared.append(begin(self.plan))
        chains = self.chains(part)
        recorder = None if self.blank is None else self.blank.like(len(chains))
        return advance(self.plan, self._prepared[0], chains, threads, tick, recorder)


def run_in_parts(plan: Plan, session: Session, recorder: Recorder | None) -> RunResult:
    """Run a plan in parts, on a pool or on threads; reuse the chains in the checkpoint and add new ones to it."""
    run = _Parts(plan, session, recorder)
    run.look()
    try:
        if session.pool is not None:
            dispatch(session.pool, run.job, run.ledger, run.receive, run.then(session.tick), refresh=run.look)
        else:
            run.here(session.tick)
    finally:
        run.keep()
    return RunResult(run.log_weights, run.marginal, recorder)


class _Parts:
    """Results of the parts of a plan that are finished."""

    def __init__(self, plan: Plan, session: Session, recorder: Recorder | None) -> None:
        self.plan, self.session, self.recorder = plan, session, recorder
        self.job = ChainsOfPlan(plan, None if recorder is None else recorder.like(0))
        unit, units = self.job.unit, -(-plan.chains.count // self.job.unit)
        seconds = unit * plan.seconds_per_chain
        most = max(1, _MOST_BYTES // (unit * (16 if recorder is None else 16 + recorder.bytes_per_chain)))
        start = 0 if session.store is None else secrets.randbelow(units)  # Two processes start at different places.
        if session.pool is None:
            self.ledger = Ledger(units, seconds / session.threads, most=most, start=start, length=_KEEP_EVERY)
        else:
            self.ledger = Ledger(units, seconds, most=most, start=start)
        self.log_weights = np.full(plan.chains.populations or plan.chains.count, math.nan)
        self.marginal: Array | None = None
        self.begun, self.before = time.monotonic(), 0  # `before` counts the units finished at that time.
        self.name = "" if session.store is None else run_name(plan, recorder)
        self.offset = 0 if plan.chains.populations or plan.chains.start is not None else plan.chains.first
        self.read, self.new = 0, list[StoredResult]()

    def here(self, tick: Tick) -> None:
        """Run all parts on threads of this process, one after the other."""
        while (part := self.ledger.take(time.monotonic(), 1)) is not None:
            begun, share, before = time.perf_counter(), len(part) / self.ledger.total, self._fraction()
            report = partial(_from_to, tick, before, before + share)
            found = self.job.run(part, None, self.session.threads, report)
            if self.ledger.finish(part, time.perf_counter() - begun):
                self.receive(part, Reply(machine(), "", result=found))
            self.then(tick)(self._fraction())

    def _fraction(self) -> float:
        return self.ledger.done / self.ledger.total

    def receive(self, part: range, reply: Reply) -> None:
        """Store the results of a part."""
        found, chains = reply.result, self.job.chains(part)
        self._place(chains, found)
        self.session.machines.add(reply.machine)
        if self.session.store is not None:
            data = to_bytes(found.log_weights, found.marginal, found.recorded)
            self.new.append(StoredResult(chains.start + self.offset, len(chains), reply.machine, data))
        if self.session.pool is not None:
            done = min(self.ledger.done * self.job.unit, self.plan.chains.count)
            rate = (self.ledger.done - self.before) * self.job.unit * self.plan.steps / (time.monotonic() - self.begun)
            number = self.session.pool.workers()
            self.session.say(f"{done} of {self.plan.chains.count} chains, {number} workers, {rate:.3g} chain steps/s")

    def _place(self, chains: range, found: RunResult) -> None:
        place = slice(chains.start, chains.stop)
        if found.marginal is not None:
            if self.marginal is None:
                self.marginal = np.full(self.plan.chains.count, math.nan)
            self.marginal[place] = found.marginal
        if self.recorder is not None and found.recorded is not None:
            self.recorder.put(place, found.recorded)
        size = self.plan.chains.population_size if self.plan.chains.populations else 1
        self.log_weights[chains.start // size : chains.stop // size] = found.log_weights

    def then(self, tick: Tick) -> Tick:
        """Return a callback that calls `tick` and writes new results to the checkpoint."""

        def report(fraction: float) -> None:
            self.keep()
            tick(fraction)

        return report

    def keep(self) -> None:
        """Write new results to the checkpoint."""
        pieces, self.new = self.new, []
        if self.session.store is not None and pieces:
            self.session.store.write(self.name, pieces)

    def look(self) -> None:
        """Read results from the checkpoint that this run does not have."""
        if self.session.store is None:
            return
        plan, unit = self.plan, self.job.unit
        for number, piece in self.session.store.read(self.name, self.read):
            self.read = number
            first = piece.first - self.offset
            inside = range(max(0, -(-first // unit)), (first + piece.chains) // unit)
            if first + piece.chains == plan.chains.count:
                inside = range(inside.start, self.ledger.total)
            if first < 0 or first + piece.chains > plan.chains.count or not inside:
                continue
            chains = range(first, first + piece.chains)
            size = piece.chains // plan.chains.population_size if plan.chains.populations else piece.chains
            try:
                found = RunResult(*from_bytes(piece.data, size, piece.chains, self.job.blank))
            except ValueError as error:
                raise self.session.store.damage(error) from None
            if self.ledger.finish(inside):
                self._place(chains, found)
                self.session.machines.add(piece.machine)
        self.before = self.ledger.done if not self.before else self.before


def _from_to(tick: Tick, low: float, high: float, fraction: float) -> None:
    tick(low + (high - low) * fraction)
