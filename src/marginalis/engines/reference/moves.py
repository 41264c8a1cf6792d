"""Transition kernels τ_k(v′|v) of the sampled side, each leaving P_k(v) invariant.

A kernel receives the state v and the fields of the other side, which are already computed for the weight of step k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...checks import Array
from ...options import TRANSITIONS
from ...random import METROPOLIS

if TYPE_CHECKING:
    from .loop import Distributions, Fields


def gibbs(path: Distributions, k: int, v: Array, fields: Fields) -> Array:
    """Blocked Gibbs (eq. tau_k_bipartite): h from P_k(h|v), then v′ from P_k(v|h), block after block."""
    return path.draw_visible(k, v, path.draw_hidden(k, fields, step=k))


def metropolis(path: Distributions, k: int, v: Array, fields: Fields) -> Array:
    """Roussel's sampling (Roussel, Cocco & Monasson 2021): Gibbs with Metropolis moves of h in between.

    First h is drawn from P_k(h|v). Then `path.sweeps` sweeps act on the marginal P_k(h): each proposes to flip every
    hidden unit in order and accepts with probability min(1, P_k(h′)/P_k(h)). Finally v′ is drawn from P_k(v|h). The
    visible fields x are updated incrementally: P_k(h) ∝ exp(c_k·h) Z_v(x), and a flip of h_j changes x by β_k w_j times
    the change of h_j. The component of a mixture is fixed during the sweeps, and its fields are part of x and c.
    """
    h = path.draw_hidden(k, fields, step=k)
    x, pull = path.visible_fields(k, v, h, path.sweep[0]), path.pull(k, v, h)
    if pull is not None:
        x = x + pull
    weight = path.visible.log_normaliser(x)
    assert path.hidden.values is not None
    c = (path.c0 + path.betas[k] * path.slope_c)[None]
    if path.z is not None and path.mixture is not None and path.mixture.hidden is not None:
        c = c + (1.0 - path.betas[k]) * path.mixture.hidden[path.z]
    for sweep in range(path.sweeps):
        u = path.uniforms(k, METROPOLIS + sweep, path.n_hidden)
        for j in range(path.n_hidden):
            change = 2.0 * (path.hidden.offset - h[:, j])
            flipped = x + path.betas[k] * change[:, None] * path.column(j)
            flipped_weight = path.visible.log_normaliser(flipped)
            accepted = np.log(u[:, j]) < flipped_weight - weight + c[:, j] * change
            h[accepted, j] += change[accepted]
            x = np.where(accepted[:, None], flipped, x)
            weight = np.where(accepted, flipped_weight, weight)
    v = path.visible.draw(x, path.uniforms(k, path.visible_side, path.n_visible))
    path.draw_component_last(k, v, h)
    return v


KERNELS = dict(zip(TRANSITIONS, (gibbs, metropolis), strict=True))
