"""Models of factors in .npz files: round trips with labels and zeros, and files from strangers."""

import numpy as np
import pytest
from conftest import command, random_factors

import marginalis as mg

PARTS = dict(
    factor_states=np.array([2, 3]),
    factor_sizes=np.array([2, 1]),
    factor_variables=np.array([0, 1, 1]),
    factor_tables=np.arange(9.0),
)


def with_zeros():
    table = np.random.default_rng(0).random((2, 3, 2))
    table[1, 2] = 0.0
    return mg.from_factors([(("a", ("b", 1), 3), table), (("a", "c"), np.ones((2, 2))), ((), 2.5)])


@pytest.mark.parametrize(
    "model",
    [
        random_factors(3, (2, 3, 4, 2), arity=4),
        with_zeros(),
        with_zeros().given({3: 1}),
        mg.from_polynomial({("x", "y", "z"): 1.0, ("x",): 0.3}, temperature=0.7).at_temperature(1.5),
    ],
    ids=["tables", "zeros", "given", "polynomial"],
)
def test_round_trip(tmp_path, model):
    mg.save(model, tmp_path / "m.npz")
    back = mg.load(tmp_path / "m.npz")
    kept = model.given()  # Files are read without states that cannot occur.
    if kept.why_not_annealed() is None:
        kept = kept.as_mrf()
    assert type(back) is type(kept)
    assert list(back.labels) == list(kept.labels)
    assert mg.exact_log_z(back) == mg.exact_log_z(kept)
    assert mg.exact_log_z(back) == pytest.approx(mg.exact_log_z(model), rel=1e-13)
    assert command("exact", tmp_path / "m.npz").returncode == 0


def test_evidence_by_label(tmp_path):
    model = mg.from_factors([(("rain", "wet", "slip"), np.random.default_rng(1).random((2, 2, 3)))])
    mg.save(model, tmp_path / "m.npz")
    wanted = mg.exact_log_z(model.given({"slip": 2}))
    assert mg.exact_log_z(mg.load(tmp_path / "m.npz", {"slip": 2})) == pytest.approx(wanted, rel=1e-13)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"factor_sizes": None}, "lacks the key 'factor_sizes'"),
        ({"factor_states": np.array([[2, 3]])}, "factor_states has 2 dimensions"),
        ({"factor_states": np.array([2.0, 3.0])}, "factor_states must hold whole numbers"),
        ({"factor_states": np.array([0, 3])}, "factor_states must be at least 1"),
        ({"factor_sizes": np.array([2, -1])}, "factor_sizes at least 0"),
        ({"factor_sizes": np.array([2, 2])}, "factor_variables does not fit"),
        ({"factor_variables": np.array([0, 2, 1])}, "factor_variables does not fit"),
        ({"factor_variables": np.array([0, 0, 1]), "factor_tables": np.zeros(7)}, "must name different variables"),
        ({"factor_states": np.array([2, 2**60])}, "factor_tables has 9 numbers; the factors need"),
        ({"factor_tables": np.zeros(8)}, "factor_tables has 8 numbers; the factors need 9"),
        ({"factor_tables": np.full(9, np.nan)}, "finite or -inf"),
        ({"factor_tables": np.append(np.full(6, -np.inf), np.zeros(3))}, "Z = 0"),
        ({"labels": np.array('["a"]')}, "labels"),
        ({"labels": np.array("[1, {}]")}, "labels"),
        ({"offset": np.array(np.inf)}, "offset"),
    ],
)
def test_damaged_files_are_refused_with_one_line(tmp_path, changes, problem):
    arrays = {key: x for key, x in (PARTS | changes).items() if x is not None}
    np.savez(tmp_path / "m.npz", **arrays)
    with pytest.raises(ValueError, match=problem) as caught:
        mg.load(tmp_path / "m.npz")
    assert "\n" not in str(caught.value)
    done = command("exact", tmp_path / "m.npz")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
