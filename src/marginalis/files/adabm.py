"""Potts parameters of adabmDCA: lines ``J i j a b value`` and ``h i a value``, states as letters or numbers.

P(x) ∝ exp(Σ_i h_i(x_i) + Σ_{i<j} J_ij(x_i, x_j)). Every site has every state that the file names.
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
    n = 1 + max([x[0] for x in fields] + [max(x[:2]) for x in couplings])
    states = _in_order({a for _, a, _ in fields} | {x for _, _, a, b, _ in couplings for x in (a, b)})
    q = 1 + max(states.values())
    if q < 2:
        raise ValueError(f"names one state, {shown(next(iter(states)))}; a variable needs at least 2")
    check_room(50 * n * q, "the number of sites", n)
    bias = np.zeros(n * q)
    for site, state, field in fields:
        bias[site * q + states[state]] += field
    at = np.array([(i * q + states[a], j * q + states[b]) for i, j, a, b, _ in couplings], dtype=np.int64)
    at = at.reshape(-1, 2)
    data = np.array([x[4] for x in couplings], dtype=np.float64)
    links = sp.csr_array((data, (at[:, 0], at[:, 1])), shape=(n * q, n * q))
    return arrange(Categorical(q), bias, links)


def _in_order(words: set[str]) -> dict[str, int]:
    """Number the states: letters in the order of the alphabet; numbers are theirs already."""
    if all(word.isdecimal() and len(word) < 7 for word in words):
        return {word: int(word) for word in words}
    return {word: k for k, word in enumerate(sorted(words))}


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
