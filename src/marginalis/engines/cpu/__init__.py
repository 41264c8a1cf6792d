"""The fast engine: kernels made by Numba, on blocks of chains side by side in vector registers."""

from __future__ import annotations

import logging
import threading
from functools import cache, partial
from typing import Any

from ...parallel.threads import interruptible
from ...simd.vector import LANES
from .. import Begun
from ..plan import Plan
from .graph import GraphPopulation
from .graph import prepare as prepare_graph
from .lattice_population import LatticePopulation, prepare_lattice, serves_words
from .planes import GROUP, PlanesPopulation, chains_of_planes, prepare_planes
from .population import Population, chains_together, prepare, serves
from .tables import TablePopulation, keeps_tables
from .tables_kernel import ABREAST

logger = logging.getLogger("marginalis")

_HUGE = 1 << 23  # entries of a matrix
_MANY = 512  # chains that pay for tables made for them
_compiled: set[Any] = set()  # kernels that have run in this process


def begin(plan: Plan) -> Begun:
    """Lay out a plan, and compile what it needs or fetch that from the cache on disk."""
    model = plan.path.end
    pairs = serves(plan)
    kind: type[Population]
    kind, lay_out = (Population, prepare) if pairs else (GraphPopulation, prepare_graph)
    if plan.placement.draws == "planes":
        kind, lay_out = PlanesPopulation, prepare_planes
    elif serves_words(plan):
        kind, lay_out = LatticePopulation, prepare_lattice
    # laying out a huge matrix takes seconds
    prepared = interruptible(lay_out, plan) if model.weights.size > _HUGE else lay_out(plan)
    at_least = LANES
    if prepared.looked_up:
        kind = TablePopulation if pairs else kind
        at_least = LANES * ABREAST if keeps_tables(prepared) else _MANY
    population = partial(kind, plan, prepared)
    kernel = kind, plan.method == "ais", _types(prepared.model)
    if kernel not in _compiled:
        notice = threading.Timer(0.8, _announce)
        notice.start()
        try:
            population(range(0)).advance(0)
        finally:
            notice.cancel()
        _compiled.add(kernel)
    if kind is PlanesPopulation:
        return Begun(population, chains_of_planes(prepared), GROUP, aligned=GROUP)
    return Begun(population, chains_together(prepared), at_least, plan.method == "ais")


def _types(x: Any) -> Any:
    """Return what a kernel is compiled for: kinds of arrays, and what there is at all."""
    return tuple(map(_types, x)) if isinstance(x, tuple) else getattr(x, "dtype", type(x))


@cache
def _announce() -> None:
    logger.info("compiling kernels for this kind of model, once: about 5 s, which a budget does not count")
