"""Factor graphs of libDAI (``.fg``): tables of weights without zeros, the first variable of a factor fastest.

Without comments (``#``) a file has the number of factors and then, for each factor, the number of its variables, their
labels, their numbers of states, the number of entries, and an index and a weight for each entry.
"""

from __future__ import annotations

import math
import re

import numpy as np

from ..checks import Array
from ..models.factors import FactorModel
from .text import Tokens
from .uai import logs_of

_COMMENT = re.compile(r"#.*$", re.MULTILINE)
# Largest number of variables of a factor, the limit of axes in NumPy 1.
_AXES = 32
# Largest number of states of a variable.
_STATES = 1 << 24


def parse_libdai(text: str) -> FactorModel:
    """Return the factors of a text."""
    tokens = Tokens(_COMMENT.sub("", text))
    count = tokens.whole("the number of factors", 1, len(tokens))
    cards: dict[int, int] = {}
    scopes: list[tuple[int, ...]] = []
    tables: list[Array] = []
    entries = 0
    for a in range(count):
        size = tokens.whole(f"the number of variables of factor {a}", 0, _AXES)
        scope = tuple(tokens.whole(f"a variable of factor {a}", 0) for _ in range(size))
        if len(set(scope)) < size:
            tokens.fail(f"factor {a} names a variable twice")
        shape = tuple(tokens.whole(f"the number of states of variable {v}", 1, _STATES) for v in scope)
        for v, card in zip(scope, shape, strict=True):
            if cards.setdefault(v, card) != card:
                tokens.fail(f"variable {v} has {card} states here and {cards[v]} before")
        length = math.prod(shape)
        entries += length
        tokens.check_count(entries, "the number of entries of all tables")
        given = tokens.whole(f"the number of entries of factor {a}", 0, length)
        table = np.full(length, -math.inf)
        at = tokens.at
        pairs = Tokens("")
        pairs.text, pairs.words, pairs.at = tokens.text, tokens.words[: at + 2 * given], at
        values = pairs.numbers(f"an index or a weight of factor {a}")
        if len(values) < 2 * given:
            tokens.fail(f"the file ends in the table of factor {a}", len(tokens.words))
        places = values[::2]
        wrong = np.flatnonzero(~((places >= 0) & (places < length) & (places % 1 == 0)))
        if len(wrong):
            tokens.fail(f"an index of factor {a} must be a whole number below {length}", at + 2 * int(wrong[0]))
        table[places.astype(np.int64)] = logs_of(pairs, values)[1::2]
        if not (table > -math.inf).any():
            tokens.fail(f"Z = 0: the table of factor {a} holds zeros only")
        tokens.at = at + 2 * given
        scopes.append(scope)
        tables.append(table.reshape(shape, order="F").copy())
    if len(tokens):
        tokens.fail(f"there are {len(tokens)} tokens after the last factor", tokens.at)
    labels = sorted(cards)
    if not labels:
        raise ValueError("has no variables")
    number = {v: i for i, v in enumerate(labels)}
    own = None if labels == list(range(len(labels))) else tuple(labels)
    return FactorModel(
        tuple(cards[v] for v in labels),
        tuple(tuple(number[v] for v in scope) for scope in scopes),
        tuple(tables),
        labels=own,  # type: ignore[arg-type]
    )
