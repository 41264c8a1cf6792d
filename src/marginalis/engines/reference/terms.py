"""Fields of features from products of three or more features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...checks import Array
from ...models.interacting import Terms
from ...models.model import MRF


class _Pull(NamedTuple):
    """The other features of some terms, and the matrix that adds their products to the fields of the targets."""

    others: NDArray[np.int64]
    onto: sp.csr_array


class TermFields:
    """The contributions of a model's terms to −E and to the fields of its features, given rows of all features."""

    def __init__(self, model: MRF) -> None:
        terms: tuple[Terms, ...] = model.terms  # type: ignore[attr-defined]
        n, m = len(model.visible_bias), len(model.hidden_bias)
        self._visible = [(x.features[inside], x.couplings[inside]) for x in terms for inside in [x.features[:, -1] < n]]
        self._hidden = [
            pull for x in terms for pull in [_pull(x, np.arange(n, n + m), x.features.shape[1] - 1)] if pull is not None
        ]
        self._terms, self._n, self._m = terms, n, m

    def block(self, features: NDArray[np.int64]) -> list[_Pull]:
        """Return the terms that add to the fields of some visible features."""
        found = [_pull(x, features, place) for x in self._terms for place in range(x.features.shape[1])]
        return [pull for pull in found if pull is not None]

    def rise(self, v: Array) -> Array:
        """Return the sum of the terms of visible features."""
        total = np.zeros(len(v))
        for features, couplings in self._visible:
            total += _products(v, features).T @ couplings
        return total

    def on_hidden(self, v: Array) -> Array:
        """Return the fields of the hidden features, given the visible ones."""
        return pulled(self._hidden, v, self._m)


def pulled(pulls: list[_Pull], rows: Array, targets: int) -> Array:
    """Return the fields of some features, given all others."""
    fields = np.zeros((len(rows), targets))
    for pull in pulls:
        fields += (pull.onto @ _products(rows, pull.others)).T
    return fields


def _products(rows: Array, features: NDArray[np.int64]) -> Array:
    """Return the products of some features, [product, row]."""
    columns = np.ascontiguousarray(rows.T)
    found: Array = columns[features[:, 0]]
    for place in range(1, features.shape[1]):
        found *= columns[features[:, place]]
    return found


def _pull(terms: Terms, targets: NDArray[np.int64], place: int) -> _Pull | None:
    """Return the contribution to the targets' fields of the terms that have a target at this place, or None."""
    at = np.flatnonzero(np.isin(terms.features[:, place], targets))
    if not len(at):
        return None
    column = np.searchsorted(targets, terms.features[at, place])
    onto = sp.csr_array((terms.couplings[at], (column, np.arange(len(at)))), shape=(len(targets), len(at)))
    return _Pull(np.delete(terms.features[at], place, axis=1), onto)
