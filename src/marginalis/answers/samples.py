"""Samples of a whole model: exact and independent if possible, otherwise resampled from weighted chains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from ..checks import Array, whole, yes_or_no
from ..display.card import Displayed
from ..exact.sampling import sample_visible
from ..models.layered import as_model
from ..models.model import MRF
from ..options import DEFAULT_CHAINS, RunOptions, filled_in, plan_options, takes_options
from ..random import TARGET, uniforms
from ..results.written import data_frame
from ..running.session import open_session
from ..statistics.confidence import relative_weights
from ..statistics.resampling import systematic
from .features import Features
from .final_states import FinalStates, final_states

_EXACT_SECONDS = 30.0  # Exact sampling is not tried if it is predicted to take longer.


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Displayed):
    """States of all variables, with one row of features in the caller's order per sample.

    `source` is the exact method, or ``"annealing"``. In the latter case the rows are chosen from weighted chains: they
    follow the model only approximately, and some may be equal.
    """

    rows: Array  #: States, a row of all features for each sample.
    is_exact: bool  #: Whether the samples are exact and independent.
    source: str  #: The exact method, or ``"annealing"``.
    warnings: tuple[str, ...] = ()  #: Reasons to doubt the samples, as sentences.
    labels: tuple[Any, ...] = ()  #: Names of the columns: the label of a variable, for one-hot features with its state.

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.rows)

    def to_dataframe(self) -> Any:
        """Return the rows as a pandas DataFrame with the names of the features as columns. Needs pandas."""
        return data_frame(self.rows, columns=list(self.labels) if self.labels else None)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return the rows, so that samples are accepted where an array is."""
        return self.rows if dtype is None else self.rows.astype(dtype, copy=False)

    def __str__(self) -> str:
        n, features = self.rows.shape
        lines = [f"{n} sample{'s' * (n != 1)} of {features} features   ({'exact, by ' * self.is_exact}{self.source})"]
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])


@takes_options(leave_out=("first_chain",))
def sample(model: Any, n: int, *, exact: bool | None = None, **options: Unpack[RunOptions]) -> Samples:
    """Draw n states of the whole model.

    The samples are exact and independent if a side can be enumerated, the graph is sparse, or all variables are
    Gaussian. Otherwise chains are annealed, at least n and at least 1000 unless `chains` is given, and n of their
    states are chosen in proportion to their weights.

    Parameters
    ----------
    model
        A model, or anything that `as_model` accepts.
    n
        Number of samples.
    exact
        True: exact samples, or an error if there are none. False: samples of annealed chains.

    Returns
    -------
    Samples
        `rows` has a row per sample with the values of all features; `is_exact` says how they were drawn.
    """
    count = whole(n, "n", 1, 2**32)
    yes_or_no(exact, "exact", optional=True)
    chosen = filled_in(options, leave_out=("first_chain",))
    seed = whole(chosen["seed"], "seed", 0, 2**64 - 1)
    model = as_model(model)
    if exact is not False or not model.n_edges:
        found = _exact(model, count, seed)
        if found is not None:
            return found
        if exact:
            raise ValueError("the model cannot be sampled exactly: leave out exact for annealed chains")
    if chosen["chains"] is None:
        chosen["chains"] = max(count, DEFAULT_CHAINS)
    with open_session(chosen, "samples", model) as session:
        states = final_states(model, 1, session, plan_options(chosen))
    return _chosen(states, count, seed)


def _exact(model: MRF, n: int, seed: int) -> Samples | None:
    natural, chains = model.natural, np.arange(n, dtype=np.uint64)
    found = sample_visible(model, seed, chains, max_seconds=_EXACT_SECONDS)
    if found is None and not model.n_edges:
        found = np.empty((n, 0)), "independence"
        if model.n_visible:
            fields = np.broadcast_to(natural.visible_bias, (n, len(natural.visible_bias)))
            u = uniforms(seed, chains, 0, TARGET, model.n_visible)
            found = natural.visible_units.draw(fields, u), "independence"
    if found is None:
        return None
    visible, way = found
    hidden = np.empty((n, 0))
    if model.n_hidden:
        u = uniforms(seed, chains, 1, TARGET, model.n_hidden)
        hidden = natural.hidden_units.draw(model.hidden_fields(visible), u)
    return Samples(model.in_callers_order(visible, hidden), True, way, labels=_labels(model))


def _chosen(states: FinalStates, n: int, seed: int) -> Samples:
    """Choose chains in proportion to their weights, in random order."""
    weights = relative_weights(states.log_weights[0])
    u = uniforms(seed, np.arange(n, dtype=np.uint64), 2, TARGET, 2)
    found = systematic(weights[None], u[:1, :1], n)[0][np.argsort(u[:, 1], kind="stable")]
    rows = states.model.in_callers_order(states.visible[0], states.hidden(0))[found]
    note = (
        f"approximate: {n} states chosen from {len(weights)} weighted chains "
        f"(effective number {states.estimate.ess:.1f}{' populations' if states.plan.chains.populations else ''}), "
        f"{len(np.unique(found))} of them different"
    )
    notes = (note, *states.estimate.warnings, *states.doubts)
    return Samples(rows, False, "annealing", notes, _labels(states.plan.path.model))


def _labels(model: MRF) -> tuple[Any, ...]:
    what = Features.of(model)
    return tuple(what.name(k) for k in range(model.n_features))
