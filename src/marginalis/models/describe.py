"""Descriptions of a model in words: the kind of graph, the numbers and the strengths of variables and couplings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import Array, stored
from .forms import Grid, Layers

if TYPE_CHECKING:
    from .model import MRF

# Largest number of layers whose sizes are listed.
_LISTED = 8
# Longest name of a kind of unit, in characters; a longer list of numbers of states is shortened.
_LONGEST_NAME = 60


def in_words(model: MRF) -> str:
    """Return a description of the model in one line."""
    return f"MRF of {count(model.n_variables, 'variable')}   ({essence(model)})"


def essence(model: MRF) -> str:
    """Return a phrase with the graph, the variables, the couplings and the temperature."""
    return f"{graph(model)}, {variables(model)}, {count(bonds(model), 'coupling')}, T = {model.temperature:g}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural: "1 spin", "2 spins"."""
    return f"{number} {noun}{'s' * (number != 1)}"


def variables(model: MRF) -> str:
    """Return the number and kind of the variables, for each side if the caller chose the sides."""
    sides = [(model.n_visible, model.visible_units), (model.n_hidden, model.hidden_units)]
    sides = [(number, units) for number, units in sides if number]
    if len({units.noun for _, units in sides}) == 1:
        noun, rest = sides[0][1].noun
        total = count(model.n_variables, noun) + rest
        if len(sides) == 1 or model.layout is not None or not model.is_bipartite or model.is_sparse:
            return total
        return f"{sides[0][0]} + {count(sides[1][0], noun)}{rest}"
    return " + ".join(count(number, units.noun[0]) + units.noun[1] for number, units in sides)


def bonds(model: MRF) -> int:
    """Return the number of pairs of variables that are coupled."""
    categorical = model.visible_units.is_one_hot or model.hidden_units.is_one_hot
    return model.n_edges if categorical else len(couplings(model))


def graph(model: MRF) -> str:
    """Return the kind of graph in words."""
    if isinstance(model.layout, Grid):
        name = "triangular lattice" if model.layout.triangular else "lattice"
        size = "×".join(map(str, model.layout.shape))
        wraps = model.layout.periodic
        return f"{name} {size}, {'periodic' if all(wraps) else 'periodic in part' if any(wraps) else 'open'}"
    if isinstance(model.layout, Layers):
        sizes = model.layout.sizes
        return f"{len(sizes)} layers" + (f" of {', '.join(map(str, sizes))}" if len(sizes) <= _LISTED else "")
    if not model.is_bipartite:
        return f"graph in {len(model.sweep) + (model.n_hidden > 0)} blocks"
    weights = model.weights
    full = weights.nnz == np.prod(weights.shape) if sp.issparse(weights) else bool(weights.all())
    return "complete bipartite graph" if full and weights.size else "bipartite graph"


def couplings(model: MRF) -> Array:
    """Return the nonzero couplings, each once."""
    found = [np.zeros(0)]
    if model.weights is not None:
        found.append(np.ravel(stored(model.weights)))
    if model.lateral is not None:
        above = sp.triu(sp.coo_array(model.lateral))  # The symmetric matrix holds each coupling twice.
        found.append(above.data)
    values = np.concatenate(found)
    return values[values != 0.0]


def facts(model: MRF) -> dict[str, Any]:
    """Return sizes, kinds and strengths as JSON data."""
    strengths = np.abs(couplings(model))
    return {
        "bipartite": model.is_bipartite,
        "graph": graph(model),
        "visible": model.n_visible,
        "hidden": model.n_hidden,
        "variables": model.n_variables,
        "visible_units": model.visible_units.name,
        "hidden_units": model.hidden_units.name,
        "temperature": model.temperature,
        "coupling": "sparse" if model.is_sparse else "dense",
        "couplings": bonds(model),
        "largest_coupling": float(strengths.max(initial=0.0)),
        "largest_field": float(max(np.abs(b).max(initial=0.0) for b in (model.visible_bias, model.hidden_bias))),
        "blocks_of_a_sweep": len(model.sweep),
    }


def lines(model: MRF) -> dict[str, str]:
    """Return a description of the model as lines of text, each with its name."""
    plain = facts(model)
    units = {side: plain[f"{side}_units"] for side in ("visible", "hidden")}
    sides = f" ({model.n_visible} visible + {model.n_hidden} hidden)"
    if model.layout is not None or not model.is_bipartite:  # The sides are the package's choice.
        sides = ""
    fields = f"the largest {plain['largest_field']:.6g}" if plain["largest_field"] else "none"
    strengths = f"{plain['couplings']}, the largest {plain['largest_coupling']:.6g}" if plain["couplings"] else "none"
    found = {"graph": plain["graph"], "variables": f"{model.n_variables}{sides}"}
    if model.n_hidden and units["visible"] != units["hidden"]:
        found |= {"units": f"{_listed(units['visible'])} (visible), {_listed(units['hidden'])} (hidden)"}
    else:
        found |= {"units": _listed(units["visible" if model.n_visible else "hidden"])}
    return found | {"couplings": strengths, "fields": fields, "temperature": f"{model.temperature:g}"}


def _listed(units: str) -> str:
    """Return the name of a kind of unit, with a long list of numbers of states shortened."""
    return units if len(units) <= _LONGEST_NAME else units[:_LONGEST_NAME] + "…"
