"""Fields and couplings of models of spins or binaries, in the caller's order, for formats of quadratic models."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..checks import Array
from ..models.factors import FactorModel
from ..models.model import MRF


class Quadratic(NamedTuple):
    """The form −E = offset + Σ field_i x_i + Σ_{i<j} couplings_ij x_i x_j; `couplings` is upper triangular."""

    field: Array
    couplings: Any
    offset: float
    units: str


def quadratic_form(model: MRF | FactorModel, units: str | None, what: str) -> Quadratic:
    """Return the parameters at temperature 1 in these units, or in the model's own if both sides have the same.

    Raises a ValueError with the reason if the file format `what` cannot hold the model.
    """
    if isinstance(model, FactorModel):
        reason = model.why_not_annealed()
        if reason is not None:
            raise ValueError(f"{what} holds pairs of two-state variables only: {reason}")
        model = model.as_mrf()
    kinds = model.visible_units, model.hidden_units
    if any(kind.values is None for kind in kinds):
        raise ValueError(f"{what} holds spins or binaries only; the model has {kinds[0].name} and {kinds[1].name}")
    same = kinds[0].name if kinds[0] == kinds[1] else "spin"
    form: Any = model.natural
    offset = form.offset
    if "spin" in (units, same):
        form = model.partial_spin_form
        offset += form.constant
    n = model.n_variables
    field = np.empty(n)
    field[model.split.visible], field[model.split.hidden] = form.visible_bias, form.hidden_bias
    links = sp.coo_array(form.weights)
    ends = [model.split.visible[links.coords[0]]], [model.split.hidden[links.coords[1]]]
    data = [links.data]
    if form.lateral is not None:
        inside = sp.coo_array(sp.triu(form.lateral))
        ends[0].append(model.split.visible[inside.coords[0]])
        ends[1].append(model.split.visible[inside.coords[1]])
        data.append(inside.data)
    i, j = np.concatenate(ends[0]), np.concatenate(ends[1])
    couplings = sp.csr_array((np.concatenate(data), (np.minimum(i, j), np.maximum(i, j))), shape=(n, n))
    couplings.eliminate_zeros()
    return Quadratic(field, couplings, float(offset), units or same)
