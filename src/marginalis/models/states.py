"""Boltzmann machines as other packages keep them: named arrays, such as the state of a torch module.

Nothing here knows torch: a tensor is whatever `checks.plain_array` takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..checks import one_line, plain_array, real_array
from .graphs import from_edges
from .model import MRF
from .units import BINARY

# names without prefixes ("rbm.W") and leading underscores, in lower case
WEIGHTS = ("w", "weight", "weights", "weight_matrix")
VISIBLE = ("a", "v_bias", "vbias", "visible_bias", "b_v", "bv", "bias_v", "bias_visible", "vb", "v")
HIDDEN = ("h_bias", "hbias", "hidden_bias", "b_h", "bh", "bias_h", "bias_hidden", "hb", "c", "h")
GRAPH = ("linear", "quadratic", "edge_idx_i", "edge_idx_j")
_WRAPPERS = ("state_dict", "model_state_dict", "model", "rbm")


def is_state(value: Any) -> bool:
    """Whether `value` is a mapping of names to arrays, or a module that has such a state."""
    return isinstance(value, Mapping) or callable(getattr(value, "state_dict", None))


def from_state(value: Any, argument: str = "model") -> MRF:
    """Return the Boltzmann machine that a state holds.

    An RBM has 0/1 units and arrays such as ``W``, ``a`` (visible), ``b`` (hidden), or ``weight``, ``v_bias``,
    ``h_bias``; the weights may be |V| × |H| or, as ``torch.nn.Linear`` has them, |H| × |V|. D-Wave's graph-restricted
    Boltzmann machine has spins and ``_linear``, ``_quadratic``, ``_edge_idx_i``, ``_edge_idx_j``, with dimod's sign: a
    cost.
    """
    nodes = getattr(value, "nodes", None)
    state = value if isinstance(value, Mapping) else value.state_dict()
    for name in _WRAPPERS:
        if isinstance(state.get(name), Mapping):
            state = state[name]
    arrays: dict[str, Any] = {}
    for key, array in state.items():
        arrays.setdefault(str(key).rpartition(".")[2].lstrip("_").lower(), array)
    if all(name in arrays for name in GRAPH):
        return _on_graph(arrays, nodes, argument)
    if missing := [name for name in GRAPH if name not in arrays and ("quadratic" in arrays or "linear" in arrays)]:
        raise ValueError(f"{argument} has no {missing[0]}; a machine on a graph has {', '.join(GRAPH)}")
    return _rbm(arrays, argument, list(map(str, state)))


def _on_graph(arrays: dict[str, Any], nodes: Any, argument: str) -> MRF:
    h, j = (real_array(arrays[name], f"{argument}: {name}", 1) for name in GRAPH[:2])
    ends = [plain_array(arrays[name], f"{argument}: {name}") for name in GRAPH[2:]]
    if any(x.shape != j.shape or x.dtype.kind not in "iu" for x in ends):
        raise ValueError(f"{argument}: edge_idx_i and edge_idx_j must number the ends of {len(j)} edges")
    labels = list(nodes) if isinstance(nodes, list | tuple) and len(nodes) == len(h) else None
    return from_edges(np.stack(ends, axis=1), coupling=-j, field=-h, n=len(h), labels=labels)


def _rbm(arrays: dict[str, Any], argument: str, keys: list[str]) -> MRF:
    hidden = HIDDEN if "b" not in arrays else ("b", *HIDDEN) if "a" in arrays else HIDDEN
    visible = (*VISIBLE, "b") if "c" in arrays else VISIBLE  # W, b, c are this package's own words
    found = []
    for what, names in (("weights", WEIGHTS), ("visible biases", visible), ("hidden biases", hidden)):
        named = [name for name in names if name in arrays]
        if not named:
            wanted = ("b" if names is hidden and "b" not in hidden else "", *names)
            raise ValueError(
                f"{argument} has no {what}: looked for {', '.join(x for x in wanted if x)} "
                f"among {one_line(', '.join(keys), 80) or 'nothing'}"
            )
        found.append((named[0], real_array(arrays[named[0]], f"{argument}: {named[0]}", None)))
    (w_name, w), (_, b), (_, c) = found
    if w.ndim != 2 or b.ndim != 1 or c.ndim != 1 or w.shape not in ((len(b), len(c)), (len(c), len(b))):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in found)
        raise ValueError(f"{argument}: shapes do not fit together: {shapes}")
    if len(b) == len(c) and not np.array_equal(w, w.T):
        raise ValueError(
            f"{argument}: {w_name} is square, and could be |V| x |H| or |H| x |V|: use rbm({w_name}, ...) or "
            f"rbm({w_name}.T, ...), units='binary'"
        )
    return MRF(w if w.shape == (len(b), len(c)) else w.T, b, c, BINARY, BINARY)
