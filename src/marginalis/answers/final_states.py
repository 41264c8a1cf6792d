"""The weighted states of the chains at the end of a run, and averages over them."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import Array
from ..engines.plan import Plan, make_plan
from ..engines.recorder import Recorder, the_states
from ..models.model import MRF
from ..options import PlanOptions, leaves_path_open
from ..planning.choose import Choice, fitted
from ..planning.pilots import plan_with_pilots
from ..planning.run_chosen import run_chosen
from ..random import JOINT, uniforms
from ..results.estimate import Estimate, run_plan
from ..running.session import Session

logger = logging.getLogger("marginalis")

MOVES = 10  # Default number of moves over which values are averaged.
_STATE_BYTES = 1 << 28  # Memory for stored states, in bytes.
_ROUNDING = 2.0**-48  # Rounding error of a mean, relative to the values.
_NUMBERS_AT_ONCE = 1 << 18  # Size of the temporary arrays of products.
# Means are doubtful if the effective number is a smaller fraction than this of all chains, or of all populations.
_LEAST, _LEAST_OF_POPULATIONS = 0.5, 0.7


@dataclass(frozen=True, eq=False)
class FinalStates:
    """States of the sampled side under P_K [move, chain, feature], their log-weights [move, chain], and the run."""

    plan: Plan
    estimate: Estimate
    model: MRF  # The model, arranged so that its visible side is the sampled one.
    visible: Array
    log_weights: Array

    @property
    def groups(self) -> int:
        """Number of independent chains, or of populations if chains are resampled."""
        return self.plan.chains.populations or self.plan.chains.count

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons to doubt weighted means, which are ratios and therefore biased if the weights are uneven."""
        share = self.estimate.ess / self.groups
        least = _LEAST_OF_POPULATIONS if self.plan.chains.populations else _LEAST
        if share >= least or self.groups == 1:
            return ()
        of = f"{self.groups} {self.estimate.ess_of}"
        return (f"the effective number is {share:.0%} of {of}: means and errors may be off; raise steps",)

    def fields(self, move: int) -> Array:
        """Return the fields of the summed-out side given the states after a move."""
        return self.model.hidden_fields(self.visible[move])

    def hidden(self, move: int) -> Array:
        """Draw the summed-out side from P(h|v), with the random numbers that AIS uses for its joint state."""
        natural, plan = self.model.natural, self.plan
        chains = plan.chains.numbers
        step = plan.steps - len(self.visible) + 1 + move
        return natural.hidden_units.draw(
            self.fields(move),
            uniforms(plan.chains.seed, chains, step, JOINT, self.model.n_hidden, plan.placement.draws),
        )

    def visible_means(self, move: int, hidden: Array) -> Array:
        """Return the mean of each visible feature given all other variables; it varies less than the feature."""
        return self.model.natural.visible_units.mean(self.visible_fields(move, hidden))

    def visible_fields(self, move: int, hidden: Array) -> Array:
        """Return the fields of the visible side given all other variables."""
        return self.model.visible_fields(self.visible[move], hidden)

    @cached_property
    def weights(self) -> Array:
        """Weights of all states, [move, chain], normalised to the sum 1."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return np.asarray(weights / weights.sum())

    def average(self, values: Array) -> tuple[Array, Array]:
        """Return the weighted mean of each row of values [number, move, chain], and its standard error."""
        return self._averages((values * self.weights).sum(axis=1), np.abs(values).max(axis=(1, 2)))

    def average_products(self, columns: Array, pairs: Any) -> tuple[Array, Array]:
        """Return means and errors of products of pairs of rows of columns [feature, move, chain]."""
        weighted, sizes = columns * self.weights, np.abs(columns).max(axis=(1, 2))
        means, errors = np.empty(len(pairs)), np.empty(len(pairs))
        step = max(1, _NUMBERS_AT_ONCE // columns.shape[2])
        for first in range(0, len(pairs), step):
            part = slice(first, first + step)
            a, b = pairs[part].T
            sums = sum(weighted[a, k] * columns[b, k] for k in range(columns.shape[1]))
            means[part], errors[part] = self._averages(sums, sizes[a] * sizes[b])
        return means, errors

    def _averages(self, sums: Any, sizes: Array) -> tuple[Array, Array]:
        """Return means and errors from weighted values [number, chain], which are at most `sizes`.

        Errors follow from the jackknife, which leaves out each chain, or population, in turn. They include the bias of
        the ratio of two sums that it finds.
        """
        n = self.groups
        own = self.weights.sum(axis=0).reshape(n, -1).sum(axis=1)
        sums = sums.reshape(len(sums), n, -1).sum(axis=2)
        mean = sums.sum(axis=1)
        if n == 1:
            return mean, np.full(len(mean), math.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            without = (mean[:, None] - sums) / (1.0 - own) - mean[:, None]
            off = without.mean(axis=1)
            squares = (n - 1.0) / n * ((without - off[:, None]) ** 2).sum(axis=1)
            error = np.maximum(np.sqrt(squares + ((n - 1.0) * off) ** 2), _ROUNDING * sizes)
        return mean, np.where(np.isfinite(error), error, math.inf)

    @property
    def once(self) -> float:
        """One over the effective number of chains, in which the chains of a population count separately."""
        last = self.weights[-1] / self.weights[-1].sum()
        return float(last @ last)

    def least_errors(self, own: Array, rows: Array, pairs: Any, values: Array) -> Array:
        """Return the part of the errors of products that follows from the variance of each sampled variable.

        The variance given all other variables is known, even if the variable has the same state in all chains. `own`
        are the means given all other variables, and `values` are the ends of the ranges of the features.
        """
        at, _ = self.model.callers_features()
        low, high = values[at].T[:, :, None, None]
        alone = np.zeros(len(own))
        alone[at] = np.nan_to_num(((high - own[at]) * (own[at] - low) * self.weights).sum(axis=(1, 2)))
        squares = (rows**2 * self.weights).sum(axis=(1, 2))
        a, b = pairs.T
        return np.asarray(np.sqrt((alone[a] * squares[b] + alone[b] * squares[a]) * self.once / own.shape[1]))

    def mean_fields(self) -> tuple[Array, Array]:
        """Return the mean fields of both sides, each given all other variables."""
        natural = self.model.natural
        visible, hidden = np.zeros_like(natural.visible_bias), np.zeros_like(natural.hidden_bias)
        for move, weights in enumerate(self.weights):
            visible += weights @ self.visible_fields(move, self.hidden(move))
            hidden += weights @ self.fields(move)
        return visible, hidden


def final_states(model: MRF, moves: int | None, session: Session, given: PlanOptions) -> FinalStates:
    """Run a plan for the whole model, followed by some moves under P_K over which values are averaged.

    If the options leave the path open, it is chosen and checked by a second path, as for an estimate.
    """
    if not leaves_path_open(given):
        return _run(plan_with_pilots(model, session, keep_whole=True, **given), moves, session)
    choice = Choice(make_plan(model, keep_whole=True, **given), session)

    def run(plan: Plan) -> FinalStates:
        return _run(fitted(plan, session), moves, session)

    found, notes = run_chosen(choice, choice.choose(), run, lambda x: x.estimate.weights)
    return replace(found, estimate=replace(found.estimate, notes=found.estimate.notes + notes))


def _run(plan: Plan, moves: int | None, session: Session) -> FinalStates:
    model = plan.path.end
    width = len(model.visible_bias)
    if moves is None:
        moves = min(MOVES, max(1, _STATE_BYTES // (8 * plan.chains.count * model.n_features)))
    last = plan.steps
    plan = plan.with_steps(np.append(plan.betas, np.ones(moves - 1)))
    recorder = Recorder(np.arange(last, last + moves), plan.chains.count, the_states, width)
    estimate = run_plan(plan, session, recorder)
    return FinalStates(plan, estimate, model, recorder.values, recorder.log_weights)
