"""The fast engine: kernels compiled by Numba, which advance blocks of chains side by side in vector registers.

A family of kernels is a module with ``serves(plan)``, ``prepare(plan)`` and a class `Population`; its kernel is in the
module of the same name with ``_kernel``. The families are `planes` and `lattice` for lattices, `tables` and `bipartite`
for spins on bipartite graphs, `categorical` for coupled variables of many states, and `graph` for any model. `stacks`
runs many small models by `tables` at once. The package uses `simd` for vectors and imports no other engine. Read
`population` first, then `bipartite` and `bipartite_kernel`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ...checks import Array
from ...parallel.threads import interruptible
from .. import PreparedPlan
from ..placement import is_lattice
from ..plan import Plan
from . import bipartite, categorical, factor_tables, factors, graph, lattice, planes, stacks, tables

logger = logging.getLogger("marginalis")

_HUGE = 1 << 23  # Entries of a matrix from which on preparing a plan takes seconds.
# The families of kernels, fastest first; some support lattices only, others factors of any number of variables only.
_OF_LATTICES = (planes, lattice)
_OF_FACTORS = (factors, factor_tables)
_FAMILIES = (tables, bipartite, categorical, graph)
_compiled: set[Any] = set()  # Kernels that have run in this process.


def begin(plan: Plan) -> PreparedPlan:
    """Prepare a plan for the first family of kernels that supports it, and compile or load its kernels."""
    family = _family_of(plan)
    # Preparing a plan with a huge matrix must be interruptible.
    is_huge = plan.path.end.weights.size > _HUGE
    prepared = interruptible(family.prepare, plan) if is_huge else family.prepare(plan)
    population = partial(family.Population, plan, prepared)
    kernel = family, plan.method == "ais", _types(prepared.arguments)
    if kernel not in _compiled:
        population(range(0)).advance(0)
        _compiled.add(kernel)
    return PreparedPlan(population, prepared.together, prepared.at_least, plan.method == "ais", prepared.aligned)


def _family_of(plan: Plan) -> Any:
    """Return the first family of kernels that supports a plan."""
    families: Any = _OF_LATTICES + _FAMILIES if is_lattice(plan, any_graph=True) else _FAMILIES
    if plan.path.end.has_terms:
        families = _OF_FACTORS
    return next(x for x in families if x.serves(plan))


def in_stacks(plans: Sequence[Plan]) -> Iterator[tuple[Array, Array | None]] | None:
    """Return an iterator over the results of some models at a time, or None if plans of this shape run one by one.

    The results are log-weights [model, chain], and those of mAIS if the plans are AIS.
    """
    if _family_of(plans[0]) is not tables:
        return None
    prepared = tables.prepare(plans[0])
    return stacks.advance(plans, prepared) if stacks.serves(plans[0], prepared) else None


def _types(x: Any) -> Any:
    """Return what a compiled kernel depends on: the types of its arguments, and which of them are None."""
    return tuple(map(_types, x)) if isinstance(x, tuple) else getattr(x, "dtype", type(x))
