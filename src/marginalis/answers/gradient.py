"""The gradient of ln Z by the parameters of a model, which are mean values in the shapes of the model.

ln Z of E = −(b·v + c·h + vᵀWh + …)/T has the derivatives ⟨v_i⟩/T, ⟨h_j⟩/T and ⟨v_i h_j⟩/T.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import Array
from ..models.forms import Indices
from ..models.model import MRF


@dataclass(frozen=True, eq=False)
class Gradient:
    """Derivatives of ln Z by every parameter, in the shapes of the model, with standard errors.

    Derivatives by couplings are given where the model has couplings. `lateral` are the couplings among the visible
    features, or None; it is symmetric, so each derivative is there twice.
    """

    weights: Any
    visible_bias: Array
    hidden_bias: Array
    lateral: Any
    weights_error: Any
    visible_bias_error: Array
    hidden_bias_error: Array
    lateral_error: Any


def gradient_of(
    model: MRF, means: Array, mean_errors: Array, pairs: Indices, products: Array, errors: Array
) -> Gradient:
    """Return the gradient from mean values in the caller's order.

    A ValueError is raised if the dense matrix of an RBM holds zeros, because the products of those features are not
    among the means. In a matrix that was made from a graph zeros are no couplings.
    """
    sides = model.split
    is_rbm = model.lateral is None and model.layout is None and sides.visible.max() < sides.hidden.min()
    if is_rbm and not sp.issparse(model.weights) and not model.weights.all():
        count = int((model.weights == 0.0).sum())
        raise ValueError(
            f"weights has {count} zeros, and ∂ ln Z by these is not known: make the matrix sparse if they stay zero, "
            "or replace them by 1e-300"
        )
    at_v, at_h = model.callers_features()
    n = len(means)
    found = []
    for x, products_of in ((means, products), (mean_errors, errors)):
        table = sp.csr_array((products_of / model.temperature, (pairs[:, 0], pairs[:, 1])), shape=(n, n))
        table = sp.csr_array(table + table.T)
        weights = _like(model.weights, table[at_v][:, at_h])
        lateral = None if model.lateral is None else _like(model.lateral, table[at_v][:, at_v])
        found.append((weights, x[at_v] / model.temperature, x[at_h] / model.temperature, lateral))
    return Gradient(*found[0], *found[1])


def _like(matrix: Any, table: Any) -> Any:
    """Return the entries of a sparse table at the non-zero entries of a matrix, dense or sparse like the matrix."""
    if not sp.issparse(matrix):
        return np.where(matrix != 0.0, table.toarray(), 0.0)
    links = sp.coo_array(matrix)
    values = np.asarray(table[links.coords[0], links.coords[1]]).ravel()
    return sp.csr_array((values, links.coords), shape=matrix.shape)
