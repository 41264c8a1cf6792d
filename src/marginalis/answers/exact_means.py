"""Exact mean values: by enumeration of one side, by elimination on sparse graphs, in closed form for Gaussians."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..checks import dense
from ..exact.elimination import Conditional, eliminate_factors
from ..exact.enumeration import log_marginals
from ..exact.networks import cheapest_order
from ..exact.ordering import table_entries
from ..exact.structure import DiscreteSide, ordered_factors
from ..exact.surfaces import Surface, lattice_of, planar_of
from ..models.factors import FactorModel
from ..models.model import MRF
from ..models.units import Array
from ..parallel.memory import free_memory
from .features import Features, Function, evaluated

_NUMBERS_AT_ONCE = 1 << 20  # Size of the temporary arrays of an enumeration.
_MOST_STATES = 24.0  # log2 of the largest number of enumerated states, whose probabilities take 128 MiB.
_MOST_TABLES = 25.0  # log2 of the largest number of entries of all tables, of which some copies are kept.
_MOST_FACTORED = 28.0  # log2 of the same limit for a model of factors.
_BYTES_PER_ENTRY = 40.0  # Bytes that an entry of a table takes with its copies.
_MEMORY = 0.5  # Tables of a model of factors may fill this fraction of the free memory.
_MOST_GAUSSIANS = 8000  # Largest number of Gaussian variables whose covariance is computed.
_SMALL = 256  # Lattices of at most this many variables are tried by elimination first.
_INVERSE = 5.0  # Time of all mean products on a planar graph or torus, in units of the time of ln Z.
_OPERATIONS_PER_SECOND = 1e8  # Conversion of limits of work to seconds.


class Means(NamedTuple):
    """Exact mean values of features, of products of coupled features, and of functions."""

    features: Array
    products: Array
    functions: dict[str, Array]
    way: str


def exact_means(
    model: MRF, what: Features, functions: dict[str, Function], log2_work: float, log2_entries: float
) -> Means | None:
    """Return exact mean values, or None if all methods exceed 2^log2_work operations or 2^log2_entries entries."""
    if functions:
        return _by_joint_enumeration(model, what, functions, log2_work)
    if not len(what.pairs):
        features = model.in_callers_order(*(_free(model, side) for side in ("visible", "hidden")))
        return Means(features[0], np.zeros(0), {}, "independence")
    v, h = model.natural.visible_units, model.natural.hidden_units
    if v.precisions is not None and h.precisions is not None:
        return _of_gaussians(model, what, log2_work)
    sizes = [float(v.log2_states(model.n_visible).sum()), math.inf]
    if model.is_bipartite:
        sizes[1] = float(h.log2_states(model.n_hidden).sum())
    work = min(sizes) + math.log2(len(what.owners) + len(what.pairs))
    if min(sizes) <= _MOST_STATES and work <= log2_work:
        return _by_enumeration(model if sizes[0] <= sizes[1] else model.transposed(), what)
    surface = lattice_of(model) if model.n_variables > _SMALL else None
    found = _by_pfaffian(model, what, surface, log2_work) or _by_elimination(
        model, what, min(log2_entries, _MOST_TABLES)
    )
    return found or _by_pfaffian(model, what, planar_of(model), log2_work)


def _by_pfaffian(model: MRF, what: Features, surface: Surface | None, log2_work: float) -> Means | None:
    """Return the means of a model of two-state units without fields on a sphere or a torus."""
    if surface is None or surface.extra:
        return None
    if surface.seconds * _INVERSE > 2.0**log2_work / _OPERATIONS_PER_SECOND:
        return None
    low, high = what.values.T
    centre, scale = 0.5 * (low + high), 0.5 * (high - low)  # Units of other values become spins.
    a, b = what.pairs.T
    try:
        spins = surface.products(what.owners[what.pairs])
    except ValueError:  # The result would not be accurate enough.
        return None
    return Means(centre, centre[a] * centre[b] + scale[a] * scale[b] * spins, {}, "pfaffian")


def _free(model: MRF, side: str) -> Array:
    bias = getattr(model.natural, f"{side}_bias")
    return getattr(model.natural, f"{side}_units").mean(bias[None]) if len(bias) else np.zeros((1, 0))


def _by_enumeration(model: MRF, what: Features) -> Means | None:
    """Average over all states of the visible side, with the mean of the hidden side given each of them."""
    natural = model.natural
    side = DiscreteSide.of(natural.visible_units, len(natural.visible_bias))
    assert side is not None
    with np.errstate(over="ignore", invalid="ignore"):
        log_p = np.concatenate(list(log_marginals(model)))
    if not math.isfinite(log_p.max()):
        return None
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    means, products = np.zeros(model.n_features), np.zeros(len(what.pairs))
    a, b = what.pairs.T
    step = max(1, _NUMBERS_AT_ONCE // (model.n_features + len(a)))
    for first in range(0, len(p), step):
        part = p[first : first + step]
        v = side.numbered(np.arange(first, first + len(part)))
        h = np.zeros((len(part), 0))
        if len(natural.hidden_bias):
            h = natural.hidden_units.mean(natural.hidden_bias + v @ natural.weights)
        rows = model.in_callers_order(v, h)
        means += part @ rows
        products += part @ (rows[:, a] * rows[:, b])
    return Means(means, products, {}, "enumeration")


def _by_joint_enumeration(model: MRF, what: Features, functions: dict[str, Function], log2_work: float) -> Means | None:
    """Average over all states of both sides, as a function of all variables requires."""
    natural = model.natural
    v, h = (
        DiscreteSide.of(units, len(bias))
        for units, bias in (
            (natural.visible_units, natural.visible_bias),
            (natural.hidden_units, natural.hidden_bias),
        )
    )
    if v is None or h is None:
        return None
    states = sum(math.log2(q) for q in (*v.cards, *h.cards))
    if states + math.log2(len(what.owners) + len(what.pairs)) > log2_work or states > _MOST_STATES:
        return None
    hidden = h.numbered(np.arange(math.prod(h.cards)))
    own = hidden @ natural.hidden_bias

    def pieces() -> Iterator[tuple[Array, Array]]:
        """Yield the exponents −E/T of some states, and the states."""
        step = max(1, _NUMBERS_AT_ONCE // (len(hidden) * (model.n_features + len(what.pairs))))
        for first in range(0, math.prod(v.cards), step):
            visible = v.numbered(np.arange(first, min(first + step, math.prod(v.cards))))
            exponents = (visible @ natural.visible_bias)[:, None] + own + (visible @ natural.weights) @ hidden.T
            if natural.lateral is not None:
                exponents = exponents + 0.5 * ((visible @ natural.lateral) * visible).sum(axis=1)[:, None]
            both = np.repeat(visible, len(hidden), axis=0), np.tile(hidden, (len(visible), 1))
            yield exponents.ravel(), model.in_callers_order(*both)

    top = max(float(exponents.max()) for exponents, _ in pieces())
    if not math.isfinite(top):
        return None
    total, means, products = 0.0, np.zeros(model.n_features), np.zeros(len(what.pairs))
    sums: dict[str, Any] = dict.fromkeys(functions, 0.0)
    a, b = what.pairs.T
    for exponents, rows in pieces():
        p = np.exp(exponents - top)
        total += float(p.sum())
        means += p @ rows
        products += p @ (rows[:, a] * rows[:, b])
        for name, function in functions.items():
            sums[name] = sums[name] + p @ evaluated(function, name, rows)
    values = {name: np.asarray(x / total) for name, x in sums.items()}
    return Means(means / total, products / total, values, "enumeration")


def _of_gaussians(model: MRF, what: Features, log2_work: float) -> Means | None:
    """Return the means from the mean Λ⁻¹β and the covariance Λ⁻¹ of the joint normal distribution."""
    natural, n = model.natural, model.n_features
    if n > _MOST_GAUSSIANS or 3.0 * math.log2(n) > log2_work + 6.0:  # Operations of a library are cheaper.
        return None
    gamma_v, gamma_h = natural.visible_units.precisions, natural.hidden_units.precisions
    assert gamma_v is not None
    assert gamma_h is not None
    at_v, at_h = model.callers_features()
    precision = np.diag(model.in_callers_order(gamma_v, gamma_h))
    w = dense(natural.weights)
    precision[np.ix_(at_v, at_h)] -= w
    precision[np.ix_(at_h, at_v)] -= w.T
    if natural.lateral is not None:
        precision[np.ix_(at_v, at_v)] -= dense(natural.lateral)
    factor = cho_factor(precision, lower=True)
    mean = cho_solve(factor, model.in_callers_order(natural.visible_bias, natural.hidden_bias))
    a, b = what.pairs.T
    return Means(mean, cho_solve(factor, np.identity(n))[a, b] + mean[a] * mean[b], {}, "closed form")


def _by_elimination(model: MRF, what: Features, log2_entries: float) -> Means | None:
    found = ordered_factors(model, stop_above=log2_entries)
    if found is None:
        return None
    parts, order, width = found
    if width > log2_entries or table_entries(parts.edges, parts.cards, order) > 2.0**log2_entries:
        return None
    factors = [((i,), u) for i, u in enumerate(parts.unary)] + list(zip(parts.edges, parts.tables, strict=True))
    laws = Laws(parts.cards, factors, order, hard=False)
    number = np.empty(model.n_variables, dtype=np.int64)  # Number of each of the caller's variables among the factors.
    number[np.concatenate([model.split.visible, model.split.hidden])] = np.arange(model.n_variables)
    owners = number[what.owners].tolist()

    def values(feature: int) -> Array:
        state = what.states[feature]
        return what.values[feature] if state < 0 else np.eye(parts.cards[owners[feature]])[state]

    by_state = [values(f) for f in range(len(owners))]
    means = np.array([laws.single(i) @ x for i, x in zip(owners, by_state, strict=True)])
    products = np.empty(len(what.pairs))
    for k, (a, b) in enumerate(what.pairs.tolist()):
        products[k] = by_state[a] @ laws.pair(owners[a], owners[b]) @ by_state[b]
    return Means(means, products, {}, "elimination")


class Laws:
    """Marginal distributions of single variables and of pairs that share a factor, by elimination and substitution.

    Elimination leaves P(x_v | given) for each variable; the given ones are those of its neighbours that are eliminated
    later. All of them lie in the table of the first of them, so the joint distributions follow in reverse order.
    """

    def __init__(self, cards: Sequence[int], factors: Any, order: Sequence[int], *, hard: bool) -> None:
        laws: list[Conditional] = []
        log_z = eliminate_factors(cards, factors, order, hard=hard, conditionals=laws)
        if log_z == -math.inf:
            raise ValueError("Z = 0: the factors contradict each other, no state is possible")
        self._tables: dict[int, tuple[list[int], Array]] = {}
        self._rank = {v: k for k, v in enumerate(order)}
        self._pairs: dict[tuple[int, int], Array] = {}
        for v, given, below in reversed(laws):
            shape = [cards[u] for u in given]
            columns = below.shape[1]
            p = np.diff(np.concatenate([np.zeros((1, columns)), below, np.ones((1, columns))]), axis=0)
            p[:, np.isnan(below).any(axis=0)] = 0.0  # The given states are impossible.
            p = p.reshape([cards[v], *shape])
            if given:
                scope, table = self._tables[given[0]]
                p = p * table.sum(axis=tuple(k for k, u in enumerate(scope) if u not in given))
            self._tables[v] = [v, *given], p

    def single(self, variable: int) -> Array:
        """Return P(x)."""
        _, table = self._tables[variable]
        p = np.clip(table.reshape(len(table), -1).sum(axis=1), 0.0, None)
        return p / p.sum()

    def pair(self, one: int, two: int) -> Array:
        """Return P(x, y) of two variables that share a factor."""
        if self._rank[one] > self._rank[two]:
            return self.pair(two, one).T
        if (one, two) not in self._pairs:
            scope, table = self._tables[one]
            self._pairs[one, two] = table.sum(axis=tuple(k for k, u in enumerate(scope) if u not in (one, two)))
        return self._pairs[one, two]


def factor_marginals(model: FactorModel, log2_entries: float | None = None) -> list[Array] | None:
    """Return P(x) of every variable of a model of factors, or None if elimination needs too large tables.

    By default the limit of the number of all entries follows from the free memory.
    """
    if log2_entries is None:
        room = _MEMORY * free_memory() / _BYTES_PER_ENTRY
        log2_entries = min(_MOST_FACTORED, math.log2(max(1.0, room)))
    order, entries = cheapest_order(model.cards, model.scopes)
    if entries > log2_entries:
        return None
    laws = Laws(model.cards, list(zip(model.scopes, model.tables, strict=True)), order, hard=model.is_hard)
    return [laws.single(v) for v in range(model.n_variables)]
