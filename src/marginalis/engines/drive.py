"""The one driver: chunks of chains on threads, progress, records on the way, a prompt stop."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..checks import Array
from ..parallel.threads import Tick, run_jobs
from ..sampling import loop
from ..sampling.plan import Plan
from ..sampling.recorder import Recorder
from . import Begun


def begin(plan: Plan) -> Begun:
    """Lay a plan out for its engine."""
    if plan.engine == "numpy":
        return Begun(lambda chains: loop.Population(plan, chains), loop.chains_together(plan))
    from . import cpu  # imported here: Numba takes a second to load

    return cpu.begin(plan)


def run(plan: Plan, threads: int, tick: Tick, recorder: Recorder | None = None) -> Array:
    """Return ln W of every chain of the plan (Z_0 left out).

    `recorder` takes down what it wants on the way; it knows nothing of what the plan sums exactly.
    """
    return run_both(plan, threads, tick, recorder)[0]


def run_both(plan: Plan, threads: int, tick: Tick, recorder: Recorder | None = None) -> tuple[Array, Array | None]:
    """Return the log-weights of the plan's method and, where AIS carries them along, those of mAIS on the same path."""
    shift = plan.remainder.log_ratio
    if plan.remainder.model is None:
        return np.full(plan.chains, shift), None
    begun = begin(plan)
    # a recorded run stops often: larger jobs keep the calls long
    share = -(-plan.chains // (4 * threads if recorder is None else threads))
    size = max(16, min(begun.together, -(-share // 16) * 16))
    log_weights = np.empty(plan.chains)
    marginal = np.empty(plan.chains) if begun.carries_marginal else None

    def job(first: int) -> Iterator[int]:
        """Carry some chains to the end; yields the number of chain·steps done at a time."""
        chains = range(first, min(first + size, plan.chains))
        part = slice(chains.start, chains.stop)
        population = begun.population(chains)
        while population.step < plan.steps:
            k = population.step
            stop = min(k + population.stride, plan.steps)
            if recorder is not None:
                stop = min(stop, recorder.next_step(k, plan.steps))
            population.advance(stop)
            if recorder is not None and stop in recorder:
                states = None if recorder.measure is None else population.states()
                recorder.record(stop, part, population.log_weights, states)
            yield (stop - k) * len(chains)
        log_weights[part] = population.log_weights
        if marginal is not None:
            marginal[part] = population.marginal_log_weights

    run_jobs(job, range(0, plan.chains, size), plan.steps * plan.chains, threads, tick)
    return log_weights + shift, None if marginal is None else marginal + shift
