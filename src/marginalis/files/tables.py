"""Tables of data: one sample per row."""

from __future__ import annotations

import io
import os
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..checks import one_line, open_file, reading, shown
from .archive import keys, limit, read_array, read_arrays

ENDINGS = ".npy", ".npz", ".csv"


def is_model(path: str | Path) -> bool:
    """Whether an ``.npz`` file holds a model and no table of data."""
    return zipfile.is_zipfile(path) and "visible_bias" in keys(path)


def load_data(path: str | Path) -> Any:
    """Read a table, one sample per row: ``.npy``, ``.npz`` with the key ``data``, or ``.csv`` text."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is {shown(path)}; it must name a data file")
    kind = Path(path).suffix.lower()
    with reading("data file", path):
        if kind not in ENDINGS:
            raise ValueError("its name must end in .npy, .npz or .csv")
        if kind == ".npz":
            arrays = read_arrays(path, ("data",))
            if "data" not in arrays:
                raise ValueError(f"lacks the key 'data'; it has {one_line(', '.join(keys(path)), 80) or 'nothing'}")
            table = arrays["data"]
        else:
            with open_file(path, limit()) as file:
                table = read_array(file, "data", os.fstat(file.fileno()).st_size) if kind == ".npy" else _table(file)
        if table.ndim != 2:
            raise ValueError(f"the array has {table.ndim} dimensions; it must have 2, samples x features")
        if table.size == 0:
            raise ValueError("the table is empty")
        return table


def _table(file: IO[bytes]) -> Any:
    with io.TextIOWrapper(file, encoding="utf-8-sig") as text, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the file is empty is an error of its own
        return np.loadtxt(text, delimiter=",", ndmin=2)
