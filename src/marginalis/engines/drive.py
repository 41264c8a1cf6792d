"""The one driver: chunks of chains on threads or on a pool, progress, records on the way, a prompt stop."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..checks import Array
from ..parallel.ledger import Ledger
from ..parallel.share import share_out
from ..parallel.tasks import Reply, machine
from ..parallel.threads import Tick, run_jobs
from ..running.checkpoint import Piece, from_bytes, run_name, to_bytes
from ..running.session import Workers
from . import Begun
from .plan import Plan
from .recorder import Recorder
from .reference import loop
from .resample import Populations

_LANES = 16  # chains that kernels like to have together
_KEEP_EVERY = 10.0  # seconds of a run on threads that go to a checkpoint together
_NO_THREADS = 0.02  # seconds that other threads would take longer to help with
_MOST_BYTES = 1 << 25  # that a part of a run sends back


def begin(plan: Plan) -> Begun:
    """Lay a plan out for its engine."""
    if plan.placement.engine == "numpy":
        return Begun(lambda chains: loop.Population(plan, chains), loop.chains_together(plan))
    if plan.placement.engine == "cuda":
        from . import cuda  # imported here, as is Numba: they take a second to load

        return cuda.begin(plan)
    from . import cpu

    return cpu.begin(plan)


def run(plan: Plan, workers: int | Workers, tick: Tick, recorder: Recorder | None = None) -> Array:
    """Return ln W of every chain of the plan, or of every population where it is resampled (Z_0 left out).

    `workers` are threads of this process, or more than that. `recorder` takes down what it wants on the way; it knows
    nothing of what the plan sums exactly.
    """
    return run_both(plan, workers, tick, recorder)[0]


def run_both(
    plan: Plan, workers: int | Workers, tick: Tick, recorder: Recorder | None = None
) -> tuple[Array, Array | None]:
    """Return the log-weights of the plan's method and, where AIS carries them along, those of mAIS on the same path."""
    shift = plan.path.exact_log_ratio
    if plan.path.part is None:
        return np.full(plan.chains.populations or plan.chains.count, shift), None
    plan = plan.started()
    if isinstance(workers, int):
        workers = Workers(workers)
    if workers.pool is None and workers.store is None:
        found = run_here(plan, begin(plan), range(plan.chains.count), workers.threads, tick, recorder)
    else:
        found = _run_apart(plan, workers, tick, recorder)
    for weights in (found.log_weights, found.marginal):
        if weights is not None and shift:
            weights += shift  # in place: there may be many
    return found.log_weights, found.marginal


class Found(NamedTuple):
    """Log-weights of some chains (or populations), and those of mAIS that AIS has carried along."""

    log_weights: Array
    marginal: Array | None
    recorded: Recorder | None = None


def run_here(
    plan: Plan, begun: Begun, chains: range, threads: int, tick: Tick, recorder: Recorder | None = None
) -> Found:
    """Run some chains of a plan (whole populations, if it has any) on threads; `recorder` is for these chains only."""
    threads = begun.at_a_time or (1 if len(chains) * plan.seconds_per_chain < _NO_THREADS else threads)
    whole, lead = plan.chains.population_size if plan.chains.populations else _LANES, 0
    if begun.aligned and not plan.chains.populations:
        whole, lead = begun.aligned, (plan.chains.first + chains.start) % begun.aligned
    # a run that is looked at on the way stops often: larger jobs keep the calls long
    least = begun.at_least if recorder is None and not plan.chains.populations else len(chains)
    log_weights = np.empty(len(chains) // whole if plan.chains.populations else len(chains))
    marginal = np.empty(len(chains)) if begun.carries_marginal and not plan.chains.populations else None

    def job(own: range) -> Iterator[int]:
        """Carry some chains to the end; yields the number of chain·steps done at a time."""
        part = slice(own.start - chains.start, own.stop - chains.start)
        population = begun.population(own)
        populations = Populations(plan, own) if plan.chains.populations else None
        earlier = 0.0 if plan.chains.start_log_weights is None else plan.chains.start_log_weights[own.start : own.stop]
        while population.step < plan.steps:
            k = population.step
            stop = min(k + population.stride, plan.steps)
            if recorder is not None:
                stop = min(stop, recorder.next_step(k, plan.steps))
            if populations is not None:
                stop = min(stop, populations.next_look(k))
            population.advance(stop)
            if recorder is not None and stop in recorder:
                states = population.states() if recorder.wants_states(stop) else None
                so_far = population.log_weights + earlier
                recorder.record(stop, part, so_far if populations is None else populations.of_chains(so_far), states)
            if populations is not None and stop == populations.next_look(stop - 1):
                ancestors = populations.choose(stop, population.log_weights + earlier)
                if ancestors is not None:
                    population.choose(ancestors)
            yield (stop - k) * len(own)
        if populations is None:
            np.add(population.log_weights, earlier, out=log_weights[part])
        else:
            of = slice(part.start // whole, part.stop // whole)
            log_weights[of] = populations.of_populations(population.log_weights + earlier)
        if marginal is not None:
            np.add(population.marginal_log_weights, earlier, out=marginal[part])

    parts = _parts(chains, whole, threads, least, begun.together, lead)
    run_jobs(job, parts, plan.steps * len(chains), threads, tick)
    return Found(log_weights, marginal, recorder)


def _parts(chains: range, whole: int, threads: int, least: int, most: int, lead: int = 0) -> Iterator[range]:
    """Cut a range into parts of a whole number of `whole`, ever smaller ones so that all threads end together.

    The first part is `lead` shorter.
    """
    if threads > 4:  # some are slower than others, and the last part of each counts
        least = max(least // 2, 4 * whole)
    least = min(least, -(-len(chains) // threads))
    while chains:
        share = max(least, len(chains) // (2 * threads) if threads > 1 else len(chains))
        size = max(1, min(-(-share // whole), most // whole)) * whole
        yield chains[: size - lead]
        chains, lead = chains[size - lead :], 0


@dataclass(eq=False)
class Chains:
    """The chains of a plan as a job: its units are populations, or sixteen chains each."""

    plan: Plan
    blank: Recorder | None  # for no chains
    _begun: list[Begun] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        return {"plan": self.plan, "blank": self.blank, "_begun": []}

    @property
    def unit(self) -> int:
        """Number of chains that stay together."""
        return self.plan.chains.population_size if self.plan.chains.populations else _LANES

    def chains(self, part: range) -> range:
        """Return the chains of some units."""
        return range(part.start * self.unit, min(part.stop * self.unit, self.plan.chains.count))

    def run(self, part: range, extra: Any, threads: int, tick: Tick = lambda fraction: None) -> Found:
        """Run the chains of some units."""
        if not self._begun:
            self._begun.append(begin(self.plan))
        chains = self.chains(part)
        recorder = None if self.blank is None else self.blank.like(len(chains))
        return run_here(self.plan, self._begun[0], chains, threads, tick, recorder)


def _run_apart(plan: Plan, workers: Workers, tick: Tick, recorder: Recorder | None) -> Found:
    """Run a plan in parts, on a pool or here; what a checkpoint has is taken from there, and what is new kept in it."""
    run = _Run(plan, workers, recorder)
    run.look()
    try:
        if workers.pool is not None:
            share_out(workers.pool, run.job, run.ledger, run.receive, run.then(tick), refresh=run.look)
        else:
            run.here(tick)
    finally:
        run.keep()
    return Found(run.log_weights, run.marginal, recorder)


class _Run:
    """What has come back of the parts of a plan."""

    def __init__(self, plan: Plan, workers: Workers, recorder: Recorder | None) -> None:
        self.plan, self.workers, self.recorder = plan, workers, recorder
        self.job = Chains(plan, None if recorder is None else recorder.like(0))
        unit, units = self.job.unit, -(-plan.chains.count // self.job.unit)
        seconds = unit * plan.seconds_per_chain
        most = max(1, _MOST_BYTES // (unit * (16 if recorder is None else 16 + recorder.bytes_per_chain)))
        start = 0 if workers.store is None else secrets.randbelow(units)  # another caller may work on the same file
        if workers.pool is None:
            self.ledger = Ledger(units, seconds / workers.threads, most=most, start=start, length=_KEEP_EVERY)
        else:
            self.ledger = Ledger(units, seconds, most=most, start=start)
        self.log_weights = np.full(plan.chains.populations or plan.chains.count, math.nan)
        self.marginal: Array | None = None
        self.begun, self.before = time.monotonic(), 0  # parts that were there at that time
        self.name = "" if workers.store is None else run_name(plan, recorder)
        self.offset = 0 if plan.chains.populations or plan.chains.start is not None else plan.chains.first
        self.read, self.new = 0, list[Piece]()

    def here(self, tick: Tick) -> None:
        """Run all parts on threads, one after the other."""
        while (part := self.ledger.take(time.monotonic(), 1)) is not None:
            begun, share, before = time.perf_counter(), len(part) / self.ledger.total, self._fraction()
            hear = partial(_from_to, tick, before, before + share)
            found = self.job.run(part, None, self.workers.threads, hear)
            if self.ledger.finish(part, time.perf_counter() - begun):
                self.receive(part, Reply(machine(), "", result=found))
            self.then(tick)(self._fraction())

    def _fraction(self) -> float:
        return self.ledger.done / self.ledger.total

    def receive(self, part: range, reply: Reply) -> None:
        """Put what has come back in its place."""
        found, chains = reply.result, self.job.chains(part)
        self._place(chains, found)
        self.workers.machines.add(reply.machine)
        if self.workers.store is not None:
            data = to_bytes(found.log_weights, found.marginal, found.recorded)
            self.new.append(Piece(chains.start + self.offset, len(chains), reply.machine, data))
        if self.workers.pool is not None:
            done = min(self.ledger.done * self.job.unit, self.plan.chains.count)
            rate = (self.ledger.done - self.before) * self.job.unit * self.plan.steps / (time.monotonic() - self.begun)
            number = self.workers.pool.workers()
            self.workers.say(f"{done} of {self.plan.chains.count} chains, {number} workers, {rate:.3g} chain steps/s")

    def _place(self, chains: range, found: Found) -> None:
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
        """Return `tick`, which also has what is new written."""

        def hear(fraction: float) -> None:
            self.keep()
            tick(fraction)

        return hear

    def keep(self) -> None:
        """Write what is new to the checkpoint."""
        pieces, self.new = self.new, []
        if self.workers.store is not None and pieces:
            self.workers.store.write(self.name, pieces)

    def look(self) -> None:
        """Take what the checkpoint has, and this run has not."""
        if self.workers.store is None:
            return
        plan, unit = self.plan, self.job.unit
        for number, piece in self.workers.store.read(self.name, self.read):
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
                found = Found(*from_bytes(piece.data, size, piece.chains, self.job.blank))
            except ValueError as error:
                raise self.workers.store.damage(error) from None
            if self.ledger.finish(inside):
                self._place(chains, found)
                self.workers.machines.add(piece.machine)
        self.before = self.ledger.done if not self.before else self.before


def _from_to(tick: Tick, low: float, high: float, fraction: float) -> None:
    tick(low + (high - low) * fraction)
