"""UAI files: Markov and Bayesian networks as tables of weights, and evidence.

Line breaks do not matter. A file has ``MARKOV`` or ``BAYES``, the number of variables, their numbers of states, the
number of factors, their scopes (``k v1 … vk``) and their tables (size and values, the last variable of the scope
fastest). Values are weights, not logarithms; a zero forbids a state. Evidence is ``k v1 x1 … vk xk``, which follows a
line ``1`` in older files.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import Array, shown
from ..models.factors import FactorModel
from ..models.model import MRF
from .text import Tokens, write_text

KINDS = ("MARKOV", "BAYES")
# Largest number of states of a variable.
_STATES = 1 << 24
# Largest number of variables of a factor, the limit of axes in NumPy 1; larger tables do not fit into a file.
_AXES = 32
# Largest number of entries of a table.
_LARGEST_TABLE = 1 << _AXES
# Largest deviation from 1 of a sum of probabilities, which may be written with few digits.
_ROUNDED = 1e-3
# Largest decimal exponent of a weight; a larger one is a typing error.
_MOST_DIGITS = 10**9
# Largest logarithm of a weight that is written, since other readers overflow beyond it.
_HIGHEST = 700.0


def is_uai(text: str) -> bool:
    """Whether a text begins like a UAI file."""
    return text[:4096].lstrip()[:6].rstrip().upper() in ("MARKOV", "BAYES", "LIMID", "CREDAL", "ID")


def parse_uai(text: str) -> FactorModel:
    """Return the network of a text in UAI format."""
    tokens = Tokens(text)
    kind = tokens.word("MARKOV or BAYES")
    if kind.upper() not in KINDS:
        tokens.fail(f"the network is {shown(kind)}; this package reads MARKOV and BAYES")
    n = tokens.whole("the number of variables", 1, len(tokens))
    cards = tuple(tokens.whole(f"the number of states of variable {i}", 1, _STATES) for i in range(n))
    tokens.check_count(sum(cards), "the number of states of all variables")
    factors = tokens.whole("the number of factors", 0, len(tokens))
    scopes = _scopes(tokens, factors, n)
    scopes = [_squeezed(scope, cards) for scope in scopes]
    tables = _tables(tokens, cards, scopes)
    if kind.upper() == "BAYES":
        _check_conditionals(scopes, tables)
    return FactorModel(cards, tuple(scopes), tuple(tables))


def _check_conditionals(scopes: list[tuple[int, ...]], tables: list[Array]) -> None:
    """Warn if a table of a Bayesian network is not P(last variable | others), so that ln Z is no log-probability."""
    for a, (scope, table) in enumerate(zip(scopes, tables, strict=True)):
        sums = np.exp(table).sum(axis=-1) if scope else np.ones(1)
        wrong = sums[np.abs(sums - 1.0) > _ROUNDED]
        if wrong.size:
            warnings.warn(
                f"a BAYES network, but the table of factor {a} sums to {float(wrong.flat[0]):.6g} over its last "
                f"variable ({scope[-1]}), not to 1: they are not conditional probabilities, and "
                "ln Z is not a log-probability",
                stacklevel=2,
            )
            return


def _squeezed(scope: tuple[int, ...], cards: tuple[int, ...]) -> tuple[int, ...]:
    """Return a scope without variables of one state if it has more variables than an array can have axes."""
    return scope if len(scope) <= _AXES else tuple(v for v in scope if cards[v] > 1)


def _scopes(tokens: Tokens, factors: int, n: int) -> list[tuple[int, ...]]:
    scopes, words, at = [], tokens.words, tokens.at
    try:  # This fast loop gives no places; after an error the text is read again to find the place.
        for _ in range(factors):
            end = at + 1 + int(words[at])
            scope = tuple(map(int, words[at + 1 : end]))
            if (
                not at < end <= len(words)
                or len(set(scope)) < len(scope)
                or (scope and not 0 <= min(scope) <= max(scope) < n)
            ):
                raise ValueError
            scopes.append(scope)
            at = end
        tokens.at = at
        return scopes
    except (ValueError, IndexError):
        pass
    for a in range(factors):
        size = tokens.whole(f"the number of variables of factor {a}", 0, n)
        scope = tuple(tokens.whole(f"a variable of factor {a}", 0, n - 1) for _ in range(size))
        if len(set(scope)) < size:
            tokens.fail(f"factor {a} names a variable twice")
    raise AssertionError("what was wrong is right")


def _tables(tokens: Tokens, cards: tuple[int, ...], scopes: list[tuple[int, ...]]) -> list[Array]:
    values = tokens.numbers("a size or weight")
    logs = logs_of(tokens, values)
    first, at, tables = tokens.at, 0, []
    for a, scope in enumerate(scopes):
        shape = tuple(cards[v] for v in scope)
        size = math.prod(shape)
        if at >= len(values):
            tokens.fail(f"the file ends where the table of factor {a} should be", first + at)
        if size >= _LARGEST_TABLE or values[at] != size:
            said, wanted = tokens.words[first + at], size if size < _LARGEST_TABLE else "too many"
            tokens.fail(f"the table of factor {a} has size {shown(said)}; its variables need {wanted}", first + at)
        if at + 1 + size > len(values):
            left = len(values) - at - 1
            tokens.fail(f"the file ends in the table of factor {a}, after {left} of {size} values", len(tokens.words))
        table = logs[at + 1 : at + 1 + size].reshape(shape)
        if not (table > -math.inf).any():
            tokens.fail(f"Z = 0: the table of factor {a} holds zeros only", first + at)
        tables.append(table)
        at += 1 + size
    if at < len(values):
        tokens.fail(f"there are {len(values) - at} tokens after the last table", first + at)
    return tables


def logs_of(tokens: Tokens, values: Array) -> Array:
    """Return the logarithms of weights, also of weights out of the range of floating point."""
    bad = np.flatnonzero(~(values >= 0.0))
    if len(bad):
        word = tokens.words[tokens.at + int(bad[0])]
        wrong = "be a number" if np.isnan(values[bad[0]]) else "not be negative"
        tokens.fail(f"a weight is {shown(word)}; it must {wrong}", tokens.at + int(bad[0]))
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    for k in np.flatnonzero(np.isinf(logs)).tolist():
        word = tokens.words[tokens.at + k]
        if word.strip("0.+-"):  # The word is not a plain zero.
            logs[k] = _log_beyond(tokens, word, tokens.at + k)
    return logs


def _log_beyond(tokens: Tokens, word: str, at: int) -> float:
    """Return the logarithm of a weight that is zero or infinite in floating point."""
    try:
        exact = Decimal(word)
        if exact < 0:
            tokens.fail(f"a weight is {shown(word)}; it must not be negative", at)
        if exact.is_zero():
            return -math.inf
        if exact.is_finite() and abs(exact.adjusted()) <= _MOST_DIGITS:
            return float(exact.ln())
    except ArithmeticError:  # The word has more digits than a decimal number may have.
        pass
    tokens.fail(f"a weight is {shown(word)}; it must be finite and within 1e±{_MOST_DIGITS}", at)


def parse_evidence(text: str) -> dict[Any, int]:
    """Return the evidence of a text, with or without a number of samples; the text ``0`` means no evidence."""
    tokens = Tokens(text)
    if not len(tokens):  # The file may be truncated.
        raise ValueError("is empty; no evidence is written as 0")
    if len(tokens) % 2 == 0:  # k and k pairs are odd in number; one more token is a number of samples.
        samples = tokens.whole("the number of samples of evidence", 0)
        if samples != 1:
            tokens.fail(f"there are {samples} samples of evidence; give a file with one")
    count = tokens.whole("the number of variables with evidence", 0)
    if len(tokens) != 2 * count:
        tokens.fail(f"evidence for {count} variables takes {2 * count} tokens; there are {len(tokens)}")
    held: dict[Any, int] = {}
    for _ in range(count):
        v = tokens.whole("a variable with evidence", 0)
        state = tokens.whole(f"the state of variable {v}", 0)
        if held.setdefault(v, state) != state:
            tokens.fail(f"variable {v} is held in two states")
    return held


def write_uai(model: MRF | FactorModel, path: str | Path) -> None:
    """Write a discrete model as a Markov network, with the variables numbered in the caller's order."""
    write_text(path, uai_text(model if isinstance(model, FactorModel) else FactorModel.of(model)))


def uai_text(model: FactorModel) -> str:
    """Return a model in UAI format, with the constant distributed over the tables."""
    if not model.cards:
        raise ValueError("no variable is left: there is nothing to write")
    scopes, tables = list(model.scopes), list(model.tables)
    if not tables:
        scopes, tables = [(0,)], [np.zeros(model.cards[0])]
    tops = [float(table.max()) for table in tables]
    share = (model.offset + math.fsum(tops)) / len(tables)
    if any(
        (table[np.isfinite(table)] - top + share < -_HIGHEST).any() for table, top in zip(tables, tops, strict=True)
    ):
        raise ValueError(
            "the range of the weights is too large for a UAI file, which stores weights and not their logarithms"
        )
    if abs(share) > _HIGHEST:
        raise ValueError(
            "the weights are too large or too small for a UAI file, which stores weights and not their logarithms"
        )
    lines = ["MARKOV", str(len(model.cards)), " ".join(map(str, model.cards)), str(len(tables))]
    lines += [" ".join(map(str, (len(scope), *scope))) for scope in scopes]
    for table, top in zip(tables, tops, strict=True):
        weights = np.exp(table - top + share).ravel().tolist()
        lines += ["", str(len(weights)), " ".join(map(repr, weights))]
    return "\n".join(lines) + "\n"


def write_pr(log_z: float, path: str | Path) -> None:
    """Write the answer of the partition-function task: the word PR and log10 Z."""
    write_text(path, f"PR\n{log_z / math.log(10.0):.12g}\n")


def write_mar(marginals: Sequence[Array], path: str | Path) -> None:
    """Write the answer of the marginals task: MAR, the number of variables, and for each its states and P(x)."""
    words = [str(len(marginals))]
    for p in marginals:
        words += [str(len(p)), *(f"{x:.12g}" for x in p.tolist())]
    write_text(path, f"MAR\n{' '.join(words)}\n")
