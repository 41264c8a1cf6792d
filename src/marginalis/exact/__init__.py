"""Exact ln Z."""

from __future__ import annotations

import math

from ..models import BipartiteMRF, SpinForm
from ..parallel import Tick, cores
from ..progress import ticker
from .enumeration import enumerate_log_z

# One state of the enumerated side times one unit of the other, per thread; a cautious figure.
_PAIRS_PER_SECOND = 4e9


class ModelTooLarge(ValueError):
    """The exact sum would take too long; the message says how large it is and how long it would take."""


def exact_log_z(
    model: BipartiteMRF,
    *,
    threads: int | None = None,
    progress: bool | Tick = False,
    max_seconds: float = 3600.0,
) -> float:
    """Return ln Z by summing over all states of the smaller side, the other side summed out in closed form.

    Raises `ModelTooLarge` when that would take longer than `max_seconds`.
    """
    threads = cores(threads)
    exact_cost(model, threads=threads, max_seconds=max_seconds)
    form = model.spin_form
    assert form is not None
    if model.n_visible > model.n_hidden:
        form = SpinForm(form.weights.T, form.hidden_bias, form.visible_bias, form.constant)
    with ticker(progress, "exact sum") as tick:
        return float(form.constant) + enumerate_log_z(form, threads, tick)


def exact_cost(model: BipartiteMRF, *, threads: int | None = None, max_seconds: float = 3600.0) -> float:
    """Return about how many seconds `exact_log_z` would take, or raise its `ModelTooLarge`."""
    if model.spin_form is None:
        raise ValueError("exact_log_z serves spin and binary units only")
    threads = cores(threads)
    n, m = sorted((model.n_visible, model.n_hidden))
    seconds = math.exp2(n) * m / _PAIRS_PER_SECOND / threads if n < 1000 else math.inf
    if not seconds <= max_seconds:
        raise ModelTooLarge(
            f"the smaller side has {n} units: an exact sum over 2^{n} states x {m} units would take about "
            f"{_duration(seconds)} on {threads} thread{'s' * (threads > 1)} (limit {_duration(max_seconds)})"
        )
    return seconds


def _duration(seconds: float) -> str:
    if seconds > 1e15:
        return "longer than the age of the universe"
    for unit, size in (("years", 31557600.0), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s"
