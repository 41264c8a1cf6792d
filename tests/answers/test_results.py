"""Estimates in files: equal to what was written, and added up; whatever else a file may hold is refused in one line."""

import json
import math
import pickle
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import make_estimate, random_rbm

import marginalis as mg

OPTIONS = dict(steps=20, chains=60)


@pytest.fixture(scope="module")
def model():
    return random_rbm(np.random.default_rng(0), 4, 5)


@pytest.fixture(scope="module")
def result(model):
    return mg.estimate(model, **OPTIONS)


def saved(result, path):
    result.save(path)
    return mg.load_estimate(path)


def changed(path, **changes):
    """Write the arrays of a file again with some of them changed, or left out if None."""
    with np.load(path) as file:
        arrays = {**file, **changes}
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


def with_provenance(path, **changes):
    """Change what the record in a file says; None leaves it out."""
    with np.load(path) as file:
        data = {**json.loads(str(file["provenance"])), **changes}
    return changed(path, provenance=json.dumps({key: value for key, value in data.items() if value is not None}))


# ---------------------------------------------------------------- equality


def test_equal_by_content(model, result):
    again = mg.estimate(model, **OPTIONS, threads=1)
    assert again == result
    assert hash(again) == hash(result)
    assert replace(result, record=replace(result.record, seconds=99.0)) == result
    assert result != mg.estimate(model, **OPTIONS, seed=1)
    assert result != 3


@pytest.mark.parametrize(
    "change", [dict(log_z0=2.5), dict(notes=("a",)), dict(rounding=0.1), dict(fingerprint="x"), dict(steps=3)]
)
def test_changed_parts_make_results_unequal(change):
    assert make_estimate([0.0, 1.0], **change) != make_estimate([0.0, 1.0])
    assert make_estimate([0.0, 1.0], **change) == make_estimate([0.0, 1.0], **change)


def test_changed_weights_make_results_unequal():
    assert make_estimate([0.0, 1.0]) != make_estimate([0.0, 1.5])
    assert make_estimate([0.0, 1.0]) != make_estimate([0.0, 1.0, 2.0])
    assert make_estimate([0.0, 1.0]) == make_estimate([-0.0, 1.0])
    assert hash(make_estimate([0.0, 1.0])) == hash(make_estimate([-0.0, 1.0]))


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(record=True),
        dict(resample=True, populations=6),
        dict(seed=2**64 - 1, first_chain=7),
        dict(precision="double", engine="numpy", base="biases"),
        dict(schedule=[0.0, 0.3, 1.0], steps=None),
        dict(method="ais"),
    ],
    ids=str,
)
def test_a_file_gives_back_what_was_saved(model, tmp_path, options):
    result = mg.estimate(model, **(OPTIONS | options))
    loaded = saved(result, tmp_path / "r.npz")
    assert loaded == result
    assert loaded.to_json() == result.to_json()
    assert loaded.seconds == result.seconds
    assert str(loaded) == str(result)
    assert not loaded.log_weights.flags.writeable
    assert (loaded.curve is None) == (result.curve is None)
    if result.curve is not None:
        assert np.array_equal(loaded.curve.intervals, result.curve.intervals)
    with np.load(tmp_path / "r.npz", allow_pickle=False) as file:
        assert {"log_weights", "log_z0", "summary", "version"} <= set(file)
        assert json.loads(str(file["summary"])) == result.to_dict()


def test_notes_and_rounding_are_saved(tmp_path):
    result = make_estimate([0.1, 1 / 3], notes=("± 1", "ln Ẑ"), rounding=1e-7 / 3, log_z0=math.pi, seconds=0.1 + 0.2)
    loaded = saved(result, tmp_path / "r.npz")
    assert loaded == result
    assert loaded.seconds == result.seconds


def test_provenance_is_on_record(model, tmp_path):
    loaded = saved(mg.estimate(model, **OPTIONS, seed=5, first_chain=10), tmp_path / "r.npz")
    assert loaded.record.version == mg.__version__
    assert loaded.record.runs == ((5, 10, 60),)
    assert loaded.to_dict()["runs"] == [[5, 10, 60]]
    assert loaded.record.precision in ("single", "double")


def test_a_file_is_replaced_or_left(result, tmp_path):
    result.save(tmp_path / "r.npz")
    with pytest.raises(ValueError, match="cannot write"):
        result.save(tmp_path / "no" / "r.npz")
    with pytest.raises(ValueError, match="path is 3"):
        result.save(3)
    result.save(str(tmp_path / "r"))  # whatever its name
    assert sorted(x.name for x in tmp_path.iterdir()) == ["r", "r.npz"]
    assert mg.load_estimate(tmp_path / "r") == result


# ---------------------------------------------------------------- sums


def test_loaded_results_can_be_added(model, tmp_path):
    whole = mg.estimate(model, **(OPTIONS | dict(chains=90)))
    parts = [mg.estimate(model, **(OPTIONS | dict(chains=30)), first_chain=30 * i) for i in range(3)]
    loaded = [saved(part, tmp_path / f"{i}.npz") for i, part in enumerate(parts)]
    total = sum(loaded)
    assert total == parts[0] + parts[1] + parts[2] == sum(loaded[1:], loaded[0])
    assert np.array_equal(total.log_weights, whole.log_weights)
    assert total.log_z == whole.log_z
    assert total.record.runs == ((0, 0, 30), (0, 30, 30), (0, 60, 30))
    assert saved(total, tmp_path / "total.npz") == total
    assert sum(loaded[:1]) == loaded[0]
    with pytest.raises(ValueError, match="both hold chains 30 to 59 of seed 0"):
        total + loaded[1]


def test_resampled_results_can_be_added(model, tmp_path):
    options = OPTIONS | dict(resample=True, populations=6)
    total = sum(saved(mg.estimate(model, **options, seed=s), tmp_path / "r.npz") for s in range(3))
    assert (total.chains, total.populations, len(total.log_weights)) == (180, 18, 18)
    assert saved(total, tmp_path / "total.npz") == total


def test_curves_of_results_can_be_added(model, tmp_path):
    one, two = (saved(mg.estimate(model, **OPTIONS, record=True, seed=s), tmp_path / "r.npz") for s in (0, 1))
    assert (one + two).curve.log_weights.shape == (20, 120)
    assert saved(one + two, tmp_path / "total.npz") == one + two


@pytest.mark.parametrize("other", [3, 0.0, "a", None, False])
def test_sums_start_from_0_or_an_estimate(result, other):
    with pytest.raises(TypeError):
        other + result


def test_sums_record_the_versions_of_both():
    parts = [make_estimate([0.0], runs=((s, 0, 1),), engine=e) for s, e in enumerate(["numba", "numpy", "numba"])]
    versions = ("0.1", "0.2", "0.1")
    total = sum(replace(x, record=replace(x.record, version=v)) for x, v in zip(parts, versions, strict=True))
    assert total.record.version == "0.1, 0.2"
    assert total.engine == "numba+numpy"
    assert not total.log_weights.flags.writeable


# ---------------------------------------------------------------- what a file must not hold


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(version=2), "format version 2; this package reads version 1"),
        (dict(version=np.ones(2)), "one number"),
        (dict(version=np.nan), "version is nan"),
        (dict(version=None), "lacks the key 'version'; a result that can be read again has version, kind"),
        (dict(kind="difference"), "kind 'difference'"),
        (dict(kind=None), "lacks the key 'kind'"),
        (dict(log_weights=None), "lacks the key 'log_weights'"),
        (dict(log_weights=np.zeros((60, 1))), "log_weights has 2 dimensions"),
        (dict(log_weights=np.full(60, np.nan)), "log_weights holds NaN"),
        (dict(log_weights=np.zeros(59)), "59 log-weights, which do not fit its 60 chains"),
        (dict(log_weights=np.zeros(0)), "runs"),
        (dict(log_z0=np.inf), "log_z0 is inf"),
        (dict(runs=np.zeros((1, 2), int)), "runs must hold rows"),
        (dict(runs=np.zeros((1, 3))), "whole numbers"),
        (dict(runs=[[0, 0, 0]]), "number of chains of a run is 0"),
        (dict(runs=[[-1, 0, 60]]), "the seed of a run is -1"),
        (dict(runs=[[0, 2**32, 60]]), "first_chain"),
        (dict(runs=[[0, 0, 30], [0, 29, 30]]), "chain 29 of seed 0 is there twice"),
        (dict(provenance="[" * 100_000), "not a JSON object"),
        (dict(provenance="[]"), "not a JSON object"),
        (dict(provenance=np.array(["{}", "{}"])), "one text"),
        (dict(curve_betas=np.zeros(3)), "lacks the key 'curve_log_weights'"),
        (dict(curve_betas=np.zeros(3), curve_log_weights=np.zeros((2, 60)), curve_log_z0=0.0), "fit together"),
        (dict(curve_betas=np.zeros(3), curve_log_weights=np.zeros((3, 9)), curve_log_z0=0.0), "curve has 9 chains"),
    ],
    ids=lambda x: None if isinstance(x, str) else next(iter(x)),
)
def test_bad_arrays(result, tmp_path, changes, message):
    result.save(tmp_path / "r.npz")
    refused(changed(tmp_path / "r.npz", **changes), message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(model=None), "lacks 'model'"),
        (dict(version=None), "lacks 'version'"),
        (dict(notes=None), "lacks 'notes'"),
        (dict(mood="good"), "'mood', which this version does not know"),
        (dict(steps="many"), "steps is 'many'"),
        (dict(variables=True), "variables is True"),
        (dict(seconds=-1.0), "seconds is -1.0"),
        (dict(rounding=math.inf), "rounding is inf"),
        (dict(method=3), "method is 3"),
        (dict(engine="a\x1b[2J"), "engine is"),
        (dict(notes="a"), "notes must be a list"),
        (dict(notes=["a\nb"]), "a note is"),
        (dict(populations=7), "60 log-weights, which do not fit"),
    ],
    ids=lambda x: None if isinstance(x, str) else next(iter(x)),
)
def test_bad_provenance(result, tmp_path, changes, message):
    result.save(tmp_path / "r.npz")
    refused(with_provenance(tmp_path / "r.npz", **changes), message)


def refused(path, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the message is looked at below
        mg.load_estimate(path)
    text = str(caught.value)
    assert message in text
    assert str(path.name) in text
    assert text.isprintable()
    assert len(text) < 300


def test_other_files_are_refused(result, model, tmp_path):
    whole = tmp_path / "r.npz"
    result.save(whole)
    (tmp_path / "cut.npz").write_bytes(whole.read_bytes()[:-100])
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").touch()
    np.save(tmp_path / "array.npy", np.zeros(3))
    mg.save(model, tmp_path / "model.npz")
    np.savez(tmp_path / "old.npz", log_weights=np.zeros(3), log_z0=0.0, summary="{}")
    np.savez(tmp_path / "pickle.npz", version=np.array([{}], dtype=object), kind="estimate")
    (tmp_path / "pickled.npz").write_bytes(pickle.dumps(result))
    for name in ("cut.npz", "text.npz", "empty.npz", "array.npy", "pickled.npz"):
        refused(tmp_path / name, "is not a readable npz archive")
    refused(tmp_path / "model.npz", "lacks the key 'kind'")
    refused(tmp_path / "old.npz", "lacks the key 'version'")
    refused(tmp_path / "pickle.npz", "pickled objects, which are refused")
    refused(tmp_path / "none.npz", "No such file")
    refused(tmp_path, "Is a directory")
    with pytest.raises(ValueError, match="path is 3"):
        mg.load_estimate(3)
    with pytest.raises(ValueError, match="lacks the key 'weights'"):
        mg.load(whole)


# ---------------------------------------------------------------- intervals and tables


def test_intervals_are_nested_by_level(result):
    assert result.interval_at(0.95) == result.interval
    assert result.log_z_interval == (-result.interval[1], -result.interval[0])
    low, high = zip(*(result.interval_at(level) for level in (0.5, 0.8, 0.95, 0.99, 1 - 1e-16)), strict=True)
    assert sorted(low, reverse=True) == list(low)
    assert sorted(high) == list(high)
    assert low[0] < result.free_energy < high[0]
    assert make_estimate([1.0]).interval_at(0.5) == (-math.inf, math.inf)
    exact = make_estimate(np.zeros(9), rounding=0.25)
    assert exact.interval_at(0.5) == (-2.25, -1.75)
    for level in (0, 1, 1.5, -0.5, math.nan, "a", None, True, 95):
        with pytest.raises(ValueError, match="level is"):
            result.interval_at(level)


def test_other_levels_cover_as_often_as_they_say():
    model = random_rbm(np.random.default_rng(0), 6, 6, scale=0.5)
    exact = -mg.exact_log_z(model)
    results = [mg.estimate(model, steps=20, chains=400, seed=s) for s in range(200)]
    for level in (0.5, 0.8, 0.99):
        covered = sum(low <= exact <= high for low, high in (r.interval_at(level) for r in results))
        assert abs(covered - 200 * level) < 4.5 * math.sqrt(200 * level * (1 - level))


def test_data_frames_without_pandas_name_the_package(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError, match="to_dataframe needs pandas: pip install pandas"):
        result.to_dataframe()


def test_rows_of_tables(result, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    (row,) = result.to_dataframe()
    assert (row["interval_low"], row["interval_high"]) == result.interval
    assert row["log_z"] == result.log_z
    assert row["warnings"] == "; ".join(result.warnings)
    assert "runs" not in row
    (one,) = make_estimate([1.0]).to_dataframe()
    assert math.isnan(one["stderr"])
    assert math.isnan(one["interval_low"])
    rows = mg.thermodynamics(model, [0.5, 1.0], **OPTIONS).to_dataframe()
    assert [row["beta"] for row in rows] == [0.5, 1.0]
    assert {row["chains"] for row in rows} == {60}
    assert all(not isinstance(x, list | dict) for row in rows for x in row.values())


def test_tables(result):
    pandas = pytest.importorskip("pandas")
    table = pandas.concat([result.to_dataframe(), make_estimate([1.0]).to_dataframe()], ignore_index=True)
    assert len(table) == 2
    assert table.log_z[0] == result.log_z
    assert table.interval_low.dtype == float
