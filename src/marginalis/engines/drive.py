"""The one driver: chunks of chains on threads, progress, records on the way, a prompt stop."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..checks import Array
from ..parallel.threads import Tick, run_jobs
from ..sampling import loop
from ..sampling.plan import Plan
from ..sampling.recorder import Recorder
from ..sampling.resample import Populations
from . import Begun


def begin(plan: Plan) -> Begun:
    """Lay a plan out for its engine."""
    if plan.engine == "numpy":
        return Begun(lambda chains: loop.Population(plan, chains), loop.chains_together(plan))
    from . import cpu  # imported here: Numba takes a second to load

    return cpu.begin(plan)


def run(plan: Plan, threads: int, tick: Tick, recorder: Recorder | None = None) -> Array:
    """Return ln W of every chain of the plan, or of every population where it is resampled (Z_0 left out).

    `recorder` takes down what it wants on the way; it knows nothing of what the plan sums exactly.
    """
    return run_both(plan, threads, tick, recorder)[0]


def run_both(plan: Plan, threads: int, tick: Tick, recorder: Recorder | None = None) -> tuple[Array, Array | None]:
    """Return the log-weights of the plan's method and, where AIS carries them along, those of mAIS on the same path."""
    shift = plan.remainder.log_ratio
    if plan.remainder.model is None:
        return np.full(plan.populations or plan.chains, shift), None
    begun = begin(plan)
    # a run that is looked at on the way stops often: larger jobs keep the calls long
    share = -(-plan.chains // (4 * threads if recorder is None and not plan.populations else threads))
    whole = plan.population_size if plan.populations else 16
    size = max(1, min(begun.together, share) // whole) * whole
    log_weights = np.empty(plan.populations or plan.chains)
    marginal = np.empty(plan.chains) if begun.carries_marginal and not plan.populations else None

    def job(first: int) -> Iterator[int]:
        """Carry some chains to the end; yields the number of chain·steps done at a time."""
        chains = range(first, min(first + size, plan.chains))
        part = slice(chains.start, chains.stop)
        population = begun.population(chains)
        populations = Populations(plan, chains) if plan.populations else None
        earlier = 0.0 if plan.start_log_weights is None else plan.start_log_weights[part]
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
            yield (stop - k) * len(chains)
        if populations is None:
            log_weights[part] = population.log_weights + earlier
        else:
            of = slice(first // plan.population_size, chains.stop // plan.population_size)
            log_weights[of] = populations.of_populations(population.log_weights + earlier)
        if marginal is not None:
            marginal[part] = population.marginal_log_weights + earlier

    run_jobs(job, range(0, plan.chains, size), plan.steps * plan.chains, threads, tick)
    return log_weights + shift, None if marginal is None else marginal + shift
