"""Connected parts of a model. What can be summed exactly at once is not sampled, so it adds no variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .bases import Base
from .models import BipartiteMRF, Indices

_EXACT_SECONDS = 0.01  # a part that can be summed within this is
_ALL_SECONDS = 1.0


@dataclass(frozen=True)
class Parts:
    """A model cut in two: `annealed` is left to be sampled (None if nothing is), the rest is known exactly.

    `log_ratio` is the exact ln(Z/Z_0) of the rest, offset included.
    """

    annealed: BipartiteMRF | None
    base: Base
    log_ratio: float


def cut(model: BipartiteMRF, base: Base) -> Parts:
    """Sum out exactly the isolated variables and, if there are several connected parts, the small ones."""
    visible, hidden, count = model.connected_parts
    if count == 1 and len(visible) and len(hidden):
        return Parts(model, base, model.natural.offset)
    sizes = np.bincount(visible, minlength=count) + np.bincount(hidden, minlength=count)
    exact = _free_log_ratio(model, base, sizes[visible] == 1, sizes[hidden] == 1)
    left = sizes > 1
    seconds = 0.0
    for part in np.flatnonzero(left) if left.sum() > 1 else ():
        from .exact import ModelTooLarge, exact_log_z

        piece = submodel(model, visible == part, hidden == part)
        try:
            log_z = exact_log_z(piece, threads=1, max_seconds=min(_EXACT_SECONDS, _ALL_SECONDS - seconds))
        except ModelTooLarge:
            continue
        seconds += log_z.seconds
        exact += log_z - _subbase(model, base, visible == part, hidden == part).log_z(piece)
        left[part] = False
    exact += model.natural.offset
    if not left.any():
        return Parts(None, base, exact)
    keep = left[visible], left[hidden]
    return Parts(submodel(model, *keep), _subbase(model, base, *keep), exact)


def submodel(model: BipartiteMRF, visible: Any, hidden: Any) -> BipartiteMRF:
    """Return the model of the variables chosen by two masks; the offset stays behind."""
    i, j = np.flatnonzero(visible), np.flatnonzero(hidden)
    rows, columns = _features(model, visible, hidden)
    return BipartiteMRF(
        model.weights[rows][:, columns],
        model.visible_bias[rows],
        model.hidden_bias[columns],
        model.visible_units.take(i),
        model.hidden_units.take(j),
        model.temperature,
    )


def _features(model: BipartiteMRF, visible: Any, hidden: Any) -> tuple[Indices, Indices]:
    return (
        np.flatnonzero(visible[model.visible_units.owners(len(model.visible_bias))]),
        np.flatnonzero(hidden[model.hidden_units.owners(len(model.hidden_bias))]),
    )


def _subbase(model: BipartiteMRF, base: Base, visible: Any, hidden: Any) -> Base:
    rows, columns = _features(model, visible, hidden)
    return Base(base.visible[rows], base.hidden[columns])


def _free_log_ratio(model: BipartiteMRF, base: Base, visible: Any, hidden: Any) -> float:
    """ln(Z/Z_0) of variables without couplings."""
    rows, columns = _features(model, visible, hidden)
    natural = model.natural
    total = 0.0
    for units, chosen, at, own, start in (
        (natural.visible_units, visible, rows, natural.visible_bias, base.visible),
        (natural.hidden_units, hidden, columns, natural.hidden_bias, base.hidden),
    ):
        if len(at):
            side = units.take(np.flatnonzero(chosen))
            fields = np.stack([own[at], start[at]])
            target, initial = side.log_normaliser(fields)
            total += float(target - initial)
    return total
