"""Log-likelihood of data under a model: ln p(v) = ln Σ_h exp(−E(v, h)) − ln Z, with the uncertainty of ln Z.

The sum over the hidden side is exact: it is the log-normaliser of independent variables with fields c + vᵀW, the same
sum that mAIS-V computes at every step. Only ln Z may need an estimate.
"""

from __future__ import annotations

import inspect
import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np

from ..checks import dense, real_number
from ..display import sketch
from ..display.card import Displayed
from ..engines.plan import model_digest
from ..exact import ExactLogZ, exact_log_z
from ..models.data import split_rows, visible_table
from ..models.layered import as_model
from ..models.model import MRF
from ..models.units import Array
from ..options import check_names, tells
from ..results.estimate import Estimate
from ..results.written import Written, finite
from .along import Along
from .bounds import Bounds
from .estimate import estimate, estimate_with_data
from .likelihoods import LogLikelihoods, OfSamples

_CHEAP = 1.0  # ln Z is computed exactly if that takes at most this many seconds.
_CELLS = 1 << 22  # Numbers in a chunk of rows and its fields; this limits the memory and does not change results.
_HINTS = 1024  # Rows that the estimate uses as hints where the modes are.
_ROUNDING = 1e-9  # Rows whose terms differ by a smaller fraction may be equal.


@dataclass(frozen=True, eq=False, repr=False)
class LogLikelihood(OfSamples, Written, Displayed):
    """ln p(v) of every row of a data set, in nats.

    Two independent errors are reported separately. `interval` is the uncertainty of the mean over these rows from
    ln Z alone. `sampling_error` is the standard error of the mean over data sets of the same size and origin, for known
    ln Z. An estimated ln Z is too low on average (E[ln Ẑ] ≤ ln Z), so likelihoods are too high on average.
    """

    unnormalised: Array  #: ln Σ_h exp(−E(v, h)) of each row.
    log_z: float  #: ln Z.
    log_z_interval: tuple[float, float]  #: 95 % interval of ln Z.
    log_z_source: str  #: "exact, by …", "given", or the method with its steps, chains and seed.
    seconds: float  #: Time of the whole call.
    warnings: tuple[str, ...]  #: Reasons to doubt ln Z, as sentences.

    @property
    def samples(self) -> int:
        """Number of rows."""
        return len(self.unnormalised)

    @cached_property
    def per_sample(self) -> Array:
        """ln p(v) of each row."""
        return self.unnormalised - self.log_z

    @property
    def mean(self) -> float:
        """Mean of ln p(v) over the rows."""
        return float(self.unnormalised.mean()) - self.log_z

    def __float__(self) -> float:
        return self.mean

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean from the uncertainty of ln Z alone; its width is 0 if ln Z is exact."""
        low, high = self.log_z_interval
        term = float(self.unnormalised.mean())
        return term - high, term - low

    @property
    def sampling_error(self) -> float:
        """Standard error of the mean from the choice of rows, with ln Z taken as known."""
        if self.samples == 1:
            return math.inf
        return float(self.unnormalised.std(ddof=1)) / math.sqrt(self.samples)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer without `per_sample` as plain data; infinite numbers become None."""
        return {
            "mean": self.mean,
            "interval": [finite(x) for x in self.interval],
            "sampling_error": finite(self.sampling_error),
            "samples": self.samples,
            "log_z": self.log_z,
            "log_z_interval": [finite(x) for x in self.log_z_interval],
            "log_z_source": self.log_z_source,
            "seconds": self.seconds,
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        low, high = self.interval
        doubt = "ln Z taken as exact" if low == high else f"95 % interval from ln Z alone {low:.4f} to {high:.4f}"
        lines = [
            f"mean ln p = {self.mean:.4f}   ({doubt})",
            f"{self.samples} sample{'s' * (self.samples > 1)}, sampling error of the mean {self.sampling_error:.4f}",
            f"ln Z = {self.log_z:.4f}   ({self.log_z_source}), {self.seconds:.2f} s",
        ]
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])

    def _sketch(self) -> str:
        return sketch.histogram(self.per_sample, at=[self.mean], about="ln p of the samples, and their mean")


@overload
def log_likelihood(rbm: Along, data: Any) -> LogLikelihoods: ...
@overload
def log_likelihood(rbm: Any, data: Any, log_z: Any = None, **estimate_options: Any) -> LogLikelihood: ...
@tells
def log_likelihood(rbm: Any, data: Any, log_z: Any = None, **estimate_options: Any) -> LogLikelihood | LogLikelihoods:
    """Return ln p(v) = ln Σ_h exp(−E(v, h)) − ln Z for every row v of `data`.

    Parameters
    ----------
    rbm
        A model with any kinds of unit, a fitted scikit-learn ``BernoulliRBM``, or anything else that `as_model`
        accepts. For the result of `along` ln p under every model of its sequence is returned.
    data
        A dense or ``scipy.sparse`` array with one sample per row and one column per visible feature; a vector is one
        sample. Values are those of the units: −1 and +1, 0 and 1, one-hot, or any real number. Rows of categorical
        variables may instead have one column per variable with the number of its state from 0.
    log_z
        An `Estimate`, whose interval is used, or a number, which is taken as exact. By default ln Z is computed exactly
        if that takes at most about a second, and estimated otherwise.
    estimate_options
        Options of `estimate`, which apply if ln Z is estimated.
    """
    start = time.perf_counter()
    if isinstance(rbm, Along):
        if log_z is not None or estimate_options:
            raise ValueError("rbm is a result of along, which contains ln Z: leave out log_z and all options")
        return _along(rbm, data)
    model = as_model(rbm, "rbm")
    # Names of options are checked even if nothing is estimated.
    check_names(estimate_options, list(inspect.signature(estimate).parameters)[1:])
    terms = log_terms(model, data)  # Bad data fail here, before ln Z, which may take long.
    value, (low, high), source, warnings = _log_z(model, data, log_z, estimate_options)
    warnings += _too_low(model, terms, high)
    return LogLikelihood(terms, value, (low, high), source, time.perf_counter() - start, warnings)


def _along(run: Along, data: Any) -> LogLikelihoods:
    terms = np.array([log_terms(model, data) for model in run.models])
    warnings = list(run.warnings)
    for name, model, own, high in zip(run.names, run.models, terms, run.intervals[:, 1], strict=True):
        warnings += [f"model {name}: {warning}" for warning in _too_low(model, own, float(high))]
    return LogLikelihoods(terms, run, tuple(warnings))


def _too_low(model: MRF, terms: Array, high: float) -> tuple[str, ...]:
    """Return a warning if the probabilities of the rows exclude any ln Z up to `high`."""
    if not model.visible_units.is_discrete:
        return ()
    least = _least_log_z(terms)
    if least <= high + _ROUNDING * max(1.0, abs(high)):
        return ()
    return (
        f"the probabilities of these rows alone add up to more than 1: ln Z must be at least {least:.4f}, so the "
        "value used is too low and the likelihoods are too high",
    )


def _log_z(
    model: MRF, data: Any, given: Any, options: dict[str, Any]
) -> tuple[float, tuple[float, float], str, tuple[str, ...]]:
    """Return ln Z, its interval, its source, and its warnings."""
    if given is not None and options:
        raise ValueError(f"log_z is given: leave out {', '.join(options)}, because nothing is estimated")
    if given is None:
        try:
            given = exact_log_z(
                model,
                threads=options.get("threads"),
                progress=options.get("progress", False),
                max_seconds=_CHEAP,
            )
        except ValueError:  # The model is too large, or no exact method is accurate enough.
            rest: Any = {x: value for x, value in options.items() if x not in ("tolerance", "budget", "record")}
            goal, budget = options.get("tolerance"), options.get("budget")
            given = estimate_with_data(_some_rows(model, data), model, goal, budget, False, rest)
    if isinstance(given, LogLikelihood):  # The interval of a LogLikelihood is not one of F.
        raise ValueError("log_z is a LogLikelihood; it must be the estimate of ln Z, or a number")
    if not (hasattr(given, "log_z") and hasattr(given, "interval")):
        value = real_number(given, "log_z")
        source = f"exact, by {given.method}" if isinstance(given, ExactLogZ) else "given"
        return value, (value, value), source, ()
    low, high = given.interval
    source = "given"
    run = given.forward if isinstance(given, Bounds) else given
    if isinstance(run, Estimate):
        source = f"{run.method}, {run.steps} steps, {run.chains} chains, seed {run.seed}"
        if run.fingerprint.split()[0] != model_digest(model):
            raise ValueError(
                "log_z belongs to another model than rbm (a dense copy of a sparse model is another model)"
            )
    if isinstance(given, Bounds):  # The interval of Bounds may have another confidence.
        source += ", forward and reverse"
        low, high = (given.free_energy + sign * 1.96 * given.stderr for sign in (-1.0, 1.0))
    return float(given.log_z), (-float(high), -float(low)), source, tuple(getattr(given, "warnings", ()))


def _some_rows(model: MRF, data: Any) -> Array:
    """Return the visible side of evenly spaced rows of the data, as hints where the modes are."""
    table = visible_table(model, data)
    chunk = table[np.linspace(0, table.shape[0] - 1, min(table.shape[0], _HINTS)).astype(np.int64)]
    rows = np.asarray(dense(chunk), dtype=np.float64)
    return split_rows(model, rows)[0]


def log_terms(model: MRF, data: Any) -> Array:
    """Return ln Σ_h exp(−E(v, h)) of every row v, computed chunk by chunk."""
    table = visible_table(model, data)
    exponent = model.natural
    rows = max(1, _CELLS // (len(exponent.visible_bias) + len(exponent.hidden_bias)))
    terms = np.empty(table.shape[0])
    with np.errstate(over="ignore", invalid="ignore"):  # An overflow raises an error below.
        for first in range(0, len(terms), rows):
            chunk = table[first : first + rows]
            v = np.ascontiguousarray(dense(chunk), dtype=np.float64)
            terms[first : first + rows] = _log_terms_of(model, *split_rows(model, v, first))
    if not np.isfinite(terms).all():
        raise ValueError("data or the parameters of rbm are too large for floating point")
    terms.flags.writeable = False
    return terms


def _log_terms_of(model: MRF, v: Array, h: Array | None) -> Array:
    """Return −E of rows of all variables, or ln Σ_h exp(−E) if the hidden variables are not given."""
    exponent = model.natural
    sums = exponent.offset + model.visible_exponent(v) + exponent.visible_units.own_terms(v)
    if not len(exponent.hidden_bias):  # This side may be empty in a graph without edges.
        return sums
    fields = model.hidden_fields(v)
    if h is None:
        return sums + exponent.hidden_units.log_normaliser(fields)
    return sums + exponent.hidden_units.own_terms(h) + (h * fields).sum(axis=1)


def _least_log_z(terms: Array) -> float:
    """Return a lower bound of ln Z from distinct rows v, which are some of the terms of Z = Σ_v Σ_h exp(−E(v, h)).

    Rows count as distinct if their terms differ by more than rounding, which can only lower the bound.
    """
    ordered = np.sort(terms)
    step = _ROUNDING * max(1.0, float(np.abs(ordered).max()))
    distinct = ordered[np.append(True, np.diff(ordered) > step)]
    return float(np.logaddexp.reduce(distinct))
