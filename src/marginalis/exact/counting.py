"""Weighted model counting: ln Z of a network with many zeros or equal values as a sum over solutions of clauses.

A variable with two states is a proposition; one with more states has a proposition for each state. Zeros of a table
become clauses, one for each implicant. Every other value has a proposition that is true where the table has this value
and whose weight is the value. Ganak counts the solutions in a child process with limits on its time and memory.
"""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..checks import Array
from ..models.reduction import Factor
from ..parallel.threads import Tick

INSTALL = "pip install 'marginalis[networks]'"
_CHILD = Path(__file__).with_name("count_child.py")
_ZEROS = 0.25  # Counting is tried if at least this fraction of the entries is zero.
_VALUES = 3.0  # Counting is also tried if tables have at most this many different values on average.
_MOST_ENTRIES = 1 << 20  # Most entries of all tables that are converted to clauses.
_LOG_RANGE = 700.0  # Weights further apart than e^700 overflow in floating point.
_TRIALS = 12  # Most scales that are tried until the count is a finite positive number.
_LOOK = 0.1  # Seconds between two checks of the child process.
_PATIENCE = 10.0  # The child is killed after this multiple of its limit on processor time, for busy machines.


class CountingFailed(ValueError):
    """Raised if counting fails: time or memory ran out, the child process died, or numbers are out of range."""


class Clauses(NamedTuple):
    """A formula: clauses, weights of literals, the number of propositions, and ln of a common factor."""

    clauses: list[list[int]]
    weights: dict[int, float]
    propositions: int
    constant: float


def is_deterministic(factors: Sequence[Factor]) -> bool:
    """Whether enough entries are zero or equal that counting may be faster than elimination."""
    tables = [table for _, table in factors]
    entries = sum(table.size for table in tables)
    if not 0 < entries <= _MOST_ENTRIES:
        return False
    zeros = sum(int(np.isneginf(table).sum()) for table in tables)
    return zeros >= _ZEROS * entries or sum(len(np.unique(table)) for table in tables) <= _VALUES * len(tables)


def is_installed() -> bool:
    """Whether the counter is installed."""
    return importlib.util.find_spec("pyganak") is not None


def encode(cards: Sequence[int], factors: Sequence[Factor]) -> Clauses:
    """Return the clauses of a network of tables of logarithms."""
    clauses: list[list[int]] = []
    weights: dict[int, float] = {}
    states: list[list[int]] = []  # The literal of each state of each variable.
    count = 0
    for card in cards:
        if card == 2:
            count += 1
            states.append([-count, count])
            continue
        own = list(range(count + 1, count + 1 + card))
        count += card
        states.append(own)
        clauses.append(own)
        clauses += [[-own[i], -own[j]] for i in range(card) for j in range(i)]
    constants = []
    single = [np.zeros(card) for card in cards]
    for scope, table in factors:
        if len(scope) == 1:
            single[scope[0]] = single[scope[0]] + table
            continue
        if not scope:
            constants.append(float(table))
            continue
        literals = [states[v] for v in scope]
        values, often = np.unique(table, return_counts=True)
        finite = np.isfinite(values)
        if not finite.any():
            return Clauses([[]], {}, count, 0.0)
        common = float(values[finite][often[finite].argmax()])  # The most frequent value needs no proposition.
        constants.append(common)
        for value in values.tolist():
            if value == common:
                continue
            head = []
            if value > -math.inf:
                count += 1
                head = [count]
                weights[count], weights[-count] = _weight(value - common), 1.0
                clauses += [[-count, *_outside(cube, literals)] for cube in _cubes(table != value)]
            clauses += [[*head, *_outside(cube, literals)] for cube in _cubes(table == value)]
    for own, table in zip(states, single, strict=True):
        top = float(table.max())
        if top == -math.inf:
            return Clauses([[]], {}, count, 0.0)
        constants.append(top)
        for literal, value in zip(own, table.tolist(), strict=True):
            if value == -math.inf:
                clauses.append([-literal])
            elif value != top or len(own) == 2:
                weights[literal] = _weight(value - top)
                weights.setdefault(-literal, 1.0)
    return Clauses(clauses, weights, count, math.fsum(constants))


def _weight(log: float) -> float:
    if abs(log) > _LOG_RANGE:
        raise CountingFailed("the range of the weights is too large for counting")
    return math.exp(log)


def _outside(cube: list[tuple[int, int]], literals: list[list[int]]) -> list[int]:
    """Return the clause that excludes the states in a cube of table entries."""
    return [-literals[axis][state] for axis, state in cube]


def _cubes(wanted: Array) -> list[list[tuple[int, int]]]:
    """Return maximal cubes that cover the wanted entries, each a list of (axis, state) for its fixed axes."""
    left, cubes = wanted.copy(), []
    while left.any():
        first = np.unravel_index(int(left.argmax()), left.shape)
        cube: list[int | slice] = [int(k) for k in first]
        for axis, state in enumerate(cube):
            cube[axis] = slice(None)
            if not wanted[tuple(cube)].all():
                cube[axis] = state
        left[tuple(cube)] = False
        cubes.append([(axis, state) for axis, state in enumerate(cube) if isinstance(state, int)])
    return cubes


def count_log_z(formula: Clauses, seconds: float, memory: float, tick: Tick) -> float:
    """Return ln of the weighted number of solutions, −∞ if there is none, or raise `CountingFailed`."""
    if [] in formula.clauses:
        return -math.inf
    if not is_installed():
        raise CountingFailed(f"weighted model counting needs a counter: {INSTALL}")
    task = {
        "clauses": formula.clauses,
        "weights": [[literal, weight] for literal, weight in formula.weights.items()],
        "propositions": formula.propositions,
        "seconds": max(1, math.ceil(seconds)),
        "bytes": int(memory),
        "trials": _TRIALS,
    }
    # The task is passed in a file, since a pipe blocks or is left half written if the child reads slowly.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as given:
        json.dump(task, given)
        given.seek(0)
        with subprocess.Popen(
            [sys.executable, "-P", str(_CHILD)],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as child:
            try:
                answer = _answer(child, seconds, tick)
            finally:
                child.kill()
    if answer is None:
        raise CountingFailed(f"counting took more than its {seconds:.3g} s")
    lines = [line for line in answer.splitlines() if line.startswith("answer ")]
    if not lines:
        raise CountingFailed(f"counting took more than its {seconds:.3g} s or {memory / 1e9:.2g} GB, or failed")
    result = json.loads(lines[-1][len("answer ") :])
    if "error" in result:
        raise CountingFailed(f"counting failed: {result['error']}")
    if result["count"] == 0.0:
        return -math.inf
    return formula.constant + math.log(result["count"]) - result["scale"] * math.log(2.0)


def _answer(child: subprocess.Popen[str], seconds: float, tick: Tick) -> str | None:
    """Return the output of the child, or None if it takes too long; the limit of the child itself is processor time."""
    waited = 0.0
    while waited <= _PATIENCE * seconds:
        try:
            return child.communicate(timeout=_LOOK)[0]
        except subprocess.TimeoutExpired:
            waited += _LOOK
            tick(min(1.0, waited / max(seconds, _LOOK)))
    return None
