"""Digests of models, fingerprints of plans and keys of checkpoints as literal values: older files still fit."""

import contextlib
import json
import sqlite3

import numpy as np
import pytest

import marginalis as mg
from marginalis import load_estimate

COUPLINGS = np.array([[1.0, -0.5, 0.25], [-0.75, 0.5, 1.5]])
VISIBLE, HIDDEN = [0.5, -0.25], [0.125, 0.0, -1.0]
RUN = {"steps": 8, "chains": 20, "engine": "numpy", "seed": 3}


def rbm(**options):
    return mg.rbm(COUPLINGS, VISIBLE, HIDDEN, **options)


def triangle():
    return mg.from_edges([(0, 1), (1, 2), (0, 2)], coupling=[0.5, -0.25, 1.0], field=[0.0, 0.5, -0.5])


def two_parts():
    """A torus, which is annealed, and a spin of its own, which is summed exactly."""
    rows, columns = (np.arange(36).reshape(6, 6) for _ in range(2))
    edges = np.concatenate([np.stack([rows, np.roll(columns, 1, axis)], axis=-1).reshape(-1, 2) for axis in (0, 1)])
    return mg.from_edges(edges, coupling=0.25, n=37)


SETTINGS = ("format", "answer", "model", "method", "steps", "chains", "resample", "base", "seed", "engine")
MODELS = {
    "rbm": rbm,
    "binary": lambda: rbm(units="binary", temperature=2.0),
    "gaussian": lambda: mg.rbm(0.25 * COUPLINGS, VISIBLE, HIDDEN, units=("gaussian", "spin")),
    "categorical": lambda: mg.rbm(np.eye(6)[:, :3], np.zeros(6), HIDDEN, units=("categorical:3", "binary")),
    "dbm": lambda: mg.dbm([COUPLINGS, COUPLINGS.T], [[0.0, 0.5], HIDDEN, [0.25, 0.0]]),
    "grid": lambda: mg.ising_grid((4, 6), coupling=0.5, field=0.25, periodic=True),
    "triangle": triangle,
}
PLANS = {
    "mais": {},
    "mais-h": {"method": "mais-h"},
    "ais": {"method": "ais"},
    "metropolis": {"transition": "metropolis", "sweeps": 2},
    "biases": {"base": "biases"},
    "fields": {"base": (VISIBLE, HIDDEN)},
    "model": {"base": mg.rbm(0.5 * COUPLINGS, VISIBLE, HIDDEN)},
    "schedule": {"steps": None, "schedule": [0.0, 0.25, 0.75, 1.0]},
    "single": {"engine": "numba"},
    "resampled": {"resample": 0.75, "populations": 2},
}
CHECKPOINTS = {
    "estimate": lambda **run: mg.estimate(rbm(), **run),
    "two parts": lambda **run: mg.estimate(two_parts(), **run),
    "resampled": lambda **run: mg.estimate(rbm(), resample=True, populations=2, **run),
    "expectations": lambda **run: mg.expectations(rbm(), exact=False, **run),
    "thermodynamics": lambda **run: mg.thermodynamics(rbm(), [0.5, 1.0], **run),
    "difference": lambda **run: mg.difference(rbm(), mg.rbm(0.5 * COUPLINGS, VISIBLE, HIDDEN), **run),
    "along": lambda **run: mg.along([rbm(), mg.rbm(1.5 * COUPLINGS, VISIBLE, HIDDEN)], resample=False, **run),
}
DIGESTS = {
    "rbm": "931769f887e91ce7",
    "binary": "46d0c4e3415ee74d",
    "gaussian": "d8fa85c5e0c6257c",
    "categorical": "7c586f9f60c7b7b5",
    "dbm": "b63a64cf44f8eed5",
    "grid": "f0d77d1473fb4890",
    "triangle": "1d21b37cb09ec545",
}
FINGERPRINTS = {
    "mais": "963b0d1f9cade91a",
    "mais-h": "1365a7a218f12f6c",
    "ais": "b7528b259dea0c71",
    "metropolis": "b2bbe69d9334163b",
    "biases": "dfd357e22ecc0faf",
    "fields": "dfd357e22ecc0faf",
    "model": "27714b72174833c8",
    "schedule": "fb3a739f63ad396c",
    "single": "f5976bc4a2d5a0f2",
    "resampled": "c3a4df4c0806d40c",
}
KEYS = {
    "estimate": (["97428817df9f8863"], [1, "mais", "931769f887e91ce7", "mais", 8, 20, None, None, 3, "numpy"]),
    "two parts": (["6af52e77ec8c9706"], [1, "mais", "d7b0f4d5580860b8", "mais", 8, 20, None, None, 3, "numpy"]),
    "resampled": (["2a3a7afbc0ce17bc"], [1, "mais", "931769f887e91ce7", "mais", 8, 20, None, True, 3, "numpy"]),
    "expectations": (
        ["f88f23a2ad7e8e89"],
        [1, "expectations", "931769f887e91ce7", "mais", 8, 20, None, None, 3, "numpy"],
    ),
    "thermodynamics": (
        ["02cea1c60c8afe97"],
        [1, "thermodynamics", "931769f887e91ce7", "mais", 8, 20, None, None, 3, "numpy"],
    ),
    "difference": (
        ["3d6f999840b7d721", "6d3a1d568d59bbcc"],
        [1, "difference", "931769f887e91ce7 d33ec9adc9229e15", "mais", 8, 20, None, None, 3, "numpy"],
    ),
    "along": (
        ["01402986bc6e2400", "b99e54131b2caf2e"],
        [1, "along", "931769f887e91ce7 a60e3d3bd8289fcd", "mais", 8, 20, None, False, 3, "numpy"],
    ),
}
PROVENANCE = [
    "model",
    "variables",
    "method",
    "steps",
    "schedule",
    "base",
    "transition",
    "engine",
    "precision",
    "seconds",
    "populations",
    "version",
    "machines",
    "fingerprint",
    "notes",
    "rounding",
]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_digest_that_it_always_had(name):
    assert model_digest(name) == DIGESTS[name]


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_has_the_fingerprint_that_it_always_had(name):
    assert fingerprint(name) == FINGERPRINTS[name]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_has_the_keys_that_it_always_had(name, tmp_path):
    assert keys(CHECKPOINTS[name], tmp_path / "checkpoint") == KEYS[name]


def test_a_result_has_the_entries_that_it_always_had(tmp_path):
    mg.estimate(rbm(), **RUN).save(tmp_path / "result.npz")
    with np.load(tmp_path / "result.npz") as file:
        assert list(file) == ["version", "kind", "log_weights", "log_z0", "runs", "provenance", "summary"]
        assert list(json.loads(str(file["provenance"]))) == PROVENANCE
    assert load_estimate(tmp_path / "result.npz") == mg.estimate(rbm(), **RUN)


def model_digest(name):
    return mg.estimate(MODELS[name](), **RUN).record.model[:16]


def fingerprint(name):
    model, _, words = mg.estimate(rbm(), **(RUN | PLANS[name])).fingerprint.partition(" ")
    assert model.startswith(DIGESTS["rbm"])
    return words[:16]


def keys(call, path):
    """What a checkpoint is found by: a digest of each run that it holds, and the settings of the call."""
    call(checkpoint=path, **RUN)
    with contextlib.closing(sqlite3.connect(path)) as db:
        runs = [run for (run,) in db.execute("SELECT DISTINCT run FROM piece ORDER BY number")]
        (settings,) = db.execute("SELECT value FROM settings WHERE name = 'run'").fetchone()
    known = {name: value for name, value in json.loads(settings).items() if name in SETTINGS}
    return [run[:16] for run in runs], list(known.values())
