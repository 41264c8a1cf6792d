"""Bases P_0 of a path: independent variables, P_0 ∝ exp(b0·v + c0·h), or another model of the same variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..checks import a_kind, as_list, did_you_mean, positive, real_array, shown
from ..exact import exact_log_z
from ..models.arrange import rearrange
from ..models.data import visible_rows
from ..models.forms import Indices, sweep_blocks
from ..models.interacting import InteractingMRF, sweep_of_pairs
from ..models.layered import as_model
from ..models.model import MRF
from ..models.units import Array

# Time limit, in seconds, of the exact ln Z_0 of a base with couplings.
_START_SECONDS = 10.0


@dataclass(frozen=True, eq=False)
class Base:
    """Fields of the two sides of P_0, in the model's own units and divided by the temperature.

    A Gaussian side of P_0 has the model's own precision, since a flat distribution cannot be normalised. A base with
    couplings is another model; the path then gives the ratio of the two Z, unless `own_log_z` is known.
    """

    visible: Array
    hidden: Array
    weights: Any = None  # The couplings between the sides, divided by the temperature.
    lateral: Any = None
    offset: float = 0.0
    own_log_z: float = 0.0  # ln Z_0 of a base with couplings, or 0 if the weights shall estimate Z/Z_0.
    terms: tuple[Any, ...] = ()  # The terms and tables of a base that is an `InteractingMRF`.
    tables: tuple[Any, ...] = ()

    @property
    def is_uniform(self) -> bool:
        """Whether all fields are zero and there are no couplings."""
        return not (self.visible.any() or self.hidden.any() or self.is_coupled)

    @property
    def is_coupled(self) -> bool:
        """Whether the base is a model with couplings."""
        return self.weights is not None or self.lateral is not None or self.has_terms

    @property
    def has_terms(self) -> bool:
        """Whether the base has factors of several variables."""
        return bool(self.terms or self.tables)

    def log_z(self, model: MRF) -> float:
        """Return ln Z_0, in closed form or, for a base with couplings, as `own_log_z`."""
        if self.is_coupled:
            return self.own_log_z
        units = model.natural.visible_units, model.natural.hidden_units
        sides = zip(units, (self.visible, self.hidden), strict=True)
        with np.errstate(over="ignore", invalid="ignore"):
            log_z = sum(float(side.log_normaliser(x[None])[0]) for side, x in sides if len(x))
        if not math.isfinite(log_z):
            raise ValueError("the fields of the base are too large for floating point: its ln Z_0 is not finite")
        return log_z

    def transposed(self) -> Base:
        """Return the same base with the two sides exchanged."""
        assert self.lateral is None
        weights = None if self.weights is None else self.weights.T
        return replace(self, visible=self.hidden, hidden=self.visible, weights=weights)

    def reversed_sweep(self, model: MRF, at: Indices) -> Base:
        """Return the base with the visible variables of its model in the opposite order, in which `at` are features."""
        if self.has_terms:
            assert isinstance(model, InteractingMRF)
            back = replace(model, terms=self.terms, tables=self.tables).reversed_sweep()
            return replace(self, visible=self.visible[at], terms=back.terms, tables=back.tables)
        w, lateral = self.weights, self.lateral
        return replace(
            self,
            visible=self.visible[at],
            weights=None if w is None else w[at],
            lateral=None if lateral is None else lateral[at][:, at],
        )

    def sweep(self, model: MRF) -> tuple[Indices, ...]:
        """Return blocks of visible variables without couplings inside a block, in the model or in the base."""
        if self.has_terms:
            assert isinstance(model, InteractingMRF)
            own = replace(model, terms=self.terms, tables=self.tables)
            return sweep_of_pairs(np.concatenate([model.lateral_edges, own.lateral_edges]), model.n_visible)
        if self.lateral is None:
            return model.sweep
        both = sp.csr_array(abs(sp.csr_array(self.lateral)))
        if model.lateral is not None:
            both = both + abs(sp.csr_array(model.lateral))
        return sweep_blocks(both, model.visible_units.owners(len(self.visible)), model.n_visible)


def make_base(base: str | Base | MRF | Sequence[ArrayLike], model: MRF) -> Base:
    """Return the base that the option `base` describes.

    ``"uniform"`` is the paper's base. ``"biases"`` has the model's own fields and no couplings. ``"mean-field"``
    replaces the couplings by their mean fields (see `mean_field`). A pair (visible fields, hidden fields) gives any
    other independent base, and so does the result of `data_base`. Another model of the same variables is a base if its
    ln Z_0 can be summed exactly.
    """
    if isinstance(base, str):
        if base not in BASES:
            raise ValueError(f"base is {shown(base)}; it must be {_KINDS}{did_you_mean(base, (*BASES, QUENCHES))}")
        return BASES[base](model)
    if isinstance(base, MRF):
        return model_base(base, model)
    if isinstance(base, Base) and base.is_coupled:
        return base
    if isinstance(base, np.ndarray) and base.ndim == 1 and base.dtype != object:
        return Base(*model.by_side(real_array(base, "base fields", 1), "base fields"))
    what = f"{_KINDS}, a model or what data_base returns"
    pair = [base.visible, base.hidden] if isinstance(base, Base) else as_list(base, "base", what)
    if len(pair) != 2:
        raise ValueError(f"base is {a_kind(base)} of {len(pair)} entries; it must be {what}")
    fields = [real_array(x, f"base {side} fields", 1) for side, x in zip(("visible", "hidden"), pair, strict=True)]
    for side, given, own in zip(("visible", "hidden"), fields, (model.visible_bias, model.hidden_bias), strict=True):
        if len(given) != len(own):
            raise ValueError(f"base {side} fields have length {len(given)}; the model needs {len(own)}")
    return Base(fields[0], fields[1])


def model_base(start: MRF, model: MRF) -> Base:
    """Return the base that is another model `start` of the same variables, with its exact ln Z_0."""
    base = coupled_base(start, model)
    if not start.n_edges:
        return Base(base.visible, base.hidden)
    try:
        log_z = exact_log_z(start, threads=1, max_seconds=_START_SECONDS)
    except ValueError as error:
        raise ValueError(
            "base is a model whose own ln Z_0 cannot be summed exactly, so that ln Z cannot be counted from it; "
            f"mg.difference(base, model) gives ln Z - ln Z_0 ({error})"
        ) from None
    return replace(base, offset=0.0, own_log_z=float(log_z) - base.offset)


def coupled_base(start: MRF, model: MRF) -> Base:
    """Return the base that is another model `start` of the same variables; the weights then estimate Z/Z_0."""
    if list(start.labels) != list(model.labels):
        raise ValueError("base is a model of other variables: the labels differ")
    same = start.transposed() if _sides_are_exchanged(start, model) else start
    if not (
        np.array_equal(same.split.visible, model.split.visible)
        and np.array_equal(same.split.hidden, model.split.hidden)
    ):
        same = rearrange(start, [model.labels[i] for i in model.split.hidden], model.split.visible)
    if isinstance(start, InteractingMRF):  # The two have the same sides already.
        return Base(start.visible_bias, start.hidden_bias, offset=start.offset, terms=start.terms, tables=start.tables)
    a, b = same.natural, model.natural
    if a.visible_units != b.visible_units or a.hidden_units != b.hidden_units:
        raise ValueError("base is a model with other units (or other precisions over the temperature)")
    return Base(a.visible_bias, a.hidden_bias, a.weights, a.lateral, a.offset)


def _sides_are_exchanged(start: MRF, model: MRF) -> bool:
    """Whether the sides of `start` are those of `model`, exchanged."""
    return start.is_bipartite and np.array_equal(start.split.hidden, model.split.visible)


def uniform(model: MRF) -> Base:
    """Return the base without fields, the paper's P_0."""
    return Base(np.zeros_like(model.visible_bias), np.zeros_like(model.hidden_bias))


def biases(model: MRF) -> Base:
    """Return the base with the model's own fields and no couplings."""
    return Base(model.natural.visible_bias, model.natural.hidden_bias)


# Number of β values at which the mean-field equations are solved.
_MEAN_FIELD_STEPS = 20
# Maximal number of iterations of the mean-field equations at one β.
_ITERATIONS = 200
# Number of power iterations that estimate the growth factor of a small error.
_POWERS = 30
# A solution is stable if the growth factor of a small error is at most this.
_STABLE = 0.9


@np.errstate(over="ignore", invalid="ignore")  # A solution that overflows is not stable.
def mean_field(model: MRF) -> Base:
    """Return the base with the mean fields b0 = β(b + W⟨h⟩_0), c0 = β(c + Wᵀ⟨v⟩_0).

    The solution is followed from β = 0 to β = 1, or to the β at which it becomes unstable. Beyond that point the
    equations have several solutions, each close to some modes of the model only. A base on one of them would miss the
    other modes, and the weights would not show it.
    """
    natural = model.natural
    w, b, c = natural.weights, natural.visible_bias, natural.hidden_bias
    v_units, h_units = natural.visible_units, natural.hidden_units
    x, y = np.zeros_like(b)[None], np.zeros_like(c)[None]  # These are the fields of the two sides.
    if not (len(b) and len(c)):
        return biases(model)
    if natural.lateral is not None:
        return _mean_field_any(model)
    probe = np.random.default_rng(0).normal(size=y.shape)
    probe /= np.linalg.norm(probe)
    for step in range(1, _MEAN_FIELD_STEPS + 1):
        beta = step / _MEAN_FIELD_STEPS
        # The iteration continues only if the last solution, scaled to this β, is stable. Past the point where the
        # solution splits, the iteration would converge to one of the branches, which are stable again.
        stretch = step / max(1, step - 1)
        new_x, new_y = stretch * x, stretch * y
        for _ in range(_POWERS):
            change = beta * v_units.response(new_x, beta * h_units.response(new_y, probe) @ w.T) @ w
            growth = float(np.linalg.norm(change))
            if growth < 1e-9 or not math.isfinite(growth):
                break
            probe = change / growth
        if not growth <= _STABLE:
            break
        for _ in range(_ITERATIONS):
            new_x = beta * (b + h_units.mean(new_y) @ w.T)
            last, new_y = new_y, beta * (c + v_units.mean(new_x) @ w)
            if np.abs(new_y - last).max() < 1e-10 * (1.0 + np.abs(new_y).max()):
                break
        if not (np.isfinite(new_x).all() and np.isfinite(new_y).all()):
            break
        x, y = new_x, new_y
    return Base(x[0], y[0])


def _mean_field_any(model: MRF) -> Base:
    """Return the mean-field base on a graph that is not bipartite: b0 = β(b + W⟨h⟩_0 + L⟨v⟩_0)."""
    natural = model.natural
    w, lateral, b, c = natural.weights, natural.lateral, natural.visible_bias, natural.hidden_bias
    assert lateral is not None
    v_units, h_units = natural.visible_units, natural.hidden_units
    x, y = np.zeros_like(b)[None], np.zeros_like(c)[None]
    rng = np.random.default_rng(0)
    probe = rng.normal(size=x.shape), rng.normal(size=y.shape)
    for step in range(1, _MEAN_FIELD_STEPS + 1):
        beta = step / _MEAN_FIELD_STEPS
        stretch = step / max(1, step - 1)
        new_x, new_y = stretch * x, stretch * y
        for _ in range(2 * _POWERS):
            dv, dh = v_units.response(new_x, probe[0]), h_units.response(new_y, probe[1])
            change = beta * (dh @ w.T + dv @ lateral), beta * (dv @ w)
            growth = float(np.hypot(np.linalg.norm(change[0]), np.linalg.norm(change[1])))
            if growth < 1e-9:
                break
            probe = change[0] / growth, change[1] / growth
        if growth > _STABLE:
            break
        for _ in range(_ITERATIONS):
            last = new_y
            new_x = beta * (b + h_units.mean(new_y) @ w.T + v_units.mean(new_x) @ lateral)
            new_y = beta * (c + v_units.mean(new_x) @ w)
            if np.abs(new_y - last).max() < 1e-10 * (1.0 + np.abs(new_y).max()):
                break
        x, y = new_x, new_y
    return Base(x[0], y[0])


@np.errstate(all="ignore")  # Fields that are not finite raise a ValueError at the end.
def data_base(model: MRF, data: ArrayLike, *, pseudo_count: float = 1.0) -> Base:
    """Return the base whose visible means are those of the data and whose hidden means are those of P(h | v) over it.

    The rates of a discrete variable are those of the data with `pseudo_count` more samples of each state, so that no
    rate is zero (Salakhutdinov & Murray, ICML 2008, start from such a base). A Gaussian variable has the data's mean.

    Parameters
    ----------
    model
        The model that is to be annealed.
    data
        Rows of visible features, as for `log_likelihood`.
    pseudo_count
        Number of samples of each state that are added to the data.

    Returns
    -------
    Base
        A value for the option `base` of `estimate` and of the other functions that anneal.
    """
    model = as_model(model)
    rows = visible_rows(model, data)
    extra = positive(pseudo_count, "pseudo_count")
    natural = model.natural
    hidden = natural.hidden_units.mean(model.hidden_fields(rows))
    v, h = natural.visible_units, natural.hidden_units
    fields = v.fields_of(v.mean_of_rates(rows, extra)), h.fields_of(h.mean_of_rates(hidden, extra))
    for units, side in zip((v, h), fields, strict=True):
        if not np.isfinite(side).all():  # A rate is 0 or 1 in floating point.
            cause = "data are" if not units.is_discrete else f"pseudo_count is {pseudo_count!r}, which is"
            raise ValueError(f"{cause} too large or too small for floating point")
    return Base(*fields)


BASES = {"uniform": uniform, "biases": biases, "mean-field": mean_field}
# The name of the base that is a mixture fitted to the final states of quenches.
QUENCHES = "quenches"
_KINDS = f"one of {', '.join((*BASES, QUENCHES))}, or a pair of arrays (visible fields, hidden fields)"


def is_quenches(base: object) -> bool:
    """Whether the option names the mixture fitted to quenches."""
    return isinstance(base, str) and base == QUENCHES
