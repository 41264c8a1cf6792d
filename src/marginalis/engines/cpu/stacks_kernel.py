"""The kernel for many small dense models of one shape: it calls `anneal_tables` for one model after the other."""

from __future__ import annotations

import operator
from typing import NamedTuple

import numpy as np
from numba import types

from ...simd.cache import kernel
from ...simd.compiling import intrinsic
from ...simd.lookup import SPINS
from .tables_kernel import anneal_tables


class Packed(NamedTuple):
    """Couplings of all models in the form of `tables.pack_tables`; the models share `inputs` and `begin`."""

    data: np.ndarray  # [model, entry]
    inputs: np.ndarray
    begin: np.ndarray
    scale: np.ndarray  # [model, unit]


@intrinsic
def row(context, values, model):
    """Return the row of a model, or None if there are no values."""
    if isinstance(values, types.NoneType):
        return types.none(values, model), lambda context, builder, sig, args: context.get_dummy_value()
    found = values.copy(ndim=values.ndim - 1)

    def emit(context, builder, sig, args):
        return context.get_function(operator.getitem, sig)(builder, args)

    return found(values, model), emit


@kernel(plain=True, error_model="numpy")
def anneal_stack(
    up, down, slope_v, slope_h, base_v, base_h, betas, differences, seeds, sides,
    first_model, last_model, first_chain, v, h, sums, tables, log_weights, joint,
):  # fmt: skip
    """Run the same chains of the models from `first_model` to `last_model` from the first step to the last.

    `slope_v`, `slope_h`, `base_v`, `base_h` and `seeds` have one row or entry per model, and so have `log_weights` and
    `joint`. The other arguments are those of `anneal_tables`; the models share the memory of the states v and h.
    """
    for model in range(first_model, last_model):
        anneal_tables(
            (up.data[model], up.inputs, up.begin, up.scale[model]),
            (down.data[model], down.inputs, down.begin, down.scale[model]),
            slope_v[model], slope_h[model], row(base_v, model), row(base_h, model), betas, differences, seeds[model],
            sides, None, first_chain, v, h, None, None, sums, tables, log_weights[model], row(joint, model), 0,
            len(betas) - 1, 1,
        )  # fmt: skip


@kernel()
def fill_stack(weights, scales, made):
    """Round the weights [model, input, unit] times the scale of their unit, for `pack_tables` of every model.

    `made` [model, tile, four inputs, 5, unit in tile] receives the sum of every four, and −2 times each of them.
    """
    columns = made.shape[4]
    for model in range(weights.shape[0]):
        for i in range(weights.shape[1]):
            for unit in range(weights.shape[2]):
                tile, column = unit // columns, unit % columns
                whole = np.int32(np.rint(weights[model, i, unit] * scales[model, unit]))
                made[model, tile, i // SPINS, 0, column] += whole
                made[model, tile, i // SPINS, 1 + i % SPINS, column] = -2 * whole
