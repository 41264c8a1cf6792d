"""libDAI's factor graphs."""

import numpy as np
import pytest

import marginalis as mg

TEXT = "# a comment\n2\n\n2\n3 7\n2 3\n5\n0 1.0\n1 2\n2 3\n3 4\n5 6\n\n1\n7\n3\n3\n0 .5\n1 1\n2 2\n"


def write(tmp_path, text):
    (tmp_path / "m.fg").write_text(text)
    return tmp_path / "m.fg"


def test_the_first_variable_runs_fastest_and_what_is_missing_is_zero(tmp_path):
    """As in the documentation of libDAI: x_0 = index mod card_0."""
    model = mg.load(write(tmp_path, TEXT))
    table = np.array([[1.0, 3.0, 0.0], [2.0, 4.0, 6.0]])
    assert mg.exact_log_z(model) == pytest.approx(np.log((table @ [0.5, 1.0, 2.0]).sum()), rel=1e-13)
    assert tuple(model.labels) == (3, 7)
    held = mg.load(tmp_path / "m.fg", {7: 1})
    assert mg.exact_log_z(held) == pytest.approx(np.log(3.0 + 4.0), rel=1e-13)


def test_a_factor_of_no_variables_is_a_constant(tmp_path):
    model = mg.load(write(tmp_path, "2\n\n0\n\n\n1\n0 2.5\n\n1\n0\n2\n2\n0 1\n1 3\n"))
    assert mg.exact_log_z(model) == pytest.approx(np.log(2.5 * 4.0), rel=1e-13)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1\n2\n0 0\n2 2\n1\n0 1\n", "factor 0 names a variable twice"),
        ("2\n1\n0\n2\n1\n0 1\n1\n0\n3\n1\n0 1\n", "variable 0 has 3 states here and 2 before"),
        ("1\n1\n0\n2\n1\n2 1\n", "an index of factor 0 must be a whole number below 2"),
        ("1\n1\n0\n2\n1\n0 -1\n", "a weight is '-1'; it must not be negative"),
        ("1\n1\n0\n2\n0\n", "Z = 0: the table of factor 0 holds zeros only"),
        ("1\n1\n0\n2\n2\n0 1\n", "the file ends in the table of factor 0"),
        ("1\n1\n0\n2\n1\n0 1\n5\n", "there are 1 tokens after the last factor"),
        ("1\n3\n0 1 2\n9999 9999 9999\n1\n0 1\n", "far more than the 9 words? of the file describe|far more than"),
    ],
)
def test_bad_files_say_where(tmp_path, text, problem):
    with pytest.raises(ValueError, match=problem):
        mg.load(write(tmp_path, text))
