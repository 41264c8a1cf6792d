"""The function `free_energy`: F is exact if that is affordable, and otherwise estimated to a tolerance.

An exact sum is affordable if it is predicted to take less than a second, or no longer than the budget, or no longer
than the estimate. The time of the estimate is found by running it for a tenth of the time of the exact sum. There is no
such trial if solutions are counted: counting often ends long before its limit, and estimates of networks with that many
zeros are at best lower bounds.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from typing import Any, Unpack

from ..checks import positive
from ..display.card import Displayed
from ..display.words import method_name
from ..engines.plan import model_digest
from ..exact import ExactLogZ, Prediction, as_summable, duration, predicted
from ..files.model_files import load
from ..models.factors import FactorModel
from ..models.model import MRF
from ..options import RunOptions, filled_in, takes_options
from ..parallel.progress import tell
from ..parallel.threads import cores
from ..results.estimate import Estimate
from ..results.written import Written, finite
from .estimate import estimate

_AT_ONCE = 1.0  # An exact sum may always take this many seconds.
_LONGEST = 3600.0  # Without a budget an exact sum may take at most this many seconds.
_TRIAL = 0.1  # An estimate is tried first for this fraction of the time of the exact sum.
_LEAST_TRIAL = 0.3  # There is no trial if it would be shorter than this many seconds, or than the prediction.


@dataclass(frozen=True, eq=False, repr=False)
class FreeEnergy(Written, Displayed):
    """Free energy F = −ln Z of a model, exact or estimated.

    Exactly one of `exact` and `estimate` is not None; it is the source of the numbers.
    """

    variables: int  #: Number of variables of the model.
    tolerance: float  #: Largest half-width of the interval that was asked for.
    seconds: float  #: Time of the whole call, compilation included.
    model: str  #: Digest of the model; it is empty for models of factors.
    exact: ExactLogZ | None = None  #: The exact ln Z, or None.
    estimate: Estimate | None = None  #: The estimate, or None.
    hints: tuple[str, ...] = ()  #: Remarks on an exact value; an estimate has its own.

    @property
    def _value(self) -> Any:
        return self.exact if self.estimate is None else self.estimate

    @property
    def is_exact(self) -> bool:
        """Whether F is exact (to 9 digits), not estimated."""
        return self.estimate is None

    @property
    def log_z(self) -> float:
        """ln Z."""
        return float(self._value if self.estimate is None else self.estimate.log_z)

    @property
    def free_energy(self) -> float:
        """F = −ln Z."""
        return -self.log_z

    @property
    def free_energy_per_variable(self) -> float:
        """F/n."""
        return self.free_energy / max(1, self.variables)

    @property
    def stderr(self) -> float:
        """Standard error of F; 0 if F is exact."""
        return 0.0 if self.estimate is None else self.estimate.stderr

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of F; its width is 0 if F is exact."""
        return self.interval_at(0.95)

    @property
    def log_z_interval(self) -> tuple[float, float]:
        """95 % interval of ln Z; its width is 0 if F is exact."""
        low, high = self.interval
        return -high, -low

    def interval_at(self, level: float) -> tuple[float, float]:
        """Return the interval of F at another level, such as 0.99."""
        if self.estimate is not None:
            return self.estimate.interval_at(level)
        return self.free_energy, self.free_energy

    @property
    def lower_bound(self) -> float | None:
        """Lower bound of ln Z with a probability of 95 %, if that is all that is known; otherwise None."""
        return None if self.estimate is None else self.estimate.lower_bound

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt F, as sentences; there are none if F is exact."""
        return () if self.estimate is None else self.estimate.warnings

    @property
    def remarks(self) -> tuple[str, ...]:
        """Further information about the answer, as sentences; no reasons for doubt."""
        return self.hints if self.estimate is None else self.estimate.remarks

    @property
    def method(self) -> str:
        """The exact method or the method of the estimate, such as ``"elimination"`` or ``"mais-v"``."""
        return str(self._value.method)

    @property
    def how(self) -> str:
        """How F was computed, in one sentence."""
        if self.exact is not None:
            return self.exact.how
        e = self.estimate
        assert e is not None
        if e.lower_bound is not None:
            return (
                f"ln Z is at least {e.lower_bound:.6g} with a probability of 95 %, by {method_name(e.method)} with "
                f"{e.chains} chains of {e.steps} steps; there is no upper bound"
            )
        return f"estimated by {method_name(e.method)} with {e.chains} chains of {e.steps} steps; 95 % interval"

    def __float__(self) -> float:
        return self.free_energy

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data; infinite numbers become None."""
        low, high = self.interval
        found = {
            "log_z": self.log_z,
            "free_energy": self.free_energy,
            "free_energy_per_variable": self.free_energy_per_variable,
            "stderr": finite(self.stderr),
            "interval": [finite(low), finite(high)],
            "log_z_interval": [finite(-high), finite(-low)],
            "lower_bound": self.lower_bound,
            "exact": self.is_exact,
            "how": self.how,
            "tolerance": self.tolerance,
            "variables": self.variables,
            "method": self.method,
        }
        details = {} if self.estimate is None else self.estimate.to_dict()
        rest = {"model": self.model, "seconds": self.seconds, "warnings": list(self.warnings)}
        return {**found, **{k: x for k, x in details.items() if k not in found}, **rest, "remarks": [*self.remarks]}

    def __str__(self) -> str:
        if self.estimate is not None:
            return str(self.estimate)
        return "\n".join(
            [
                f"F = {self.free_energy:.10g}   (exact)",
                f"ln Z = {self.log_z:.10g}   F/n = {self.free_energy_per_variable:.10g}   n = {self.variables}",
                f"{self.how}, {self.seconds:.2f} s",
                *(f"note: {remark}" for remark in self.remarks),
            ]
        )

    def _sketch(self) -> str:
        return "" if self.estimate is None else self.estimate._sketch()


@takes_options(leave_out=("chains",))
def free_energy(
    model: Any, tolerance: float = 0.05, budget: float | None = None, **options: Unpack[RunOptions]
) -> FreeEnergy:
    """Return the free energy F = −ln Z of a model: exact if that is affordable, otherwise estimated.

    Parameters
    ----------
    model
        A model (see `rbm`, `load`), the path of a model file, anything that `as_model` accepts, or a `FactorModel`.
    tolerance
        Largest half-width of the 95 % interval of F, if F is estimated.
    budget
        Time limit in seconds. An exact sum is done if it is predicted to fit. An estimate ends at the limit, and has a
        warning if it misses the tolerance. Compilation, which happens once for each kind of model, is not counted.

    Returns
    -------
    FreeEnergy
        It has `free_energy`, `log_z`, `stderr`, `interval` and `warnings`; `is_exact` and `how` describe the method.

    Notes
    -----
    The sum is exact if it is predicted to take less than a second, no longer than the budget, or no longer than the
    estimate. The run options apply to an estimate. With the default seed repeated calls return the same number; with
    ``seed=None`` they show its scatter.
    """
    begun = time.perf_counter()
    chosen = filled_in(options, leave_out=("chains",))
    cores(chosen["threads"])  # A bad number of threads is an error at once.
    goal = positive(tolerance, "tolerance")
    seconds = math.inf if budget is None else positive(budget, "budget")
    given = load(os.fspath(model)) if isinstance(model, str | os.PathLike) else model
    found = as_summable(given)
    given_options: Any = {**options, "seed": chosen["seed"]}
    value = _found(found, goal, None if budget is None else seconds, chosen, given_options)
    n = given.n_variables if isinstance(given, FactorModel) else found.n_variables
    digest = model_digest(found) if isinstance(found, MRF) else ""
    exact, estimated = (value, None) if isinstance(value, ExactLogZ) else (None, value)
    hints = found.remarks if exact is not None and isinstance(found, MRF) else ()
    return FreeEnergy(n, goal, time.perf_counter() - begun, digest, exact, estimated, hints)


def _found(
    model: MRF | FactorModel, goal: float, budget: float | None, chosen: RunOptions, options: Any
) -> ExactLogZ | Estimate:
    """Return the exact ln Z or an estimate of it."""
    limit = _LONGEST if budget is None else max(budget, _AT_ONCE)
    begun = time.thread_time()
    try:
        prediction = predicted(model, threads=chosen["threads"], max_seconds=limit)
    except ValueError as error:  # The model is too large, or no exact method applies.
        tell("no exact sum: %s", error)
        try:
            return _estimated(model, goal, budget, options)
        except ValueError as reason:
            if not isinstance(model, FactorModel):
                raise
            raise type(error)(f"{error}; and there is no estimate: {reason}") from None
    # A trial of a network with zeros begins with a reduction, which the prediction has timed.
    least = max(_LEAST_TRIAL, time.thread_time() - begun)
    if budget is None and prediction.is_predictable and prediction.seconds * _TRIAL > least:
        try:
            tried = _estimated(model, goal, prediction.seconds * _TRIAL, options)
        except ValueError as error:  # With zeros there may be no chain that has a weight.
            tell("no estimate: %s", error)
            return _summed(prediction, chosen)
        if not tried.warnings and _half_width(tried) <= goal:
            return tried
        if not tried.weights.warnings and tried.seconds * (_half_width(tried) / goal) ** 2 < prediction.seconds:
            return _estimated(model, goal, None, options)
    try:
        return _summed(prediction, chosen)
    except (ValueError, MemoryError) as error:  # The sum may have lost its accuracy by rounding.
        tell("no exact sum: %s", error)
        try:
            return _estimated(model, goal, budget, options)
        except ValueError as reason:
            if not isinstance(model, FactorModel):
                raise
            raise type(error)(f"{error}; and there is no estimate: {reason}") from None


def _summed(prediction: Prediction, chosen: RunOptions) -> ExactLogZ:
    if prediction.seconds > _AT_ONCE:
        tell("summing exactly, by %s: %s", prediction.how, duration(prediction.seconds))
    return prediction.run(chosen["progress"])


def _estimated(model: MRF | FactorModel, goal: float, budget: float | None, options: Any) -> Estimate:
    tell("estimating to ± %g%s", goal, "" if budget is None else f" in {budget:.3g} s")
    return estimate(model, tolerance=goal, budget=budget, **options)


def _half_width(found: Estimate) -> float:
    low, high = found.interval
    return (high - low) / 2.0
