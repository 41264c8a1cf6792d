"""Training of small RBMs by contrastive divergence, for studies and tests: seeded, and in NumPy alone.

`contrastive_divergence` is the textbook method (Hinton 2002), also with persistent chains (Tieleman 2008). The data are
the 8×8 digits of scikit-learn or bars and stripes, which need no package.
"""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
from scipy.special import expit

from ..checks import Array
from ..models.layered import rbm
from ..models.model import MRF

BATCH = 20  # Rows of a batch, and number of the persistent chains.


def contrastive_divergence(
    data: Array,
    hidden: int,
    epochs: int,
    seed: int,
    *,
    sweeps: int = 1,
    persistent: bool = True,
    rate: float = 0.05,
    biases_of_data: bool = True,
) -> MRF:
    """Train an RBM of zeros and ones on rows of zeros and ones.

    The model's half of the gradient comes from chains after `sweeps` Gibbs sweeps. Persistent chains go on from one
    batch to the next; otherwise they start from the rows of the batch. The learning rate falls linearly to zero.
    Visible biases start at the logits of the means of the data, or at zero as in scikit-learn's BernoulliRBM.
    """
    rng = np.random.default_rng(seed)
    visible = data.shape[1]
    share = (data.sum(axis=0) + 1.0) / (len(data) + 2.0)
    w, c = rng.normal(scale=0.01, size=(visible, hidden)), np.zeros(hidden)
    b = np.log(share / (1.0 - share)) if biases_of_data else np.zeros(visible)
    chains = data[rng.integers(len(data), size=BATCH)]
    for epoch in range(epochs):
        step = rate * (1.0 - epoch / epochs)
        for rows in np.array_split(data[rng.permutation(len(data))], max(1, len(data) // BATCH)):
            v = chains if persistent else rows
            for _ in range(sweeps):
                h = expit(c + v @ w) > rng.random((len(v), hidden))
                v = (expit(b + h @ w.T) > rng.random(v.shape)).astype(float)
            if persistent:
                chains = v
            up, down = expit(c + rows @ w), expit(c + v @ w)
            w += step * (rows.T @ up / len(rows) - v.T @ down / len(v))
            b += step * (rows.mean(axis=0) - v.mean(axis=0))
            c += step * (up.mean(axis=0) - down.mean(axis=0))
    return rbm(w, b, c, units="binary")


@cache
def digits() -> tuple[Array, Array] | None:
    """The 8×8 digits of scikit-learn as zeros and ones, with their classes, or None if scikit-learn is missing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        return None
    found = load_digits()
    return np.asarray(found.data > 7.5, dtype=float), np.asarray(found.target)


def bars_and_stripes(side: int, copies: int = 10) -> Array:
    """All images of side × side pixels whose rows are of one colour each, and all whose columns are, several times."""
    stripes = np.array(list(itertools.product((0.0, 1.0), repeat=side)))
    rows = np.repeat(stripes, side, axis=1)
    columns = np.tile(stripes[1:-1], (1, side))
    return np.tile(np.concatenate([rows, columns]), (copies, 1))
