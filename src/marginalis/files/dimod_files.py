"""Binary quadratic models of dimod, as JSON (schema 3.0.0) and as COO text, and sample sets as JSON.

Both formats hold costs, that is, terms of E, so fields and couplings change sign.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import one_line, plain_array, real_array, real_number, shown
from ..models.arrange import arrange
from ..models.factors import FactorModel
from ..models.labelled import Labelled, repeated
from ..models.model import MRF
from ..models.units import BINARY, SPIN
from .quadratic import Quadratic, quadratic_form
from .text import Tokens, write_text

SCHEMA = "3.0.0"
_KEYS = ("variable_labels", "variable_type", "linear_biases", "quadratic_biases", "quadratic_head", "quadratic_tail")
_KINDS = {"SPIN": SPIN, "BINARY": BINARY}
_HEADER = re.compile(r"^[ \t\f]*#.*?vartype[:=][ \t]*([-_.a-zA-Z0-9]+)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t\f]*#.*$", re.MULTILINE)


def parse_dimod_json(text: str) -> MRF:
    """Return the model of ``json.dumps(bqm.to_serializable())``."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    if not isinstance(document, dict) or "quadratic_biases" not in document:
        raise ValueError("is JSON, but not a binary quadratic model of dimod")
    version = document.get("version")
    schema = version.get("bqm_schema") if isinstance(version, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"has schema version {shown(schema)}; this package reads {SCHEMA}")
    if document.get("use_bytes"):
        raise ValueError("keeps its numbers as bytes; write it with use_bytes=False")
    missing = [key for key in _KEYS if key not in document]
    if missing:
        raise ValueError(f"lacks the key {missing[0]!r}; a binary quadratic model has {', '.join(_KEYS)}")
    labels, kind = document["variable_labels"], document["variable_type"]
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"variable_type is {shown(kind)}; it must be SPIN or BINARY")
    if not isinstance(labels, list) or not labels:
        raise ValueError("variable_labels must list at least one variable")
    field = real_array(document["linear_biases"], "linear_biases", 1)
    ends = [plain_array(document[key] or np.zeros(0, int), key) for key in _KEYS[4:]]
    values = document["quadratic_biases"]
    coupling = real_array(values, "quadratic_biases", 1) if values else np.zeros(0)
    n = len(labels)
    if len(field) != n:
        raise ValueError(f"there are {len(field)} linear biases for {n} labels")
    for key, at in zip(_KEYS[4:], ends, strict=True):
        if at.shape != coupling.shape or at.dtype.kind not in "iu" or (at.size and not 0 <= at.min() <= at.max() < n):
            raise ValueError(f"{key} must number one of {n} variables for each of {len(coupling)} interactions")
    offset = real_number(document.get("offset", 0.0), "offset")
    return _model(field, ends, coupling, offset, str(kind), [_label(x) for x in labels])


def parse_sample_set(text: str) -> Labelled:
    """Return the samples of ``json.dumps(sample_set.to_serializable())``, each as often as it occurred."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    if not isinstance(document, dict) or document.get("type") != "SampleSet":
        raise ValueError("is JSON, but not a sample set of dimod")
    version = document.get("version")
    schema = version.get("sampleset_schema") if isinstance(version, dict) else None
    if not isinstance(schema, str) or not schema.startswith("3."):
        raise ValueError(f"has schema version {shown(schema)}; this package reads 3.0 to 3.2")
    labels, kind = document.get("variable_labels"), document.get("variable_type")
    if not isinstance(labels, list) or not labels:
        raise ValueError("variable_labels must list at least one variable")
    if kind not in ("SPIN", "BINARY"):
        raise ValueError(f"variable_type is {shown(kind)}; it must be SPIN or BINARY")
    vectors = document.get("vectors")
    counts = _array(vectors.get("num_occurrences") if isinstance(vectors, dict) else None, "num_occurrences", 1)
    rows, n = _array(document.get("sample_data"), "sample_data", 2), len(labels)
    if document.get("sample_packed", True):  # A variable is a bit of a word, the lowest bit first.
        if rows.dtype.kind not in "iu" or rows.shape[1] != -(-n // 32) or rows.min() < 0 or rows.max() >= 1 << 32:
            raise ValueError(f"sample_data must have {-(-n // 32)} words of 32 bits for {n} variables in every row")
        rows = (rows[:, np.arange(n) // 32].astype(np.int64) >> np.arange(n) % 32) & 1
        rows = 2 * rows - 1 if kind == "SPIN" else rows
    if rows.shape[1] != n:
        raise ValueError(f"sample_data has {rows.shape[1]} columns for {n} variables")
    return Labelled([_label(x) for x in labels], repeated(rows, counts, "sample_data"), str(kind))


def _array(value: Any, name: str, dimensions: int) -> Any:
    """Return an array of a document of dimod."""
    if not isinstance(value, dict) or value.get("use_bytes") or "data" not in value:
        raise ValueError(f"{name} must be an array of numbers; write the file with use_bytes=False")
    array = plain_array(value["data"], name)
    if array.ndim != dimensions or not array.size:
        raise ValueError(f"{name} must be an array of {dimensions} dimensions that is not empty")
    return array


def _label(value: Any) -> Any:
    return tuple(map(_label, value)) if isinstance(value, list) else value


def _model(field: Any, ends: list[Any], cost: Any, offset: float, kind: str, labels: Sequence[Any]) -> MRF:
    n = len(field)
    if list(labels) == list(range(n)):
        labels = range(n)
    try:
        links = sp.csr_array((-np.asarray(cost), (ends[0], ends[1])), shape=(n, n))
        return arrange(_KINDS[kind], -np.asarray(field), links, offset=-offset, labels=labels)
    except TypeError:
        raise ValueError("variable_labels must be numbers, texts or lists of them") from None


def has_vartype(text: str) -> bool:
    """Whether a text has the header of a COO file."""
    return _HEADER.search(text[:4096]) is not None


def parse_coo(text: str) -> MRF:
    """Return the model of a COO text, whose lines are ``i i`` and a linear bias or ``i j`` and a quadratic bias."""
    header = _HEADER.search(text)
    if header is None:
        raise ValueError("has lines of three numbers, but no line '# vartype=SPIN' or '# vartype=BINARY'")
    if header[1] not in _KINDS:
        raise ValueError(f"vartype is {shown(header[1])}; it must be SPIN or BINARY")
    tokens = Tokens(_COMMENT.sub("", text))
    values = tokens.numbers("a variable or a bias")
    if len(values) % 3 or not len(values):
        tokens.fail(f"lines must have three numbers each; there are {len(values)} numbers", len(values) - 1)
    rows = values.reshape(-1, 3)
    wrong = np.flatnonzero(~((rows[:, :2] >= 0) & (rows[:, :2] % 1 == 0) & (rows[:, :2] < 2**53)).all(axis=1))
    if len(wrong):
        tokens.fail("a variable must be a whole number from 0 on", 3 * int(wrong[0]))
    if not np.isfinite(rows[:, 2]).all():
        tokens.fail("a bias is not finite", 3 * int(np.flatnonzero(~np.isfinite(rows[:, 2]))[0]) + 2)
    labels, at = np.unique(rows[:, :2].astype(np.int64), return_inverse=True)
    at = at.reshape(-1, 2)
    own = at[:, 0] == at[:, 1]
    field = np.bincount(at[own, 0], weights=rows[own, 2], minlength=len(labels))
    return _model(field, [at[~own, 0], at[~own, 1]], rows[~own, 2], 0.0, header[1], labels.tolist())


def write_dimod_json(model: MRF | FactorModel, path: str | Path) -> None:
    """Write a model of spins or binaries in the form that ``BinaryQuadraticModel.from_serializable`` reads."""
    form = quadratic_form(model, None, "a dimod file")
    links = sp.coo_array(form.couplings)
    document = {
        "type": "BinaryQuadraticModel",
        "version": {"bqm_schema": SCHEMA},
        "use_bytes": False,
        "index_type": "int64",
        "bias_type": "float64",
        "num_variables": len(form.field),
        "num_interactions": int(links.nnz),
        "variable_labels": [_plain(x) for x in model.labels],
        "variable_type": form.units.upper(),
        "offset": 0.0 - form.offset,
        "info": {},
        "linear_biases": (0.0 - form.field).tolist(),
        "quadratic_biases": (0.0 - links.data).tolist(),
        "quadratic_head": links.coords[0].tolist(),
        "quadratic_tail": links.coords[1].tolist(),
    }
    write_text(path, json.dumps(document, allow_nan=False) + "\n")


def _plain(label: Any) -> Any:
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, tuple):
        return [_plain(x) for x in label]
    if not isinstance(label, int | float | str):
        raise ValueError(
            f"label {one_line(label, 40)} cannot be written: labels must be numbers, texts or tuples of them"
        )
    return label


def write_coo(model: MRF | FactorModel, path: str | Path) -> None:
    """Write a model of spins or binaries without a constant, whose labels are whole numbers."""
    form: Quadratic = quadratic_form(model, None, "a COO file")
    if form.offset:
        raise ValueError(f"a COO file cannot hold the constant {-form.offset:g} of the energy; write .json")
    labels = list(model.labels)
    if not all(isinstance(x, int | np.integer) and x >= 0 for x in labels):
        raise ValueError("a COO file has whole numbers as labels; write .json")
    links = sp.coo_array(form.couplings)
    lines = [f"# vartype={form.units.upper()}"]
    lines += [f"{x} {x} {_decimal(-b)}" for x, b in zip(labels, form.field.tolist(), strict=True)]
    found = zip(links.coords[0].tolist(), links.coords[1].tolist(), links.data.tolist(), strict=True)
    lines += [f"{labels[i]} {labels[j]} {_decimal(-w)}" for i, j, w in found]
    write_text(path, "\n".join(lines) + "\n")


def _decimal(x: float) -> str:
    """Return all digits without an exponent, which dimod's reader does not accept."""
    return np.format_float_positional(x + 0.0, trim="-")
