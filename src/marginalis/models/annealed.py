"""Factor models in the form in which they are annealed.

Factors of pairs without zeros become an `MRF`. Larger factors become an `InteractingMRF`: of products of spins if all
variables have two states, state 0 down and 1 up, and of tables of categorical variables otherwise. The hidden variables
are an independent set of the graph that joins all variables of a factor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import Array
from .arrange import arrange, shared_split
from .factors import FactorModel
from .forms import Indices
from .interacting import InteractingMRF, sweep_of_pairs
from .model import MRF
from .reachability import single_moves_reach_all
from .terms import Table, Terms, in_ascending_order
from .units import SPIN, Categorical, Units

# Constants, biases by feature, and couplings or tables by their variables in the caller's order.
_Parts = tuple[list[float], Array, dict[tuple[int, ...], Any]]

# Coefficients up to this fraction of the largest entry of a table count as zero.
_EPS = 2.0**-50
# Variables with tables of up to 2^4 entries are summed out to remove zeros.
BOUND = 4.0
# Least energy of a forbidden state at the end of a path, in units of T.
_PENALTY = 20.0
# Largest number of products of three or more features in a model.
_MOST_TERMS = 1 << 22


def annealed(model: FactorModel) -> MRF:
    """Return a factor model in the form in which it is annealed, or raise a ValueError if it has zeros."""
    if model.largest_scope <= 2:
        return model.as_mrf()
    left = model.given()
    return interacting(left) if left.largest_scope > 2 and not left.is_hard else left.as_mrf()


def shared_sides(a: MRF, b: MRF) -> tuple[MRF, MRF]:
    """Return two models of the same variables, arranged with the same variables summed out in both."""
    if not (a.has_terms or b.has_terms):
        return shared_split(a, b)
    if list(a.labels) != list(b.labels):
        raise ValueError("a and b must have the same variables: their labels differ")
    one, two = (x.as_factors() if isinstance(x, InteractingMRF) else FactorModel.of(x) for x in (a, b))
    if one.cards != two.cards:
        raise ValueError("a and b must have the same variables: their numbers of states differ")
    first, second = interacting_alike([one, two])
    return first, second


def on_sides_of(first: InteractingMRF, model: MRF) -> InteractingMRF:
    """Return a model of the same variables with the sides and the order of another one.

    Raises a ValueError if two variables that the other model sums out share a factor.
    """
    if list(first.labels) != list(model.labels):
        raise ValueError("has other variables than the first: the labels differ")
    factors = model.as_factors() if isinstance(model, InteractingMRF) else FactorModel.of(model)
    if list(factors.cards) != list(first.as_factors().cards):
        raise ValueError("has other variables than the first: the numbers of states differ")
    starts, _, build = _form_of(factors)
    found = _arranged(first, *build(factors, starts))
    if (found.pairs[:, 0] >= found.n_visible).any():
        raise ValueError("has factors that join variables which the first model sums out: they must share one graph")
    return replace(found, blocks=sweep_of_pairs(found.lateral_edges, found.n_visible))


def interacting(model: FactorModel) -> MRF:
    """Return a factor model as a model that can be annealed; tables may join any number of variables.

    Two-state variables are spins, state 0 down and 1 up. If any variable has more states, or a table has zeros, all are
    categorical, and zeros become penalties (see `_softened`). The
    hidden variables are an independent set of the graph that joins all variables of a factor.
    """
    return interacting_alike([model])[0]


def interacting_alike(models: Sequence[FactorModel]) -> list[MRF]:
    """Return models of the same variables as models that can be annealed, all with the same sides and sweep."""
    first = models[0]
    starts, units, build = _form_of(first)
    labels = None if first.labels == range(len(first.cards)) else first.labels
    found = [build(model, starts) for model in models]
    scopes = {scope for _, _, joint in found for scope in joint}
    joined = {pair for scope in scopes for pair in itertools.combinations(sorted(scope), 2)}
    i, j = starts[np.array(sorted(joined), dtype=np.int64).reshape(-1, 2)].T
    count = int(starts[-1])
    graph = sp.csr_array((np.ones(len(i)), (i, j)), shape=(count, count))
    shape = arrange(units, np.zeros(count), graph, labels=labels)  # Choose hidden variables and sweep.
    if not joined:
        return [arrange(units, bias, graph, offset=math.fsum(constants), labels=labels) for constants, bias, _ in found]
    return [_softened(_arranged(shape, *parts)) for parts in found]


def _form_of(model: FactorModel) -> tuple[Indices, Units, Callable[[FactorModel, Indices], _Parts]]:
    """Return the first feature of every variable, the kind of the variables, and how factors are written in them."""
    two = set(model.cards) == {2} and not model.is_hard
    starts = np.concatenate([[0], np.cumsum([1 if two else card for card in model.cards])])
    return (starts, SPIN, _products) if two else (starts, Categorical(model.cards), _tables)


def _arranged(shape: MRF, constants: list[float], bias: Array, joint: dict[tuple[int, ...], Any]) -> InteractingMRF:
    """Return the model of biases, and of couplings or tables by the caller's variables, on the sides of `shape`."""
    visible, hidden = shape.callers_features()
    order = np.concatenate([shape.split.visible, shape.split.hidden])
    place = np.argsort(order)
    terms: tuple[Terms, ...] = ()
    tables: tuple[Table, ...] = ()
    if shape.visible_units.is_one_hot:
        tables = tuple(in_ascending_order(place[list(scope)].tolist(), values) for scope, values in joint.items())
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


def _softened(model: InteractingMRF) -> InteractingMRF:
    """Return the model with a penalty in place of each −∞, which grows along the path, and the −∞ in `zeros`.

    The penalty lies `_PENALTY` below the least finite entry of the table, and lower by as much as the other tables of
    one of its variables may pull that variable, so that almost no chain ends in a forbidden state if a single move can
    leave it.
    """
    if not any(np.isneginf(x.values).any() for x in model.tables):
        return model
    starts = model.feature_starts
    bias = np.concatenate([model.visible_bias, model.hidden_bias])
    pull = np.array([float(np.ptp(bias[a:b])) for a, b in itertools.pairwise(starts)])
    ranges = [float(np.ptp(x.values[x.values > -np.inf])) for x in model.tables]
    for x, own in zip(model.tables, ranges, strict=True):
        pull[list(x.variables)] += own
    tables, zeros = [], []
    for x, own in zip(model.tables, ranges, strict=True):
        forbidden = np.isneginf(x.values)
        if forbidden.any():
            least = float(x.values[~forbidden].min())
            penalty = _PENALTY + float(pull[list(x.variables)].min()) - own
            zeros.append(Table(x.variables, np.where(forbidden, -np.inf, 0.0)))
            x = Table(x.variables, np.where(forbidden, least - penalty, x.values))
        tables.append(x)
    scopes, forbids = [x.variables for x in zeros], [x.values for x in zeros]
    is_reached = single_moves_reach_all(np.diff(starts).tolist(), scopes, forbids)
    return replace(model, tables=tuple(tables), zeros=tuple(zeros), is_reached=is_reached)


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
                raise ValueError(
                    f"the factors have more than {_MOST_TERMS} products of spins; exact methods may still apply"
                )
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
    """Return the constants, biases and tables of categorical variables.

    The mean of the finite entries of a table is part of the constant.
    """
    constants, bias = [model.offset], np.zeros(int(starts[-1]))
    tables: dict[tuple[int, ...], Array] = {}
    for scope, table in zip(model.scopes, model.tables, strict=True):
        if len(scope) == 0:
            constants.append(float(table))
        elif len(scope) == 1:
            bias[starts[scope[0]] : starts[scope[0] + 1]] += table
        else:
            mean = float(table[table > -np.inf].mean())
            constants.append(mean)
            axes = sorted(range(len(scope)), key=scope.__getitem__)
            key, values = tuple(scope[k] for k in axes), table.transpose(axes) - mean
            tables[key] = tables[key] + values if key in tables else values
    return constants, bias, tables
