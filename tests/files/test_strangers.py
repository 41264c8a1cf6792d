"""Files from strangers: cut, damaged, too large, or no files at all."""

import io
import os
import struct
import zipfile

import numpy as np
import pytest
from conftest import posix
from npz_keys import PARTS, SPARSE

import marginalis as mg
from marginalis.cli.options import read_schedule
from marginalis.files import archive
from marginalis.files.tables import load_data


def test_not_an_archive(tmp_path):
    path = tmp_path / "m.npz"
    for content in (b"", b"hello", b"PK\x03\x04broken"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="not a readable npz"):
            mg.load(path)
    np.save(tmp_path / "plain.npy", np.zeros(3))
    with pytest.raises(ValueError, match="not a readable npz"):
        mg.load(tmp_path / "plain.npy")
    with pytest.raises(ValueError, match="No such file"):
        mg.load(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="directory"):
        mg.load(tmp_path)


def test_every_truncation_is_an_error(tmp_path):
    buffer = io.BytesIO()
    np.savez(buffer, **PARTS)
    whole = buffer.getvalue()
    path = tmp_path / "m.npz"
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"m\.npz"):
            mg.load(path)


def test_a_header_that_lies_is_refused(tmp_path):
    """A member that claims a huge shape is refused before any memory is taken for it."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**9)})
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as file:
        file.writestr("weights.npy", header.getvalue() + bytes(8))
    with pytest.raises(ValueError, match="shorter than its header says"):
        mg.load(tmp_path / "m.npz")


def test_a_zip_bomb_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "m.npz"
    np.savez_compressed(path, **(PARTS | dict(weights=np.zeros((1000, 1000)))))
    monkeypatch.setattr(archive, "MAX_BYTES", 10**6)
    with pytest.raises(ValueError, match="limit"):
        mg.load(path)


def test_damaged_archives_and_headers(tmp_path):
    path = tmp_path / "m.npz"
    np.savez_compressed(path, **(PARTS | dict(weights=np.random.default_rng(0).normal(size=(2, 3)))))
    whole = bytearray(path.read_bytes())
    whole[60:90] = bytes(30)
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=r"m\.npz"):
        mg.load(path)
    for header in (b"{'descr': '<f8', 'shape': (2", b"{'descr':'<f8','fortran_order':False,'shape':(True,2)}"):
        text = header.ljust(118) + b"\n"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("weights.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16))
        with pytest.raises(ValueError, match="'weights' is not a valid array"):
            mg.load(path)


def test_a_file_cannot_corrupt_the_heap(tmp_path):
    """SciPy's own full check looks at no index where the last of the row pointers is 0."""
    rows = dict(visible_bias=np.zeros(2), hidden_bias=np.zeros(2), weights_shape=np.array([2, 2]))
    cut = dict(weights_indices=np.array([1, 0, 0, 0, 1]), weights_indptr=np.array([0, 4, 0]))
    np.savez(tmp_path / "c.npz", weights_data=np.ones(5), **cut, **rows)
    with pytest.raises(ValueError, match="do not fit together"):
        mg.load(tmp_path / "c.npz")


@pytest.fixture
def no_files(tmp_path):
    """What one may be given for a file that is none: pipes and devices have no end."""
    os.mkfifo(tmp_path / "pipe")
    named = {"pipe": tmp_path / "pipe", "folder": tmp_path, "zeros": "/dev/zero", "loop": tmp_path / "loop"}
    named["loop"].symlink_to(named["loop"])
    for suffix in ("npz", "npy", "csv"):
        for name, target in named.items():
            (tmp_path / f"{name}.{suffix}").symlink_to(target)
    return tmp_path


@posix
@pytest.mark.parametrize("name", ["pipe", "folder", "zeros", "loop"])
def test_only_regular_files_are_read(no_files, name):
    message = {"folder": "Is a directory", "loop": "Too many levels"}.get(name, "is not a regular file")
    for read in (mg.load, read_schedule, load_data):
        with pytest.raises(ValueError, match=message):
            read(no_files / f"{name}.npz")
    for suffix in ("npy", "csv"):
        with pytest.raises(ValueError, match=message):
            load_data(no_files / f"{name}.{suffix}")


def test_a_large_schedule_file_is_not_read(tmp_path):
    with open(tmp_path / "long.txt", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="the limit is"):
        read_schedule(tmp_path / "long.txt")
    with pytest.raises(ValueError, match="the limit is"):
        mg.load(tmp_path / "long.txt")


def claim(path, shapes, compression=zipfile.ZIP_DEFLATED, size=None):
    """Write an archive whose members are headers with these shapes, and claim to be as long as these say."""
    with zipfile.ZipFile(path, "w", compression) as file:
        for key, shape in shapes.items():
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
            file.writestr(f"{key}.npy", header.getvalue() + bytes(8))
    whole = bytearray(path.read_bytes())
    at = 0
    while (at := whole.find(b"PK\x01\x02", at)) >= 0:  # the length in the directory, which is what a bomb claims
        whole[at + 24 : at + 28] = struct.pack("<I", size or (1 << 32) - 2)
        at += 4
    path.write_bytes(whole)


MATRIX, SIDES = (30_000, 8_000), dict(visible_bias=(30_000,), hidden_bias=(8_000,))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (dict(weights=MATRIX) | SIDES, "expands to 1831 MiB, over 100 times its size"),
        (dict(weights=(2**28, 1), visible_bias=(2**28,), hidden_bias=(1,)), "limit|expands"),
        (dict(weights=(10**6, 1), visible_bias=(10**6,), hidden_bias=(1,)), "expands to 15 MiB"),
        (
            dict(weights=(10, 10), visible_bias=(11,), hidden_bias=(10,)),
            "visible_bias has length 11, but weights has 10",
        ),
        (dict(weights=(10, 10), visible_bias=(10,), hidden_bias=(9,)), "hidden_bias has length 9, but weights has 10"),
        (dict(weights=(10, 10, 1), visible_bias=(10,), hidden_bias=(10,)), "weights has 3 dimensions"),
        (dict(weights=(10, 10), visible_bias=(10, 1), hidden_bias=(10,)), "visible_bias has 2 dimensions"),
        (dict(weights=(2, 2), visible_bias=(2,), hidden_bias=(2,), split_visible=(9,)), "'split_visible' must list"),
        (dict(weights=(2, 2), visible_bias=(2,), hidden_bias=(2,), layer_sizes=(9,)), "'layer_sizes' must list"),
        (dict(weights=(2, 2), visible_bias=(2,), hidden_bias=(2,), grid_shape=(99,)), "'grid_shape' must list"),
        (dict(weights=(2, 2), visible_bias=(2,), hidden_bias=(2,), offset=(9,)), "'offset' must hold one number"),
        (dict(weights=(2, 2), visible_bias=(2,), hidden_bias=(2,), hidden_precision=(9,)), "9 precisions for 2"),
        (dict(weights_data=(5,), weights_indices=(4,), weights_indptr=(3,), weights_shape=(2,)), "inconsistent"),
        (dict(weights_data=(5,), weights_indices=(5,), weights_indptr=(4,), weights_shape=(2,)), "inconsistent"),
    ],
)
def test_headers_are_compared_before_data_are_read(tmp_path, monkeypatch, shapes, message):
    sides = {} if "weights" in shapes else dict(visible_bias=(2,), hidden_bias=(2,))
    claim(tmp_path / "m.npz", shapes | sides)

    def reads(*args):
        raise AssertionError("data were read")

    monkeypatch.setattr(archive, "read_array", reads)
    with pytest.raises(ValueError, match=message):
        mg.load(tmp_path / "m.npz")


def test_other_compressions_are_refused(tmp_path):
    shapes = dict(weights=(1, 1), visible_bias=(1,), hidden_bias=(1,))
    for way in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        claim(tmp_path / "m.npz", shapes, way, size=136)
        with pytest.raises(ValueError, match="compression method that NumPy does not write"):
            mg.load(tmp_path / "m.npz")


def test_the_limit_is_a_share_of_the_memory(tmp_path, monkeypatch):
    mg.save(mg.rbm(np.ones((100, 100)), np.zeros(100), np.zeros(100)), tmp_path / "m.npz")
    assert mg.load(tmp_path / "m.npz").n_visible == 100
    monkeypatch.setattr(archive, "memory", lambda: 640_000)
    with pytest.raises(ValueError, match="limit"):
        mg.load(tmp_path / "m.npz")


@pytest.mark.parametrize(
    "change",
    [
        dict(visible_units="y" * 5000),
        dict(visible_units="\x1b[2J\n\r\x07"),
        dict(visible_units="categorical:" + ",".join(["7"] * 500)),
        dict(visible_units="categorical:" + "9" * 1000),
        dict(weights=np.zeros((2, 3), [(f"field{i}", "f8") for i in range(200)])),
        dict(temperature=-1e300),
        dict(version=1e300),
    ],
)
def test_messages_are_short_and_printable(tmp_path, change):
    folder = tmp_path / ("a" * 200)
    folder.mkdir()
    np.savez(folder / "m.npz", **(PARTS | change))
    with pytest.raises(ValueError, match="model file") as error:
        mg.load(folder / "m.npz")
    assert len(str(error.value)) < 290
    assert str(error.value).isprintable()


@pytest.mark.parametrize("text", ["z" * 10**5, "1,\x1b[2J\n", "1,2\n3\n", "\x00" * 500, "0.5 " * 500])
def test_text_files_from_strangers(tmp_path, text):
    (tmp_path / "d.csv").write_text(text)
    for read in (load_data, read_schedule):
        with pytest.raises(ValueError, match=r"d\.csv") as error:
            read(tmp_path / "d.csv")
        assert len(str(error.value)) < 290
        assert str(error.value).isprintable()


def test_mutated_files_are_models_or_short_errors(tmp_path):
    """Bytes of good files changed at random, in their data, headers and directories."""
    rng = np.random.default_rng(0)
    files = []
    for write in (np.savez, np.savez_compressed):
        for parts in (PARTS | dict(visible_units="binary", temperature=2.0), SPARSE):
            buffer = io.BytesIO()
            write(buffer, **parts)
            files.append(buffer.getvalue())
    for _ in range(400):
        content = bytearray(files[rng.integers(len(files))])
        for at in rng.integers(0, len(content), rng.integers(1, 5)):
            content[at] = rng.integers(256)
        (tmp_path / "m.npz").write_bytes(content)
        try:
            model = mg.load(tmp_path / "m.npz")
        except ValueError as error:
            message = str(error)
        else:
            message = str(model.n_variables)
        assert len(message) < 290
        assert message.isprintable()
