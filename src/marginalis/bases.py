"""Initial distributions P_0: independent variables, P_0(v, h) ∝ exp(b0·v + c0·h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .checks import real_array
from .models import BipartiteMRF
from .units import Array


@dataclass(frozen=True, eq=False)
class Base:
    """Fields of the two sides of P_0, in the model's own units and already divided by any temperature.

    A Gaussian side of P_0 has the model's own precision, since a flat one cannot be normalised.
    """

    visible: Array
    hidden: Array

    @property
    def is_uniform(self) -> bool:
        """Whether all fields vanish."""
        return not (self.visible.any() or self.hidden.any())

    def log_z(self, model: BipartiteMRF) -> float:
        """Return ln Z_0."""
        units = model.natural.visible_units, model.natural.hidden_units
        sides = zip(units, (self.visible, self.hidden), strict=True)
        return sum(float(side.log_normaliser(x[None])[0]) for side, x in sides if len(x))

    def transposed(self) -> Base:
        """Return the same base with the names of the two sides exchanged."""
        return Base(self.hidden, self.visible)


def make_base(base: str | Base | Sequence[ArrayLike], model: BipartiteMRF) -> Base:
    """Return the base that `base` asks for.

    ``"uniform"`` is the paper's; ``"biases"`` keeps the model's own fields and leaves out the coupling;
    a pair (visible fields, hidden fields) is any other independent base.
    """
    if isinstance(base, str):
        if base == "uniform":
            return Base(np.zeros_like(model.visible_bias), np.zeros_like(model.hidden_bias))
        if base == "biases":
            return Base(model.natural.visible_bias, model.natural.hidden_bias)
        raise ValueError(f"base is {base!r}; it must be 'uniform', 'biases' or a pair of field arrays")
    pair = (base.visible, base.hidden) if isinstance(base, Base) else tuple(base) if np.iterable(base) else ()
    if len(pair) != 2:
        raise ValueError("base must be 'uniform', 'biases' or a pair (visible fields, hidden fields)")
    fields = [real_array(x, f"base {side} fields", 1) for side, x in zip(("visible", "hidden"), pair, strict=True)]
    for side, given, own in zip(("visible", "hidden"), fields, (model.visible_bias, model.hidden_bias), strict=True):
        if len(given) != len(own):
            raise ValueError(f"base {side} fields have length {len(given)}; the model needs {len(own)}")
    return Base(*fields)
