"""HDF5 files from strangers: ones that hang, crash or claim gigabytes."""

import time
import zlib

import numpy as np
import pytest
from rbms_files import random_run, write_run

import marginalis as mg
from marginalis.files import hdf5

h5py = pytest.importorskip("h5py")


def test_a_byte_that_makes_hdf5_loop(tmp_path, monkeypatch):
    """The size of the free space behind a word of variable length: HDF5 walks over it without end."""
    path = write_run(tmp_path / "run.h5", "BBRBM", random_run("BBRBM"))
    content = bytearray(path.read_bytes())
    content[content.find(b"BBRBM") + 16] = 21
    path.write_bytes(content)
    monkeypatch.setattr(hdf5, "_SECONDS", 1.0)
    begin = time.perf_counter()
    with pytest.raises(ValueError, match=r"run\.h5: is (damaged: reading it takes more than 1 s|not a readable HDF5)"):
        mg.load(path)
    assert time.perf_counter() - begin < 60.0
    assert mg.load(write_run(tmp_path / "next.h5", "BBRBM", random_run("BBRBM"))).n_visible == 4


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("import time; time.sleep(60)", "reading it takes more than 0 s"),
        ("import sys; sys.stdin.readline(); sys.exit(3)", "reading it fails"),
        ("import os; os.abort()", "reading it fails"),
    ],
)
def test_a_reader_that_hangs_or_dies(tmp_path, monkeypatch, script, problem):
    path = write_run(tmp_path / "run.h5", "BBRBM", random_run("BBRBM"))
    (tmp_path / "script.py").write_text(script)
    hdf5._end_idle()
    monkeypatch.setattr(hdf5, "_CHILD", tmp_path / "script.py")
    if "sleep" in script:
        monkeypatch.setattr(hdf5, "_SECONDS", 0.2)
    with pytest.raises(ValueError, match=problem):
        mg.load(path)


def test_arrays_that_claim_more_than_the_file_holds(tmp_path):
    """Small files whose arrays, or the chunks of them, would take gigabytes."""

    def attempt(shape, vbias=(4,), **how):
        with h5py.File(tmp_path / "run.h5", "w") as file:
            file["model_type"] = "BBRBM"
            group = file.create_group("update_1/params")
            group.create_dataset("weight_matrix", shape=shape, dtype=np.float32, **how)
            group.create_dataset("vbias", shape=vbias, dtype=np.float32)
            group["hbias"] = np.zeros(5, dtype=np.float32)
        with pytest.raises(ValueError, match="far more than") as error:
            mg.load(tmp_path / "run.h5")
        return str(error.value)

    assert "weight_matrix' has shape (5000, 5000), far more than the file holds" in attempt((5000, 5000))
    assert "has chunks of 38" in attempt((4, 5), chunks=(10_000, 1000), maxshape=(None, None), compression="gzip")
    assert "vbias' has shape (1000000,), far more" in attempt((4, 5), vbias=(1_000_000,))


def test_a_stream_that_expands_to_more_than_its_chunk(tmp_path):
    """The compressed data of a small chunk hold a gigabyte of zeros: the memory of the reader is limited."""
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["model_type"] = "BBRBM"
        group = file.create_group("update_1/params")
        chunk = group.create_dataset("weight_matrix", (4, 5), np.float64, chunks=(4, 5), compression="gzip")
        chunk.id.write_direct_chunk((0, 0), zlib.compress(bytes(1 << 30), 1))
        group["vbias"], group["hbias"] = np.zeros(4), np.zeros(5)
    with pytest.raises(ValueError, match=r"run\.h5: .*(not a readable HDF5 file|memory|damaged)"):
        mg.load(path)


def test_mutated_files_are_models_or_short_errors(tmp_path):
    rng = np.random.default_rng(7)
    write_run(tmp_path / "run.h5", "PBRBM", random_run("PBRBM", (1,)))
    with h5py.File(tmp_path / "run.h5", "a") as file:
        params = file["update_1/params"]
        values = params["weight_matrix"][()]
        del params["weight_matrix"]
        params.create_dataset("weight_matrix", data=values, chunks=(2, 3, 5), compression="gzip", fletcher32=True)
    whole = (tmp_path / "run.h5").read_bytes()
    for _ in range(60):
        content = bytearray(whole)
        for at in rng.integers(0, len(content), rng.integers(1, 6)):
            content[at] = rng.integers(256)
        (tmp_path / "run.h5").write_bytes(content)
        try:
            message = str(mg.load(tmp_path / "run.h5").n_variables)
        except ValueError as error:
            message = str(error)
        assert len(message) < 290
        assert message.isprintable()
