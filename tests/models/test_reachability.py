"""Which models with zeros are connected by moves of single variables, against a search through all states."""

import itertools

import numpy as np
import pytest

from marginalis.models.reachability import single_moves_reach_all


def log(table):
    return np.where(table, 0.0, -np.inf)


def parity(k, odd):
    return np.indices((2,) * k).sum(axis=0) % 2 == odd


def is_connected(cards, scopes, tables):
    """Search all possible states from the first one."""
    states = {
        x
        for x in itertools.product(*map(range, cards))
        if all(table[tuple(x[v] for v in scope)] == 0.0 for scope, table in zip(scopes, tables, strict=True))
    }
    left, waiting = set(states), []
    if left:
        waiting.append(left.pop())
    while waiting:
        x = waiting.pop()
        for v, card in enumerate(cards):
            for state in range(card):
                y = (*x[:v], state, *x[v + 1 :])
                if y in left:
                    left.remove(y)
                    waiting.append(y)
    return not left


def colouring(edges, q, n):
    return (q,) * n, edges, [log(~np.eye(q, dtype=bool))] * len(edges)


def independent_sets(edges, n):
    return (2,) * n, edges, [log(np.array([[True, True], [True, False]]))] * len(edges)


CYCLE = [(i, (i + 1) % 5) for i in range(5)]
COMPLETE = list(itertools.combinations(range(4), 2))


@pytest.mark.parametrize(
    ("model", "reached"),
    [
        (colouring(CYCLE, 4, 5), True),
        (colouring(CYCLE, 3, 5), False),  # Connected in fact or not: 3 colours are not q ≥ 4.
        (colouring(COMPLETE, 5, 4), True),
        (colouring(COMPLETE, 4, 4), False),  # Permutations.
        (independent_sets(COMPLETE, 4), True),
        (((2,) * 4, [(0, 1, 2), (1, 2, 3)], [log(parity(3, 0)), log(parity(3, 1))]), False),
        (((2, 2), [(0, 1)], [log(np.eye(2, dtype=bool))]), False),
        (((2, 3), [(0, 1)], [np.zeros((2, 3))]), True),
        (((3, 3), [(0, 1)], [log(np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=bool))]), True),
    ],
)
def test_named_models(model, reached):
    assert single_moves_reach_all(*model) == reached
    if reached:
        assert is_connected(*model)


def test_random_models_that_are_called_connected_are():
    """The condition is sufficient: no model is called connected that is not, and a third of them are found."""
    rng = np.random.default_rng(0)
    found = connected = 0
    for _ in range(400):
        n = int(rng.integers(3, 7))
        cards = rng.integers(2, 5, n).tolist()
        scopes = [tuple(rng.choice(n, int(rng.integers(2, 4)), replace=False).tolist()) for _ in range(n)]
        share = rng.choice([0.02, 0.05, 0.1, 0.2])
        tables = [log(rng.random([cards[v] for v in scope]) >= share) for scope in scopes]
        truly = is_connected(cards, scopes, tables)
        called = single_moves_reach_all(cards, scopes, tables)
        assert truly or not called
        found, connected = found + called, connected + truly
    assert found > 0.3 * connected
