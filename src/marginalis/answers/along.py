"""ln Z of every model of a sequence, such as a training run, from one run through all of them.

The chains are annealed to the first model and then from each model to the next. Their accumulated weights estimate
Z_t/Z_0 without bias at every model. Pilots choose the number of steps between two neighbours. The chains are resampled
in populations during the run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from ..checks import Array, one_line
from ..display import sketch
from ..display.words import decimals
from ..engines.plan import Plan, make_plan
from ..engines.recorder import Recorder, the_states
from ..models.arrange import shared_split
from ..models.layered import as_model
from ..models.model import MRF
from ..options import PlanOptions, RunOptions, filled_in, plan_options, takes_options
from ..paths.base import coupled_base
from ..paths.narrow_base import unseen_share
from ..planning.pilots import plan_with_pilots
from ..random import PILOT, SEQUENCE, stream
from ..running.session import Session, open_session
from ..statistics.weights import Weights
from .curve import LogZRows
from .record import Answer, Record, finite, plain_name

_NOT_HERE = ("summed", "schedule")
# Pilots have this many chains, this many steps between two neighbours, and this many steps to the first model.
_PILOT_CHAINS, _PILOT_STEPS, _FIRST_STEPS = 64, 4, 32
_VARIANCE = 0.05  # The steps between two neighbours are chosen for this variance of ln w.
_FEWEST, _MOST = 2, 1000  # Least and largest number of steps between two neighbours.


@dataclass(frozen=True, eq=False, repr=False)
class Along(LogZRows, Answer):
    """ln Z of every model of a sequence, with errors.

    Errors of neighbouring values are correlated, so differences are more precise than the values themselves.
    """

    log_weights: Array  # [model, population]; Z_0 is not included.
    log_z0: float
    record: Record
    models: tuple[MRF, ...]
    names: tuple[Any, ...]  # Names of the models: their numbers, or those of the updates that they come from.
    unseen: float = 0.0
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
        doubtful = [name for name, x in zip(self.names, self.weights, strict=True) if x.warnings]
        if not doubtful:
            return ()
        return (f"the weights are too uneven for trusted errors at {len(doubtful)} models, the first: {doubtful[0]}",)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        rows = [
            {
                "model": plain_name(name),
                "log_z": float(z),
                "stderr": finite(float(e)),
                "interval": [finite(float(x)) for x in interval],
            }
            for name, z, e, interval in zip(self.names, self.log_z, self.stderr, self.intervals, strict=True)
        ]
        return {"rows": rows, **self.record.to_dict(), "warnings": list(self.warnings)}

    def __str__(self) -> str:
        lines = [f"{'model':>10} {'ln Z':>24}"]
        for name, z, e in zip(self.names, self.log_z, self.stderr, strict=True):
            digits = decimals(float(e))
            lines.append(f"{one_line(name, 40):>10} {f'{z:.{digits}f} ± {e:.{digits}f}':>24}")
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])

    def _headline(self) -> str:
        return f"ln Z of {len(self.log_weights)} models   ({self.chains} chains, {self.seconds:.2f} s)"

    def _sketch(self) -> str:
        return sketch.line(np.arange(float(len(self.log_z))), self.log_z, 2.0 * self.stderr, "ln Z of every model")


@takes_options(leave_out=_NOT_HERE)
def along(models: Sequence[Any] | Mapping[Any, Any], **options: Unpack[RunOptions]) -> Along:
    """Return ln Z of every model of a sequence of models of the same variables, from one run.

    The models are a list, or a mapping from names to models as `load_updates` returns. `log_likelihood` accepts the
    result.

    `steps` is the number of steps to the first model; a pilot chooses it by default. Pilots always choose the steps
    between two neighbours. The chains are resampled in populations unless `resample=False`.
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
    sequence = _on_one_split(own)
    with open_session(chosen, "along", *sequence) as session:
        to_first = given.copy()
        if given["steps"] is None:
            to_first["steps"], to_first["schedule"] = _steps_to(sequence[0], given, session), "adaptive"
        first = plan_with_pilots(sequence[0], session, keep_whole=True, **to_first)
        steps = _pilot_steps(sequence, first, given, session)
        gaps = enumerate(zip(sequence, sequence[1:], steps, strict=False), start=1)
        plans = [first, *(_between(a, b, k, first, given, t) for t, (a, b, k) in gaps)]
        rows, states, weights = [], None, None
        for t, plan in enumerate(plans):
            carried = plan.with_chains(start=states, start_log_weights=weights)
            log_weights, states, weights = _carry(carried, session.part(t / len(plans), (t + 1) / len(plans)))
            rows.append(log_weights)
    total = replace(first, betas=np.zeros(1 + sum(plan.steps for plan in plans)))
    record = Record.of(total, time.perf_counter() - begin, session.names)
    return Along(
        np.array(rows),
        first.path.log_z0,
        record,
        tuple(own),
        tuple(named),
        unseen_share(first.path.part, first.path.start, first.chains.count),
    )


def _on_one_split(models: list[MRF]) -> list[MRF]:
    """Return the models, arranged so that the same variables are summed out in all of them."""
    result = models[:1]
    for t, model in enumerate(models[1:], start=1):
        first, same = shared_split(result[0], model)
        if first is not result[0]:
            raise ValueError(f"models[{t}] has other couplings than the first: they must share one graph")
        result.append(same)
    return result


def _between(a: MRF, b: MRF, steps: int, first: Plan, given: PlanOptions, t: int) -> Plan:
    """Return the plan from model t − 1 to model t, with method and chains of the first run and new random numbers."""
    options = given.copy()
    options["base"], options["steps"] = coupled_base(a, b), steps
    options["method"] = first.method_name  # type: ignore[typeddict-item]
    plan = make_plan(b, keep_whole=True, **options)
    return plan.with_chains(seed=stream(first.chains.seed, SEQUENCE + t), count=first.chains.count)


def _carry(plan: Plan, session: Session) -> tuple[Array, Array, Array]:
    """Run a plan; return the log-weights of its populations, and the states and log-weights of its chains."""
    recorder = Recorder([plan.steps], plan.chains.count, the_states, plan.path.width)
    log_weights = session.run(plan, recorder).log_weights
    return log_weights, recorder.values[0], recorder.log_weights[0] + plan.path.exact_log_ratio


def _steps_to(model: MRF, given: PlanOptions, session: Session) -> int:
    """Return the number of steps to the first model, chosen from a pilot run."""
    options = given.copy()
    options["steps"] = _FIRST_STEPS
    log_weights, _ = _pilot(make_plan(model, keep_whole=True, **options), None, session)
    return max(_FIRST_STEPS, _enough(log_weights, _FIRST_STEPS))


def _pilot(plan: Plan, states: Array | None, session: Session) -> tuple[Array, Array]:
    """Run a few chains of a plan with random numbers of their own; return their log-weights and states."""
    few = plan.pilot(PILOT, _PILOT_CHAINS, start=states)
    return _carry(few, session.for_pilot(few))[:2]


def _enough(log_weights: Array, steps: int) -> int:
    """Return the number of steps for a variance of `_VARIANCE`; it is inversely proportional to the steps."""
    return int(np.clip(np.ceil(float(log_weights.var()) * steps / _VARIANCE), _FEWEST, _MOST))


def _pilot_steps(sequence: list[MRF], first: Plan, given: PlanOptions, session: Session) -> list[int]:
    """Return the number of steps between each two neighbours, chosen from a pilot run through all models."""
    steps: list[int] = []
    states = None
    for t, model in enumerate(sequence):
        plan = first if t == 0 else _between(sequence[t - 1], model, _PILOT_STEPS, first, given, t)
        log_weights, states = _pilot(plan, states, session)
        if t:
            steps.append(_enough(log_weights, _PILOT_STEPS))
    return steps
