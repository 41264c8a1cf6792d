"""Log-weights of the first version, row by row: what decides a run gives the same chains for ever."""

import json

import numpy as np
import pytest
from conftest import DATA

import marginalis as mg

ROWS = json.loads((DATA / "golden" / "golden.json").read_text())["rows"]
RESULTS = ("model", "log_z0", "log_weights")


def named(row):
    words = [row[key] for key in ("model", "method", "engine")]
    return "-".join(words + [str(row[key]) for key in ("base", "transition", "first_chain") if key in row])


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_the_weights_of_the_first_version(row):
    model = mg.load(DATA / "golden" / f"{row['model']}.npz")
    result = mg.estimate(model, **{key: value for key, value in row.items() if key not in RESULTS})
    assert result.log_z0 == pytest.approx(row["log_z0"], rel=0, abs=1e-9)
    # a last digit may flip a draw of a chain now and then, on another processor or with another library
    assert np.mean(np.abs(result.log_weights - row["log_weights"]) < 1e-9) >= 0.97
