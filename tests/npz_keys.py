"""Arrays of a small model under the keys of a model file, with dense and with sparse weights."""

import numpy as np

PARTS = dict(weights=np.ones((2, 3)), visible_bias=np.zeros(2), hidden_bias=np.zeros(3))
SPARSE = dict(
    weights_data=np.ones(2),
    weights_indices=np.array([0, 2]),
    weights_indptr=np.array([0, 1, 2]),
    weights_shape=np.array([2, 3]),
    visible_bias=np.zeros(2),
    hidden_bias=np.zeros(3),
)
