"""Many models: on threads, on pools, in a store."""

import contextlib
import itertools
import json
import signal
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from conftest import Pool, posix, random_rbm

import marginalis as mg

OPTIONS = {"steps": 15, "chains": 60, "engine": "numpy", "seed": 3}


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(0)
    return {f"model {t}": random_rbm(rng, 4, 5) for t in range(6)}


def test_every_answer_is_that_of_its_model_alone(models):
    pool = Pool()
    on_threads, on_pool = mg.estimate_many(models, **OPTIONS), mg.estimate_many(models, pool=pool, **OPTIONS)
    assert len(on_threads) == 6
    assert pool.models == 6
    for t, (name, model) in enumerate(models.items()):
        alone = mg.estimate(model, **{**OPTIONS, "seed": 3 + t})
        assert on_threads[name] == alone == on_pool[name] == on_pool[t]
    assert list(on_threads) == list(on_threads.answers)
    np.testing.assert_array_equal(on_threads.log_z, [x.log_z for x in on_threads])
    np.testing.assert_array_equal(on_threads.free_energy, -on_threads.log_z)
    assert on_threads.intervals.shape == (6, 2)
    assert (on_threads.stderr > 0.0).all()


def test_warnings_are_counted_and_the_first_is_shown(models):
    doubtful = mg.estimate_many(models, **{**OPTIONS, "chains": 4})
    assert str(doubtful).splitlines()[-1].startswith("warning: 6 of 6 are doubtful; model 0: 4 chains are too few")


def test_the_table_can_be_written(models):
    found = mg.estimate_many(list(models.values())[:3], **OPTIONS)
    assert found.names == (0, 1, 2)
    rows = json.loads(found.to_json())["rows"]
    assert [row["name"] for row in rows] == [0, 1, 2]
    assert [row["log_z"] for row in rows] == found.log_z.tolist()
    assert str(found).count("±") == 3
    with pytest.raises(KeyError):
        found["model 0"]


def test_models_that_are_done_are_not_run_again(models, tmp_path):
    path, pool = tmp_path / "study.checkpoint", Pool()

    def stop(fraction):
        if pool.models >= 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        mg.estimate_many(models, pool=pool, checkpoint=path, progress=stop, **OPTIONS)
    with contextlib.closing(sqlite3.connect(path)) as db:
        (done,) = db.execute("SELECT COUNT(*) FROM piece").fetchone()
    assert 1 <= done < 6
    again = Pool()
    found = mg.estimate_many(models, pool=again, checkpoint=path, **OPTIONS)
    assert again.models == 6 - done
    assert found.answers == mg.estimate_many(models, **OPTIONS).answers
    with pytest.raises(ValueError, match="steps was 15, is 16"):
        mg.estimate_many(models, checkpoint=path, **{**OPTIONS, "steps": 16})


def test_errors_name_the_model(models):
    for nothing in ([], {}, None, 3, "models"):
        with pytest.raises(ValueError, match="models must be a list or a dictionary"):
            mg.estimate_many(nothing)
    with pytest.raises(ValueError, match=r"models\['bad'\]"):
        mg.estimate_many({**models, "bad": "no model"}, **OPTIONS)
    for pool in (None, Pool()):
        with pytest.raises(ValueError, match=r"models\[0\]: transition 'metropolis' supports spin"):
            mg.estimate_many([mg.potts_grid((2, 3), 3)], transition="metropolis", pool=pool, **OPTIONS)
    with pytest.raises(ValueError, match="seed is -1"):
        mg.estimate_many(models, **{**OPTIONS, "seed": -1})


def tori(count, size=(4, 4)):
    rng = np.random.default_rng(count)
    pairs = [(rng.choice([-1.0, 1.0], size), rng.choice([-1.0, 1.0], size)) for _ in range(count)]
    return [mg.ising_grid(size, coupling=pair, periodic=True) for pair in pairs]


def deep(count):
    rng = np.random.default_rng(count)
    sizes = (3, 4, 2)
    pairs = list(itertools.pairwise(sizes))
    return [mg.dbm([rng.normal(size=s) for s in pairs], [np.zeros(n) for n in sizes]) for _ in range(count)]


def triangles(count):
    rng = np.random.default_rng(count)
    edges = [(a, b) for a in range(5) for b in range(a)]
    return [mg.from_edges(edges, coupling=rng.normal(size=len(edges))) for _ in range(count)]


def temperatures(count):
    model = random_rbm(np.random.default_rng(count), 4, 5)
    return [model.at_temperature(t) for t in np.linspace(0.5, 2.0, count)]


MIXED = [*tori(3), *deep(2), *triangles(2), *temperatures(3), *tori(2, (2, 6))]


def assert_same(found, alone):
    """Both have the same bits: every number, the weights, the warnings and the record."""
    numbers = (found.log_z, found.stderr, found.ess, [w.tail_index for w in found], found.intervals)
    for own, name in zip(numbers, ("log_z", "stderr", "ess", "tail_index", "interval"), strict=True):
        np.testing.assert_array_equal(own, [getattr(x, name) for x in alone])
    assert found.answers == tuple(alone)
    assert [x.warnings for x in found] == [x.warnings for x in alone] == list(found.numbers.warnings)


@pytest.mark.parametrize(
    "options",
    [{}, {"method": "ais", "chains": 33}, {"engine": "numpy"}, {"base": "biases", "steps": 1}, {"chains": 1}],
    ids=str,
)
def test_models_of_all_shapes_have_the_bits_that_they_have_alone(options):
    options = {"steps": 7, "chains": 40, "seed": 5, **options}
    alone = [mg.estimate(model, **{**options, "seed": 5 + t}) for t, model in enumerate(MIXED)]
    for threads in (1, 2):
        found = mg.estimate_many(MIXED, threads=threads, **options)
        assert_same(found, alone)
    only = mg.estimate_many(iter(MIXED), **options)
    np.testing.assert_array_equal(only.intervals, found.intervals)
    np.testing.assert_array_equal(only.numbers.tail_index, found.numbers.tail_index)
    assert only.warnings == found.warnings
    with pytest.raises(ValueError, match="log-weights are not kept"):
        only[0]
    assert list(mg.estimate_many(iter(MIXED), keep_weights=True, **options)) == alone


@pytest.mark.parametrize("options", [{"steps": 20, "schedule": "adaptive"}, {"tolerance": 0.5}], ids=str)
def test_models_whose_plan_is_fitted_have_the_bits_that_they_have_alone(options):
    some = temperatures(3)
    found = mg.estimate_many({t: model for t, model in enumerate(some)}, seed=2, **options)
    assert found.answers == tuple(mg.estimate(model, seed=2 + t, **options) for t, model in enumerate(some))


def arrays(count, shape=(4, 5)):
    rng = np.random.default_rng(9)
    return rng.normal(size=(count, *shape)), rng.normal(size=(count, shape[0])), rng.normal(size=(count, shape[1]))


def test_stacked_arrays_are_models():
    w, b, c = arrays(70)
    found = mg.estimate_many((w, b, c, ("binary", "spin")), steps=5, chains=20, seed=1)
    for t in (0, 69):
        assert found[t] == mg.estimate(
            mg.rbm(w[t], b[t], c[t], units=("binary", "spin")), steps=5, chains=20, seed=1 + t
        )
    assert found.log_z.shape == (70,)
    with pytest.raises(ValueError, match="does not say its units"):
        mg.estimate_many((w, b, c), steps=5)
    with pytest.raises(ValueError, match="hidden_bias has shape"):
        mg.estimate_many((w, b, b, "spin"), steps=5)


def test_pairs_of_name_and_model():
    some = temperatures(3)
    found = mg.estimate_many(((f"T{t}", model) for t, model in enumerate(some)), steps=5, chains=20)
    assert found.names == ("T0", "T1", "T2")
    assert [row["name"] for row in found.to_dict()["rows"]] == ["T0", "T1", "T2"]


@pytest.mark.parametrize("pool", [None, Pool()], ids=["threads", "pool"])
def test_a_bad_model_is_named_and_the_others_finish(pool):
    w, b, c = arrays(6)
    w[2, 1, 1] = np.nan
    found = mg.estimate_many((w, b, c, "spin"), steps=5, chains=20, pool=pool)
    assert np.isfinite(found.log_z).tolist() == [True, True, False, True, True, True]
    assert found.errors == {2: "weights holds NaN or infinite values"}
    assert found.warnings[0] == "models[2]: weights holds NaN or infinite values"
    assert "1 of 6 have failed" in str(found)
    assert found.to_dict()["rows"][2]["log_z"] is None
    assert len(found.answers) == 5
    assert found[5] == mg.estimate(mg.rbm(w[5], b[5], c[5]), steps=5, chains=20, seed=5)
    with pytest.raises(ValueError, match=r"models\[2\]: weights holds NaN"):
        found[2]
    listed = [(w[t], b[t], c[t], "spin") for t in range(6)]
    assert mg.estimate_many(listed, steps=5, chains=20, pool=pool).errors == found.errors
    mixed = mg.estimate_many([mg.potts_grid((2, 3), 3), *temperatures(2)], steps=5, chains=20, transition="metropolis")
    assert list(mixed.errors) == [0]
    with pytest.raises(ValueError, match=r"models\[0\]: weights holds NaN"):
        mg.estimate_many((np.full_like(w, np.nan), b, c, "spin"), steps=5, pool=pool)


def test_options_that_fail_for_every_model_stop_an_endless_iterator():
    def endless():
        while True:
            yield from temperatures(3)

    with pytest.raises(ValueError, match="steps is -3"):
        mg.estimate_many(endless(), steps=-3)


def failing(models, error):
    yield from models
    raise error


@pytest.mark.parametrize("pool", [None, Pool()], ids=["threads", "pool"])
def test_an_iterator_that_raises_leaves_what_is_finished(tmp_path, pool):
    some, options = temperatures(5), {"steps": 5, "chains": 20, "pool": pool}
    with pytest.raises(
        ValueError, match="after 5 models: OSError: no more; the finished models are in the attribute"
    ) as e:
        mg.estimate_many(failing(some, OSError("no more")), **options)
    whole = mg.estimate_many(some, **options)
    np.testing.assert_array_equal(e.value.estimates.log_z, whole.log_z)
    path = tmp_path / "some.sqlite"
    with pytest.raises(ValueError, match=r"the finished models are in .*some\.sqlite"):
        mg.estimate_many(failing(some[:3], OSError("no more")), store=path, **options)
    assert rows_in(path) == 3
    np.testing.assert_array_equal(mg.estimate_many(iter(some), store=path, **options).log_z, whole.log_z)
    for nothing in (iter(()), failing((), StopIteration())):
        with pytest.raises(
            ValueError, match=r"models must be a list or a dictionary of models, .* and it is empty|raised"
        ):
            mg.estimate_many(nothing, **options)


def rows_in(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT COUNT(*) FROM estimate WHERE error = ''").fetchone()[0]


KILLED = """
import os, signal, sys
import numpy as np
import marginalis as mg
from marginalis.files.store import Store
write, batches = Store.write_estimates, []
def fatal(store, *args):
    write(store, *args)
    batches.append(args)
    if len(batches) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
Store.write_estimates = fatal
rng = np.random.default_rng(3)
w, b, c = rng.normal(size=(40, 3, 4)), rng.normal(size=(40, 3)), rng.normal(size=(40, 4))
mg.estimate_many((w, b, c, "spin"), steps=5, chains=20, threads=2, engine="numpy", store=sys.argv[1])
"""


@posix
def test_killed_and_resumed_ends_with_the_same_rows(tmp_path):
    path = tmp_path / "killed.sqlite"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=300)
    assert killed.returncode == -signal.SIGKILL
    done = rows_in(path)
    assert 0 < done < 40
    rng = np.random.default_rng(3)
    models = rng.normal(size=(40, 3, 4)), rng.normal(size=(40, 3)), rng.normal(size=(40, 4)), "spin"
    options = {"steps": 5, "chains": 20, "engine": "numpy"}
    pool = Pool()
    resumed = mg.estimate_many(models, store=path, pool=pool, **options)
    assert pool.models == 40 - done
    whole = mg.estimate_many(models, store=tmp_path / "whole.sqlite", **options)
    for name in ("log_z", "stderr", "intervals", "ess"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name))
    assert resumed.warnings == mg.estimate_many(models, **options).warnings
    with pytest.raises(ValueError, match="chains was 20, is 21"):
        mg.estimate_many(models, store=path, **{**options, "chains": 21})
    with pytest.raises(ValueError, match=r"models\[0\] is not the model whose result is in .*killed\.sqlite"):
        mg.estimate_many((models[0] + 1.0, *models[1:]), store=path, **options)


def test_a_store_keeps_log_weights_if_asked(tmp_path):
    some, options = temperatures(4), {"steps": 5, "chains": 20, "store": tmp_path / "x.sqlite"}
    first = mg.estimate_many(some, keep_weights=True, **options)
    again = mg.estimate_many(some, keep_weights=True, **options)
    assert again.answers == first.answers == mg.estimate_many(some, steps=5, chains=20).answers
    with pytest.raises(ValueError, match="checkpoint requires a list of models whose log-weights are kept"):
        mg.estimate_many(some, checkpoint=tmp_path / "y", **options)


@pytest.mark.study
def test_memory_does_not_grow_with_the_number_of_models():
    """10^5 tiny models from a generator: the peak exceeds that of 10^4 by less than 300 bytes per model."""
    script = """
import resource, sys
import numpy as np
import marginalis as mg
rng = np.random.default_rng(0)
def tiny(count):
    for _ in range(count):
        yield mg.rbm(rng.normal(size=(3, 4)), np.zeros(3), np.zeros(4))
mg.estimate_many(tiny(int(sys.argv[1])), steps=5, chains=16, threads=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    peaks = [
        int(subprocess.run([sys.executable, "-c", script, n], capture_output=True, text=True, check=True).stdout)
        for n in ("10000", "100000")
    ]
    assert peaks[1] - peaks[0] < 90_000 * 300 / 1024
