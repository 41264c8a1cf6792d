"""Seeded example models: those of the paper's numerical experiments."""

from __future__ import annotations

import numpy as np

from .models import BipartiteMRF, rbm
from .schedules import whole


def rbm_gaussian(
    visible: int = 20, hidden: int = 40, *, temperature: float = 1.0, seed: int = 0
) -> BipartiteMRF:
    """RBM with w_ij ~ N(0, 1/n), n = |V|+|H|, and biases uniform in ±0.001."""
    rng, b, c = _biases(visible, hidden, seed)
    weights = rng.normal(scale=(visible + hidden) ** -0.5, size=(visible, hidden))
    return rbm(weights, b, c, temperature=temperature)


def rbm_hopfield(
    visible: int = 20, hidden: int = 40, *, temperature: float = 1.0, seed: int = 0
) -> BipartiteMRF:
    """RBM with w_ij = ±1/√|V| at random and biases uniform in ±0.001 (section on convergence)."""
    rng, b, c = _biases(visible, hidden, seed)
    weights = rng.choice([-1.0, 1.0], size=(visible, hidden)) / np.sqrt(visible)
    return rbm(weights, b, c, temperature=temperature)


def _biases(visible: int, hidden: int, seed: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    sizes = whole(visible, "visible", 1, 10**7), whole(hidden, "hidden", 1, 10**7)
    rng = np.random.default_rng(whole(seed, "seed", 0, 2**64 - 1))
    b, c = (rng.uniform(-0.001, 0.001, size) for size in sizes)
    return rng, b, c
