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
from numpy.typing import ArrayLike

from . import engines
from .bases import Base
from .models import BipartiteMRF
from .parallel import Tick, cores
from .plan import make_plan
from .progress import ticker
from .schedules import DEFAULT_STEPS
from .units import Array

_Z95 = 1.959963984540054  # two-sided 95 % point of the normal distribution
LOW_ESS = 0.05
LARGE_SHARE = 0.5


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
    transition: str
    engine: str
    seconds: float
    runs: tuple[tuple[int, int, int], ...]  # (seed, first chain, number of chains)
    fingerprint: str

    @property
    def chains(self) -> int:
        """Number of chains, N."""
        return len(self.log_weights)

    @property
    def seed(self) -> int:
        """Seed (of the first run, when several were joined)."""
        return self.runs[0][0]

    @cached_property
    def _relative(self) -> Array:
        """Weights divided by the largest."""
        return np.exp(self.log_weights - self.log_weights.max())

    @cached_property
    def log_z(self) -> float:
        """ln Ẑ = ln Z_0 + ln mean W (eqs. Z_AIS, Z_mAIS)."""
        return self.log_z0 + float(self.log_weights.max() + np.log(self._relative.mean()))

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
        if self.chains == 1:
            return math.inf
        w = self._relative
        return float(w.std(ddof=1) / w.mean() / math.sqrt(self.chains))

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of F, F̂ ± 1.96 standard errors."""
        return self.free_energy - _Z95 * self.stderr, self.free_energy + _Z95 * self.stderr

    @cached_property
    def ess(self) -> float:
        """Effective number of chains, (ΣW)²/ΣW²."""
        w = self._relative
        return float(w.sum() ** 2 / (w * w).sum())

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful about this estimate, in words."""
        found = []
        share = float(1.0 / self._relative.sum())
        if self.chains == 1:
            found.append("one chain gives no error bar; raise chains")
        else:
            if self.ess < LOW_ESS * self.chains:
                found.append(
                    f"the effective sample size is {self.ess:.1f} of {self.chains} chains "
                    f"(below {LOW_ESS:.0%}): the error bar is too small; raise steps"
                )
            if share > LARGE_SHARE:
                found.append(f"one chain carries {share:.0%} of the weight: do not trust the error bar; raise steps")
        if self.steps == 1:
            found.append("steps is 1: this is plain importance sampling from the base, without annealing")
        return tuple(found)

    def join(self, other: Estimate) -> Estimate:
        """Return the estimate from the chains of both, which must share model and plan but no chain."""
        if not isinstance(other, Estimate):
            raise ValueError(f"cannot join an Estimate with a {type(other).__name__}")
        if self.fingerprint != other.fingerprint:
            raise ValueError("cannot join estimates of different models or plans")
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
        )

    __add__ = join

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data; what is infinite (the error of one chain) is None."""
        low, high = self.interval
        return {
            "log_z": self.log_z,
            "free_energy": self.free_energy,
            "free_energy_per_variable": self.free_energy_per_variable,
            "stderr": _finite(self.stderr),
            "interval": [_finite(low), _finite(high)],
            "ess": self.ess,
            "method": self.method,
            "steps": self.steps,
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
        digits = _digits(self.stderr)
        lines = [
            f"F = {self.free_energy:.{digits}f} ± {self.stderr:.{digits}f}"
            f"   (95 % interval {low:.{digits}f} to {high:.{digits}f})",
            f"ln Z = {self.log_z:.{digits}f}   F/n = {self.free_energy_per_variable:.{digits + 2}f}"
            f"   n = {self.variables}",
            f"{self.method}, {self.transition}, {self.steps} steps, {self.chains} chains "
            f"(ESS {self.ess:.1f}), seed {self.seed}, {self.engine}, {self.seconds:.2f} s",
        ]
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _digits(error: float) -> int:
    """Decimals that show two significant digits of the error."""
    if not 0.0 < error < math.inf:
        return 6
    return min(12, max(0, 1 - math.floor(math.log10(error))))


def estimate(
    model: BipartiteMRF,
    *,
    method: str = "mais",
    steps: int = DEFAULT_STEPS,
    chains: int = 1000,
    transition: str = "gibbs",
    sweeps: int = 1,
    schedule: str | ArrayLike = "linear",
    base: str | Base | Sequence[ArrayLike] = "uniform",
    seed: int = 0,
    first_chain: int = 0,
    precision: str = "single",
    engine: str = "auto",
    threads: int | None = None,
    progress: bool | Tick = False,
) -> Estimate:
    """Estimate the free energy F = −ln Z of a model.

    Parameters
    ----------
    model
        See `rbm`, `load`.
    method
        ``"mais"`` sums the larger side out exactly; ``"mais-v"`` samples v and sums h out, ``"mais-h"`` the
        reverse; ``"ais"`` samples both sides (the paper's T_k, eq. T_k_bipartite).
    steps, chains
        K annealing steps and N independent chains.
    transition, sweeps
        ``"gibbs"``: blocked Gibbs; ``"metropolis"``: with sweeps of single flips of the summed-out side in
        between (Roussel et al. 2021; spins and binaries only).
    schedule
        ``"linear"``, or any increasing list of β from 0 to 1 (which then decides the number of steps).
    base
        P_0: ``"uniform"``, ``"biases"`` (independent variables with the model's own fields over T), or a pair
        (visible fields, hidden fields) of P_0 ∝ exp(b0·v + c0·h).
    seed, first_chain
        Uniforms are addressed by (seed, chain, step, side, unit): chains 0–499 and 500–999 run apart and
        joined are chains 0–999, to the last bit.
    precision
        ``"single"``: float32 states and fields, float64 weights; the Numba engine takes double by itself when
        float32 fields would cost the weights more than about 0.001, or when the couplings are so weak that
        rounding would show beside the spread of the weights. ``"double"``: all float64. The NumPy reference
        always computes in float64.
    engine
        ``"auto"``, ``"numba"`` or ``"numpy"`` (the readable reference).
    threads
        Number of threads; all cores by default. Does not change the result.
    progress
        True for a bar on stderr (on a terminal, after a second), or a function that hears the fraction done.
    """
    plan = make_plan(
        model,
        method=method,
        steps=steps,
        chains=chains,
        transition=transition,
        sweeps=sweeps,
        schedule=schedule,
        base=base,
        seed=seed,
        first_chain=first_chain,
        precision=precision,
    )
    engine = engines.choose(plan, engine)
    threads = cores(threads)
    start = time.perf_counter()
    # an overflow is no warning but an error, below
    with ticker(progress, plan.method) as tick, np.errstate(over="ignore", invalid="ignore"):
        log_weights = engines.run(plan, engine, threads, tick)
    if not np.isfinite(log_weights).all():
        raise ValueError("the log-weights are not finite: the parameters are too large for floating point")
    log_weights.flags.writeable = False
    return Estimate(
        log_weights=log_weights,
        log_z0=plan.base.log_z(model),
        variables=model.n_variables,
        method=plan.method,
        steps=plan.steps,
        transition=plan.transition,
        engine=engine,
        seconds=time.perf_counter() - start,
        runs=((plan.seed, plan.first_chain, plan.chains),),
        fingerprint=plan.fingerprint(),
    )
