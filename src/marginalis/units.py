"""The kinds of variable a side of the graph can be made of.

A kind knows three things about a whole side of independent variables whose natural parameters ("fields")
are given: the log-normaliser, how to draw states from uniforms, and how long its feature vector is. AIS
and mAIS need nothing else: along the path P_k only the fields change.

``fields`` has shape (chains, features); ``uniforms`` has shape (chains, variables), one per variable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Units(Protocol):
    """What the annealing loop asks of a side."""

    @property
    def name(self) -> str:
        """The word for it in a model file."""
        ...

    def variables(self, features: int) -> int:
        """Return the number of variables that a feature vector of this length describes."""
        ...

    def log_normaliser(self, fields: Array) -> Array:
        """Sum over the side of ln Σ_x exp(field·x), one value per chain."""
        ...

    def draw(self, fields: Array, uniforms: Array) -> Array:
        """Draw the side's states given its fields, shape (chains, features)."""
        ...


@dataclass(frozen=True)
class TwoState:
    """A variable with two values, offset ± scale: spins are 0 ± 1, binaries ½ ± ½.

    In terms of the spin s = (x − offset)/scale the field on s is scale·field, and offset·field is a
    constant: all that the fast engine has to know to treat every such side as spins.
    """

    name: str
    offset: float
    scale: float

    def variables(self, features: int) -> int:
        return features

    def log_normaliser(self, fields: Array) -> Array:
        a = self.scale * fields
        return (self.offset * fields + np.logaddexp(a, -a)).sum(axis=1)

    def draw(self, fields: Array, uniforms: Array) -> Array:
        """Take the likelier value, and the other one where u < e/(1+e) with e = exp(−2|scale·field|)."""
        a = self.scale * fields
        e = np.exp(-2.0 * np.abs(a))
        likelier = np.copysign(1.0, a)
        spin = np.where(uniforms * (1.0 + e) < e, -likelier, likelier)
        return self.offset + self.scale * spin


SPIN = TwoState("spin", offset=0.0, scale=1.0)
BINARY = TwoState("binary", offset=0.5, scale=0.5)
_KNOWN = {units.name: units for units in (SPIN, BINARY)}


def parse_units(word: object, argument: str = "units") -> Units:
    """Return the kind of unit that `word` names, or raise a ValueError that lists the known ones."""
    if isinstance(word, str) and word in _KNOWN:
        return _KNOWN[word]
    raise ValueError(f"{argument} is {word!r}; it must be one of {', '.join(sorted(_KNOWN))}")
