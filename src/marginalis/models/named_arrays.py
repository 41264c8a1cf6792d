"""Boltzmann machines from named arrays, such as the state of a torch module.

This module does not import torch; a tensor is any value that `checks.plain_array` accepts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..checks import one_line, plain_array, real_array, shown
from .graphs import from_edges
from .model import MRF
from .units import BINARY

# Names of the arrays in lower case, without prefixes such as "rbm." and without leading underscores.
WEIGHTS = ("w", "weight", "weights", "weight_matrix")
VISIBLE = ("a", "v_bias", "vbias", "visible_bias", "b_v", "bv", "bias_v", "bias_visible", "vb", "v")
HIDDEN = ("h_bias", "hbias", "hidden_bias", "b_h", "bh", "bias_h", "bias_hidden", "hb", "c", "h")
GRAPH = ("linear", "quadratic", "edge_idx_i", "edge_idx_j")
# Largest depth of nested states.
_DEPTH = 4


def is_state(value: Any) -> bool:
    """Whether `value` is a mapping of names to arrays, or a module that has such a state."""
    return isinstance(value, Mapping) or callable(getattr(value, "state_dict", None))


def from_state(value: Any, argument: str = "model") -> MRF:
    """Return the Boltzmann machine in a state.

    An RBM has 0/1 units and arrays such as ``W``, ``a`` (visible), ``b`` (hidden), or ``weight``, ``v_bias``,
    ``h_bias``; the weights may be |V| × |H| or, as in ``torch.nn.Linear``, |H| × |V|. D-Wave's graph-restricted
    Boltzmann machine has spins and ``_linear``, ``_quadratic``, ``_edge_idx_i``, ``_edge_idx_j``, which are costs as in
    dimod. The names may share a prefix, as in ``rbm.W``; exactly one prefix must have all arrays of a machine.
    """
    nodes = getattr(value, "nodes", None)
    state = value if isinstance(value, Mapping) else value.state_dict()
    state = dict(_flat(state))
    modules = _modules(state)
    machines = [prefix for prefix, names in modules.items() if _is_graph(names) or _is_rbm(names)]
    keys = one_line(", ".join(state), 120) or "nothing"
    if len(machines) > 1:
        named = ", ".join(shown(prefix or "no prefix") for prefix in machines)
        raise ValueError(f"{argument} holds more than one machine, with the prefixes {one_line(named, 120)}: give one")
    if not machines:
        raise ValueError(f"{argument} {_what_is_missing(modules)} among {keys}")
    names = modules[machines[0]]
    for what, known in (("weights", WEIGHTS), *((x, tuple(y)) for x, y in _biases(names).items())):
        several = [key for name in known for key in names.get(name, ())]
        if len(several) > 1 and not _is_graph(names):
            raise ValueError(
                f"{argument} holds more than one array of {what}: {one_line(', '.join(several), 120)}; keep one of them"
            )
    arrays = {name: state[found[0]] for name, found in names.items()}
    return _on_graph(arrays, nodes, argument) if _is_graph(names) else _rbm(arrays, argument)


def _flat(state: Mapping[Any, Any], prefix: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the names and arrays of a state; the name of a nested state, as in a checkpoint, is a prefix."""
    for key, value in state.items():
        if isinstance(value, Mapping):
            if depth:
                yield from _flat(value, f"{prefix}{key}.", depth - 1)
        else:
            yield f"{prefix}{key}", value


# The keys of a state, grouped by their last word in lower case without leading underscores.
_Names = dict[str, list[str]]


def _modules(state: Mapping[str, Any]) -> dict[str, _Names]:
    """Return the names of the arrays of a state by prefix."""
    modules: dict[str, _Names] = {}
    for key in state:
        prefix, _, name = key.rpartition(".")
        modules.setdefault(prefix, {}).setdefault(name.lstrip("_").lower(), []).append(key)
    return modules


def _is_graph(names: _Names) -> bool:
    return all(name in names for name in GRAPH)


def _is_rbm(names: _Names) -> bool:
    return all(any(name in names for name in known) for known in (WEIGHTS, *_biases(names).values()))


def _biases(names: _Names) -> dict[str, tuple[str, ...]]:
    """Return the names for the biases of each side: ``b`` is visible if there is ``c``, and hidden if there is ``a``.

    W, b and c are this package's own names.
    """
    hidden = ("b", *HIDDEN) if "a" in names and "b" in names else HIDDEN
    visible = (*VISIBLE, "b") if "c" in names else VISIBLE
    return {"visible biases": visible, "hidden biases": hidden}


def _what_is_missing(modules: Mapping[str, _Names]) -> str:
    """Return the arrays that the most complete module lacks, in words."""
    for names in modules.values():
        if "quadratic" in names or "linear" in names:
            lacking = next(name for name in GRAPH if name not in names)
            return f"has no {lacking}; a machine on a graph has {', '.join(GRAPH)}: looked"
    best = -1
    wanted: tuple[str, tuple[str, ...]] = ("weights", WEIGHTS)
    for names in modules.values() or [{}]:
        kinds = {"weights": WEIGHTS, **_biases(names)}
        lacking_kinds = [(what, known) for what, known in kinds.items() if not any(name in names for name in known)]
        if len(kinds) - len(lacking_kinds) > best:
            best, wanted = len(kinds) - len(lacking_kinds), lacking_kinds[0]
    words = (*(("b",) if wanted[0] == "hidden biases" and "b" not in wanted[1] else ()), *wanted[1])
    one = " under one prefix" if len(modules) > 1 else ""
    return f"has no {wanted[0]}{one}: looked for {', '.join(words)}"


def _on_graph(arrays: dict[str, Any], nodes: Any, argument: str) -> MRF:
    h, j = (real_array(arrays[name], f"{argument}: {name}", 1) for name in GRAPH[:2])
    ends = [plain_array(arrays[name], f"{argument}: {name}") for name in GRAPH[2:]]
    if any(x.shape != j.shape or x.dtype.kind not in "iu" for x in ends):
        raise ValueError(f"{argument}: edge_idx_i and edge_idx_j must number the ends of {len(j)} edges")
    labels = list(nodes) if isinstance(nodes, list | tuple) and len(nodes) == len(h) else None
    return from_edges(np.stack(ends, axis=1), coupling=-j, field=-h, n=len(h), labels=labels)


def _rbm(arrays: dict[str, Any], argument: str) -> MRF:
    found = []
    for known in (WEIGHTS, *_biases({name: [] for name in arrays}).values()):
        name = next(name for name in known if name in arrays)
        found.append((name, real_array(arrays[name], f"{argument}: {name}", None)))
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
