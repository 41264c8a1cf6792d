"""The path of distributions that chains are annealed along, and the same path written in ±1 spins."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..checks import Array
from ..models.forms import SpinForm, less, total
from ..models.interacting import InteractingMRF
from ..models.model import MRF
from .base import Base
from .mixture import Mixture
from .reduce import sum_small_parts

_PER_ENTRY = 4  # Multiply-adds that take as long as looking up one entry of a table of a factor.


@dataclass(frozen=True, eq=False)
class Path:
    """P_β from P_0 to a model: −E_β = (1−β)(−E_start) + β(−E_end) (eq. P_k(x)_beta_k), every field affine in β.

    `part` is the part of `model` that is annealed, and `start` the fields of `base` on it; both are turned so that the
    visible side is the sampled one. `part` is None if nothing is left to anneal. The rest is summed exactly, and its
    ln(Z/Z_0), `exact_log_ratio`, is added to every log-weight. A `mixture` replaces the start.
    """

    model: MRF  # The caller's model.
    base: Base  # P_0 of all variables of the model.
    name: str  # The name of the start in the record; "given" if the caller gave fields.
    part: MRF | None
    start: Base
    exact_log_ratio: float
    is_turned: bool  # The sampled side is the hidden side of the caller's model.
    mixture: Mixture | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what engines do not need: the caller's model and cached values."""
        state = {x.name: getattr(self, x.name) for x in fields(self)}
        return state if self.part is None else state | {"model": self.part, "base": self.start}

    @property
    def end(self) -> MRF:
        """The model that is annealed; its visible side is sampled."""
        assert self.part is not None
        return self.part

    @property
    def is_exact(self) -> bool:
        """Whether nothing is annealed, since the whole model is summed exactly."""
        return self.part is None

    @property
    def is_whole(self) -> bool:
        """Whether no part of the model is summed exactly beforehand."""
        return self.part is not None and self.part.n_variables == self.model.n_variables

    @property
    def width(self) -> int:
        """Number of features of the sampled side."""
        return len(self.end.visible_bias)

    @property
    def unturned(self) -> MRF:
        """The model that is annealed, with the sides named as in the caller's model."""
        return self.end.transposed() if self.is_turned else self.end

    @cached_property
    def spins(self) -> SpinPath:
        """The path with every two-state unit as a ±1 spin."""
        return spin_path(self.end, self.start, self.mixture)

    @property
    def operations(self) -> float:
        """Approximate cost of a step of one chain, in multiply-adds."""
        if self.part is None:
            return 1.0
        model = self.part
        entries = sum(w.nnz if sp.issparse(w) else w.size for w in (model.weights, model.lateral) if w is not None)
        terms = 0
        if isinstance(model, InteractingMRF):
            terms = sum(2 * x.features.size * x.features.shape[1] for x in model.terms)
            terms += sum(_PER_ENTRY * sum(x.values.shape) for x in model.tables)
        extra = 0
        if self.mixture is not None:
            extra = 8 * self.mixture.fields.size + 60 * self.mixture.components
            if self.mixture.hidden is not None:
                extra = 2 * self.mixture.components * model.n_features + 60 * self.mixture.components
        return 2.0 * entries + 60.0 * model.n_features + extra + terms

    @property
    def log_z0(self) -> float:
        """ln Z at the start of the path, less ln Σ exp c_z for the free component of a mixture at the end."""
        log_z = self.base.log_z(self.model)
        if self.mixture is None:
            return log_z
        natural = self.end.natural
        replaced = [(natural.visible_units, self.start.visible)]
        if self.mixture.is_drawn:
            replaced.append((natural.hidden_units, self.start.hidden))
        own = sum(float(units.log_normaliser(x[None])[0]) for units, x in replaced)
        mixed = self.mixture.log_z(natural.visible_units, natural.hidden_units)
        return log_z - own + mixed - self.mixture.log_of_end

    def from_mixture(self, mixture: Mixture, name: str) -> Path:
        """Return the same path with a mixture as its start."""
        return replace(self, mixture=mixture, name=name)

    def without_mixture(self) -> Path:
        """Return the same path without the mixture, from its base."""
        return replace(self, mixture=None, name="uniform")

    def without_zeros(self) -> Path:
        """Return the path to the model in which forbidden states have a penalty instead."""
        if not isinstance(self.part, InteractingMRF) or not self.part.has_zeros:
            return self
        return replace(self, part=self.part.without_zeros())

    def from_base(self, base: Base, name: str) -> Path:
        """Return the path from another base with the same side sampled."""
        return make_path(self.model, base, name, self.is_turned, keep_whole=self.is_whole)

    def is_like(self, other: Path) -> bool:
        """Whether both paths have the same name of the start and the same side sampled."""
        return self.name == other.name and self.is_turned == other.is_turned

    def turned(self) -> Path:
        """Return the path from the same base with the other side of a bipartite graph sampled."""
        part = None if self.part is None else self.part.transposed()
        return replace(self, part=part, start=self.start.transposed(), is_turned=not self.is_turned)

    def reversed(self, last_to_first: bool) -> Path:
        """Return the path of the reverse process (eq. reverse_process), whose weights estimate Z_0/Z.

        A sweep draws the sampled variables in the opposite order, and with `last_to_first` the summed-out ones too.
        `reordered` puts states of the sampled side into this order.
        """
        model, base, mixture = self.end, self.start, self.mixture and self.mixture.reversed()
        if last_to_first:
            w, b, c = model.weights[:, ::-1], model.visible_bias, model.hidden_bias[::-1]
            model = MRF(w, b, c, model.visible_units, model.hidden_units, model.temperature)
            base = Base(base.visible, base.hidden[::-1])
            mixture = mixture and mixture.reordered(hidden=np.arange(len(c))[::-1])
        if not model.is_bipartite:
            at = self._backwards
            model, base = model.reversed_sweep(), base.reversed_sweep(model, at)
            mixture = mixture and mixture.reordered(visible=at)
        return replace(self, part=model, start=base, mixture=mixture, exact_log_ratio=-self.exact_log_ratio)

    def reordered(self, states: Any) -> Any:
        """Return states of the sampled side in the order of the reversed path."""
        return states if self.end.is_bipartite else states[:, self._backwards]

    @property
    def _backwards(self) -> Any:
        return self.end.visible_features(np.arange(self.end.n_visible)[::-1])


def make_path(model: MRF, base: Base, name: str, turned: bool | None = None, *, keep_whole: bool = False) -> Path:
    """Return the path from a base to a model; with `keep_whole` no part of the model is summed exactly beforehand.

    On a bipartite graph the hidden side is sampled if `turned` is true or, if `turned` is None, if the hidden side is
    the smaller one (paper, section on the size ratio).
    """
    part: MRF | None = model
    start, exact = base, model.natural.offset - base.offset
    if not (keep_whole or model.has_terms or base.is_coupled or model.is_connected):
        part, start, exact = sum_small_parts(model, base)
    if turned is None:
        sampled = part or model
        turned = sampled.is_bipartite and sampled.n_hidden < sampled.n_visible
    if turned:
        part, start = part and part.transposed(), start.transposed()
    return Path(model, base, name, part, start, exact, turned)


class SpinPath(NamedTuple):
    """Fields and couplings at β = 0 and their slopes in β, with every two-state unit as a ±1 spin.

    Missing couplings are None. `rise` is the slope in β of the constant that the change to spins adds to −E; a visible
    unit is offset + scale·(±1).
    """

    base_v: Array
    base_h: Array
    slope_v: Array
    slope_h: Array
    weights: Any
    weights0: Any
    lateral: Any
    lateral0: Any
    rise: float
    offset: float
    scale: float
    component_fields: Array | None  # The fields of each component of a mixture on the sampled side.
    component_hidden: Array | None  # The fields of each component on the summed-out side.
    component_weights: Array | None  # The exponent a_z of each component.

    def constants(self, betas: Array) -> Array:
        """Return the constant that the change to spins adds to every log-weight up to each step."""
        return self.rise * (betas - betas[0])


def spin_path(model: MRF, base: Base, mixture: Mixture | None) -> SpinPath:
    """Return the path from a base, or from a mixture, to a model, written in spins."""
    form = model.partial_spin_form
    weights0 = lateral0 = None
    if base.is_coupled:
        start = model.with_natural(base.weights, base.visible, base.hidden, base.lateral).partial_spin_form
        b0, c0, weights0, lateral0 = start.visible_bias, start.hidden_bias, start.weights, start.lateral
        constant = form.constant - start.constant
    else:
        b0, c0 = spin_base(form, base)
        constant = form.constant - form.visible[0] * total(base.visible) - form.hidden[0] * total(base.hidden)
    fields = hidden = weights = None
    if mixture is not None:
        offset, scale = form.visible
        fields = scale * mixture.fields
        weights = mixture.weights + offset * mixture.fields.sum(axis=1)
        if mixture.hidden is not None:
            offset, scale = form.hidden
            hidden = scale * mixture.hidden
            weights = weights + offset * mixture.hidden.sum(axis=1)
    return SpinPath(
        b0,
        c0,
        form.visible_bias - b0,
        form.hidden_bias - c0,
        less(form.weights, weights0),
        weights0,
        less(form.lateral, lateral0),
        lateral0,
        constant,
        *form.visible,
        fields,
        hidden,
        None if weights is None else np.asarray(weights),
    )


def spin_base(form: SpinForm, base: Base) -> tuple[Array, Array]:
    """Return the fields of a base on the spins of two-state units; fields on other units do not change."""
    return form.visible[1] * base.visible, form.hidden[1] * base.hidden
