"""Systematic resampling: draws of states in proportion to their weights with one uniform random number.

G. Kitagawa, Monte Carlo filter and smoother for non-Gaussian nonlinear state space models, J. Comput. Graph. Stat. 5,
1 (1996).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..checks import Array

# Rows of at most this many weights are resampled by comparing all pairs, which is faster than a search.
_FEW = 128


def systematic(weights: Array, uniforms: Array, count: int | None = None) -> NDArray[np.int64]:
    """Return the numbers of `count` columns for every row, drawn in proportion to its weights; by default as many.

    `uniforms` has one column: a number in (0, 1) for every row. The weights of a row may have any sum.
    """
    size = weights.shape[1]
    number = size if count is None else count
    shares = np.cumsum(weights, axis=1) / weights.sum(axis=1)[:, None]
    places = (np.arange(number) + uniforms) / number
    if max(size, number) <= _FEW:
        found = (shares[:, :, None] <= places[:, None]).sum(axis=1)
    else:
        found = np.stack([np.searchsorted(*x, side="right") for x in zip(shares, places, strict=True)])
    return np.minimum(found, size - 1)
