"""A model in words: what kind of graph it has, how many variables and couplings, and how strong these are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import Array
from .forms import Grid, Layers
from .units import Categorical, Gaussian, Units

if TYPE_CHECKING:
    from .model import MRF

_LISTED = 8  # sizes of layers that are listed


def in_words(model: MRF) -> str:
    """Return the model in one line."""
    kinds = [
        f"{number} {_units(units)}"
        for number, units in ((model.n_visible, model.visible_units), (model.n_hidden, model.hidden_units))
        if number
    ]
    if len(kinds) == 2 and kinds[0].split(" ", 1)[1] == kinds[1].split(" ", 1)[1]:
        kinds = [kinds[0].split(" ", 1)[0], kinds[1]]
    facts = f"{graph(model)}, {' + '.join(kinds)}, {len(couplings(model))} couplings, T = {model.temperature:g}"
    return f"MRF of {model.n_variables} variables   ({facts})"


def graph(model: MRF) -> str:
    """Return what kind of graph it is."""
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
    """Return the couplings that are not zero, each once."""
    found = [np.zeros(0)]
    if model.weights is not None:
        found.append(model.weights.data if sp.issparse(model.weights) else model.weights.ravel())
    if model.lateral is not None:
        above = sp.triu(sp.coo_array(model.lateral))  # each stands there twice
        found.append(above.data)
    values = np.concatenate(found)
    return values[values != 0.0]


def facts(model: MRF) -> dict[str, Any]:
    """Return sizes, kinds and strengths as plain data."""
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
        "couplings": len(strengths),
        "largest_coupling": float(strengths.max(initial=0.0)),
        "largest_field": float(max(np.abs(b).max(initial=0.0) for b in (model.visible_bias, model.hidden_bias))),
        "blocks_of_a_sweep": len(model.sweep),
    }


def _units(units: Units) -> str:
    """Return the name of the variables of a side, in the plural."""
    if isinstance(units, Categorical):
        sizes = np.unique(np.atleast_1d(units.sizes))
        return f"variables of {sizes[0]}" + (f" to {sizes[-1]}" if len(sizes) > 1 else "") + " states"
    return "Gaussian variables" if isinstance(units, Gaussian) else {"spin": "spins"}.get(units.name, "binary units")
