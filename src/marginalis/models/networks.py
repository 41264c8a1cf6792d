"""Models of other packages that are factors: pgmpy's networks, and polynomials of spins or binaries.

Nothing here imports these packages. A model of pgmpy is a networkx graph that carries tables, as ``factors`` or as
``cpds``; a ``BinaryPolynomial`` of dimod, or OpenJij's model of higher order, has a ``vartype`` and terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..checks import Array, a_kind, one_line, plain_array, real_number, shown, whole
from .factors import FactorModel

_MOST_VARIABLES = 20  # of a term: its table has a million entries
_TABLES = ("factors", "cpds")  # attributes of the graphs


def has_tables(value: Any) -> bool:
    """Whether a value is a graph that carries tables, so that its edges alone are not the model."""
    is_graph = all(hasattr(value, name) for name in ("nodes", "edges", "is_directed"))
    return is_graph and any(hasattr(value, name) for name in (*_TABLES, "get_factors", "get_cpds"))


def is_polynomial(value: Any) -> bool:
    """Whether a value maps terms, of any number of variables each, to costs."""
    terms = getattr(value, "polynomial", value)
    return isinstance(terms, Mapping) and getattr(getattr(value, "vartype", None), "name", "") in ("SPIN", "BINARY")


def from_binary_polynomial(value: Any) -> FactorModel:
    """Return the factors of a ``dimod.BinaryPolynomial``: E = Σ cost · Π x, with P ∝ exp(−E).

    State 0 is the lower value of a variable and state 1 the higher. Labels are sorted where that can be: the package
    keeps them in sets.
    """
    is_spin = value.vartype.name == "SPIN"
    costs: dict[tuple[Any, ...], float] = {}
    for term, cost in getattr(value, "polynomial", value).items():
        reduced = tuple(term)
        if len(set(reduced)) < len(reduced):
            raise ValueError(f"the term {shown(reduced)} names a variable twice")
        if len(reduced) > _MOST_VARIABLES:
            raise ValueError(f"a term joins {len(reduced)} variables; at most {_MOST_VARIABLES} fit a table")
        costs[reduced] = costs.get(reduced, 0.0) + real_number(cost, f"the cost of {shown(reduced)}")
    labels = list(dict.fromkeys(x for term in costs for x in term))
    if not labels:
        raise ValueError("the polynomial has no variables")
    labels = _in_order(labels)
    number = {label: i for i, label in enumerate(labels)}
    scopes, tables, offset = [], [], 0.0
    for term, cost in costs.items():
        if not term:
            offset -= cost
            continue
        table = np.array(-cost)
        for _ in term:
            table = np.multiply.outer(table, np.array([-1.0, 1.0] if is_spin else [0.0, 1.0]))
        scopes.append(tuple(number[label] for label in term))
        tables.append(table)
    return FactorModel((2,) * len(labels), tuple(scopes), tuple(tables), offset, tuple(labels))


def _in_order(labels: list[Any]) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:
        return sorted(labels, key=repr)


def from_pgmpy(model: Any, evidence: Mapping[Any, Any] | None = None) -> FactorModel:
    """Return the factors of a model of pgmpy: a Markov network, factor graph, junction tree or Bayesian network.

    Parameters
    ----------
    model
        The product of its tables is P(x) times Z; Z = 1 for a Bayesian network without evidence.
    evidence
        States in which variables are held, by name if the model names its states, or by number. ln Z of what is left
        is then ln P(evidence) of a Bayesian network.

    Returns
    -------
    FactorModel
        Its labels are the names of the variables. It goes to `exact_log_z` and `expectations` as it is, and
        ``as_model`` makes an `MRF` of it if all factors join pairs.
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
    if not labels:  # the nodes of a junction tree are cliques
        labels = list(scoped)
    elif not hasattr(model, "get_variable_nodes"):  # in a factor graph the other nodes are the factors
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
    """Return the names of the states of each variable, or their numbers; all tables must agree."""
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
        raise ValueError(f"the table of ({scope}) has {values.size} values; its variables want {shape}")
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
