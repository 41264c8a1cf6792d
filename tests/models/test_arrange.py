"""Which variables are summed out, and in which blocks the others are drawn."""

import numpy as np
import pytest
import scipy.sparse as sp

import marginalis as mg


def test_the_summed_set_is_large():
    """A third of a triangular lattice, half of an even ring with chords inside the other half."""
    model = mg.ising_grid((6, 9), periodic=True, triangular=True)
    assert len(model.split.hidden) == 18
    assert [len(block) for block in model.sweep] == [18, 18]
    star = mg.from_edges([(0, i) for i in range(1, 9)] + [(1, 2)])
    assert len(star.split.hidden) == 7


def test_dense_graphs_are_drawn_one_by_one():
    model = mg.from_matrix(np.ones((9, 9)) - np.eye(9))
    assert len(model.split.hidden) == 1
    assert [len(block) for block in model.sweep] == [1] * 8
    assert not sp.issparse(model.lateral)


def test_gaussians_that_cannot_be_normalised():
    with pytest.raises(ValueError, match="not normalisable"):
        mg.from_edges([(0, 1), (1, 2), (0, 2)], coupling=0.6, units="gaussian")
    mg.from_edges([(0, 1), (1, 2), (0, 2)], coupling=0.49, units="gaussian")
