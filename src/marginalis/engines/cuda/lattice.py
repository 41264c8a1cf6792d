"""Bipartite lattices of spins with couplings ±J and no fields: arguments and populations of `lattice.cu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...checks import Array
from ...gpu.device import Device
from ...random import PLANES
from ..lattice_tables import gains, in_products, thresholds, whole_gains
from ..placement import MOST_NEIGHBOURS, has_one_coupling
from ..plan import Plan
from .population import OnDevice, Prepared, bits_of_signs, prepared, signs_of_bits

SOURCE = Path(__file__).with_name("lattice.cu")
GATHER = Path(__file__).with_name("gather.cu")
_MOST = MOST_NEIGHBOURS + 1  # Number of possible values of |field|/|J|.
_DIGITS = 4  # Largest number of classes of sites of one degree.
_PLANES = 2 * 8 * _MOST * 16  # Bytes of shared memory for the bits of thresholds.
_COUNTS = 32 * _DIGITS * 4  # Bytes of shared memory for the counts of sites of one degree by class.
MOST_INSIDE = 200 << 10  # Largest number of bytes of states in shared memory.
_SIGN = np.uint32(1 << 31)  # Bit of a neighbour's place that marks a coupling of −J.
_WARPS = 56  # Largest number of warps on a multiprocessor.
_RESIDENT = 32  # Number of warps of a multiprocessor whose registers must fit.
_MOST_WARPS = 16  # Largest number of warps of a block.
_TABLED = 1 << 16  # Largest number of steps whose tables are made in advance, at up to 300 bytes each.
_SECONDS = 1e-12  # Approximate time per chain, step and site.


class LatticeLayout(NamedTuple):
    """A plan as arguments of the kernel."""

    macros: dict[str, object]
    arguments: tuple[Any, ...]  # The arguments that are the same for every launch.
    order: NDArray[np.int64]  # Order of the sampled units in the kernel: by degree.
    sites: tuple[int, int]
    besides: int  # Bytes of shared memory besides the states of 32 chains.
    inside: bool  # Whether the states of 32 chains fit into shared memory.
    coupling: float
    tables: tuple[Any, Any] | None  # Tables of all steps, or None if there are too many steps.


def serves(plan: Plan) -> bool:
    """Whether the kernel supports a plan."""
    return has_one_coupling(plan)


def _both_ways(weights: Any) -> tuple[Any, Any]:
    """Return couplings as lists per sampled unit, and as lists per summed-out unit."""
    rows = sp.csr_array(weights, copy=True)
    rows.eliminate_zeros()
    return rows, sp.csr_array(rows.T)


def _tables(device: Device, plan: Plan, betas: Array, coupling: float) -> tuple[Any, Any]:
    """Return thresholds [step, |field|/|J|], and the contributions of sites to log-weights, as on the CPU.

    The contributions are zero in step 0. With draws by planes they are coefficients of the products of the digits of a
    site's class, by degree. Otherwise they are listed by |field|/|J|, after their common unit; in single precision
    they are whole numbers.
    """
    fields = betas[:, None] * (coupling * np.arange(_MOST + 1))
    if plan.placement.draws == "planes":
        degrees = np.arange(_MOST)[:, None]
        by_degree = gains(betas[:, None, None] * (coupling * (2 * np.arange(_DIGITS) - degrees)))
        worth = in_products(by_degree, np.subtract)
    else:
        worth, scale = gains(fields), np.ones(len(betas) - 1)
        if plan.placement.precision == "single":
            worth, scale = whole_gains(worth)
        worth = np.concatenate([scale[:, None], worth[:, 1:_MOST]], axis=1)
    worth = np.concatenate([np.zeros_like(worth[:1]), worth])
    return device.upload(thresholds(fields[:, :_MOST])), device.upload(worth)


def warps_of(device: Device, groups: int, shared: int, most: float) -> int:
    """Return how many warps share 32 chains: more if few groups of chains exist, or few fit on a multiprocessor."""
    together = max(1, min(device.shared_bytes // shared, -(-groups // device.multiprocessors), 32))
    warps = 1
    while 2 * warps * together <= _WARPS and warps < min(_MOST_WARPS, most):
        warps *= 2
    return warps


def bounds(warps: int) -> str:
    """Return the launch bounds, which limit the registers per thread."""
    return f"__launch_bounds__({32 * warps},{max(1, _RESIDENT // warps)})"


class Population(OnDevice):
    """Chains whose spins are stored as bits of words, [chain // 32, site]; a chain's bit is its number modulo 32."""

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        super().__init__(plan, prepared, chains)
        self.lead = int(self.first) % 32
        self.room = -(-(self.lead + len(chains)) // 32) * 32
        layout = prepared.layout
        pitch = layout.sites[0] if layout.inside else sum(layout.sites)
        self.x = self.device.zeros((self.room // 32, pitch), np.uint32)
        if plan.chains.start is not None:
            rows = np.ones((self.room, len(layout.order)))
            given = self.in_kernel_units(plan.chains.start[chains.start : chains.stop])
            rows[self.lead : self.lead + len(chains)] = given[: len(chains)]
            words = bits_of_signs(rows[:, layout.order]).T
            padding = ((0, 0), (0, pitch - words.shape[1]))
            self.x, self.fresh = self.device.upload(np.ascontiguousarray(np.pad(words, padding))), 2

    @staticmethod
    def prepare(plan: Plan, device: Device) -> Prepared:
        """Convert a plan to the arguments of the kernel."""
        path = plan.path.spins
        n, m = path.weights.shape
        lists = _both_ways(path.weights)
        orders = [np.argsort(np.diff(x.indptr), kind="stable") for x in lists]
        size = float(np.abs(lists[0].data[0]))
        arguments: list[Any] = [np.int32(n), np.int32(m)]
        for into, others, first in ((lists[0], orders[1], n), (lists[1], orders[0], 0)):
            own = into[orders[0] if first else orders[1]]
            degrees = np.diff(own.indptr)
            places = np.empty(len(others), np.int64)
            places[others] = np.arange(len(others))
            inputs: np.ndarray = np.zeros((max(1, degrees.max()), len(degrees)), np.uint32)
            at = np.arange(own.nnz) - np.repeat(own.indptr[:-1], degrees), np.repeat(np.arange(len(degrees)), degrees)
            inputs[at] = (first + places[own.indices]).astype(np.uint32) | np.where(own.data < 0, _SIGN, np.uint32(0))
            arguments.append(device.upload(inputs))
        arguments += [device.upload(order.astype(np.uint32)) for order in orders]
        degrees_of = [np.sort(np.diff(x.indptr)) for x in lists]
        arguments += [device.upload(np.searchsorted(x, np.arange(_MOST + 1)).astype(np.int32)) for x in degrees_of]
        besides = _PLANES + _COUNTS * len(np.unique(degrees_of[1]))
        inside = 4 * (n + m) <= min(MOST_INSIDE, device.shared_bytes - besides)
        in_order = all((order == np.arange(len(order))).all() for order in orders)
        macros: dict[str, object] = {
            "DEGREES_V": sum(1 << int(d) for d in np.unique(degrees_of[0])),
            "DEGREES_H": sum(1 << int(d) for d in np.unique(degrees_of[1])),
            "SIGNED": 1 if lists[0].data.min() < 0.0 else None,
            "SORTED": None if in_order else 1,
            "INSIDE": 1 if inside else None,
            "PLANES": 1 if plan.placement.draws == "planes" else None,
        }
        whole = _tables(device, plan, plan.betas, size) if plan.steps <= _TABLED else None
        layout = LatticeLayout(macros, tuple(arguments), orders[0], (n, m), besides, inside, size, whole)
        common = prepared(plan, device, path, (n if inside else n + m) // 8, _SECONDS * (n + m), layout)
        if plan.placement.draws == "words":
            return common
        *keys, side_v, side_h = common.address
        return common._replace(address=(*keys, side_v + np.uint32(PLANES), side_h + np.uint32(PLANES)))

    def launch(self, to_step: int) -> None:
        """Launch the kernel for the steps up to `to_step`."""
        layout, prepared, device = self.prepared.layout, self.prepared, self.device
        groups, (n, m) = self.room // 32, layout.sites
        shared = layout.besides + (4 * (n + m) if layout.inside else 0)
        warps = warps_of(device, groups, shared, max(n, m) / 32)
        most = -(-max(n, m) // (32 * warps))  # Largest number of sites of a thread.
        macros = {
            **layout.macros,
            "BITS": max(2, (4 * -(-most // 4)).bit_length()),
            "BOUNDS": bounds(warps),
        }
        origin, tables = 0, layout.tables
        if tables is None:
            betas = self.plan.betas[self.step : to_step + 1]
            origin, tables = self.step, _tables(device, self.plan, betas, layout.coupling)
        device.kernel([SOURCE], macros)(
            groups, 32 * warps, shared, *layout.arguments, *tables, np.int32(origin), *prepared.address,
            np.uint32(int(self.first) // 32), np.int32(self.lead), np.int32(len(self.chains)), self.x, self.weights,
            np.int32(self.step), np.int32(to_step), np.int32(self.plan.steps), np.int32(self.fresh),
        )  # fmt: skip

    def kernel_states(self) -> Array:
        """Return the states of the sampled side, [chain, unit]."""
        layout = self.prepared.layout
        units = len(layout.order)
        rows = np.empty((len(self.chains), units))
        words = self.device.download(self.x)[:, :units]
        rows[:, layout.order] = signs_of_bits(words.T, self.room)[self.lead : self.lead + len(self.chains)]
        return rows

    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Continue chain i from the state of chain ``ancestors[i]``; the log-weights do not move."""
        places = np.arange(self.room, dtype=np.int64)
        places[self.lead : self.lead + len(ancestors)] = self.lead + ancestors
        chosen = self.device.zeros(self.x.shape, np.uint32)
        gather = self.device.kernel([GATHER], {}, "gather")
        n, pitch = np.int32(self.prepared.layout.sites[0]), np.int64(self.x.shape[1])
        gather(self.room // 32, 128, 0, n, pitch, self.device.upload(places), self.x, chosen)
        self.x, self.fresh = chosen, 2
