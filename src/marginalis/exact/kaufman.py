"""Kaufman's solution of the homogeneous Ising model on a torus, without field."""

from __future__ import annotations

import math

import numpy as np

from ..checks import Array


def kaufman_log_z(rows: int, cols: int, horizontal: float, vertical: float) -> float:
    """Return ln Z of a rows × cols torus with one coupling along the rows and one along the columns.

    Kaufman, Phys. Rev. 76, 1232 (1949), for N rows, M columns, K = `vertical` > 0 and K' = `horizontal` ≥ 0:

        Z = ½ (2 sinh 2K)^{MN/2} [Π 2cosh(Nγ_{2k+1}/2) + Π 2sinh(Nγ_{2k+1}/2)
                                  + Π 2cosh(Nγ_{2k}/2) + Π 2sinh(Nγ_{2k}/2)],    k = 0 … M−1,

    with sinh²(γ_l/2) = sinh²(K'−K*) + sinh 2K* sinh 2K' sin²(πl/2M) and K* = −½ ln tanh K. All γ_l ≥ 0 except
    γ_0 = 2(K'−K*), which changes sign at the critical point. This half-angle form of Kaufman's
    cosh γ = cosh 2K* cosh 2K' − sinh 2K* sinh 2K' cos(πl/M) is accurate for the small γ of the critical region.

    A negative coupling is made positive by flipping every other spin, which needs an even side. Raises a ValueError if
    that side is odd, or if a side is below two. A side of two has double bonds. The relative accuracy is 1e-12.
    """
    for name, side in (("rows", rows), ("cols", cols)):
        if side < 2:
            raise ValueError(f"{name} must be at least 2 on a torus, got {side}")
    for name, coupling, odd in (("horizontal", horizontal, cols % 2), ("vertical", vertical, rows % 2)):
        if not math.isfinite(coupling):
            raise ValueError(f"{name} must be finite, got {coupling}")
        if coupling < 0 and odd:
            raise ValueError(f"{name} is {coupling} along a side of odd length: that torus is frustrated")
    across, along = abs(horizontal), abs(vertical)
    if across > along:  # The transfer is along the stronger coupling, because K* → ∞ for K → 0.
        rows, cols, across, along = cols, rows, along, across
    if across == 0.0:
        return cols * _ring(rows, along)

    dual = 0.5 * (math.log1p(math.exp(-2.0 * along)) - math.log(-math.expm1(-2.0 * along)))  # This is K*.
    gap = across - dual
    mode = np.arange(2 * cols)
    # ln sinh²(γ/2) is computed from its two terms, with sinh 2K* = 1/sinh 2K.
    log_strength = _log_2sinh(np.array(2.0 * across)) - _log_2sinh(np.array(2.0 * along))
    with np.errstate(divide="ignore"):
        log_sine = np.where(mode > 0, np.log(np.sin(0.5 * np.pi * mode / cols)), -np.inf)
        log_square = np.logaddexp(2.0 * _log_sinh(abs(gap)), log_strength + 2.0 * log_sine)
    gamma = 2.0 * _asinh_exp(0.5 * log_square)

    half = 0.5 * rows * gamma
    log_cosh = half + np.log1p(np.exp(-2.0 * half))
    log_sinh = _log_2sinh(half)
    terms = [math.fsum(t) for t in (log_cosh[1::2], log_sinh[1::2], log_cosh[0::2], log_sinh[0::2])]
    top = max(terms)
    bracket = sum(math.exp(t - top) for t in terms[:3]) + math.copysign(math.exp(terms[3] - top), gap)
    prefactor = 0.5 * rows * cols * float(_log_2sinh(np.array(2.0 * along)))
    return prefactor + top + math.log(0.5 * bracket)


def _ring(sites: int, coupling: float) -> float:
    """Return ln[(2cosh K)^n + (2sinh K)^n], ln Z of a closed chain."""
    log_cosh = coupling + math.log1p(math.exp(-2.0 * coupling))
    return sites * log_cosh + math.log1p(math.tanh(coupling) ** sites)


def _log_2sinh(x: Array) -> Array:
    with np.errstate(divide="ignore"):
        return x + np.log(-np.expm1(-2.0 * x))


def _log_sinh(x: float) -> float:
    return float(_log_2sinh(np.array(x))) - math.log(2.0)


def _asinh_exp(x: Array) -> Array:
    """Return asinh(e^x) without overflow of e^x."""
    return np.where(x < 20.0, np.arcsinh(np.exp(np.minimum(x, 20.0))), x + math.log(2.0))
