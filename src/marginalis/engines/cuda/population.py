"""The common base of the populations of all kernels: log-weights on the GPU, and launches of bounded duration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...checks import Array
from ...gpu.device import Device
from ...random import HIDDEN, KEY_STEPS, MASK, VISIBLE
from ..plan import Plan

LAUNCH_SECONDS = 0.1  # Longest time between two waits for the GPU, so that interrupts are handled promptly.
STEP_SECONDS = 1e-6  # Shortest time of one step, for any number of chains.


class Prepared(NamedTuple):
    """The common data of all populations of one plan."""

    device: Device
    betas: Any
    differences: Any  # β_k − β_{k−1}.
    address: tuple[np.uint32, ...]  # Parts of the addresses of random numbers: the keys, and the two sides.
    constants: Array  # Contribution of the conversion to spins to every log-weight, up to each step.
    offset: float  # A sampled unit is offset + scale·(its value in the kernel).
    scale: float
    bytes_per_chain: int
    seconds: float  # Estimated time of one chain·step on a busy GPU.
    layout: Any  # The arguments of the kernel, which differ between kernels.


def prepared(plan: Plan, device: Device, path: Any, bytes_per_chain: int, seconds: float, layout: Any) -> Prepared:
    """Return the common data of the populations of a plan."""
    dtype = real_type(plan)
    betas, differences = device.upload_all(plan.betas.astype(dtype), np.diff(plan.betas))
    sides = (HIDDEN, VISIBLE) if plan.path.is_turned else (VISIBLE, HIDDEN)
    return Prepared(
        device,
        betas,
        differences,
        (*round_keys(plan.chains.seed), np.uint32(sides[0]), np.uint32(sides[1])),
        path.constants(plan.betas),
        path.offset,
        path.scale,
        bytes_per_chain + 32,
        seconds,
        layout,
    )


def real_type(plan: Plan) -> type:
    """Return the floating-point type of states and fields."""
    return np.float32 if plan.placement.precision == "single" else np.float64


def round_keys(seed: int) -> tuple[np.uint32, ...]:
    """Return the two keys of each of the ten rounds of Philox, as the kernels expect them."""
    pair = seed & MASK, seed >> 32
    return tuple(
        np.uint32((key + r * step) & MASK) for r in range(10) for key, step in zip(pair, KEY_STEPS, strict=True)
    )


def weight_grid(path: Any, couplings: Array, betas: Array) -> np.float64:
    """Return a number that rounds increments of log-weights when it is added and subtracted again.

    The increments become multiples of a power of 2, as small as possible, whose sums are the same in any order.
    """
    most = sum(float(np.abs(x).sum()) for x in (path.slope_v, path.slope_h, couplings))
    return np.float64(np.ldexp(1.5, np.frexp(1.001 * most * max(1.0, np.abs(np.diff(betas)).sum()))[1]))


class OnDevice(ABC):
    """Chains on a GPU, all at the same step. AIS also computes the weights of mAIS for the same states."""

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        self.plan, self.prepared, self.chains, self.step = plan, prepared, chains, 0
        self.device = prepared.device
        self.first = np.uint32(plan.chains.first + chains.start)
        self.room = -(-len(chains) // 32) * 32  # Number of chains, rounded up to whole warps.
        # Both kinds of weights are one array, for a single transfer: processes that share a GPU queue for transfers.
        self.both = self.device.zeros((1 if plan.method != "ais" else 2, self.room), np.float64)
        self.weights, self.joint = self.both[0], None if plan.method != "ais" else self.both[1]
        self._found: tuple[int, Array] | None = None  # A step, and the log-weights after it.
        self.fresh = 1  # 1: the states are still to be drawn from the base.
        rate = max(prepared.seconds * len(chains), STEP_SECONDS)
        self.stride = max(1, int(LAUNCH_SECONDS / rate))

    @abstractmethod
    def launch(self, to_step: int) -> None:
        """Launch the kernel for the steps up to `to_step`."""

    @abstractmethod
    def kernel_states(self) -> Array:
        """Return the states of the sampled side in the kernel's units, [chain, unit]; spins are ±1."""

    @abstractmethod
    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Continue chain i from the state of chain ``ancestors[i]``; the log-weights do not move."""

    def advance(self, to_step: int) -> None:
        """Take steps until `to_step` steps have been taken in total."""
        self.launch(to_step)
        self.step, self.fresh = to_step, 0
        if to_step < self.plan.steps:
            self.device.wait()

    @property
    def log_weights(self) -> Array:
        """Return ln W of the plan's own method."""
        return self._weights()[-1]

    @property
    def marginal_log_weights(self) -> Array:
        """Return ln Λ, also if the plan is AIS."""
        return self._weights()[0]

    def _weights(self) -> Array:
        """Return ln Λ and, for AIS, ln W, [method, chain]."""
        if self._found is None or self._found[0] != self.step:
            self._found = self.step, self.fetched_weights()
        return self._found[1]

    def fetched_weights(self) -> Array:
        """Return the sums of the kernel plus the constants, [method, chain]."""
        found: Array = self.device.download(self.both)[:, : len(self.chains)]
        found += self.prepared.constants[self.step]
        return found

    def states(self) -> Array:
        """Return the states of the sampled side, [chain, feature], in the model's units."""
        return self.prepared.offset + self.prepared.scale * self.kernel_states()

    def in_kernel_units(self, states: Array) -> Array:
        """Return states converted to the kernel's units, with rows for padding chains."""
        rows = np.ones((self.room, states.shape[1]))
        rows[: len(states)] = (states - self.prepared.offset) / self.prepared.scale
        return rows

    def padded(self, ancestors: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return ancestors for all chains, including padding."""
        return np.pad(ancestors, (0, self.room - len(ancestors)))


def bits_of_signs(rows: Array) -> NDArray[np.uint32]:
    """Return the signs of rows [chain, unit] as bits, [unit, chain // 32]."""
    return np.ascontiguousarray(np.packbits((rows > 0).T, axis=1, bitorder="little")).view(np.uint32)


def signs_of_bits(words: NDArray[np.uint32], chains: int) -> Array:
    """Return the ±1 [chain, unit] of words; the inverse of `bits_of_signs`."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, count=chains, bitorder="little")
    return 2.0 * bits.T.astype(np.float64) - 1.0
