"""Answers as pandas and ArviZ have them."""

import warnings

import numpy as np
import pytest

import marginalis as mg

MODEL = mg.from_edges([(0, 1), (1, 2), (0, 2)], coupling=[0.5, -0.3, 0.2], field=0.1, labels=("x", "y", "z"))
QUICK = {"steps": 10, "chains": 20}


def test_tables_are_data_frames():
    pytest.importorskip("pandas")
    means = mg.expectations(MODEL, {"m": lambda rows: rows[:, :2]}, exact=False, **QUICK)
    frame = means.to_dataframe()
    assert list(frame.columns) == ["kind", "of", "mean", "error"]
    assert list(frame["of"]) == ["x", "y", "z", ("x", "y"), ("x", "z"), ("y", "z"), ("m", 0), ("m", 1)]
    assert np.array_equal(frame["mean"][:3], means.means)
    assert np.array_equal(frame["error"][6:], means.function_errors["m"])
    curve = mg.estimate(MODEL, record=True, **QUICK).curve
    assert np.array_equal(curve.to_dataframe()["log_z"], curve.log_z)
    likelihood = mg.log_likelihood(MODEL, np.ones((4, 3)))
    assert likelihood.to_dataframe()["mean"][0] == likelihood.mean


def test_curves_are_datasets():
    xarray = pytest.importorskip("xarray")
    curve = mg.estimate(MODEL, record=True, **QUICK).curve
    found = curve.to_xarray()
    assert isinstance(found, xarray.Dataset)
    assert np.array_equal(found["beta"], curve.betas)
    assert np.array_equal(found["log_z"], curve.log_z)
    assert found.attrs["log_z0"] == curve.log_z0
    with pytest.raises(ValueError, match="one row only"):
        mg.log_likelihood(MODEL, np.ones((4, 3))).to_xarray()


def test_samples_keep_their_labels():
    pytest.importorskip("pandas")
    drawn = mg.sample(MODEL, 30, seed=2)
    frame = drawn.to_dataframe()
    assert list(frame.columns) == ["x", "y", "z"]
    shuffled = frame[["z", "x", "y"]]
    log_z = mg.exact_log_z(MODEL)
    wanted = mg.log_likelihood(MODEL, drawn, log_z).per_sample
    assert np.array_equal(mg.log_likelihood(MODEL, shuffled, log_z).per_sample, wanted)
    assert list(mg.sample(mg.potts([(0, 1)], 3), 2).to_dataframe().columns)[:2] == [(0, 0), (0, 1)]
    assert mg.sample(MODEL, 5, exact=False, **QUICK).labels == ("x", "y", "z")


def test_arviz():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        az = pytest.importorskip("arviz")
    drawn = mg.sample(MODEL, 30, seed=2)
    data = mg.to_arviz(drawn)
    x = data["posterior"]["x"]
    assert dict(x.sizes) == {"chain": 1, "draw": 30, "feature": 3}
    assert np.array_equal(x.sel(feature="y").values[0], drawn.rows[:, 1])
    result = mg.estimate(MODEL, **QUICK)
    weights = mg.to_arviz(result)["sample_stats"]
    assert np.array_equal(weights["log_weight"].values[:, 0], result.log_weights)
    assert weights.attrs["log_z"] == result.log_z
    assert az.summary(data, kind="stats").shape[0] == 3
    with pytest.raises(ValueError, match="answer is a float; it must be what sample or estimate returned"):
        mg.to_arviz(1.0)
