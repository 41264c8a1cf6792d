"""Families of random models with exact ln Z, used to test intervals and warnings (docs/calibration.md)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from ..exact import exact_log_z
from ..examples import ising_grid, potts_grid, random_dbm, rbm_gaussian, rbm_hopfield
from ..models import grids
from ..models.graphs import from_edges
from ..models.layered import rbm
from ..models.model import MRF
from . import hard_families as hard
from . import training

logger = logging.getLogger("marginalis")

INV_T = (0.5, 1.0, 2.0, 4.0, 8.0, 20.0)


class Case(NamedTuple):
    """A family of random models and the values of its parameter."""

    name: str
    parameter: str
    settings: tuple[float, ...]
    make: Callable[[float, int], MRF]
    exact: Callable[[MRF], float] | None = None  # ln Z if the package has no exact method for the models.
    needs_digits: bool = False

    def log_z(self, model: MRF) -> float:
        """Return the exact ln Z of a model of the family."""
        return exact_log_z(model, threads=1) if self.exact is None else self.exact(model)


def sendable(case: Case, pool: object) -> Any:
    """Return a case in the form sent to a pool: its name, since its function cannot be pickled."""
    return case if pool is None else case.name


def received(case: Any) -> Case:
    """Return the case that was sent."""
    return case if isinstance(case, Case) else next(x for x in available() if x.name == case)


def _sizes(seed: int) -> tuple[int, int]:
    """Return random numbers of visible and hidden units."""
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
def _digits(epochs: float, seed: int) -> MRF:
    """RBM of 64 pixels × 16 units, trained on the digits by persistent contrastive divergence."""
    data = training.digits()
    assert data is not None
    return training.contrastive_divergence(data[0], 16, int(epochs), seed)


CASES = (
    Case("rbm-gaussian", "1/T", INV_T, lambda x, seed: rbm_gaussian(*_sizes(seed), temperature=1.0 / x, seed=seed)),
    Case("rbm-hopfield", "1/T", INV_T, lambda x, seed: rbm_hopfield(*_sizes(seed), temperature=1.0 / x, seed=seed)),
    Case("rbm-binary", "scale", (0.3, 1.0, 2.0), _binary),
    Case("digits", "epochs", (5, 50, 200), _digits, needs_digits=True),
    Case("features", "strength", (0.25, 0.5, 1.0), switching),
    Case("ising", "T", (1.5, 2.27, 4.0), _ising),
    Case("glass", "T", (0.3, 0.5, 1.0, 2.0), _glass),
    Case("potts", "T", (0.2, 0.7), _potts),
    Case("potts-first-order", "T/T_c", (0.8, 0.95, 1.1), _first_order),
    Case("dbm", "scale", (1.0, 4.0, 12.0), lambda x, seed: random_dbm([6, 10, 6], scale=x, seed=seed)),
    Case("tree", "T", (0.3, 1.0), _tree),
    Case("graph", "T", (0.4, 1.0), _graph),
    Case("triangular", "T", (0.4, 1.0), _triangular),
    Case("digits-cd", "sweeps", (1, 5, 25), hard.digits_cd, needs_digits=True),
    Case("digits-sklearn", "epochs", (10, 100), hard.digits_sklearn, needs_digits=True),
    Case("zeros-and-ones", "epochs", (100, 1000), hard.zeros_and_ones, needs_digits=True),
    Case("bars", "epochs", (100, 1000), hard.bars),
    Case("fields-against", "field", (0.5, 1.0), hard.fields_against),
    Case("prototypes", "strength", (0.25, 0.5, 1.0), hard.prototypes),
    Case("dbm-planted", "strength", (0.25, 0.5, 1.0), hard.planted_dbm),
    Case("blume-capel", "T", (0.3, 0.25, 0.2), hard.blume_capel, hard.log_z_of_counts),
    Case("potts-complete", "T/T_c", (1.05, 1.0, 0.9), hard.potts_complete, hard.log_z_of_counts),
    Case("glass-bar", "T", (2.0, 1.0, 0.5), hard.glass_bar),
    Case("hard-core", "ln z", (0.0, 2.0, 4.0), hard.hard_core),
    Case("dimers", "ln z", (0.0, 2.0, 4.0), hard.dimers),
    Case("clock", "T", (1.0, 0.5, 0.2), hard.clock),
)


def available() -> tuple[Case, ...]:
    """Return the families that can be made here and report those that are left out."""
    if training.digits() is not None:
        return CASES
    names = [case.name for case in CASES if case.needs_digits]
    logger.warning("%s are left out: they need scikit-learn (pip install scikit-learn)", ", ".join(names))
    return tuple(case for case in CASES if not case.needs_digits)
