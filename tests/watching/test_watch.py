"""A watch on a model in training: values against exact ones, fresh runs if the chains have missed states, files."""

import csv
import errno
import math
import warnings

import numpy as np
import pytest

import marginalis as mg
from marginalis.watching import watch as watching

RNG = np.random.default_rng(28)


def walk(count, seed=0, size=(6, 8), scale=0.15):
    """Models of a random walk in all parameters, from independent units on, as in training."""
    rng = np.random.default_rng(seed)
    w, b, c = np.zeros(size), np.zeros(size[0]), np.zeros(size[1])
    models = []
    for _ in range(count):
        w, b, c = (x + rng.normal(size=x.shape) * scale for x in (w, b, c))
        models.append(mg.rbm(w, b, c, units="binary"))
    return models


MODELS = walk(8)
ROWS = RNG.integers(0, 2, (40, 6))


def polarised(field, coupling=0.5, n=10):
    """Two sides of n spins, all coupled: two phases, of which the field chooses one."""
    return mg.rbm(np.full((n, n), coupling), np.full(n, field), np.full(n, field))


def without_seconds(history):
    return [{**p.columns(), "seconds": 0.0} for p in history.points]


def test_values_agree_with_exact_ones():
    z = []
    for seed in range(6):
        watch = mg.Watch(rows=ROWS, seed=seed)
        for t, model in enumerate(MODELS):
            point = watch.update(model, step=10 * t)
            exact = mg.log_likelihood(model, ROWS)
            assert exact.log_z_source.startswith("exact")
            z.append((point.log_z - exact.log_z) / point.stderr)
            assert point.log_p["rows"] + point.log_z == pytest.approx(exact.mean + exact.log_z, abs=1e-12)
            assert point.rows_error["rows"] == pytest.approx(exact.sampling_error)
            low, high = point.log_p_interval("rows")
            assert high - low == pytest.approx(np.diff(point.log_z_interval)[0])
            assert low < point.log_p["rows"] < high
    assert np.abs(z).max() < 4.5
    assert (np.array(z) ** 2).mean() < 2.0
    assert {p.source for p in watch.history.points[1:]} == {"carried"}
    assert [p.step for p in watch.history.points] == list(range(0, 80, 10))


@pytest.mark.study
def test_estimates_are_unbiased_and_intervals_cover():
    exact = np.array([mg.exact_log_z(m) for m in MODELS])
    watches = [mg.Watch(seed=seed) for seed in range(100)]
    for watch in watches:
        for model in MODELS:
            watch.update(model)
    found = np.array([w.history.log_z for w in watches]) - exact
    ratio = np.exp(found)
    assert np.abs((ratio.mean(axis=0) - 1.0) / (ratio.std(axis=0, ddof=1) / 10.0)).max() < 4.5
    inside = [(w.history.intervals[:, 0] <= exact) & (exact <= w.history.intervals[:, 1]) for w in watches]
    assert 0.9 < np.mean(inside) < 0.995


def test_chains_in_a_phase_that_vanishes_are_replaced_with_a_warning():
    """Weights do not show it: all chains stay in the phase of spins up while the field turns."""
    watch = mg.Watch(seed=1)
    with warnings.catch_warnings():  # The first changes may be so large that fresh runs are cheaper.
        warnings.simplefilter("ignore")
        for field, coupling in ((0.3, 0.1), (0.3, 0.2), (0.3, 0.3), (0.3, 0.4), (0.3, 0.5), (0.1, 0.5)):
            watch.update(polarised(field, coupling))
    with pytest.warns(
        UserWarning, match=r"step 6: the carried chains have missed states: a short run finds ln Z = 5\d.*fresh run"
    ):
        point = watch.update(polarised(-0.1))
    exact = mg.exact_log_z(polarised(-0.1))
    assert point.source == "fresh"
    assert abs(point.log_z - exact) < 4.5 * point.stderr
    assert watch.history.warnings[-1].startswith("step 6: the carried chains have missed states")


def test_a_model_that_has_changed_too_much_is_run_afresh():
    far = mg.rbm(3.0 * RNG.normal(size=(6, 8)), RNG.normal(size=6), RNG.normal(size=8), units="binary")
    watch = mg.Watch()
    watch.update(MODELS[0])
    with pytest.warns(UserWarning, match="step 1: the model has changed so much since the last update that a fresh"):
        point = watch.update(far)
    assert point.source == "fresh"
    assert abs(point.log_z - mg.exact_log_z(far)) < 4.5 * point.stderr
    with warnings.catch_warnings():  # This note is told once.
        warnings.simplefilter("error")
        assert watch.update(MODELS[0]).source == "fresh"


def test_a_model_of_another_size_is_run_afresh():
    watch = mg.Watch()
    watch.update(MODELS[0])
    other = walk(1, size=(6, 9))[0]
    with pytest.warns(UserWarning, match="step 1: the model has other variables or couplings than before: fresh run"):
        point = watch.update(other)
    assert abs(point.log_z - mg.exact_log_z(other)) < 4.5 * point.stderr


def test_errors_that_have_grown_are_renewed():
    watch = mg.Watch(tolerance=0.03)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model in walk(12, seed=3, scale=0.3):
            watch.update(model)
    assert [p.source for p in watch.history.points].count("fresh") > 1
    assert max(p.stderr for p in watch.history.points) < 0.3


@pytest.mark.parametrize("stop", [1, 4])
def test_a_watch_goes_on_after_it_was_stopped(stop, tmp_path):
    whole = mg.Watch(rows={"test": ROWS}, seed=5)
    for model in MODELS:
        whole.update(model)
    for part in (MODELS[:stop], MODELS[stop:]):
        watch = mg.Watch(tmp_path / "run", rows={"test": ROWS}, seed=5, figure=False)
        for model in part:
            watch.update(model)
    assert without_seconds(watch.history) == without_seconds(whole.history)
    assert sorted(x.name for x in (tmp_path / "run").iterdir()) == ["watch.csv", "watch.npz"]


def test_training_that_repeats_steps(tmp_path):
    """After a crash training goes on from its own last checkpoint, which may lie before the last point."""
    watch = mg.Watch(tmp_path, figure=False)
    for t, model in enumerate(MODELS[:5]):
        watch.update(model, step=t)
    again = mg.Watch(tmp_path, figure=False)
    assert again.update(MODELS[3], step=3) == watch.history[3]  # the same model at the same step
    assert len(again.history) == 5
    point = again.update(MODELS[6], step=3)  # another model at this step: training has taken another way
    assert [p.step for p in again.history.points] == [0, 1, 2, 3]
    assert again.history[3] == point
    assert abs(point.log_z - mg.exact_log_z(MODELS[6])) < 4.5 * point.stderr


def test_the_table_holds_the_points(tmp_path):
    with mg.Watch(tmp_path, rows={"train": ROWS, "a, b": ROWS[:9]}) as watch:
        for model in MODELS[:3]:
            watch.update(model)
    with open(tmp_path / "watch.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    for row, point in zip(rows, watch.history.points, strict=True):
        assert float(row["log_z"]) == point.log_z
        assert float(row["a, b_ln_p"]) == point.log_p["a, b"]
        assert (float(row["train_low"]), float(row["train_high"])) == point.log_p_interval("train")
        assert (int(row["step"]), row["source"]) == (point.step, point.source)
    assert (tmp_path / "watch.png").read_bytes().startswith(b"\x89PNG")
    assert len(watch.history.to_dict()["rows"]) == 3


def test_a_full_disk_does_not_stop_training(tmp_path, monkeypatch):
    watch = mg.Watch(tmp_path)
    watch.update(MODELS[0])
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        for module in ("store", "live"):
            patch.setattr(f"marginalis.watching.{module}.write_whole", full)
        with pytest.warns(UserWarning, match=r"No space left on device; training goes on, and files .* not up to date"):
            watch.update(MODELS[1])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            watch.update(MODELS[2])
            watch.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    watch.update(MODELS[3])  # There is space again.
    assert len((tmp_path / "watch.csv").read_text().splitlines()) == 5
    assert len(mg.Watch(tmp_path).history) == 4


def test_weights_that_are_not_finite_leave_a_gap():
    broken = {"W": np.full((6, 8), np.nan), "a": np.zeros(6), "b": np.zeros(8)}
    watch = mg.Watch(rows=ROWS)
    with pytest.raises(ValueError, match="w holds NaN or infinite values"):
        watch.update(broken)
    watch.update(MODELS[0])
    with pytest.warns(UserWarning, match="step 1: no ln Z: model: w holds NaN or infinite values"):
        point = watch.update(broken)
    assert math.isnan(point.log_z)
    assert point.source == "nothing"
    point = watch.update(MODELS[1])
    assert abs(point.log_z - mg.exact_log_z(MODELS[1])) < 4.5 * point.stderr
    assert watch.history.to_dict()["rows"][1]["log_z"] is None
    watch.plot()


def test_a_gap_is_kept_in_the_file(tmp_path):
    watch = mg.Watch(tmp_path, rows=ROWS, figure=False)
    watch.update(MODELS[0])
    with pytest.warns(UserWarning, match="no ln Z"):
        watch.update((np.full((6, 8), np.inf), np.zeros(6), np.zeros(8), "binary"))
    watch.update(MODELS[1])
    again = mg.Watch(tmp_path, rows=ROWS, figure=False)
    assert [p.source for p in again.history.points] == ["fresh", "nothing", "carried"]
    assert math.isnan(again.history[1].log_p["rows"])


def test_no_more_than_its_share():
    watch = mg.Watch(share=1e-6)
    assert watch.update(MODELS[0]).source == "fresh"
    assert watch.update(MODELS[1]) is None
    assert len(watch.history) == 1
    assert watch.share_of_time > 1e-6


def test_figures():
    watch = mg.Watch(rows={"train": ROWS, "test": ROWS[:5]})
    for model in MODELS[:3]:
        watch.update(model)
    top, bottom = watch.plot().axes
    assert len(top.lines) == 2
    assert bottom.lines[0].get_ydata().tolist() == watch.history.log_z.tolist()
    assert "3 steps" in watch._repr_html_()
    assert len(str(watch).splitlines()) == 5


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"folder": 3}, "folder is 3; it must name a folder"),
        ({"rows": {1: ROWS}}, "rows has the name 1; names of sets of rows are short texts"),
        ({"rows": {"test": None}}, r"rows\['test'\] is None; it must be an array of rows"),
        ({"tolerance": 0.0}, "tolerance is 0.0; it must be positive"),
        ({"share": 2.0}, "share is 2.0; it must be above 0 and at most 1"),
        ({"live": 1}, "live is 1; it must be True or False"),
        ({"schedule": "linear"}, "there is no option 'schedule' here"),
        ({"chain": 10}, "there is no option 'chain' here; did you mean 'chains'"),
    ],
)
def test_bad_settings_are_named(given, text):
    with pytest.raises(ValueError, match=text):
        mg.Watch(**given)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (3, "model is an int; it must be an MRF"),
        ({"W": np.ones((6, 8))}, "model has no visible biases"),
        (MODELS, "model is a list of 8 models; it must be one of them"),
    ],
)
def test_objects_that_are_no_models_are_named(model, text):
    with pytest.raises(ValueError, match=text):
        mg.Watch().update(model)


def test_bad_rows_and_steps_are_named():
    with pytest.raises(ValueError, match="data has 5 columns; the model has 6 visible features"):
        mg.Watch(rows=ROWS[:, :5]).update(MODELS[0])
    with pytest.raises(ValueError, match=r"data\[0, 0\] is 2"):
        mg.Watch(rows=np.full((3, 6), 2)).update(MODELS[0])
    with pytest.raises(ValueError, match=r"step is 0\.5; it must be a whole number"):
        mg.Watch().update(MODELS[0], step=0.5)


def test_a_folder_of_another_watch_is_refused(tmp_path):
    mg.Watch(tmp_path, rows=ROWS, chains=100).update(MODELS[0])
    with pytest.raises(
        ValueError, match=r"has a watch with other chains, 100 there and 200 here: choose another folder"
    ):
        mg.Watch(tmp_path, rows=ROWS)
    with pytest.raises(ValueError, match="has a watch with other rows: choose another folder"):
        mg.Watch(tmp_path, chains=100)
    (tmp_path / "watch.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"file of a watch .*watch.npz: is not a readable npz archive"):
        mg.Watch(tmp_path, rows=ROWS, chains=100)


def test_a_damaged_population_is_refused(tmp_path):
    mg.Watch(tmp_path, figure=False).update(MODELS[0])
    path = tmp_path / "watch.npz"
    with np.load(path) as file:
        arrays = dict(file)
    for key, value, text in (
        ("watch", np.array("{}"), "lacks a part of a watch"),
        ("watch", np.array("["), "Expecting value"),
        ("watch_states", arrays["watch_states"][:5], "its arrays do not fit together"),
        ("watch_results", np.full(20, np.nan), "watch_results holds NaN"),
    ):
        np.savez(path, **{**arrays, key: value})
        with pytest.raises(ValueError, match=text):
            mg.Watch(tmp_path, figure=False)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write to .*file"):
        mg.Watch(tmp_path / "file" / "run")


def test_scikit_learns_machine_is_taken_as_it_is():
    sklearn = pytest.importorskip("sklearn.neural_network")
    rbm = sklearn.BernoulliRBM(8, learning_rate=0.05, random_state=0)
    watch = mg.Watch(rows=ROWS)
    for epoch in range(4):
        rbm.partial_fit(ROWS)
        point = watch.update(rbm, step=epoch)
        assert abs(point.log_z - mg.exact_log_z(mg.as_model(rbm))) < 4.5 * point.stderr


def test_the_watch_reads_its_own_options():
    """Each default is that of `along`, but for few chains, which are resampled."""
    given = mg.Watch()._given
    assert (given["chains"], given["resample"], given["populations"]) == (watching._CHAINS, True, 20)
