"""Log-likelihood of the same data under every model of a sequence, for example a training run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import Array, one_line
from ..display import sketch
from ..display.words import decimals
from ..results.record import Answer, Record
from ..results.written import finite, plain_name
from .along import Along


class OfSamples:
    """Base class of answers that NumPy's functions treat as their array `per_sample`, such as ``np.mean(answer)``."""

    per_sample: Any

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.per_sample, dtype=dtype)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return function(*map(_as_array, args), **{name: _as_array(x) for name, x in kwargs.items()})


def _as_array(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_as_array, value))
    return value.per_sample if isinstance(value, OfSamples) else value


@dataclass(frozen=True, eq=False, repr=False)
class LogLikelihoods(OfSamples, Answer):
    """ln p(v) of every row of a data set under every model of a sequence, in nats.

    As in `LogLikelihood`, `intervals` show the uncertainty from ln Z alone, and `sampling_error` that from the choice
    of rows. Errors of neighbouring models are correlated, so their differences are more precise.
    """

    unnormalised: Array  #: [model, row]: ln Σ_h exp(−E(v, h))
    run: Along  #: ln Z of every model.
    warnings: tuple[str, ...]  #: Reasons to doubt ln Z, as sentences.
    _is_table = True

    @property
    def record(self) -> Record:  # type: ignore[override]
        """The record of the run."""
        return self.run.record

    @property
    def names(self) -> tuple[Any, ...]:
        """Numbers of the models in the sequence, or of the updates that they come from."""
        return self.run.names

    @property
    def samples(self) -> int:
        """Number of rows."""
        return self.unnormalised.shape[1]

    @cached_property
    def per_sample(self) -> Array:
        """ln p(v): [model, row]."""
        return self.unnormalised - self.run.log_z[:, None]

    @cached_property
    def mean(self) -> Array:
        """Mean of ln p(v) over the rows, under every model."""
        return self.unnormalised.mean(axis=1) - self.run.log_z

    @cached_property
    def intervals(self) -> Array:
        """95 % interval of every mean from the uncertainty of ln Z alone: rows of (low, high)."""
        return self.unnormalised.mean(axis=1)[:, None] - self.run.intervals[:, ::-1]

    @cached_property
    def sampling_error(self) -> Array:
        """Standard error of every mean from the choice of rows, with ln Z taken as known."""
        if self.samples == 1:
            return np.full(len(self.unnormalised), np.inf)
        return self.unnormalised.std(axis=1, ddof=1) / math.sqrt(self.samples)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer without `per_sample` as plain data; infinite numbers become None."""
        rows = [
            {
                "model": plain_name(name),
                "mean": float(self.mean[t]),
                "interval": [finite(float(x)) for x in self.intervals[t]],
                "sampling_error": finite(float(self.sampling_error[t])),
                "log_z": float(self.run.log_z[t]),
                "log_z_interval": [finite(float(x)) for x in self.run.intervals[t]],
            }
            for t, name in enumerate(self.names)
        ]
        return {"rows": rows, "samples": self.samples, **self.record.to_dict(), "warnings": list(self.warnings)}

    def __str__(self) -> str:
        lines = [f"{'model':>10} {'mean ln p':>12} {'95 % interval from ln Z':>26} {'± rows':>10} {'ln Z':>14}"]
        for t, name in enumerate(self.names):
            low, high = self.intervals[t]
            digits = max(2, decimals((high - low) / 4.0))
            cells = f"{self.mean[t]:12.{digits}f} {f'{low:.{digits}f} to {high:.{digits}f}':>26}"
            lines.append(
                f"{one_line(name, 40):>10} {cells} {self.sampling_error[t]:10.3g} {self.run.log_z[t]:14.{digits}f}"
            )
        lines.append(
            f"{self.samples} rows; one run through all models: {self.method}, {self.record}, {self.chains} chains, "
            f"seed {self.seed}, {self.engine}, {self.seconds:.2f} s"
        )
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])

    def _headline(self) -> str:
        return f"mean ln p of {self.samples} rows under {len(self.names)} models   ({self.seconds:.2f} s)"

    def _sketch(self) -> str:
        x = np.arange(float(len(self.names)))
        return sketch.line(x, self.mean, np.diff(self.intervals, axis=1)[:, 0] / 2.0, "mean ln p under every model")
