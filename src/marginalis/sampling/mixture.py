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

from ..checks import Array
from ..models.units import Categorical, Gaussian, TwoState, Units

_CLIP = 0.96  # means of spins stay within ± this, so that no component excludes a state
_ROUNDS = 20  # of expectation and maximisation, at most
_GAIN = 1e-3  # nats per row below which a round is the last
_BLOCK = 1 << 18  # products of a matrix product at a time: too few for a library to wake threads, which cost more


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
        return _log_sum(self.weights + units.log_normaliser(self.fields))

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


def fit_mixture(
    units: Units, rows: Array, components: int, share: float, seed: int, log_weights: Array | None = None
) -> Mixture:
    """Fit a mixture to rows of the sampled side by expectation and maximisation, and keep a share of uniform.

    `log_weights`: of the rows, if they do not count alike.
    """
    counts = np.ones(len(rows))
    if log_weights is not None:
        counts = np.exp(log_weights - log_weights.max())
    counts *= len(rows) / counts.sum()
    rows, counts = _distinct(rows, counts)
    rng = np.random.default_rng(seed)
    centres = rows[_spread_out(rows, counts, components, rng)]
    flat = counts @ rows / counts.sum()
    fields = _fields(units, 0.7 * centres + 0.3 * flat)
    weights = np.full(len(centres), -math.log(len(centres)))
    last = -math.inf
    for _ in range(_ROUNDS):
        logs = _product(rows, fields.T) + (weights - units.log_normaliser(fields))
        top = logs.max(axis=1, keepdims=True)
        belongs = np.exp(logs - top)
        total = belongs.sum(axis=1, keepdims=True)
        belongs *= counts[:, None] / total
        sizes = belongs.sum(axis=0)
        kept = sizes > 1e-3
        belongs, sizes = belongs[:, kept], sizes[kept]
        fields = _fields(units, (_product(belongs.T, rows) + 0.5 * flat) / (sizes[:, None] + 0.5))
        weights = np.log(sizes / sizes.sum())
        mean = float(counts @ (top + np.log(total))[:, 0]) / counts.sum()
        gain, last = mean - last, mean
        if gain < _GAIN:
            break
    uniform = np.zeros((1, rows.shape[1]))
    fields = np.concatenate([uniform, fields])
    shares = np.concatenate([[math.log(share)], weights + math.log1p(-share)])
    return Mixture(shares - units.log_normaliser(fields), fields)


def _spread_out(rows: Array, counts: Array, n: int, rng: np.random.Generator) -> list[int]:
    """Return n rows that lie far apart, each drawn by its squared distance from those before.

    D. Arthur and S. Vassilvitskii, k-means++: the advantages of careful seeding, SODA (2007).
    """
    chosen: list[int] = []
    distance = np.ones(len(rows))
    for _ in range(n):
        below = np.cumsum(counts * distance)
        chosen.append(int(min(np.searchsorted(below, rng.random() * below[-1], side="right"), len(rows) - 1)))
        gap = rows - rows[chosen[-1]]
        apart = np.einsum("ij,ij->i", gap, gap)
        distance = apart if len(chosen) == 1 else np.minimum(distance, apart)
        if not (counts * distance).any():
            break
    return chosen


def _product(a: Array, b: Array) -> Array:
    """Return a @ b by rows."""
    rows = max(1, _BLOCK // b.size)
    return np.concatenate([a[first : first + rows] @ b for first in range(0, len(a), rows)])


def _distinct(rows: Array, counts: Array) -> tuple[Array, Array]:
    """Return every row once, with the sum of its counts: cold models end in few states."""
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    _, at, which = np.unique(keys, return_index=True, return_inverse=True)
    return rows[at], np.bincount(which.ravel(), counts, len(at)).astype(np.float64)


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
    return logs - _log_sum(logs)


def _log_sum(logs: Array) -> float:
    """ln Σ exp: SciPy's takes longer than a short run does."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))
