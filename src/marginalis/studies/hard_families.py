"""Families of models that are hard to anneal: trained machines, coexisting phases, planted features, glasses, gases.

Every function returns a `Case` setting's model for a seed; `families` lists them. All have an exact ln Z by a method of
the package, except models in which every variable interacts with every other one alike, whose states
`log_z_of_counts` sums by the numbers of variables in each state.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

from ..checks import Array
from ..models import grids
from ..models.graphs import from_edges, from_tables
from ..models.layered import dbm, rbm
from ..models.model import MRF
from . import training

REPULSION = 8.0  # Energy, in units of T, of two neighbouring particles of a gas: about hard, but never impossible.
CLOCK_STATES = 6


@cache
def digits_cd(sweeps: float, seed: int) -> MRF:
    """RBM of 64 pixels × 16 units, trained on the digits by contrastive divergence; its mass may lie off the data."""
    data = training.digits()
    assert data is not None
    return training.contrastive_divergence(data[0], 16, 40, seed, sweeps=int(sweeps), persistent=False)


@cache
def digits_sklearn(epochs: float, seed: int) -> MRF:
    """The same, trained as scikit-learn's BernoulliRBM is by default: from zero biases, persistent, at a high rate."""
    data = training.digits()
    assert data is not None
    return training.contrastive_divergence(data[0], 16, int(epochs), seed, rate=0.1, biases_of_data=False)


@cache
def zeros_and_ones(epochs: float, seed: int) -> MRF:
    """RBM of 64 pixels × 18 units, trained for long and fast on the zeros and ones among the digits alone."""
    data = training.digits()
    assert data is not None
    rows, classes = data
    return training.contrastive_divergence(rows[classes < 2], 18, int(epochs), seed, sweeps=5, rate=0.3)


@cache
def bars(epochs: float, seed: int) -> MRF:
    """RBM of 25 pixels × 14 units, trained on bars and stripes: 62 images, far apart."""
    return training.contrastive_divergence(training.bars_and_stripes(5), 14, int(epochs), seed, rate=0.5)


def fields_against(field: float, seed: int) -> MRF:
    """Spins held down by a field that 14 features, each of them weak, overturn together.

    The phase of all features off and that of all on have equal weights at β = 1, and the first has nearly all of it for
    β < 1.
    """
    rng = np.random.default_rng(seed)
    spins, features = 100, 14
    b = -field * rng.uniform(0.8, 1.2, spins)
    w = 3.0 * field / features * rng.uniform(0.8, 1.2, (spins, features))
    lost = _log_cosh(b).sum() - _log_cosh(b + w.sum(axis=1)).sum()
    return rbm(w, b, np.full(features, lost / features), units=("spin", "binary"))


def prototypes(strength: float, seed: int) -> MRF:
    """Spins with 14 planted features that overlap: each is a copy of one of four patterns with 30 % turned over.

    The biases give every feature alone about the weight that all are off, up to a factor of e. Strong features are
    phases of their own at β = 1, weak ones come several at a time.
    """
    rng = np.random.default_rng(seed)
    spins, features = 120, 14
    patterns = rng.choice([-1.0, 1.0], (4, spins))[rng.integers(4, size=features)]
    patterns *= np.where(rng.random(patterns.shape) < 0.3, -1.0, 1.0)
    w = strength * patterns.T * rng.uniform(0.8, 1.2, (spins, features))
    b = 0.1 * rng.normal(size=spins)
    c = -(_log_cosh(b[:, None] + w) - _log_cosh(b)[:, None]).sum(axis=0) + rng.normal(size=features)
    return rbm(w, b, c, units=("spin", "binary"))


def planted_dbm(strength: float, seed: int) -> MRF:
    """DBM of 24, 12 and 24 spins: the middle layer holds features of both outer ones, with biases against them."""
    rng = np.random.default_rng(seed)
    sizes = 24, 12, 24
    w = [strength * rng.choice([-1.0, 1.0], shape) * rng.uniform(0.6, 1.4, shape) for shape in ((24, 12), (12, 24))]
    biases = [0.2 * rng.normal(size=n) for n in sizes]
    biases[1] -= strength * rng.uniform(0.0, 4.0, sizes[1])
    return dbm(w, biases, units="spin")


def blume_capel(temperature: float, seed: int) -> MRF:
    """Spin-1 model of all pairs, E = −(Σs)²/2n + DΣs², at the D where order and disorder have equal weights."""
    n = 40 + 10 * (seed % 4)

    def difference(anisotropy: float) -> float:
        counts, log_weights = _by_counts(_spin_one(n, anisotropy, temperature))
        ordered = np.abs(counts[:, 0] - counts[:, 2]) > n / 2
        return float(logsumexp(log_weights[ordered]) - logsumexp(log_weights[~ordered]))

    return _spin_one(n, brentq(difference, 0.3, 0.7), temperature)


def _spin_one(n: int, anisotropy: float, temperature: float) -> MRF:
    values = np.array([-1.0, 0.0, 1.0])
    field = values**2 * (0.5 / n - anisotropy)
    return _complete(n, np.outer(values, values) / n, field, temperature)


def potts_complete(ratio: float, seed: int) -> MRF:
    """Five-state Potts model of all pairs; T is in units of its first-order transition for n → ∞."""
    q, n = 5, 30 + 5 * (seed % 4)
    transition = (q - 2) / (2.0 * (q - 1) * math.log(q - 1))
    return _complete(n, np.identity(q) / n, np.zeros(q), ratio * transition)


def _complete(n: int, table: Array, field: Array, temperature: float) -> MRF:
    pairs = {(i, j): table for i in range(n) for j in range(i + 1, n)}
    return from_tables([field] * n, pairs, temperature=temperature)


def log_z_of_counts(model: MRF) -> float:
    """Return exact ln Z of a model in which all variables are alike and all pairs interact alike."""
    return float(logsumexp(_by_counts(model)[1]))


def _by_counts(model: MRF) -> tuple[Array, Array]:
    """Return the numbers of variables in each state, for all such numbers, and their log-weights."""
    q = model.visible_units.sizes  # type: ignore[attr-defined]  # The side is categorical.
    n = model.n_visible + model.n_hidden
    couplings = model.weights[:q, :q]
    table = (couplings.toarray() if sp.issparse(couplings) else couplings) / model.temperature
    field = model.hidden_bias[:q] / model.temperature
    first = np.stack(np.meshgrid(*[np.arange(n + 1)] * (q - 1), indexing="ij"), axis=-1).reshape(-1, q - 1)
    first = first[first.sum(axis=1) <= n]
    counts: Array = np.concatenate([first, n - first.sum(axis=1, keepdims=True)], axis=1).astype(np.float64)
    pairs = 0.5 * (((counts @ table) * counts).sum(axis=1) - counts @ np.diag(table))
    ways = gammaln(n + 1.0) - gammaln(counts + 1.0).sum(axis=1)
    return counts, ways + pairs + counts @ field


def glass_bar(temperature: float, seed: int) -> MRF:
    """±J glass on a bar of 3×3×10 spins, periodic across: three-dimensional, and exact along its length."""
    rng = np.random.default_rng(seed)
    coupling = [rng.choice([-1.0, 1.0], (10, 3, 3)) for _ in range(3)]
    return grids.ising_grid((10, 3, 3), coupling=coupling, periodic=(False, True, True), temperature=temperature)


def hard_core(log_fugacity: float, seed: int) -> MRF:
    """Lattice gas of 6×(6, 8 or 10) sites on a torus with (almost) no two neighbours occupied; orders from 1.3 on."""
    columns = 6 + 2 * (seed % 3)
    sites = np.arange(6 * columns).reshape(6, columns)
    pairs = [np.stack([sites, np.roll(sites, -1, axis)], axis=-1).reshape(-1, 2) for axis in (0, 1)]
    edges = np.concatenate(pairs)
    noise = 0.1 * np.random.default_rng(seed).normal(size=sites.size)
    return from_edges(edges, coupling=-REPULSION, field=log_fugacity + noise, units="binary")


def dimers(log_fugacity: float, seed: int) -> MRF:
    """Dimers on the edges of a 4×(5 to 7) grid, (almost) none of which share a site; the rest are monomers."""
    columns = 5 + seed % 3
    sites = np.arange(4 * columns).reshape(4, columns)
    across = np.stack([sites[:, :-1], sites[:, 1:]], axis=-1).reshape(-1, 2)
    edges = np.concatenate([across, np.stack([sites[:-1], sites[1:]], axis=-1).reshape(-1, 2)])
    shared = (edges[:, None, :, None] == edges[None, :, None, :]).any(axis=(2, 3))
    pairs = np.argwhere(np.triu(shared, 1))
    noise = 0.1 * np.random.default_rng(seed).normal(size=len(edges))
    return from_edges(pairs, coupling=-REPULSION, field=log_fugacity + noise, n=len(edges), units="binary")


def clock(temperature: float, seed: int) -> MRF:
    """Six-state clock model on a cylinder of 3×8 sites with random couplings of both signs."""
    rng = np.random.default_rng(seed)
    angles = 2.0 * np.pi * np.arange(CLOCK_STATES) / CLOCK_STATES
    table = np.cos(angles[:, None] - angles)
    sites = np.arange(24).reshape(8, 3)
    down = np.stack([sites[:-1], sites[1:]], axis=-1).reshape(-1, 2)
    edges = np.concatenate([down, np.stack([sites, np.roll(sites, -1, 1)], axis=-1).reshape(-1, 2)])
    pair = {(int(a), int(b)): rng.normal(0.5, 1.0) * table for a, b in edges}
    return from_tables([0.1 * rng.normal(size=CLOCK_STATES) for _ in range(24)], pair, temperature=temperature)


def _log_cosh(x: Array) -> Array:
    return np.logaddexp(x, -x) - math.log(2.0)
