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
    refused("data.txt", "must end in .npy, .npz, .csv, .json, .h5")
    np.save(tmp_path / "large.npy", np.ones((3, 3)))
    monkeypatch.setattr(archive, "MAX_BYTES", 100)
    refused("large.npy", "the limit is")


def test_row_names_of_pandas_and_r(tmp_path):
    """The first column has no name then."""
    (tmp_path / "pandas.csv").write_text(",0,1\n0,1,0\n1,0,1\n")
    rows, labels = load_data(tmp_path / "pandas.csv")
    assert (labels, rows.tolist()) == ([0, 1], [[1.0, 0.0], [0.0, 1.0]])
    (tmp_path / "r.csv").write_text('"","item1","item2"\n"Ann, B.",1,0\n"2",0,1\n')
    rows, labels = load_data(tmp_path / "r.csv")
    assert (labels, rows.tolist()) == (["item1", "item2"], [[1.0, 0.0], [0.0, 1.0]])


CHAIN = mg.from_edges([(0, 1), (1, 2)], coupling=[0.5, -0.3], field=[0.1, 0.2, 0.3], labels=("a", "b", (0, 1)))
STATES = [[1, -1, 1], [1, -1, 1], [-1, -1, 1]]


def test_tables_of_sample_sets(tmp_path):
    """Frames of a sample set have columns that are no variables."""
    wanted = mg.log_likelihood(CHAIN, (STATES, CHAIN.labels), 0.0).per_sample
    labels = ["energy", "b", "a", (0, 1), "num_occurrences"]
    rows = [[0.5, -1, 1, 1, 2], [0.1, -1, -1, 1, 1], [0.1, 1, 1, 1, 0]]
    assert np.array_equal(mg.log_likelihood(CHAIN, (rows, labels), 0.0).per_sample, wanted)
    for count, problem in ((0.5, "no whole numbers"), (-1, "below 0"), (1e15, "would not fit the memory")):
        rows[0][-1] = count
        with pytest.raises(ValueError, match=problem):
            mg.log_likelihood(CHAIN, (rows, labels), 0.0)
    with pytest.raises(ValueError, match="has a column 'energy', which is no label"):
        mg.log_likelihood(CHAIN, (np.array(rows)[:, :4], labels[:4]), 0.0)
    named = mg.from_edges([(0, 1)], coupling=0.3, labels=("energy", "num_occurrences"))
    assert len(mg.log_likelihood(named, ([[1, -1]], ["energy", "num_occurrences"]), 0.0).per_sample) == 1


def sample_set(**changed):
    """Return what dimod writes for the states above."""

    def array(data):
        return {"type": "array", "data": data, "data_type": "int8", "use_bytes": False}

    return {
        "type": "SampleSet",
        "version": {"sampleset_schema": "3.2.0"},
        "sample_data": array([[5], [4]]),
        "sample_packed": True,
        "vectors": {"energy": array([0, 1]), "num_occurrences": array([2, 1])},
        "variable_labels": ["a", "b", [0, 1]],
        "variable_type": "SPIN",
        **changed,
    }


def test_sample_sets_in_json(tmp_path):
    path = tmp_path / "s.json"
    wanted = mg.log_likelihood(CHAIN, (STATES, CHAIN.labels), 0.0).per_sample
    plain = {"data": [[1, -1, 1], [-1, -1, 1]]}
    for document in (sample_set(), sample_set(sample_data=plain, sample_packed=False)):
        path.write_text(json.dumps(document))
        assert np.array_equal(mg.log_likelihood(CHAIN, load_data(path), 0.0).per_sample, wanted)
    path.write_text(json.dumps(sample_set(variable_type="BINARY")))  # Zeros and ones become spins.
    assert np.array_equal(mg.log_likelihood(CHAIN, load_data(path), 0.0).per_sample, wanted)
    mg.save(CHAIN, tmp_path / "m.npz")
    path.write_text(json.dumps(sample_set()))
    done = command("likelihood", tmp_path / "m.npz", path, "--log-z", 0, "--json")
    assert json.loads(done.stdout)["samples"] == 3
    for changed, problem in (
        ({"type": "BQM"}, "is JSON, but not a sample set"),
        ({"version": {"sampleset_schema": "2.0.0"}}, "has schema version '2.0.0'"),
        ({"sample_data": {"use_bytes": True, "data": ""}}, "write the file with use_bytes=False"),
        ({"sample_data": {"data": [[1, 2]]}}, "sample_data must have 1 words of 32 bits for 3 variables"),
        ({"sample_data": {"data": [[-1]]}}, "sample_data must have 1 words"),
        ({"sample_data": {"data": [[1], [2]]}, "sample_packed": False}, "sample_data has 1 columns for 3 variables"),
        ({"vectors": {}}, "num_occurrences must be an array"),
        ({"vectors": {"num_occurrences": {"data": [1]}}}, "one for each row"),
        ({"vectors": {"num_occurrences": {"data": [10**15, 1]}}}, "would not fit the memory"),
        ({"variable_labels": []}, "variable_labels must list"),
        ({"variable_type": "INTEGER"}, "it must be SPIN or BINARY"),
    ):
        path.write_text(json.dumps(sample_set(**changed)))
        with pytest.raises(ValueError, match=problem):
            load_data(path)


def test_sample_sets_of_dimod_in_files(tmp_path):
    dimod = pytest.importorskip("dimod")
    rng = np.random.default_rng(4)
    model = mg.ising_grid((7, 10))
    states = np.sign(rng.normal(size=(9, 70))).astype(np.int8)
    found = dimod.SampleSet.from_samples(states, energy=0.0, vartype="SPIN", num_occurrences=np.arange(1, 10))
    wanted = mg.log_likelihood(model, np.repeat(states, np.arange(1, 10), axis=0), 0.0).per_sample
    for options in ({}, {"pack_samples": False}):
        (tmp_path / "s.json").write_text(json.dumps(found.to_serializable(**options)))
        assert np.array_equal(mg.log_likelihood(model, load_data(tmp_path / "s.json"), 0.0).per_sample, wanted)
    pytest.importorskip("pandas")
    frame = found.to_pandas_dataframe()
    frame.to_csv(tmp_path / "s.csv")
    for data in (frame, load_data(tmp_path / "s.csv")):
        assert np.array_equal(mg.log_likelihood(model, data, 0.0).per_sample, wanted)


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
