"""Rows whose columns have names: they are taken by name, whatever their order."""

import numpy as np
import pytest

import marginalis as mg

LABELS = ("z", "a", "m", "k")
STATES = [{"a": 1, "m": -1, "z": 1, "k": -1}, {"a": 1, "m": 1, "z": -1, "k": 1}]


def the_model(units="spin"):
    edges, couplings = [(0, 1), (1, 2), (0, 2), (2, 3)], [-1.0, 0.7, -0.2, 0.4]
    return mg.from_edges(edges, coupling=couplings, field=[-0.3, 0.2, -0.1, 0.9], units=units, labels=LABELS)


def log_p(model, data):
    return mg.log_likelihood(model, data, mg.exact_log_z(model)).per_sample


WANTED = log_p(the_model(), np.array([[s[label] for label in LABELS] for s in STATES], dtype=float))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_states_and_labels_in_any_order(order):
    names = [LABELS[i] for i in order]
    rows = [[s[name] for name in names] for s in STATES]
    assert log_p(the_model(), (rows, names)) == pytest.approx(WANTED, rel=1e-14)
    assert log_p(the_model(), [dict(zip(names, row, strict=True)) for row in rows]) == pytest.approx(WANTED, rel=1e-14)
    assert log_p(the_model(), STATES[1]) == pytest.approx(WANTED[1:], rel=1e-14)
    assert np.array_equal(mg.states(the_model(), (rows, names)), [[1, 1, 0, 0], [0, 1, 1, 1]])


def test_the_visible_variables_alone():
    model = mg.rbm(np.arange(6.0).reshape(3, 2) / 9.0, [0.1, 0.2, 0.3], [0.0, 0.4])
    rows = np.array([[1.0, 1.0, -1.0], [-1.0, 1.0, 1.0]])
    assert log_p(model, (rows[:, [2, 0, 1]], [2, 0, 1])) == pytest.approx(log_p(model, rows), rel=1e-14)


def test_states_of_categorical_variables():
    tables = [np.array([0.0, 1.0, 0.5]), np.array([0.2, 0.1])]
    model = mg.FactorModel((3, 2), ((0,), (1,), (0, 1)), (*tables, np.arange(6.0).reshape(3, 2)), labels=("x", "y"))
    model = model.as_mrf()
    log_z = mg.exact_log_z(model)
    found = mg.log_likelihood(model, [{"y": 1, "x": 2}], log_z).per_sample
    assert found == pytest.approx([0.5 + 0.1 + 5.0 - log_z], rel=1e-12)


def test_sample_sets_of_dimod():
    """Every occurrence of a sample is a row; values are those of the model's kind."""
    dimod = pytest.importorskip("dimod")
    samples = dimod.SampleSet.from_samples(STATES, vartype="SPIN", energy=0.0, num_occurrences=[3, 1])
    assert list(samples.variables) != list(LABELS)
    wanted = [*[WANTED[0]] * 3, WANTED[1]]
    assert log_p(the_model(), samples) == pytest.approx(wanted, rel=1e-14)
    assert log_p(the_model(), samples.change_vartype("BINARY", inplace=False)) == pytest.approx(wanted, rel=1e-14)
    zeros = the_model("binary")
    ones = np.array([[(s[label] + 1) // 2 for label in LABELS] for s in STATES])
    assert log_p(zeros, samples)[2:] == pytest.approx(log_p(zeros, ones), rel=1e-14)
    assert np.array_equal(
        mg.data_base(the_model(), samples).visible, mg.data_base(the_model(), [STATES[0]] * 3 + STATES[1:]).visible
    )
    bounds = [
        mg.bound(the_model(), x, method="ais", steps=20, chains=30, seed=1)
        for x in (samples, [STATES[0]] * 3 + STATES[1:])
    ]
    assert bounds[0].interval == bounds[1].interval


def test_samples_of_this_package():
    model = the_model()
    drawn = mg.sample(model, 7)
    assert np.array_equal(log_p(model, drawn), log_p(model, drawn.rows))


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(STATES)
    assert log_p(the_model(), frame) == pytest.approx(WANTED, rel=1e-14)
    rows = frame[list(LABELS)].to_numpy()
    assert log_p(the_model(), pandas.DataFrame(rows)) == pytest.approx(WANTED, rel=1e-14)  # without names


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (([[1, -1, 1, 1]], ["a", "m", "z", "q"]), "data has a column 'q', which is no label of the model: z, a, m, k"),
        (([[1, -1]], ["k", "m"]), "data has no column for the variable 'z'"),
        (([[1, -1, 1]], ["a", "a", "z"]), "data names a variable twice"),
        (([[1, -1, 1]], ["a", "m", "z", "k"]), r"data has shape \(1, 3\); its 4 labels need as many columns"),
        (
            ([[1, 0, 1, 1]], list("zamk")),
            r"data\[0, 'a'\] is 0; spin units are -1 or \+1. A model of 0/1 units is made ",
        ),
        (([[1, 0, 1, 1]], list("kzam")), r"data\[0, 'z'\] is 0; spin units are -1"),
        ([[1, 1, 1, 1], [1, 0, 1, 1]], r"data\[1, 1\] is 0; spin units are -1"),
        ([[1, 1, 1, 1], [1, 1, np.nan, 1]], r"data\[1, 2\] is nan; spin units are -1"),
        ([{"a": 1}, {"m": 1}], "data holds states of different variables"),
        (([["x", "y", "z", "w"]], list("zamk")), "it must hold real numbers"),
        ((np.zeros((0, 4)), list("zamk")), "data is empty"),
        (
            np.ones((2, 9)),
            "Columns are in the order of model.labels; a dimod SampleSet or a DataFrame is taken by label",
        ),
    ],
)
def test_rows_that_do_not_fit(data, problem):
    with pytest.raises(ValueError, match=problem):
        mg.log_likelihood(the_model(), data, 0.0)
