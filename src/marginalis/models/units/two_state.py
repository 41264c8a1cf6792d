"""Variables with two values: spins and binaries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...checks import Array
from .kind import Units


@dataclass(frozen=True)
class TwoState(Units):
    """A variable with two values, offset ± scale: spins are 0 ± 1, binaries ½ ± ½.

    In terms of the spin s = (x − offset)/scale the field on s is scale·field, and offset·field is a constant. The fast
    engines treat every such side as spins in this way.
    """

    name: str
    offset: float
    scale: float

    is_discrete = True

    @property
    def values(self) -> tuple[float, float]:
        return self.offset - self.scale, self.offset + self.scale

    @property
    def noun(self) -> tuple[str, str]:
        return "spin" if self.name == "spin" else "binary unit", ""

    def log2_states(self, variables: int) -> Array:
        return np.ones(variables)

    def is_like(self, other: Units) -> bool:
        return self == other

    def log_normaliser(self, fields: Array) -> Array:
        a = np.abs(self.scale * fields)
        return (self.offset * fields + a + np.log1p(np.exp(-2.0 * a))).sum(axis=1)

    def draw(self, fields: Array, uniforms: Array) -> Array:
        """Draw the less probable value if u < e/(1+e) with e = exp(−2|scale·field|), else the more probable one."""
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

    def allows(self, rows: Array) -> tuple[NDArray[np.bool_], str]:
        wanted = (
            "binary units are 0 or 1: binarise real values, as in data > 0.5"
            if self.name == "binary"
            else "spin units are -1 or +1. A model of 0/1 units is made with units='binary'; only if the model is one "
            "of spins, 0/1 data become spins by 2*data - 1"
        )
        return np.abs(rows - self.offset) == self.scale, wanted

    def states_of(self, rows: Array) -> NDArray[np.int64]:
        return (rows > self.offset).astype(np.int64)

    def mean_of_rates(self, rows: Array, extra: float) -> Array:
        mean: Array = (rows.sum(axis=0) + 2.0 * extra * self.offset) / (len(rows) + 2.0 * extra)
        return mean

    def inside(self, means: Array, share: float) -> Array:
        return self.offset + self.scale * np.clip((means - self.offset) / self.scale, -share, share)

    def may_be_missed(self, start: Array, low: Array, high: Array, by: float, against: float) -> NDArray[np.bool_]:
        missed: NDArray[np.bool_] = 2.0 * self.scale * np.abs(start) > by
        missed &= 2.0 * self.scale * np.where(start > 0.0, -low, high) > against
        return missed


SPIN = TwoState("spin", offset=0.0, scale=1.0)
BINARY = TwoState("binary", offset=0.5, scale=0.5)
