"""Small dense models of spins on two independent sides: arguments and populations of `small.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...checks import Array
from ...gpu.device import Device
from ...paths.path import SpinPath
from ..plan import Plan
from .population import OnDevice, Prepared, prepared, real_type, weight_grid
from .together import OneLaunch

SOURCE = Path(__file__).with_name("small.cu")
TABLES = Path(__file__).with_name("small_tables.cu")
_MOST_UNITS = 96  # Largest number of units of a side; a product of as many factors in [1, 2] stays in range.
_MOST_BYTES = 96 << 10  # Largest size of tables for one thread per chain; every supported GPU has this shared memory.
_FIVE = 5  # Spins of a table for one thread per chain: its 32 numbers lie in 32 different banks.
_LONGEST = 8  # Largest number of spins of a table for one warp per chain.
_BLOCK = 128  # Threads of a block, with one thread per chain.
_WARPS = 16  # Largest number of warps of a block, with one warp per chain.
_BATCH = 8  # Steps whose weights a warp computes together.
_SECONDS = 1e-13  # Approximate time per chain, step and coupling.


class SmallLayout(NamedTuple):
    """A plan as the data from which tables are made on first use, in the order of the threads of a chain."""

    path: SpinPath
    weights: Array
    key: bytes  # The model as bytes, the key under which tables are kept.
    grid: np.float64


def serves(plan: Plan) -> bool:
    """Whether the kernel supports a plan."""
    model, base = plan.path.end, plan.path.start
    if (
        plan.placement.draws != "words"
        or model.spin_form is None
        or not model.is_bipartite
        or base.is_coupled
        or plan.path.mixture is not None
    ):
        return False
    n, m = model.n_visible, model.n_hidden
    if plan.move.kind != "gibbs" or not (0 < n <= _MOST_UNITS and 0 < m <= _MOST_UNITS):
        return False
    return _bytes(plan, n, m, 1, _FIVE) <= _MOST_BYTES


def _widths(n: int, m: int, group: int) -> tuple[int, int]:
    """Return the numbers of units of both sides, rounded up to what a chain's threads process at a time."""
    whole = 4 if group == 1 else 32
    return -(-n // whole) * whole, -(-m // whole) * whole


def _states(inputs: int, spins: int) -> int:
    """Return the total number of states of the tables of all inputs; the last table has the remaining inputs."""
    tables = -(-inputs // spins)
    return (tables - 1 << spins) + (1 << (inputs - (tables - 1) * spins))


def _numbers(n: int, m: int, group: int, spins: int) -> int:
    """Return how many numbers the tables and the fields of the base contain."""
    widths = _widths(n, m, group)
    states_v, states_h = (32 * -(-x // _FIVE) if group == 1 else _states(x, spins) for x in (n, m))
    return states_v * (widths[1] + 1) + states_h * widths[0] + sum(widths)


def _bytes(plan: Plan, n: int, m: int, group: int, spins: int) -> int:
    """Return the size of the tables."""
    return (_numbers(n, m, group, spins) + 3) * np.dtype(real_type(plan)).itemsize


def _room(plan: Plan, n: int, m: int) -> int:
    """Return the bytes of shared memory per warp, for random words and for weights that are still to be computed."""
    calls, parts = -(-n // 4) + -(-m // 4) * (2 if plan.method == "ais" else 1), 4 if plan.method == "ais" else 3
    return 1024 * -(-2 * calls // 32) + _BATCH * (32 * parts + 4) * np.dtype(real_type(plan)).itemsize


def on_grid(weights: Array, bias: Array, digits: int) -> tuple[Array, Array]:
    """Round couplings […, input, unit] and biases to multiples of powers of 2, so that all their sums are exact."""
    most = np.abs(weights).sum(axis=-2) + np.abs(bias)
    grid = np.ldexp(1.0, np.frexp(1.001 * most)[1] - digits)
    rows = grid[..., None, :]
    return np.rint(weights / rows) * rows, np.rint(bias / grid) * grid


def _tables(weights: Array, bias: Array, width: int, spins: int, last_first: bool) -> Array:
    """Return sums over some inputs for each of their states, [table, state, unit]; the first table includes the bias.

    A bit of a state is set where a spin is down; the first spin has the lowest bit, or the highest one.
    """
    inputs, units = weights.shape
    parts = np.zeros((-(-inputs // spins), spins, width))
    parts.reshape(-1, width)[:inputs, :units] = weights
    signs = 1.0 - 2.0 * (np.arange(1 << spins)[:, None] >> np.arange(spins) & 1)
    found: Array = signs @ (parts[:, ::-1] if last_first else parts)  # These sums are exact in any order.
    found[0, :, :units] += bias
    return found


def tables(path: SpinPath, weights: Array, group: int, spins: int, digits: int) -> Array:
    """Return all tables of a model and the base, concatenated; sums of their fields and slopes are exact."""
    n, m = weights.shape
    width_v, width_h = _widths(n, m, group)
    parts: list[Array] = []
    sides = (
        (weights, path.slope_h, width_h),
        (weights.T, path.slope_v, width_v),
        (path.slope_v[:, None], np.zeros(1), 1),
    )
    for couplings, bias, width in sides:
        made = _tables(*on_grid(couplings, bias, digits), width, spins, last_first=group == 1)
        if group == 1:
            parts.append(made.transpose(0, 2, 1))
        else:  # The order is by rounds of units; the last table has only states of existing inputs.
            whole = made.reshape(-1, width)[: _states(len(couplings), spins)]
            parts += [whole[:, first : first + 32] for first in range(0, width, 32)]
    count = sum(x.size for x in parts)
    numbers = np.zeros(-(-(count + width_v + width_h) // 4) * 4)  # The length is a multiple of four numbers.
    np.concatenate([np.ravel(x) for x in parts], out=numbers[:count])
    numbers[count : count + n], numbers[count + width_v : count + width_v + m] = path.base_v, path.base_h
    return numbers + 0.0  # Adding 0 removes −0, which would count as a negative field.


def threads_per_chain(n: int, m: int, chains: int, multiprocessors: int) -> int:
    """Return how many threads advance one chain: a warp for few chains, else one. The results are identical."""
    looked_up = n * -(-m // _FIVE) + m * -(-n // _FIVE)  # Look-ups of a thread in a step.
    return 32 if chains <= (40 + looked_up / 10) * multiprocessors else 1


def arrangement(plan: Plan, chains: int, models: int, device: Device) -> tuple[int, int, int, int]:
    """Return the threads of a chain, the spins of a table, the bytes of memory of a warp and the threads of a block.

    Every one of the `models` has `chains` chains, and blocks of its own.
    """
    n, m = plan.path.end.n_visible, plan.path.end.n_hidden
    if threads_per_chain(n, m, models * chains, device.multiprocessors) > 1:
        # As few equal waves of blocks as possible, one block per multiprocessor at a time.
        waves = -(-models * -(-chains // _WARPS) // device.multiprocessors)
        warps = min(_WARPS, -(-chains // max(1, device.multiprocessors * waves // models)))
        room = _room(plan, n, m)
        left = device.shared_bytes - warps * room
        for spins in range(_LONGEST, _FIVE - 1, -1):
            if _bytes(plan, n, m, 32, spins) <= left:
                return 32, spins, room, 32 * warps
    return 1, _FIVE, 0, min(_BLOCK, 32 * -(-chains // 32))


def _macros(plan: Plan, group: int, spins: int, room: int, sizes: tuple[int, int, int]) -> dict[str, object]:
    """Return the macros of the kernel; `sizes` are the numbers of units of both sides and of numbers of the tables."""
    bounds = f"__launch_bounds__({32 * _WARPS})" if group > 1 else None
    if group == 1 and plan.method == "ais":  # AIS needs more registers, so that too few threads would fit.
        bounds = f"__launch_bounds__({_BLOCK},{512 // _BLOCK})"
    return {
        "NV": sizes[0],
        "NH": sizes[1],
        "DOUBLE": 1 if plan.placement.precision == "double" else None,
        "BASE": None if plan.path.start.is_uniform else 1,
        "JOINT": 1 if plan.method == "ais" else None,
        "GROUP": group,
        "SPINS": spins,
        "NUMBERS": sizes[2],
        "ROOM_BYTES": room,
        "BATCH": _BATCH,
        "BOUNDS": bounds,
    }


def dense(path: SpinPath) -> Array:
    """Return the couplings of a path as a dense array."""
    weights: Array = path.weights.toarray() if sp.issparse(path.weights) else path.weights
    return weights


class Population(OnDevice):
    """Chains whose sampled spins are stored as bits of words, [word, chain]."""

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        super().__init__(plan, prepared, chains)
        self.room = len(chains)
        self.units = len(prepared.layout.path.base_v)
        self.bits = self.device.empty((-(-self.units // 32), max(1, len(chains))), np.uint32)
        if plan.chains.start is not None:
            rows = self.in_kernel_units(plan.chains.start[chains.start : chains.stop])
            down = np.pad(rows, ((0, 0), (0, -self.units % 32))) < 0
            words = np.packbits(down, axis=1).view(">u4").astype(np.uint32)
            self.bits, self.fresh = self.device.upload(np.ascontiguousarray(words.T)), 2

    @staticmethod
    def prepare(plan: Plan, device: Device) -> Prepared:
        """Convert a plan to the arguments of the kernel."""
        path = plan.path.spins
        weights = dense(path)
        n, m = weights.shape
        key = b"".join(x.tobytes() for x in (weights, path.slope_v, path.slope_h, path.base_v, path.base_h))
        layout = SmallLayout(path, weights, key, weight_grid(path, weights, plan.betas))
        return prepared(plan, device, path, 4 * -(-n // 32), _SECONDS * (n * m + 100), layout)

    def launch(self, to_step: int) -> None:
        """Launch the kernel for the steps up to `to_step`."""
        layout, device, prepared = self.prepared.layout, self.device, self.prepared
        n, m = layout.weights.shape
        chains, kind = len(self.chains), real_type(self.plan)
        group, spins, room, block = arrangement(self.plan, chains, 1, device)
        digits = np.finfo(kind).nmant + 1
        numbers = device.kept(  # Runs with other steps use the same tables.
            ("small", n, m, group, spins, digits, layout.key),
            lambda: tables(layout.path, layout.weights, group, spins, digits).astype(kind),
        )
        count = len(numbers)
        shared = count * np.dtype(kind).itemsize + block // 32 * room
        device.kernel([SOURCE], _macros(self.plan, group, spins, room, (n, m, count)))(
            -(-chains * group // block), block, shared,
            numbers, prepared.betas, prepared.differences, *prepared.address, self.first,
            np.int32(chains), self.bits, self.weights, self.joint, layout.grid,
            np.int32(self.step), np.int32(to_step), np.int32(self.plan.steps), np.int32(self.fresh),
        )  # fmt: skip

    def kernel_states(self) -> Array:
        """Return the states of the sampled side, [chain, unit]."""
        words = np.ascontiguousarray(self.device.download(self.bits).T.astype(">u4"))
        return 1.0 - 2.0 * np.unpackbits(words.view(np.uint8), axis=1, count=self.units).astype(np.float64)

    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Continue chain i from the state of chain ``ancestors[i]``; the log-weights do not move."""
        self.bits = self.device.take(self.bits, ancestors, 1)


def serves_together(plans: Sequence[Plan]) -> bool:
    """Whether the kernel supports all plans of one shape if it supports the first."""
    return True


def bytes_per_model(plan: Plan) -> int:
    """Return the memory of a model with all its chains, in bytes."""
    n, m = plan.path.end.n_visible, plan.path.end.n_hidden
    return 16 * (n * m + n + m) + plan.chains.count * (24 + 4 * -(-n // 32)) + _bytes(plan, n, m, 32, _LONGEST)


class Together(OneLaunch):
    """The chains of many models; the tables of all of them are computed on the GPU."""

    def __init__(self, plans: Sequence[Plan], device: Device) -> None:
        plan, paths = plans[0], [x.path.spins for x in plans]
        weights = np.stack([dense(path) for path in paths])
        slopes = [np.stack([getattr(path, name) for path in paths]) for name in ("slope_v", "slope_h")]
        bases = [np.stack([getattr(path, name) for path in paths]) for name in ("base_v", "base_h")]
        digits = np.finfo(real_type(plan)).nmant + 1
        sides: tuple[tuple[Array, Array], ...] = (
            (weights, slopes[1]),
            (weights.transpose(0, 2, 1), slopes[0]),
            (slopes[0][:, :, None], np.zeros((len(plans), 1))),
        )
        parts = [x.reshape(len(plans), -1) for side in sides for x in on_grid(*side, digits)]
        grids = np.array([weight_grid(path, w, plan.betas) for path, w in zip(paths, weights, strict=True)])
        super().__init__(plans, device, np.concatenate([*parts, *bases], axis=1), grids)
        given, self.grids = self.given
        n, m = self.sizes = weights.shape[1:]
        self.seconds = _SECONDS * (n * m + 100)
        self.arrangement = arrangement(plan, self.chains, len(plans), device)
        group, spins, room, _ = self.arrangement
        self.count = -(-_numbers(n, m, group, spins) // 4) * 4
        self.numbers = device.empty((len(plans), self.count), real_type(plan))
        self.macros = {**_macros(plan, group, spins, room, (n, m, self.count)), "MANY": 1}
        lay_out = device.kernel([TABLES], {**self.macros, "BOUNDS": None}, "lay_out")
        lay_out((-(-self.count // 256), len(plans)), 256, 0, given, self.numbers)
        self.bits = device.empty((len(plans), -(-n // 32), self.chains), np.uint32)

    def launch(self, to_step: int) -> None:
        """Launch the kernel for the steps up to `to_step`."""
        group, _, room, block = self.arrangement
        shared = self.count * np.dtype(real_type(self.plan)).itemsize + block // 32 * room
        self.device.kernel([SOURCE], self.macros)(
            (-(-self.chains * group // block), len(self.plans)), block, shared,
            self.numbers, self.betas, self.differences, self.seeds, *self.sides, np.uint32(self.plan.chains.first),
            np.int32(self.chains), self.bits, self.weights, self.joint, self.grids,
            np.int32(self.step), np.int32(to_step), np.int32(self.plan.steps), np.int32(self.fresh),
        )  # fmt: skip
