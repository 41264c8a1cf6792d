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
from ..options import PlanOptions
from ..planning.choose import Choice, fitted, is_left_to_us
from ..planning.pilots import plan_with_pilots
from ..random import JOINT, uniforms
from ..running.session import Session
from .estimate import Estimate, run_plan

logger = logging.getLogger("marginalis")

MOVES = 10
_STATE_BYTES = 1 << 28
_ROUNDING = 2.0**-48  # of the values, in a mean
_NUMBERS_AT_ONCE = 1 << 18
_LEAST, _LEAST_OF_POPULATIONS = 0.5, 0.7  # effective parts of all chains that make no doubt


@dataclass(frozen=True, eq=False)
class FinalStates:
    """States of the sampled side under P_K [move, chain, feature] with log-weights [move, chain], and their run."""

    plan: Plan
    estimate: Estimate
    model: MRF  # its visible side is the sampled one
    visible: Array
    log_weights: Array

    @property
    def groups(self) -> int:
        """Number of independent chains, or of populations where they were resampled."""
        return self.plan.chains.populations or self.plan.chains.count

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is wrong with the weights for a weighted mean, which is a ratio and biased where they are uneven."""
        share = self.estimate.ess / self.groups
        least = _LEAST_OF_POPULATIONS if self.plan.chains.populations else _LEAST
        if share >= least or self.groups == 1:
            return ()
        of = f"{self.groups} {self.estimate.ess_of}"
        return (f"the effective number is {share:.0%} of {of}: means and errors may be off; raise steps",)

    def fields(self, move: int) -> Array:
        """Return the fields of the summed-out side given the states after a move."""
        natural = self.model.natural
        return natural.hidden_bias + self.visible[move] @ natural.weights

    def hidden(self, move: int) -> Array:
        """Draw the summed-out side from P(h|v): the h of the joint state that AIS would go on from."""
        natural, plan = self.model.natural, self.plan
        chains = plan.chains.numbers
        step = plan.steps - len(self.visible) + 1 + move
        return natural.hidden_units.draw(
            self.fields(move),
            uniforms(plan.chains.seed, chains, step, JOINT, self.model.n_hidden, plan.placement.draws),
        )

    def visible_means(self, move: int, hidden: Array) -> Array:
        """Mean of each visible feature given all other variables, which varies less than the feature does."""
        return self.model.natural.visible_units.mean(self.visible_fields(move, hidden))

    def visible_fields(self, move: int, hidden: Array) -> Array:
        """Return the fields of the visible side given all other variables."""
        natural = self.model.natural
        fields = natural.visible_bias + hidden @ natural.weights.T
        return fields if natural.lateral is None else fields + self.visible[move] @ natural.lateral

    def in_order(self, visible: Array, hidden: Array) -> Array:
        """Put rows of both sides in the caller's order."""
        at_v, at_h = self.model.callers_features()
        rows = np.empty((len(visible), self.model.n_features))
        rows[:, at_v], rows[:, at_h] = visible, hidden
        return rows

    @cached_property
    def weights(self) -> Array:
        """Weights of all states, [move, chain], which add up to 1."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return np.asarray(weights / weights.sum())

    def average(self, values: Array) -> tuple[Array, Array]:
        """Weighted mean of each row of values [number, move, chain], and its standard error."""
        return self._averages((values * self.weights).sum(axis=1), np.abs(values).max(axis=(1, 2)))

    def average_products(self, columns: Array, pairs: Any) -> tuple[Array, Array]:
        """Average products of pairs of rows of columns [feature, move, chain], some pairs at a time."""
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

        By the jackknife: the mean without each chain, or population, in turn. What it finds of bias, as the ratio of
        two sums has it, counts as an error, too.
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
        """One over the effective number of chains, those of a population counted one by one."""
        last = self.weights[-1] / self.weights[-1].sum()
        return float(last @ last)

    def least_errors(self, own: Array, rows: Array, pairs: Any, values: Array) -> Array:
        """Return the part of the errors of products that comes from each sampled variable alone.

        Given all others its variance is known, whether or not the chains show it: one that hardly ever leaves its state
        would seem never to do so. `own` are means given all others, and `values` the ends of the range of features.
        """
        at, _ = self.model.callers_features()
        low, high = values[at].T[:, :, None, None]
        alone = np.zeros(len(own))
        alone[at] = np.nan_to_num(((high - own[at]) * (own[at] - low) * self.weights).sum(axis=(1, 2)))
        squares = (rows**2 * self.weights).sum(axis=(1, 2))
        a, b = pairs.T
        return np.asarray(np.sqrt((alone[a] * squares[b] + alone[b] * squares[a]) * self.once / own.shape[1]))

    def mean_fields(self) -> tuple[Array, Array]:
        """Return the mean fields of both sides, each given the other variables."""
        natural = self.model.natural
        visible, hidden = np.zeros_like(natural.visible_bias), np.zeros_like(natural.hidden_bias)
        for move, weights in enumerate(self.weights):
            visible += weights @ self.visible_fields(move, self.hidden(move))
            hidden += weights @ self.fields(move)
        return visible, hidden


def final_states(model: MRF, moves: int | None, session: Session, given: PlanOptions) -> FinalStates:
    """Run a plan for the whole model, and some moves under P_K after it, to average over.

    Where the path is left open it is chosen, and a second opinion asked for, as for an estimate.
    """
    if not is_left_to_us(given):
        return _run(plan_with_pilots(model, session, keep_whole=True, **given), moves, session)
    panel = Choice(make_plan(model, keep_whole=True, **given), session)
    plan = panel.choose()
    found = _run(fitted(plan, session), moves, session)
    better = panel.another(found.estimate, plan)
    if better is not None:
        found = _run(fitted(better, session), moves, session)
    return replace(found, estimate=panel.noted(found.estimate))


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
