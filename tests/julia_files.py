"""Files of RestrictedBoltzmannMachines.jl, written as its documentation says."""

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")


def julia(array):
    """An array as HDF5.jl stores it: the first axis fastest, so that h5py sees them turned round."""
    return np.ascontiguousarray(np.asarray(array).T)


def write_julia(path, *, kinds=("Binary", "Spin"), rbm_type="RBM", version="1.0.0", seed=3, attributes=False):
    """A machine of 3 visible and 2 hidden variables (of 3 colours); returns its arrays as Julia has them."""
    rng = np.random.default_rng(seed)
    arrays, shapes = {}, []
    for side, kind, n in (("visible", kinds[0], 3), ("hidden", kinds[1], 2)):
        shape = (3, n) if kind.startswith("Potts") else (n,)
        par = rng.normal(size=(1, *shape))
        if kind in ("Gaussian", "ReLU", "pReLU", "xReLU"):
            par = np.concatenate([par, -rng.uniform(2.0, 3.0, (1, *shape))])  # its absolute value counts
        if kind in ("pReLU", "xReLU", "nsReLU"):
            par = np.concatenate([par, rng.uniform(-0.8, 0.8, (2, *shape))])
        if kind == "dReLU":
            par = np.concatenate([par, rng.normal(size=(1, *shape)), rng.uniform(-3.0, -2.0, (2, *shape))])
        arrays[f"{side}_par"] = par
        shapes.append(shape)
    arrays["weights"] = 0.5 * rng.normal(size=(*shapes[0], *shapes[1]))
    for side, shape in zip("vh", shapes, strict=True):
        if rbm_type != "RBM":
            arrays[f"offset_{side}"] = rng.normal(size=shape)
        if rbm_type == "StandardizedRBM":
            arrays[f"scale_{side}"] = rng.uniform(0.5, 2.0, shape)
    words = {
        "rbm_hdf5_file_format_version": version,
        "rbm_type": rbm_type,
        "visible_type": kinds[0],
        "hidden_type": kinds[1],
    }
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = julia(array)
        for name, word in words.items():
            if attributes:
                file.attrs[name] = word
            else:
                file[name] = word
    return arrays
