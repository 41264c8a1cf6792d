"""The compiled arrangement of large graphs is that of small ones, variable by variable."""

import numpy as np
import pytest
import scipy.sparse as sp

from marginalis.models import arrange
from marginalis.models.colouring import _add, _pop, _remove, greedy_set, smallest_last, two_colours
from marginalis.models.graphs import _merge


def random_graph(rng, n, edges):
    pairs = rng.integers(0, n, (edges, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    both = np.concatenate([pairs, pairs[:, ::-1]]).reshape(-1, 2)
    graph = sp.csr_array((np.ones(len(both), dtype=np.int8), (both[:, 0], both[:, 1])), shape=(n, n))
    graph.sum_duplicates()
    return graph


@pytest.mark.parametrize("n", [1, 2, 7, 40, 300, 2500])
def test_the_same_sets_and_colours(n):
    rng = np.random.default_rng(n)
    for density in (0.0, 0.3, 0.6, 1.0, 2.0, 5.0, 12.0):
        graph = random_graph(rng, n, int(density * n))
        starts, neighbours = arrange._neighbours(graph)
        assert np.array_equal(smallest_last(starts, neighbours), arrange._colours(graph))
        assert np.array_equal(greedy_set(starts, neighbours), arrange._greedy_set(graph))
        sides, expected = two_colours(starts, neighbours), arrange.two_colour(graph)
        assert (len(sides) == 0 and n > 0) if expected is None else np.array_equal(sides, expected)


def test_split_of_large_graphs_is_that_of_small_ones(monkeypatch):
    rng = np.random.default_rng(1)
    for n, edges in ((500, 400), (500, 1500), (900, 300)):
        graph = random_graph(rng, n, edges)
        expected = arrange.split_variables(graph)
        with monkeypatch.context() as patch:
            patch.setattr(arrange, "_LARGE", 1)
            found = arrange.split_variables(graph)
        assert np.array_equal(found.visible, expected.visible)
        assert np.array_equal(found.hidden, expected.hidden)


def test_numbers_leave_a_set_in_the_order_of_python():
    rng = np.random.default_rng(2)
    for size in (6, 60, 600):
        there, table, state = set(), np.full(8, -1, dtype=np.int32), np.zeros(3, dtype=np.int64)
        for _ in range(3000):
            x = int(rng.integers(size))
            if x not in there:
                there.add(x)
                table = _add(table, state, x)
            elif len(there) > 1 and rng.random() < 0.5:
                there.remove(x)
                _remove(table, state, x)
            elif rng.random() < 0.3:
                assert _pop(table, state) == there.pop()
            assert [k for k in table if k >= 0] == list(there)


def test_parallel_edges_add_up_in_the_order_given():
    rng = np.random.default_rng(3)
    pairs, coupling = rng.integers(0, 9, (200, 2)), rng.normal(size=200)
    kept, sums = _merge(pairs, coupling)
    expected, index = np.unique(np.sort(pairs, axis=1), axis=0, return_inverse=True)
    assert np.array_equal(kept, expected)
    assert np.array_equal(sums, np.bincount(index.ravel(), weights=coupling))
    assert [len(x) for x in _merge(np.zeros((0, 2), dtype=np.int64), np.zeros(0))] == [0, 0]
