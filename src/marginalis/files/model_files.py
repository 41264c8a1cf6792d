"""Model files of any format, which is detected from the content on reading and chosen by the ending on writing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..checks import open_file, reading, shown
from ..models.factors import FactorModel
from ..models.layered import as_factors, as_model
from ..models.model import MRF
from . import npz
from .adabm import is_adabm, parse_adabm
from .archive import limit
from .dimod_files import has_vartype, parse_coo, parse_dimod_json, write_coo, write_dimod_json
from .evidence import held_in, read_evidence
from .hdf5 import MAGIC as HDF5
from .hdf5 import open_hdf5
from .libdai import parse_libdai
from .rbm_jl import HEADER, read_rbm_jl
from .rbms import read_rbms
from .rudy import parse_rudy, write_rudy
from .text import read_text
from .torch_state import is_torch, load_torch
from .uai import is_uai, parse_uai, write_uai

WRITERS = {
    ".npz": npz.save,
    ".uai": write_uai,
    ".json": write_dimod_json,
    ".coo": write_coo,
    ".rudy": write_rudy,
}
_UNWRITTEN = (".h5", ".hdf5", ".pt", ".pth")
_ZIP, _NUMPY, _PICKLE, _BQM = b"PK", b"\x93NUMPY", b"\x80", b"DIMODBQM"
# Offsets, in bytes, at which the content of an HDF5 file may begin.
_USER_BLOCKS = (0, 512, 1024, 2048)
_NUMBERS = re.compile(r"[-+.\d]\S*")


def load(
    path: str | Path,
    evidence: str | Path | Mapping[Any, Any] | None = None,
    *,
    update: int | None = None,
    maxcut: bool = False,
) -> MRF | FactorModel:
    """Read a model file of any known format; the format is detected from the content, not the name.

    ``.npz`` (see `save`), UAI (also ``.gz``, ``.xz``), HDF5 of the package rbms and of
    RestrictedBoltzmannMachines.jl, ``.pt`` of torch, dimod's JSON and COO, rudy, adabmDCA, libDAI's ``.fg``.

    Parameters
    ----------
    path
        The file.
    evidence
        States in which variables are held: a mapping from labels to states, a text such as ``a=1, b=0``, or a file
        (JSON, lines such as ``a = 1``, or UAI evidence). A discrete variable is given by the number of its state, from
        0 (a spin also by −1), a real variable by its value. The variables are removed exactly.
    update
        The checkpoint of a training run; by default the last one.
    maxcut
        Whether the weights of a rudy file are those of a maximum cut: E = Σ w s s′ instead of −Σ w s s′.

    Returns
    -------
    MRF | FactorModel
        The model. It is a `FactorModel` if factors join three or more variables or forbid states.

    Raises
    ------
    ValueError
        If the file is not a valid model; the message names the problem.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is {shown(path)}; it must name a model file")
    kind = _kind(path)
    if update is not None and kind != "hdf5":
        raise ValueError(f"update is {shown(update)}; it applies to checkpoints of a training run (HDF5) only")
    if kind == "npz":
        model: MRF | FactorModel = npz.load(path)
    else:
        with reading("model file", path):
            model = _read(path, kind, update, maxcut)
    if maxcut and kind == "npz":
        raise ValueError("maxcut applies to rudy files only")
    held = read_evidence(evidence)
    if held or isinstance(model, FactorModel):
        model = held_in(model, held)
    if isinstance(model, FactorModel) and model.why_not_annealed() is None:
        return model.as_mrf()
    return model


def _kind(path: str | Path) -> str:
    """Return the format that the first bytes of a file indicate."""
    with reading("model file", path), open_file(path, limit()) as file:
        start = file.read(16)
        if any(file.seek(at) == at and file.read(8) == HDF5 for at in _USER_BLOCKS):
            return "hdf5"
        if start[:1] == _PICKLE and not os.fspath(path).endswith(".npz"):
            raise ValueError("is a pickle, and pickles are not read; torch.save writes zip files since 1.6")
        if start.startswith(_BQM):
            raise ValueError("is dimod's binary format; write json.dumps(bqm.to_serializable()) or COO")
        file.seek(0)
        if start.startswith(_ZIP) and is_torch(file):
            return "torch"
        named = os.path.splitext(os.fspath(path))[1].lower()
        return "npz" if start.startswith((_ZIP, _NUMPY)) or named == ".npz" else "text"


def _read(path: str | Path, kind: str, update: int | None, maxcut: bool) -> MRF | FactorModel:
    if maxcut and kind != "text":
        raise ValueError("maxcut applies to rudy files only")
    if kind == "torch":
        return load_torch(path)
    if kind == "hdf5":
        with open_hdf5(path) as source:
            if not source.has(HEADER):
                return read_rbms(source, update)
            if update is not None:
                raise ValueError("holds one model: leave out update")
            return read_rbm_jl(source)
    return _parse(read_text(path), maxcut)


def _parse(text: str, maxcut: bool) -> MRF | FactorModel:
    """Return the model of a text in one of the text formats."""
    lines = (line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    first = next(lines, [])
    is_rudy = len(first) == 2 and all(map(_NUMBERS.fullmatch, first))
    if maxcut and not is_rudy:
        raise ValueError("maxcut applies to rudy files only")
    if not first:
        raise ValueError("is empty")
    if is_uai(text):
        return parse_uai(text)
    if first[0].startswith("{"):
        return parse_dimod_json(text)
    if is_adabm(text):
        return parse_adabm(text)
    if len(first) == 1 and first[0].isdecimal():
        return parse_libdai(text)
    if is_rudy:
        return parse_rudy(text, maxcut)
    if has_vartype(text) or (len(first) == 3 and all(map(_NUMBERS.fullmatch, first))):
        return parse_coo(text)
    raise ValueError(
        "is in no supported format: npz, UAI (MARKOV, BAYES), HDF5 (rbms, RestrictedBoltzmannMachines.jl), "
        "torch, dimod JSON or COO, rudy, adabmDCA, libDAI"
    )


def save(model: Any, path: str | Path) -> None:
    """Write a model file, either whole or not at all.

    Parameters
    ----------
    model
        A model, or any value that `as_model` accepts.
    path
        The file. The ending of its name chooses the format: ``.uai`` (also ``.uai.gz``, ``.uai.xz``), dimod's ``.json``
        and ``.coo``, or ``.rudy``. Any other ending gives ``.npz``, which holds every model, with its labels.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is {shown(path)}; it must name a file")
    ending = ending_of(path)
    if ending in _UNWRITTEN:
        raise ValueError(f"{ending} files are not written; {', '.join(WRITERS)} are")
    writer = WRITERS.get(ending, npz.save)
    model = as_factors(model)
    if isinstance(model, MRF) and model.has_terms:
        raise ValueError("the model is the annealed form of a FactorModel: save the FactorModel itself")
    if isinstance(model, FactorModel) and (writer is not npz.save or model.why_not_annealed() is not None):
        writer(model, path)
        return
    writer(as_model(model), path)


def ending_of(path: str | Path) -> str:
    """Return the ending of a name that determines the format, without that of a compression."""
    name = os.fspath(path).lower()
    for packed in (".gz", ".xz"):
        name = name.removesuffix(packed)
    return os.path.splitext(name)[1]
