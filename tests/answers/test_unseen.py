"""What none of N chains has met may weigh about 1/N: no error is smaller, wherever that can matter."""

import itertools
import math

import numpy as np
import pytest
from conftest import dense, states
from scipy.special import logsumexp

import marginalis as mg

HELD = mg.rbm([[3.4]], [1.7], [1.7])  # its mean-field base hardly ever starts from the state that holds 0.1 % of Z


def covers(interval, value):
    return interval[0] <= value <= interval[1]


class TestFreeEnergy:
    @pytest.mark.parametrize("chains", [200, 1000])
    def test_weights_that_all_agree_leave_an_interval(self, chains):
        runs = [mg.estimate(HELD, base="mean-field", steps=30, chains=chains, seed=s, threads=1) for s in range(40)]
        agreeing = [r for r in runs if np.ptp(r.log_weights) < 1e-9]
        exact = -mg.exact_log_z(HELD)
        assert len(agreeing) >= 5
        assert sum(covers(r.interval, exact) for r in runs) >= 38
        for r in agreeing:
            assert r.stderr == r.unseen == 1.0 / chains
            assert "no chain has visited" in r.remarks[0]

    def test_every_answer_counts_unseen_states(self, tmp_path):
        exact, options = -mg.exact_log_z(HELD), dict(base="mean-field", steps=30, chains=200, seed=0)
        r = mg.estimate(HELD, **options)
        assert np.ptp(r.log_weights) == 0.0
        r.save(tmp_path / "r.npz")
        assert mg.load_estimate(tmp_path / "r.npz") == r
        both = r + mg.estimate(HELD, **options | {"first_chain": 200})
        assert both.unseen == 1.0 / 400
        assert covers(both.interval, exact)
        curve = mg.estimate(HELD, record=True, **options).curve
        assert covers(curve.intervals[-1], -exact)
        assert curve.stderr[-1] == 1.0 / 200
        bounds = mg.bound(HELD, **options)
        assert covers(bounds.interval, exact)
        run = mg.along([HELD, HELD], **options)
        assert covers(run.intervals[0], -exact)
        found = mg.log_likelihood(HELD, [[1.0]], log_z=r)
        assert covers(found.log_z_interval, -exact)

    def test_a_difference_of_cold_models_counts_unseen_states(self):
        a = mg.rbm([[3.0]], [1.9], [1.7])
        for seed in range(5):
            d = mg.difference(a, HELD, steps=30, chains=100, seed=seed)
            assert d.stderr >= d.unseen > 0.0
            assert covers(d.interval, mg.exact_log_z(HELD) - mg.exact_log_z(a))

    def test_where_no_state_can_weigh_otherwise_nothing_is_added(self):
        rng = np.random.default_rng(0)
        model = mg.rbm(rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=4))
        same = mg.estimate(model, base=model, steps=5, chains=50)
        assert same.stderr == same.unseen == 0.0
        assert same.log_z == pytest.approx(mg.exact_log_z(model), rel=1e-12)
        free = mg.rbm(np.zeros((3, 4)), rng.normal(size=3), rng.normal(size=4))
        assert mg.estimate(free, base="biases", steps=5, chains=50).interval == pytest.approx(
            (-mg.exact_log_z(free),) * 2
        )
        assert mg.estimate(model, steps=50, chains=50).unseen == 0.0
        weak = mg.rbm(1e-6 * np.ones((3, 4)), rng.normal(size=3), rng.normal(size=4))
        assert 0.0 < mg.estimate(weak, base="biases", steps=5, chains=50).unseen < 1e-6
        near = mg.rbm(np.asarray(model.weights) + 1e-7, model.visible_bias, model.hidden_bias)
        assert mg.difference(model, near, steps=5, chains=50).stderr < 1e-6


def test_the_level_decides_how_much_may_be_missed():
    r = mg.estimate(HELD, base="mean-field", steps=30, chains=200, seed=0)
    for level in (0.5, 0.95, 0.99):
        low, high = (end - r.free_energy for end in r.interval_at(level))
        missed = -math.log((1.0 - level) / 2.0) / 200
        assert (low, high) == pytest.approx((-math.log1p(missed), -math.log1p(-missed)), rel=1e-9)


@pytest.mark.study
@pytest.mark.parametrize("kind", ["mean-field", "biases", "pair", "model"])
def test_intervals_without_a_warning_hold_from_every_base(kind):
    rng = np.random.default_rng(3)
    quiet = []
    units = ["spin", "binary", ("gaussian", "spin"), ("spin", "gaussian")]
    while len(quiet) < 300:
        n, m = rng.integers(1, 5, 2)
        scale = rng.choice([0.5, 1.0, 2.0, 3.5])
        parameters = rng.normal(size=(n, m)), rng.normal(size=n), rng.normal(size=m)
        options = dict(units=units[rng.integers(4)], temperature=float(rng.choice([0.5, 1.0])))
        try:
            model, near = (
                mg.rbm(scale * w, scale * b, scale * c, **options)
                for w, b, c in (parameters, [x + 0.3 * rng.normal(size=x.shape) for x in parameters])
            )
        except ValueError:  # not normalisable
            continue
        bases = {"pair": (3.0 * rng.normal(size=n), 3.0 * rng.normal(size=m)), "model": near}
        run = dict(steps=int(rng.choice([10, 30, 300])), chains=int(rng.choice([100, 200, 1000])))
        r = mg.estimate(model, base=bases.get(kind, kind), seed=len(quiet), engine="numpy", threads=1, **run)
        if not r.warnings:
            quiet.append(covers(r.interval, -mg.exact_log_z(model)))
    assert np.mean(quiet) >= 0.93


def one_that_holds_many(seed):
    """A binary variable that is off once in some hundred times, and four spins that depend on it."""
    rng = np.random.default_rng(seed)
    return mg.rbm(rng.normal(size=(1, 4)), [2.8], 0.3 * rng.normal(size=4), units=("binary", "spin"), temperature=0.5)


FUNCTIONS = {
    "magnetisation": lambda rows: rows.mean(axis=1),
    "one": lambda rows: rows[:, 0],
    "up": lambda rows: 1.0 * (rows[:, 1:] > 0.0).all(axis=1),
    "off": lambda rows: 1.0 * (rows[:, 0] == 0.0),
    "square": lambda rows: rows.sum(axis=1) ** 2,
}


def test_errors_of_means_include_unseen_states():
    """Of the variable that is summed out as of the others, of products and of functions."""
    z = {"means": [], "correlations": [], "functions": []}
    for seed in range(12):
        model = one_that_holds_many(seed)
        exact = mg.expectations(model, FUNCTIONS, exact=True)
        for run in range(3):
            r = mg.expectations(model, FUNCTIONS, exact=False, steps=50, chains=200, seed=run, threads=1)
            z["means"].append((r.means - exact.means) / r.mean_errors)
            z["correlations"].append((r.correlations - exact.correlations) / r.correlation_errors)
            z["functions"].append([(r.functions[f] - x) / r.function_errors[f] for f, x in exact.functions.items()])
    for found in z.values():
        assert np.abs(found).max() < 4.5
        assert np.mean(np.abs(found) <= 1.96) > 0.93


def test_functions_without_a_floor_of_their_own():
    """What does not change keeps its error of 0; a function that fails elsewhere is left at what was seen."""
    model = mg.rbm([[3.0]], [9.0], [9.0])
    seen = {(1.0, 1.0): 2.0}
    functions = {"constant": lambda rows: np.ones(len(rows)), "table": lambda rows: [seen[tuple(x)] for x in rows]}
    r = mg.expectations(model, functions, exact=False, steps=20, chains=100)
    assert r.function_errors["constant"] < 1e-12
    assert r.function_errors["table"] < 1e-12
    assert (r.mean_errors >= 2.0 / 100).all()


def test_large_models_are_looked_at_one_variable_at_a_time():
    rng = np.random.default_rng(0)
    units = "categorical:3"
    model = mg.rbm(
        0.01 * rng.normal(size=(12, 15)), np.tile([9.0, 0.0, 0.0], 4), np.tile([0.0, 9.0, 0.0], 5), units=units
    )
    pick = [13, 18]  # states that five variables of the other side are and are not in
    r = mg.expectations(model, lambda rows: rows[:, pick], exact=False, steps=20, chains=100)
    assert (r.function_errors["function 0"] >= 1.0 / 100).all()


@pytest.mark.study
@pytest.mark.parametrize("base", [None, "biases"])
@pytest.mark.parametrize(
    "units", ["spin", "binary", ("binary", "spin"), "categorical:3", ("gaussian", "spin"), ("spin", "gaussian")]
)
def test_errors_of_means_hold_on_small_cold_models(units, base):
    rng = np.random.default_rng(1)
    covered, z = [], []
    for t in range(60):
        n, m = rng.integers(1, 6, 2)
        q = 3 if units == "categorical:3" else 1
        scale, temperature = rng.choice([1.0, 2.0, 3.5]), float(rng.choice([0.5, 1.0, 2.0]))
        parameters = rng.normal(size=(n * q, m * q)), rng.normal(size=n * q), rng.normal(size=m * q)
        run = dict(chains=int(rng.choice([50, 200])), steps=int(rng.choice([20, 200])), seed=t, threads=1)
        try:
            model = mg.rbm(*(scale * x for x in parameters), units=units, temperature=temperature)
        except ValueError:  # not normalisable
            continue
        functions = None if "gaussian" in units else {k: f for k, f in FUNCTIONS.items() if k != "off"}
        exact = mg.expectations(model, functions, exact=True)
        r = mg.expectations(model, functions, exact=False, base=base, engine="numpy", **run)
        if not r.warnings:
            pairs = [(r.means - exact.means, r.mean_errors)]
            pairs += [(r.correlations - exact.correlations, r.correlation_errors)]
            pairs += [(np.array([r.functions[f] - x]), r.function_errors[f]) for f, x in exact.functions.items()]
            covered += [np.mean(np.abs(off) <= 1.96 * error + 1e-12) for off, error in pairs]
            z += [np.abs(off / np.maximum(error, 1e-11)).max() for off, error in pairs]
    assert np.mean(covered) > 0.92
    assert np.mean(np.array(z) < 4.5) > 0.99


def exact_curves(model, betas):
    """ln Z, U, S and C of a small model of two-state units at temperature 1, by enumeration."""
    v, h = (
        states(units, len(bias))
        for units, bias in ((model.visible_units, model.visible_bias), (model.hidden_units, model.hidden_bias))
    )
    energies = (v @ model.visible_bias)[:, None] + h @ model.hidden_bias + v @ dense(model.weights) @ h.T
    if model.lateral is not None:
        energies += 0.5 * ((v @ dense(model.lateral)) * v).sum(axis=1)[:, None]
    energies = -energies.ravel()
    log_z = np.array([logsumexp(-beta * energies) for beta in betas])
    p = np.exp(-np.outer(betas, energies) - log_z[:, None])
    mean = p @ energies
    return log_z, mean, log_z + betas * mean, betas**2 * ((energies - mean[:, None]) ** 2 * p).sum(axis=1)


def scores_of_curves(model, betas, **options):
    """Deviations of U, S and C from exact values in standard errors; None with a warning."""
    r = mg.thermodynamics(model, betas, threads=1, **options)
    if r.warnings:
        return None
    _, *exact = exact_curves(model, np.asarray(betas, float))
    found = (r.energy, r.energy_error), (r.entropy, r.entropy_error), (r.heat_capacity, r.heat_capacity_error)
    assert all((error > 0.0).all() for _, error in found)
    return np.concatenate([(x - y) / error for (x, error), y in zip(found, exact, strict=True)])


@pytest.mark.parametrize("shape", [(4, 4), (2, 2, 2)])
def test_cold_energies_have_errors(shape):
    """Where no chain has left the ground state, it is not known better than to a state among them."""
    coupling, betas = (1.0, [0.44, 1.0, 1.5, 2.0, 4.0]) if len(shape) == 2 else (-0.5, [0.5, 1.897])
    model = mg.ising_grid(shape, coupling=coupling, periodic=True)
    z = np.array([scores_of_curves(model, betas, steps=100, chains=300, seed=seed) for seed in range(6)])
    assert np.abs(z).max() < 4.5
    assert np.mean(np.abs(z) < 1.96) > 0.93


def test_warm_energies_are_as_sure_as_the_chains_are_many():
    """The floor is for chains that agree, and no wider than the model has energies."""
    model = mg.ising_grid((3, 3), field=0.3)
    r = mg.thermodynamics(model, [0.001, 0.5], steps=50, chains=1000)
    assert r.energy_error[1] < 0.15
    assert r.heat_capacity_error[0] < 1e-6


@pytest.mark.study
def test_curves_of_small_models_hold_at_all_temperatures():
    rng = np.random.default_rng(0)
    found = []
    while len(found) < 150:
        n, m = rng.integers(1, 6, 2)
        kind = rng.integers(3)
        if kind == 0:
            shape = [(2, 3), (3, 4), (2, 2, 2), (4, 4)][rng.integers(4)]
            model = mg.ising_grid(shape, coupling=rng.choice([1.0, -0.5]), periodic=bool(rng.integers(2)))
        elif kind == 1:
            w, b, c = rng.normal(size=(n, m)), rng.normal(size=n), rng.normal(size=m)
            model = mg.rbm(w, b, c, units=["spin", "binary"][rng.integers(2)])
        else:
            edges = list(itertools.combinations(range(6), 2))
            model = mg.from_edges(edges, coupling=rng.choice([-1.0, 1.0], size=15))
        betas = np.sort(rng.choice([0.2, 0.44, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0], size=4, replace=False))
        run = dict(steps=int(rng.choice([20, 100, 500])), chains=int(rng.choice([100, 300, 1000])))
        z = scores_of_curves(model, betas, seed=len(found), engine="numpy", **run)
        if z is not None:
            found.append(z)
    assert np.mean(np.abs(found) < 1.96) > 0.93
    assert np.abs(found).max() < 5.0
