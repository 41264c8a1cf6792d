"""Training runs as the package rbms writes them: HDF5 files with the parameters after some updates."""

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")


def write_run(path, kind, updates):
    """A training run as rbms writes it: update → (weights, visible biases, hidden biases)."""
    with h5py.File(path, "w") as file:
        file["model_type"] = kind
        for update, arrays in updates.items():
            params = file.create_group(f"update_{update}").create_group("params")
            for name, array in zip(("weight_matrix", "vbias", "hbias"), arrays, strict=True):
                params[name] = np.asarray(array, dtype=np.float32)
    return path


def random_run(kind, updates=(1, 2, 10)):
    rng = np.random.default_rng(8)
    inner = (4, 3) if kind == "PBRBM" else (4,)
    return {u: [rng.normal(size=shape).astype(np.float32) for shape in ((*inner, 5), inner, (5,))] for u in updates}
