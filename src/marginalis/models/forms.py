"""Parts of a model: the split of its variables, its layout, and other forms of its parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..checks import LARGEST, Array, frozen, stored
from .units import Units

# The type of couplings: a float64 array or a scipy.sparse.csr_array.
Coupling = Any
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """The numbers of the caller's variables on each side, in the order of the side."""

    visible: Indices
    hidden: Indices


def split_is_whole(split: Any, n_visible: int, n_hidden: int) -> bool:
    """Whether every variable occurs once in a split."""
    if not isinstance(split, Split):
        return False
    sides, n = [np.asarray(side) for side in (split.visible, split.hidden)], n_visible + n_hidden
    if [side.shape for side in sides] != [(n_visible,), (n_hidden,)]:
        return False
    if any(len(side) and side.dtype.kind not in "iu" for side in sides):
        return False
    seen = np.zeros(n, dtype=bool)
    for side in sides:
        if len(side) and (side.min() < 0 or side.max() >= n):
            return False
        seen[side.astype(np.int64)] = True
    return bool(seen.all())


def checked_labels(given: Sequence[Any] | None, n: int) -> Sequence[Any]:
    """Return the labels of n variables, by default their numbers; each label must be unique."""
    if given is None:
        return range(n)
    labels = given if isinstance(given, range) else tuple(given)
    if len(labels) != n:
        raise ValueError(f"there are {len(labels)} labels for {n} variables")
    if not isinstance(labels, range) and len(set(labels)) < len(labels):
        seen: set[Any] = set()
        twice = next(x for x in labels if x in seen or seen.add(x))  # type: ignore[func-returns-value]
        raise ValueError(f"label {twice!r} is given twice")
    return labels


@dataclass(frozen=True)
class Grid:
    """The variables, in the caller's order, are the sites of a rectangular lattice, row-major."""

    shape: tuple[int, ...]
    periodic: tuple[bool, ...]
    triangular: bool = False  # There are bonds from (r, c) to (r + 1, c + 1).


@dataclass(frozen=True)
class Layers:
    """The variables, in the caller's order, are layers of these sizes, each coupled to the next."""

    sizes: tuple[int, ...]


def total(values: Array) -> float:
    """Return the exactly rounded sum, or infinity if it overflows."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Natural:
    """Parameters of the exponent: fields, couplings and the offset, divided by the temperature."""

    weights: Coupling
    visible_bias: Array
    hidden_bias: Array
    visible_units: Units
    hidden_units: Units
    offset: float
    lateral: Coupling | None = None


@dataclass(frozen=True)
class SpinForm:
    """Natural parameters of the equivalent model in ±1 spins.

    −E of the original model without its offset equals that of the spins plus `constant`. A visible unit is visible[0] +
    visible[1]·spin, and a hidden unit hidden[0] + hidden[1]·spin.
    """

    weights: Coupling
    visible_bias: Array
    hidden_bias: Array
    constant: float
    lateral: Coupling | None = None
    visible: tuple[float, float] = (0.0, 1.0)
    hidden: tuple[float, float] = (0.0, 1.0)

    @cached_property
    def size(self) -> float:
        """Sum of the absolute values of all terms; rounding errors are about 2^-52 of it."""
        w = stored(self.weights)
        lateral = np.zeros(0) if self.lateral is None else self.lateral
        half = 0.5 * np.asarray(stored(lateral))
        with np.errstate(over="ignore", invalid="ignore"):
            terms = [np.abs(x).sum() for x in (w, half, self.visible_bias, self.hidden_bias, self.constant)]
        return float(sum(terms))

    @cached_property
    def reach(self) -> tuple[Array, Array]:
        """Largest change of the field of each visible and each hidden unit by its couplings."""
        size = abs(self.weights)
        visible, hidden = (np.asarray(size.sum(axis=i)).ravel() for i in (1, 0))
        if self.lateral is not None:
            visible = visible + np.asarray(abs(self.lateral).sum(axis=1)).ravel()
        return visible, hidden

    @cached_property
    def squares(self) -> float:
        """Sum of the squares of all couplings."""
        couplings = [w for w in (self.weights, self.lateral) if w is not None]
        return sum(float(np.square(stored(w)).sum()) for w in couplings)

    def transposed(self) -> SpinForm:
        """Return the form with the sides of a bipartite model exchanged."""
        return SpinForm(
            self.weights.T, self.hidden_bias, self.visible_bias, self.constant, None, self.hidden, self.visible
        )


def natural_form(model: Any) -> Natural:
    """Return the parameters of a model divided by its temperature, or raise a ValueError if they overflow."""
    t = model.temperature

    def over(x: Any) -> Any:
        with np.errstate(over="ignore"):
            scaled = x if t == 1.0 else x / t
        if not np.isfinite(stored(scaled)).all():
            raise ValueError(f"temperature is {t!r}: the parameters divided by it overflow")
        return frozen(scaled) if np.ndim(scaled) or sp.issparse(scaled) else scaled

    with np.errstate(over="ignore"):
        units = model.visible_units.at_temperature(t), model.hidden_units.at_temperature(t)
    for side in units:
        gamma = side.curvatures
        if gamma is not None and not (np.isfinite(gamma).all() and (gamma > 0).all()):
            raise ValueError(f"temperature is {t!r}: the precisions divided by it overflow or vanish")
    w, b, c, offset = (over(x) for x in (model.weights, model.visible_bias, model.hidden_bias, model.offset))
    lateral = None if model.lateral is None else over(model.lateral)
    with np.errstate(over="ignore"):
        size = abs(w)
        among = 0.0 if lateral is None else np.asarray(abs(lateral).sum(axis=1)).ravel()
        if not float(size.sum()) + float(np.sum(among)) < LARGEST:
            raise ValueError("weights are so large that their sums overflow")
        for bias, axis, side, other in ((b, 1, units[0], units[1]), (c, 0, units[1], units[0])):
            reach = abs(bias)
            if not side.is_discrete:  # ln Z may contain the square of the field.
                couplings = np.asarray(size.sum(axis=axis)).ravel() if other.is_discrete else 0.0
                reach = side.largest_terms(reach + couplings)
            if not float(reach.sum()) < LARGEST:
                word = "visible" if axis else "hidden"
                raise ValueError(f"{word}_bias is so large that ln Z overflows, with the couplings if it is Gaussian")
    if not abs(offset) < LARGEST:
        raise ValueError(f"offset is {model.offset!r}: with the temperature {t!r} it is too large")
    return Natural(w, b, c, *units, offset, lateral)


def partial_spin_form(natural: Natural) -> SpinForm:
    """Return the parameters with every two-state unit as a ±1 spin."""
    (v_offset, v_scale), (h_offset, h_scale) = (
        (units.offset, units.scale) for units in (natural.visible_units, natural.hidden_units)
    )
    w, b, c = natural.weights, natural.visible_bias, natural.hidden_bias
    if v_offset == h_offset == 0.0 and v_scale == h_scale == 1.0:
        return SpinForm(w, b + 0.0, c + 0.0, 0.0, natural.lateral)  # The added zero turns −0 into 0.
    scale = v_scale * h_scale
    lateral, inside = natural.lateral, np.zeros(len(b))
    with np.errstate(over="ignore", invalid="ignore"):  # An overflow makes `size` infinite, and the form is not used.
        rows = np.asarray(w.sum(axis=1)).ravel() if h_offset else np.zeros(len(b))
        columns = np.asarray(w.sum(axis=0)).ravel() if v_offset else np.zeros(len(c))
        constant = v_offset * total(b) + h_offset * total(c) + v_offset * total(h_offset * rows)
        if lateral is not None and v_offset:
            among = np.asarray(lateral.sum(axis=1)).ravel()
            inside = v_offset * among
            constant += 0.5 * v_offset**2 * total(among)
        return SpinForm(
            weights=w if scale == 1.0 else w * scale,
            visible_bias=v_scale * (b + h_offset * rows + inside),
            hidden_bias=h_scale * (c + v_offset * columns),
            constant=constant,
            lateral=lateral if lateral is None or v_scale == 1.0 else lateral * v_scale**2,
            visible=(v_offset, v_scale),
            hidden=(h_offset, h_scale),
        )


def less(end: Any, start: Any) -> Any:
    """Return the difference of two couplings; None stands for zero."""
    return end if start is None else -start if end is None else end - start


def highest(natural: Natural) -> float:
    """Return the sum of the largest values of all terms of −E; ∞ for Gaussians."""
    v, h = natural.visible_units, natural.hidden_units
    if not (v.is_discrete and h.is_discrete):
        return math.inf
    signed = [side.values is not None and side.offset == 0.0 for side in (v, h)]
    w, lateral = natural.weights, natural.lateral
    terms = (
        (natural.visible_bias, signed[0]),
        (natural.hidden_bias, signed[1]),
        (stored(w), any(signed)),
        (0.5 * (np.zeros(0) if lateral is None else stored(lateral)), signed[0]),
    )
    with np.errstate(over="ignore"):
        return float(sum((np.abs(x) if both else np.maximum(x, 0.0)).sum() for x, both in terms))


def sweep_blocks(lateral: Coupling, owners: Indices, n: int) -> tuple[Indices, ...]:
    """Cut the visible variables 0 … n−1 into consecutive blocks without couplings inside, each as long as possible."""
    rows, columns = sp.coo_array(lateral).coords
    i, j = owners[rows], owners[columns]
    last = np.full(n, -1, dtype=np.int64)  # The last earlier variable that each variable is coupled to.
    np.maximum.at(last, j[i < j], i[i < j])
    starts = [0]
    for at in range(n):
        if last[at] >= starts[-1]:
            starts.append(at)
    return tuple(np.split(np.arange(n), starts[1:]))
