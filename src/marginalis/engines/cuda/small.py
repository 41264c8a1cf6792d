"""Small dense models of spins on two independent sides: plans laid out for `small.cu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...checks import Array
from ...gpu.device import Device
from ...sampling.plan import Plan
from ...sampling.signed import SignedPath, signed_path
from .population import OnDevice, Prepared, prepared, real_type

SOURCE = Path(__file__).with_name("small.cu")
_MOST_UNITS = 96  # of a side: products of as many factors in [1, 2] stay in range
_MOST_BYTES = 96 << 10  # of tables, which any GPU has in shared memory
_FIVE = 5  # spins of a table
# chains per multiprocessor up to which so many threads advance one
_FEW = ((32, 12), (8, 60))
_BLOCKS = {1: 128, 2: 128, 4: 128, 8: 128, 32: 256}  # threads of a block
_SECONDS = 1e-13  # of a chain·step and coupling, about
_SIGNS = 1.0 - 2.0 * (np.arange(32)[:, None] >> np.arange(_FIVE)[::-1] & 1)  # a bit is set where a spin is down


class LaidOut(NamedTuple):
    """Tables as each arrangement of threads wants them, on the GPU when they are first used."""

    path: SignedPath
    weights: Array
    macros: dict[str, object]
    tables: dict[int, tuple[Any, int]]  # by threads per chain: the numbers, and how many there are


def serves(plan: Plan) -> bool:
    """Whether a plan is for this kernel."""
    model, base, _ = plan.oriented()
    if model.spin_form is None or not model.is_bipartite or base.is_coupled or plan.mixture is not None:
        return False
    n, m = model.n_visible, model.n_hidden
    if plan.transition != "gibbs" or not (0 < n <= _MOST_UNITS and 0 < m <= _MOST_UNITS):
        return False
    return _bytes(plan, n, m, 1) <= _MOST_BYTES


def _widths(n: int, m: int, group: int) -> tuple[int, int]:
    """Return the numbers of units of both sides, rounded up to what the threads of a chain take at a time."""
    whole = 4 if group == 1 else 32
    return -(-n // whole) * whole, -(-m // whole) * whole


def _bytes(plan: Plan, n: int, m: int, group: int) -> int:
    """Return the size of the tables."""
    widths, fives_v, fives_h = _widths(n, m, group), -(-n // _FIVE), -(-m // _FIVE)
    numbers = 32 * (fives_v * widths[1] + fives_h * widths[0] + fives_v) + sum(widths)
    return numbers * np.dtype(real_type(plan)).itemsize


def _table(weights: Array, bias: Array, width: int) -> Array:
    """Sums of five inputs for each of their 32 states, [five, state, unit]; the first five have the bias, too."""
    inputs, units = weights.shape
    padded = np.zeros((-(-inputs // _FIVE) * _FIVE, width))
    padded[:inputs, :units] = weights
    table: Array = np.matmul(_SIGNS, padded.reshape(-1, _FIVE, width), dtype=np.float64)
    table[0, :, :units] += bias
    return table


def tables(path: SignedPath, weights: Array, group: int) -> Array:
    """Return all the numbers of a model, one after the other."""
    n, m = weights.shape
    width_v, width_h = _widths(n, m, group)
    parts = [_table(weights, path.slope_h, width_h), _table(weights.T, path.slope_v, width_v)]
    if group == 1:
        parts = [part.transpose(0, 2, 1) for part in parts]
    parts.append(_table(path.slope_v[:, None], np.zeros(1), 1))
    bases = np.pad(path.base_v, (0, width_v - n)), np.pad(path.base_h, (0, width_h - m))
    return np.concatenate([np.ravel(x) for x in (*parts, *bases)]) + 0.0  # a −0 would look like a negative field


def threads_per_chain(chains: int, multiprocessors: int) -> int:
    """Return how many threads advance one chain: many where there are few chains. The bits are the same."""
    return next((group for group, most in _FEW if chains <= most * multiprocessors), 1)


class Population(OnDevice):
    """Chains whose sampled spins are bits of words, [word, chain]."""

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        super().__init__(plan, prepared, chains)
        self.room = len(chains)
        self.units = len(prepared.laid_out.path.base_v)
        self.bits = self.device.zeros((-(-self.units // 32), max(1, len(chains))), np.uint32)
        if plan.start is not None:
            rows = self.signed(plan.start[chains.start : chains.stop])
            down = np.pad(rows, ((0, 0), (0, -self.units % 32))) < 0
            words = np.packbits(down, axis=1).view(">u4").astype(np.uint32)
            self.bits, self.fresh = self.device.upload(np.ascontiguousarray(words.T)), 2

    @staticmethod
    def prepare(plan: Plan, device: Device) -> Prepared:
        """Lay out a plan for the kernel."""
        path = signed_path(plan)
        weights = path.weights.toarray() if sp.issparse(path.weights) else path.weights
        n, m = weights.shape
        macros: dict[str, object] = {
            "NV": n,
            "NH": m,
            "DOUBLE": 1 if plan.precision == "double" else None,
            "BASE": None if plan.remainder.base.is_uniform else 1,
            "JOINT": 1 if plan.method == "ais" else None,
        }
        laid_out = LaidOut(path, weights, macros, {})
        return prepared(plan, device, path, 4 * -(-n // 32), _SECONDS * (n * m + 100), laid_out)

    def launch(self, to_step: int) -> None:
        """Start the kernel that takes the steps."""
        laid_out, device, prepared = self.prepared.laid_out, self.device, self.prepared
        group = threads_per_chain(len(self.chains), device.multiprocessors)
        n, m = laid_out.weights.shape
        if _bytes(self.plan, n, m, group) > _MOST_BYTES:
            group = 1
        if group not in laid_out.tables:
            made: np.ndarray = tables(laid_out.path, laid_out.weights, group).astype(real_type(self.plan))
            laid_out.tables[group] = device.upload(made), len(made)
        numbers, count = laid_out.tables[group]
        # AIS takes more registers, which would leave room for too few threads
        bounds = (
            f"__launch_bounds__({_BLOCKS[1]},{512 // _BLOCKS[1]})" if group == 1 and self.joint is not None else None
        )
        kernel = device.kernel([SOURCE], {**laid_out.macros, "GROUP": group, "NUMBERS": count, "BOUNDS": bounds})
        shared = count * np.dtype(real_type(self.plan)).itemsize
        if group == 32:  # and the random words of two steps
            tiles = -(-m // 4) * (1 if self.joint is None else 2) + -(-n // 4)
            shared = -(-shared // 16) * 16 + 1024 * -(-tiles // 32) * (_BLOCKS[32] // 32)
        kernel(
            -(-len(self.chains) * group // _BLOCKS[group]), _BLOCKS[group], shared,
            numbers, prepared.betas, prepared.differences, *prepared.address, self.first,
            np.int32(len(self.chains)), self.bits, self.weights, self.joint,
            np.int32(self.step), np.int32(to_step), np.int32(self.plan.steps), np.int32(self.fresh),
        )  # fmt: skip

    def signed_states(self) -> Array:
        """States of the sampled side, [chain, unit]."""
        words = np.ascontiguousarray(self.device.download(self.bits).T.astype(">u4"))
        return 1.0 - 2.0 * np.unpackbits(words.view(np.uint8), axis=1, count=self.units).astype(np.float64)

    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Go on from the states of these chains, one for each; log-weights stay where they are."""
        self.bits = self.device.take(self.bits, ancestors, 1)
