"""Many runs in one pass: the numbers are those of each run alone, to the last bit."""

import numpy as np
import pytest

from marginalis.statistics.rows import summarise
from marginalis.statistics.weights import Weights


def samples(kind, n, rng):
    """Rows of log-weights: well-behaved ones, skewed ones, some that are all equal, few values, or very large."""
    rows = rng.normal(size=(40, n)) * np.linspace(0.0, 3.0, 40)[:, None]
    if kind == "ties":
        rows = np.round(rows, 1)
    elif kind == "skewed":
        rows = -np.exp(rows)
    elif kind == "huge":
        rows = rows + 10.0 ** np.linspace(3, 14, 40)[:, None]
    elif kind == "heavy":
        rows = 2.0 * rng.standard_exponential((40, n)) * np.linspace(0.1, 2.0, 40)[:, None]
    return rows


@pytest.mark.parametrize("kind", ["normal", "ties", "skewed", "huge", "heavy"])
@pytest.mark.parametrize("n", [1, 2, 5, 9, 17, 64, 100, 333, 1000])
def test_every_row_has_the_numbers_of_its_weights_alone(kind, n):
    rng = np.random.default_rng(n)
    rows, unseen = samples(kind, n, rng), np.where(np.arange(40) % 3, 0.0, 0.01)
    found = summarise(rows, unseen)
    for t, row in enumerate(rows):
        alone = Weights(row, unseen=unseen[t])
        assert found.log_mean[t] == alone.log_z
        assert found.stderr[t] == alone.stderr
        assert (-found.interval[t][1], -found.interval[t][0]) == alone.interval
        assert found.ess[t] == alone.ess
        np.testing.assert_array_equal(found.tail_index[t], alone.tail_index)
        assert found.warnings[t] == alone.warnings


def test_populations_are_named():
    (warnings,) = summarise(np.array([[0.0, 1.0, 2.0]]), np.zeros(1), "populations").warnings
    assert warnings == Weights(np.array([0.0, 1.0, 2.0]), of="populations").warnings
    assert "populations" in warnings[0]
