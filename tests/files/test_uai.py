"""UAI files: what is read is what the format says, and errors say where."""

import gzip
import lzma
import math

import numpy as np
import pytest
from conftest import command

import marginalis as mg
from marginalis.files import archive, text
from marginalis.files.uai import parse_evidence

# P(x0, x1, x2) with 2, 3 and 2 states; the last variable of a scope runs fastest
SMALL = "MARKOV\n3\n2 3 2\n3\n1 0\n2 0 1\n2 2 1\n\n2\n 1.0 2.0\n\n6\n 1 2 3\n 4 5 6\n6\n 1 1 2\n 3 1 1\n"
SMALL_Z = sum(
    [1.0, 2.0][a] * [[1, 2, 3], [4, 5, 6]][a][b] * [[1, 1, 2], [3, 1, 1]][c][b]
    for a in range(2)
    for b in range(3)
    for c in range(2)
)


def write(tmp_path, content, name="m.uai"):
    path = tmp_path / name
    path.write_text(content)
    return path


def test_the_last_variable_runs_fastest(tmp_path):
    model = mg.load(write(tmp_path, SMALL))
    assert mg.exact_log_z(model) == pytest.approx(math.log(SMALL_Z), rel=1e-13)
    held = mg.load(write(tmp_path, SMALL), {1: 2})
    wanted = sum([1, 2][a] * [3, 6][a] * [2, 1][c] for a in range(2) for c in range(2))
    assert mg.exact_log_z(held) == pytest.approx(math.log(wanted), rel=1e-13)
    assert tuple(held.labels) == (0, 2)


@pytest.mark.parametrize("evidence", ["2 0 1 1 2\n", "1\n2 0 1 1 2\n", "1 2\n0 1\n1 2", "  2\n 1 2\n0 1 "])
def test_evidence_in_both_shapes(tmp_path, evidence):
    model = mg.load(write(tmp_path, SMALL), write(tmp_path, evidence, "m.evid"))
    assert mg.exact_log_z(model) == pytest.approx(math.log(2 * 6 * (2 + 1)), rel=1e-13)


@pytest.mark.parametrize("evidence", ["0", "1\n0\n"])
def test_no_evidence(tmp_path, evidence):
    model = mg.load(write(tmp_path, SMALL), write(tmp_path, evidence, "m.evid"))
    assert mg.exact_log_z(model) == pytest.approx(math.log(SMALL_Z), rel=1e-13)


@pytest.mark.parametrize(
    ("evidence", "problem"),
    [
        (" \n", "is empty; no evidence is written as 0"),
        ("1 7 0", "names the variable 7, which the model does not have"),
        ("1 0 2", "holds variable 0 in state 2; it has 2 states, from 0"),
        ("1 0 x", r"token 3 \(line 1\): the state of variable 0 is 'x'; it must be a whole number"),
        ("2 0 1", "evidence for 2 variables takes 4 tokens; there are 2"),
        ("2\n1 0 1 1 1 0", "evidence for 2 variables takes 4 tokens"),
        ("3 1 0 1", "there are 3 samples of evidence"),
        ("2 0 1 0 0", "variable 0 is held in two states"),
        ("1 -1 0", "must be at least 0"),
    ],
)
def test_bad_evidence(tmp_path, evidence, problem):
    with pytest.raises(ValueError, match=problem):
        mg.load(write(tmp_path, SMALL), write(tmp_path, evidence, "m.evid"))


def test_evidence_given_as_a_mapping(tmp_path):
    path = write(tmp_path, SMALL)
    with pytest.raises(ValueError, match=r"the state of 0 in evidence is 0.5; it must be a whole number"):
        mg.load(path, {0: 0.5})
    assert parse_evidence("1 0 1 ") == {0: 1}
    with pytest.raises(ValueError, match="cannot read evidence file"):
        mg.load(path, tmp_path / "none.evid")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("MARKOV", r"token 2 \(line 1\): the file ends where the number of variables should be"),
        ("MARKOV\nmany", "the number of variables is 'many'; it must be a whole number"),
        ("LIMID\n2\n2 2\n0", "the network is 'LIMID'; this package reads MARKOV and BAYES"),
        ("MARKOV\n2\n2 2", r"token 5 \(line 3\): the file ends where the number of factors"),
        ("MARKOV 2 2 0 0", "the number of states of variable 1 is 0"),
        ("MARKOV 2 2 2 1 2 0 2 4 1 1 1 1", r"token 8 \(line 1\): a variable of factor 0 is 2; it must be at most 1"),
        ("MARKOV 2 2 2 1 2 0 -1 4 1 1 1 1", "a variable of factor 0 is -1; it must be at least 0"),
        ("MARKOV 2 2 2 1 2 0 0 4 1 1 1 1", "factor 0 names a variable twice"),
        ("MARKOV 2 2 2 1 3 0 1 4 1 1 1 1", "the number of variables of factor 0 is 3; it must be at most 2"),
        ("MARKOV 2 2 2\n1\n2 0 1\n3 1 1 1", r"token 9 \(line 4\): the table of factor 0 has size '3'; .* need 4"),
        ("MARKOV 2 2 2 1 2 0 1 4 1 1 1", r"the file ends in the table of factor 0, after 3 of 4 values"),
        ("MARKOV 2 2 2 1 2 0 1", "the file ends where the table of factor 0 should be"),
        ("MARKOV 2 2 2 1 2 0 1 4 1 1 one 1", r"token 12 \(line 1\): a size or weight is 'one'; it must be a number"),
        ("MARKOV 2 2 2 1 2 0 1 4 1 nan 1 1", r"token 11 \(line 1\): a weight is 'nan'; it must be a number"),
        ("MARKOV 1 99999999999 0", r"token 3 .*states of variable 0 is 99999999999; it must be at most 16777216"),
        ("MARKOV 2 2 2 1 2 0 1 4 1 -1 1 1", r"token 11 \(line 1\): a weight is '-1'; it must not be negative"),
        ("MARKOV 2 2 2 1 2 0 1 4 1 nan 1 1", "a weight is 'nan'"),
        ("MARKOV 2 2 2 1 2 0 1 4 1 inf 1 1", "a weight is 'inf'; it must be finite"),
        ("MARKOV 2 2 2 1 2 0 1 4 0 0 0 0", "Z = 0: the table of factor 0 holds zeros only"),
        ("MARKOV 2 2 2 1 2 0 1 4 1 1 1 1 1", r"token 14 \(line 1\): there are 1 tokens after the last table"),
        ("MARKOV 2 2 2 2 1 0 1 0 2 0 1 2 1 0", "Z = 0: the factor of"),
        ("MARKOV 99999999999 2", "the number of variables is 99999999999; it must be at most 2"),
        ("MARKOV 2 2 2 1 2 0 1 4.5 1 1 1 1", "has size '4.5'"),
    ],
)
def test_bad_files_say_where(tmp_path, content, problem):
    with pytest.raises(ValueError, match=problem):
        mg.load(write(tmp_path, content))


def test_a_bayesian_network_with_evidence(tmp_path):
    """P(wet) of a two-node network, by Bayes' rule."""
    path = write(tmp_path, "BAYES 2 2 2 2 1 0 2 0 1 2 0.8 0.2 4 0.9 0.1 0.3 0.7")
    assert mg.exact_log_z(mg.load(path)) == pytest.approx(0.0, abs=1e-14)
    assert mg.exact_log_z(mg.load(path, {1: 1})) == pytest.approx(math.log(0.8 * 0.1 + 0.2 * 0.7), rel=1e-13)


@pytest.mark.parametrize(
    "weight", ["-1e-400", "1e-99999999999999999999", "1e99999999999999999999", "-0.5", "1e999999999999"]
)
def test_weights_that_no_logarithm_can_hold(tmp_path, weight):
    with pytest.raises(ValueError, match=r"token 8 \(line 1\): a weight is .*it must (not be negative|be finite)"):
        mg.load(write(tmp_path, f"MARKOV 1 2 1 1 0 2 {weight} 1"))


def test_zeros_in_all_spellings(tmp_path):
    for zero in ("0", "-0.0", "0e99999999999999", "-0e-400"):
        assert mg.exact_log_z(mg.load(write(tmp_path, f"MARKOV 1 2 1 1 0 2 {zero} 3"))) == pytest.approx(math.log(3.0))


def test_scopes_of_more_variables_than_an_array_has_axes(tmp_path):
    n = 20_000
    scope = " ".join(map(str, range(n)))
    many = f"MARKOV {n} {'2 ' * n} 1 {n} {scope} 5 1 1 1 1 1"
    with pytest.raises(ValueError, match="has size '5'; its variables need too many"):
        mg.load(write(tmp_path, many))
    alone = f"MARKOV {n} {'1 ' * (n - 1)} 2 1 {n} {scope} 2 1 3"  # all but one have one state
    assert mg.exact_log_z(mg.load(write(tmp_path, alone))) == pytest.approx(math.log(4.0))


def test_tables_of_a_bayesian_network_that_are_no_probabilities(tmp_path):
    good = "BAYES 2 2 2 2 1 0 2 0 1  2 .3 .7  4 .1 .9 .2 .8"
    assert mg.exact_log_z(mg.load(write(tmp_path, good))) == pytest.approx(0.0, abs=1e-12)
    path = write(tmp_path, good.replace(".2 .8", ".9 .8"))
    with pytest.warns(UserWarning, match=r"the table of factor 1 sums to 1.7 over its last variable \(1\)"):
        mg.load(path)
    done = command("exact", path)
    assert done.returncode == 0
    assert done.stderr.startswith("warning: a BAYES network, but the table of factor 1")


def test_evidence_that_is_neither_a_file_nor_a_mapping(tmp_path):
    path = write(tmp_path, SMALL)
    for evidence in (np.array([0, 1]), [0, 1], 3, b"m.evid"):
        with pytest.raises(ValueError, match="it must name a file or map labels to states"):
            mg.load(path, evidence=evidence)


def test_weights_beyond_floating_point_are_not_zeros(tmp_path):
    path = write(tmp_path, "MARKOV 2 2 2 1 2 0 1 4 1e-400 1e-401 3e-400 1E-402")
    model = mg.load(path)
    assert isinstance(model, mg.MRF)
    assert mg.exact_log_z(model) == pytest.approx(math.log(4.11) - 400 * math.log(10.0), rel=1e-13)
    large = mg.load(write(tmp_path, "MARKOV 1 2 1 1 0 2 1e400 0e5"), None)
    assert large.offset == pytest.approx(400 * math.log(10.0), rel=1e-13)


def test_states_that_cannot_occur_are_gone_before_anything_else(tmp_path):
    """A unary zero clamps a variable, which is then no variable any more, and its pair table is a field."""
    model = mg.load(write(tmp_path, "MARKOV 3 2 2 2 4 1 0 2 0 1 2 1 2 1 2 2 0 5 4 1 2 3 4 4 1 2 3 4 2 1 3"))
    assert tuple(model.labels) == (1, 2)
    wanted = sum(5 * [3, 4][b] * [[1, 2], [3, 4]][b][c] * [1, 3][c] for b in range(2) for c in range(2))
    assert mg.exact_log_z(model) == pytest.approx(math.log(wanted), rel=1e-13)
    estimate = mg.estimate(model, steps=10, chains=10)
    assert abs(estimate.log_z - math.log(wanted)) < 4.5 * estimate.stderr


@pytest.mark.parametrize(
    "pack", [lambda x: x, gzip.compress, lzma.compress, lambda x: lzma.compress(x[:9]) + lzma.compress(x[9:])]
)
def test_compressed_files_are_known_by_content(tmp_path, pack):
    path = tmp_path / "network"
    path.write_bytes(pack(SMALL.encode()))
    assert mg.exact_log_z(mg.load(path)) == pytest.approx(math.log(SMALL_Z), rel=1e-13)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_small_compressed_files_of_long_texts(tmp_path, pack):
    """A quarter of a MiB may expand to gigabytes, of which the words take twenty times as much."""
    path = tmp_path / "m.uai"
    path.write_bytes(pack(SMALL.encode() + b" " * (20 << 20)))
    with pytest.raises(ValueError, match="expands to more than 16 MiB"):
        mg.load(path)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_compressed_files_that_are_cut_or_huge(tmp_path, monkeypatch, pack):
    path = tmp_path / "m.uai.xz"
    path.write_bytes(pack(SMALL.encode() * 50)[:-20])
    with pytest.raises(ValueError, match="damaged or cut short"):
        mg.load(path)
    monkeypatch.setattr(text, "limit", lambda: 8 * 4096)
    path.write_bytes(pack(b" " * 10**6))
    with pytest.raises(ValueError, match="expands to more than 0 MiB, the limit"):
        mg.load(path)


def test_no_header_asks_the_decompressor_for_gigabytes(tmp_path):
    path = tmp_path / "m.uai.xz"
    path.write_bytes(lzma.compress(SMALL.encode(), filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]))
    with pytest.raises(ValueError, match="damaged or cut short"):
        mg.load(path)


@pytest.mark.parametrize("units", ["spin", "binary", ("spin", "binary"), ("categorical:3", "binary")])
@pytest.mark.parametrize("ending", [".uai", ".uai.gz", ".uai.xz"])
def test_written_files_are_read(tmp_path, units, ending):
    rng = np.random.default_rng(5)
    model = mg.rbm(rng.normal(size=(6, 3)), rng.normal(size=6), rng.normal(size=3), units=units, temperature=0.7)
    path = tmp_path / f"m{ending}"
    mg.save(model, path)
    again = mg.load(path)
    assert again.n_variables == model.n_variables
    assert mg.exact_log_z(again) == pytest.approx(mg.exact_log_z(model), rel=1e-13)


def test_constants_are_written(tmp_path):
    """Even ones that no single table could hold."""
    model = mg.FactorModel((2,) * 8, ((0, 1), (2, 3, 4)), (np.zeros((2, 2)), np.ones((2, 2, 2))), 900.0)
    mg.save(model, tmp_path / "m.uai")
    again = mg.load(tmp_path / "m.uai")
    assert again.offset + 0.0 == pytest.approx(again.offset)
    assert len(again.scopes) == 2
    total = again.offset + sum(float(table.ravel()[0]) for table in again.tables)
    assert total == pytest.approx(901.0, rel=1e-13)
    for bad in (
        mg.FactorModel((2,), ((0,),), (np.zeros(2),), 1e4),
        mg.FactorModel((2, 2), ((0,), (1,)), (np.array([0.0, -1e4]), np.zeros(2))),
        mg.FactorModel((), (), (), 1.0),
    ):
        with pytest.raises(ValueError, match=r"for a UAI file|nothing to write"):
            mg.save(bad, tmp_path / "bad.uai")
    assert not (tmp_path / "bad.uai").exists()


def test_sizes_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_BYTES", 64)
    with pytest.raises(ValueError, match="the limit is"):
        mg.load(write(tmp_path, SMALL))
