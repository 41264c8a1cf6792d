"""Factor models from tables, from polynomials of spins or binaries, and from pgmpy's networks.

This module does not import other packages. A model of pgmpy is a networkx graph with tables in its attribute
``factors`` or ``cpds``. A ``BinaryPolynomial`` of dimod, or OpenJij's model of higher order, has a ``vartype`` and
terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..checks import Array, a_kind, one_line, one_of, plain_array, positive, real_number, shown, whole
from .factors import FactorModel

# Largest number of variables in a term, whose table then has 2^20 entries.
_MOST_VARIABLES = 20
# Attributes of pgmpy's graphs that hold tables.
_TABLES = ("factors", "cpds")


def has_tables(value: Any) -> bool:
    """Whether a value is a graph with tables, which the edges alone do not describe."""
    is_graph = all(hasattr(value, name) for name in ("nodes", "edges", "is_directed"))
    return is_graph and any(hasattr(value, name) for name in (*_TABLES, "get_factors", "get_cpds"))


def is_polynomial(value: Any) -> bool:
    """Whether a value maps terms of any number of variables to costs."""
    terms = getattr(value, "polynomial", value)
    return isinstance(terms, Mapping) and getattr(getattr(value, "vartype", None), "name", "") in ("SPIN", "BINARY")


def from_binary_polynomial(value: Any) -> FactorModel:
    """Return the factors of a ``dimod.BinaryPolynomial``: E = Σ cost · Π x, with P ∝ exp(−E).

    State 0 is the lower value of a variable and state 1 the higher. Labels are sorted if possible, since dimod keeps
    them in sets.
    """
    costs: dict[tuple[Any, ...], Any] = {}
    for term, cost in getattr(value, "polynomial", value).items():
        costs[tuple(term)] = -real_number(cost, f"the cost of {shown(tuple(term))}")
    labels = _in_order(list(dict.fromkeys(x for term in costs for x in term)))
    return _polynomial(costs, labels, is_spin=value.vartype.name == "SPIN")


def from_polynomial(
    terms: Mapping[tuple[Any, ...], float], *, units: str = "spin", temperature: float = 1.0
) -> FactorModel:
    """Return the model −E·T = Σ J · Π x of products of any number of spins or 0/1 variables.

    Parameters
    ----------
    terms
        J by the labels of the variables of its product: ``{("a", "b", "c"): 0.5, ("a",): -1.0}``. Terms of the same
        variables add up; the term ``()`` is a constant.
    units
        ``"spin"`` (−1 and 1) or ``"binary"`` (0 and 1). State 0 is the lower value, state 1 the higher.
    temperature
        T > 0, which divides the whole energy.

    Returns
    -------
    FactorModel
        Its variables are in the order in which they occur in the terms.
    """
    one_of(units, ("spin", "binary"), "units")
    if not isinstance(terms, Mapping):
        raise ValueError(f"terms is {a_kind(terms)}; it must map tuples of labels to numbers")
    divisor = positive(temperature, "temperature")
    values: dict[tuple[Any, ...], float] = {}
    for term, coefficient in terms.items():
        if not isinstance(term, tuple | frozenset):
            raise ValueError(f"terms has the key {shown(term)}; it must be a tuple of labels")
        values[tuple(term)] = real_number(coefficient, f"the coefficient of {shown(tuple(term))}") / divisor
    return _polynomial(values, list(dict.fromkeys(x for term in values for x in term)), is_spin=units == "spin")


def _polynomial(terms: Mapping[tuple[Any, ...], float], labels: list[Any], *, is_spin: bool) -> FactorModel:
    """Return the factors of a polynomial in the exponent; terms of the same variables add up."""
    if not labels:
        raise ValueError("the polynomial has no variables")
    number = {label: i for i, label in enumerate(labels)}
    factors: dict[tuple[int, ...], Array] = {}
    offset = 0.0
    for term, coefficient in terms.items():
        if len(set(term)) < len(term):
            raise ValueError(f"the term {shown(term)} names a variable twice")
        if len(term) > _MOST_VARIABLES:
            raise ValueError(f"a term joins {len(term)} variables; at most {_MOST_VARIABLES} fit a table")
        if not term:
            offset += coefficient
            continue
        table = np.array(coefficient)
        for _ in term:
            table = np.multiply.outer(table, np.array([-1.0, 1.0] if is_spin else [0.0, 1.0]))
        scope = tuple(sorted(number[label] for label in term))  # The table does not depend on the order.
        factors[scope] = factors[scope] + table if scope in factors else table
    return FactorModel((2,) * len(labels), tuple(factors), tuple(factors.values()), offset, tuple(labels))


def from_factors(
    factors: Iterable[tuple[Sequence[Any], Any]], *, states: Mapping[Any, int] | None = None, log: bool = False
) -> FactorModel:
    """Return the model P(x) = Π_a table_a(x_scope(a)) / Z of tables over any labels.

    Parameters
    ----------
    factors
        Pairs (scope, table): the labels of the variables of a factor, and its values with an axis per variable.
    states
        Numbers of states by label, for variables without a factor and to fix the order of the variables; other
        variables follow in the order in which they occur.
    log
        Whether tables hold logarithms, where −∞ forbids a state; by default they hold weights, where 0 does.
    """
    cards = {label: whole(card, f"states of {shown(label)}", 1, 2**31) for label, card in (states or {}).items()}
    scopes, tables = [], []
    if isinstance(factors, Mapping):
        raise ValueError(f"factors is {a_kind(factors)}; it must be a list of pairs (scope, table)")
    for k, factor in enumerate(factors):
        try:
            scope, values = factor
            scope = tuple(scope) if not isinstance(scope, str) else (scope,)
        except (TypeError, ValueError):
            raise ValueError(f"factors[{k}] is {a_kind(factor)}; it must be a pair (scope, table)") from None
        names = one_line(", ".join(map(str, scope)), 60)
        given = plain_array(values, f"the table of ({names})")
        if given.dtype.kind not in "fiub":
            kind = one_line(given.dtype, 80)
            raise ValueError(f"the table of ({names}) has dtype {kind}; it must hold real numbers")
        table = np.array(given, dtype=np.float64)
        if not all(map(_is_label, scope)):
            raise ValueError(f"the factor of ({names}) has a label that is NaN or a list, which can name no variable")
        if len(set(scope)) < len(scope):
            raise ValueError(f"the factor of ({names}) names a variable twice")
        if table.ndim != len(scope):
            raise ValueError(f"the table of ({names}) has {table.ndim} axes for {len(scope)} variables")
        for label, card in zip(scope, table.shape, strict=True):
            if card == 0:
                raise ValueError(f"the table of ({names}) has no states of the variable {shown(label)}")
            if cards.setdefault(label, card) != card:
                raise ValueError(
                    f"the table of ({names}) has {card} states of the variable {shown(label)}, which has {cards[label]}"
                )
        if np.isnan(table).any() or np.isposinf(table).any() or not (log or (table >= 0.0).all()):
            raise ValueError(
                f"the table of ({names}) must hold {'finite numbers or -inf' if log else 'finite weights, 0 or more'}"
            )
        if not log:
            with np.errstate(divide="ignore"):
                table = np.asarray(np.log(table))
        if not np.isfinite(table).any():
            raise ValueError(f"Z = 0: the table of ({names}) holds zeros only")
        scopes.append(scope)
        tables.append(table)
    if not cards:
        raise ValueError("factors name no variables")
    number = {label: i for i, label in enumerate(cards)}
    numbered = tuple(tuple(number[label] for label in scope) for scope in scopes)
    return FactorModel(tuple(cards.values()), numbered, tuple(tables), labels=tuple(cards))


def _is_label(label: Any) -> bool:
    """Whether an object can name a variable: it has a hash, and it equals itself."""
    try:
        hash(label)
    except TypeError:
        return False
    return bool(label == label)


def _in_order(labels: list[Any]) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:
        return sorted(labels, key=repr)


def from_pgmpy(model: Any, evidence: Mapping[Any, Any] | None = None) -> FactorModel:
    """Return the factors of a Markov network, factor graph, junction tree or Bayesian network of pgmpy.

    Parameters
    ----------
    model
        The product of its tables is P(x) times Z; Z = 1 for a Bayesian network without evidence.
    evidence
        States in which variables are held, by name if the model names its states, or by number. For a Bayesian network
        ln Z of the result is ln P(evidence).

    Returns
    -------
    FactorModel
        Its labels are the names of the variables. `exact_log_z` and `expectations` accept it, and ``as_model`` converts
        it to an `MRF` if all factors join pairs.
    """
    if not has_tables(model):
        raise ValueError(f"model is {a_kind(model)}; it must be a Markov network, factor graph or Bayesian network")
    tables = next((list(found) for name in _TABLES if isinstance(found := getattr(model, name, None), Iterable)), [])
    for table in tables:
        if not all(hasattr(table, name) for name in ("variables", "cardinality", "values")):
            raise ValueError(
                f"model is {a_kind(model)} with {a_kind(table)}; only tables of discrete variables can be read"
            )
    scoped = dict.fromkeys(label for table in tables for label in table.variables)
    labels = [node for node in model.nodes if node in scoped]
    if not labels:  # The nodes of a junction tree are cliques.
        labels = list(scoped)
    elif not hasattr(model, "get_variable_nodes"):  # The other nodes of a factor graph are factors.
        without = [node for node in model.nodes if node not in scoped]
        if without:
            raise ValueError(f"model has no table with the variable {shown(without[0])}")
    if not labels:
        raise ValueError(f"model is {a_kind(model)} without tables: there is nothing to sum")
    names = _state_names(labels, tables)
    number = {label: i for i, label in enumerate(labels)}
    scopes = [tuple(number[label] for label in table.variables) for table in tables]
    logs = [_logs(table, names) for table in tables]
    cards = tuple(len(names[label]) for label in labels)
    found = FactorModel(cards, tuple(scopes), tuple(logs), labels=tuple(labels))
    held = {label: _state(label, state, names) for label, state in (evidence or {}).items()}
    return found.given(held) if held else found


def _state_names(labels: Sequence[Any], tables: Sequence[Any]) -> dict[Any, list[Any]]:
    """Return the names, or else the numbers, of the states of each variable; all tables must agree."""
    names: dict[Any, list[Any]] = {}
    known = set(labels)
    for table in tables:
        cards = [int(x) for x in np.ravel(plain_array(table.cardinality, "cardinality"))]
        own = getattr(table, "state_names", None) or {}
        for label, card in zip(table.variables, cards, strict=True):
            if label not in known:
                raise ValueError(f"model has a table with the variable {shown(label)}, which is not in the graph")
            found = list(own.get(label, range(card)))
            if len(found) != card or names.setdefault(label, found) != found:
                raise ValueError(f"the tables of the model disagree about the states of the variable {shown(label)}")
    return names


def _logs(table: Any, names: Mapping[Any, Sequence[Any]]) -> Array:
    scope = one_line(", ".join(map(str, table.variables)), 60)
    values = np.asarray(plain_array(table.values, f"the table of ({scope})"), dtype=np.float64)
    shape = tuple(len(names[label]) for label in table.variables)
    if values.size != np.prod(shape, dtype=np.int64):
        raise ValueError(f"the table of ({scope}) has {values.size} values; its variables need {shape}")
    if not (np.isfinite(values) & (values >= 0.0)).all():
        raise ValueError(f"the table of ({scope}) holds values that are negative or not finite")
    if not values.any():
        raise ValueError(f"Z = 0: the table of ({scope}) holds zeros only")
    with np.errstate(divide="ignore"):
        logs: Array = np.log(values.reshape(shape))
    return logs


def _state(label: Any, state: Any, names: Mapping[Any, Sequence[Any]]) -> int:
    if label not in names:
        raise ValueError(f"evidence names the variable {shown(label)}, which the model does not have")
    known = list(names[label])
    if state in known:
        return known.index(state)
    if known == list(range(len(known))):
        return whole(state, f"the state of {shown(label)} in evidence", 0, len(known) - 1)
    raise ValueError(
        f"evidence holds {shown(label)} in the state {shown(state)}; it has {one_line(', '.join(map(str, known)), 80)}"
    )
