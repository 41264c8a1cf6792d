"""The fast engine: kernels made by Numba, on blocks of chains side by side in vector registers."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from ...parallel.threads import interruptible
from .. import Begun
from ..plan import Plan
from . import bipartite, graph, lattice, planes, tables

logger = logging.getLogger("marginalis")

_HUGE = 1 << 23  # entries of a matrix
# Families of kernels, the fastest ones first: each is a module with `serves`, `prepare` and a `Population`.
_FAMILIES = (planes, lattice, tables, bipartite, graph)
_compiled: set[Any] = set()  # kernels that have run in this process


def begin(plan: Plan) -> Begun:
    """Lay out a plan for the family of kernels that serves it, and compile these or fetch them from the disk."""
    family: Any = next(x for x in _FAMILIES if x.serves(plan))
    # laying out a huge matrix takes seconds
    is_huge = plan.path.end.weights.size > _HUGE
    prepared = interruptible(family.prepare, plan) if is_huge else family.prepare(plan)
    population = partial(family.Population, plan, prepared)
    kernel = family, plan.method == "ais", _types(prepared.model)
    if kernel not in _compiled:
        population(range(0)).advance(0)
        _compiled.add(kernel)
    return Begun(population, prepared.together, prepared.at_least, plan.method == "ais", prepared.aligned)


def _types(x: Any) -> Any:
    """Return what a kernel is compiled for: kinds of arrays, and what there is at all."""
    return tuple(map(_types, x)) if isinstance(x, tuple) else getattr(x, "dtype", type(x))
