"""Engines: a plan in, the log-weight of every chain out. Nothing else in the package knows which one ran."""

from __future__ import annotations

import numpy as np

from .. import annealing
from ..parallel import Tick
from ..plan import Plan
from ..units import Array
from ..watch import Watch

ENGINES = ("auto", "numpy", "numba")


def choose(plan: Plan, engine: str) -> str:
    """Return the engine to use: ``auto`` is Numba where it applies."""
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}; it must be one of {', '.join(ENGINES)}")
    sampled = plan.parts.annealed
    fast = sampled is None or sampled.spin_form is not None
    if engine == "numba" and not fast:
        raise ValueError("engine 'numba' serves spin and binary units only; use 'auto' or 'numpy'")
    return ("numba" if fast else "numpy") if engine == "auto" else engine


def is_single(plan: Plan, engine: str) -> bool:
    """Whether the weights come from single-precision fields."""
    if engine == "numpy" or plan.parts.annealed is None:
        return False
    from . import numba_cpu

    return numba_cpu.takes_single(plan)


def run(plan: Plan, engine: str, threads: int, tick: Tick, watch: Watch | None = None) -> Array:
    """Return ln W of every chain of the plan (Z_0 left out) from the named engine (see `choose`).

    `watch` notes what it wants on the way; it knows nothing of what the plan sums exactly.
    """
    if plan.parts.annealed is None:
        return np.full(plan.chains, plan.parts.log_ratio)
    if engine == "numpy":
        return annealing.anneal(plan, tick, watch) + plan.parts.log_ratio
    marginal, joint = run_both(plan, threads, tick, watch)
    return marginal if joint is None else joint


def run_both(plan: Plan, threads: int, tick: Tick, watch: Watch | None = None) -> tuple[Array, Array | None]:
    """Return the log-weights of mAIS and, if the plan's method is AIS, of AIS along the same paths."""
    from . import numba_cpu  # imported here: Numba takes a second to load

    marginal, joint = numba_cpu.anneal(plan, threads, tick, watch)
    shift = plan.parts.log_ratio
    return marginal + shift, None if joint is None else joint + shift
