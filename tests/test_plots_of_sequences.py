"""Figures of curves over models and temperatures, with exact values beside them."""

import numpy as np
from test_plots import check_drawn, line

import marginalis as mg
from marginalis import plots


def test_likelihoods_over_a_sequence():
    rng = np.random.default_rng(3)
    models = {n: mg.rbm(0.01 * n * rng.normal(size=(3, 2)), np.zeros(3), np.zeros(2), units="binary") for n in (1, 99)}
    run = mg.along(models, chains=40, populations=20)
    train, test = (mg.log_likelihood(run, rng.integers(0, 2, (n, 3))) for n in (7, 5))
    figure = plots.likelihoods({"train": train, "test": test})
    check_drawn(figure)
    assert figure.axes[0].get_xscale() == "log"
    x, y = line(figure.axes[0], "test, 5 rows")
    assert np.array_equal(x, [1, 99])
    assert np.array_equal(y, test.mean)
    band = figure.axes[0].collections[1].get_paths()[0].vertices[:, 1]
    assert {*test.intervals.ravel()} == {*band}
    check_drawn(
        plots.likelihoods(mg.log_likelihood(mg.along([*models.values()], chains=1, resample=False), [[0, 1, 1]]))
    )
