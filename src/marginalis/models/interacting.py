"""Models with factors of three or more variables, the form in which factor models are annealed.

    −E(x) = Σ_f b_f x_f + Σ_a J_a Π_{f ∈ a} x_f          for spins, or
    −E(x) = Σ_f b_f x_f + Σ_a table_a[states of a]        for categorical variables

with features x_f that are spins or one-hot features. Pairs are terms like all others; the matrix of couplings is empty.
No term has two hidden variables, nor two variables of one block of the sweep, so that the hidden variables and each
block can be summed and drawn exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..checks import Array, real_number
from .arrange import arrange
from .factors import FactorModel
from .forms import Indices, SpinForm, Split
from .layered import as_factors, as_model
from .model import MRF
from .units import SPIN, Categorical

# Coefficients up to this fraction of the largest entry of a table count as zero.
_EPS = 2.0**-50
# Variables with tables of up to 2^4 entries are summed out to remove zeros.
_BOUND = 4.0
# Largest number of products of three or more features in a model.
_MOST_TERMS = 1 << 22


class Terms(NamedTuple):
    """Products of equally many features: their numbers [term, place], visible features first, and their couplings."""

    features: Indices
    couplings: Array


class Table(NamedTuple):
    """A table of the states of some variables, numbered with the visible ones first, in ascending order."""

    variables: tuple[int, ...]
    values: Array


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

    def transposed(self) -> MRF:
        """Raise a ValueError, since only the hidden variables can be summed out."""
        raise ValueError("the model is not bipartite: its visible variables cannot be summed out")

    def at_temperature(self, temperature: float) -> InteractingMRF:
        """Return the model of P(x)^(1/T), up to normalisation, at temperature 1."""
        t = real_number(temperature, "temperature")
        if t <= 0.0:
            raise ValueError(f"temperature is {t!r}; it must be positive")
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
            tables=tuple(_sorted([n - 1 - v if v < n else v for v in x.variables], x.values) for x in self.tables),
            blocks=tuple(n - 1 - block[::-1] for block in reversed(self.blocks)),
        )

    @cached_property
    def _pairs(self) -> Indices:
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
        of = self._pairs[self._pairs[:, 1] >= self.n_visible]
        return of - np.array([0, self.n_visible])

    @cached_property
    def lateral_edges(self) -> Indices:
        """Pairs i < j of visible variables that share a term, each once."""
        return self._pairs[self._pairs[:, 1] < self.n_visible]

    @cached_property
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


def range_of_terms(x: Any) -> float:
    """Return an upper bound of the range of the sum of all terms and tables of a model or of a base."""
    return sum(2.0 * float(np.abs(term.couplings).sum()) for term in x.terms) + sum(
        float(np.ptp(table.values)) for table in x.tables
    )


def annealable(value: Any) -> MRF:
    """Return any kind of model as one that can be annealed, or raise a ValueError.

    A factor model with zeros is reduced first (see `FactorModel.reduced`); it is refused if some zeros are left.
    """
    if isinstance(value, MRF):
        return value
    model = as_factors(value)
    if not isinstance(model, FactorModel) or model.largest_scope <= 2:
        return as_model(value)
    left = model.given()
    if left.is_hard:
        left = left.reduced(_BOUND)
    if left.largest_scope <= 2 or left.is_hard:
        return left.as_mrf()
    return interacting(left)


def interacting(model: FactorModel) -> MRF:
    """Return a factor model without zeros as a model that can be annealed; tables may join any number of variables.

    Two-state variables are spins, state 0 down and 1 up. If any variable has more states, all are categorical. The
    hidden variables are an independent set of the graph that joins all variables of a factor.
    """
    return interacting_alike([model])[0]


def interacting_alike(models: Sequence[FactorModel]) -> list[MRF]:
    """Return models of the same variables as models that can be annealed, all with the same sides and sweep."""
    first = models[0]
    two = set(first.cards) == {2}
    starts = np.concatenate([[0], np.cumsum([1 if two else card for card in first.cards])])
    units = SPIN if two else Categorical(first.cards)
    labels = None if first.labels == range(len(first.cards)) else first.labels
    found = [(_products if two else _tables)(model, starts) for model in models]
    scopes = {scope for _, _, joint in found for scope in joint}
    joined = {pair for scope in scopes for pair in itertools.combinations(sorted(scope), 2)}
    i, j = starts[np.array(sorted(joined), dtype=np.int64).reshape(-1, 2)].T
    count = int(starts[-1])
    graph = sp.csr_array((np.ones(len(i)), (i, j)), shape=(count, count))
    shape = arrange(units, np.zeros(count), graph, labels=labels)  # Choose hidden variables and sweep.
    if not joined:
        return [arrange(units, bias, graph, offset=math.fsum(constants), labels=labels) for constants, bias, _ in found]
    return [_arranged(shape, *parts) for parts in found]


def _arranged(shape: MRF, constants: list[float], bias: Array, joint: dict[tuple[int, ...], Any]) -> InteractingMRF:
    """Return the model of biases, and of couplings or tables by the caller's variables, on the sides of `shape`."""
    visible, hidden = shape.callers_features()
    order = np.concatenate([shape.split.visible, shape.split.hidden])
    place = np.argsort(order)
    terms: tuple[Terms, ...] = ()
    tables: tuple[Table, ...] = ()
    if shape.visible_units.is_one_hot:
        tables = tuple(_sorted(place[list(scope)].tolist(), values) for scope, values in joint.items())
    else:
        by_size: dict[int, list[tuple[int, ...]]] = {}
        for scope in joint:
            by_size.setdefault(len(scope), []).append(scope)
        terms = tuple(
            Terms(np.sort(place[np.array(own, dtype=np.int64)], axis=1), np.array([joint[x] for x in own]))
            for _, own in sorted(by_size.items())
        )
    return InteractingMRF(
        sp.csr_array((len(visible), len(hidden))),
        bias[visible],
        bias[hidden],
        shape.visible_units,
        shape.hidden_units,
        offset=math.fsum(constants),
        split=shape.split,
        labels=shape.labels,
        terms=terms,
        tables=tables,
        blocks=shape.sweep,
    )


def _sorted(variables: Sequence[int], values: Array) -> Table:
    """Return a table with its variables in ascending order."""
    axes = sorted(range(len(variables)), key=variables.__getitem__)
    return Table(tuple(variables[k] for k in axes), np.ascontiguousarray(values.transpose(axes)))


_Parts = tuple[list[float], Array, dict[tuple[int, ...], Any]]


def _products(model: FactorModel, starts: Indices) -> _Parts:
    """Return the constants, biases and couplings of products of spins in the exponent."""
    constants, bias = [model.offset], np.zeros(len(model.cards))
    products: dict[tuple[int, ...], float] = {}
    for features, coupling in _coefficients(model):
        if not features:
            constants.append(coupling)
        elif len(features) == 1:
            bias[features[0]] += coupling
        else:
            products[features] = products.get(features, 0.0) + coupling
            if len(products) > _MOST_TERMS:
                raise ValueError(f"the factors have more than {_MOST_TERMS} products of spins: exact methods may do")
    return constants, bias, products


def _coefficients(model: FactorModel) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield the products of spins, by variable, with their coefficients in the exponent."""
    for scope, table in zip(model.scopes, model.tables, strict=True):
        coefficients = table
        for axis in range(table.ndim):
            down, up = np.moveaxis(coefficients, axis, 0)
            coefficients = np.stack([(down + up) / 2.0, (up - down) / 2.0], axis=axis)
        is_large = np.abs(coefficients) > _EPS * float(np.abs(table).max(initial=0.0))
        is_large[(0,) * table.ndim] = True
        for chosen in np.argwhere(is_large).tolist():
            features = tuple(sorted(v for v, is_in in zip(scope, chosen, strict=True) if is_in))
            yield features, float(coefficients[tuple(chosen)])


def _tables(model: FactorModel, starts: Indices) -> _Parts:
    """Return the constants, biases and tables of categorical variables; the mean of a table is part of the constant."""
    constants, bias = [model.offset], np.zeros(int(starts[-1]))
    tables: dict[tuple[int, ...], Array] = {}
    for scope, table in zip(model.scopes, model.tables, strict=True):
        if len(scope) == 0:
            constants.append(float(table))
        elif len(scope) == 1:
            bias[starts[scope[0]] : starts[scope[0] + 1]] += table
        else:
            mean = float(table.mean())
            constants.append(mean)
            axes = sorted(range(len(scope)), key=scope.__getitem__)
            key, values = tuple(scope[k] for k in axes), table.transpose(axes) - mean
            tables[key] = tables[key] + values if key in tables else values
    return constants, bias, tables
