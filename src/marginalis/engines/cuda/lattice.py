"""Bipartite lattices of spins with couplings ±J and no fields: arguments and populations of `lattice.cu`."""

from __future__ import annotations

from collections.abc import Sequence
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
from .together import OneLaunch

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
    tables: list[Any] | None  # Tables of all steps, or None if there are too many steps.


def serves(plan: Plan) -> bool:
    """Whether the kernel supports a plan."""
    return has_one_coupling(plan)


class Wiring(NamedTuple):
    """The graph of a lattice, without the signs of its couplings; the two sides are the sampled one and the other."""

    sizes: tuple[int, int]
    orders: tuple[NDArray[np.int64], ...]  # The units of each side, sorted by their number of neighbours.
    degrees: tuple[NDArray[np.int64], ...]  # Numbers of neighbours, sorted.
    inputs: tuple[NDArray[np.uint32], ...]  # Places of the neighbours of each unit, [number of the neighbour, unit].
    places: tuple[tuple[NDArray[np.int64], ...], ...]  # The places in `inputs` that are filled.
    bonds: tuple[NDArray[np.int64], ...]  # The couplings of these neighbours, as places in the list of all couplings.

    def signed(self, negative: NDArray[np.bool_]) -> list[NDArray[np.uint32]]:
        """Return the inputs of both sides with the signs of couplings, which are listed by [model, coupling]."""
        found = []
        for inputs, places, bonds in zip(self.inputs, self.places, self.bonds, strict=True):
            of_models = np.repeat(inputs[None], len(negative), axis=0)
            rows, columns = places
            of_models[:, rows, columns] |= np.where(negative[:, bonds], _SIGN, np.uint32(0))
            found.append(of_models)
        return found

    def common(self) -> list[np.ndarray]:
        """Return the arrays that kernels need besides the inputs: the orders, and the first site of every degree."""
        starts = [np.searchsorted(x, np.arange(_MOST + 1)).astype(np.int32) for x in self.degrees]
        return [*(order.astype(np.uint32) for order in self.orders), *starts]

    def macros(self, plan: Plan, device: Device, negative: NDArray[np.bool_]) -> dict[str, object]:
        """Return the macros of the kernel that do not depend on the number of chains."""
        in_order = all((order == np.arange(len(order))).all() for order in self.orders)
        return {
            "DEGREES_V": sum(1 << int(d) for d in np.unique(self.degrees[0])),
            "DEGREES_H": sum(1 << int(d) for d in np.unique(self.degrees[1])),
            "SIGNED": 1 if negative.any() else None,
            "SORTED": None if in_order else 1,
            "INSIDE": 1 if self.is_inside(device) else None,
            "PLANES": 1 if plan.placement.draws == "planes" else None,
        }

    @property
    def besides(self) -> int:
        """Bytes of shared memory besides the states of 32 chains."""
        return _PLANES + _COUNTS * len(np.unique(self.degrees[1]))

    def is_inside(self, device: Device) -> bool:
        """Whether the states of 32 chains fit into shared memory."""
        return 4 * sum(self.sizes) <= min(MOST_INSIDE, device.shared_bytes - self.besides)


def _wiring(couplings: Any) -> Wiring:
    """Return the graph of couplings in a CSR array without zeros."""
    n, m = couplings.shape
    numbered = sp.csr_array((np.arange(1, couplings.nnz + 1), couplings.indices, couplings.indptr), couplings.shape)
    lists = numbered, sp.csr_array(numbered.T)
    orders = tuple(np.argsort(np.diff(x.indptr), kind="stable") for x in lists)
    found: list[Any] = []
    for into, order, others, first in ((lists[0], orders[0], orders[1], n), (lists[1], orders[1], orders[0], 0)):
        own = into[order]
        degrees = np.diff(own.indptr)
        where = np.empty(len(others), np.int64)
        where[others] = np.arange(len(others))
        inputs: np.ndarray = np.zeros((max(1, degrees.max()), len(degrees)), np.uint32)
        at = np.arange(own.nnz) - np.repeat(own.indptr[:-1], degrees), np.repeat(np.arange(len(degrees)), degrees)
        inputs[at] = (first + where[own.indices]).astype(np.uint32)
        found.append((degrees, inputs, at, own.data - 1))
    return Wiring((n, m), orders, *zip(*found, strict=True))


def _tables(plan: Plan, betas: Array, couplings: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return thresholds [coupling, step, |field|/|J|], and the contributions of sites to log-weights, as on the CPU.

    The contributions are zero in step 0. With draws by planes they are coefficients of the products of the digits of a
    site's class, by degree. Otherwise they are listed by |field|/|J|, after their common unit; in single precision
    they are whole numbers.
    """
    fields = betas[:, None, None] * (couplings[:, None] * np.arange(_MOST + 1))  # [step, coupling, |field|/|J|]
    if plan.placement.draws == "planes":
        degrees = np.arange(_MOST)[:, None]
        of_classes = couplings[:, None, None] * (2 * np.arange(_DIGITS) - degrees)
        worth = in_products(gains(betas[:, None, None, None] * of_classes), np.subtract)
    else:
        worth, scale = gains(fields), np.ones((len(betas) - 1, len(couplings)))
        if plan.placement.precision == "single":
            rows, units = whole_gains(worth.reshape(-1, _MOST + 1))
            worth, scale = rows.reshape(worth.shape), units.reshape(scale.shape)
        worth = np.concatenate([scale[..., None], worth[..., 1:_MOST]], axis=-1)
    worth = np.concatenate([np.zeros_like(worth[:1]), worth])
    by_coupling = [np.ascontiguousarray(x.swapaxes(0, 1)) for x in (fields[..., :_MOST], worth)]
    return thresholds(by_coupling[0]), by_coupling[1]


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


def _macros(warps: int, sites: int) -> dict[str, object]:
    """Return the macros that depend on the number of warps, for so many sites of the larger side."""
    most = -(-sites // (32 * warps))  # Largest number of sites of a thread.
    return {"BITS": max(2, (4 * -(-most // 4)).bit_length()), "BOUNDS": bounds(warps)}


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
        couplings = sp.csr_array(path.weights, copy=True)
        couplings.eliminate_zeros()
        wiring, negative = _wiring(couplings), couplings.data[None] < 0.0
        size = float(np.abs(couplings.data[0]))
        inside, macros = wiring.is_inside(device), wiring.macros(plan, device, negative)
        lists = device.upload_all(*(x[0] for x in wiring.signed(negative)), *wiring.common())
        arguments = np.int32(n), np.int32(m), *lists
        whole = device.upload_all(*_tables(plan, plan.betas, np.array([size]))) if plan.steps <= _TABLED else None
        layout = LatticeLayout(macros, arguments, wiring.orders[0], (n, m), wiring.besides, inside, size, whole)
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
        macros = {**layout.macros, **_macros(warps, max(n, m))}
        origin, tables = 0, layout.tables
        if tables is None:
            betas = self.plan.betas[self.step : to_step + 1]
            origin, tables = self.step, device.upload_all(*_tables(self.plan, betas, np.array([layout.coupling])))
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


def _spins(plan: Plan) -> tuple[Any, bool]:
    """Return the couplings of spins in a CSR array, and whether there are fields, without the other parts of a path."""
    form = plan.path.end.partial_spin_form
    return form.weights, bool(form.visible_bias.any() or form.hidden_bias.any())


def serves_together(plans: Sequence[Plan]) -> bool:
    """Whether the kernel supports all plans of one shape if it supports the first."""
    forms = [_spins(plan) for plan in plans]
    sizes = np.abs([weights.data for weights, _ in forms])
    uniform = bool((sizes == sizes[:, :1]).all() and sizes.all())
    return uniform and plans[0].steps <= _TABLED and not any(has_fields for _, has_fields in forms)


def bytes_per_model(plan: Plan) -> int:
    """Return the memory of a model with all its chains, in bytes."""
    n, m = plan.path.end.n_visible, plan.path.end.n_hidden
    lists, tables = 4 * _MOST * (n + m), 4 * (1 + 2 * _DIGITS) * _MOST * (plan.steps + 1)
    return lists + tables + (plan.chains.count + 63) // 32 * 4 * (n + m) + 24 * plan.chains.count


class Together(OneLaunch):
    """The chains of many lattices that differ in the signs and the common size of their couplings."""

    def __init__(self, plans: Sequence[Plan], device: Device) -> None:
        plan = plans[0]
        forms = [_spins(x)[0] for x in plans]
        data = np.stack([x.data for x in forms])
        wiring, negative = _wiring(forms[0]), data < 0.0
        couplings, tables = np.unique(np.abs(data[:, 0]), return_inverse=True)
        inputs = wiring.signed(negative)
        super().__init__(
            plans, device, *inputs, *wiring.common(), *_tables(plan, plan.betas, couplings), tables.astype(np.int32)
        )
        *lists, self.thresholds, self.worth, self.tables = self.given
        self.sizes, self.besides, self.inside = wiring.sizes, wiring.besides, wiring.is_inside(device)
        self.lead = plan.chains.first % 32
        self.groups = -(-(self.lead + self.chains) // 32)
        self.wires = tuple(np.int32(x[0].size) for x in inputs)
        self.arguments = *(np.int32(x) for x in self.sizes), *lists
        self.macros = {**wiring.macros(plan, device, negative), "MANY": 1}
        self.seconds = _SECONDS * sum(self.sizes)
        room = self.sizes[0] if self.inside else sum(self.sizes)
        self.x = device.empty((len(plans), self.groups, room), np.uint32)
        if plan.placement.draws == "planes":
            self.sides = tuple(side + np.uint32(PLANES) for side in self.sides)

    def launch(self, to_step: int) -> None:
        """Launch the kernel for the steps up to `to_step`."""
        models, plan = len(self.plans), self.plan
        shared = self.besides + (4 * sum(self.sizes) if self.inside else 0)
        warps = warps_of(self.device, self.groups * models, shared, max(self.sizes) / 32)
        self.device.kernel([SOURCE], {**self.macros, **_macros(warps, max(self.sizes))})(
            (self.groups, models), 32 * warps, shared, self.tables, np.int32(plan.steps + 1), *self.wires,
            *self.arguments, self.thresholds, self.worth, np.int32(0), self.seeds, *self.sides,
            np.uint32(plan.chains.first // 32), np.int32(self.lead), np.int32(self.chains), self.x, self.weights,
            np.int32(self.step), np.int32(to_step), np.int32(plan.steps), np.int32(self.fresh),
        )  # fmt: skip
