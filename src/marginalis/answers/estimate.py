"""The function `estimate`: from a model and options to an `Estimate`."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..checks import Array, yes_or_no
from ..engines.plan import Plan, make_plan
from ..engines.recorder import Recorder
from ..exact import duration, predicted
from ..models.layered import annealable
from ..models.model import MRF
from ..options import RunOptions, filled_in, is_adaptive, leaves_path_open, plan_options, takes_options
from ..paths.base import is_quenches
from ..planning.choose import Choice, fitted
from ..planning.pilots import plan_with_pilots
from ..planning.run_chosen import run_chosen
from ..planning.tolerance import to_tolerance
from ..results.curve import Curve
from ..results.estimate import Estimate, run_plan
from ..running.session import open_session

logger = logging.getLogger("marginalis")

_RECORD_BYTES = 1 << 28  # Memory for recorded log-weights, in bytes.
_OPERATIONS_PER_SECOND = 1e10  # Speed of one core, a careful guess, for predicting the time of an estimate.
_WORTH_A_HINT = 10.0  # A faster exact sum is looked for if the estimate takes at least this many seconds on one core.
_MUCH_FASTER = 0.2  # An exact sum is mentioned if it takes at most this fraction of the time of the estimate.
_LARGEST_HINTED = 5000  # In models with more variables looking for an exact sum takes too long.


@takes_options()
def estimate(
    model: Any,
    *,
    tolerance: float | None = None,
    budget: float | None = None,
    record: bool = False,
    **options: Unpack[RunOptions],
) -> Estimate:
    """Estimate the free energy F = −ln Z of a model.

    Parameters
    ----------
    model
        A model (see `rbm`, `load`), or anything that `as_model` accepts.
    tolerance
        Wanted half-width of the 95 % interval of F. Pilots then choose N, and the schedule and K unless they are given.
    budget
        Time limit in seconds for reaching `tolerance`.
    record
        Keep the log-weights after every step, for ln Z(β) along the path (`Estimate.curve`). Parts of the model that
        are otherwise summed exactly before the run are then annealed, too.
    """
    return estimate_with_data(None, model, tolerance, budget, record, options)


def estimate_with_data(
    rows: Array | None, model: Any, tolerance: float | None, budget: float | None, record: bool, options: RunOptions
) -> Estimate:
    """Estimate F as `estimate` does; rows of data (visible states) help to find the modes."""
    yes_or_no(record, "record")
    chosen = filled_in(options)
    begin = time.perf_counter()
    model = annealable(model)
    if tolerance is not None:
        if chosen["chains"] is not None or record:
            raise ValueError("tolerance chooses the chains itself: leave out chains and record (a plot of the curve)")
        with open_session(chosen, "to tolerance", model) as session:
            result = to_tolerance(model, tolerance, budget, session, rows, **plan_options(chosen))
        return replace(result, hints=hints_of(model, result, session.threads))
    if budget is not None:
        raise ValueError("budget requires tolerance")
    with open_session(chosen, str(chosen["method"]), model) as session:
        given = plan_options(chosen)
        choice = None
        if leaves_path_open(given) and not record:
            choice = Choice(make_plan(model, **given), session, rows)
            plan = choice.choose()
            if given["resample"] is None and choice.is_uneven:
                plan = plan.resampled(given["populations"])
        elif is_adaptive(given) or is_quenches(given["base"]):
            plan = plan_with_pilots(model, session, keep_whole=record, **given)
        else:
            plan = make_plan(model, keep_whole=record, **given)
        recorder = Recorder(recorded_steps(plan), plan.chains.count) if record else None
        hints = hints_of(model, plan, session.threads)
        if choice is None:
            result = run_plan(plan, session, recorder, begin, hints)
        else:
            result, notes = run_chosen(
                choice, plan, lambda x: run_plan(fitted(x, session), session), lambda x: x.weights
            )
            result = replace(result, notes=result.notes + notes, hints=hints)
            result = result.with_seconds(time.perf_counter() - begin)
    if recorder is not None:
        betas = plan.betas[recorder.steps]
        log_weights = recorder.log_weights + betas[:, None] * plan.path.exact_log_ratio
        result = replace(result, curve=Curve(betas, log_weights, result.log_z0, result.unseen))
    return result


def hints_of(model: MRF, run: Plan | Estimate, threads: int) -> tuple[str, ...]:
    """Return remarks on the units of the model, and on an exact sum if it takes much less time than the run."""
    if model.has_terms:
        return ()
    chains = run.chains.count if isinstance(run, Plan) else run.chains
    return model.remarks + _exact_hint(model, chains * run.steps, threads)


def _exact_hint(model: MRF, chain_steps: int, threads: int) -> tuple[str, ...]:
    """Return a remark if an exact sum takes much less time than this many chain·steps, by their predicted times."""
    entries = model.n_edges if model.is_sparse else model.weights.size
    seconds = chain_steps * (2.0 * entries + 60.0 * model.n_features) / _OPERATIONS_PER_SECOND
    if seconds < _WORTH_A_HINT or model.n_variables > _LARGEST_HINTED:
        return ()
    try:
        exact = predicted(model, threads=threads, max_seconds=_MUCH_FASTER * seconds).seconds
    except ValueError:  # No exact method is fast enough.
        return ()
    return (f"an exact sum takes {duration(exact)}: mg.free_energy(model), marginalis free-energy",)


def recorded_steps(plan: Plan) -> NDArray[np.int64]:
    """Return all steps, or as many evenly spaced ones as `_RECORD_BYTES` of log-weights allow."""
    room = max(2, _RECORD_BYTES // (8 * plan.chains.count))
    return np.unique(np.linspace(1, plan.steps, min(room, plan.steps)).round().astype(np.int64))
