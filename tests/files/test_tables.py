"""Files of data: rows of numbers, and what is none."""

import numpy as np
import pytest
import scipy.sparse as sp

from marginalis.files import archive
from marginalis.files.tables import load_data


def test_data_files(tmp_path):
    data = np.random.default_rng(0).integers(0, 2, (20, 6))
    np.save(tmp_path / "data.npy", data)
    np.savez(tmp_path / "data.npz", data=data)
    np.savetxt(tmp_path / "data.csv", data, "%d", ",")
    for name in ("data.npy", "data.npz", "data.csv"):
        assert np.array_equal(load_data(tmp_path / name), data)
    (tmp_path / "bom.csv").write_bytes(b"\xef\xbb\xbf0,1\r\n1,0\r\n")
    assert np.array_equal(load_data(tmp_path / "bom.csv"), [[0, 1], [1, 0]])


def test_bad_data_files(tmp_path, monkeypatch):
    def refused(name, message):
        with pytest.raises(ValueError, match=message) as error:
            load_data(tmp_path / name)
        assert name in str(error.value)

    np.save(tmp_path / "objects.npy", np.array([[object()]]), allow_pickle=True)
    refused("objects.npy", "pickled objects, which are refused")
    np.save(tmp_path / "flat.npy", np.ones(3))
    refused("flat.npy", "1 dimensions; it must have 2")
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    refused("words.npy", "must hold real numbers")
    whole = (tmp_path / "flat.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-40])
    refused("cut.npy", "data file")
    (tmp_path / "noise.npy").write_bytes(b"noise")
    refused("noise.npy", "not a valid array")
    (tmp_path / "noise.npz").write_bytes(b"noise")
    refused("noise.npz", "not a readable npz archive")
    np.savez(tmp_path / "other.npz", rows=np.ones((2, 2)))
    refused("other.npz", "lacks the key 'data'; it has rows")
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_matrix(np.eye(3)))
    refused("sparse.npz", "1 dimensions; it must have 2")
    (tmp_path / "empty.csv").write_text("")
    refused("empty.csv", "the table is empty")
    (tmp_path / "ragged.csv").write_text("1,2\n3\n")
    refused("ragged.csv", "number of columns changed")
    (tmp_path / "words.csv").write_text("1,two\n")
    refused("words.csv", "could not convert")
    refused("data.txt", "must end in .npy, .npz or .csv")
    np.save(tmp_path / "large.npy", np.ones((3, 3)))
    monkeypatch.setattr(archive, "MAX_BYTES", 100)
    refused("large.npy", "the limit is")
