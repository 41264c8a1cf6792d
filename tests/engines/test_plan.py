"""What `estimate` accepts, and what it refuses before any work is done."""

import numpy as np
import pytest

import marginalis as mg
from marginalis.cli.options import read_schedule
from marginalis.engines.plan import betas, make_plan

MODEL = mg.rbm(np.ones((2, 3)), np.zeros(2), np.zeros(3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(steps=0), "steps is 0; it must be at least 1"),
        (dict(steps=-3), "steps"),
        (dict(steps=2.5), "steps is 2.5; it must be a whole number"),
        (dict(steps="many"), "steps"),
        (dict(steps=True), "steps"),
        (dict(chains=0), "chains is 0"),
        (dict(chains=1.5), "chains"),
        (dict(chains=2**33), "chains"),
        (dict(seed=-1), "seed"),
        (dict(seed=2**64), "seed"),
        (dict(first_chain=2**32), "first_chain"),
        (dict(method="magic"), "method is 'magic'; it must be one of mais, mais-v, mais-h, ais"),
        (dict(transition="leap"), "transition"),
        (dict(precision="half"), "precision"),
        (dict(base="magic"), "base is 'magic'"),
        (dict(base=[[0, 0]]), "base is a list of 1 entries"),
        (dict(base=([0, 0], [0, 0])), "base hidden fields have length 2; the model needs 3"),
        (dict(base=([0, np.nan], [0, 0, 0])), "base visible fields holds NaN"),
        (dict(schedule="cosine"), "schedule is 'cosine'"),
        (dict(schedule=[0, 0.5]), "schedule runs from 0 to 0.5; it must run from 0 to 1"),
        (dict(schedule=[0.1, 1]), "schedule runs from 0.1"),
        (dict(schedule=[0, 0.5, 0.5, 1]), "schedule must increase, but β_2 = 0.5 follows 0.5"),
        (dict(schedule=[0, 0.7, 0.5, 1]), "schedule must increase"),
        (dict(schedule=[0, np.nan, 1]), "schedule holds NaN"),
        (dict(schedule=[0]), "at least two"),
        (dict(schedule=["a", "b"]), "schedule"),
        (dict(schedule=[0, 0.5, 1], steps=7), "steps is 7, but the schedule has 2 steps"),
    ],
)
def test_invalid_options_of_a_plan_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        mg.estimate(MODEL, **options)


def test_values_that_are_no_model_are_refused():
    with pytest.raises(ValueError, match="model is a ndarray"):
        mg.estimate(np.ones((2, 2)))


def test_mais_sums_out_the_larger_side():
    assert make_plan(MODEL).method_name == "mais-v"
    assert make_plan(MODEL.transposed()).method_name == "mais-h"
    assert make_plan(mg.rbm(np.ones((2, 2)), [0, 0], [0, 0])).method_name == "mais-v"


def test_whole_numbers_of_any_type():
    assert make_plan(MODEL, steps=np.int32(5), chains=10.0).steps == 5


def test_schedules_from_text(tmp_path):
    path = tmp_path / "betas.txt"
    path.write_text("# a comment\n0 0.25, 0.5\n1.0 # the target\n")
    assert read_schedule(path).tolist() == [0, 0.25, 0.5, 1]
    assert betas("linear", 4).tolist() == [0, 0.25, 0.5, 0.75, 1]
    path.write_text("0 one")
    with pytest.raises(ValueError, match=r"betas.txt: could not convert string to float: 'one'"):
        read_schedule(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not a text file"):
        read_schedule(path)
    with pytest.raises(ValueError, match="cannot read schedule file"):
        read_schedule(tmp_path / "none.txt")


def test_biases_base_is_exact_without_coupling():
    """With W = 0 the base is the target: every weight is 1 and F has no error."""
    model = mg.rbm(np.zeros((3, 4)), [0.3, -1, 2], [1, 2, 0, -0.5], units=("spin", "binary"), temperature=0.7)
    for method in ("ais", "mais-v", "mais-h"):
        result = mg.estimate(model, base="biases", method=method, steps=3, chains=50)
        assert result.log_z == pytest.approx(mg.exact_log_z(model), abs=1e-6)
        assert result.stderr < 1e-6
