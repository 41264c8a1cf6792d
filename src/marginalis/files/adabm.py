"""Potts parameters of adabmDCA: lines ``J i j a b value`` and ``h i a value``, states as letters or numbers.

P(x) ∝ exp(Σ_i h_i(x_i) + Σ_{i<j} J_ij(x_i, x_j)). Every site has all states that occur in the file. Sites are numbered
from 0 or from 1 without gaps, and so are states that are numbers.
"""

from __future__ import annotations

import math
import re

import numpy as np
import scipy.sparse as sp

from ..checks import check_room, shown
from ..models.arrange import arrange
from ..models.model import MRF
from ..models.units import Categorical

_START = re.compile(r"\s*(J\s+\d+\s+\d+\s+\S+\s+\S+|h\s+\d+\s+\S+)\s+\S+\s*(\n|$)")


def is_adabm(text: str) -> bool:
    """Whether a text begins with a line of parameters."""
    return _START.match(text[:4096]) is not None


def parse_adabm(text: str) -> MRF:
    """Return the Potts model of a text."""
    fields: list[tuple[int, str, float]] = []
    couplings: list[tuple[int, int, str, str, float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        match line.split():
            case []:
                continue
            case ["h", i, a, value]:
                fields.append((_site(i, number), a, _value(value, number)))
            case ["J", i, j, a, b, value]:
                couplings.append((_site(i, number), _site(j, number), a, b, _value(value, number)))
                if couplings[-1][0] == couplings[-1][1]:
                    raise ValueError(f"line {number}: J joins site {i} to itself")
            case _:
                raise ValueError(f"line {number} is {shown(line)}; it must be 'J i j a b value' or 'h i a value'")
    if not fields:
        raise ValueError("has no line 'h i a value'")
    sites = _numbered({i for i, _, _ in fields} | {i for x in couplings for i in x[:2]}, "site")
    states = _in_order({a for _, a, _ in fields} | {x for _, _, a, b, _ in couplings for x in (a, b)})
    n, q = len(sites), len(states)
    if q < 2:
        raise ValueError(f"names one state, {shown(next(iter(states)))}; a variable needs at least 2")
    check_room(50 * n * q, "the number of sites", n)
    bias = np.zeros(n * q)
    for site, state, field in fields:
        bias[sites[site] * q + states[state]] += field
    ends = [(sites[i] * q + states[a], sites[j] * q + states[b]) for i, j, a, b, _ in couplings]
    at = np.array(ends, dtype=np.int64).reshape(-1, 2)
    data = np.array([x[4] for x in couplings], dtype=np.float64)
    links = sp.csr_array((data, (at[:, 0], at[:, 1])), shape=(n * q, n * q))
    return arrange(Categorical(q), bias, links, labels=None if 0 in sites else tuple(sites))


def _in_order(words: set[str]) -> dict[str, int]:
    """Return the states numbered from 0, with letters in alphabetical and numbers in numerical order."""
    if all(word.isdecimal() and len(word) < 7 for word in words):
        order = _numbered({int(word) for word in words}, "state")
        return {word: order[int(word)] for word in words}
    return {word: k for k, word in enumerate(sorted(words))}


def _numbered(found: set[int], what: str) -> dict[int, int]:
    """Return the place of each number, or raise a ValueError if a number, and so its parameters, is missing."""
    first = min(found)
    if first > 1 or max(found) - first >= len(found):
        missing = next(i for i in range(min(first, 1), max(found)) if i not in found)
        raise ValueError(
            f"names no {what} {missing}, but {what} {max(found)}: {what}s are numbered from 0 or from 1, without gaps"
        )
    return {i: i - first for i in sorted(found)}


def _site(word: str, line: int) -> int:
    if not word.isdecimal() or len(word) > 9:
        raise ValueError(f"line {line}: a site is {shown(word)}; it must be a whole number")
    return int(word)


def _value(word: str, line: int) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"line {line}: a value is {shown(word)}; it must be a finite number")
    return value
