"""Families of random models with exact ln Z, used to test intervals and warnings (docs/calibration.md)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from scipy.special import expit

from ..checks import Array
from ..examples import ising_grid, potts_grid, random_dbm, rbm_gaussian, rbm_hopfield
from ..models import grids
from ..models.graphs import from_edges
from ..models.layered import rbm
from ..models.model import MRF

logger = logging.getLogger("marginalis")

INV_T = (0.5, 1.0, 2.0, 4.0, 8.0, 20.0)
_BATCH, _RATE = 20, 0.05  # Batch size and learning rate of the training.


class Case(NamedTuple):
    """A family of random models and the values of its parameter."""

    name: str
    parameter: str
    settings: tuple[float, ...]
    make: Callable[[float, int], MRF]


def sendable(case: Case, pool: object) -> Any:
    """Return a case in the form sent to a pool: its name, since its function cannot be pickled."""
    return case if pool is None else case.name


def received(case: Any) -> Case:
    """Return the case that was sent."""
    return case if isinstance(case, Case) else next(x for x in available() if x.name == case)


def _sizes(seed: int) -> tuple[int, int]:
    rng = np.random.default_rng(seed)
    return int(rng.integers(8, 17)), int(rng.integers(10, 31))


def _binary(scale: float, seed: int) -> MRF:
    rng, (v, h) = np.random.default_rng(seed), _sizes(seed)
    fields = rng.normal(scale=0.5, size=v), rng.normal(scale=0.5, size=h)
    return rbm(rng.normal(scale=scale, size=(v, h)), *fields, units="binary")


def _ising(temperature: float, seed: int) -> MRF:
    return ising_grid((6, 6), field="uniform:0.1", periodic=True, temperature=temperature, seed=seed)


def _glass(temperature: float, seed: int) -> MRF:
    return ising_grid((6, 6), coupling="pm:1", temperature=temperature, seed=seed)


def _triangular(temperature: float, seed: int) -> MRF:
    return ising_grid((5, 6), coupling="pm:1", triangular=True, temperature=temperature, seed=seed)


def _potts(temperature: float, seed: int) -> MRF:
    return potts_grid((3, 3), 3, coupling="uniform:1.5", temperature=temperature, seed=seed)


def _first_order(ratio: float, seed: int) -> MRF:
    """8-state Potts model on a ring of five columns; T is in units of the transition of the infinite lattice."""
    transition = 1.0 / math.log1p(math.sqrt(8.0))
    return grids.potts_grid((6 + seed % 3, 5), 8, periodic=(False, True), temperature=ratio * transition)


def _tree(temperature: float, seed: int) -> MRF:
    rng = np.random.default_rng(seed)
    edges = list(nx.random_labeled_tree(30, seed=seed).edges)
    return from_edges(edges, coupling=rng.normal(size=29), field=0.3 * rng.normal(size=30), temperature=temperature)


def _graph(temperature: float, seed: int) -> MRF:
    """Gaussian couplings on a graph with odd cycles where every spin has four neighbours."""
    rng = np.random.default_rng(seed)
    edges = list(nx.random_regular_graph(4, 20, seed=seed).edges)
    return from_edges(edges, coupling=rng.normal(size=len(edges)), temperature=temperature)


def switching(strength: float, seed: int, visible: int = 64, features: int = 2) -> MRF:
    """RBM of spins against 0/1 features that switch on at the end of the path.

    Hidden unit j has the weights of a pattern and the bias that makes both its states equally likely if all others are
    off. For every β < 1 the state with the pattern has almost no weight.
    """
    rng = np.random.default_rng(seed)
    patterns = np.sign(rng.normal(size=(features, visible)))
    w = strength * patterns.T * rng.uniform(0.8, 1.2, size=(visible, features))
    b = 0.1 * rng.normal(size=visible)
    c = -(np.log(np.cosh(b[:, None] + w)) - np.log(np.cosh(b))[:, None]).sum(axis=0)
    return rbm(w, b, c, units=("spin", "binary"))


@cache
def _digits_data() -> Array | None:
    """The 8×8 digits of scikit-learn as zeros and ones, or None if scikit-learn is not installed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        return None
    return np.asarray(load_digits().data > 7.5, dtype=float)


@cache
def _digits(epochs: float, seed: int) -> MRF:
    """RBM of 64 pixels × 16 units, trained on the digits by persistent contrastive divergence."""
    data = _digits_data()
    assert data is not None
    rng = np.random.default_rng(seed)
    share = (data.sum(axis=0) + 1.0) / (len(data) + 2.0)
    w, b, c = rng.normal(scale=0.01, size=(64, 16)), np.log(share / (1.0 - share)), np.zeros(16)
    v = data[rng.integers(len(data), size=_BATCH)]
    for epoch in range(int(epochs)):
        rate = _RATE * (1.0 - epoch / epochs)
        for rows in np.array_split(data[rng.permutation(len(data))], len(data) // _BATCH):
            h = expit(c + v @ w) > rng.random((_BATCH, 16))
            v = (expit(b + h @ w.T) > rng.random((_BATCH, 64))).astype(float)
            up, down = expit(c + rows @ w), expit(c + v @ w)
            w += rate * (rows.T @ up / len(rows) - v.T @ down / _BATCH)
            b += rate * (rows.mean(axis=0) - v.mean(axis=0))
            c += rate * (up.mean(axis=0) - down.mean(axis=0))
    return rbm(w, b, c, units="binary")


CASES = (
    Case("rbm-gaussian", "1/T", INV_T, lambda x, seed: rbm_gaussian(*_sizes(seed), temperature=1.0 / x, seed=seed)),
    Case("rbm-hopfield", "1/T", INV_T, lambda x, seed: rbm_hopfield(*_sizes(seed), temperature=1.0 / x, seed=seed)),
    Case("rbm-binary", "scale", (0.3, 1.0, 2.0), _binary),
    Case("digits", "epochs", (5, 50, 200), _digits),
    Case("features", "strength", (0.25, 0.5, 1.0), switching),
    Case("ising", "T", (1.5, 2.27, 4.0), _ising),
    Case("glass", "T", (0.3, 0.5, 1.0, 2.0), _glass),
    Case("potts", "T", (0.2, 0.7), _potts),
    Case("potts-first-order", "T/T_c", (0.8, 0.95, 1.1), _first_order),
    Case("dbm", "scale", (1.0, 4.0, 12.0), lambda x, seed: random_dbm([6, 10, 6], scale=x, seed=seed)),
    Case("tree", "T", (0.3, 1.0), _tree),
    Case("graph", "T", (0.4, 1.0), _graph),
    Case("triangular", "T", (0.4, 1.0), _triangular),
)


def available() -> tuple[Case, ...]:
    """Return the families that can be made here and report those that are left out."""
    if _digits_data() is not None:
        return CASES
    logger.warning("the family digits is left out: it needs scikit-learn (pip install scikit-learn)")
    return tuple(case for case in CASES if case.name != "digits")
