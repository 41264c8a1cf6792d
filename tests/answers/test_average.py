"""Means over disorder: every source of models, exact and estimated, to a tolerance, on pools, in stores, bad input."""

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from conftest import Pool, posix

import marginalis as mg
from marginalis.answers.many import Unfinished

FEW = {"steps": 20, "chains": 16, "exact": False}


def machine(seed):
    """A small machine with random couplings, made by a function that workers can import."""
    rng = np.random.default_rng(seed)
    return mg.rbm(rng.normal(size=(4, 5)), rng.normal(size=4), rng.normal(size=5), temperature=2.0)


def glass(seed):
    rng = np.random.default_rng(seed)
    pair = (rng.choice([-1.0, 1.0], (4, 4)), rng.choice([-1.0, 1.0], (4, 4)))
    return mg.ising_grid((4, 4), coupling=pair, periodic=True, temperature=1.5)


def test_the_mean_of_estimates_with_its_error_and_bias():
    found = mg.average(machine, samples=40, seed=7, **FEW)
    alone = [mg.estimate(machine(7 + t), steps=20, chains=16, seed=7 + t) for t in range(40)]
    bias = [x.stderr**2 / 2 for x in alone]
    values = np.array([x.free_energy for x in alone]) - bias
    np.testing.assert_allclose(found.values, values, rtol=1e-12)
    assert float(found) == found.value == pytest.approx(values.mean())
    assert found.stderr == pytest.approx(values.std(ddof=1) / 40**0.5)
    assert found.bias == pytest.approx(np.mean(bias))
    assert found.sampling_error == pytest.approx(np.mean([x.stderr**2 for x in alone]) ** 0.5 / 40**0.5)
    assert found.interval[0] < found.value < found.interval[1]
    assert found.interval_at(0.99)[1] > found.interval[1]
    assert (found.count, found.exact, found.names[:2]) == (40, 0, (7, 8))
    log_z = found.of("log_z")
    assert (log_z.value, log_z.stderr) == (pytest.approx(-found.value), found.stderr)
    assert found.of("free_energy_per_variable").value == pytest.approx(found.value / 9)
    assert found.of("free_energy_per_variable").stderr == pytest.approx(found.stderr / 9)


@pytest.mark.parametrize("pool", [None, Pool()], ids=["threads", "pool"])
def test_all_sources_of_models_agree(pool):
    whole = mg.average(machine, samples=12, pool=pool, threads=2, **FEW)
    models = [machine(t) for t in range(12)]
    for source in (models, dict(enumerate(models)), iter(models), ((t, x) for t, x in enumerate(models))):
        np.testing.assert_array_equal(mg.average(source, pool=pool, **FEW).values, whole.values)
    np.testing.assert_array_equal(mg.average(iter([*models, *models]), samples=12, **FEW).values, whole.values)
    arrays = (np.stack([getattr(x, name) for x in models]) for name in ("weights", "visible_bias", "hidden_bias"))
    stacked = mg.average((*arrays, "spin"), temperatures=[2.0], **FEW)
    np.testing.assert_allclose(stacked.values[:, 0], whole.values, rtol=1e-12)


def test_exact_values_where_that_is_cheap():
    found = mg.average(glass, samples=25)
    exact = np.array([mg.exact_log_z(glass(t)) for t in range(25)])
    np.testing.assert_allclose(found.values, -exact, rtol=1e-12)
    assert (found.exact, found.sampling_error, found.bias) == (25, 0.0, 0.0)
    assert "25 samples exact" in str(found)
    curves = mg.average(glass, "energy", samples=6, temperatures=[1.5, 3.0])
    for t in range(6):
        h = 1e-4
        for i, beta in enumerate((1 / 1.5, 1 / 3.0)):
            z = [mg.exact_log_z(glass(t).at_temperature(1 / (beta + x))) for x in (-h, 0.0, h)]
            assert curves.values[t, i] == pytest.approx(-(z[2] - z[0]) / (2 * h), rel=1e-5)
            assert curves.of("heat_capacity").values[t, i] == pytest.approx(
                beta**2 * (z[2] - 2 * z[1] + z[0]) / h**2, rel=1e-4
            )
            assert curves.of("entropy").values[t, i] == pytest.approx(z[1] + beta * curves.values[t, i], rel=1e-9)
    own = mg.average(glass, "energy", samples=6)
    np.testing.assert_allclose(own.values, curves.values[:, 0], rtol=1e-7)
    with pytest.raises(ValueError, match="2\\^40"):
        mg.average([mg.rbm(np.ones((40, 40)), np.zeros(40), np.zeros(40))] * 2, exact=True)


@pytest.mark.parametrize("quantity", ["free_energy", "energy", "entropy", "heat_capacity"])
def test_estimates_of_curves_agree_with_exact_ones(quantity):
    t = [1.0, 2.0, 4.0]
    options = {"samples": 40, "temperatures": t, "quantity": quantity}
    exact = mg.average(machine, exact=True, **options)
    found = mg.average(machine, exact=False, steps=40, chains=32, seed=0, **options)
    # The samples are the same, so that only the chains differ.
    z = (found.value - exact.value) / found.sampling_error
    assert (np.abs(z) < 4.5).all()
    assert (np.abs(found.disorder_error / exact.disorder_error - 1.0) < 0.2).all()
    assert found.values.shape == (40, 3)
    hot = mg.average(machine, "entropy", samples=3, betas=[0.0, 0.5], steps=10, chains=16)
    np.testing.assert_allclose(hot.values[:, 0], 9 * np.log(2.0))


def test_steps_and_chains_come_from_a_pilot():
    found = mg.average(machine, samples=30, exact=False)
    assert found.costs.chains % 16 == 0
    assert found.relative_variance < 1.5
    again = mg.average(machine, samples=30, steps=found.costs.steps, chains=found.costs.chains, exact=False)
    np.testing.assert_array_equal(found.values, again.values)
    best = found.cheapest(0.1)
    assert best.samples > 30  # ± 0.1 needs more samples than ± half a unit.
    assert best.chains >= 16


def test_a_tolerance_decides_the_number_of_samples():
    found = mg.average(glass, "free_energy_per_variable", tolerance=0.02, exact=False)
    low, high = found.interval
    assert (high - low) / 2 <= 0.02
    assert 20 <= found.count < 400
    np.testing.assert_array_equal(
        mg.average(glass, "free_energy_per_variable", tolerance=0.02, exact=False, threads=2).values, found.values
    )
    short = mg.average(glass, "free_energy_per_variable", tolerance=1e-3, samples=40, exact=False)
    assert short.count == 40
    assert any("the tolerance is 0.001" in warning for warning in short.warnings)
    endless = (glass(t) for t in range(10**6))
    from_iterator = mg.average(endless, "free_energy_per_variable", tolerance=0.02, exact=False)
    np.testing.assert_array_equal(from_iterator.values, found.values)


def test_distribution_text_and_data():
    found = mg.average(machine, samples=60, **FEW)
    value, low, high = found.quantile(0.5)
    assert low < value < high
    assert value == pytest.approx(np.median(found.values))
    counts, edges = found.histogram(10)
    assert (counts.sum(), len(edges)) == (60, 11)
    data = json.loads(found.to_json())
    assert (data["value"], data["samples"], data["quantity"]) == (found.value, 60, "free_energy")
    assert data["interval"] == list(found.interval)
    assert str(found).splitlines()[0].startswith("F = ")
    assert "95 % interval" in str(found)
    assert [row["value"] for row in found.sample_rows()] == found.values.tolist()
    curve = mg.average(machine, "heat_capacity", samples=20, temperatures=[1.0, 2.0], **FEW)
    assert [row["temperature"] for row in curve.to_dict()["rows"]] == [1.0, 2.0]
    assert len(curve.quantile(0.5)) == 2
    assert "spread" in str(curve).splitlines()[0]
    for answer in (found, curve):
        assert answer.plot().axes


def test_a_bad_model_is_named_and_the_others_finish(tmp_path):
    def some(seed):
        if seed == 3:
            raise RuntimeError("no such glass")
        return machine(seed)

    found = mg.average(some, samples=24, **FEW)
    assert found.count == 23
    assert found.errors == {3: "RuntimeError: no such glass"}
    assert "1 of 24 models have failed" in found.warnings[0]
    np.testing.assert_array_equal(np.delete(mg.average(machine, samples=24, **FEW).values, 3), found.values)
    bad = [machine(t) for t in range(5)]
    bad[2] = (np.full((4, 5), np.nan), np.zeros(4), np.zeros(5), "spin")
    assert list(mg.average(bad, **FEW).errors) == [2]
    with pytest.raises(ValueError, match=r"models\[0\]: RuntimeError: never"):
        mg.average(lambda seed: (_ for _ in ()).throw(RuntimeError("never")), samples=5, **FEW)
    few = mg.average(machine, samples=4, **FEW)
    assert "4 samples of disorder are too few" in few.warnings[0]


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ([], {}, "it is empty"),
        (iter(()), FEW, "it is empty"),
        (machine, {}, "samples must be given"),
        (machine, {"samples": 0}, "samples is 0"),
        (machine, {"samples": 3, "quantity": "free energy"}, "did you mean 'free_energy'"),
        (machine, {"samples": 3, "tolerance": -1.0}, "tolerance is -1.0"),
        (machine, {"samples": 3, "temperatures": [0.0]}, "temperatures must be a list of positive"),
        (machine, {"samples": 3, "quantity": "energy", "base": "biases"}, "leave out resample and base"),
        ([machine(0)], {"samples": 3}, "there are 1 models"),
        (3, {}, "models must be"),
        (machine, {"samples": 3, "checkpoint": "x"}, "checkpoint"),
    ],
)
def test_bad_input(given, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        mg.average(given, **options)


def test_only_ln_z_is_known_without_energies():
    with pytest.raises(ValueError, match="only ln Z was computed"):
        mg.average(machine, samples=3, **FEW).of("energy")


def test_an_iterator_that_raises_leaves_what_is_finished(tmp_path):
    def failing(count):
        for t in range(count):
            yield machine(t)
        raise OSError("no more")

    with pytest.raises(Unfinished, match="after 30 models: OSError: no more; the finished models are in the") as e:
        mg.average(failing(30), **FEW)
    whole = mg.average(machine, samples=30, **FEW)
    np.testing.assert_array_equal(e.value.estimates.values, whole.values)
    with pytest.raises(ValueError, match=r"are in .*s\.sqlite"):
        mg.average(failing(20), store=tmp_path / "s.sqlite", **FEW)
    assert rows_in(tmp_path / "s.sqlite") == 20
    resumed = mg.average(machine, samples=30, store=tmp_path / "s.sqlite", **FEW)
    np.testing.assert_array_equal(resumed.values, whole.values)


def rows_in(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        counts = [db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in ("estimate", "further")]
    assert counts[0] == counts[1]
    return counts[0]


KILLED = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
import marginalis as mg
from marginalis.files.store import Store
from test_average import FEW, machine
write, batches = Store.write_estimates, []
def fatal(store, *args):
    write(store, *args)
    batches.append(args)
    if len(batches) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
Store.write_estimates = fatal
mg.average(machine, "heat_capacity", samples=40, temperatures=[1.0, 2.0], threads=2, store=sys.argv[1], **FEW)
"""


@posix
def test_killed_and_resumed_ends_with_the_same_numbers(tmp_path):
    path, here = tmp_path / "killed.sqlite", __file__.rpartition("/")[0]
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path), here, here.rpartition("/")[0]], timeout=300)
    assert killed.returncode == -signal.SIGKILL
    done = rows_in(path)
    assert 0 < done < 40
    options = {"samples": 40, "temperatures": [1.0, 2.0], **FEW}
    pool = Pool()
    resumed = mg.average(machine, "heat_capacity", store=path, pool=pool, **options)
    assert pool.models == 40 - done
    np.testing.assert_array_equal(resumed.table, mg.average(machine, "heat_capacity", **options).table)
    np.testing.assert_array_equal(mg.average(machine, "entropy", store=path, **options).table, resumed.table)
    with pytest.raises(ValueError, match="cannot be resumed: chains was 16, is 32"):
        mg.average(machine, "heat_capacity", store=path, **{**options, "chains": 32})
    with pytest.raises(ValueError, match=r"models\[0\] is not the model whose result is in"):
        mg.average(glass, "heat_capacity", store=path, **options)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE further SET numbers = x'00' WHERE number = 5")
    with pytest.raises(ValueError, match="is damaged: the further numbers of model 5"):
        mg.average(machine, "heat_capacity", store=path, **options)


@pytest.mark.study
@pytest.mark.parametrize(
    ("quantity", "count", "chains", "steps"),
    [
        *(("free_energy", *own) for own in ((20, 16, 20), (100, 8, 20), (100, 16, 5), (400, 16, 20))),
        *(("heat_capacity", *own) for own in ((20, 16, 20), (100, 8, 20), (100, 16, 5))),
    ],
)
def test_intervals_cover_the_mean_over_the_disorder(quantity, count, chains, steps):
    """Machines with couplings ±1, whose mean over 80 000 samples is known; disorder and sampling both matter."""
    runs = 300 if quantity == "free_energy" else 150
    known = mean_of_signs(quantity)
    held = 0
    for run in range(runs):
        rng = np.random.default_rng([run, count, chains, steps])
        models = [signs(w) for w in rng.choice([-1.0, 1.0], (count, 4, 5))]
        options = {"steps": steps, "chains": chains, "seed": 1000 * run, "exact": False, "threads": 1}
        low, high = mg.average(models, quantity, **options).interval
        held += low <= known <= high
    assert 0.95 - 4.5 * (0.95 * 0.05 / runs) ** 0.5 < held / runs
    print(f"{quantity}, {count} samples, {chains} chains of {steps} steps: {held / runs:.3f}")


def signs(weights):
    return mg.rbm(weights, np.zeros(4), np.zeros(5), temperature=1.2)


def mean_of_signs(quantity):
    rng = np.random.default_rng(123)
    states = 1.0 - 2.0 * (np.arange(16)[:, None] >> np.arange(4) & 1)
    w = rng.choice([-1.0, 1.0], (80_000, 4, 5))

    def log_z(beta):
        x = np.abs(beta * (states @ w))
        return np.logaddexp.reduce((x + np.log1p(np.exp(-2 * x))).sum(axis=2), axis=1)

    beta, h = 1 / 1.2, 1e-3
    if quantity == "free_energy":
        return -log_z(beta).mean()
    return (beta / h) ** 2 * (log_z(beta + h) - 2 * log_z(beta) + log_z(beta - h)).mean()
