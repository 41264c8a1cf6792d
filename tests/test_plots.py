"""Figures: that they can be drawn of anything, and that what they show is what the numbers say."""

import io
from dataclasses import replace

import numpy as np
import pytest
from conftest import make_estimate, random_rbm
from scipy.integrate import trapezoid

import marginalis as mg
from marginalis import plots
from marginalis.plots.numbers import running_means, tail_density
from marginalis.results.curve import Curve
from marginalis.statistics import confidence
from marginalis.statistics.confidence import relative_error

RNG = np.random.default_rng(5)
WEIGHTS = {
    "normal": RNG.normal(size=1000),
    "equal": np.full(100, 3.0),
    "equal but for rounding": 1e5 + 1e-11 * RNG.normal(size=100),
    "one": np.array([1.3]),
    "two": np.array([1.0, 1.7]),
    "ten": RNG.normal(size=10),
    "huge spread": 500.0 * RNG.normal(size=1000),
    "tiny spread": 5e4 + 1e-3 * RNG.normal(size=500),
    "heavy tail": 1.2 * RNG.exponential(size=3000),
    "light tail": np.log(RNG.uniform(size=3000)),
    "many": RNG.normal(size=100_000),
}


def with_curve(log_weights, betas):
    steps = np.asarray(betas)[:, None] * log_weights
    return make_estimate(log_weights, curve=Curve(np.asarray(betas), steps, 2.0))


def bounds(forward, reverse, samples="given"):
    return mg.Bounds(make_estimate(forward), reverse, samples, 0.95, 1.0)


def line(axes, label):
    """Points of the one line whose label starts like this."""
    (found,) = (x for x in axes.lines if str(x.get_label()).startswith(label))
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


def check_drawn(figure, *formats):
    """Draw it; warnings, as of things that do not fit or are not finite, are errors."""
    for name in formats or ("png",):
        file = io.BytesIO()
        figure.savefig(file, format=name, dpi=40)
        assert file.getvalue().startswith({"png": b"\x89PNG", "svg": b"<?xml"}[name])
    for axes in figure.axes:
        assert np.isfinite([*axes.get_xlim(), *axes.get_ylim()]).all()


@pytest.mark.parametrize("draw", [plots.weights, plots.running])
@pytest.mark.parametrize("case", WEIGHTS)
def test_estimates_can_be_drawn(draw, case):
    check_drawn(draw(make_estimate(WEIGHTS[case])))


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_shows_all_chains_and_the_estimate(case):
    e = make_estimate(WEIGHTS[case])
    (axes,) = plots.weights(e).axes
    assert sum(bar.get_height() for bar in axes.containers[0]) == e.chains
    x, _ = line(axes, "ln Z = ")
    assert list(x) == [e.log_z, e.log_z]
    low, high = axes.get_xlim()
    assert low < e.log_z < high


@pytest.mark.parametrize("case", ["normal", "heavy tail", "light tail", "many", "tiny spread"])
def test_tail_curve_holds_as_many_chains_as_the_tail(case):
    e = make_estimate(WEIGHTS[case])
    tail = confidence.fit_tail(e.log_weights)
    (axes,) = plots.weights(e).axes
    x, y = line(axes, "Pareto tail")
    width = axes.containers[0][0].get_width()
    assert trapezoid(y, x) / width == pytest.approx(tail.size, rel=0.04)
    assert x[0] == pytest.approx(e.log_z0 + tail.threshold, abs=0.01 * np.ptp(x))
    assert f"= {tail.k:.2f}" in str([x.get_label() for x in axes.lines])


@pytest.mark.parametrize("k", [-1.5, -0.4, 0.0, 1e-9, 0.3, 2.0])
def test_tail_density_is_the_derivative_of_the_tail(k):
    tail = confidence.Tail(threshold=1.0, k=k, log_scale=0.5, size=10)
    y, density = tail_density(tail)
    z = (np.exp(y) - np.exp(1.0)) / np.exp(0.5)
    above = np.exp(-z) if abs(k) < 1e-6 else (1.0 + k * z) ** (-1.0 / k)
    middle = slice(20, -20)  # away from where differences of `above` are rounding
    numeric = -np.gradient(above, y)
    assert numeric[middle] == pytest.approx(density[middle], rel=0.02)
    assert trapezoid(density, y) == pytest.approx(1.0, abs=0.01)


def test_no_tail_is_drawn_without_a_fit():
    (axes,) = plots.weights(make_estimate(WEIGHTS["equal"])).axes
    assert not any("Pareto" in str(x.get_label()) for x in axes.lines)


@pytest.mark.parametrize("case", WEIGHTS)
def test_running_ends_at_the_estimate(case):
    e = make_estimate(WEIGHTS[case])
    (axes,) = plots.running(e).axes
    n, f = line(axes, "F of the first")
    assert (n[0], n[-1]) == (1, e.chains)
    assert f[-1] == pytest.approx(e.free_energy, rel=1e-12)
    assert f[0] == pytest.approx(-2.0 - e.log_weights[0])


@pytest.mark.parametrize("case", WEIGHTS)
def test_running_errors_are_those_of_the_first_chains(case):
    x = WEIGHTS[case]
    _, errors = running_means(x)
    assert np.isinf(errors[0])
    for n in {2, 3, len(x) // 2, len(x)} & set(range(2, len(x) + 1)):
        assert errors[n - 1] == pytest.approx(relative_error(x[:n]), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("case", "steps"), [("normal", 1000), ("equal", 3), ("one", 10), ("two", 1), ("huge spread", 50)]
)
def test_curve_can_be_drawn(case, steps):
    e = with_curve(WEIGHTS[case], np.linspace(1.0 / steps, 1.0, steps))
    figure = plots.curve(e)
    check_drawn(figure)
    beta, log_z = line(figure.axes[0], "ln Z(β)")
    assert (beta[0], log_z[0]) == (0.0, 2.0)
    assert (beta[-1], log_z[-1]) == (1.0, pytest.approx(e.log_z))


def test_curve_needs_a_recorded_estimate():
    with pytest.raises(ValueError, match="record=True"):
        plots.curve(make_estimate(WEIGHTS["normal"]))


@pytest.mark.parametrize(
    ("forward", "reverse", "samples"),
    [
        (RNG.normal(size=1000) - 0.5, -RNG.normal(size=300) - 0.5, "given"),
        (RNG.normal(size=50) + 400.0, RNG.normal(size=50) - 500.0, "approximate"),  # no overlap
        (np.full(20, 3.0), np.full(20, -3.0), "given"),
        (np.array([1.0]), np.array([-1.5]), "given"),
        (np.array([1.0, 2.0]), np.array([-1.5, -2.7]), "given"),
    ],
)
def test_works_shows_both_directions_and_what_follows(forward, reverse, samples):
    b = bounds(forward, reverse, samples)
    figure = plots.works(b)
    check_drawn(figure)
    (axes,) = figure.axes
    x, _ = line(axes, "F = ")
    assert list(x) == [b.free_energy, b.free_energy]
    x, _ = line(axes, "bounds")
    assert list(x) == [b.lower, b.lower]
    for bars in axes.containers:
        assert sum(bar.get_height() * bar.get_width() for bar in bars) == pytest.approx(1.0)
    back, ahead = (sum(x.get_center()[0] * x.get_height() * x.get_width() for x in bars) for bars in axes.containers)
    width = axes.containers[0][0].get_width()
    assert ahead == pytest.approx(-2.0 - forward.mean(), abs=width)
    assert back == pytest.approx(-2.0 + reverse.mean(), abs=width)
    assert back < b.free_energy + width  # the second law
    assert ahead > b.free_energy - width


@pytest.fixture(scope="module")
def thermal():
    model = random_rbm(np.random.default_rng(1), 6, 4)
    return mg.thermodynamics(model, [0.5, 1.0, 0.25], steps=20, chains=50)


def test_thermodynamics_is_drawn_against_temperature(thermal):
    figure = plots.thermodynamics(thermal)
    check_drawn(figure)
    assert "temperature T" in figure.axes[-1].get_xlabel()
    for axes, name in zip(figure.axes, ("energy", "entropy", "heat_capacity"), strict=True):
        x, y = np.asarray(axes.lines[0].get_data(), float)
        assert list(x) == [1.0, 2.0, 4.0]
        assert y == pytest.approx(getattr(thermal, name)[[1, 0, 2]] / 10)


@pytest.mark.parametrize(("betas", "scale"), [([0.0, 0.5, 1.0], "linear"), ([1e-3, 0.1, 1.0], "log")])
def test_thermodynamics_chooses_its_axis(thermal, betas, scale):
    figure = plots.thermodynamics(replace(thermal, betas=np.array(betas)))
    check_drawn(figure)
    assert ("β" in figure.axes[-1].get_xlabel()) == (betas[0] == 0.0)
    assert figure.axes[-1].get_xscale() == scale


@pytest.mark.parametrize("error", [0.0, np.inf, np.nan])
def test_thermodynamics_of_little(thermal, error):
    names = [q + end for q in ("energy", "entropy", "heat_capacity") for end in ("", "_error")]
    one = {name: np.array([error if name.endswith("error") else 1.0]) for name in names}
    check_drawn(plots.thermodynamics(replace(thermal, betas=np.array([0.3]), **one)))


def test_figures_of_answers_are_saved_in_every_format(tmp_path, thermal):
    """What the library returns can be drawn and saved in every format."""
    model = random_rbm(np.random.default_rng(2), 8, 6)
    e = mg.estimate(model, steps=50, chains=100, record=True)
    figures = [plots.weights(e), plots.running(e), plots.curve(e), plots.works(mg.bound(model, steps=20, chains=50))]
    for figure in [*figures, plots.thermodynamics(thermal)]:
        check_drawn(figure, "png", "svg")
    for suffix in plots.FORMATS:
        plots.save(figures[0], tmp_path / f"figure.{suffix}")
        assert (tmp_path / f"figure.{suffix}").stat().st_size > 1000


def extent(axes, label, axis):
    """Least and largest coordinate of the one band or span with this label."""
    (found,) = (x for x in (*axes.patches, *axes.collections) if x.get_label() == label)
    corners = found.get_paths()[0].vertices if hasattr(found, "get_paths") else found.get_xy()
    if hasattr(found, "get_width"):
        corners = np.array([found.get_xy(), np.add(found.get_xy(), (found.get_width(), found.get_height()))])
    return corners[:, axis].min(), corners[:, axis].max()


def test_intervals_are_drawn_where_they_are():
    e = with_curve(WEIGHTS["normal"], np.linspace(0.1, 1.0, 10))
    low, high = e.interval
    assert extent(plots.weights(e).axes[0], "95 % interval", 0) == pytest.approx((-high, -low))
    (axes,) = plots.running(e).axes
    assert extent(axes, "95 % interval of all", 1) == pytest.approx((low, high))
    (band,) = (x for x in axes.collections if x.get_label() == "±1.96 standard errors")
    corners = band.get_paths()[0].vertices
    last = corners[corners[:, 0] == e.chains][:, 1]
    assert (last.min(), last.max()) == pytest.approx((e.free_energy - 1.96 * e.stderr, e.free_energy + 1.96 * e.stderr))
    around = e.curve.intervals - e.curve.log_z[:, None]
    assert extent(plots.curve(e).axes[1], "95 % interval", 1) == pytest.approx((around.min(), around.max()))


def test_works_shows_both_bounds():
    b = bounds(RNG.normal(size=1000) - 0.5, -RNG.normal(size=300) - 0.5)
    (axes,) = plots.works(b).axes
    drawn = {float(np.asarray(x.get_xdata())[0]) for x in axes.lines}
    assert drawn == {b.lower, b.upper, b.free_energy}


def test_thermodynamics_draws_two_standard_errors(thermal):
    for axes, name in zip(plots.thermodynamics(thermal).axes, ("energy", "entropy", "heat_capacity"), strict=True):
        (bars,) = axes.containers[0][2]
        reach = [(top - bottom) / 2 for (_, bottom), (_, top) in bars.get_segments()]
        assert reach == pytest.approx(2 * getattr(thermal, name + "_error")[[1, 0, 2]] / 10)


@pytest.mark.parametrize("number", [1, 2, 3, 9])
def test_convergence_draws_every_series(number):
    """With the exact value; the third and later ones were left out once."""
    series = {
        f"method {i}": [make_estimate(RNG.normal(i, 0.1, 100), steps=k) for k in (10, 100, 1000)] for i in range(number)
    }
    figure = plots.convergence(series, -2.0)
    check_drawn(figure)
    (axes,) = figure.axes
    bars = [x for x in axes.containers if x.get_label() in series]
    assert [x.get_label() for x in bars] == list(series)
    assert len({(x[0].get_color(), x[0].get_marker()) for x in bars}) == number
    for drawn, estimates in zip(bars, series.values(), strict=True):
        assert drawn[0].get_ydata() == pytest.approx([r.free_energy for r in estimates])
        assert drawn[0].get_xdata() == pytest.approx([10, 100, 1000], rel=0.15)


def test_figures_are_drawn_on_given_axes(thermal):
    """Those of the caller are returned, and no other figure is made."""
    from matplotlib.figure import Figure

    e = with_curve(WEIGHTS["normal"], np.linspace(0.1, 1.0, 10))
    b = bounds(RNG.normal(size=100), RNG.normal(size=100))
    series = {"ais": [e], "mais": [e]}
    cases = [
        (1, lambda ax: plots.weights(e, ax=ax)),
        (1, lambda ax: plots.running(e, ax=ax)),
        (1, lambda ax: plots.works(b, ax=ax)),
        (1, lambda ax: plots.convergence(series, 1.0, ax=ax)),
        (2, lambda ax: plots.curve(e, ax=ax)),
        (3, lambda ax: plots.thermodynamics(thermal, ax=ax)),
    ]
    for number, draw in cases:
        figure = Figure()
        axes = figure.subplots(number, 1)
        assert draw(axes) is axes
        assert all(x.has_data() for x in np.ravel(axes))
        check_drawn(figure)
        with pytest.raises(ValueError, match=r"ax is .*; it must be (a list of \d )?matplotlib axes"):
            draw(list(figure.subplots(4, 1)))
        with pytest.raises(ValueError, match="ax is 'here'"):
            draw("here")


@pytest.mark.parametrize("draw", [plots.weights, plots.running])
def test_exact_values_are_marked(draw):
    (axes,) = draw(make_estimate(WEIGHTS["normal"]), exact=-2.25).axes
    x, y = line(axes, "exact: ")
    assert 2.25 in np.abs(np.concatenate([x, y]))


def test_style_is_one_and_does_not_leak():
    from matplotlib import rcParams

    before = dict(rcParams)
    (axes,) = plots.weights(make_estimate(WEIGHTS["normal"])).axes
    assert not axes.spines["top"].get_visible()
    assert dict(rcParams) == before


def test_populations_are_counted():
    """A resampled run has a weight for each population: there are fewer of them than chains."""
    e = mg.estimate(random_rbm(np.random.default_rng(2), 4, 4), steps=20, chains=100, populations=5, resample=True)
    (axes,) = plots.running(e).axes
    n, _ = line(axes, "F of the first n populations")
    assert n[-1] == 5
    assert "population" in plots.weights(e).axes[0].get_xlabel()
