"""Integration of the Gaussian variables of a model, which leaves discrete variables coupled to each other.

    ∫ exp(b·x + c·y + xᵀWy − ½xᵀΛx) dx = exp(constant + (c + r)·y + ½ yᵀJy),    J = WᵀΛ⁻¹W, r = WᵀΛ⁻¹b,

where Λ is the diagonal matrix of precisions minus the couplings inside the Gaussian side.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from ..checks import dense
from ..models.model import MRF
from ..models.units import SPIN, Array, Units
from .gaussian import dense_cholesky

MOST_DENSE = 4096  # Most coupled Gaussian variables: 128 MiB for their precision matrix.


def integrate_gaussians(model: MRF) -> tuple[MRF, float, float]:
    """Return the model of the discrete side alone, a constant to add to its ln Z, and the size of that constant.

    One side is Gaussian, the other one is not. The size includes the rounding errors of the couplings due to a nearly
    singular Λ. Raises a ValueError if Λ is so nearly singular that rounding errors decide.
    """
    w = model.natural
    v, h = w.visible_units, w.hidden_units
    weights = dense(w.weights)
    if v.precisions is not None:
        half, constant, trouble = _whitened(v.precisions, w.lateral, weights, w.visible_bias)
        units, own, among = h, w.hidden_bias, None
    else:
        assert h.precisions is not None
        half, constant, trouble = _whitened(h.precisions, None, weights.T, w.hidden_bias)
        units, own, among = v, w.visible_bias, w.lateral
    quadratic = half[:, :-1].T @ half[:, :-1]
    bias = own + half[:, :-1].T @ half[:, -1]
    squares = 0.5 * float((np.abs(half).sum(axis=1) ** 2).sum())  # Upper bound of the quadratic form.
    size = abs(constant) + trouble * (math.sqrt(len(half)) + squares)
    if among is not None:
        quadratic = quadratic + dense(among)
    extra, bias = _own_squares(units, np.diag(quadratic), bias)
    owners = units.owners(len(bias))
    lateral = np.where(owners[:, None] == owners, 0.0, 0.5 * (quadratic + quadratic.T))
    rest = MRF(sp.csr_array((len(bias), 0)), bias, np.zeros(0), units, SPIN, lateral=lateral)
    return rest, constant + extra, size + abs(extra)


def _whitened(gamma: Array, lateral: Any, weights: Array, bias: Array) -> tuple[Array, float, float]:
    """Return L⁻¹(W, b) with Λ = LLᵀ, the constant of the integral, and ‖Λ⁻¹‖ in units of precision one."""
    root = np.sqrt(gamma)
    half = np.concatenate([weights, bias[:, None]], axis=1) / root[:, None]
    log_det, trouble = math.fsum(np.log(gamma)), 1.0
    if lateral is not None:
        factor, trouble = dense_cholesky(np.identity(len(gamma)) - dense(lateral) / root[:, None] / root)
        half = solve_triangular(factor, half, lower=True)
        log_det += 2.0 * math.fsum(np.log(np.diag(factor)))
    constant = 0.5 * (len(gamma) * math.log(2.0 * math.pi) - log_det + float(half[:, -1] @ half[:, -1]))
    return half, constant, max(1.0, trouble)


def _own_squares(units: Units, squares: Array, bias: Array) -> tuple[float, Array]:
    """Return ½Σ J_ii y_i² as a constant and new biases; y² = s² − o² + 2oy for values o ± s, y² = y if one-hot."""
    if units.values is not None:
        o, s = units.offset, units.scale
        return 0.5 * (s**2 - o**2) * float(squares.sum()), bias + o * squares
    return 0.0, bias + 0.5 * squares
