"""One door for all model files: by content when read, by ending when written."""

import io
import pickle
import zipfile

import numpy as np
import pytest

import marginalis as mg

W, B, C = np.arange(6.0).reshape(3, 2) / 5.0, np.array([0.1, -0.2, 0.3]), np.array([0.5, -0.5])


def test_formats_are_detected_from_the_content(tmp_path):
    model = mg.rbm(W, B, C)
    wanted = mg.exact_log_z(model)
    for ending in (".npz", ".uai", ".json"):
        mg.save(model, tmp_path / f"m{ending}")
        (tmp_path / f"m{ending}").rename(tmp_path / "m.dat")
        assert mg.exact_log_z(mg.load(tmp_path / "m.dat")) == pytest.approx(wanted, rel=1e-13)


def test_any_other_ending_is_npz(tmp_path):
    mg.save(mg.rbm(W, B, C), tmp_path / "m.model")
    assert zipfile.is_zipfile(tmp_path / "m.model")
    for ending in (".h5", ".pt"):
        with pytest.raises(ValueError, match=f"{ending} files are not written; .npz, .uai, .json, .coo, .rudy are"):
            mg.save(mg.rbm(W, B, C), tmp_path / f"m{ending}")
    with pytest.raises(ValueError, match="path is 3; it must name a file"):
        mg.save(mg.rbm(W, B, C), 3)
    with pytest.raises(ValueError, match="path is None; it must name a model file"):
        mg.load(None)


def test_binary_formats_that_are_not_read(tmp_path):
    path = tmp_path / "m"
    for content, problem in (
        (pickle.dumps({"W": W}), "is a pickle, and pickles are not read"),
        (b"DIMODBQM\x02\x00", "is dimod's binary format"),
        (b"\xff\xfe\x00\x01", "is neither text nor in a supported binary format"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=problem):
            mg.load(path)


def test_evidence_for_any_model(tmp_path):
    """Held variables of an npz file: summed or integrated over their values they give the ln Z of the whole model."""
    model = mg.dbm([W, W.T], [B, C, B])
    mg.save(model, tmp_path / "m.npz")
    held = mg.load(tmp_path / "m.npz", {0: 1, 4: 0})
    assert tuple(held.labels) == (1, 2, 3, 5, 6, 7)
    log_z = mg.exact_log_z(model)
    other = [mg.load(tmp_path / "m.npz", {0: a, 4: b}) for a in (0, 1) for b in (0, 1)]
    assert np.logaddexp.reduce([mg.exact_log_z(x) for x in other]) == pytest.approx(log_z, rel=1e-13)
    model = mg.rbm(W / 9, B, C, units="gaussian")
    mg.save(model, tmp_path / "g.npz")
    grid, width = np.linspace(-10.0, 10.0, 201, retstep=True)
    held = [mg.exact_log_z(mg.load(tmp_path / "g.npz", {0: x})) for x in grid]
    assert np.logaddexp.reduce(held) + np.log(width) == pytest.approx(mg.exact_log_z(model), rel=1e-12)


def test_options_go_with_their_formats(tmp_path):
    mg.save(mg.rbm(W, B, C), tmp_path / "m.npz")
    with pytest.raises(ValueError, match="update is 3; it applies to checkpoints"):
        mg.load(tmp_path / "m.npz", update=3)
    with pytest.raises(ValueError, match="maxcut applies to rudy files only"):
        mg.load(tmp_path / "m.npz", maxcut=True)


def test_factors_are_written_where_they_fit(tmp_path):
    equal = np.where(np.eye(2) == 1, 0.0, -np.inf)
    hard = mg.FactorModel((2, 2), ((0, 1),), (equal,))
    triple = mg.FactorModel((2, 2, 2), ((0, 1, 2),), (np.arange(8.0).reshape(2, 2, 2),))
    for model in (hard, triple):
        for ending in (".json", ".rudy"):
            with pytest.raises(ValueError, match="the factor of"):
                mg.save(model, tmp_path / f"m{ending}")
        mg.save(model, tmp_path / "m.uai")
        again = mg.load(tmp_path / "m.uai")
        assert isinstance(again, mg.FactorModel)
        assert np.exp(again.tables[0] - again.tables[0].max()) == pytest.approx(
            np.exp(model.tables[0] - model.tables[0].max()), rel=1e-12
        )
    pairs = mg.FactorModel((2, 2), ((0, 1),), (np.array([[1.0, 2.0], [3.0, 5.0]]),))
    mg.save(pairs, tmp_path / "m.npz")
    assert mg.exact_log_z(mg.load(tmp_path / "m.npz")) == pytest.approx(np.logaddexp.reduce([1.0, 2.0, 3.0, 5.0]))


def torch_like(members):
    """An archive of the shape that torch.save has."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def test_files_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    wanted = mg.exact_log_z(mg.rbm(W, B, C, units="binary"))
    state = {"W": torch.tensor(W), "a": torch.tensor(B), "b": torch.tensor(C)}
    torch.save(state, tmp_path / "m.pt")
    assert mg.exact_log_z(mg.load(tmp_path / "m.pt")) == wanted
    torch.save({"epoch": 3, "model_state_dict": state}, tmp_path / "checkpoint.pth")
    assert mg.exact_log_z(mg.load(tmp_path / "checkpoint.pth")) == wanted
    torch.save({"W": state["W"]}, tmp_path / "bad.pt")
    with pytest.raises(ValueError, match=r"bad\.pt: state has no visible biases: looked for"):
        mg.load(tmp_path / "bad.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ValueError, match="holds a list; it must hold a state_dict"):
        mg.load(tmp_path / "list.pt")


class Evil:
    def __reduce__(self):
        return print, ("code was run",)


def test_files_of_torch_do_not_run_code(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    torch.save({"W": Evil()}, tmp_path / "m.pt")
    with pytest.raises(ValueError, match=r"holds pickled objects.*: save state_dict\(\)"):
        mg.load(tmp_path / "m.pt")
    assert capsys.readouterr().out == ""


def test_files_of_torch_that_claim_more_than_they_hold(tmp_path):
    torch = pytest.importorskip("torch")
    state = {"W": torch.zeros(1).expand(30_000, 20_000), "a": torch.zeros(30_000), "b": torch.zeros(20_000)}
    torch.save(state, tmp_path / "m.pt")
    with pytest.raises(ValueError, match=r"the limit is|expands to 457\d MiB, over 100 times its size"):
        mg.load(tmp_path / "m.pt")


def test_files_of_torch_whose_keys_take_for_ever(tmp_path):
    """A key of 60 tuples, each of which holds the one before twice: its hash looks at 2^60 values."""
    pytest.importorskip("torch")
    pickled = b"\x80\x02}" + b")q\x00" + b"".join(b"h%ch%c\x86q%c" % (k, k, k + 1) for k in range(60)) + b"K\x01s."
    (tmp_path / "m.pt").write_bytes(torch_like({"m/data.pkl": pickled, "m/version": b"3\n", "m/byteorder": b"little"}))
    with pytest.raises(ValueError, match="holds tuples inside tuples beyond all measure"):
        mg.load(tmp_path / "m.pt")


def test_damaged_files_of_torch_are_one_plain_line(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"W": torch.tensor(W), "a": torch.tensor(B), "b": torch.tensor(C)}, tmp_path / "m.pt")
    whole, rng = (tmp_path / "m.pt").read_bytes(), np.random.default_rng(3)
    for _ in range(100):
        content = bytearray(whole)
        for at in rng.integers(0, len(content), rng.integers(1, 4)):
            content[at] = rng.integers(256)
        (tmp_path / "m.pt").write_bytes(content)
        try:
            message = str(mg.load(tmp_path / "m.pt"))
        except ValueError as error:
            message = str(error)
        assert len(message) < 290
        assert message.isprintable()


def test_an_empty_file_name_is_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot write '': the name of the file is empty"):
        mg.save(mg.rbm(W, B, C), "")
    with pytest.raises(ValueError, match="No such file"):
        mg.load("")


def test_without_torch(tmp_path, monkeypatch):
    (tmp_path / "m.pt").write_bytes(torch_like({"m/data.pkl": b"", "m/version": b"3"}))
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(ValueError, match="is a torch file, and torch is not installed"):
        mg.load(tmp_path / "m.pt")
