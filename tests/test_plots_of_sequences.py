"""Figures of curves over models and temperatures, with exact values beside them."""

import numpy as np
import pytest
from test_plots import check_drawn, line

import marginalis as mg
from marginalis import plots
from marginalis.answers.exact_curve import exact_curve


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


def test_every_answer_draws_itself():
    rng = np.random.default_rng(4)
    a, b = (mg.rbm(rng.normal(size=(4, 3)), np.zeros(4), np.zeros(3)) for _ in range(2))
    few = {"steps": 20, "chains": 50, "engine": "numpy"}
    run, table = mg.along({"a": a, "b": b}, **few), mg.estimate_many([a, b], **few)
    for answer, values in ((run, run.free_energy), (table, table.free_energy), (mg.expectations(a), np.zeros(7))):
        figure = answer.plot()
        check_drawn(figure)
        points = figure.axes[0].containers[0].lines[0].get_ydata()
        assert np.allclose(points, values)
    assert [label.get_text() for label in run.plot().axes[0].get_xticklabels()] == ["a", "b"]
    bars = run.plot().axes[0].containers[0].lines[2][0].get_segments()
    ends = np.array([bar[:, 1] for bar in bars])
    assert np.allclose(ends, -run.intervals[:, ::-1])
    estimate = mg.estimate(a, record=True, **few)
    for answer in (estimate.weights, estimate.curve, mg.difference(a, b, **few)):
        check_drawn(answer.plot())
    assert estimate.weights.plot().axes[0].get_yscale() == "linear"
    assert mg.Weights(rng.normal(size=10**4)).plot().axes[0].get_yscale() == "log"
    check_drawn(
        mg.along([mg.rbm(a.weights * x, a.visible_bias, a.hidden_bias) for x in np.linspace(0, 1, 70)], **few).plot()
    )


def test_exact_values_beside_temperatures():
    model = mg.ising_grid((3, 4), coupling=0.7, field=0.2)
    result = mg.thermodynamics(model, temperatures=[0.8, 1.5, 3.0], chains=200, steps=100)
    exact = exact_curve(model, result.betas)
    for name in ("log_z", "energy", "entropy", "heat_capacity"):
        at = np.interp(result.betas, exact.betas, getattr(exact, name))
        assert (np.abs(getattr(result, name) - at) < 4.5 * getattr(result, name + "_error") + 1e-3).all()
    figure = plots.thermodynamics(result, exact=exact)
    check_drawn(figure)
    t, c = line(figure.axes[2], "exact")
    assert np.array_equal(t, 1.0 / exact.betas)
    assert np.array_equal(c, exact.heat_capacity / 12)


def test_exact_values_are_derivatives():
    """One spin in a field has U = −h tanh βh and C = (βh/cosh βh)²."""
    exact = exact_curve(mg.from_edges([], coupling=0.0, field=[1.3], n=1), np.array([0.0, 2.0]))
    x = 1.3 * exact.betas
    assert exact.energy == pytest.approx(-1.3 * np.tanh(x), abs=1e-7)
    assert exact.heat_capacity == pytest.approx((x / np.cosh(x)) ** 2, abs=1e-7)
    assert exact.entropy == pytest.approx(np.log(2 * np.cosh(x)) - x * np.tanh(x), abs=1e-7)


def test_exact_values_beside_the_way():
    model = mg.ising_grid((3, 4), coupling=0.7, field=0.2, temperature=1.5)
    estimate = mg.estimate(model, steps=50, chains=200, record=True)
    exact = exact_curve(model, np.array([0.0, 1 / 1.5]))
    figure = plots.curve(estimate, exact=exact)
    check_drawn(figure)
    _, gap = figure.axes[1].lines[-1].get_data()
    assert len(gap) == 50
    assert (np.abs(gap) < 4.5 * estimate.curve.stderr + 1e-6).all()
    assert exact.log_z[-1] == pytest.approx(mg.exact_log_z(model))


def test_no_exact_values_where_they_are_dear():
    assert exact_curve(mg.rbm(np.ones((40, 40)), np.zeros(40), np.zeros(40)), np.array([1.0])) is None
