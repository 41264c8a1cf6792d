"""ln Z of every model of a sequence, such as a training run, from one run through all of them.

The chains are annealed to the first model and then from each model to the next. Their accumulated weights estimate
Z_t/Z_0 without bias at every model. Pilots choose the number of steps between two neighbours. The chains are resampled
in populations during the run. The path to the first model is chosen as for an estimate, and the last model is looked at
in the same way: if another path sees more of it than the chains that were carried there, there is a warning.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from ..checks import Array, one_line
from ..display import sketch
from ..display.words import decimals
from ..engines.plan import Plan, make_plan
from ..models.layered import as_model
from ..models.model import MRF
from ..options import PlanOptions, RunOptions, filled_in, leaves_path_open, plan_options, takes_options
from ..planning.choose import Choice, fitted
from ..planning.run_chosen import are_few_and_uneven, missed, run_chosen
from ..results.curve import LogZRows
from ..results.record import Answer, Record
from ..results.written import finite, plain_name
from ..running.session import Session, open_session
from ..statistics.weights import Weights
from .carried import Carried, carried_along, carried_to_first, on_the_split_of

_NOT_HERE = ("summed", "schedule")


@dataclass(frozen=True, eq=False, repr=False)
class Along(LogZRows, Answer):
    """ln Z of every model of a sequence, with errors.

    Errors of neighbouring values are correlated, so differences are more precise than the values themselves.
    """

    log_weights: Array  #: [model, population]; Z_0 is not included.
    log_z0: float  #: ln Z_0 of the base of the path to the first model.
    record: Record  #: Options, seeds, engine and seconds of the run.
    models: tuple[MRF, ...]  #: The models, in order.
    names: tuple[Any, ...]  #: Names of the models: their numbers, or those of the updates that they come from.
    unseen: float = 0.0  #: See `Estimate.unseen`.
    notes: tuple[str, ...] = ()  #: Warnings that do not follow from the weights.
    _is_table = True

    def __len__(self) -> int:
        """Return the number of models."""
        return len(self.models)

    def __getitem__(self, t: int) -> Weights:
        """Return the weights of model t with its ln Z, as `log_likelihood` takes it."""
        return self.weights[t]

    @cached_property
    def differences(self) -> tuple[Array, Array]:
        """ln Z of every model minus that of the one before, and the standard errors, from the same populations."""
        relative = np.exp(self.log_weights - self.log_weights.max(axis=1, keepdims=True))
        influence = relative / relative.sum(axis=1, keepdims=True)
        n = influence.shape[1]
        errors = np.sqrt(n / (n - 1.0) * (np.diff(influence, axis=0) ** 2).sum(axis=1))
        return np.diff(self.log_z), np.maximum(errors, self.unseen)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the values, as sentences."""
        doubtful = [
            name for name, x in zip(self.names, self.weights, strict=True) if x.warnings or are_few_and_uneven(x)
        ]
        if not doubtful:
            return self.notes
        uneven = f"the weights are too uneven for trusted errors at {len(doubtful)} models, the first: {doubtful[0]}"
        return (uneven, *self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        rows = [
            {
                "model": plain_name(name),
                "log_z": float(z),
                "free_energy": -float(z),
                "stderr": finite(float(e)),
                "interval": [finite(float(x)) for x in interval],
            }
            for name, z, e, interval in zip(self.names, self.log_z, self.stderr, self.intervals, strict=True)
        ]
        return {"rows": rows, **self.record.to_dict(), "warnings": list(self.warnings)}

    def __str__(self) -> str:
        lines = [f"{'model':>10} {'F':>24} {'ln Z':>14}"]
        for name, z, e in zip(self.names, self.log_z, self.stderr, strict=True):
            digits = decimals(float(e))
            lines.append(f"{one_line(name, 40):>10} {f'{-z:.{digits}f} ± {e:.{digits}f}':>24} {z:14.{digits}f}")
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])

    def _headline(self) -> str:
        return f"ln Z of {len(self.log_weights)} models   ({self.chains} chains, {self.seconds:.2f} s)"

    def _sketch(self) -> str:
        return sketch.line(np.arange(float(len(self.log_z))), self.log_z, 2.0 * self.stderr, "ln Z of every model")


@takes_options(leave_out=_NOT_HERE)
def along(models: Sequence[Any] | Mapping[Any, Any], **options: Unpack[RunOptions]) -> Along:
    """Return ln Z of every model of a sequence of models of the same variables, from one run.

    The chains are resampled in populations unless `resample=False`. `log_likelihood` accepts the result.

    Parameters
    ----------
    models
        A list of models, or a mapping from names to models as `load_updates` returns.
    options
        Options of the run. `steps` is the number of steps to the first model; a pilot chooses it by default, unless the
        path starts from a mixture of phases. Pilots always choose the steps between two neighbours.

    Returns
    -------
    Along
        `log_z`, `stderr` and intervals of every model, and a table (`to_dataframe`).
    """
    if not isinstance(models, list | tuple | Mapping) or not models:
        raise ValueError("models must be a list of at least one model, or a mapping from names to models")
    named = models if isinstance(models, Mapping) else dict(enumerate(models))
    chosen = filled_in(options, leave_out=_NOT_HERE)
    given = plan_options(chosen)
    if given["resample"] is None:
        given["resample"] = True
    begin = time.perf_counter()
    own = [as_model(model, f"models[{name!r}]") for name, model in named.items()]
    sequence = [own[0], *(on_the_split_of(own[0], model, f"models[{t}]") for t, model in enumerate(own[1:], start=1))]
    with open_session(chosen, "along", *sequence) as session:
        parts = [session.part(t / len(sequence), (t + 1) / len(sequence)) for t in range(len(sequence))]
        carried, notes = _to_first(sequence[0], given, parts[0])
        rows = [carried.results]
        for model, part in zip(sequence[1:], parts[1:], strict=True):
            carried = carried.to(model, given, part)
            rows.append(carried.results)
        if len(sequence) > 1 and leaves_path_open(given):
            last = missed(carried.model, carried.weights, given, session)
            notes += tuple(f"model {list(named)[-1]!r}: {note}" for note in last)
    return Along(
        np.array(rows),
        carried.origin.log_z0,
        carried.record(time.perf_counter() - begin, session.names),
        tuple(own),
        tuple(named),
        carried.origin.unseen,
        notes,
    )


def _to_first(model: MRF, given: PlanOptions, session: Session) -> tuple[Carried, tuple[str, ...]]:
    """Return the chains at the first model, and warnings about the path to it, which is chosen if it is left open."""
    if not leaves_path_open(given):
        return carried_to_first(model, given, session), ()
    choice = Choice(make_plan(model, keep_whole=True, **given), session)
    chosen = choice.choose()

    def run(plan: Plan) -> Carried:
        if plan is not chosen:
            return carried_along(fitted(plan, session), model, session)
        if plan.path.mixture is None:
            return carried_to_first(model, given, session)
        return carried_along(fitted(plan, session).with_chains(resample_below=0.0), model, session)

    carried, _ = run_chosen(choice, chosen, run, lambda x: x.weights)  # `Along.warnings` has those of populations.
    return carried, choice.doubts(carried.weights)
