"""Exact methods for models of factors: tables of any number of variables, possibly with impossible states."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..models.factors import FactorModel
from ..parallel.threads import Tick
from .networks import NetworkWay, counting_way, network_ways
from .ways import ExactMethod


def factored_ways(model: FactorModel, method: str, max_seconds: float) -> list[tuple[str, ExactMethod]]:
    """Return the methods to sum a model of factors (without the offset), in the order in which to try them."""
    factors = list(zip(model.scopes, model.tables, strict=True))
    if method == "counting":
        ways = [counting_way(model.cards, factors, max_seconds)]
    elif method in ("auto", "elimination"):
        ways = network_ways(model.cards, factors, max_seconds, counting=method == "auto")
    else:
        ways = []
    largest = [float(table.max()) for table in model.tables]
    top, size = math.fsum(largest), math.fsum(map(abs, largest)) + 750.0 + model.n_variables

    def adds(value: float) -> float:
        """Return the size of the terms: in a state that matters they are within about top − ln Z of their maxima."""
        return size + max(0.0, top - value)

    return [(way.name, ExactMethod(way.seconds, way.size, _possible(way), adds, way.bytes)) for way in ways]


def _possible(way: NetworkWay) -> Callable[[int, Tick], float]:
    def run(threads: int, tick: Tick) -> float:
        value = way.run(threads, tick)
        if value == -math.inf:
            raise ValueError("Z = 0: the factors contradict each other, no state is possible")
        return value

    return run
