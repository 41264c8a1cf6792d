"""Models with factors of three or more variables, the form in which factor models are annealed.

    −E(x) = Σ_f b_f x_f + Σ_a J_a Π_{f ∈ a} x_f          for spins, or
    −E(x) = Σ_f b_f x_f + Σ_a table_a[states of a]        for categorical variables

with features x_f that are spins or one-hot features. Pairs are terms like all others; the matrix of couplings is empty.
No term has two hidden variables, nor two variables of one block of the sweep, so that the hidden variables and each
block can be summed and drawn exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import Array, positive
from .factors import FactorModel
from .forms import Indices, SpinForm, Split, sweep_blocks
from .model import MRF
from .terms import Factors, Table, TermFields, Terms, in_ascending_order

_ROWS = 4096  # Chains whose final states are checked together, to bound the memory.


@dataclass(frozen=True)
class InteractingForm(SpinForm):
    """A `SpinForm` whose measures count the terms of an `InteractingMRF`."""

    own_size: float = 0.0
    own_squares: float = 0.0
    own_reach: tuple[Array, Array] = ()  # type: ignore[assignment]

    @property
    def size(self) -> float:
        """Sum of the absolute values of all terms."""
        return super().size + self.own_size

    @property
    def reach(self) -> tuple[Array, Array]:
        """Largest change of the field of each feature by the terms."""
        return self.own_reach

    @property
    def squares(self) -> float:
        """Sum of the squares of all couplings, and of the variances of all tables."""
        return self.own_squares


@dataclass(frozen=True, eq=False, repr=False)
class InteractingMRF(MRF):
    """A Markov random field at temperature 1 whose variables interact by terms or tables."""

    terms: tuple[Terms, ...] = ()
    tables: tuple[Table, ...] = ()
    blocks: tuple[Indices, ...] = ()
    zeros: tuple[Table, ...] = ()  # −∞ for states that are forbidden, for which `tables` has a finite penalty, else 0.
    is_reached: bool = True  # Whether single moves are known to connect all possible states.

    def __reduce__(self) -> tuple[Any, ...]:
        return InteractingMRF, tuple(getattr(self, x.name) for x in fields(self) if x.init)

    @property
    def has_terms(self) -> bool:
        """Whether there may be factors of three or more variables."""
        return True

    @property
    def is_bipartite(self) -> bool:
        """False: two visible variables share a term."""
        return False

    @property
    def sweep(self) -> tuple[Indices, ...]:
        """Blocks of visible variables in the order in which a Gibbs sweep draws them."""
        return self.blocks

    @property
    def has_zeros(self) -> bool:
        """Whether some states are forbidden; those of the chains that end in one have the weight zero."""
        return bool(self.zeros)

    def without_zeros(self) -> InteractingMRF:
        """Return the model in which forbidden states have a penalty instead."""
        return replace(self, zeros=(), is_reached=True)

    def log_possible(self, v: Array) -> Array:
        """Return, for rows of visible features, ln of the share of Σ_h exp(−E) that possible states have.

        As a factor of the weights of chains at the end of a path it turns Z of the model with penalties into that of
        the model with zeros, without bias.
        """
        starts = self.feature_starts
        fields = TermFields((), self.zeros, starts, len(self.visible_bias))
        found = np.empty(len(v))
        for first in range(0, len(v), _ROWS):
            rows = v[first : first + _ROWS]
            soft, hard = self.hidden_fields(rows), fields.on_hidden(rows)
            possible = fields.rise(rows) > -np.inf
            if soft.shape[1]:
                own = starts[self.n_visible : -1] - starts[self.n_visible]
                possible &= np.logical_or.reduceat(hard > -np.inf, own, axis=1).all(axis=1)
            hard[~possible] = 0.0
            share = self.hidden_units.log_normaliser(soft + hard) - self.hidden_units.log_normaliser(soft)
            found[first : first + _ROWS] = np.where(possible, share, -np.inf)
        return found

    def transposed(self) -> MRF:
        """Raise a ValueError, since only the hidden variables can be summed out."""
        raise ValueError("the model is not bipartite: its visible variables cannot be summed out")

    def at_temperature(self, temperature: float) -> InteractingMRF:
        """Return the model of P(x)^(1/T), up to normalisation, at temperature 1."""
        t = positive(temperature, "temperature")
        return self.times(1.0 / t)

    def times(self, factor: float) -> InteractingMRF:
        """Return the model whose −E is `factor` times that of this one."""
        return replace(
            self,
            visible_bias=factor * self.visible_bias,
            hidden_bias=factor * self.hidden_bias,
            offset=factor * self.offset,
            terms=tuple(Terms(x.features, factor * x.couplings) for x in self.terms),
            tables=tuple(Table(x.variables, factor * x.values) for x in self.tables),
        )

    def reversed_sweep(self) -> InteractingMRF:
        """Return the same model with the visible variables in the opposite order."""
        n = self.n_visible
        at = self.visible_features(np.arange(n)[::-1])
        place = np.arange(self.n_features)
        place[at] = np.arange(len(at))
        return replace(
            self,
            weights=self.weights[at],
            visible_bias=self.visible_bias[at],
            visible_units=self.visible_units.take(np.arange(n)[::-1]),
            split=Split(self.split.visible[::-1], self.split.hidden),
            terms=tuple(Terms(np.sort(place[x.features], axis=1), x.couplings) for x in self.terms),
            tables=tuple(
                in_ascending_order([n - 1 - v if v < n else v for v in x.variables], x.values) for x in self.tables
            ),
            zeros=tuple(
                in_ascending_order([n - 1 - v if v < n else v for v in x.variables], x.values) for x in self.zeros
            ),
            blocks=tuple(n - 1 - block[::-1] for block in reversed(self.blocks)),
        )

    def given(self, held: Mapping[Any, Any]) -> MRF:
        """Raise a ValueError: variables are held in the factor model."""
        raise ValueError("variables of a model with factors are held before it is annealed: use FactorModel.given")

    def with_natural(self, weights: Any, b: Array, c: Array, lateral: Any) -> MRF:
        """Raise a ValueError: couplings of pairs are terms here."""
        raise ValueError("a model with factors has no natural parameters of pairs")

    @cached_property
    def _term_fields(self) -> TermFields:
        return TermFields(self.terms, self.tables, self.feature_starts, len(self.visible_bias))

    def hidden_fields(self, v: Array) -> Array:
        """Return the fields of the hidden features, given the visible ones."""
        return self.hidden_bias + self._term_fields.on_hidden(v)

    def visible_fields(self, v: Array, h: Array) -> Array:
        """Return the fields of the visible features, each given all other variables."""
        return self.visible_bias + self._term_fields.on_visible(v, h)

    def visible_exponent(self, v: Array) -> Array:
        """Return −E/T without the terms of hidden variables and the offset."""
        return np.asarray(v @ self.visible_bias + self._term_fields.rise(v))

    @cached_property
    def coupling_sizes(self) -> tuple[Any, Any]:
        """By how much features change the fields of others at most: |V| × |H|, and between visible features."""
        rows, columns, sizes = [], [], []
        for x in self.terms:
            for one, two in itertools.combinations(range(x.features.shape[1]), 2):
                rows.append(x.features[:, one])
                columns.append(x.features[:, two])
                sizes.append(np.abs(x.couplings))
        starts = self.feature_starts
        for table in self.tables:
            largest = np.abs(table.values)
            for one, two in itertools.combinations(range(largest.ndim), 2):
                of_two = largest.max(axis=tuple(k for k in range(largest.ndim) if k not in (one, two)))
                at = np.indices(of_two.shape).reshape(2, -1)
                rows.append(at[0] + starts[table.variables[one]])
                columns.append(at[1] + starts[table.variables[two]])
                sizes.append(of_two.ravel())
        n, count = len(self.visible_bias), self.n_features
        ends = (
            np.concatenate([np.zeros(0, dtype=np.int64), *rows]),
            np.concatenate([np.zeros(0, dtype=np.int64), *columns]),
        )
        half = sp.csr_array((np.concatenate([np.zeros(0), *sizes]), ends), shape=(count, count))
        both = sp.csr_array(half + half.T)
        return both[:n][:, n:], both[:n][:, :n]

    @property
    def factors(self) -> Factors:
        """The numbers of states, and the factors with visible variables numbered first; a state 0 of a spin is −1."""
        starts, bias = self.feature_starts, np.concatenate([self.visible_bias, self.hidden_bias])
        if self.visible_units.is_one_hot:
            cards = np.diff(starts).tolist()
            unary = [((v,), bias[starts[v] : starts[v + 1]]) for v in range(len(cards))]
            joint = [(x.variables, x.values) for x in (*self.tables, *self.zeros)]
            return cards, [*unary, *joint]
        found: list[tuple[tuple[int, ...], Array]] = [((v,), np.array([-b, b])) for v, b in enumerate(bias)]
        for terms in self.terms:
            product = np.ones(())
            for _ in range(terms.features.shape[1]):
                product = np.multiply.outer(product, np.array([-1.0, 1.0]))
            scopes = zip(terms.features.tolist(), terms.couplings.tolist(), strict=True)
            found += [(tuple(scope), coupling * product) for scope, coupling in scopes]
        return [2] * len(bias), found

    def as_factors(self) -> FactorModel:
        """Return the model as factors, with the variables in the caller's order."""
        cards, factors = self.factors
        callers = np.concatenate([self.split.visible, self.split.hidden])
        number = callers.tolist()
        return FactorModel(
            tuple(np.array(cards)[np.argsort(callers)].tolist()),
            tuple(tuple(number[v] for v in scope) for scope, _ in factors),
            tuple(np.array(table) for _, table in factors),
            self.offset,
            self.labels,
        )

    @cached_property
    def pairs(self) -> Indices:
        """Pairs i < j of variables that share a term, each once, with the visible ones numbered first."""
        n = len(self.visible_bias)
        owners = np.concatenate([self.visible_units.owners(n), self.hidden_units.owners(len(self.hidden_bias))])
        owners[n:] += self.n_visible
        found = [np.zeros((0, 2), dtype=np.int64)]
        for x in self.terms:
            of = owners[x.features]
            found += [of[:, pair] for pair in itertools.combinations(range(of.shape[1]), 2)]
        found += [np.array(list(itertools.combinations(x.variables, 2)), dtype=np.int64) for x in self.tables]
        return np.unique(np.concatenate(found), axis=0)

    @cached_property
    def edges(self) -> Indices:
        """Pairs (visible, hidden) of variables that share a term, each once."""
        of = self.pairs[self.pairs[:, 1] >= self.n_visible]
        return of - np.array([0, self.n_visible])

    @cached_property
    def lateral_edges(self) -> Indices:
        """Pairs i < j of visible variables that share a term, each once."""
        return self.pairs[self.pairs[:, 1] < self.n_visible]

    @cached_property
    @np.errstate(over="ignore")
    def partial_spin_form(self) -> SpinForm:
        """The fields, and measures of the terms: spins are ±1 already."""
        reach = np.zeros(self.n_features)
        size = squares = 0.0
        for x in self.terms:
            np.add.at(reach, x.features, np.abs(x.couplings)[:, None])
            size, squares = size + float(np.abs(x.couplings).sum()), squares + float(np.square(x.couplings).sum())
        starts = self.feature_starts
        for table in self.tables:
            largest = np.abs(table.values)
            size, squares = size + float(largest.max()), squares + float(table.values.var())
            for axis, v in enumerate(table.variables):
                rest = tuple(k for k in range(largest.ndim) if k != axis)
                reach[starts[v] : starts[v + 1]] += largest.max(axis=rest)
        n = len(self.visible_bias)
        none = self.weights
        return InteractingForm(
            none, self.visible_bias, self.hidden_bias, 0.0, None, own_size=size, own_squares=squares,
            own_reach=(reach[:n], reach[n:]),
        )  # fmt: skip

    @property
    def spin_form(self) -> SpinForm | None:
        """None: no function that takes pairs of spins counts the terms."""
        return None

    @cached_property
    def highest(self) -> float:
        """Upper bound of −E without the offset: the sum of the largest values of all terms."""
        own = np.concatenate([self.visible_bias, self.hidden_bias])
        total = float(np.abs(own).sum() if not self.visible_units.is_one_hot else np.maximum(own, 0.0).sum())
        total += sum(float(np.abs(x.couplings).sum()) for x in self.terms)
        return total + sum(max(0.0, float(x.values.max())) for x in self.tables)

    @cached_property
    def feature_starts(self) -> Indices:
        """The first feature of every variable, visible ones first, and the number of features at the end."""
        sides = (self.visible_units, self.visible_bias), (self.hidden_units, self.hidden_bias)
        counts = [np.bincount(units.owners(len(bias)), minlength=units.variables(len(bias))) for units, bias in sides]
        return np.concatenate([[0], np.cumsum(np.concatenate(counts))])


def sweep_of_pairs(pairs: Indices, n: int) -> tuple[Indices, ...]:
    """Cut the variables 0 … n−1 into consecutive blocks without any of these pairs inside, each as long as possible."""
    matrix = sp.coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return sweep_blocks(matrix, np.arange(n), n)


def range_of_terms(x: Any) -> float:
    """Return an upper bound of the range of the sum of all terms and tables of a model or of a base."""
    return sum(2.0 * float(np.abs(term.couplings).sum()) for term in x.terms) + sum(
        float(np.ptp(table.values)) for table in x.tables
    )
