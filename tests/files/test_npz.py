"""Model files: round trips, and files from strangers."""

import os
import stat

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import posix, random_rbm
from npz_keys import PARTS, SPARSE

import marginalis as mg


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("units", ["spin", "binary", ("spin", "binary")])
def test_round_trip(tmp_path, units, sparse):
    model = random_rbm(np.random.default_rng(0), 4, 3, units=units, temperature=0.3)
    if sparse:
        weights = sp.csr_array(np.where(model.weights > 0, model.weights, 0))
        model = mg.rbm(weights, model.visible_bias, model.hidden_bias, units=units, temperature=0.3)
    mg.save(model, tmp_path / "m.npz")
    back = mg.load(tmp_path / "m.npz")
    assert back.is_sparse == sparse
    dense = (lambda w: w.toarray()) if sparse else np.asarray
    assert np.array_equal(dense(back.weights), dense(model.weights))
    assert np.array_equal(back.visible_bias, model.visible_bias)
    assert np.array_equal(back.hidden_bias, model.hidden_bias)
    assert (back.visible_units, back.hidden_units) == (model.visible_units, model.hidden_units)
    assert back.temperature == 0.3
    assert os.listdir(tmp_path) == ["m.npz"]


def test_defaults_and_other_dtypes(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, **{k: v.astype(np.float32) for k, v in PARTS.items()}, comment="unknown keys are ignored")
    model = mg.load(str(path))
    assert model.visible_units.name == "spin"
    assert model.temperature == 1.0
    np.savez_compressed(path, **PARTS, visible_units=np.bytes_(b"binary"), temperature=np.array([2]))
    assert mg.load(path).visible_units.name == "binary"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            dict(weights=None),
            "lacks the key 'weights'; a model has weights .or weights_data, .*, visible_bias, hidden_bias$",
        ),
        (dict(hidden_bias=None), "lacks the key 'hidden_bias'"),
        (dict(weights=np.array([[object()]])), "'weights' holds pickled objects, which are refused"),
        (dict(weights=np.array([["a"]])), "'weights' has dtype <U1"),
        (dict(visible_bias=np.zeros(2, complex)), "'visible_bias' has dtype complex128"),
        (dict(visible_units=3), "'visible_units' has dtype int64; it must hold text"),
        (dict(visible_units="fermion"), "visible_units is 'fermion'"),
        (dict(visible_bias=np.zeros(5)), "visible_bias has length 5"),
        (dict(weights=np.full((2, 3), np.nan)), "weights holds NaN"),
        (dict(temperature=0.0), "temperature"),
        (dict(temperature=np.ones(2)), "'temperature' must hold one number"),
        (dict(version=99), "format version 99"),
        (dict(weights_data=np.ones(1)), "both 'weights' and 'weights_data'"),
        (
            dict(weights=None, weights_data=np.ones(1)),
            "lacks the key 'weights_indices'; a model has weights_data, .*or weights",
        ),
    ],
)
def test_bad_contents(tmp_path, change, message):
    path = tmp_path / "m.npz"
    np.savez(path, **{k: v for k, v in (PARTS | change).items() if v is not None})
    with pytest.raises(ValueError, match=message) as error:
        mg.load(path)
    assert "m.npz" in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        dict(weights_indices=np.array([0, 7])),
        dict(weights_indices=np.array([0, -1])),
        dict(weights_indptr=np.array([0, 1])),
        dict(weights_indptr=np.array([0, 5, 2])),
        dict(weights_indptr=np.array([0, 2, 0])),
        dict(weights_indptr=np.array([0, 0, 0])),
        dict(weights_indptr=np.array([1, 1, 2])),
        dict(weights_indptr=np.array([0, 1, 2**63], dtype=np.uint64)),
        dict(weights_indices=np.array([0, 2**40])),
        dict(weights_indices=np.array([[0, 2]])),
        dict(weights_data=np.ones(3)),
        dict(weights_shape=np.array([2, -3])),
        dict(weights_shape=np.array([2, 2**62])),
        dict(weights_shape=np.array([2])),
        dict(weights_indices=np.array([0.5, 1.0])),
    ],
)
def test_bad_sparse_parts(tmp_path, change):
    np.savez(tmp_path / "good.npz", **SPARSE)
    assert mg.load(tmp_path / "good.npz").weights.nnz == 2
    np.savez(tmp_path / "m.npz", **(SPARSE | change))
    message = "weights_indices|do not fit|inconsistent|but weights has 4611686018427387904"
    with pytest.raises(ValueError, match=message):
        mg.load(tmp_path / "m.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(grid_shape=np.array([np.inf, 2])), "'grid_shape' must hold whole numbers"),
        (dict(split_visible=np.arange(2)), "without its counterpart"),
        (
            dict(split_visible=np.array([0, 0]), split_hidden=np.array([2, 3, 4])),
            "split must number every variable once",
        ),
        (dict(split_visible=np.array([0, -1]), split_hidden=np.array([2, 3, 4])), "split must number"),
        (dict(visible_units="gaussian", visible_precision=np.ones(7)), "7 precisions for 2 variables"),
    ],
)
def test_bad_extras(tmp_path, change, message):
    np.savez(tmp_path / "m.npz", **(PARTS | change))
    with pytest.raises(ValueError, match=message):
        mg.load(tmp_path / "m.npz")


@pytest.mark.parametrize(
    "layout",
    [
        dict(grid_shape=np.array([-2, -2]), grid_periodic=np.array([False, False])),
        dict(grid_shape=np.array([5, 1]), grid_periodic=np.array([True, True])),
        dict(layer_sizes=np.array([3, 0, 2])),
        dict(layer_sizes=np.array([1, 1, 1, 2])),
        dict(visible_precision=np.ones(2)),
    ],
)
def test_a_layout_that_does_not_hold_changes_nothing(tmp_path, layout):
    np.savez(tmp_path / "m.npz", **(PARTS | layout))
    assert mg.exact_log_z(mg.load(tmp_path / "m.npz")) == pytest.approx(mg.exact_log_z(mg.rbm(*PARTS.values())))


def test_explicit_zeros_are_no_weights():
    """Zeros stored in a sparse matrix must not be taken for couplings of the layout."""
    rng = np.random.default_rng(0)
    model = mg.dbm(
        [rng.normal(size=(2, 2)), rng.normal(size=(2, 1)), rng.normal(size=(1, 2))], [np.zeros(n) for n in (2, 2, 1, 2)]
    )
    full = sp.coo_array((np.ones(12), np.indices((3, 4)).reshape(2, -1)), shape=(3, 4)).tocsr()
    full.data[:] = model.weights.toarray().ravel()
    copy = mg.MRF(
        full,
        model.visible_bias,
        model.hidden_bias,
        model.visible_units,
        model.hidden_units,
        1.0,
        0.0,
        model.split,
        model.layout,
    )
    assert mg.exact_log_z(copy, method="layers") == pytest.approx(mg.exact_log_z(model, method="enumeration"))


@posix
def test_links_are_followed_and_pipes_are_kept(tmp_path):
    """Links lead to the file; what is no file is neither replaced nor waited for."""
    target, link = tmp_path / "target.npz", tmp_path / "link.npz"
    link.symlink_to(target)
    mg.save(mg.rbm([[1.0]], [0], [0]), link)
    assert link.is_symlink()
    assert mg.load(target).n_visible == 1
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(ValueError, match="not a regular file"):
        mg.save(mg.rbm([[1.0]], [0], [0]), tmp_path / "pipe.npz")
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe.npz").st_mode)


def test_saving_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "m.npz"
    mg.save(mg.rbm([[1.0]], [0], [0]), path)
    before = path.read_bytes()

    def fails(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", fails)
    with pytest.raises(OSError, match="No space"):
        mg.save(mg.rbm([[2.0]], [0], [0]), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.npz"]


def test_saving_where_one_cannot(tmp_path):
    model = mg.rbm([[1.0]], [0], [0])
    with pytest.raises(ValueError, match="cannot write"):
        mg.save(model, tmp_path / "no" / "m.npz")
    with pytest.raises(ValueError, match="is a folder"):
        mg.save(model, tmp_path)
