"""The answer for many models: a table of numbers, and an `Estimate` of each model whose log-weights are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..checks import Array, one_line
from ..display.card import Displayed
from ..display.words import decimals
from ..results.estimate import Estimate
from ..results.written import Written, finite, plain_name
from .batches import Numbers

_SHOWN = 1000  # Most models in a text.


@dataclass(frozen=True, eq=False, repr=False)
class Estimates(Written, Displayed):
    """The estimates of many models, in the given order and with the given names.

    The numbers of a model that has failed are NaN, and `errors` says why. If the log-weights are kept,
    ``answers[name]`` is the `Estimate` of a model.
    """

    names: Sequence[Any]  #: Name or number of each model.
    numbers: Numbers  #: F, errors and other numbers of all models.
    seconds: float  #: Time of the whole call.
    make: Callable[[int], Estimate | None] = lambda number: None  #: Returns the estimate of a model by its number.
    is_kept: bool = False  #: Whether log-weights are kept.
    _made: dict[int, Estimate] = field(default_factory=dict)
    _is_table = True

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.answers)

    def __getitem__(self, name: Any) -> Estimate:
        """Return the estimate of a model by its name, or by its index in a list."""
        if name in self.names:
            return self._answer(self.names.index(name))
        if isinstance(name, int | np.integer) and -len(self) <= name < len(self):
            return self._answer(int(name) % len(self))
        raise KeyError(name)

    def _answer(self, number: int) -> Estimate:
        if number not in self._made:
            error = self.numbers.errors[number]
            if error:
                raise ValueError(self._named(number, error))
            found = self.make(number) if self.is_kept else None
            if found is None:
                raise ValueError("the log-weights are not kept, only the numbers: use keep_weights=True")
            self._made[number] = found
        return self._made[number]

    @property
    def answers(self) -> tuple[Estimate, ...]:
        """The estimates of all models that have one, with their log-weights."""
        return tuple(self._answer(number) for number in range(len(self)) if not self.numbers.errors[number])

    @property
    def log_z(self) -> Array:
        """ln Z of every model."""
        return self.numbers.log_z

    @property
    def free_energy(self) -> Array:
        """F of every model."""
        return -self.numbers.log_z

    @property
    def stderr(self) -> Array:
        """Standard error of every F."""
        return self.numbers.stderr

    @property
    def intervals(self) -> Array:
        """95 % interval of every F: rows of (low, high)."""
        return self.numbers.interval

    @property
    def ess(self) -> Array:
        """Effective sample size of every model."""
        return self.numbers.ess

    @property
    def errors(self) -> Mapping[Any, str]:
        """Why there is no estimate, by the names of the models that have failed."""
        return {self.names[i]: error for i, error in enumerate(self.numbers.errors) if error}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Models that have failed, and reasons to doubt an estimate, as sentences with the name of the model."""
        failed = [self._named(i, error) for i, error in enumerate(self.numbers.errors) if error]
        doubts = [f"{self.names[i]}: {text}" for i, own in enumerate(self.numbers.warnings) for text in own]
        return (*failed, *doubts)

    def _named(self, number: int, error: str) -> str:
        return named_error(self.names[number], error)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the numbers of every model as plain data."""
        x = self.numbers
        for i, name in enumerate(self.names):
            low, high = x.interval[i].tolist()
            yield {
                "name": plain_name(name),
                "log_z": finite(float(x.log_z[i])),
                "free_energy": finite(-float(x.log_z[i])),
                "stderr": finite(float(x.stderr[i])),
                "interval": [finite(low), finite(high)],
                "ess": finite(float(x.ess[i])),
                "tail_index": finite(float(x.tail_index[i])),
                "steps": int(x.steps[i]),
                "chains": int(x.chains[i]),
                "seconds": float(x.seconds[i]),
                "warnings": list(x.warnings[i]),
                "error": x.errors[i] or None,
            }

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain data; the rows are those of each `Estimate` if the log-weights are kept."""
        if not self.is_kept or any(self.numbers.errors):
            return {"rows": list(self.rows()), "seconds": self.seconds}
        named = zip(self.names, self.answers, strict=True)
        return {"rows": [{"name": plain_name(name), **x.to_dict()} for name, x in named], "seconds": self.seconds}

    def _headline(self) -> str:
        return f"F of {len(self)} models   {self.seconds:.2f} s"

    def __str__(self) -> str:
        names = [one_line(name, 40) for name in self.names[:_SHOWN]]
        width = max(12, *map(len, names))
        lines = [f"{'model':>{width}} {'F':>24} {'ln Z':>14} {'ESS':>9} {'steps':>8} {'chains':>9}"]
        x = self.numbers
        for i, name in enumerate(names):
            if x.errors[i]:
                lines.append(f"{name:>{width}} {'failed':>24}")
                continue
            digits = decimals(float(x.stderr[i]))
            value = f"{-x.log_z[i]:.{digits}f} ± {x.stderr[i]:.{digits}f}"
            ends = f"{x.ess[i]:9.1f} {x.steps[i]:8d} {x.chains[i]:9d}"
            lines.append(f"{name:>{width}} {value:>24} {x.log_z[i]:14.{digits}f} {ends}")
        if len(self) > _SHOWN:
            lines.append(f"... and {len(self) - _SHOWN} more")
        failed, doubtful = len(self.errors), sum(map(bool, x.warnings))
        if failed:
            lines.append(f"warning: {failed} of {len(self)} have failed; {one_line(self.warnings[0], 200)}")
        if doubtful:
            first = self.warnings[failed]
            lines.append(f"warning: {doubtful} of {len(self)} are doubtful; {first}")
        return "\n".join(lines)


def named_error(name: Any, error: str) -> str:
    """Return the message about a model that has failed."""
    return f"models[{name!r}]: {error}"
