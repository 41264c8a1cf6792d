"""Energies of given samples, and their pseudo-likelihood along the inverse temperature."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..checks import Array, dense
from ..models.data import split_rows, visible_table
from ..models.model import MRF

FEWEST_SAMPLES = 20  # With fewer samples neither errors nor tests are meaningful.
_EXPECTED = 5.0  # States that the model expects less often than this among the samples are counted together.
_FLAT = 1e-9  # If the information about β times β² falls below this, the pseudo-likelihood has no maximum.


class PseudoLikelihood(NamedTuple):
    """Maximum of the pseudo-likelihood."""

    beta: float
    stderr: float


class Divergence(NamedTuple):
    """Lower bound of a Kullback–Leibler divergence, its standard error, and where it comes from."""

    value: float
    stderr: float
    source: str


class EvaluatedSamples:
    """Samples of a model with their energies and likelihoods; energies are those at temperature 1."""

    def __init__(self, model: MRF, visible: Array, hidden: Array | None) -> None:
        hot = model if model.has_terms else replace(model, temperature=1.0)
        self.visible, self.hidden, self.model, self.nominal = visible, hidden, hot, 1.0 / model.temperature

    @classmethod
    def of(cls, model: MRF, samples: Any) -> EvaluatedSamples:
        """Return the checked samples, or raise a ValueError that describes what is wrong."""
        table = visible_table(model, samples, "samples")
        rows = np.asarray(dense(table), dtype=np.float64)
        visible, hidden = split_rows(model, rows, argument="samples")
        if hidden is None and not model.n_hidden:
            hidden = np.zeros((len(visible), 0))
        if len(visible) < FEWEST_SAMPLES:
            raise ValueError(
                f"there are {len(visible)} samples; at least {FEWEST_SAMPLES} are needed for an error of β"
            )
        if (rows == rows[0]).all():
            raise ValueError("samples are all the same state, which agrees with any low temperature")
        return cls(model, visible, hidden)

    def in_order(self) -> Array:
        """Return rows of all features in the caller's order."""
        assert self.hidden is not None
        return self.model.in_callers_order(self.visible, self.hidden)

    def energies(self, beta: float) -> tuple[Array, Array]:
        """Return the mean energy of every sample over hidden variables that are not given, at β, and its variance."""
        m = self.model.natural
        v, slope = self.visible, self.model.hidden_fields(self.visible)
        a = m.offset + self.model.visible_exponent(v)
        if self.hidden is not None:
            return -(a + (self.hidden * slope).sum(axis=1)), np.zeros(len(v))
        fields = beta * slope
        inner = (slope * m.hidden_units.response(fields, slope)).sum(axis=1)
        return -(a + (slope * m.hidden_units.mean(fields)).sum(axis=1)), inner

    def slopes(self, beta: float) -> tuple[Array, Array]:
        """Return the derivative of Σ ln P_β(x_i | the rest) by β for every sample, and minus the second derivative."""
        m, v, h = self.model.natural, self.visible, self.hidden
        assert h is not None
        on_v, on_h = self.model.visible_fields(v, h), self.model.hidden_fields(v)
        score, curvature = np.zeros(len(v)), np.zeros(len(v))
        for units, x, fields in ((m.visible_units, v, on_v), (m.hidden_units, h, on_h)):
            if x.shape[1]:
                score += (fields * (x - units.mean(beta * fields))).sum(axis=1)
                curvature += (fields * units.response(beta * fields, fields)).sum(axis=1)
        return score, curvature

    def pseudo_likelihood(self) -> PseudoLikelihood:
        """Return the maximum of the concave pseudo-likelihood, or infinity if it has none.

        There is no maximum if in nearly every sample each variable has the value that its neighbours favour.
        """
        information = float(self.slopes(0.0)[1].mean())
        if information == 0.0:
            raise ValueError("the model has neither fields nor couplings: every β fits all samples")
        low, high = -1.0 / math.sqrt(information), 1.0 / math.sqrt(information)
        while self.slopes(high)[0].sum() > 0.0:
            low, high = high, 2.0 * high
            if float(self.slopes(high)[1].mean()) * high**2 < _FLAT:
                return PseudoLikelihood(math.inf, math.inf)
        while self.slopes(low)[0].sum() < 0.0:
            low *= 2.0
            if float(self.slopes(low)[1].mean()) * low**2 < _FLAT:
                return PseudoLikelihood(-math.inf, math.inf)
        for _ in range(100):
            beta = 0.5 * (low + high)
            low, high = (beta, high) if self.slopes(beta)[0].sum() > 0.0 else (low, beta)
        score, curvature = self.slopes(beta)
        error = float(score.std(ddof=1)) / math.sqrt(len(score)) / max(float(curvature.mean()), 1e-300)
        return PseudoLikelihood(beta, error)

    def frequencies(self, beta: float, log_z: float, error: float) -> Divergence | None:
        """Return the divergence of the frequencies of states from their probabilities at β, without its mean under P_β.

        States that are too rare for their own frequency are counted as one, which only makes the divergence smaller.
        The result is None if all are; `error` is that of ln Z.
        """
        if self.hidden is None:
            return None
        rows = self.in_order()
        states, n = np.ascontiguousarray(rows.astype(np.int8)), len(rows)
        if not np.array_equal(states, rows):  # The values of a kind of unit that a user has defined may be any.
            return None
        _, first, which, counts = np.unique(
            states.view(f"V{states.shape[1]}").ravel(), return_index=True, return_inverse=True, return_counts=True
        )
        log_p = -beta * self.energies(beta)[0][first] - log_z
        cells = log_p > math.log(_EXPECTED / n)
        if not cells.any():
            return None
        rest = max(1.0 - float(np.exp(log_p[cells]).sum()), error, 1.0 / n)
        outside = 1.0 - float(counts[cells].sum()) / n
        log_ratio = np.where(cells, np.log(counts / n) - log_p, math.log(outside / rest) if outside > 0.0 else 0.0)
        per_sample = log_ratio[which]
        degrees = int(cells.sum()) - 1 + (outside > 0.0)
        spread = max(float(per_sample.std()) / math.sqrt(n), math.sqrt(0.5 * degrees) / n)
        value = float(per_sample.mean()) - 0.5 * degrees / n
        return Divergence(max(0.0, value), math.hypot(spread, error), "frequencies of states")
