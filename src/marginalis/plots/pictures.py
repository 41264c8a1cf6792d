"""Pictures of a model, and of several answers side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..checks import Array, dense
from ..display.sketch import COLOURS
from ..models import describe
from ..models.forms import Grid, Layers
from ..models.model import MRF
from .marks import scale_counts
from .numbers import bins_of

_NODES, _LINES = 150, 600  # Most variables and couplings that can be told apart in a picture of a graph.
_CELLS = 400  # Most rows or columns of a picture of a matrix.
_MAP = "PuOr"  # A colour map from purple to orange through white, safe for colour-blind readers.


def draw_couplings(axes: Any, model: MRF) -> None:
    """Draw histograms of the non-zero couplings and of the non-zero fields."""
    fields = np.concatenate([model.visible_bias, model.hidden_bias])
    samples = {"coupling": describe.couplings(model), "field": fields[fields != 0.0]}
    used = {name: values for name, values in samples.items() if len(values)}
    edges = bins_of(*used.values()) if used else np.array([-0.5, 0.5])
    for (name, values), colour in zip(used.items(), (COLOURS[1], COLOURS[4]), strict=False):
        label = f"{len(values)} {name}{'s' * (len(values) > 1)}"
        axes.hist(values, bins=edges, color=colour, alpha=0.6, label=label)
    scale_counts(axes, [np.histogram(values, edges)[0].max() for values in used.values()] or [0])
    axes.set_xlabel("strength, temperature left out")
    axes.set_ylabel("how many")


def is_graph(model: MRF) -> bool:
    """Whether the model is drawn as a graph rather than as a matrix."""
    return model.n_variables <= _NODES and model.n_edges <= _LINES


def check_size(model: MRF) -> None:
    """Raise a ValueError if the model is too large to draw."""
    largest = max(len(model.visible_bias), len(model.hidden_bias)) if model.is_bipartite else model.n_features
    if not is_graph(model) and largest > _CELLS:
        raise ValueError(f"{model.n_variables} variables and {model.n_edges} couplings are too many to draw")


def draw_model(axes: Any, model: MRF) -> None:
    """Draw the graph of a model, or its matrix of couplings."""
    check_size(model)
    strongest = float(np.abs(describe.couplings(model)).max(initial=0.0)) or 1.0
    if is_graph(model):
        _draw_graph(axes, model, strongest)
        return
    matrix = dense(model.weights) if model.is_bipartite else _square(model)
    scale = {"cmap": _MAP, "vmin": -strongest, "vmax": strongest}
    picture = axes.imshow(matrix, aspect="auto", interpolation="nearest", **scale)
    axes.grid(False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    names = ("hidden", "visible") if model.is_bipartite else ("variable", "variable")
    axes.set_xlabel(f"{names[0]} feature")
    axes.set_ylabel(f"{names[1]} feature")
    axes.figure.colorbar(picture, ax=axes, label="coupling")


def draw_answers(axes: Any, answers: Mapping[str, tuple[float, float, float]], exact: float | None) -> None:
    """Draw values with their ranges (value, low, high), one below the other. For bounds the value is NaN."""
    for place, (value, low, high) in enumerate(answers.values()):
        colour = COLOURS[0 if place == 0 else 1]
        if np.isfinite([low, high]).all():
            thick = 7.0 if np.isnan(value) else 2.5
            axes.plot([low, high], [place, place], color=colour, lw=thick, alpha=0.45, solid_capstyle="butt")
        if np.isfinite(value):
            axes.plot([value], [place], "o", color=colour, ms=6)
    if exact is not None:
        axes.axvline(exact, color="black", lw=1.2, ls=(0, (4, 2)), label="exact")
        axes.legend(loc="upper right")
    axes.set_yticks(range(len(answers)), list(answers))
    axes.set_ylim(len(answers) - 0.5, -0.7)
    axes.grid(False, axis="y")
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlabel("free energy F")


def _square(model: MRF) -> Array:
    """Return the matrix of all couplings between features, in the caller's order."""
    v, h = model.callers_features()
    matrix = np.zeros((model.n_features, model.n_features))
    matrix[np.ix_(v, h)] = dense(model.weights)
    matrix[np.ix_(h, v)] = matrix[np.ix_(v, h)].T
    if model.lateral is not None:
        matrix[np.ix_(v, v)] = dense(model.lateral)
    return matrix


def _draw_graph(axes: Any, model: MRF, strongest: float) -> None:
    """Draw variables as dots and couplings as lines, with the sign as colour and the strength as width."""
    from matplotlib.collections import LineCollection

    places = _places(model)
    v, h = model.split.visible, model.split.hidden
    pairs = np.concatenate([np.stack([v[a], h[b]], axis=1) for a, b in [model.edges.T]] + [v[model.lateral_edges]])
    strengths = _strengths(model, pairs)
    colours = [COLOURS[1] if x > 0 else COLOURS[0] for x in strengths]
    axes.add_collection(
        LineCollection(
            places[pairs],
            colors=colours,
            linewidths=0.4 + 2.2 * np.abs(strengths) / strongest,
            alpha=0.75,
            zorder=1,
        )
    )
    size = float(np.clip(1800.0 / max(1, model.n_variables), 8.0, 80.0))
    axes.scatter(*places.T, s=size, color="0.55", zorder=2)
    axes.margins(0.08)
    axes.set_axis_off()


def _strengths(model: MRF, pairs: Any) -> Array:
    """Return the strongest coupling between the features of each pair of variables."""
    matrix = _square(model)
    v, h = model.callers_features()
    owners = np.empty(model.n_features, dtype=np.int64)
    owners[v] = model.split.visible[model.visible_units.owners(len(model.visible_bias))]
    owners[h] = model.split.hidden[model.hidden_units.owners(len(model.hidden_bias))]
    found = []
    for a, b in pairs:
        block = matrix[np.ix_(owners == a, owners == b)].ravel()
        found.append(block[np.argmax(np.abs(block))])
    return np.array(found)


def _places(model: MRF) -> Array:
    """Return the position of each variable in the picture, in the caller's order."""
    n = model.n_variables
    if isinstance(model.layout, Grid) and len(model.layout.shape) == 2:
        rows, columns = np.divmod(np.arange(n), model.layout.shape[1])
        return np.stack([columns, -rows], axis=1).astype(np.float64)
    if isinstance(model.layout, Layers):
        sizes = model.layout.sizes
        return np.concatenate([_row(size, level) for level, size in enumerate(sizes)])
    if model.is_bipartite and model.edges.shape[0] >= n:
        places = np.empty((n, 2))
        places[model.split.visible], places[model.split.hidden] = _row(model.n_visible, 0), _row(model.n_hidden, 1)
        return places
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from((model.split.visible[a], model.split.hidden[b]) for a, b in model.edges)
    graph.add_edges_from((model.split.visible[a], model.split.visible[b]) for a, b in model.lateral_edges)
    found = nx.spring_layout(graph, seed=0)
    return np.array([found[k] for k in range(n)])


def _row(size: int, level: int) -> Array:
    return np.stack([(np.arange(size) + 0.5) / size, np.full(size, float(level))], axis=1)
