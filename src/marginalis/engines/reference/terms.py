"""Fields of features from factors of two or more variables along a path."""

from __future__ import annotations

from typing import Any

from ...models.terms import Table, TermFields, Terms
from ...paths.base import Base


def term_fields(model: Any, base: Base) -> tuple[TermFields, TermFields | None]:
    """Return the slopes in β of the terms of a path from a base to a model, and the terms of the base, if any."""
    starts, n = model.feature_starts, len(model.visible_bias)
    if not base.has_terms:
        return TermFields(model.terms, model.tables, starts, n), None
    terms = [*model.terms, *(Terms(x.features, -x.couplings) for x in base.terms)]
    tables = [*model.tables, *(Table(x.variables, -x.values) for x in base.tables)]
    return TermFields(terms, tables, starts, n), TermFields(base.terms, base.tables, starts, n)
