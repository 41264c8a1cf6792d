"""The one driver: chunks of chains on threads or on a pool, progress, records on the way, a prompt stop."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..checks import Array
from ..parallel.ledger import Ledger
from ..parallel.share import share_out
from ..parallel.tasks import Reply
from ..parallel.threads import Tick, run_jobs
from ..sampling import loop
from ..sampling.plan import Plan
from ..sampling.recorder import Recorder
from ..sampling.resample import Populations
from . import Begun
from .workers import Workers

_LANES = 16  # chains that kernels like to have together
_MOST_BYTES = 1 << 25  # that a part of a run sends back


def begin(plan: Plan) -> Begun:
    """Lay a plan out for its engine."""
    if plan.engine == "numpy":
        return Begun(lambda chains: loop.Population(plan, chains), loop.chains_together(plan))
    if plan.engine == "cuda":
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
    shift = plan.remainder.log_ratio
    if plan.remainder.model is None:
        return np.full(plan.populations or plan.chains, shift), None
    if isinstance(workers, int):
        workers = Workers(workers)
    if workers.pool is None:
        found = run_here(plan, begin(plan), range(plan.chains), workers.threads, tick, recorder)
    else:
        found = _run_apart(plan, workers, tick, recorder)
    return found.log_weights + shift, None if found.marginal is None else found.marginal + shift


class Found(NamedTuple):
    """Log-weights of some chains (or populations), and those of mAIS that AIS has carried along."""

    log_weights: Array
    marginal: Array | None
    recorded: Recorder | None = None


def run_here(
    plan: Plan, begun: Begun, chains: range, threads: int, tick: Tick, recorder: Recorder | None = None
) -> Found:
    """Run some chains of a plan (whole populations, if it has any) on threads; `recorder` is for these chains only."""
    threads = 1 if begun.alone else threads
    # a run that is looked at on the way stops often: larger jobs keep the calls long
    share = -(-len(chains) // (4 * threads if recorder is None and not plan.populations else threads))
    share = max(share, min(begun.at_least, -(-len(chains) // threads)))
    whole = plan.population_size if plan.populations else _LANES
    size = max(1, min(begun.together, share) // whole) * whole
    log_weights = np.empty(len(chains) // whole if plan.populations else len(chains))
    marginal = np.empty(len(chains)) if begun.carries_marginal and not plan.populations else None

    def job(first: int) -> Iterator[int]:
        """Carry some chains to the end; yields the number of chain·steps done at a time."""
        own = range(first, min(first + size, chains.stop))
        part = slice(own.start - chains.start, own.stop - chains.start)
        population = begun.population(own)
        populations = Populations(plan, own) if plan.populations else None
        earlier = 0.0 if plan.start_log_weights is None else plan.start_log_weights[own.start : own.stop]
        while population.step < plan.steps:
            k = population.step
            stop = min(k + population.stride, plan.steps)
            if recorder is not None:
                stop = min(stop, recorder.next_step(k, plan.steps))
            if populations is not None:
                stop = min(stop, populations.next_look(k))
            population.advance(stop)
            if recorder is not None and stop in recorder:
                states = None if recorder.measure is None else population.states()
                so_far = population.log_weights + earlier
                recorder.record(stop, part, so_far if populations is None else populations.of_chains(so_far), states)
            if populations is not None and stop == populations.next_look(stop - 1):
                ancestors = populations.choose(stop, population.log_weights + earlier)
                if ancestors is not None:
                    population.choose(ancestors)
            yield (stop - k) * len(own)
        if populations is None:
            log_weights[part] = population.log_weights + earlier
        else:
            of = slice(part.start // whole, part.stop // whole)
            log_weights[of] = populations.of_populations(population.log_weights + earlier)
        if marginal is not None:
            marginal[part] = population.marginal_log_weights + earlier

    run_jobs(job, range(chains.start, chains.stop, size), plan.steps * len(chains), threads, tick)
    return Found(log_weights, marginal, recorder)


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
        return self.plan.population_size if self.plan.populations else _LANES

    def chains(self, part: range) -> range:
        """Return the chains of some units."""
        return range(part.start * self.unit, min(part.stop * self.unit, self.plan.chains))

    def run(self, part: range, extra: Any, threads: int) -> Found:
        """Run the chains of some units."""
        if not self._begun:
            self._begun.append(begin(self.plan))
        chains = self.chains(part)
        recorder = None if self.blank is None else self.blank.like(len(chains))
        return run_here(self.plan, self._begun[0], chains, threads, lambda fraction: None, recorder)


def _run_apart(plan: Plan, workers: Workers, tick: Tick, recorder: Recorder | None) -> Found:
    """Run a plan in parts on a pool."""
    job = Chains(plan, None if recorder is None else recorder.like(0))
    units, begun = -(-plan.chains // job.unit), time.monotonic()
    each = job.unit * (16 if recorder is None else 16 + recorder.bytes_per_chain)
    ledger = Ledger(units, job.unit * plan.seconds_per_chain, most=max(1, _MOST_BYTES // each))
    log_weights = np.full(plan.populations or plan.chains, math.nan)
    marginal: list[Array] = []

    def receive(part: range, reply: Reply) -> None:
        found, chains = reply.result, job.chains(part)
        place = slice(chains.start, chains.stop)
        if found.marginal is not None:
            if not marginal:
                marginal.append(np.full(plan.chains, math.nan))
            marginal[0][place] = found.marginal
        if recorder is not None:
            recorder.put(place, found.recorded)
        log_weights[slice(part.start, part.stop) if plan.populations else place] = found.log_weights
        workers.machines.add(reply.machine)
        done = min(ledger.done * job.unit, plan.chains)
        rate = done * plan.steps / max(time.monotonic() - begun, 1e-9)
        assert workers.pool is not None
        workers.say(f"{done} of {plan.chains} chains, {workers.pool.workers()} workers, {rate:.3g} chain steps/s")

    assert workers.pool is not None
    share_out(workers.pool, job, ledger, receive, tick)
    return Found(log_weights, marginal[0] if marginal else None, recorder)
