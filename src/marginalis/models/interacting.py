"""Models with products of three or more variables, the form in which factor models are annealed.

    −E(x) = Σ_f b_f x_f + Σ_{f<g} w_fg x_f x_g + Σ_a J_a Π_{f ∈ a} x_f

with features x_f that are spins or one-hot features. Given the others, the field of a feature is linear in the products
of the features with which it shares a term. No term has two hidden variables, nor two variables of one block of the
sweep, so that the hidden variables and each block can be summed and drawn exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..checks import Array
from .arrange import arrange
from .factors import FactorModel
from .forms import Indices, Split
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


@dataclass(frozen=True, eq=False, repr=False)
class InteractingMRF(MRF):
    """A Markov random field at temperature 1 that also has terms of three or more features."""

    terms: tuple[Terms, ...] = ()
    blocks: tuple[Indices, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return InteractingMRF, tuple(getattr(self, x.name) for x in fields(self) if x.init)

    @property
    def has_terms(self) -> bool:
        """Whether there are products of three or more features."""
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
            lateral=None if self.lateral is None else self.lateral[at][:, at],
            split=Split(self.split.visible[::-1], self.split.hidden),
            terms=tuple(Terms(place[x.features], x.couplings) for x in self.terms),
            blocks=tuple(n - 1 - block[::-1] for block in reversed(self.blocks)),
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


def interacting(model: FactorModel) -> InteractingMRF:
    """Return a factor model without zeros as a model that can be annealed; tables may join any number of variables.

    Two-state variables are spins, state 0 down and 1 up. If any variable has more states, all are categorical. The
    hidden variables are an independent set of the graph that joins all variables of a factor.
    """
    two = set(model.cards) == {2}
    starts = np.concatenate([[0], np.cumsum([1 if two else card for card in model.cards])])
    count = int(starts[-1])
    units = SPIN if two else Categorical(model.cards)
    constants, bias = [model.offset], np.zeros(count)
    products: dict[int, dict[tuple[int, ...], float]] = {}
    for features, coupling in _products(model, two, starts):
        if not features:
            constants.append(coupling)
        elif len(features) == 1:
            bias[features[0]] += coupling
        else:
            own = products.setdefault(len(features), {})
            own[features] = own.get(features, 0.0) + coupling
            if len(own) > _MOST_TERMS:
                raise ValueError(f"the factors have more than {_MOST_TERMS} products of features: exact methods may do")
    joined = sorted({pair for own in products.values() for x in own for pair in itertools.combinations(x, 2)})
    i, j = np.array(joined, dtype=np.int64).reshape(-1, 2).T
    graph = sp.csr_array((np.ones(len(i)), (i, j)), shape=(count, count))
    labels = None if model.labels == range(len(model.cards)) else model.labels
    shape = arrange(units, np.zeros(count), graph, labels=labels)  # Choose hidden variables and sweep.
    visible, hidden = shape.callers_features()
    place = np.empty(count, dtype=np.int64)
    place[visible], place[hidden] = np.arange(len(visible)), len(visible) + np.arange(len(hidden))
    pairs = products.pop(2, {})
    ends = np.sort(place[np.array(list(pairs), dtype=np.int64).reshape(-1, 2)], axis=1)
    links = sp.csr_array((np.array(list(pairs.values())), (ends[:, 0], ends[:, 1])), shape=(count, count))
    inside = links[: len(visible), : len(visible)]
    terms = tuple(
        Terms(np.sort(place[np.array(list(own), dtype=np.int64)], axis=1), np.array(list(own.values())))
        for own in products.values()
    )
    return InteractingMRF(
        links[: len(visible), len(visible) :],
        bias[visible],
        bias[hidden],
        shape.visible_units,
        shape.hidden_units,
        offset=math.fsum(constants),
        split=shape.split,
        lateral=sp.csr_array(inside + inside.T) if inside.nnz else None,
        labels=shape.labels,
        terms=terms,
        blocks=shape.sweep,
    )


def _products(model: FactorModel, two: bool, starts: Indices) -> Iterable[tuple[tuple[int, ...], float]]:
    """Yield the products of features, by number, with their coefficients in the exponent."""
    for scope, table in zip(model.scopes, model.tables, strict=True):
        first = [int(starts[v]) for v in scope]
        if not two:
            for states in np.ndindex(*table.shape):
                yield tuple(sorted(a + x for a, x in zip(first, states, strict=True))), float(table[states])
            continue
        coefficients = table
        for axis in range(table.ndim):
            down, up = np.moveaxis(coefficients, axis, 0)
            coefficients = np.stack([(down + up) / 2.0, (up - down) / 2.0], axis=axis)
        least = _EPS * float(np.abs(table).max(initial=0.0))
        for chosen in np.ndindex(*table.shape):
            coefficient = float(coefficients[chosen])
            if abs(coefficient) > least or not any(chosen):
                yield tuple(sorted(a for a, is_in in zip(first, chosen, strict=True) if is_in)), coefficient
