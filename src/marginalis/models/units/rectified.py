"""Rectified units: real variables whose distribution is a part of a normal distribution on either side of zero.

A side of zero is described by α = −a/√γ, where a is the slope of −E at zero in the direction away from zero. With
x ≥ 0 in units of 1/√γ the density is exp(−αx − x²/2). Log-normalisers and moments are computed from erfcx and from the
continued fraction of the normal tail, which are accurate for any α.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, expit, ndtr, ndtri

from ...checks import Array, frozen, real_array, shown
from .kind import Units

# Least α at which the continued fraction is used.
_FAR = 4.0
# Number of terms of the continued fraction; more terms change it by less than 1e-16.
_TERMS = 60
# Number of steps of Newton's method after which a draw is accurate to machine precision.
_NEWTON = 4
# Number of bisections that find fields from means.
_BISECTIONS = 200
# √(2/π), the factor between 1/erfcx and the hazard of the normal tail.
_SCALE_OF_TAIL = math.sqrt(2.0 / math.pi)


@dataclass(frozen=True)
class Rectified(Units):
    """A real variable h that adds −γ₊h²/2 + θ₊h to the exponent for h ≥ 0, and −γ₋h²/2 + θ₋h for h < 0.

    Each parameter is one number for all variables or one per variable. With γ₋ = ∞ there is no negative side, and the
    unit is a ReLU. The field of a variable is added to both θ.
    """

    gamma_plus: tuple[float, ...]
    gamma_minus: tuple[float, ...]
    theta_plus: tuple[float, ...]
    theta_minus: tuple[float, ...]

    @cached_property
    def is_nonnegative(self) -> bool:  # type: ignore[override]
        """Whether all variables are 0 or larger."""
        return bool(np.isinf(self.halves[1]).all())

    @property
    def sum_cost(self) -> float:  # type: ignore[override]
        """Measured on one machine."""
        return 1.6 if self.is_nonnegative else 3.2

    @property
    def name(self) -> str:
        return "relu" if self.is_nonnegative else "drelu"

    @property
    def noun(self) -> tuple[str, str]:
        return "ReLU unit" if self.is_nonnegative else "dReLU unit", ""

    @property
    def parameters(self) -> dict[str, Array]:
        if self.is_nonnegative and not np.any(self.theta_plus):
            return {"gamma": self.halves[0]}
        return dict(zip(PARAMETERS, self.halves, strict=True))

    @cached_property
    def halves(self) -> tuple[Array, Array, Array, Array]:
        """The four parameters as arrays."""
        both = self.gamma_plus, self.gamma_minus, self.theta_plus, self.theta_minus
        first, second, third, fourth = (frozen(np.array(x, dtype=np.float64)) for x in both)
        return first, second, third, fourth

    def __reduce__(self) -> tuple[type[Rectified], tuple[tuple[float, ...], ...]]:
        """Build copies and unpickled values anew, since unpickled arrays would be writable."""
        return Rectified, (self.gamma_plus, self.gamma_minus, self.theta_plus, self.theta_minus)

    @property
    def curvatures(self) -> Array:
        return np.minimum(*self.halves[:2])

    def take(self, variables: NDArray[np.int64]) -> Rectified:
        return Rectified(*(_tuple(x if len(x) == 1 else x[variables]) for x in self.halves))

    def joined(self, other: Self, features: tuple[int, int], order: NDArray[np.int64]) -> Rectified:
        pairs = zip(self.halves, other.halves, strict=True)
        both = (np.concatenate([np.broadcast_to(x, n) for x, n in zip(p, features, strict=True)]) for p in pairs)
        return Rectified(*(_tuple(x[order]) for x in both))

    def check(self, features: int, argument: str) -> None:
        for name, x in zip(PARAMETERS, self.halves, strict=True):
            if len(x) not in (1, features):
                name = "gamma" if self.is_nonnegative else name
                raise ValueError(f"{argument}: {name} has length {len(x)}; there are {features} variables")
            ends = np.isinf(x) & (x > 0.0) if name == "gamma_minus" else False
            if not (np.isfinite(x) | ends).all() or (name.startswith("gamma") and (x <= 0.0).any()):
                raise ValueError(f"{argument}: {name} must be {'positive and ' * name.startswith('gamma')}finite")

    def at_temperature(self, temperature: float) -> Rectified:
        return Rectified(*(_tuple(x / temperature) for x in self.halves))

    def log_normaliser(self, fields: Array) -> Array:
        gamma_plus, gamma_minus, theta_plus, theta_minus = self.halves
        exponent, factor = _scaled(fields + theta_plus, gamma_plus)
        if not self.is_nonnegative:  # The larger exponent is taken out of the sum.
            other, share = _scaled(-(fields + theta_minus), gamma_minus)
            exponent, rest = np.maximum(exponent, other), exponent - other
            factor = factor * np.exp(np.minimum(rest, 0.0)) + share * np.exp(-np.maximum(rest, 0.0))
        constant = 0.5 * math.log(math.pi / 2.0) * fields.shape[1]
        return np.asarray((exponent + np.log(factor)).sum(axis=1) + constant)

    def draw(self, fields: Array, uniforms: Array) -> Array:
        """Draw by inversion of the cumulative distribution, which starts with the negative side."""
        plus, minus = self._sides(fields)
        is_minus = uniforms < expit(minus.log_z - plus.log_z)
        gap = np.where(is_minus, plus.log_z - minus.log_z, minus.log_z - plus.log_z)
        alpha, width = (np.where(is_minus, y, x) for x, y in ((plus.alpha, minus.alpha), (plus.width, minus.width)))
        t = -np.log(np.where(is_minus, uniforms, 1.0 - uniforms)) - np.logaddexp(0.0, gap)
        h = width * quantile(alpha, np.maximum(t, 0.0))
        return np.where(is_minus, -h, h)

    def mean(self, fields: Array) -> Array:
        plus, minus = self._sides(fields)
        p, q = expit(plus.log_z - minus.log_z), expit(minus.log_z - plus.log_z)
        return np.asarray(p * _moments(plus)[0] - q * _moments(minus)[0])

    def response(self, fields: Array, change: Array) -> Array:
        plus, minus = self._sides(fields)
        p, q = expit(plus.log_z - minus.log_z), expit(minus.log_z - plus.log_z)
        (up, spread_up), (down, spread_down) = _moments(plus), _moments(minus)
        return np.asarray((p * spread_up + q * spread_down + p * q * (up + down) ** 2) * change)

    def fields_of(self, mean: Array) -> Array:
        """Return the fields with these means, by bisection; −∞ for means that no field gives."""
        mean = np.asarray(mean, dtype=np.float64)
        rows = np.atleast_2d(mean)
        low, high = (np.full(rows.shape, sign) for sign in (-1.0, 1.0))
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(60):
                low = np.where(self.mean(low) > rows, 4.0 * low, low)
                high = np.where(self.mean(high) < rows, 4.0 * high, high)
            for _ in range(_BISECTIONS):
                middle = 0.5 * (low + high)
                below = self.mean(middle) < rows
                low, high = np.where(below, middle, low), np.where(below, high, middle)
        fields = np.where(np.isinf(self.halves[1]) & (rows <= 0.0), -np.inf, 0.5 * (low + high))
        return fields.reshape(mean.shape)

    def inside(self, means: Array, share: float) -> Array:
        return share * means + (1.0 - share) * self.mean(np.zeros_like(means))

    def allows(self, rows: Array) -> tuple[NDArray[np.bool_], str]:
        finite = np.isfinite(rows)
        if self.is_nonnegative:
            return finite & (rows >= 0.0), "ReLU units are 0 or larger"
        return finite, "dReLU units are finite numbers"

    def own_terms(self, rows: Array) -> Array:
        gamma_plus, gamma_minus, theta_plus, theta_minus = self.halves
        up, down = np.maximum(rows, 0.0), np.minimum(rows, 0.0)
        squares = gamma_plus * up * up + np.where(np.isinf(gamma_minus), 0.0, gamma_minus) * down * down
        terms = theta_plus * up + theta_minus * down - 0.5 * squares
        return np.asarray(terms.sum(axis=1))

    def exponents(self, fields: Array) -> tuple[Array, Array]:
        plus, minus = self._sides(fields)
        p, q = expit(plus.log_z - minus.log_z), expit(minus.log_z - plus.log_z)
        (up, spread_up), (down, spread_down) = _moments_of_exponent(plus), _moments_of_exponent(minus)
        variance = p * spread_up + q * spread_down + p * q * (up - down) ** 2
        return (p * up + q * down).sum(axis=1), variance.sum(axis=1)

    def size(self, fields: Array) -> float:
        slopes = np.abs(fields) + np.maximum(np.abs(self.halves[2]), np.abs(self.halves[3]))
        return float((0.5 * slopes**2 / self.curvatures + np.abs(np.log(self.curvatures)) + 1.0).sum())

    def largest_terms(self, fields: Array) -> Array:
        slopes = fields + np.maximum(np.abs(self.halves[2]), np.abs(self.halves[3]))
        return np.maximum(slopes, slopes**2 / self.curvatures)

    def _sides(self, fields: Array) -> tuple[_Side, _Side]:
        """Return both sides of all variables under these fields."""
        gamma_plus, gamma_minus, theta_plus, theta_minus = self.halves
        return _side(fields + theta_plus, gamma_plus), _side(-(fields + theta_minus), gamma_minus)


PARAMETERS = "gamma_plus", "gamma_minus", "theta_plus", "theta_minus"
# The names of the kinds in files.
RECTIFIED = "relu", "drelu"


def ReLU(gamma: ArrayLike = 1.0) -> Rectified:
    """Return the kind of units h ≥ 0 that add −γh²/2 to the exponent, for `units` of `rbm`.

    Parameters
    ----------
    gamma
        γ > 0, one number for all units or one per unit.
    """
    return Rectified(_checked(gamma, "gamma"), (math.inf,), (0.0,), (0.0,))


def dReLU(
    gamma_plus: ArrayLike = 1.0,
    gamma_minus: ArrayLike = 1.0,
    theta_plus: ArrayLike = 0.0,
    theta_minus: ArrayLike = 0.0,
) -> Rectified:
    """Return the kind of real units that add −γ₊h²/2 + θ₊h for h ≥ 0 and −γ₋h²/2 + θ₋h for h < 0, for `units` of `rbm`.

    Each parameter is one number for all units or one per unit.

    Parameters
    ----------
    gamma_plus
        γ₊ > 0.
    gamma_minus
        γ₋ > 0.
    theta_plus
        θ₊, to which the bias of a unit is added.
    theta_minus
        θ₋, to which the bias of a unit is added.
    """
    given = gamma_plus, gamma_minus, theta_plus, theta_minus
    return Rectified(*(_checked(x, name) for x, name in zip(given, PARAMETERS, strict=True)))


def _checked(value: ArrayLike, name: str) -> tuple[float, ...]:
    numbers = real_array(np.atleast_1d(value) if np.ndim(value) == 0 else value, name, 1)
    if not len(numbers) or (name.startswith("gamma") and not (numbers > 0.0).all()):
        raise ValueError(f"{name} is {shown(value)}; it must be {'positive' if len(numbers) else 'a number or a list'}")
    return _tuple(numbers)


def _tuple(x: Array | Sequence[float]) -> tuple[float, ...]:
    return tuple(np.asarray(x).tolist())


class _Side(NamedTuple):
    """One side of zero, |h| ≥ 0, given by the logarithm of its integral, α and 1/√γ."""

    log_z: Array
    alpha: Array
    width: Array


def _side(slope: Array, gamma: Array) -> _Side:
    """Return ln ∫₀^∞ exp(slope·h − γh²/2) dh with the α and the width of the density."""
    with np.errstate(divide="ignore"):
        width = 1.0 / np.sqrt(gamma)
        alpha = -slope * width
        log_z = np.log(width) + 0.5 * math.log(math.pi / 2.0) + log_erfcx(alpha)
    return _Side(log_z, alpha, np.broadcast_to(width, alpha.shape))


def _moments(side: _Side) -> tuple[Array, Array]:
    """Return mean and variance of |h| on one side."""
    alpha, width = side.alpha, side.width
    near = np.minimum(alpha, _FAR)
    hazard = np.where(near > -37.0, _SCALE_OF_TAIL / erfcx(np.maximum(near, -37.0) / math.sqrt(2.0)), 0.0)
    first, rest = _tail_fraction(np.maximum(alpha, _FAR))
    mean = np.where(alpha < _FAR, hazard - near, first)
    variance = np.where(alpha < _FAR, 1.0 - hazard * (hazard - near), first * (rest - first))
    return width * mean, width * width * variance


def _scaled(slope: Array, gamma: Array) -> tuple[Array, Array]:
    """Return m and g of the integral √(π/2)·g·exp(m) over one side, with m = α²/2 for α < 0 and otherwise 0."""
    with np.errstate(divide="ignore", under="ignore"):
        width = 1.0 / np.sqrt(gamma)
        alpha = slope * width  # Of the opposite sign.
        squares = 0.5 * alpha * alpha
        scaled = erfcx(np.abs(alpha) * math.sqrt(0.5))
        is_body = alpha > 0.0
        body = 2.0 - np.exp(-squares) * scaled
        return np.where(is_body, squares, 0.0), width * np.where(is_body, body, scaled)


def _moments_of_exponent(side: _Side) -> tuple[Array, Array]:
    """Return mean and variance of −αx − x²/2 on one side.

    With the mean m and the variance V of x they are −(1 + αm)/2 and (2 + αm + α²V)/4: the integral over exp(−s·(αx +
    x²/2)), differentiated by s.
    """
    alpha = side.alpha
    near = np.minimum(alpha, _FAR)
    hazard = np.where(near > -37.0, _SCALE_OF_TAIL / erfcx(np.maximum(near, -37.0) / math.sqrt(2.0)), 0.0)
    first, rest = _tail_fraction(np.maximum(alpha, _FAR))
    slope = np.where(alpha < _FAR, near * (hazard - near), alpha * first)
    # αm + α²V with V = 1 − hazard·m; for α < 0 the squares of α cancel.
    inner = near * hazard * (1.0 - near * (hazard - near))
    outer = slope * (1.0 + alpha * (rest - first))
    return -0.5 * (1.0 + slope), 0.25 * (2.0 + np.where(alpha < _FAR, inner, outer))


def log_erfcx(alpha: Array) -> Array:
    """Return ln erfcx(α/√2); the tail of the normal distribution beyond α is exp(−α²/2)/2 times erfcx(α/√2)."""
    exponent, factor = _scaled(-alpha, np.ones(1))
    return np.asarray(exponent + np.log(factor))


def _tail_fraction(alpha: Array) -> tuple[Array, Array]:
    """Return 1/(α + 2/(α + 3/(α + …))), the mean of x ≥ 0 with density exp(−αx − x²/2), and 2/(α + 3/(α + …))."""
    rest = np.zeros_like(alpha)
    for term in range(_TERMS, 1, -1):
        rest = term / (alpha + rest)
    return 1.0 / (alpha + rest), rest


def quantile(alpha: Array, t: Array) -> Array:
    """Return the x ≥ 0 beyond which the density exp(−αx − x²/2) has the fraction e^−t of its integral beyond 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        body = np.minimum(alpha, 0.0)
        from_body = -ndtri(np.exp(-t) * ndtr(-body)) - body
        tail = np.maximum(alpha, 0.0)
        start = erfcx(tail / math.sqrt(2.0))
        hazard = _SCALE_OF_TAIL / start
        x = 2.0 * t / (hazard + np.sqrt(hazard * (hazard + 2.0 * (hazard - tail) * t)))
        for _ in range(_NEWTON):
            here = erfcx((tail + x) / math.sqrt(2.0))
            excess = tail * x + 0.5 * x * x - np.log(here / start) - t
            x = np.maximum(x - excess * here / _SCALE_OF_TAIL, 0.0)
    return np.maximum(np.where(alpha > 0.0, x, from_body), 0.0)
