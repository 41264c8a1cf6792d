"""Many small dense models of spins of one shape, prepared in one pass and advanced by few kernel calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...checks import Array
from ...simd.draws import TILE
from ...simd.lookup import COLUMNS, SPINS
from ...simd.vector import LANES, aligned
from ..plan import Plan
from . import tables
from .population import CALL_OPERATIONS, Prepared
from .stacks_kernel import Packed, anneal_stack, fill_stack
from .tables_kernel import PANEL

_MOST_BYTES = 1 << 24  # Memory for the couplings of the models that are prepared together.


def serves(plan: Plan, prepared: Prepared) -> bool:
    """Whether plans of this shape are run together: small dense models of spins without resampling."""
    chains = plan.chains
    plain = chains.start is None and not chains.populations and plan.path.mixture is None
    if not (plain and not sp.issparse(plan.path.end.weights) and isinstance(prepared.arguments, tables.TableArguments)):
        return False
    blocks = -(-chains.count // LANES)
    return blocks * LANES * plan.steps * prepared.operations <= CALL_OPERATIONS and chains.count <= prepared.together


def advance(plans: Sequence[Plan], prepared: Prepared) -> Iterator[tuple[Array, Array | None]]:
    """Yield, for some models at a time, the log-weights [model, chain] and those of mAIS if the plans are AIS.

    `prepared` is the first plan as `tables.prepare` has prepared it.
    """
    at_once = max(1, _MOST_BYTES // (4 * (prepared.arguments.up[0].size + prepared.arguments.down[0].size)))
    for first in range(0, len(plans), at_once):
        yield _advance_some(plans[first : first + at_once], prepared)


def _advance_some(plans: Sequence[Plan], prepared: Prepared) -> tuple[Array, Array | None]:
    """Prepare plans and run them to the end."""
    plan, model, n = plans[0], prepared.arguments, len(plans)
    weights, slopes, bases, rises = _spins_of(plans)
    slope_v, slope_h = map(_padded, slopes)
    base_v, base_h = (None, None) if bases is None else map(_padded, bases)
    up = _packed(_with_slopes(weights, slopes[0], slope_h.shape[1]), model.up)
    down = _packed(np.swapaxes(weights, 1, 2), model.down)
    seeds = np.array([plan.chains.seed for plan in plans], dtype=np.uint64)
    blocks = -(-plan.chains.count // LANES)
    v, h = (aligned((blocks, x.shape[1] // SPINS, LANES), np.uint32) for x in (slope_v, slope_h))
    workspace, together = tables.room_for_tables(prepared, blocks, PANEL)
    sums = aligned((together, PANEL * TILE, LANES), np.uint32)
    log_weights = aligned((n, blocks, LANES), np.float64)
    joint = aligned((n, blocks, LANES), np.float64) if plan.method == "ais" else None
    shared = model.betas, model.differences, seeds, model.sides
    per_call = max(1, int(CALL_OPERATIONS // (prepared.operations * blocks * LANES * plan.steps)))
    for first in range(0, n, per_call):
        anneal_stack(
            *(up, down, slope_v, slope_h, base_v, base_h, *shared),
            *(first, min(first + per_call, n), np.uint64(plan.chains.first)),
            *(v, h, sums, workspace, log_weights, joint),
        )
    constants = rises * (plan.betas[-1] - plan.betas[0])

    def finished(found: Any) -> Array:
        return np.asarray(found.reshape(n, -1)[:, : plan.chains.count] + constants[:, None])

    own = finished(log_weights if joint is None else joint)
    return own, None if joint is None else finished(log_weights)


def _spins_of(plans: Sequence[Plan]) -> tuple[Array, tuple[Array, Array], tuple[Array, Array] | None, Array]:
    """Return the weights, slopes, base fields (None if uniform) and rises of the paths of all plans, stacked."""

    def stacked(values: Sequence[Any], *names: str) -> Any:
        return tuple(np.stack([getattr(value, name) for value in values]) for name in names)

    if plans[0].path.start.is_uniform:  # The slopes are the model's fields.
        forms = [plan.path.end.partial_spin_form for plan in plans]
        weights, *slopes = stacked(forms, "weights", "visible_bias", "hidden_bias")
        return weights, (slopes[0], slopes[1]), None, np.array([form.constant for form in forms])
    paths = [plan.path.spins for plan in plans]
    weights, rises = stacked(paths, "weights", "rise")
    return weights, stacked(paths, "slope_v", "slope_h"), stacked(paths, "base_v", "base_h"), rises


def _padded(fields: Array) -> np.ndarray:
    return np.pad(fields, ((0, 0), (0, -fields.shape[1] % TILE))).astype(np.float32)


def _with_slopes(weights: Array, slope_v: Array, columns: int) -> Array:
    """Return weights with one more column after the padding, as `tables.prepare` does for one model."""
    n, rows, own = weights.shape
    found = np.zeros((n, rows, columns + 1))
    found[:, :, :own] = weights
    found[:, :, -1] = slope_v.astype(np.float32)
    return found


def _packed(weights: Array, like: tuple[np.ndarray, ...]) -> Packed:
    """Return weights [model, input, unit] packed as `pack_tables` packs those of one model, which are `like`."""
    n, rows, columns = weights.shape
    scales, scale = tables.scales_of(abs(weights).sum(axis=1))
    made = np.zeros((n, -(-columns // COLUMNS), -(-rows // SPINS), SPINS + 1, COLUMNS), dtype=np.int32)
    fill_stack(np.ascontiguousarray(weights), scales, made)
    return Packed(made.reshape(n, -1).view(np.uint32), like[1], like[2], scale)
