"""Files of data: rows of numbers, and what is none."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import command

import marginalis as mg
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
    (tmp_path / "words.csv").write_text("1,2\n1,two\n")
    refused("words.csv", "could not convert")
    refused("data.txt", "must end in .npy, .npz, .csv, .h5")
    np.save(tmp_path / "large.npy", np.ones((3, 3)))
    monkeypatch.setattr(archive, "MAX_BYTES", 100)
    refused("large.npy", "the limit is")


def test_columns_that_have_names(tmp_path):
    model = mg.from_edges([(0, 1), (1, 2)], coupling=[0.5, -0.3], field=[0.1, 0.2, 0.3], labels=("x", 7, "z"))
    (tmp_path / "d.csv").write_text('z, "x",7\n1,-1,1\n-1,1,1\n')
    rows, labels = load_data(tmp_path / "d.csv")
    assert labels == ["z", "x", 7]
    found = mg.log_likelihood(model, (rows, labels), 0.0).per_sample
    assert np.array_equal(found, mg.log_likelihood(model, [[-1, 1, 1], [1, 1, -1]], 0.0).per_sample)
    mg.save(model, tmp_path / "m.npz")
    done = command("likelihood", tmp_path / "m.npz", tmp_path / "d.csv", "--log-z", 0, "--json")
    assert json.loads(done.stdout)["mean"] == found.mean()
    (tmp_path / "d.csv").write_text("z,x\n1,-1,1\n")
    with pytest.raises(ValueError, match="names 2 columns; its rows have 3"):
        load_data(tmp_path / "d.csv")


def test_data_files_of_rbms(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["samples"] = np.array([[0, 1], [1, 1]], dtype=np.int8)
        file["labels"] = np.array([3, 4])
    assert np.array_equal(load_data(tmp_path / "d.h5"), [[0, 1], [1, 1]])
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["data"] = np.zeros(2)
    with pytest.raises(ValueError, match="lacks the key 'samples'; it has data"):
        load_data(tmp_path / "d.h5")


def test_aligned_sequences(tmp_path):
    path = tmp_path / "d.fasta"
    path.write_text(">one\n-AC\nDY\n\n>two x\nWYAC-\n")
    assert np.array_equal(load_data(path), [[0, 1, 2, 3, 20], [19, 20, 1, 2, 0]])
    path.write_text(">one\n-acgt\n>two\nTTTTT\n")
    assert np.array_equal(load_data(path), [[0, 1, 2, 3, 4], [4, 4, 4, 4, 4]])
    for text, problem in (
        (">a\nAC\n>b\nA\n", "sequence 2 has 1 letters, the first has 2: they must be aligned"),
        (">a\nAZ\n", "has the letter 'Z'; the letters are -ACDEFGHIKLMNPQRSTVWY"),
        ("AC\n", "does not begin with '>'"),
        (">a\n>b\n", "holds no sequences"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=problem):
            load_data(path)


def test_aligned_sequences_as_rbms_reads_them(tmp_path):
    pytest.importorskip("torch")
    fasta = pytest.importorskip("rbms.dataset.fasta_utils")
    rng = np.random.default_rng(4)
    for alphabet in ("protein", "dna", "rna"):
        tokens = fasta.get_tokens(alphabet)
        states = np.vstack([np.arange(len(tokens)), rng.integers(0, len(tokens), (5, len(tokens)))])
        text = "".join(f">{k}\n{fasta.decode_sequence(row, tokens)}\n" for k, row in enumerate(states))
        (tmp_path / "d.fa").write_text(text)
        assert np.array_equal(load_data(tmp_path / "d.fa"), states)
