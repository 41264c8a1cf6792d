"""Transition kernels τ_k(v′|v) of the sampled side, each leaving P_k(v) invariant.

A kernel is given the state v and gap(v), which the weight at step k has computed already (see `Path.gap`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..models.units import Array, TwoState
from ..random import METROPOLIS

if TYPE_CHECKING:
    from .loop import Path

TRANSITIONS = ("gibbs", "metropolis")


def gibbs(path: Path, k: int, gap: Array) -> Array:
    """Blocked Gibbs (eq. tau_k_bipartite): h from P_k(h|v), then v′ from P_k(v|h)."""
    return path.draw_visible(path.visible_fields(k, path.draw_hidden(k, gap, step=k)), step=k)


def metropolis(path: Path, k: int, gap: Array) -> Array:
    """Roussel's sampling (Roussel, Cocco & Monasson 2021): Gibbs with Metropolis moves of h in between.

    h from P_k(h|v), then `path.sweeps` sweeps on the marginal P_k(h), each a single-flip proposal per hidden
    unit in order, accepted with min(1, P_k(h′)/P_k(h)), then v′ from P_k(v|h). The visible fields x are kept
    along: P_k(h) ∝ exp(c_k·h) Z_v(x), and a flip of h_j changes them by β_k w_j times the change of h_j.
    """
    h = path.draw_hidden(k, gap, step=k)
    fields = path.visible_fields(k, h)
    weight = path.visible.log_normaliser(fields)
    assert isinstance(path.hidden, TwoState)
    c = path.c0 + path.betas[k] * path.gap_c
    for sweep in range(path.sweeps):
        u = path.uniforms(k, METROPOLIS + sweep, path.n_hidden)
        for j in range(path.n_hidden):
            change = 2.0 * (path.hidden.offset - h[:, j])
            flipped = fields + path.betas[k] * change[:, None] * path.column(j)
            flipped_weight = path.visible.log_normaliser(flipped)
            accepted = np.log(u[:, j]) < flipped_weight - weight + c[j] * change
            h[accepted, j] += change[accepted]
            fields = np.where(accepted[:, None], flipped, fields)
            weight = np.where(accepted, flipped_weight, weight)
    return path.draw_visible(fields, step=k)


KERNELS = dict(zip(TRANSITIONS, (gibbs, metropolis), strict=True))
