"""Many dense models of one shape as arrays stacked along a first axis, which are checked and sent in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import LARGEST, Array, frozen, plain_array, shown
from .forms import Natural, Split
from .layered import rbm
from .model import MRF, of_checked
from .units import TwoState, parse_units

Failure = ValueError | TypeError


@dataclass(frozen=True, eq=False)
class Stack:
    """RBMs: weights [model, visible, hidden], biases [model, unit], the units of both sides, and temperatures."""

    weights: Any
    visible_bias: Any
    hidden_bias: Any
    units: tuple[Any, Any]
    temperatures: Any = None  # One number per model; None: 1.

    def __len__(self) -> int:
        return len(self.weights)

    def models(self, first: int, last: int) -> list[MRF | Failure]:
        """Return the models from `first` to `last`; a model that is not valid is replaced by the error."""
        arrays = self.weights, self.visible_bias, self.hidden_bias
        w, b, c = (np.array(x[first:last], dtype=np.float64, order="C") for x in arrays)
        t = np.ones(len(w)) if self.temperatures is None else np.asarray(self.temperatures[first:last])
        sides = tuple(parse_units(word, x.shape[1]) for word, x in zip(self.units, (b, c), strict=True))
        good = np.full(len(w), all(isinstance(side, TwoState) for side in sides))
        with np.errstate(all="ignore"):
            for x in (w, b, c):  # Whatever overflows or is not a number is left to the constructor.
                good &= np.abs(x.reshape(len(x), -1)).sum(axis=1) / t < LARGEST
        made = _of_checked(frozen(w[good]), frozen(b[good]), frozen(c[good]), sides, t[good].tolist())
        return [next(made) if fine else self._built(first + i) for i, fine in enumerate(good.tolist())]

    def _built(self, number: int) -> MRF | Failure:
        """Return a model from its constructor, or the error that this raises."""
        arrays = self.weights[number], self.visible_bias[number], self.hidden_bias[number]
        t = 1.0 if self.temperatures is None else float(self.temperatures[number])
        try:
            return rbm(*arrays, units=self.units, temperature=t)
        except (ValueError, TypeError) as error:
            return error


def _of_checked(w: Array, b: Array, c: Array, sides: Any, temperatures: Sequence[float]) -> Iterator[MRF]:
    """Yield models of spins or binary units with parameters that are checked."""
    n, m = w.shape[1:]
    split, labels = Split(frozen(np.arange(n)), frozen(np.arange(n, n + m))), range(n + m)
    for weights, visible, hidden, t in zip(w, b, c, temperatures, strict=True):
        own_w, own_b, own_c = (x if t == 1.0 else frozen(x / t) for x in (weights, visible, hidden))
        yield of_checked(
            weights=weights,
            visible_bias=visible,
            hidden_bias=hidden,
            visible_units=sides[0],
            hidden_units=sides[1],
            temperature=t,
            offset=0.0,
            split=split,
            layout=None,
            lateral=None,
            labels=labels,
            natural=Natural(own_w, own_b, own_c, sides[0], sides[1], 0.0),
        )


def is_stack(value: Any) -> bool:
    """Whether a value is a tuple (weights, visible_bias, hidden_bias, units) of arrays for several models."""
    return isinstance(value, tuple) and len(value) in (3, 4) and getattr(value[0], "ndim", 0) == 3


def as_stack(value: Any) -> Stack:
    """Return a tuple of stacked arrays as a `Stack`, or raise a ValueError that names what does not fit."""
    if len(value) != 4 or not isinstance(value[3], str | tuple | list):
        raise ValueError(
            "models is a tuple of stacked arrays that does not say its units: give (weights, visible_bias, "
            "hidden_bias, 'binary') for 0/1 or 'spin' for -1/+1"
        )
    names = "weights", "visible_bias", "hidden_bias"
    w, b, c = (plain_array(x, name) for x, name in zip(value[:3], names, strict=True))
    n, v, h = w.shape
    for x, name, shape in zip((w, b, c), names, ((n, v, h), (n, v), (n, h)), strict=True):
        if x.shape != shape or x.dtype.kind not in "fiub":
            raise ValueError(f"{name} has shape {x.shape} of {x.dtype}; it must have shape {shape} of real numbers")
    if not w.size:
        raise ValueError("models must hold at least one model")
    units = value[3]
    pair = (units, units) if isinstance(units, str) else tuple(units)
    if len(pair) != 2:
        raise ValueError(f"units is {shown(units)}; it must be one word or a pair (visible, hidden)")
    for word, features in zip(pair, (v, h), strict=True):
        parse_units(word, features)
    return Stack(w, b, c, pair)


def packed(models: Sequence[MRF]) -> Stack | list[MRF]:
    """Return models in the form in which they are sent to workers: stacked, if they are plain RBMs of one shape."""
    first = models[0]
    if not all(_is_plain(x) and _are_alike(x, first) for x in models):
        return list(models)
    w, b, c = (np.stack([getattr(x, name) for x in models]) for name in ("weights", "visible_bias", "hidden_bias"))
    return Stack(w, b, c, (first.visible_units, first.hidden_units), np.array([x.temperature for x in models]))


def unpacked(models: Stack | list[MRF]) -> list[Any]:
    """Return models that were `packed`."""
    return models if isinstance(models, list) else models.models(0, len(models))


def _is_plain(model: MRF) -> bool:
    plain = type(model) is MRF and isinstance(model.weights, np.ndarray) and model.lateral is None
    plain = plain and model.offset == 0.0 and model.layout is None and isinstance(model.labels, range)
    if not (plain and isinstance(model.visible_units, TwoState) and isinstance(model.hidden_units, TwoState)):
        return False
    split, n = model.split.visible, model.n_visible
    return int(split[0]) == 0 and int(split[-1]) == n - 1 and bool((split[1:] > split[:-1]).all())


def _are_alike(a: MRF, b: MRF) -> bool:
    kinds = a.visible_units == b.visible_units and a.hidden_units == b.hidden_units
    return kinds and bool(a.weights.shape == b.weights.shape)
