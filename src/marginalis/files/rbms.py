"""Checkpoints of a training run of the package rbms: HDF5 with a group ``update_<n>`` for each checkpoint.

``model_type`` is ``BBRBM`` (0/1 units) or ``PBRBM`` (Potts visible, 0/1 hidden units); a group holds
``params/weight_matrix`` (|V| × |H|, or |V| × q × |H|), ``params/vbias`` and ``params/hbias``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ..checks import one_line, reading, shown, whole
from ..models.layered import rbm
from ..models.model import MRF
from .hdf5 import Source, open_hdf5

TYPES = ("BBRBM", "PBRBM")
_LAYOUT = "a file of rbms has model_type and groups update_<n>/params of weight_matrix, vbias, hbias"
_GROUP = re.compile(r"update_(\d{1,18})")


class Updates(Mapping[int, MRF]):
    """The models of a run by the number of the update, in order; each model is read from the file on access."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        with reading("model file", path), open_hdf5(path) as source:
            self._numbers = update_numbers(source)

    def __getitem__(self, update: int) -> MRF:
        if update not in self._numbers:
            raise KeyError(update)
        with reading("model file", self.path), open_hdf5(self.path) as source:
            return read_update(source, update)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        """Return a description with the number of models, without reading them."""
        return f"<{len(self)} updates of {one_line(self.path, 60)}>"


def update_numbers(source: Source) -> list[int]:
    """Return the numbers of the updates in a file, sorted."""
    kind = source.word("model_type") if source.has("model_type") else None
    if kind not in TYPES:
        if kind is None:
            raise ValueError(f"lacks 'model_type'; {_LAYOUT}")
        raise ValueError(f"has model_type {shown(kind)}; this package reads {' and '.join(TYPES)}")
    numbers = sorted(int(m[1]) for m in map(_GROUP.fullmatch, source.names()) if m)
    if not numbers:
        raise ValueError(f"lacks groups 'update_<n>'; {_LAYOUT}")
    return numbers


def read_rbms(source: Source, update: int | None = None) -> MRF:
    """Return the model after an update, by default the last one."""
    numbers = update_numbers(source)
    if update is None:
        return read_update(source, numbers[-1])
    update = whole(update, "update", 0, 10**18)
    if update not in numbers:
        raise ValueError(f"has no update {update}; it has {_listed(numbers)}")
    return read_update(source, update)


def _listed(numbers: list[int]) -> str:
    some = numbers if len(numbers) <= 8 else [*numbers[:4], "…", *numbers[-3:]]
    return ", ".join(map(str, some))


def read_update(source: Source, update: int) -> MRF:
    """Return the model of one group."""
    kind = source.word("model_type")
    names = [f"update_{update}/params/{name}" for name in ("weight_matrix", "vbias", "hbias")]
    missing = [name for name in names if not source.has(name)]
    if missing:
        raise ValueError(f"lacks {missing[0]!r}; {_LAYOUT}")
    w, b, c = map(source.array, names)
    shapes = f"weight_matrix {w.shape}, vbias {b.shape}, hbias {c.shape}"
    if kind == "BBRBM":
        if w.ndim != 2 or b.ndim != 1 or w.shape != (len(b), c.size) or c.ndim != 1:
            raise ValueError(f"shapes of a BBRBM do not fit together: {shapes}")
        return rbm(w, b, c, units="binary")
    if w.ndim != 3 or c.ndim != 1 or w.shape != (*b.shape, len(c)):
        raise ValueError(f"shapes of a PBRBM do not fit together: {shapes}")
    q = w.shape[1]
    return rbm(w.reshape(-1, len(c)), np.ravel(b), c, units=(f"categorical:{q}", "binary"))


def load_updates(path: str | Path) -> Updates:
    """Return all checkpoints of a training run of the package rbms, by update; each model is read on access.

    Parameters
    ----------
    path
        The HDF5 file of the run. `along`, `estimate_many` and `log_likelihood` take the result.
    """
    return Updates(path)
