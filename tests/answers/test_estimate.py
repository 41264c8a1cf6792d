"""From log-weights to numbers, and what is said about them."""

import contextlib
import json
import math

import numpy as np
import pytest
from conftest import make_estimate, random_rbm

import marginalis as mg


def test_log_z_and_error_of_known_weights():
    w = np.array([1.0, 2.0, 4.0, 3.0])
    r = make_estimate(np.log(w))
    assert r.log_z == pytest.approx(2 + math.log(2.5))
    assert r.free_energy == -r.log_z
    assert r.free_energy_per_variable == pytest.approx(-r.log_z / 10)
    assert r.stderr == pytest.approx(w.std(ddof=1) / 2.5 / 2)
    assert r.interval[0] < r.free_energy < r.interval[1]
    assert r.ess == pytest.approx(100 / 30)
    assert make_estimate(np.log(w) + 1e5).log_z == pytest.approx(1e5 + r.log_z)
    assert make_estimate(np.log(w) - 1e5).stderr == pytest.approx(r.stderr)


def test_stderr_is_honest_on_an_easy_model():
    """Over 200 independent estimates the deviations have the size that stderr says."""
    model = random_rbm(np.random.default_rng(0), 6, 6, scale=0.5)
    exact = -mg.exact_log_z(model)
    results = [mg.estimate(model, steps=20, chains=400, seed=s) for s in range(200)]
    z = np.array([(r.free_energy - exact) / r.stderr for r in results])
    assert abs(z.mean()) < 4.5 / math.sqrt(200)
    assert abs(z.var(ddof=1) - 1) < 4.5 * math.sqrt(2 / 199)
    covered = sum(r.interval[0] <= exact <= r.interval[1] for r in results)
    assert abs(covered - 190) < 4.5 * math.sqrt(200 * 0.95 * 0.05)


def test_warnings_are_data():
    assert make_estimate(np.zeros(100)).warnings == ()
    assert "effective sample size is 1.0 of 100" in make_estimate([0] * 99 + [50]).warnings[0]
    assert "one chain carries 100%" in make_estimate([0] * 99 + [50]).warnings[1]
    assert "carries 56%" in make_estimate([0] * 12 + [math.log(15.3)], steps=9).warnings[1]
    assert "plain importance sampling" in make_estimate(np.zeros(5), steps=1).warnings[0]
    assert "one chain" in make_estimate([1.0]).warnings[0]


def test_a_hard_case_warns():
    model = random_rbm(np.random.default_rng(1), 20, 20, temperature=0.05)
    assert mg.estimate(model, steps=2, chains=500).warnings


def test_one_chain_has_no_error_bar():
    r = make_estimate([1.0])
    assert r.stderr == math.inf
    data = json.loads(r.to_json())
    assert data["stderr"] is None
    assert data["interval"] == [None, None]
    assert "inf" in str(r)


def test_json_has_the_contracts_keys():
    keys = "log_z free_energy free_energy_per_variable stderr interval ess method steps chains transition"
    keys += " seed engine seconds warnings tail_index"
    assert set(keys.split()) <= set(json.loads(make_estimate(np.zeros(4)).to_json()))


def test_prints_as_a_readable_block():
    rng = np.random.default_rng(0)
    text = str(make_estimate(rng.normal(scale=0.1, size=1000)))
    assert text.splitlines()[0].startswith("F = -2.00")
    assert " ± 0.0031 " in text
    assert "warning" not in text
    assert "warning: " in str(make_estimate(np.zeros(4), steps=1))


def test_joined_estimates_keep_all_chains():
    first, second = make_estimate([0.0, 1.0]), make_estimate([2.0], runs=((0, 2, 1),), engine="numpy", seconds=1.0)
    joined = first.join(second)
    assert joined.log_weights.tolist() == [0, 1, 2]
    assert joined.chains == 3
    assert joined.seconds == 1.5
    assert joined.engine == "numba+numpy"
    with pytest.raises(ValueError, match="different models or plans"):
        first.join(make_estimate([2.0], fingerprint="xyz"))
    with pytest.raises(ValueError, match="both hold chains 1 to 1 of seed 0"):
        first.join(make_estimate([2.0], runs=((0, 1, 5),)))
    assert first.join(make_estimate([2.0], runs=((1, 0, 1),))).record.runs == ((0, 0, 2), (1, 0, 1))
    with pytest.raises(ValueError, match="cannot join"):
        first.join(3)


def test_join_refuses_other_plans():
    model = random_rbm(np.random.default_rng(0), 3, 3)
    one = mg.estimate(model, steps=5, chains=4)
    for change in (dict(steps=6), dict(method="ais"), dict(base="biases"), dict(precision="double")):
        with pytest.raises(ValueError, match="different"):
            one.join(mg.estimate(model, **(dict(steps=5, chains=4, seed=1) | change)))
    with pytest.raises(ValueError, match="different"):
        one.join(mg.estimate(random_rbm(np.random.default_rng(1), 3, 3), steps=5, chains=4, seed=1))


def test_join_keeps_the_notes_of_both():
    first = make_estimate([0.0, 1.0], notes=("a", "b"))
    second = make_estimate([2.0], runs=((1, 0, 1),), notes=("b", "c"))
    assert (first + second).notes == ("a", "b", "c")
    assert (first + second).warnings[-3:] == ("a", "b", "c")


def test_join_keeps_the_larger_rounding():
    """In either order: the interval reaches as far as the worse of the two."""
    first = make_estimate(np.zeros(100), rounding=0.25)
    second = make_estimate(np.zeros(100), runs=((1, 0, 100),))
    for joined in (first + second, second + first):
        assert joined.rounding == 0.25
        assert joined.interval == (joined.free_energy - 0.25, joined.free_energy + 0.25)


# ---------------------------------------------------------------- bases that hold variables


def silent_misses(models, base, **options):
    """How many of some estimates exclude the exact value without a warning, and how many are warned of."""
    missed = warned = 0
    for seed, model in enumerate(models):
        exact = -mg.exact_log_z(model)
        r = mg.estimate(model, base=base, seed=seed, **(dict(steps=100, chains=200) | options))
        low, high = r.interval
        missed += not r.warnings and not low <= exact + 1e-9 * abs(exact) <= high + 2e-9 * abs(exact)
        warned += any("the base fixes" in w for w in r.warnings)
    return missed, warned


@pytest.mark.parametrize("units", ["spin", "binary", "categorical:2", ("spin", "binary")])
@pytest.mark.parametrize("temperature", [1e-2, 1e-4, 1e-6])
def test_a_base_that_fixes_variables_of_a_cold_model_is_warned_of(units, temperature):
    """All weights may agree there, on a value that is far off."""
    rng = np.random.default_rng(1)
    models = [random_rbm(rng, 10, 12, scale=22**-0.5, units=units, temperature=temperature) for _ in range(6)]
    missed, warned = silent_misses(models, "biases")
    assert missed == 0
    assert warned == 6
    assert silent_misses(models, "uniform")[1] == 0


def test_given_fields_and_gaussian_sides_are_checked_for_fixed_variables():
    rng = np.random.default_rng(2)
    model = random_rbm(rng, 10, 12, scale=0.3, temperature=0.01)
    side = 50.0 * np.where(rng.random(10) < 0.5, -1.0, 1.0)
    assert "fixes 10 of 22" in mg.estimate(model, base=(side, np.zeros(12)), steps=10).warnings[-1]
    w, b, c = 0.5 * rng.normal(size=(4, 8)), rng.normal(size=4), rng.normal(size=8)
    mixed = mg.rbm(w, b, c, units=("gaussian", "binary"), temperature=0.001)
    for model in (mixed, mixed.transposed()):
        assert any("the base fixes" in x for x in mg.estimate(model, base="biases", steps=10).warnings)
    sparse = mg.ising_grid((4, 4), field=0.1, temperature=0.01)
    assert any("fixes 16 of 16" in x for x in mg.estimate(sparse, base="biases", steps=10).warnings)
    assert any("fixes 16 of 16" in x for x in mg.bound(sparse, base="biases", steps=10).warnings)
    assert any("fixes 16 of 16" in x for x in mg.estimate(sparse, base="biases", tolerance=0.1).warnings)


def test_harmless_bases_are_not_warned_of():
    """Moderate fields; couplings too weak to matter beside strong ones; a sure field wherever the couplings agree."""
    rng = np.random.default_rng(3)
    warm = [random_rbm(rng, 10, 12, scale=s, units=u) for s in (0.2, 0.5, 1.0) for u in ("spin", "binary")]
    for base in ("biases", "mean-field"):
        assert silent_misses(warm, base)[1] == 0
    w = rng.normal(size=(10, 12))
    ruled = mg.rbm(w, 40.0 * np.sign(w.sum(axis=1)), np.full(12, 40.0))
    assert mg.estimate(ruled, base="biases", steps=10).warnings == ()
    corner = mg.ising_grid((4, 4), field=2.5, temperature=0.05)  # no site is sure by itself but those at the corners
    assert mg.estimate(corner, base="biases", steps=10).warnings == ()
    rows = rng.random((1000, 10)) < np.linspace(0.001, 0.5, 10)
    trained = random_rbm(rng, 10, 12, units="binary")
    assert mg.estimate(trained, base=mg.data_base(trained, rows), steps=100).warnings == ()


# ---------------------------------------------------------------- numbers too large


@pytest.mark.parametrize("base", ["uniform", "biases", "mean-field"])
@pytest.mark.parametrize("units", [("gaussian", "binary"), ("binary", "gaussian"), "gaussian", "spin", "categorical:2"])
@pytest.mark.parametrize("place", ["visible", "hidden", "weight"])
@pytest.mark.parametrize("size", [1e153, 1e200, 1e307])
def test_huge_parameters_are_refused_or_right(base, units, place, size):
    """Never infinite, never sure of a wrong number, and no warning of NumPy's (they are errors here)."""
    w, b, c = np.full((2, 2), 0.3), np.zeros(2), np.zeros(2)
    {"visible": b, "hidden": c, "weight": w[0]}[place][0] = size
    try:
        model = mg.rbm(w, b, c, units=units)
    except ValueError:
        return
    exact = None
    with contextlib.suppress(ValueError):
        exact = -mg.exact_log_z(model)
    for answer in (mg.estimate, mg.bound):
        refused = ""
        try:
            r = answer(model, base=base, steps=10, chains=20)
        except ValueError as error:
            refused = str(error)
        if refused:
            assert "floating point" in refused or "lost in rounding" in refused
            continue
        assert exact is not None
        assert math.isfinite(r.free_energy)
        assert r.warnings or abs(r.free_energy - exact) <= 5 * r.stderr + 1e-9 * abs(exact)
        assert all(len(x) < 300 for x in r.warnings)


ODD = [math.nan, math.inf, -1, 10**400, "\x1b[31m" * 99, np.arange(3.0), [None], {}, 1j, b"x", object(), np.array("x")]
NAMES = (
    "method steps chains transition schedule base seed first_chain precision tolerance record engine threads progress"
)


@pytest.mark.parametrize("name", NAMES.split())
def test_odd_arguments_are_named(name):
    model = random_rbm(np.random.default_rng(0), 3, 3)
    for value in ODD:
        options = {} if name == "tolerance" else dict(steps=5, chains=10)
        with pytest.raises(ValueError, match=name) as caught:
            mg.estimate(model, **(options | {name: value}))
        assert len(str(caught.value)) < 300
        assert str(caught.value).isprintable()


def test_odd_fields_of_a_base():
    gaussian = mg.rbm(np.full((2, 3), 0.2), np.zeros(2), np.zeros(3), units=("gaussian", "binary"))
    for fields in ([1e200, 0.0], [0.0, -1e308]):
        with pytest.raises(ValueError, match="floating point"):
            mg.estimate(gaussian, base=(fields, np.zeros(3)), steps=5, chains=10)
    for value in (1e308, 5e-324, 1e-300):
        with pytest.raises(ValueError, match="pseudo_count"):
            mg.data_base(mg.rbm(np.ones((2, 2)), [0, 0], [0, 0]), np.ones((3, 2)), pseudo_count=value)


def test_an_interval_wider_than_the_spread_of_the_weights_has_a_remark():
    plain, coarse = make_estimate(np.arange(9.0)), make_estimate(np.zeros(9), rounding=0.25)
    assert plain.remarks == ()
    assert plain.to_dict()["remarks"] == []
    (remark,) = coarse.to_dict()["remarks"]
    assert remark.startswith("the interval is at least ± 0.2, because rounding in ")
    assert f"\nnote: {remark}" in str(coarse)
    assert not any("rounding" in warning for warning in coarse.warnings)
    assert make_estimate(np.arange(9.0), rounding=1e-9).remarks == ()
