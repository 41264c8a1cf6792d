"""Paths written in ±1 spins, from which the fast engines build their arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..checks import Array
from ..models.forms import SignedForm, less, total
from ..models.model import MRF
from .base import Base
from .mixture import Mixture


class SignedPath(NamedTuple):
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


def signed_path(model: MRF, base: Base, mixture: Mixture | None) -> SignedPath:
    """Return the path from a base, or from a mixture, to a model, written in spins."""
    form = model.signed_form
    weights0 = lateral0 = None
    if base.is_coupled:
        start = model.with_natural(base.weights, base.visible, base.hidden, base.lateral).signed_form
        b0, c0, weights0, lateral0 = start.visible_bias, start.hidden_bias, start.weights, start.lateral
        constant = form.constant - start.constant
    else:
        b0, c0 = signed_base(form, base)
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
    return SignedPath(
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


def signed_base(form: SignedForm, base: Base) -> tuple[Array, Array]:
    """Return the fields of a base on the spins of two-state units; fields on other units do not change."""
    return form.visible[1] * base.visible, form.hidden[1] * base.hidden
