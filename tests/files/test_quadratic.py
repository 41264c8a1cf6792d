"""Files of spins and binaries: dimod's JSON and COO, rudy; and adabmDCA's Potts parameters."""

import itertools
import json

import numpy as np
import pytest

import marginalis as mg


def random_model(units="spin", field=1.0, temperature=1.0):
    rng = np.random.default_rng(11)
    edges = [(0, 1), (1, 2), (2, 0), (2, 3), (4, 5)]  # with a triangle
    return mg.from_edges(
        edges, coupling=rng.normal(size=5), field=field * rng.normal(size=6), units=units, temperature=temperature
    )


def write(tmp_path, content, name="m"):
    path = tmp_path / name
    path.write_text(content)
    return path


@pytest.mark.parametrize("units", ["spin", "binary"])
@pytest.mark.parametrize("ending", ["json", "coo"])
def test_written_files_are_read_here_and_by_dimod(tmp_path, units, ending):
    model, path = random_model(units, temperature=0.6), tmp_path / f"m.{ending}"
    mg.save(model, path)
    wanted = mg.exact_log_z(model)
    again = mg.load(path)
    assert again.visible_units.name == units
    assert mg.exact_log_z(again) == pytest.approx(wanted, rel=1e-13)
    dimod = pytest.importorskip("dimod")
    if ending == "json":
        bqm = dimod.BinaryQuadraticModel.from_serializable(json.loads(path.read_text()))
    else:
        from dimod.serialization import coo

        bqm = coo.loads(path.read_text())
    assert mg.exact_log_z(bqm) == pytest.approx(wanted, rel=1e-13)


def test_files_that_dimod_wrote(tmp_path):
    dimod = pytest.importorskip("dimod")
    from dimod.serialization import coo

    rng = np.random.default_rng(4)
    labels = ["x", ("y", 1), 7]
    linear = dict(zip(labels, rng.normal(size=3), strict=True))
    pairs = dict(zip(itertools.combinations(labels, 2), rng.normal(size=3), strict=True))
    for kind in ("SPIN", "BINARY"):
        bqm = dimod.BinaryQuadraticModel(linear, pairs, 0.7, kind)
        model = mg.load(write(tmp_path, json.dumps(bqm.to_serializable())))
        assert set(model.labels) == set(labels)
        assert mg.exact_log_z(model) == pytest.approx(mg.exact_log_z(bqm), rel=1e-13)
        numbers = dimod.BinaryQuadraticModel({0: 1.5, 5: -0.5}, {(0, 5): 0.25, (5, 9): -2.0}, 0.0, kind)
        model = mg.load(write(tmp_path, coo.dumps(numbers, vartype_header=True)))
        assert tuple(model.labels) == (0, 5, 9)
        assert mg.exact_log_z(model) == pytest.approx(mg.exact_log_z(numbers), rel=1e-13)


def test_a_mixed_model_is_written_in_spins(tmp_path):
    rng = np.random.default_rng(6)
    model = mg.rbm(rng.normal(size=(3, 2)), np.ones(3), np.ones(2), units=("spin", "binary"))
    mg.save(model, tmp_path / "m.json")
    again = mg.load(tmp_path / "m.json")
    assert again.visible_units.name == "spin"
    assert mg.exact_log_z(again) == pytest.approx(mg.exact_log_z(model), rel=1e-13)


def bqm_document(**changes):
    document = {
        "version": {"bqm_schema": "3.0.0"},
        "use_bytes": False,
        "variable_labels": ["a", "b"],
        "variable_type": "SPIN",
        "offset": 0.0,
        "linear_biases": [1.0, 2.0],
        "quadratic_biases": [0.5],
        "quadratic_head": [0],
        "quadratic_tail": [1],
        **changes,
    }
    return json.dumps({key: value for key, value in document.items() if value is not None})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"version": {"bqm_schema": "4.0.0"}}, "has schema version '4.0.0'; this package reads 3.0.0"),
        ({"version": None}, "has schema version None"),
        ({"use_bytes": True}, "write it with use_bytes=False"),
        ({"linear_biases": None}, "lacks the key 'linear_biases'; a binary quadratic model has variable_labels, "),
        ({"variable_type": "REAL"}, "variable_type is 'REAL'"),
        ({"linear_biases": [1.0]}, "1 linear biases for 2 labels"),
        ({"quadratic_head": [2]}, "quadratic_head must number one of 2 variables"),
        ({"quadratic_tail": [0, 1]}, "quadratic_tail must number"),
        ({"quadratic_tail": [0.5]}, "quadratic_tail must number"),
        ({"quadratic_tail": [0]}, "coupled to itself"),
        ({"variable_labels": []}, "at least one variable"),
        ({"variable_labels": [{}, "b"]}, "must be numbers, texts"),
        ({"variable_labels": ["b", "b"]}, "'b' is given twice"),
        ({"linear_biases": ["x", 1]}, "must hold real numbers"),
        ({"offset": "x"}, "offset is 'x'"),
        ({"quadratic_biases": None}, "not a binary quadratic model of dimod"),
    ],
)
def test_bad_documents(tmp_path, changes, problem):
    with pytest.raises(ValueError, match=problem):
        mg.load(write(tmp_path, bqm_document(**changes)))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"type": ', "is not valid JSON"),
        ("[" * 9, "is in no supported format"),
        ("0 0 1.0\n0 1 2.0\n", "no line '# vartype=SPIN'"),
        ("# vartype=REAL\n0 0 1.0\n", "vartype is 'REAL'"),
        ("# vartype=SPIN\n0 0 1.0\n0 1\n", r"lines must have three numbers each; there are 5"),
        ("# vartype=SPIN\n0 0 1.0\n0 1 x\n", r"token 6 \(line 3\): a variable or a bias is 'x'"),
        ("# vartype=SPIN\n0 -1 1.0\n", "must be a whole number from 0 on"),
        ("# vartype=SPIN\n0 1 1.0\n0 1.5 2\n", r"token 4 \(line 3\)"),
        ("# vartype=SPIN\n0 1 inf\n", r"token 3 \(line 2\): a bias is not finite"),
        ("3 2\n1 2 1\n", "2 edges take 6 numbers; there are 3"),
        ("3 1\n1 4 1\n", "an edge must join two of the nodes 1 to 3"),
        ("3 1\n0 1 1\n", r"token 3 \(line 2\): an edge must join"),
        ("3 1\n1 2 w\n", r"token 5 \(line 2\): an end or a weight of an edge is 'w'"),
        ("3 1\n1 2 nan\n", "a weight is not finite"),
        ("3 1\n2 2 1\n", "coupled to itself"),
        ("0 0\n", "the number of nodes is 0"),
        ("J 0 1 A C 0.5\nh 0 A x\n", "line 2: a value is 'x'"),
        ("J 0 0 A C 0.5\nh 0 A 1\n", "line 1: J joins site 0 to itself"),
        ("h 0 A 1\nh 0 C 1\nK 1 2\n", "line 3 is 'K 1 2'; it must be 'J i j a b value'"),
        ("J 0 1 A C 0.5\n", "has no line 'h i a value'"),
        ("h 0 A 1\nh 1 A 1\n", "names one state, 'A'"),
        ("h -1 A 1\n", "is in no supported format"),
        ("h 0 A 1\nh -1 A 1\n", "line 2: a site is '-1'"),
        ("", "is empty"),
        ("hello", "is in no supported format: npz, UAI"),
    ],
)
def test_bad_texts(tmp_path, content, problem):
    with pytest.raises(ValueError, match=problem):
        mg.load(write(tmp_path, content))


def test_rudy_weights_are_couplings_or_those_of_a_cut(tmp_path):
    path = write(tmp_path, "4 4\n1 2 1\n2 3 -2.5\n3 1 0.5\n3 4 2\n")
    edges, w = [(0, 1), (1, 2), (2, 0), (2, 3)], np.array([1, -2.5, 0.5, 2])
    assert mg.exact_log_z(mg.load(path)) == mg.exact_log_z(mg.from_edges(edges, coupling=w))
    cut = mg.load(path, maxcut=True)
    assert cut.labels == (1, 2, 3, 4)
    sums = []
    for s in itertools.product((-1, 1), repeat=4):
        sums.append(sum(x * (1 - s[i] * s[j]) for (i, j), x in zip(edges, w, strict=True)))  # twice the cut
    assert mg.exact_log_z(cut) + w.sum() == pytest.approx(np.logaddexp.reduce(sums), rel=1e-13)
    for bad in (bqm_document(), "MARKOV 1 2 0"):
        with pytest.raises(ValueError, match="maxcut applies to rudy files only"):
            mg.load(write(tmp_path, bad, "other"), maxcut=True)


def test_rudy_holds_couplings_only(tmp_path):
    model = random_model(field=0.0, temperature=0.5)
    mg.save(model, tmp_path / "m.rudy")
    assert mg.exact_log_z(mg.load(tmp_path / "m.rudy")) == pytest.approx(mg.exact_log_z(model), rel=1e-13)
    for bad, problem in (
        (random_model(), "the model has fields"),
        (random_model("binary"), "the model has fields"),
        (mg.rbm([[0.1]], [0.0], [0.0], units="gaussian"), "spins or binaries only; the model has gaussian"),
        (mg.potts([(0, 1)], 3), "spins or binaries only"),
    ):
        with pytest.raises(ValueError, match=problem):
            mg.save(bad, tmp_path / "bad.rudy")


def test_coo_has_no_constant_and_whole_numbers(tmp_path):
    dimod = pytest.importorskip("dimod")
    for bqm, problem in (
        (dimod.BinaryQuadraticModel({0: 1.0}, {(0, 1): 1.0}, 0.5, "SPIN"), "cannot hold the constant 0.5"),
        (dimod.BinaryQuadraticModel({"a": 1.0}, {("a", "b"): 1.0}, 0.0, "SPIN"), "whole numbers as labels"),
    ):
        with pytest.raises(ValueError, match=problem):
            mg.save(bqm, tmp_path / "m.coo")
        mg.save(bqm, tmp_path / "m.json")
        assert mg.exact_log_z(mg.load(tmp_path / "m.json")) == mg.exact_log_z(bqm)


@pytest.mark.parametrize("states", ["-AC", "012"])
def test_potts_parameters_of_adabm(tmp_path, states):
    rng = np.random.default_rng(9)
    h = rng.normal(size=(4, 3))
    couplings = {
        (i, j, a, b): rng.normal() for i, j in ((0, 1), (0, 2), (1, 2), (2, 3)) for a in range(3) for b in range(3)
    }
    lines = [f"J {i} {j} {states[a]} {states[b]} {x!r}" for (i, j, a, b), x in couplings.items()]
    lines += [f"h {i} {states[a]} {float(h[i, a])!r}" for i in range(4) for a in range(3)]
    model = mg.load(write(tmp_path, "\n".join(lines) + "\n"))
    total = []
    for x in itertools.product(range(3), repeat=4):
        term = sum(h[i, x[i]] for i in range(4))
        total.append(term + sum(w for (i, j, a, b), w in couplings.items() if (x[i], x[j]) == (a, b)))
    assert mg.exact_log_z(model) == pytest.approx(np.logaddexp.reduce(total), rel=1e-12)


def test_numbers_in_adabm_files_begin_with_0_or_1_and_leave_none_out(tmp_path):
    for first in (0, 1):
        i, j = first, first + 1
        text = f"J {i} {j} {i} {i} 0.3\nh {i} {i} 1.0\nh {i} {j} 0.5\nh {j} {i} 0.1\nh {j} {j} 0.2\n"
        model = mg.load(write(tmp_path, text))
        terms = [1.0 + 0.1 + 0.3, 1.0 + 0.2, 0.5 + 0.1, 0.5 + 0.2]
        assert mg.exact_log_z(model) == pytest.approx(np.logaddexp.reduce(terms), rel=1e-13)
        assert list(model.labels) == [i, j]
    for text, problem in (
        ("h 0 0 1.0\nh 0 2 0.5\n", "names no state 1, but state 2"),
        ("h 2 A 1.0\nh 2 B 0.5\n", "names no site 1, but site 2"),
        ("h 0 A 1.0\nh 900000000 B 0.5\n", "names no site 1, but site 900000000"),
    ):
        with pytest.raises(ValueError, match=problem):
            mg.load(write(tmp_path, text))


def test_small_files_that_count_far_more_than_they_describe(tmp_path):
    for text in ("100000000 0\n", "MARKOV 3 16777216 16777216 16777216 0\n"):
        with pytest.raises(ValueError, match=r"far more than the \d words of the file describe"):
            mg.load(write(tmp_path, text))
    assert mg.load(write(tmp_path, "100000 1\n1 2 0.5\n")).n_variables == 100_000
