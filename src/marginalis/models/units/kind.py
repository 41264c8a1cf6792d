"""What the rest of the package asks of a kind of variable, with the answers that most kinds give.

A kind describes a whole side of independent variables whose natural parameters ("fields") are given. A variable has
one feature, its value, or a feature for each of its states; along a path only the fields change. A new kind is one
subclass: the six abstract methods are all that the reference engine needs, and the other attributes tell the exact
methods, the file formats and the fast engines what the kind allows. An attribute that keeps its default value means
that they leave the kind to somebody else or refuse it with one line.

``fields`` has shape (chains, features); ``uniforms`` has shape (chains, variables), one per variable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...checks import Array


class Units(ABC):
    """A kind of variable: by default a number without bounds, one feature, and no parameters of its own."""

    offset: float = 0.0  # In an equivalent model of spins s, where there is one, a variable is offset + scale·s.
    scale: float = 1.0
    is_discrete: bool = False  # Every variable has finitely many states.
    is_nonnegative: bool = False  # No variable is below 0.
    is_one_hot: bool = False  # A variable has one feature, 0 or 1, for each of its states.

    if TYPE_CHECKING:  # A subclass has it in whatever way suits it.

        @property
        def name(self) -> str:
            """The word for the kind, in model files and messages."""

    @property
    def values(self) -> tuple[float, float] | None:
        """The two values of a variable of two states, the lower one first; None for other kinds."""
        return None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the largest value of a feature; None for features without bounds."""
        return self.values

    @property
    def precisions(self) -> Array | None:
        """The precision of every variable that is normally distributed given its field; None for other kinds."""
        return None

    @property
    def curvatures(self) -> Array | None:
        """The least γ with which −γx²/2 adds to the exponent, one number or one per variable; None if discrete."""
        return self.precisions

    @property
    def noun(self) -> tuple[str, str]:
        """What a variable is called in a sentence, and what follows the name there."""
        return f"{self.name} unit", ""

    @property
    def parameters(self) -> dict[str, Array]:
        """Parameters of the variables that a model file has to hold, by name."""
        return {}

    @abstractmethod
    def log_normaliser(self, fields: Array) -> Array:
        """Sum over the side of ln Σ_x exp(field·x), one value per chain."""

    @abstractmethod
    def draw(self, fields: Array, uniforms: Array) -> Array:
        """Draw the side's states given its fields, shape (chains, features)."""

    @abstractmethod
    def mean(self, fields: Array) -> Array:
        """Mean of every feature given the fields."""

    @abstractmethod
    def response(self, fields: Array, change: Array) -> Array:
        """Derivative of the mean along a change of the fields: the covariance of the features times it."""

    @abstractmethod
    def fields_of(self, mean: Array) -> Array:
        """Fields that have this mean (which no feature of a discrete variable may reach surely)."""

    @abstractmethod
    def allows(self, rows: Array) -> tuple[NDArray[np.bool_], str]:
        """Which entries of rows a feature can have, and a sentence about what it can be."""

    def variables(self, features: int) -> int:
        """Return the number of variables that a feature vector of this length describes."""
        return features

    def owners(self, features: int) -> NDArray[np.int64]:
        """Return the variable that each feature belongs to."""
        return np.arange(features)

    def log2_states(self, variables: int) -> Array:
        """Return the binary logarithm of the number of states of each variable; infinite if it is not discrete."""
        return np.full(variables, np.inf)

    def take(self, variables: NDArray[np.int64]) -> Units:
        """Return the kind of a side made of these variables only."""
        return self

    def joined(self, other: Units, features: tuple[int, int], order: NDArray[np.int64]) -> Units:
        """Return the kind of the variables of two sides like each other, `order` of all of them."""
        return self

    def is_like(self, other: Units) -> bool:
        """Return whether variables of two sides differ in nothing but parameters, and may change sides."""
        return type(self) is type(other)

    def at_temperature(self, temperature: float) -> Units:
        """Return the kind whose natural parameters are divided by the temperature."""
        return self

    def check(self, features: int, argument: str) -> None:
        """Raise a ValueError that names the argument if a side of this many features cannot be of this kind."""
        self.variables(features)

    def check_rows(self, rows: Array, first: int = 0, argument: str = "data") -> None:
        """Raise a ValueError that names the first entry that no unit can have; rows are numbered from `first`."""
        allowed, wanted = self.allows(rows)
        if not allowed.all():
            row, column = np.argwhere(~allowed)[0]
            raise ValueError(f"{argument}[{first + row}, {column}] is {rows[row, column]:g}; {wanted}")

    def states_of(self, rows: Array) -> NDArray[np.int64]:
        """Return the number of the state of every variable, counted from 0, or raise a ValueError."""
        raise ValueError(f"a {self.noun[0]} has no states")

    def own_terms(self, rows: Array) -> Array:
        """Return what the variables themselves add to −E, beside their fields, one value per row."""
        return np.zeros(len(rows))

    def size(self, fields: Array) -> float:
        """Return the sizes of the terms of a log-normaliser, added up: rounding is relative to this."""
        return float(np.abs(fields).sum()) + len(fields)

    def largest_terms(self, fields: Array) -> Array:
        """Return how large the term of every variable in ln Z may become, for fields of these sizes."""
        return fields

    def mean_of_rates(self, rows: Array, extra: float) -> Array:
        """Return the mean of rows, with `extra` more samples of each state where there are states."""
        mean: Array = rows.mean(axis=0)
        return mean

    def inside(self, means: Array, share: float) -> Array:
        """Return means [row, feature] moved by a share 1 − `share` away from those that exclude a state."""
        return means

    def mean_ends(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return the least and the largest mean of every feature whose field lies between two ends."""
        return self.mean(low), self.mean(high)

    def is_held(self, start: Array, low: Array, high: Array, by: float, against: float) -> Any:
        """Return which features of states are improbable under the fields `start` and probable under some others.

        Improbable means by more than `by` in the exponent; the other fields lie between the ends `low` and `high` and
        may favour the state by more than `against`.
        """
        return np.zeros(len(start), dtype=bool)
