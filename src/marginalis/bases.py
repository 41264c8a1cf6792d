"""Initial distributions P_0: independent variables, P_0(v, h) ∝ exp(b0·v + c0·h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .checks import real_array, real_number
from .data import visible_rows
from .models import BipartiteMRF, as_model
from .units import Array, Categorical, TwoState


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
    ``"mean-field"`` replaces the coupling by its mean (see `mean_field`); a pair (visible fields, hidden fields)
    is any other independent base, and so is what `data_base` makes of data.
    """
    if isinstance(base, str):
        if base not in BASES:
            raise ValueError(f"base is {base!r}; it must be one of {', '.join(BASES)} or a pair of field arrays")
        return BASES[base](model)
    pair = (base.visible, base.hidden) if isinstance(base, Base) else tuple(base) if np.iterable(base) else ()
    if len(pair) != 2:
        raise ValueError(f"base must be one of {', '.join(BASES)} or a pair (visible fields, hidden fields)")
    fields = [real_array(x, f"base {side} fields", 1) for side, x in zip(("visible", "hidden"), pair, strict=True)]
    for side, given, own in zip(("visible", "hidden"), fields, (model.visible_bias, model.hidden_bias), strict=True):
        if len(given) != len(own):
            raise ValueError(f"base {side} fields have length {len(given)}; the model needs {len(own)}")
    return Base(*fields)


def uniform(model: BipartiteMRF) -> Base:
    """No fields at all: the paper's P_0."""
    return Base(np.zeros_like(model.visible_bias), np.zeros_like(model.hidden_bias))


def biases(model: BipartiteMRF) -> Base:
    """The model's own fields, without the coupling."""
    return Base(model.natural.visible_bias, model.natural.hidden_bias)


_MEAN_FIELD_STEPS = 20
_ITERATIONS = 200
_POWERS = 30  # of the linearised iteration, to find by what factor it changes a small error at most
_STABLE = 0.9


def mean_field(model: BipartiteMRF) -> Base:
    """Independent variables in their self-consistent fields: b0 = β(b + W⟨h⟩_0), c0 = β(c + Wᵀ⟨v⟩_0).

    The solution is followed from β = 0 up to β = 1, or to where it becomes unstable: beyond, the equations have
    several solutions, each of which is near some modes of the model and far from the others. A base on one of
    them would leave the others out, and the weights would not show it.
    """
    natural = model.natural
    w, b, c = natural.weights, natural.visible_bias, natural.hidden_bias
    v_units, h_units = natural.visible_units, natural.hidden_units
    x, y = np.zeros_like(b)[None], np.zeros_like(c)[None]  # fields of the two sides
    if not (len(b) and len(c)):
        return biases(model)
    probe = np.random.default_rng(0).normal(size=y.shape)
    probe /= np.linalg.norm(probe)
    for step in range(1, _MEAN_FIELD_STEPS + 1):
        beta = step / _MEAN_FIELD_STEPS
        # stable solutions are looked for where the last one, stretched to this β, is stable itself: past the
        # point where it splits, the iteration would fall to one of its branches, which is stable again
        stretch = step / max(1, step - 1)
        new_x, new_y = stretch * x, stretch * y
        for _ in range(_POWERS):
            change = beta * v_units.response(new_x, beta * h_units.response(new_y, probe) @ w.T) @ w
            growth = float(np.linalg.norm(change))
            if growth < 1e-9:
                break
            probe = change / growth
        if growth > _STABLE:
            break
        for _ in range(_ITERATIONS):
            new_x = beta * (b + h_units.mean(new_y) @ w.T)
            last, new_y = new_y, beta * (c + v_units.mean(new_x) @ w)
            if np.abs(new_y - last).max() < 1e-10 * (1.0 + np.abs(new_y).max()):
                break
        x, y = new_x, new_y
    return Base(x[0], y[0])


def data_base(model: BipartiteMRF, data: ArrayLike, *, pseudo_count: float = 1.0) -> Base:
    """Visible variables at their base rates in the data, hidden ones without fields.

    The rates of a discrete variable are those of the data with `pseudo_count` more samples of each state, so that
    none is zero (Salakhutdinov & Murray, ICML 2008, start from such a base). Gaussian ones have the data's mean.
    """
    model = as_model(model)
    rows = visible_rows(model, data)
    units, features = model.visible_units, rows.shape[1]
    extra = real_number(pseudo_count, "pseudo_count")
    if extra <= 0.0:
        raise ValueError(f"pseudo_count is {pseudo_count!r}; it must be positive")
    if isinstance(units, Categorical):
        states = units.counts(features)[units.owners(features)]
        mean = (rows.sum(axis=0) + extra) / (len(rows) + extra * states)
    elif isinstance(units, TwoState):
        mean = (rows.sum(axis=0) + 2.0 * extra * units.offset) / (len(rows) + 2.0 * extra)
    else:
        mean = rows.mean(axis=0)
    return Base(model.natural.visible_units.fields_of(mean), np.zeros_like(model.hidden_bias))


BASES = {"uniform": uniform, "biases": biases, "mean-field": mean_field}
