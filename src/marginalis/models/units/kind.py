"""The interface of a kind of variable, with default implementations.

A kind describes a whole side of independent variables whose natural parameters ("fields") are given. A variable has
one feature, its value, or one feature for each of its states; along a path only the fields change. A new kind is one
subclass. The reference engine needs the six abstract methods only. The other attributes describe properties that the
exact methods, the file formats and the fast engines use; with the default values these methods are not used for the
kind, or raise an error.

``fields`` has shape (chains, features); ``uniforms`` has shape (chains, variables), one per variable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ...checks import Array


class Units(ABC):
    """A kind of variable: by default a number without bounds, one feature, and no parameters of its own."""

    offset: float = 0.0  # A variable of two states is offset + scale·s with a spin s.
    scale: float = 1.0
    is_discrete: bool = False  # Every variable has finitely many states.
    is_nonnegative: bool = False  # No variable is below 0.
    is_one_hot: bool = False  # A variable has one feature, 0 or 1, for each of its states.
    sum_cost: float = 1.0  # Time of a log-normaliser per feature, relative to that of a categorical variable.

    if TYPE_CHECKING:  # A subclass defines it as a field or as a property.

        @property
        def name(self) -> str:
            """The name of the kind in model files and messages."""

    @property
    def values(self) -> tuple[float, float] | None:
        """The two values of a variable of two states, the lower value first; None for other kinds."""
        return None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the largest value of a feature; None for features without bounds."""
        return self.values

    @property
    def precisions(self) -> Array | None:
        """The precision of every variable if they are normally distributed given their fields; None for other kinds."""
        return None

    @property
    def curvatures(self) -> Array | None:
        """The least γ of a term −γx²/2 in the exponent, one number or one per variable; None if discrete."""
        return self.precisions

    @property
    def halves(self) -> tuple[Array, Array, Array, Array] | None:
        """γ₊, γ₋, θ₊ and θ₋ if −E has the form −γh²/2 + θh with one pair on either side of zero; None for other kinds.

        Each array has one entry or one per variable.
        """
        return None

    @property
    def noun(self) -> tuple[str, str]:
        """The noun for a variable in a sentence, and the words that follow it."""
        return f"{self.name} unit", ""

    @property
    def parameters(self) -> dict[str, Array]:
        """Parameters of the variables that a model file stores, by name."""
        return {}

    @abstractmethod
    def log_normaliser(self, fields: Array) -> Array:
        """Return the sum over the side of ln Σ_x exp(field·x), one value per chain."""

    @abstractmethod
    def draw(self, fields: Array, uniforms: Array) -> Array:
        """Draw the side's states given its fields, shape (chains, features)."""

    @abstractmethod
    def mean(self, fields: Array) -> Array:
        """Return the mean of every feature given the fields."""

    @abstractmethod
    def response(self, fields: Array, change: Array) -> Array:
        """Return the derivative of the mean along a change of the fields: the covariance matrix times the change."""

    @abstractmethod
    def fields_of(self, mean: Array) -> Array:
        """Return the fields that give these means; a mean of a discrete variable must not be at its bounds."""

    @abstractmethod
    def allows(self, rows: Array) -> tuple[NDArray[np.bool_], str]:
        """Return which entries of rows are allowed values, and a sentence that describes the allowed values."""

    def variables(self, features: int) -> int:
        """Return the number of variables that a feature vector of this length describes."""
        return features

    def owners(self, features: int) -> NDArray[np.int64]:
        """Return the variable that each feature belongs to."""
        return np.arange(features)

    def log2_states(self, variables: int) -> Array:
        """Return the binary logarithm of the number of states of each variable; infinite if it is not discrete."""
        return np.full(variables, np.inf)

    def equal_states(self, features: int) -> list[Array]:
        """Return states of the side in which all variables have the same value, such as all spins down and all up."""
        return [] if self.values is None else [np.full(features, value) for value in self.values]

    def take(self, variables: NDArray[np.int64]) -> Units:
        """Return the kind of a side made of these variables only."""
        return self

    def joined(self, other: Self, features: tuple[int, int], order: NDArray[np.int64]) -> Units:
        """Return the kind of the joined variables of two sides of like kinds, put in the order `order`."""
        return self

    def is_like(self, other: Units) -> bool:
        """Return whether two kinds differ only in parameters, so that variables may change sides."""
        return type(self) is type(other)

    def at_temperature(self, temperature: float) -> Units:
        """Return the kind whose natural parameters are divided by the temperature."""
        return self

    def check(self, features: int, argument: str) -> None:
        """Raise a ValueError that names the argument if a side of this many features cannot be of this kind."""
        self.variables(features)

    def check_rows(self, rows: Array, first: int = 0, argument: str = "data", columns: Any = None) -> None:
        """Raise a ValueError that names the first entry that is not allowed.

        Rows are numbered from `first`; `columns` are the names of the columns, by default their numbers.
        """
        with np.errstate(invalid="ignore"):  # R marks missing values by signalling NaNs.
            allowed, wanted = self.allows(rows)
        if not allowed.all():
            row, column = np.argwhere(~allowed)[0]
            name = column if columns is None else columns[column]
            raise ValueError(f"{argument}[{first + row}, {name}] is {rows[row, column]:g}; {wanted}")

    def states_of(self, rows: Array) -> NDArray[np.int64]:
        """Return the state number of every variable, counted from 0, or raise a ValueError."""
        raise ValueError(f"a {self.noun[0]} has no states")

    def own_terms(self, rows: Array) -> Array:
        """Return the terms of −E that depend on the variables alone, without fields, one value per row."""
        return np.zeros(len(rows))

    def exponents(self, fields: Array) -> tuple[Array, Array]:
        """Return mean and variance of the side's part of −E, field·x and own terms, given its fields, per chain."""
        mean = (fields * self.mean(fields)).sum(axis=1)
        return mean, (fields * self.response(fields, fields)).sum(axis=1)

    def size(self, fields: Array) -> float:
        """Return the sum of the absolute values of the terms of a log-normaliser, to which rounding is relative."""
        return float(np.abs(fields).sum()) + len(fields)

    def largest_terms(self, fields: Array) -> Array:
        """Return an upper bound of the term of every variable in ln Z, for fields of these sizes."""
        return fields

    def mean_of_rates(self, rows: Array, extra: float) -> Array:
        """Return the mean of rows; for discrete kinds, with `extra` more samples of each state."""
        mean: Array = rows.mean(axis=0)
        return mean

    def inside(self, means: Array, share: float) -> Array:
        """Return means [row, feature], moved by a fraction 1 − `share` towards those without fields if bounded."""
        return means

    def mean_ends(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return the least and the largest mean of every feature for fields between `low` and `high`."""
        return self.mean(low), self.mean(high)

    def may_be_missed(self, start: Array, low: Array, high: Array, by: float, against: float) -> Any:
        """Return which features are states that are improbable under the fields `start` and probable under others.

        Improbable means that the exponent is lower by more than `by`. The other fields lie between `low` and `high`,
        and under some of them the exponent of the state is higher by more than `against`.
        """
        return np.zeros(len(start), dtype=bool)
