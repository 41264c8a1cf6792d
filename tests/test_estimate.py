"""From log-weights to numbers, and what is said about them."""

import json
import math

import numpy as np
import pytest
from conftest import make_estimate, random_rbm

import marginalis as mg


def test_numbers():
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


def test_join():
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
    assert first.join(make_estimate([2.0], runs=((1, 0, 1),))).runs == ((0, 0, 2), (1, 0, 1))
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
