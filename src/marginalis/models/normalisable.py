"""Check that Z of a model with real variables is finite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh, svds

from ..checks import Array
from .forms import Coupling


def check_normalisable(model: Any) -> None:
    """Raise a ValueError if the couplings of real variables are too large for their precisions, so that Z = ∞."""
    if model.lateral is not None:
        if model.visible_units.curvatures is not None and not _is_positive_definite(*_gaussian_precision(model)):
            raise ValueError(
                f"the couplings make this {_words(model)} model not normalisable: the matrix of precisions minus "
                "couplings must be positive definite"
            )
        return
    visible, hidden = model.visible_units.curvatures, model.hidden_units.curvatures
    if visible is not None and hidden is not None:
        weights = model.weights
        if model.visible_units.is_nonnegative and model.hidden_units.is_nonnegative:  # Negative couplings lower −E.
            weights = weights.maximum(0.0) if sp.issparse(weights) else np.maximum(weights, 0.0)
        size = _largest_singular_value(weights, *_spread(model, visible, hidden))
        if not size < 1.0:
            raise ValueError(
                f"weights make this {_words(model)} model not normalisable: the largest singular value of "
                f"w_ij/√(γ_i γ_j) is {size:.6g}; it must be below 1"
            )


def _spread(model: Any, *curvatures: Array) -> list[Array]:
    """Return one curvature per variable of both sides."""
    sides = zip(curvatures, model.weights.shape, strict=True)
    return [np.broadcast_to(x, n) for x, n in sides]


def _words(model: Any) -> str:
    """Return the noun for the real variables of a model, for messages."""
    sides = (units for units in (model.visible_units, model.hidden_units) if units.curvatures is not None)
    return " and ".join(dict.fromkeys(units.noun[0].partition(" ")[0] for units in sides))


def _gaussian_precision(model: Any) -> tuple[Array, Any]:
    """Return the precisions and the couplings of all Gaussian variables, if the visible variables are Gaussian."""
    visible, hidden = model.visible_units.curvatures, model.hidden_units.curvatures
    if hidden is None:
        return np.broadcast_to(visible, model.weights.shape[0]), sp.csr_array(model.lateral)
    visible, hidden = _spread(model, visible, hidden)
    w = sp.csr_array(model.weights)
    gamma = np.concatenate([visible, hidden])
    return gamma, sp.csr_array(sp.block_array([[sp.csr_array(model.lateral), w], [w.T, None]]))


def _is_positive_definite(gamma: Array, couplings: Any) -> bool:
    """Whether diag(γ) minus the couplings, scaled by √(γ_i γ_j), is positive definite, from its lowest eigenvalue."""
    scaled = sp.csr_array(couplings) * (gamma**-0.5)[:, None] * gamma**-0.5
    if scaled.shape[0] <= 2000:
        top = float(np.linalg.eigvalsh(scaled.toarray())[-1])
    else:
        top = float(eigsh(scaled, k=1, which="LA", return_eigenvectors=False, v0=np.ones(scaled.shape[0]))[0])
    return top < 1.0


def _largest_singular_value(weights: Coupling, gamma_v: Array, gamma_h: Array) -> float:
    """Return the spectral norm of w_ij/√(γ_i γ_j); a Gaussian model is normalisable exactly if it is below 1."""
    if 0 in weights.shape:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = sp.csr_array(weights) * (gamma_v**-0.5)[:, None] * gamma_h**-0.5
    largest = float(np.abs(scaled.data).max(initial=0.0))
    if not 0.0 < largest < 1.0:  # The norm is at least the largest entry.
        return largest if largest == 0.0 else max(largest, 1.0) if largest == largest else math.inf
    if min(scaled.shape) <= 500:
        small = scaled if scaled.shape[0] <= scaled.shape[1] else scaled.T
        return math.sqrt(max(0.0, float(np.linalg.eigvalsh((small @ small.T).toarray())[-1])))
    return float(svds(sp.csr_array(scaled), k=1, return_singular_vectors=False, v0=np.ones(min(scaled.shape)))[0])
