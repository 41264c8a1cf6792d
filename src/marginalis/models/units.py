"""The kinds of variable a side of the graph can be made of.

A kind knows about a whole side of independent variables whose natural parameters ("fields") are given: the
log-normaliser, how to draw states from uniforms, and how its features relate to variables. AIS and mAIS need
nothing else: along the path P_k only the fields change. Bases and thermodynamics also ask for the first two
derivatives of the log-normaliser, the mean and its response to a change of the fields.

``fields`` has shape (chains, features); ``uniforms`` has shape (chains, variables), one per variable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ..checks import Array as Array
from ..checks import frozen, shown


class Units(Protocol):
    """What the annealing loop asks of a side."""

    @property
    def name(self) -> str:
        """The word for it in a model file."""
        ...

    def variables(self, features: int) -> int:
        """Return the number of variables that a feature vector of this length describes."""
        ...

    def owners(self, features: int) -> NDArray[np.int64]:
        """Return the variable that each feature belongs to."""
        ...

    def take(self, variables: NDArray[np.int64]) -> Units:
        """Return the kind of a side made of these variables only."""
        ...

    def at_temperature(self, temperature: float) -> Units:
        """Return the kind whose natural parameters are divided by the temperature."""
        ...

    def log_normaliser(self, fields: Array) -> Array:
        """Sum over the side of ln Σ_x exp(field·x), one value per chain."""
        ...

    def draw(self, fields: Array, uniforms: Array) -> Array:
        """Draw the side's states given its fields, shape (chains, features)."""
        ...

    def mean(self, fields: Array) -> Array:
        """Mean of every feature given the fields."""
        ...

    def response(self, fields: Array, change: Array) -> Array:
        """Derivative of the mean along a change of the fields: the covariance of the features times it."""
        ...

    def fields_of(self, mean: Array) -> Array:
        """Fields that have this mean (which no feature of a discrete variable may reach surely)."""
        ...


class _Scalar:
    """A kind whose variables have one feature each."""

    def variables(self, features: int) -> int:
        return features

    def owners(self, features: int) -> NDArray[np.int64]:
        return np.arange(features)


@dataclass(frozen=True)
class TwoState(_Scalar):
    """A variable with two values, offset ± scale: spins are 0 ± 1, binaries ½ ± ½.

    In terms of the spin s = (x − offset)/scale the field on s is scale·field, and offset·field is a
    constant: all that the fast engine has to know to treat every such side as spins.
    """

    name: str
    offset: float
    scale: float

    def take(self, variables: NDArray[np.int64]) -> TwoState:
        return self

    def at_temperature(self, temperature: float) -> TwoState:
        return self

    def log_normaliser(self, fields: Array) -> Array:
        a = np.abs(self.scale * fields)
        return (self.offset * fields + a + np.log1p(np.exp(-2.0 * a))).sum(axis=1)

    def draw(self, fields: Array, uniforms: Array) -> Array:
        """Take the likelier value, and the other one where u < e/(1+e) with e = exp(−2|scale·field|)."""
        a = self.scale * fields
        e = np.exp(-2.0 * np.abs(a))
        likelier = np.copysign(1.0, a)
        spin = np.where(uniforms * (1.0 + e) < e, -likelier, likelier)
        return self.offset + self.scale * spin

    def mean(self, fields: Array) -> Array:
        return self.offset + self.scale * np.tanh(self.scale * fields)

    def response(self, fields: Array, change: Array) -> Array:
        return self.scale**2 * (1.0 - np.tanh(self.scale * fields) ** 2) * change

    def fields_of(self, mean: Array) -> Array:
        return np.arctanh((mean - self.offset) / self.scale) / self.scale


@dataclass(frozen=True)
class Categorical:
    """Variables with `sizes` states each (one number for all, or one per variable), as one-hot features.

    Features are ordered by variable, then by state; with a field and a weight for every feature this is
    the paper's general discrete bipartite energy (eq. bipartite_energy_k).
    """

    sizes: int | tuple[int, ...]

    def __post_init__(self) -> None:
        if isinstance(self.sizes, tuple) and len(set(self.sizes)) == 1:
            object.__setattr__(self, "sizes", self.sizes[0])
        if min(np.atleast_1d(self.sizes)) < 2:
            raise ValueError(f"a categorical variable needs at least 2 states, not {min(np.atleast_1d(self.sizes))}")

    @property
    def name(self) -> str:
        return f"categorical:{','.join(str(q) for q in np.atleast_1d(self.sizes))}"

    def counts(self, features: int) -> NDArray[np.int64]:
        """Return the number of states of each variable."""
        if isinstance(self.sizes, int):
            if features % self.sizes:
                raise ValueError(f"{features} features do not make whole variables of {self.sizes} states")
            return np.full(features // self.sizes, self.sizes)
        if sum(self.sizes) != features:
            raise ValueError(f"variables of {sum(self.sizes)} states in all cannot have {features} features")
        return np.array(self.sizes)

    def variables(self, features: int) -> int:
        return len(self.counts(features))

    def owners(self, features: int) -> NDArray[np.int64]:
        counts = self.counts(features)
        return np.repeat(np.arange(len(counts)), counts)

    def take(self, variables: NDArray[np.int64]) -> Categorical:
        if isinstance(self.sizes, int):
            return self
        return Categorical(tuple(self.sizes[i] for i in variables) or 2)  # of no variables: any number will do

    def at_temperature(self, temperature: float) -> Categorical:
        return self

    def log_normaliser(self, fields: Array) -> Array:
        starts, _, top, weights = self._weights(fields)
        return (top + np.log(np.add.reduceat(weights, starts, axis=1))).sum(axis=1)

    def draw(self, fields: Array, uniforms: Array) -> Array:
        """Invert the cumulative distribution of each variable: the first state whose sum exceeds u."""
        starts, owners, _, weights = self._weights(fields)
        below = np.cumsum(weights, axis=1)
        before = below[:, starts] - weights[:, starts]
        total = np.add.reduceat(weights, starts, axis=1)
        passed = below - before[:, owners] > (uniforms * total)[:, owners]
        # one-hot: passed here, and not yet at the state before it of the same variable
        one_hot = passed.astype(np.float64)
        one_hot[:, 1:] -= passed[:, :-1] & (owners[1:] == owners[:-1])
        # rounding may leave a variable without any state passed: then it is the last one
        missed = np.add.reduceat(one_hot, starts, axis=1) == 0
        if missed.any():
            ends = np.append(starts[1:], fields.shape[1]) - 1
            one_hot[:, ends] += missed
        return one_hot

    def mean(self, fields: Array) -> Array:
        starts, owners, _, weights = self._weights(fields)
        return weights / np.add.reduceat(weights, starts, axis=1)[:, owners]

    def response(self, fields: Array, change: Array) -> Array:
        starts, owners, _, _ = self._weights(fields)
        p = self.mean(fields)
        return p * (change - np.add.reduceat(p * change, starts, axis=1)[:, owners])

    def fields_of(self, mean: Array) -> Array:
        return np.log(mean)

    def _weights(self, fields: Array) -> tuple[NDArray[np.int64], NDArray[np.int64], Array, Array]:
        counts = self.counts(fields.shape[1])
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        owners = np.repeat(np.arange(len(counts)), counts)
        top = np.maximum.reduceat(fields, starts, axis=1)
        return starts, owners, top, np.exp(fields - top[:, owners])


@dataclass(frozen=True)
class Gaussian(_Scalar):
    """A real variable x with precision γ: −½γx² joins the exponent, so that x has mean field/γ."""

    precision: tuple[float, ...]

    name = "gaussian"

    @cached_property
    def gamma(self) -> Array:
        """Return the precisions as an array."""
        return frozen(np.array(self.precision, dtype=np.float64))

    def __reduce__(self) -> tuple[type[Gaussian], tuple[tuple[float, ...]]]:
        """Copies make their array anew: one from a pickle could be written to."""
        return Gaussian, (self.precision,)

    def take(self, variables: NDArray[np.int64]) -> Gaussian:
        return Gaussian(tuple(self.gamma[variables].tolist()))

    def at_temperature(self, temperature: float) -> Gaussian:
        return Gaussian(tuple((self.gamma / temperature).tolist()))

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


SPIN = TwoState("spin", offset=0.0, scale=1.0)
BINARY = TwoState("binary", offset=0.5, scale=0.5)
_KINDS = (TwoState, Categorical, Gaussian)


def parse_units(
    word: object, features: int, precision: Array | Sequence[float] | None = None, argument: str = "units"
) -> Units:
    """Return the kind that `word` names for a side of this many features, or raise a ValueError.

    `word` is ``spin``, ``binary``, ``categorical:q`` (or ``categorical:q1,q2,…``) or ``gaussian``, to which
    alone `precision` belongs.
    """
    if isinstance(word, _KINDS):
        return word
    kind, _, detail = word.partition(":") if isinstance(word, str) else ("", "", "")
    if kind != "gaussian" and precision is not None:
        raise ValueError(f"{argument} is {shown(word)}; a precision goes with 'gaussian' only")
    if kind == "categorical":
        try:
            sizes = tuple(int(q) for q in detail.split(","))
        except ValueError:
            raise ValueError(f"{argument} is {shown(word)}; it must be 'categorical:q' with q a whole number") from None
        units = Categorical(sizes if len(sizes) > 1 else sizes[0])
        units.counts(features)
        return units
    if not detail and kind in ("spin", "binary"):
        return SPIN if kind == "spin" else BINARY
    if not detail and kind == "gaussian":
        given = np.ones(1) if precision is None else np.asarray(precision, float)
        if given.size not in (1, features):
            raise ValueError(f"{argument}: there are {given.size} precisions for {features} variables")
        gamma = np.broadcast_to(given.ravel(), (features,))
        if not (np.isfinite(gamma).all() and (gamma > 0).all()):
            raise ValueError(f"{argument}: precisions must be positive and finite")
        return Gaussian(tuple(gamma.tolist()))
    raise ValueError(f"{argument} is {shown(word)}; it must be one of binary, categorical:q, gaussian, spin")
