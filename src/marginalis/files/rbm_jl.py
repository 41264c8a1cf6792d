"""Files of RestrictedBoltzmannMachines.jl: HDF5 written by Julia, with the first axis fastest.

    E(v, h) = E_v(v) + E_h(h) − Σ w_iμ (v_i − λ_i)/σ_i (h_μ − λ_μ)/σ_μ

Offsets λ and scales σ of centered and standardized machines are absorbed into the weights, the fields and a constant.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..checks import Array, shown
from ..models.layered import rbm
from ..models.model import MRF
from ..models.units import RECTIFIED, ReLU, Units, dReLU
from .hdf5 import Source

HEADER = "rbm_hdf5_file_format_version"
VERSION = "1.0.0"
TYPES = ("RBM", "CenteredRBM", "StandardizedRBM")
_NEEDED = (
    ("weights",),
    ("visible_type", "visible_par"),
    ("hidden_type", "hidden_par"),
    ("offset_v", "offset_h"),
    ("scale_v", "scale_h"),
)  # The offsets and scales are needed from the second and the third entry of TYPES on.
UNITS = {
    "Binary": "binary",
    "Spin": "spin",
    "Potts": "categorical",
    "PottsGumbel": "categorical",
    "Gaussian": "gaussian",
    "ReLU": "relu",
    "dReLU": "drelu",
    "pReLU": "drelu",
    "xReLU": "drelu",
    "nsReLU": "drelu",
}
# Allowed numbers of rows of parameters of each type of units.
_ROWS = {"Gaussian": (2,), "ReLU": (2,), "dReLU": (4,), "pReLU": (4,), "xReLU": (4, 3), "nsReLU": (3,)}


class Layer(NamedTuple):
    """One side with its kind, its fields and, if it is Gaussian, its precisions."""

    units: str | Units
    field: Array
    precision: Array | None
    shape: tuple[int, ...]  # The shape in h5py without the axis of the parameters.


def read_rbm_jl(source: Source) -> MRF:
    """Return the machine in a file, without offsets and scales."""
    version = source.word(HEADER)
    if version != VERSION:
        raise ValueError(f"has format version {shown(version)}; this package reads {VERSION}")
    kind = source.word("rbm_type")
    if kind not in TYPES:
        raise ValueError(f"has rbm_type {shown(kind)}; this package reads {', '.join(TYPES)}")
    needed = _NEEDED[: 3 + TYPES.index(kind)]
    for name in (x for group in needed for x in group):
        if not source.has(name):
            raise ValueError(f"lacks {name!r}; a {kind} has {', '.join(x for group in needed for x in group)}")
    visible, hidden = _layer(source, "visible"), _layer(source, "hidden")
    n, m = len(visible.field), len(hidden.field)
    w = source.array("weights")
    if w.shape != (*hidden.shape, *visible.shape):
        raise ValueError(
            f"weights has shape {w.shape[::-1]}; the layers need {(*visible.shape[::-1], *hidden.shape[::-1])}"
        )
    w = w.reshape(m, n).T
    b, c, constant = visible.field, hidden.field, 0.0
    if kind != "RBM":
        if kind == "StandardizedRBM":
            scales = [_vector(source, f"scale_{side}", layer) for side, layer in (("v", visible), ("h", hidden))]
            if any((x == 0.0).any() for x in scales):
                raise ValueError("scale_v and scale_h must not be zero")
            w = w / scales[0][:, None] / scales[1]
        v, h = (_vector(source, f"offset_{side}", layer) for side, layer in (("v", visible), ("h", hidden)))
        b, c, constant = b - w @ h, c - w.T @ v, float(v @ w @ h)
    model = rbm(
        w,
        b,
        c,
        units=(visible.units, hidden.units),
        visible_precision=visible.precision,
        hidden_precision=hidden.precision,
    )
    return replace(model, offset=constant) if constant else model


def _layer(source: Source, side: str) -> Layer:
    kind = source.word(f"{side}_type")
    if kind not in UNITS:
        raise ValueError(f"has {side} units of type {shown(kind)}; this package has {', '.join(UNITS)}")
    par = source.array(f"{side}_par")
    units = UNITS[kind]
    rows, axes = par.shape[-1] if par.ndim else 0, (3 if units == "categorical" else 2)
    if par.ndim < axes or rows not in _ROWS.get(kind, (1,)) or 0 in par.shape:
        raise ValueError(f"{side}_par has shape {par.shape[::-1]}, which does not fit units of type {kind}")
    shape = par.shape[:-1]
    par = par.reshape(math.prod(shape), rows)
    if units == "categorical":
        units = f"categorical:{shape[-1]}"
    if units in RECTIFIED:
        field, rectified = _rectified(kind, par.T)
        return Layer(rectified, field, None, shape)
    return Layer(units, par[:, 0].copy(), np.abs(par[:, 1]) if rows == 2 else None, shape)


def _rectified(kind: str, par: Array) -> tuple[Array, Units]:
    """Return the fields of rectified units, and the units with their other parameters.

    All types except ReLU are dReLU. Types with θ, γ, Δ and η have θ± = θ ± Δ/(1 ± η) and γ± = γ/(1 ± η). xReLU has ξ
    with η = ξ/(1 + |ξ|), and nsReLU is xReLU with γ = 1.
    """
    if kind == "ReLU":
        return par[0].copy(), ReLU(np.abs(par[1]))
    if kind == "dReLU":
        theta_plus, theta_minus, gamma_plus, gamma_minus = par
        return np.zeros_like(theta_plus), dReLU(np.abs(gamma_plus), np.abs(gamma_minus), theta_plus, theta_minus)
    theta, gamma, delta, eta = par if len(par) == 4 else (par[0], np.ones_like(par[0]), *par[1:])
    if kind != "pReLU":
        eta = eta / (1.0 + np.abs(eta))
    if not (np.abs(eta) < 1.0).all():
        raise ValueError(f"has {kind} units with η = {eta[np.argmax(np.abs(eta))]:g}; it must lie between -1 and 1")
    up, down = 1.0 + eta, 1.0 - eta
    return theta.copy(), dReLU(np.abs(gamma) / up, np.abs(gamma) / down, delta / up, -delta / down)


def _vector(source: Source, name: str, layer: Layer) -> Array:
    values = source.array(name)
    if values.shape != layer.shape:
        raise ValueError(f"{name} has shape {values.shape[::-1]}; its layer needs {layer.shape[::-1]}")
    return values.ravel()
