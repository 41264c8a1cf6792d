"""Files of torch: the state of a module, read by ``torch.load(weights_only=True)`` alone."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from ..checks import a_kind, one_line, open_file
from ..models.model import MRF
from ..models.states import from_state
from .archive import limit

_SAFE = (2, 6)  # before, weights_only could be got round


def is_torch(file: IO[bytes]) -> bool:
    """Whether a zip archive is one that ``torch.save`` wrote."""
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("/data.pkl") or name == "data.pkl" for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        return False


def load_torch(path: str | Path) -> MRF:
    """Read the Boltzmann machine whose ``state_dict`` a file holds (see `states.from_state`)."""
    try:
        import torch
    except ImportError:
        raise ValueError("is a torch file, and torch is not installed") from None
    version = tuple(int(x) for x in torch.__version__.split(".")[:2])
    if version < _SAFE:
        raise ValueError(f"is a torch file, which torch {torch.__version__} cannot read safely: 2.6 is the first")
    with open_file(path, limit()) as file:
        with zipfile.ZipFile(file) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > limit():
            raise ValueError(f"holds {size / 2**30:.1f} GiB of arrays; the limit is {limit() / 2**30:.1f} GiB")
        file.seek(0)
        try:
            state: Any = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # whatever a damaged file, or one with code in it, makes torch raise
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(f"torch does not read it as plain tensors: {one_line(first, 150)}") from None
    if not isinstance(state, Mapping):
        raise ValueError(f"holds {a_kind(state)}; it must hold a state_dict")
    return from_state(state, "state")
