"""Bases that are mixtures of independent distributions, fitted to the modes of the model.

The path has one more variable z with M states,

    P_β ∝ exp[c_z + (1−β)(a_z + B_z·v + C_z·h) + β(−E(v, h))],

so that P_0 is the mixture Σ_z exp(c_z + a_z + B_z·v + C_z·h). At β = 1 z is free, which adds ln Σ_z exp(c_z) to ln Z,
or ln M where c = 0. Without fields C on the summed-out side h, z and h are independent given v, and z is summed out
too; c is zero there. With fields C, z is one more sampled variable: a sweep draws h given (v, z), z given (v, h), and v
given (h, z). Then c_z are the logarithms of the shares: if they vanished along the path, a component of a small share
would gain weight until β = 1, which only the few chains that leave its states could bring. Mixtures are fitted before
the run to the final states of other runs, so that Ẑ stays unbiased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import Array
from ..models.units import Units

# The means of spins stay within ± this value, so that no component excludes a state.
_CLIP = 0.96
# Maximal number of rounds of expectation and maximisation.
_ROUNDS = 20
# The fit ends if a round raises the log-likelihood per row by less than this, in nats.
_GAIN = 1e-3
# Rows and columns of the blocks of a matrix product, so small that the library starts no threads.
_BLOCK = 64


@dataclass(frozen=True, eq=False)
class Mixture:
    """Σ_z exp(c_z + a_z + B_z·v + C_z·h): `kept` c, `weights` a, `fields` B of v and `hidden` C of h.

    Fields are [component, feature]; without `hidden` the component is summed out, otherwise it is drawn.
    """

    weights: Array
    fields: Array
    hidden: Array | None = None
    kept: Array | None = None  # Zeros if it is None, as without `hidden`.
    drawn_last: bool = False  # A sweep draws the component after the sampled side, as the reverse process does.

    @property
    def components(self) -> int:
        """Number of components, M."""
        return len(self.weights)

    @property
    def is_drawn(self) -> bool:
        """Whether the component is drawn along the path and not summed out."""
        return self.hidden is not None

    @property
    def log_kept(self) -> Array:
        """The exponents c_z, which remain along the path."""
        return np.zeros(self.components) if self.kept is None else self.kept

    @property
    def log_of_end(self) -> float:
        """What the component adds to ln Z at β = 1, where it is free: ln Σ_z exp(c_z), or ln M."""
        return math.log(self.components) if self.kept is None else _log_sum(self.kept)

    def log_shares(self, units: Units, hidden_units: Units | None = None) -> Array:
        """Return the logarithm of the contribution of each component to Z_0."""
        logs = self.weights + self.log_kept + units.log_normaliser(self.fields)
        if self.hidden is None:
            return logs
        assert hidden_units is not None
        return logs + hidden_units.log_normaliser(self.hidden)

    def log_z(self, units: Units, hidden_units: Units | None = None) -> float:
        """Return ln Σ_z ∫ exp(a_z + B_z·v + C_z·h); h is left out if it has no fields."""
        return _log_sum(self.log_shares(units, hidden_units))

    def logits(self, v: Array) -> Array:
        """Return a_z + B_z·v for every chain and component."""
        return self.weights + v @ self.fields.T

    def start(self, units: Units, hidden_units: Units, choice: Array) -> NDArray[np.int64]:
        """Draw a component for every chain from the uniforms `choice`."""
        shares = np.cumsum(np.exp(_normalised(self.log_shares(units, hidden_units))))
        z = np.searchsorted(shares, choice * shares[-1], side="right")
        return np.minimum(z, self.components - 1)

    def with_shares(self, logs: Array, units: tuple[Units, Units]) -> Mixture:
        """Return the mixture whose components have these logarithms of their contributions to Z_0."""
        if self.is_drawn:
            own = self.log_shares(*units) - self.weights - self.log_kept
            return replace(self, weights=-own, kept=_normalised(logs))
        return replace(self, weights=logs - (self.log_shares(*units) - self.weights))

    def reversed(self) -> Mixture:
        """Return the mixture for the reverse process, whose sweep draws the component at the other end."""
        return replace(self, drawn_last=not self.drawn_last) if self.is_drawn else self

    def reordered(self, visible: Any = slice(None), hidden: Any = slice(None)) -> Mixture:
        """Return the mixture with the features of the sampled and the summed-out side in another order."""
        other = None if self.hidden is None else self.hidden[:, hidden]
        return replace(self, fields=self.fields[:, visible], hidden=other)


def pick(logits: Array, u: Array) -> NDArray[np.int64]:
    """Draw a component for every chain: the first whose cumulative sum exceeds u times the total."""
    below = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
    passed = below > (u * below[:, -1])[:, None]
    passed[:, -1] = True
    return np.argmax(passed, axis=1)


def fit_mixture(
    units: Units, rows: Array, components: int, share: float, seed: int, log_weights: Array | None = None
) -> Mixture:
    """Fit a mixture to rows of the sampled side by expectation and maximisation, and add a uniform component.

    `log_weights` are the log-weights of the rows; by default all rows have the same weight.
    """
    fitted, weights = _clusters((units,), [rows.shape[1]], rows, components, seed, log_weights, _CLIP, 0.5)
    fields = np.concatenate([np.zeros((1, rows.shape[1])), fitted])
    shares = np.concatenate([[math.log(share)], weights + math.log1p(-share)])
    return Mixture(shares - units.log_normaliser(fields), fields)


def fit_both_sides(
    units: tuple[Units, Units],
    rows: tuple[Array, Array],
    log_weights: Array,
    components: int,
    kept: Mixture,
    share: float,
    seed: int,
    *,
    clip: float,
    shrinkage: float,
) -> Mixture:
    """Fit a mixture with fields on both sides to states of the sampled side and the means of the other side given them.

    The components of `kept` come first; together they have this share, in the same proportions as before. The means of
    the fitted components stay within `clip` of the range of their units, and each component is shrunk towards the mean
    of all rows with the weight of `shrinkage` rows.
    """
    widths, both = [x.shape[1] for x in rows], np.concatenate(rows, axis=1)
    fitted, weights = _clusters(units, widths, both, components, seed, log_weights, clip, shrinkage)
    n = rows[0].shape[1]
    assert kept.hidden is not None
    fields, hidden = np.concatenate([kept.fields, fitted[:, :n]]), np.concatenate([kept.hidden, fitted[:, n:]])
    shares = np.concatenate([_normalised(kept.log_shares(*units)) + math.log(share), weights + math.log1p(-share)])
    return Mixture(np.zeros(len(fields)), fields, hidden).with_shares(shares, units)


def _clusters(
    units: tuple[Units, ...],
    widths: list[int],
    rows: Array,
    components: int,
    seed: int,
    log_weights: Array | None,
    clip: float,
    shrinkage: float,
) -> tuple[Array, Array]:
    """Return the fields of clusters of rows (the sides are concatenated) and the logarithms of their shares."""
    counts = np.ones(len(rows))
    if log_weights is not None:
        counts = np.exp(log_weights - log_weights.max())
    counts *= len(rows) / counts.sum()
    rows, counts = _distinct(rows, counts)
    rng = np.random.default_rng(seed)
    centres = rows[_spread_out(rows, counts, components, rng)]
    flat = counts @ rows / counts.sum()
    sides = [slice(first, last) for first, last in pairwise(np.cumsum([0, *widths]))]

    def fields_of(means: Array) -> Array:
        parts = zip(units, sides, strict=True)
        return np.concatenate([of.fields_of(of.inside(means[:, at], clip)) for of, at in parts], axis=1)

    def log_normaliser(fields: Array) -> Array:
        logs = [of.log_normaliser(fields[:, at]) for of, at in zip(units, sides, strict=True)]
        return np.asarray(sum(logs))

    fields = fields_of(0.7 * centres + 0.3 * flat)
    weights = np.full(len(centres), -math.log(len(centres)))
    last = -math.inf
    for _ in range(_ROUNDS):
        logs = _product(rows, fields.T) + (weights - log_normaliser(fields))
        top = logs.max(axis=1, keepdims=True)
        belongs = np.exp(logs - top)
        total = belongs.sum(axis=1, keepdims=True)
        belongs *= counts[:, None] / total
        sizes = belongs.sum(axis=0)
        kept = sizes > 1e-3
        belongs, sizes = belongs[:, kept], sizes[kept]
        fields = fields_of((_product(belongs.T, rows) + shrinkage * flat) / (sizes[:, None] + shrinkage))
        weights = np.log(sizes / sizes.sum())
        mean = float(counts @ (top + np.log(total))[:, 0]) / counts.sum()
        gain, last = mean - last, mean
        if gain < _GAIN:
            break
    return fields, weights


def _spread_out(rows: Array, counts: Array, n: int, rng: np.random.Generator) -> list[int]:
    """Return the numbers of n distant rows, each drawn in proportion to its squared distance from the earlier ones.

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
    """Return a @ b, computed in blocks."""
    product = np.zeros((len(a), b.shape[1]))
    for k in range(0, len(b), _BLOCK):
        for j in range(0, b.shape[1], _BLOCK):
            block = np.ascontiguousarray(b[k : k + _BLOCK, j : j + _BLOCK])
            for i in range(0, len(a), _BLOCK):
                product[i : i + _BLOCK, j : j + _BLOCK] += a[i : i + _BLOCK, k : k + _BLOCK] @ block
    return product


def _distinct(rows: Array, counts: Array) -> tuple[Array, Array]:
    """Return every row once, with the sum of its counts; chains of cold models end in few distinct states."""
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    _, at, which = np.unique(keys, return_index=True, return_inverse=True)
    return rows[at], np.bincount(which.ravel(), counts, len(at)).astype(np.float64)


def _normalised(logs: Array) -> Array:
    return logs - _log_sum(logs)


def _log_sum(logs: Array) -> float:
    """Return ln Σ exp; SciPy's function takes longer than a short run."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))
