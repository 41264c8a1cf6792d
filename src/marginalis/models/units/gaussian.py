"""Real variables with a normal distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ...checks import Array, frozen
from .kind import Units

_FAR = 2.0  # Distance of `equal_states` from zero, in standard deviations.


@dataclass(frozen=True)
class Gaussian(Units):
    """A real variable x with precision γ, which adds −½γx² to the exponent, so that the mean of x is field/γ."""

    precision: tuple[float, ...]

    name = "gaussian"

    @cached_property
    def gamma(self) -> Array:
        """Return the precisions as an array."""
        return frozen(np.array(self.precision, dtype=np.float64))

    @property
    def precisions(self) -> Array:
        return self.gamma

    @property
    def noun(self) -> tuple[str, str]:
        return "Gaussian variable", ""

    @property
    def parameters(self) -> dict[str, Array]:
        return {"precision": self.gamma}

    def __reduce__(self) -> tuple[type[Gaussian], tuple[tuple[float, ...]]]:
        """Build copies and unpickled values anew, since an unpickled array would be writable."""
        return Gaussian, (self.precision,)

    def take(self, variables: NDArray[np.int64]) -> Gaussian:
        return Gaussian(tuple(self.gamma[variables].tolist()))

    def joined(self, other: Self, features: tuple[int, int], order: NDArray[np.int64]) -> Gaussian:
        return Gaussian(tuple(np.concatenate([self.gamma, other.gamma])[order].tolist()))

    def check(self, features: int, argument: str) -> None:
        if len(self.precision) != features:
            raise ValueError(f"{argument}: there are {len(self.precision)} precisions for {features} variables")
        if not all(math.isfinite(x) and x > 0 for x in self.precision):
            raise ValueError(f"{argument}: precisions must be positive and finite")

    def at_temperature(self, temperature: float) -> Gaussian:
        return Gaussian(tuple((self.gamma / temperature).tolist()))

    def equal_states(self, features: int) -> list[Array]:
        return [sign * _FAR / np.sqrt(self.gamma) * np.ones(features) for sign in (-1.0, 1.0)]

    def log_normaliser(self, fields: Array) -> Array:
        return (0.5 * fields**2 / self.gamma + 0.5 * np.log(2.0 * math.pi / self.gamma)).sum(axis=1)

    def draw(self, fields: Array, uniforms: Array) -> Array:
        return fields / self.gamma + ndtri(uniforms) / np.sqrt(self.gamma)

    def mean(self, fields: Array) -> Array:
        return fields / self.gamma

    def response(self, fields: Array, change: Array) -> Array:
        return np.broadcast_to(change / self.gamma, fields.shape)

    def fields_of(self, mean: Array) -> Array:
        return mean * self.gamma

    def allows(self, rows: Array) -> tuple[NDArray[np.bool_], str]:
        return np.isfinite(rows), "Gaussian units are finite numbers"

    def own_terms(self, rows: Array) -> Array:
        terms: Array = -0.5 * (rows * rows) @ self.gamma
        return terms

    def exponents(self, fields: Array) -> tuple[Array, Array]:
        mean = (0.5 * fields**2 / self.gamma - 0.5).sum(axis=1)
        return mean, np.full(len(fields), 0.5 * fields.shape[1])

    def size(self, fields: Array) -> float:
        return 0.5 * float((fields**2 / self.gamma + np.abs(np.log(2.0 * np.pi / self.gamma))).sum())

    def largest_terms(self, fields: Array) -> Array:
        return np.maximum(fields, fields**2 / self.gamma)
