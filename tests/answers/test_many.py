"""Many models, a task for each."""

import contextlib
import json
import sqlite3
from concurrent.futures import Future

import numpy as np
import pytest
from conftest import random_rbm

import marginalis as mg

OPTIONS = {"steps": 15, "chains": 60, "engine": "numpy", "seed": 3}


class Pool:
    """An executor that works at once."""

    num_workers = 2

    def __init__(self):
        self.models = 0

    def submit(self, function, task, data):
        self.models += len(task.part)
        future = Future()
        try:
            future.set_result(function(task, data))
        except Exception as error:
            future.set_exception(error)
        return future


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
        with pytest.raises(ValueError, match=r"models\[0\]: transition 'metropolis' serves spin"):
            mg.estimate_many([mg.potts_grid((2, 3), 3)], transition="metropolis", pool=pool, **OPTIONS)
    with pytest.raises(ValueError, match="seed is -1"):
        mg.estimate_many(models, **{**OPTIONS, "seed": -1})
