"""The answer for a mean over disorder: value, error and its sources, distribution, and what an error costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from .. import __version__
from ..checks import Array, one_line, one_of, positive
from ..display import sketch
from ..display.card import Displayed
from ..display.words import decimals
from ..results.written import Written, finite, plain_name
from ..statistics.disorder import (
    BIAS,
    VALUE,
    VARIANCE,
    Allocation,
    Mean,
    cheapest,
    mean_over,
    quantile_of,
    standard_error_of,
)
from .estimates import named_error
from .thermodynamics import QUANTITIES

_PER = "_per_variable"
FREE = ("free_energy", "log_z")  # Quantities that need ln Z only.
WORDS = tuple(name + end for name in (*FREE, *QUANTITIES[1:]) for end in ("", _PER))
FEWEST = 20  # Fewer samples do not determine the error of a mean, and no allocation has fewer.
_DOUBTFUL = 0.25  # A larger fraction of models with warnings gives a warning.
_LARGE_BIAS = 0.5  # A remaining bias above this many standard errors gives a warning.
_BY_SAMPLING = 0.1  # Relative variance due to sampling above which quantiles are noticeably too wide.


@dataclass(frozen=True)
class Costs:
    """Predicted time of a sample on one core: ``fixed + rate·K·N`` seconds for N chains of K steps."""

    fixed: float
    rate: float
    steps: int
    chains: int  # 0 if all samples are exact.


@dataclass(frozen=True, eq=False, repr=False)
class Average(Written, Displayed):
    """Mean of a quantity over samples of disorder, at the temperature of the models or at several temperatures.

    With several temperatures `value`, `stderr`, `interval` and the other numbers are arrays, in the order of
    `temperatures`. Models that have failed are left out; `errors` says why.
    """

    quantity: str
    table: Array  # [sample, temperature, quantity, (value, variance, bias, remaining bias)]; NaN where a model failed.
    names: Sequence[Any]
    variables: Array  # Number of variables of each model.
    betas: Array | None  # Inverse temperatures; None: those of the models.
    steps: Any  # Annealing steps of each model, and its chains; 0 where the sum is exact.
    chains: Any
    model_warnings: Sequence[tuple[str, ...]]
    failures: Sequence[str]  # Why a model has no numbers, or an empty text.
    costs: Costs
    settings: Mapping[str, Any]  # Options of the run as plain data.
    seconds: float
    tolerance: float | None = None
    _means: dict[str, tuple[Mean, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.count

    @property
    def _is_table(self) -> bool:  # type: ignore[override]
        return self.betas is not None

    @cached_property
    def _good(self) -> Array:
        return np.array([not error for error in self.failures])

    @property
    def count(self) -> int:
        """Number of samples in the mean, M."""
        return int(self._good.sum())

    @property
    def exact(self) -> int:
        """Number of samples whose values are exact."""
        return int((self._good & (np.asarray(self.chains) == 0)).sum())

    @property
    def temperatures(self) -> Array | None:
        """1/β, or None if the models are at their own temperatures."""
        if self.betas is None:
            return None
        with np.errstate(divide="ignore"):
            return 1.0 / self.betas

    def of(self, quantity: str) -> Average:
        """Return the mean of another quantity over the same samples; energies must have been computed."""
        chosen = checked_quantity(quantity, self.table.shape[2] > 1)
        return replace(self, quantity=chosen, _means={})

    @cached_property
    def _samples(self) -> Array:
        """The numbers [sample, temperature, 4] of the quantity, for the samples in the mean."""
        name = self.quantity.removesuffix(_PER)
        column = 0 if name in FREE else QUANTITIES.index(name)
        found = self.table[self._good][:, :, column].copy()
        if name == "free_energy":
            found[:, :, VALUE] *= -1.0
            found[:, :, BIAS:] *= -1.0
        if self.quantity.endswith(_PER):
            n = np.maximum(1.0, self.variables[self._good])[:, None]
            for k in range(found.shape[2]):
                found[:, :, k] /= n**2 if k == VARIANCE else n
        return found

    def _mean(self, level: float = 0.95) -> tuple[Mean, ...]:
        key = f"{level!r}"
        if key not in self._means:
            samples = self._samples
            self._means[key] = tuple(mean_over(samples[:, i], level) for i in range(samples.shape[1]))
        return self._means[key]

    def _given(self, name: str) -> Any:
        """Return a number of the mean: one, or an array over the temperatures."""
        found = [getattr(x, name) for x in self._mean()]
        return found[0] if self.betas is None else np.array(found)

    @property
    def value(self) -> Any:
        """The mean, corrected for the bias of few chains."""
        return self._given("value")

    def __float__(self) -> float:
        return float(self.value)

    @property
    def stderr(self) -> Any:
        """Standard error of the mean: disorder and sampling together."""
        return self._given("stderr")

    @property
    def disorder_error(self) -> Any:
        """The part of `stderr` that is due to disorder."""
        return self._given("disorder_error")

    @property
    def sampling_error(self) -> Any:
        """The part of `stderr` that is due to the chains."""
        return self._given("sampling_error")

    @property
    def spread(self) -> Any:
        """Standard deviation of the quantity over the disorder, without the errors of sampling."""
        return self._given("spread")

    @property
    def bias(self) -> Any:
        """The bias that was subtracted from the mean of the estimates."""
        return self._given("bias")

    @property
    def remaining_bias(self) -> Any:
        """Estimate of the bias that is left, for which the interval allows."""
        return self._given("remaining")

    @property
    def interval(self) -> Any:
        """95 % interval of the mean: (low, high), or rows of them."""
        return self.interval_at(0.95)

    def interval_at(self, level: float) -> Any:
        """Return the interval of the mean at another level, such as 0.99."""
        share = positive(level, "level")
        if share >= 1.0:
            raise ValueError(f"level is {level!r}; it must lie between 0 and 1, as 0.95 does")
        ends = [(x.low, x.high) for x in self._mean(share)]
        return ends[0] if self.betas is None else np.array(ends)

    @cached_property
    def values(self) -> Array:
        """The quantity of each sample in the mean, corrected for bias: [sample], or [sample, temperature]."""
        found = self._samples[:, :, VALUE] - self._samples[:, :, BIAS]
        return found[:, 0] if self.betas is None else found

    def quantile(self, share: float) -> Any:
        """Return a quantile of the distribution over disorder with its 95 % interval: rows (value, low, high).

        The values contain the errors of sampling, which widen their distribution; see `spread`.
        """
        if not 0.0 < positive(share, "share") < 1.0:
            raise ValueError(f"share is {share!r}; it must lie between 0 and 1, as 0.5 does")
        columns = self.values.reshape(self.count, -1).T
        found = [quantile_of(column, share) for column in columns]
        return found[0] if self.betas is None else np.array(found)

    def histogram(self, bins: Any = "auto", at: int = 0) -> tuple[Array, Array]:
        """Return counts and edges of a histogram of the values; `at` is the index of the temperature."""
        counts, edges = np.histogram(self.values.reshape(self.count, -1)[:, at], bins)
        return counts, edges

    def cheapest(self, tolerance: float) -> Allocation:
        """Return how many samples, and how many chains of each, have a 95 % interval of this half-width at least cost.

        The cost is a predicted time on one core. With several temperatures that of the largest error counts.
        """
        error = standard_error_of(positive(tolerance, "tolerance"))
        return allocation(self.worst, self.relative_variance, self.costs, error)

    @property
    def worst(self) -> Array:
        """The numbers [sample, 4] of the quantity at the temperature with the largest error."""
        return self._samples[:, int(np.argmax([x.stderr for x in self._mean()]))]

    @property
    def half_width(self) -> float:
        """Largest half-width of the 95 % intervals."""
        return max((x.high - x.low) / 2.0 for x in self._mean())

    @property
    def relative_variance(self) -> float:
        """Mean relative variance of the weight of a chain, at the lowest temperature."""
        coldest = 0 if self.betas is None else int(np.argmax(self.betas))
        variance = self.table[self._good][:, coldest, 0, VARIANCE]
        return float(variance.mean()) * self.costs.chains

    @property
    def errors(self) -> Mapping[Any, str]:
        """Why a model has no value, by the names of the models that have failed."""
        return {self.names[i]: error for i, error in enumerate(self.failures) if error}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the mean, as sentences."""
        found = []
        failed = self.errors
        if failed:
            first = named_error(*next(iter(failed.items())))
            found.append(f"{len(failed)} of {len(self.names)} models have failed and are left out; {first}")
        if self.count < FEWEST:
            found.append(f"{self.count} samples of disorder are too few for a trusted error; use {FEWEST} or more")
        doubtful = [i for i, own in enumerate(self.model_warnings) if own]
        if len(doubtful) > _DOUBTFUL * self.count:
            name = self.names[doubtful[0]]
            found.append(
                f"{len(doubtful)} of {self.count} models have warnings; {name}: {self.model_warnings[doubtful[0]][0]}"
            )
        means = self._mean()
        worst = max(means, key=lambda x: abs(x.remaining) / max(x.stderr, 1e-300))
        if abs(worst.remaining) > _LARGE_BIAS * worst.stderr:
            found.append(
                f"few chains bias the mean by about {worst.remaining:.2g} after the correction, with a standard error "
                f"of {worst.stderr:.2g}: raise steps or chains"
            )
        if self.tolerance is not None and not self.half_width <= self.tolerance:
            found.append(f"the interval has a half-width of {self.half_width:.2g}, the tolerance is {self.tolerance:g}")
        return tuple(found)

    def rows(self) -> list[dict[str, Any]]:
        """Return the numbers of each temperature as plain data."""
        found = []
        for i, x in enumerate(self._mean()):
            at = {} if self.betas is None else {"temperature": finite(float(self.temperatures[i]))}  # type: ignore[index]
            found.append(
                {
                    **at,
                    "value": x.value,
                    "stderr": finite(x.stderr),
                    "interval": [finite(x.low), finite(x.high)],
                    "disorder_error": finite(x.disorder_error),
                    "sampling_error": finite(x.sampling_error),
                    "spread": finite(x.spread),
                    "bias": x.bias,
                    "remaining_bias": x.remaining,
                }
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, without the values of the samples; see `samples_to_dict`."""
        rows = self.rows()
        numbers = rows[0] if self.betas is None else {"rows": rows}
        return {
            "quantity": self.quantity,
            **numbers,
            "samples": self.count,
            "exact_samples": self.exact,
            "steps": self.costs.steps,
            "chains": self.costs.chains,
            **{name: self.settings[name] for name in ("method", "seed", "engine") if name in self.settings},
            "seconds": self.seconds,
            "version": __version__,
            "errors": {str(plain_name(name)): error for name, error in self.errors.items()},
            "warnings": list(self.warnings),
        }

    def sample_rows(self) -> list[dict[str, Any]]:
        """Return the value of the quantity for each sample, with its standard error, as plain data."""
        names = [name for name, good in zip(self.names, self._good, strict=True) if good]
        samples, values = self._samples, self.values.reshape(self.count, -1)
        found = []
        for name, numbers, own in zip(names, samples, values, strict=True):
            for i, value in enumerate(own.tolist()):
                at = {} if self.betas is None else {"temperature": float(self.temperatures[i])}  # type: ignore[index]
                error = math.sqrt(numbers[i, VARIANCE])
                found.append({"name": plain_name(name), **at, "value": value, "stderr": finite(error)})
        return found

    def _headline(self) -> str:
        return "" if self.betas is None else f"{words_of(self.quantity)}, mean over {self.count} samples"

    def __str__(self) -> str:
        means = self._mean()
        x = means[0]
        if self.betas is None:
            digits = decimals(x.stderr)
            lines = [
                f"{words_of(self.quantity)} = {x.value:.{digits}f} ± {x.stderr:.{digits}f}"
                f"   (95 % interval {x.low:.{digits}f} to {x.high:.{digits}f})",
                f"mean over {self.count} samples, which spread by {x.spread:.3g}; of the error {x.disorder_error:.2g} "
                f"is due to disorder and {x.sampling_error:.2g} to sampling",
            ]
        else:
            lines = [f"{'T':>10} {words_of(self.quantity):>28} {'spread':>10} {'by disorder':>12} {'by sampling':>12}"]
            for t, own in zip(self.temperatures, means, strict=True):  # type: ignore[arg-type]
                digits = decimals(own.stderr)
                value = f"{own.value:.{digits}f} ± {own.stderr:.{digits}f}"
                ends = f"{own.disorder_error:12.2g} {own.sampling_error:12.2g}"
                lines.append(f"{t:10.5g} {value:>28} {own.spread:10.3g} {ends}")
        lines.append(self._how())
        doubtful = sum(map(bool, self.model_warnings))
        if 0 < doubtful <= _DOUBTFUL * self.count:
            lines.append(f"note: {doubtful} of {self.count} models have warnings")
        return "\n".join(one_line(line, 400) for line in [*lines, *(f"warning: {w}" for w in self.warnings)])

    def _how(self) -> str:
        """Return how the values were computed, in one line."""
        estimated = self.count - self.exact
        parts = [f"{self.exact} samples exact"] if self.exact else []
        if estimated:
            bias = max((abs(x.bias) for x in self._mean()), default=0.0)
            parts.append(
                f"{estimated} samples by {self.costs.chains} chains of {self.costs.steps} steps "
                f"(bias corrected: {bias:.1g})"
            )
        return f"{', '.join(parts)}, seed {self.settings.get('seed')}, {self.seconds:.2f} s"

    def _sketch(self) -> str:
        if self.betas is None:
            low, high = self._mean()[0].low, self._mean()[0].high
            about = "values of the samples, their mean and its interval"
            return sketch.histogram(self.values, at=[float(self)], span=(low, high), about=about)
        return sketch.line(self.temperatures, self.value, 2.0 * self.stderr, f"{words_of(self.quantity)} against T")  # type: ignore[arg-type]


def words_of(quantity: str) -> str:
    """Return the symbol or the words of a quantity, as a text shows it."""
    name = quantity.removesuffix(_PER)
    symbol = {"free_energy": "F", "log_z": "ln Z", "energy": "U", "entropy": "S", "heat_capacity": "C"}[name]
    return f"{symbol}/n" if quantity.endswith(_PER) else symbol


def checked_quantity(quantity: Any, has_energies: bool = True) -> str:
    """Return the name of a quantity, or raise a ValueError."""
    one_of(quantity, WORDS, "quantity")
    if not has_energies and quantity.removesuffix(_PER) not in FREE:
        raise ValueError(f"quantity is {quantity!r}, but only ln Z was computed: the call must name an energy")
    return str(quantity)


def allocation(samples: Array, relative_variance: float, costs: Costs, error: float) -> Allocation:
    """Return the cheapest allocation for a standard error, from rows (value, variance, bias, remaining bias).

    The bias that is left after its correction is about r²/(2N²), which must be below a quarter of the error.
    """
    x = mean_over(samples)
    variance = float(samples[:, VARIANCE].mean())
    spread = 0.0 if math.isnan(x.spread) else x.spread
    if not costs.chains:
        count = max(FEWEST, math.ceil((spread / error) ** 2))
        return Allocation(count, 0, 0, count * costs.fixed)
    scale = math.sqrt(variance) / max(math.sqrt(relative_variance / costs.chains), 1e-300)
    least = max(16.0, relative_variance * math.sqrt(2.0 * scale / error))
    work = variance * costs.steps * costs.chains
    return cheapest(error, spread, work, costs.fixed, costs.rate, costs.steps, math.ceil(least), FEWEST)
