"""Engines: a plan in, the log-weight of every chain out. Nothing else in the package knows which one ran."""

from __future__ import annotations

import math

import numpy as np

from ..models.model import BipartiteMRF
from ..models.units import Array
from ..parallel.threads import Tick, jit_is_off
from ..sampling import loop as annealing
from ..sampling.plan import Plan
from ..sampling.recorder import Watch

ENGINES = ("auto", "numpy", "numba")
_EPS = 2.0**-52
_SINGLE = 3e-6  # relative error of log-weights in single precision; seen: 1.7e-6, where all couplings round alike


def choose(plan: Plan, engine: str) -> str:
    """Return the engine to use: ``auto`` is Numba where it applies."""
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}; it must be one of {', '.join(ENGINES)}")
    hindrance = _hindrance(plan.parts.annealed)
    if engine == "numba" and hindrance is not None:
        raise ValueError(f"engine 'numba' {hindrance}; use 'auto' or 'numpy'")
    return ("numba" if hindrance is None else "numpy") if engine == "auto" else engine


def _hindrance(sampled: BipartiteMRF | None) -> str | None:
    """Return why the fast engine cannot serve a model, if so."""
    if sampled is None:
        return None
    form = sampled.spin_form
    if form is None:
        return "serves spin and binary units only"
    # In spins a penalty between 0/1 units brings fields and a constant as large, which have to cancel. Where
    # the model's own terms are as large, so are the weights, and the reference rounds them as much.
    if not (_EPS * form.size <= 1e-6 or form.size <= 8.0 * sampled.highest):
        return "takes 0/1 units as spins, which loses all digits of couplings as negative as these"
    if jit_is_off():
        return "has nothing to run while NUMBA_DISABLE_JIT is set"
    return None


def is_single(plan: Plan, engine: str) -> bool:
    """Whether the weights come from single-precision fields."""
    if engine == "numpy" or plan.parts.annealed is None:
        return False
    from .cpu import numba_cpu

    return numba_cpu.takes_single(plan)


def rounding(plan: Plan, engine: str, log_weights: Array, log_z: float) -> float:
    """Return what rounding may have done to ln Z: all weights alike, so that their spread does not show it.

    Zero where it is below all that matters; a ValueError where it may have spoiled the answer.
    """
    model, base = plan.parts.annealed, plan.parts.base
    if is_single(plan, engine):
        return _SINGLE * max(1.0, abs(float(log_weights.mean())))
    if model is None or not math.isfinite(model.highest):  # Gaussians
        return 0.0
    form = model.spin_form
    if engine == "numba" and form is not None:
        size = form.size
    else:  # a state that matters has all its terms within about this of their largest values
        size = model.highest + max(0.0, model.highest - log_z) + 750.0 + model.n_variables
    size += abs(plan.parts.log_ratio) + float(np.abs(base.visible).sum() + np.abs(base.hidden).sum())
    error = _EPS * size
    if not error <= max(1e-3, 1e-9 * abs(log_z)):
        raise ValueError(
            f"ln Z is lost in rounding: terms of size {size:.2g} cancel to {log_z:.6g}, "
            f"which leaves an error of up to {error:.2g}"
        )
    return error if error > 1e-9 * max(1.0, abs(log_z)) else 0.0


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
    from .cpu import numba_cpu

    marginal, joint = numba_cpu.anneal(plan, threads, tick, watch)
    shift = plan.parts.log_ratio
    return marginal + shift, None if joint is None else joint + shift
