"""A base that knows the modes: a mixture of independent distributions of the sampled side.

One more hidden unit z with M states joins the path,

    P_β ∝ exp[(1−β)(a_z + B_z·v) + β(−E(v, h))],

so that P_0 is the mixture Σ_z exp(a_z + B_z·v) and at β = 1 z is free, which adds ln M to ln Z. It is summed out, as h
is. Fitted before the run, to states that other runs have ended in, so that Z stays unbiased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..checks import Array
from ..models.units import Categorical, Gaussian, TwoState, Units

_CLIP = 0.96  # means of spins stay within ± this, so that no component excludes a state
_ROUNDS = 60  # of expectation and maximisation, at most
_GAIN = 1e-3  # nats per row below which a round is the last


@dataclass(frozen=True, eq=False)
class Mixture:
    """Σ_z exp(a_z + B_z·v): `weights` a and `fields` B [component, feature], of the sampled side."""

    weights: Array
    fields: Array

    @property
    def components(self) -> int:
        """Number of components, M."""
        return len(self.weights)

    def log_z(self, units: Units) -> float:
        """Return ln Σ_z ∫ exp(a_z + B_z·v)."""
        return float(logsumexp(self.weights + units.log_normaliser(self.fields)))

    def logits(self, v: Array) -> Array:
        """Return a_z + B_z·v for every chain and component."""
        return self.weights + v @ self.fields.T

    def start(self, units: Units, choice: Array, uniforms: Array) -> Array:
        """Draw v from the mixture: a component by the uniforms `choice`, then the variables."""
        shares = np.cumsum(np.exp(_normalised(self.weights + units.log_normaliser(self.fields))))
        z = np.minimum(np.searchsorted(shares, choice * shares[-1], side="right"), self.components - 1)
        return units.draw(self.fields[z], uniforms)


def pick(logits: Array, u: Array) -> NDArray[np.int64]:
    """Draw a component for every chain: the first whose cumulative sum exceeds u times the sum of all."""
    below = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
    passed = below > (u * below[:, -1])[:, None]
    passed[:, -1] = True
    return np.argmax(passed, axis=1)


def fit_mixture(units: Units, rows: Array, components: int, share: float, seed: int) -> Mixture:
    """Fit a mixture to rows of the sampled side by expectation and maximisation, and keep a share of uniform."""
    rng = np.random.default_rng(seed)
    n = min(components, len(rows))
    centres = rows[rng.choice(len(rows), size=n, replace=False)]
    flat = rows.mean(axis=0)
    fields = _fields(units, 0.7 * centres + 0.3 * flat)
    weights = np.full(n, -math.log(n))
    last = -math.inf
    for _ in range(_ROUNDS):
        logs = rows @ fields.T + weights - units.log_normaliser(fields)
        total = logsumexp(logs, axis=1)
        belongs = np.exp(logs - total[:, None])
        sizes = belongs.sum(axis=0)
        kept = sizes > 1e-3
        belongs, sizes = belongs[:, kept], sizes[kept]
        fields = _fields(units, (belongs.T @ rows + 0.5 * flat) / (sizes[:, None] + 0.5))
        weights = np.log(sizes / sizes.sum())
        gain, last = float(total.mean()) - last, float(total.mean())
        if gain < _GAIN:
            break
    uniform = np.zeros((1, rows.shape[1]))
    fields = np.concatenate([uniform, fields])
    shares = np.concatenate([[math.log(share)], weights + math.log1p(-share)])
    return Mixture(shares - units.log_normaliser(fields), fields)


def _fields(units: Units, means: Array) -> Array:
    """Return the fields of features with these means, none of which excludes a state."""
    if isinstance(units, TwoState):
        spins = np.clip((means - units.offset) / units.scale, -_CLIP, _CLIP)
        return units.fields_of(units.offset + units.scale * spins)
    if isinstance(units, Categorical):
        counts = units.counts(means.shape[1])[units.owners(means.shape[1])]
        return units.fields_of(_CLIP * means + (1.0 - _CLIP) / counts)
    assert isinstance(units, Gaussian)
    return units.fields_of(means)


def _normalised(logs: Array) -> Array:
    return logs - logsumexp(logs)
