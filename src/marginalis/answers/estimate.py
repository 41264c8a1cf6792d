"""From log-weights to an answer with error bars, and the one call that does it all."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import engines
from ..models.model import BipartiteMRF
from ..models.units import Array
from ..parallel.progress import ticker
from ..parallel.threads import Tick, cores
from ..sampling.base import Base, held_variables
from ..sampling.plan import Plan
from ..sampling.recorder import Watch
from . import confidence
from .adaptive import ready_plan
from .curve import Curve


@dataclass(frozen=True, eq=False)
class Estimate:
    """Free energy F = −ln Z from the log-weights of independent chains (eqs. F_AIS, F_mAIS).

    Z is estimated without bias; F is not: E[F̂] ≥ F (eq. F_AIS_bound).
    """

    log_weights: Array  # ln W (or ln Λ) of each chain; Z_0 left out
    log_z0: float
    variables: int
    method: str
    steps: int
    schedule: str
    base: str
    transition: str
    engine: str
    seconds: float
    runs: tuple[tuple[int, int, int], ...]  # (seed, first chain, number of chains)
    fingerprint: str
    curve: Curve | None = None  # ln Z(β) along the way, if it was recorded
    notes: tuple[str, ...] = ()  # what else there is to warn of
    rounding: float = 0.0  # what it may have done to all weights alike

    @property
    def chains(self) -> int:
        """Number of chains, N."""
        return len(self.log_weights)

    @property
    def seed(self) -> int:
        """Seed (of the first run, when several were joined)."""
        return self.runs[0][0]

    @cached_property
    def log_z(self) -> float:
        """ln Ẑ = ln Z_0 + ln mean W (eqs. Z_AIS, Z_mAIS)."""
        return self.log_z0 + confidence.log_mean_exp(self.log_weights)

    @property
    def free_energy(self) -> float:
        """F̂ = −ln Ẑ."""
        return -self.log_z

    @property
    def free_energy_per_variable(self) -> float:
        """f̂ = F̂/n."""
        return self.free_energy / self.variables

    @cached_property
    def stderr(self) -> float:
        """Standard error of F̂ by the delta method: that of the mean weight over the mean weight."""
        return confidence.relative_error(self.log_weights)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % interval of F, which allows for skewed weights (see `confidence.interval`)."""
        low, high = confidence.interval(self.log_weights)
        reach = self.rounding  # nothing is surer than its last digits
        return (
            min(-self.log_z0 - high, self.free_energy - reach),
            max(-self.log_z0 - low, self.free_energy + reach),
        )

    @cached_property
    def ess(self) -> float:
        """Effective number of chains, (ΣW)²/ΣW²."""
        return confidence.effective_size(self.log_weights)

    @cached_property
    def tail_index(self) -> float:
        """Shape k̂ of a generalised Pareto fit to the largest weights; NaN if they are too few or too equal."""
        return confidence.tail_index(self.log_weights)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful about this estimate, in words."""
        found = confidence.doubts(self.log_weights)
        if self.steps == 1:
            found += ("steps is 1: this is plain importance sampling from the base, without annealing",)
        return found + doubts_about_digits(self.log_weights) + self.notes

    @property
    def plan_in_words(self) -> str:
        """Transition, steps and base, as far as they are not the paper's."""
        steps = f"{self.steps} steps" if self.schedule == "linear" else f"{self.steps} {self.schedule} steps"
        return f"{self.transition}, {steps}" + ("" if self.base == "uniform" else f", base {self.base}")

    def join(self, other: Estimate) -> Estimate:
        """Return the estimate from the chains of both, which must share model and plan but no chain."""
        if not isinstance(other, Estimate):
            raise ValueError(f"cannot join an Estimate with a {type(other).__name__}")
        if self.fingerprint != other.fingerprint:
            hint = ": adaptive schedules differ with the seed; give both the same one, or take more chains of one seed"
            same = "adaptive" in (self.schedule, other.schedule) and self.seed != other.seed
            raise ValueError(f"cannot join estimates of different models or plans{hint if same else ''}")
        for seed, first, count in self.runs:
            for seed2, first2, count2 in other.runs:
                if seed == seed2 and first < first2 + count2 and first2 < first + count:
                    raise ValueError(
                        f"cannot join: both hold chains {max(first, first2)} to "
                        f"{min(first + count, first2 + count2) - 1} of seed {seed}"
                    )
        return replace(
            self,
            log_weights=np.concatenate([self.log_weights, other.log_weights]),
            seconds=self.seconds + other.seconds,
            runs=self.runs + other.runs,
            engine=self.engine if self.engine == other.engine else f"{self.engine}+{other.engine}",
            curve=self.curve + other.curve if self.curve is not None and other.curve is not None else None,
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
            rounding=max(self.rounding, other.rounding),
        )

    __add__ = join

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data; what is infinite (the error of one chain) is None."""
        low, high = self.interval
        return {
            "log_z": self.log_z,
            "free_energy": self.free_energy,
            "free_energy_per_variable": self.free_energy_per_variable,
            "stderr": finite(self.stderr),
            "interval": [finite(low), finite(high)],
            "ess": self.ess,
            "tail_index": finite(self.tail_index),
            "method": self.method,
            "steps": self.steps,
            "schedule": self.schedule,
            "base": self.base,
            "chains": self.chains,
            "transition": self.transition,
            "seed": self.seed,
            "engine": self.engine,
            "seconds": self.seconds,
            "warnings": list(self.warnings),
        }

    def to_json(self) -> str:
        """Return the answer as one JSON object."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def __str__(self) -> str:
        low, high = self.interval
        digits = decimals(self.stderr)
        lines = [
            f"F = {self.free_energy:.{digits}f} ± {self.stderr:.{digits}f}"
            f"   (95 % interval {low:.{digits}f} to {high:.{digits}f})",
            f"ln Z = {self.log_z:.{digits}f}   F/n = {self.free_energy_per_variable:.{digits + 2}f}"
            f"   n = {self.variables}",
            f"{self.method}, {self.plan_in_words}, {self.chains} chains "
            f"(ESS {self.ess:.1f}), seed {self.seed}, {self.engine}, {self.seconds:.2f} s",
        ]
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])


def finite(x: float) -> float | None:
    """Return x, or None for what JSON cannot say."""
    return x if math.isfinite(x) else None


def decimals(error: float) -> int:
    """Decimals that show two significant digits of the error."""
    if not 0.0 < error < math.inf:
        return 6
    return min(12, max(0, 1 - math.floor(math.log10(error))))


def estimate(
    model: BipartiteMRF,
    *,
    method: str = "mais",
    steps: int | None = None,
    chains: int | None = None,
    transition: str = "gibbs",
    sweeps: int = 1,
    schedule: str | ArrayLike | None = None,
    base: str | Base | Sequence[ArrayLike] = "uniform",
    seed: int = 0,
    first_chain: int = 0,
    precision: str = "single",
    tolerance: float | None = None,
    budget: float | None = None,
    record: bool = False,
    engine: str = "auto",
    threads: int | None = None,
    progress: bool | Tick = False,
) -> Estimate:
    """Estimate the free energy F = −ln Z of a model.

    Parameters
    ----------
    model
        See `rbm`, `load`; also anything that `as_model` takes.
    method
        ``"mais"`` sums the larger side out exactly; ``"mais-v"`` samples v and sums h out, ``"mais-h"`` the
        reverse; ``"ais"`` samples both sides (the paper's T_k, eq. T_k_bipartite).
    steps, chains
        K annealing steps and N independent chains; 1000 each by default.
    transition, sweeps
        ``"gibbs"``: blocked Gibbs; ``"metropolis"``: with sweeps of single flips of the summed-out side in
        between (Roussel et al. 2021; spins and binaries only).
    schedule
        ``"linear"``, the paper's; ``"adaptive"``, fitted by a short pilot run (see `adaptive`); or any increasing
        list of β from 0 to 1 (which then decides the number of steps). Adaptive by default, but linear if `steps`
        is given.
    base
        P_0: ``"uniform"``, ``"biases"`` (independent variables with the model's own fields over T), ``"mean-field"``
        (with their self-consistent fields), what `data_base` makes of data, or a pair (visible fields, hidden
        fields) of P_0 ∝ exp(b0·v + c0·h).
    seed, first_chain
        Uniforms are addressed by (seed, chain, step, side, unit): chains 0–499 and 500–999 run apart and
        joined are chains 0–999, to the last bit.
    precision
        ``"single"``: float32 states and fields, float64 weights; the Numba engine takes double by itself when
        float32 fields would cost the weights more than about 0.001, or when the couplings are so weak that
        rounding would show beside the spread of the weights. ``"double"``: all float64. The NumPy reference
        always computes in float64.
    tolerance, budget
        Half the width that the 95 % interval of F should have: pilots then choose the schedule (unless it is given),
        K (unless `steps` are) and N (see `tolerance`), within `budget` seconds if that is given.
    record
        Keep the log-weights after every step, for ln Z(β) along the way (`Estimate.curve`). Parts of the model that
        would be summed exactly beforehand are then annealed, too.
    engine
        ``"auto"``, ``"numba"`` or ``"numpy"`` (the readable reference).
    threads
        Number of threads; all cores by default. Does not change the result.
    progress
        True for a bar on stderr (on a terminal, after a second), or a function that hears the fraction done.
    """
    options: dict[str, Any] = dict(
        method=method,
        steps=steps,
        transition=transition,
        sweeps=sweeps,
        schedule=schedule,
        base=base,
        seed=seed,
        first_chain=first_chain,
        precision=precision,
        whole_model=record,
    )
    workers = cores(threads)
    begin = time.perf_counter()
    if tolerance is not None:
        from .tolerance import to_tolerance  # which needs this module

        if chains is not None or record:
            raise ValueError("tolerance chooses the chains itself: leave out chains and record (a plot of the curve)")
        return to_tolerance(model, tolerance, budget, engine, workers, progress, **options)
    if budget is not None:
        raise ValueError("budget goes with tolerance")
    with ticker(progress, method) as tick:
        plan = ready_plan(model, workers, chains=chains, **options)
        watch = Watch(recorded_steps(plan), plan.chains) if record else None
        result = run_plan(plan, engine, workers, tick, watch)
    curve = None
    if watch is not None:
        betas = plan.betas[watch.steps]
        curve = Curve(betas, watch.log_weights + betas[:, None] * plan.parts.log_ratio, result.log_z0)
    return replace(result, curve=curve, seconds=time.perf_counter() - begin)


_RECORD_BYTES = 1 << 28
_COARSE = 1e-3  # rounding of log-weights that is worth a warning


def recorded_steps(plan: Plan) -> NDArray[np.int64]:
    """Return all steps, or as many evenly spread ones as a quarter of a GiB of log-weights has room for."""
    room = max(2, _RECORD_BYTES // (8 * plan.chains))
    return np.unique(np.linspace(1, plan.steps, min(room, plan.steps)).round().astype(np.int64))


def run_plan(plan: Plan, engine: str, threads: int, tick: Tick, watch: Watch | None = None) -> Estimate:
    """Run a plan and weigh up what comes out."""
    engine = engines.choose(plan, engine)
    start = time.perf_counter()
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is no warning but an error, below
        log_weights = engines.run(plan, engine, threads, tick, watch)
    if not np.isfinite(log_weights).all():
        raise ValueError("the log-weights are not finite: the parameters are too large for floating point")
    log_weights.flags.writeable = False
    log_z0 = plan.base.log_z(plan.model)
    rounding = engines.rounding(plan, engine, log_weights, log_z0 + confidence.log_mean_exp(log_weights))
    return Estimate(
        log_weights=log_weights,
        log_z0=log_z0,
        variables=plan.model.n_variables,
        method=plan.method,
        steps=plan.steps,
        schedule=plan.schedule,
        base=plan.base_name,
        transition=plan.transition,
        engine=engine,
        seconds=time.perf_counter() - start,
        runs=((plan.seed, plan.first_chain, plan.chains),),
        fingerprint=plan.fingerprint(),
        notes=_doubts_about_base(plan),
        rounding=rounding,
    )


def doubts_about_digits(log_weights: Array) -> tuple[str, ...]:
    """What is wrong with weights whose logs are so large that rounding hides their spread."""
    top = float(log_weights.max())
    if math.ulp(top) < _COARSE:
        return ()
    return (f"the log-weights, of size {abs(top):.2g}, are rounded to {math.ulp(top):.1g}: the error is not known",)


def _doubts_about_base(plan: Plan) -> tuple[str, ...]:
    """What can be seen before the run, and not in its weights."""
    if plan.parts.annealed is None or not (held := held_variables(plan.parts.annealed, plan.parts.base)):
        return ()
    return (
        f"the base holds {held} of {plan.parts.annealed.n_variables} variables in one state, in which the couplings "
        "need not leave them: what lies elsewhere is missed without a sign in the weights; start from base='uniform'",
    )
