"""Transition kernels τ_k(v′|v) of the sampled side, each leaving P_k(v) invariant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .units import Array

if TYPE_CHECKING:
    from .annealing import Path

TRANSITIONS = ("gibbs",)


def gibbs(path: Path, k: int, v: Array, gap: Array) -> Array:
    """Blocked Gibbs (eq. tau_k_bipartite): h from P_k(h|v), then v′ from P_k(v|h).

    `gap` is what the weight at step k computed for this v already (see `Path.gap`).
    """
    h = path.draw_hidden(k, gap, step=k)
    return path.draw_visible(k, h, step=k)
