"""HDF5 files of rbms and RestrictedBoltzmannMachines.jl, written here as their formats say, and by rbms itself."""

import itertools
import json

import numpy as np
import pytest
from conftest import command
from julia_files import write_julia
from rbms_files import random_run, write_run

import marginalis as mg
from marginalis.files import archive, hdf5

h5py = pytest.importorskip("h5py")


@pytest.mark.parametrize("kind", ["BBRBM", "PBRBM"])
def test_a_training_run(tmp_path, kind):
    run = random_run(kind)
    path = write_run(tmp_path / "run.h5", kind, run)
    updates = mg.load_updates(path)
    assert list(updates) == [1, 2, 10]  # 10 after 2
    for update, (w, b, c) in run.items():
        one = [np.eye(3)[list(x)] for x in itertools.product(range(3), repeat=4)] if kind == "PBRBM" else None
        v = np.array(one if one is not None else list(itertools.product((0.0, 1.0), repeat=4))).reshape(-1, b.size)
        terms = v @ b.ravel() + np.logaddexp(0.0, v @ w.reshape(b.size, 5) + c).sum(axis=1)
        model = mg.load(path, update=update)
        assert mg.exact_log_z(model) == pytest.approx(np.logaddexp.reduce(terms), rel=1e-6)
        assert np.array_equal(model.weights, updates[update].weights)
    assert np.array_equal(mg.load(path).weights, updates[10].weights)
    with pytest.raises(KeyError):
        updates[3]
    with pytest.raises(ValueError, match="has no update 3; it has 1, 2, 10"):
        mg.load(path, update=3)
    assert "3 updates of" in repr(updates)


def test_likelihoods_of_all_updates(tmp_path):
    path = write_run(tmp_path / "run.h5", "BBRBM", random_run("BBRBM"))
    rows = np.random.default_rng(0).integers(0, 2, (9, 4))
    np.save(tmp_path / "rows.npy", rows)
    flags = ("--all-updates", "--chains", 200, "--seed", 3)
    outputs = ("--plot", tmp_path / "curve.svg", "--out", tmp_path / "all.npy")
    done = command("likelihood", path, tmp_path / "rows.npy", *flags, *outputs, "--json")
    assert done.returncode == 0, done.stderr
    expected = mg.log_likelihood(mg.along(mg.load_updates(path), chains=200, seed=3), rows)
    answer = json.loads(done.stdout)
    assert answer["rows"] == expected.to_dict()["rows"]
    assert [row["model"] for row in answer["rows"]] == [1, 2, 10]
    assert np.array_equal(np.load(tmp_path / "all.npy"), expected.per_sample)
    assert "mean ln p" in (tmp_path / "curve.svg").read_text()
    for more, message in (
        (("--update", 2), "excludes --update"),
        (("--schedule", "linear"), "--schedule cannot be used with --all-updates"),
    ):
        done = command("likelihood", path, tmp_path / "rows.npy", *flags, *more)
        assert (done.returncode, message in done.stderr) == (2, True)


def test_a_run_that_rbms_wrote(tmp_path):
    torch = pytest.importorskip("torch")
    save_model = pytest.importorskip("rbms.io").save_model
    path = tmp_path / "run.h5"
    from rbms.bernoulli_bernoulli.classes import BBRBM

    with h5py.File(path, "w"):
        pass
    made = {}
    for update in (1, 3, 20):
        torch.manual_seed(update)
        made[update] = BBRBM(weight_matrix=torch.randn(6, 4), vbias=torch.randn(6), hbias=torch.randn(4))
        save_model(str(path), made[update], {"visible": torch.zeros(2, 6)}, update, 0.0)
    every = torch.tensor(list(itertools.product((0.0, 1.0), repeat=6)))
    for update, model in mg.load_updates(path).items():
        wanted = float(torch.logsumexp(-made[update].compute_energy_visibles(every), 0))
        assert mg.exact_log_z(model) == pytest.approx(wanted, rel=1e-5)


def test_a_potts_run_that_rbms_wrote(tmp_path):
    torch = pytest.importorskip("torch")
    save_model = pytest.importorskip("rbms.io").save_model
    from rbms.potts_bernoulli.classes import PBRBM

    path = tmp_path / "run.h5"
    with h5py.File(path, "w"):
        pass
    torch.manual_seed(1)
    made = PBRBM(weight_matrix=torch.randn(4, 3, 5), vbias=torch.randn(4, 3), hbias=torch.randn(5))
    save_model(str(path), made, {"visible": torch.zeros(2, 4)}, 7, 0.0)
    every = torch.tensor(list(itertools.product(range(3), repeat=4)))
    wanted = float(torch.logsumexp(-made.compute_energy_visibles(every), 0))
    assert mg.exact_log_z(mg.load(path)) == pytest.approx(wanted, rel=1e-5)


def test_words_may_be_attributes(tmp_path):
    write_julia(tmp_path / "a.h5")
    write_julia(tmp_path / "b.h5", attributes=True)
    a, b = mg.load(tmp_path / "a.h5"), mg.load(tmp_path / "b.h5")
    assert np.array_equal(a.weights, b.weights)


def edited(path, edit):
    with h5py.File(path, "r+") as file:
        edit(file)
    return path


def replaced(name, value):
    def edit(file):
        del file[name]
        file[name] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (replaced("rbm_hdf5_file_format_version", "2.0.0"), "has format version '2.0.0'; this package reads 1.0.0"),
        (replaced("rbm_type", "DeepRBM"), "has rbm_type 'DeepRBM'"),
        (replaced("hidden_type", "StdGauss"), "has hidden units of type 'StdGauss'; this package has Binary, Spin"),
        (replaced("weights", np.zeros((3, 2))), r"weights has shape \(2, 3\); the layers need \(3, 2\)"),
        (replaced("visible_par", np.zeros(3)), r"visible_par has shape \(3,\)"),
        (
            lambda file: file.__delitem__("weights"),
            "lacks 'weights'; a RBM has weights, visible_type, visible_par, hidden_type, hidden_par$",
        ),
        (lambda file: file.__delitem__("rbm_type"), "lacks 'rbm_type'"),
        (replaced("weights", h5py.SoftLink("/visible_par")), "'weights' is a link, and links are not followed"),
        (replaced("weights", h5py.ExternalLink("other.h5", "/weights")), "'weights' is a link"),
        (replaced("weights", "words"), "it must hold real numbers"),
        (replaced("rbm_type", 3.0), "'rbm_type' must hold a word"),
        (replaced("rbm_type", ["RBM", "RBM"]), "'rbm_type' must hold a word"),
        (replaced("rbm_type", "RBM" * 100), "'rbm_type' must hold a word"),
        (replaced("rbm_type", h5py.Empty(h5py.vlen_dtype("i4"))), "'rbm_type' is not an array"),
        (
            lambda file: (file.__delitem__("rbm_type"), file.create_dataset("rbm_type", (), h5py.vlen_dtype("i4"))),
            "'rbm_type' must hold a word",
        ),
        (lambda file: (file.__delitem__("weights"), file.create_group("weights")), "'weights' is not an array"),
    ],
)
def test_bad_julia_files(tmp_path, edit, problem):
    write_julia(tmp_path / "m.h5")
    with pytest.raises(ValueError, match=problem):
        mg.load(edited(tmp_path / "m.h5", edit))


def external(file):
    del file["weights"]
    file.create_dataset("weights", (2, 3), "f8", external=[("/etc/hostname", 0, 48)])


def virtual(file):
    del file["weights"]
    layout = h5py.VirtualLayout((2, 3), "f8")
    layout[:] = h5py.VirtualSource("other.h5", "weights", (2, 3))
    file.create_virtual_dataset("weights", layout)


@pytest.mark.parametrize("edit", [external, virtual])
def test_data_in_other_files_are_not_read(tmp_path, edit):
    write_julia(tmp_path / "m.h5")
    with pytest.raises(ValueError, match="keeps its data in other files, which are not read"):
        mg.load(edited(tmp_path / "m.h5", edit))


def huge(shape):
    def edit(file):
        del file["weights"]
        file.create_dataset("weights", shape, "f4", chunks=(1, 1000))

    return edit


def test_huge_shapes_are_refused_before_reading(tmp_path, monkeypatch):
    write_julia(tmp_path / "m.h5")
    with pytest.raises(ValueError, match="the limit is"):
        mg.load(edited(tmp_path / "m.h5", huge((10**9, 10**9))))
    monkeypatch.setattr(hdf5, "limit", lambda: 1 << 40)
    with pytest.raises(ValueError, match="far more than the file holds"):
        mg.load(edited(tmp_path / "m.h5", huge((10**5, 10**4))))


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (
            lambda file: file.__delitem__("model_type"),
            "lacks 'model_type'; a file of rbms has model_type and groups update_<n>/params of ",
        ),
        (replaced("model_type", "BGRBM"), "has model_type 'BGRBM'; this package reads BBRBM and PBRBM"),
        (lambda file: file.__delitem__("update_10/params/vbias"), "lacks 'update_10/params/vbias'; a file of rbms has"),
        (lambda file: file.__delitem__("update_10/params"), "lacks 'update_10/params/weight_matrix'"),
        (replaced("update_10", h5py.SoftLink("/update_1")), "lacks 'update_10/params/weight_matrix'"),
        (replaced("update_10/params/vbias", np.zeros(7)), r"do not fit together: weight_matrix \(4, 5\), vbias \(7,\)"),
        (lambda file: [file.__delitem__(f"update_{u}") for u in (1, 2, 10)], "lacks groups 'update_<n>'"),
    ],
)
def test_bad_runs(tmp_path, edit, problem):
    path = write_run(tmp_path / "run.h5", "BBRBM", random_run("BBRBM"))
    with pytest.raises(ValueError, match=problem):
        mg.load(edited(path, edit))


def test_damaged_files(tmp_path, monkeypatch):
    path = write_run(tmp_path / "run.h5", "BBRBM", random_run("BBRBM"))
    whole = path.read_bytes()
    for cut in (9, 100, len(whole) // 2):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="model file"):
            mg.load(path)
    path.write_bytes(whole)
    write_julia(tmp_path / "m.h5")
    with pytest.raises(ValueError, match="holds one model: leave out update"):
        mg.load(tmp_path / "m.h5", update=3)
    monkeypatch.setattr(archive, "MAX_BYTES", 64)
    with pytest.raises(ValueError, match="the limit is"):
        mg.load(path)


def test_without_h5py_one_line_says_what_to_install(tmp_path, monkeypatch):
    path = write_run(tmp_path / "run.h5", "BBRBM", random_run("BBRBM"))
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ValueError, match=r"pip install marginalis\[io\]"):
        mg.load(path)
