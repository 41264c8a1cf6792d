"""Tables of data with one sample per row."""

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
from .dimod_files import parse_sample_set
from .fasta import parse_fasta
from .hdf5 import open_hdf5
from .text import read_text

# Largest length, in characters, of the first line, which may name the columns.
_LONGEST_LINE = 1 << 24
HDF5 = ".h5", ".hdf5"
ENDINGS = ".npy", ".npz", ".csv", ".json", *HDF5, ".fasta", ".fa"


def is_model(path: str | Path) -> bool:
    """Whether a file holds a model and not data."""
    if Path(path).suffix.lower() in HDF5:
        with reading("data file", path), open_hdf5(path) as source:
            return not source.has("samples")
    if Path(path).suffix.lower() == ".json":
        return '"SampleSet"' not in read_text(path)
    return zipfile.is_zipfile(path) and "visible_bias" in keys(path)


def load_data(path: str | Path) -> Any:
    """Read a table, one sample per row: ``.npy``, ``.npz`` with the key ``data``, or ``.csv`` text.

    The data files of the package rbms are read as well: HDF5 with the key ``samples``, and aligned sequences (FASTA).
    If the first line of a CSV file does not hold numbers, it names the columns, and a pair (rows, labels) is returned.
    Sample sets of dimod in JSON, ``json.dumps(sample_set.to_serializable())``, have labels, too.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is {shown(path)}; it must name a data file")
    kind = Path(path).suffix.lower()
    labels = None
    with reading("data file", path):
        if kind not in ENDINGS:
            raise ValueError(f"its name must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
        if kind == ".npz":
            arrays = read_arrays(path, ("data",))
            if "data" not in arrays:
                raise ValueError(f"lacks the key 'data'; it has {one_line(', '.join(keys(path)), 80) or 'nothing'}")
            table = arrays["data"]
        elif kind in HDF5:
            with open_hdf5(path) as source:
                if not source.has("samples"):
                    raise ValueError(f"lacks the key 'samples'; it has {one_line(', '.join(source.names()), 80)}")
                table = source.array("samples")
        elif kind == ".json":
            return parse_sample_set(read_text(path))
        elif kind in (".fasta", ".fa"):
            table = parse_fasta(read_text(path))
        else:
            with open_file(path, limit()) as file:
                if kind == ".npy":
                    table = read_array(file, "data", os.fstat(file.fileno()).st_size)
                else:
                    labels, table = _table(file)
        if table.ndim != 2:
            raise ValueError(f"the array has {table.ndim} dimensions; it must have 2, samples x features")
        if table.size == 0:
            raise ValueError("the table is empty")
        return table if labels is None else (table, labels)


def _table(file: IO[bytes]) -> tuple[list[Any] | None, Any]:
    """Return the names of the columns, or None if the first line has none, and the rows.

    A first column without a name holds the names or numbers of the rows, as pandas and R write them, and is left out.
    """
    with io.TextIOWrapper(file, encoding="utf-8-sig") as text, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of an empty file, which raises an error elsewhere.
        first = text.readline(_LONGEST_LINE)
        words = [word.strip().strip('"') for word in first.split(",")]
        first_column = int(len(words) > 1 and not words[0])
        words = words[first_column:]
        named = len(set(words)) == len(words) and all(words) and (first_column or not all(map(_is_number, words)))
        if not named:
            text.seek(0)
        columns = range(first_column, first_column + len(words)) if named and first_column else None
        rows = np.loadtxt(text, delimiter=",", ndmin=2, quotechar='"', usecols=columns)
    if named and rows.size and rows.shape[1] != len(words):
        raise ValueError(f"names {len(words)} columns; its rows have {rows.shape[1]}")
    return [int(x) if x.isdecimal() and len(x) < 19 else x for x in words] if named else None, rows


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
