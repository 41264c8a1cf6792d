"""The driver of all engines: runs chunks of chains on threads, with progress, intermediate results and interruption."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..checks import Array
from ..models.interacting import InteractingMRF
from ..parallel.threads import Tick, run_jobs
from . import PreparedPlan
from .plan import Plan
from .recorder import Recorder
from .reference import loop
from .resample import Populations

LANES = 16  # Unit of jobs in chains; the kernels of the CPU advance as many in one vector.
_NO_THREADS = 0.02  # Runs shorter than this many seconds use one thread, because starting more takes longer.


def begin(plan: Plan) -> PreparedPlan:
    """Prepare a plan for its engine."""
    if plan.placement.engine == "numpy":
        return PreparedPlan(lambda chains: loop.Population(plan, chains), loop.chains_together(plan))
    if plan.placement.engine == "cuda":
        from . import cuda  # CuPy and Numba are imported only when needed, because each takes a second to load.

        return cuda.begin(plan)
    from . import cpu

    return cpu.begin(plan)


class RunResult(NamedTuple):
    """Log-weights of some chains or populations, and those of mAIS if AIS has computed them as well."""

    log_weights: Array
    marginal: Array | None
    recorded: Recorder | None = None


def advance(
    plan: Plan, prepared: PreparedPlan, chains: range, threads: int, tick: Tick, recorder: Recorder | None = None
) -> RunResult:
    """Run some chains of a plan (whole populations, if it has any) on threads; `recorder` is for these chains only."""
    threads = prepared.at_a_time or (1 if len(chains) * plan.seconds_per_chain < _NO_THREADS else threads)
    whole, lead = plan.chains.population_size if plan.chains.populations else LANES, 0
    if prepared.aligned and not plan.chains.populations:
        whole, lead = prepared.aligned, (plan.chains.first + chains.start) % prepared.aligned
    # Recording and resampling interrupt the kernel calls, so jobs are larger to keep the calls long.
    least = prepared.at_least if recorder is None and not plan.chains.populations else len(chains)
    zeros = plan.path.end if isinstance(plan.path.end, InteractingMRF) and plan.path.end.has_zeros else None
    log_weights = np.empty(len(chains) // whole if plan.chains.populations else len(chains))
    marginal = np.empty(len(chains)) if prepared.carries_marginal and not plan.chains.populations else None

    def job(own: range) -> Iterator[int]:
        """Run some chains to the end, yielding the number of chain·steps done since the last yield."""
        part = slice(own.start - chains.start, own.stop - chains.start)
        population = prepared.population(own)
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
            if stop == plan.steps and zeros is not None:
                earlier = earlier + zeros.log_possible(population.states())
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

    parts = _parts(chains, whole, threads, least, prepared.together, lead)
    run_jobs(job, parts, plan.steps * len(chains), threads, tick)
    return RunResult(log_weights, marginal, recorder)


def _parts(chains: range, whole: int, threads: int, least: int, most: int, lead: int = 0) -> Iterator[range]:
    """Cut a range into parts whose sizes are multiples of `whole` and decrease, so that all threads end together.

    The first part is shorter by `lead`.
    """
    if threads > 4:  # Threads differ in speed, so the last parts are smaller.
        least = max(least // 2, 4 * whole)
    least = min(least, -(-len(chains) // threads))
    while chains:
        share = max(least, len(chains) // (2 * threads) if threads > 1 else len(chains))
        size = max(1, min(-(-share // whole), most // whole)) * whole
        yield chains[: size - lead]
        chains, lead = chains[size - lead :], 0
