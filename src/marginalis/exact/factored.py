"""Elimination for models of factors: tables of any number of variables, and states that exclude each other."""

from __future__ import annotations

import itertools
import math

from ..models.factors import FactorModel
from .elimination import MAX_LOG2_TABLE, eliminate_factors
from .ordering import elimination_order, table_entries
from .ways import ENTRIES_PER_SECOND, ExactMethod, log2_seconds


def factored_way(model: FactorModel) -> ExactMethod:
    """Return how elimination sums a model of factors (offset left out); forever if its tables would be too large."""
    edges = sorted({pair for scope in model.scopes for pair in itertools.combinations(sorted(scope), 2)})
    order, width = elimination_order(model.n_variables, edges, model.cards)
    fits = width <= MAX_LOG2_TABLE
    entries = math.log2(max(1, table_entries(edges, model.cards, order))) if fits else math.inf
    largest = [float(table.max()) for table in model.tables]
    top, size = math.fsum(largest), math.fsum(map(abs, largest)) + 750.0 + model.n_variables

    def run(threads: int, tick: object) -> float:
        value = eliminate_factors(model.cards, list(zip(model.scopes, model.tables, strict=True)), order)
        if value == -math.inf:
            raise ValueError("Z = 0: the factors contradict each other, no state is possible")
        return value

    return ExactMethod(
        log2_seconds(entries, ENTRIES_PER_SECOND) + 1e-4 * model.n_variables,
        f"variable elimination with tables of 2^{width:.0f} entries",
        run,
        # a state that matters has all its terms within about top − ln Z of their largest values
        lambda value: size + max(0.0, top - value),
    )
