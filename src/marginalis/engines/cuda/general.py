"""Any model: arguments and populations of `general.cu`, with the units of `rectified.cu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...checks import Array
from ...gpu.device import Device
from ...models.units import Units
from ...paths.path import SpinPath
from ..plan import Plan
from ..reference.loop import Distributions as Reference
from ..reference.loop import never_one
from .population import OnDevice, Prepared, bits_of_signs, prepared, real_type, signs_of_bits

SOURCES = [Path(__file__).with_name(name) for name in ("rectified.cu", "general.cu")]
_BLOCK = 128  # Threads of a block.
_SECONDS = 4e-13  # Approximate time per chain, step and coupling.
_MOST_PADDED = 8  # Lists of inputs are padded to equal length if the longest has at most this many.


class GeneralLayout(NamedTuple):
    """A plan as arguments of the kernel."""

    macros: dict[str, object]
    arguments: tuple[Any, ...]  # The arguments that are the same for every launch.
    units: tuple[int, int]  # Features of both sides, with padding.
    features: int  # Features of the sampled side, without padding.
    scratch: int  # Numbers of workspace per chain.


def _lists(device: Device, couplings: Any, shape: tuple[int, int], dtype: type, even: bool = False) -> tuple[Any, ...]:
    """Return couplings [input, unit], padded to a shape, as lists of inputs per unit, and the length of equal lists."""
    if couplings is None:
        return None, None, None, 0
    links = sp.coo_array(couplings)
    into = sp.csr_array((links.data, links.coords[::-1]), shape=shape[::-1])
    into.sort_indices()
    lengths = np.diff(into.indptr)
    length = int(lengths.max(initial=0)) if even else 0
    if not 0 < length <= _MOST_PADDED:
        whole = into.indptr.astype(np.int32), into.indices.astype(np.int32), into.data.astype(dtype)
        return *(device.upload(x) for x in whole), 0
    inputs: np.ndarray = np.zeros((shape[1], length), np.int32)
    weights: np.ndarray = np.zeros((shape[1], length), dtype)
    places = np.arange(into.nnz) - np.repeat(into.indptr[:-1], lengths), np.repeat(np.arange(shape[1]), lengths)
    inputs[places[::-1]], weights[places[::-1]] = into.indices, into.data
    return None, device.upload(inputs), device.upload(weights), length


def _side(
    device: Device, units: Units, features: int, dtype: type
) -> tuple[int, tuple[Any, int], tuple[Any, Any], int]:
    """Return the kind of a side, the first feature of each variable, numbers of its units, and the most features.

    The numbers are 1/γ and 1/√γ of Gaussian units, or θ and 1/√γ of both sides of zero of rectified ones.
    """
    if units.halves is not None:
        gamma_plus, gamma_minus, theta_plus, theta_minus = units.halves
        numbers: np.ndarray = np.zeros((-(-features // 4) * 4, 4), dtype)
        numbers[features:, 1::2] = 1.0  # Padding units.
        for place, x in enumerate((theta_plus, gamma_plus**-0.5, -theta_minus, gamma_minus**-0.5)):
            numbers[:features, place] = x
        return 3 if units.is_nonnegative else 4, (None, features), (device.upload(numbers), None), 0
    if units.precisions is not None:
        variance = 1.0 / units.precisions
        both = tuple(device.upload(_fours(x, dtype)) for x in (variance, np.sqrt(variance)))
        return 1, (None, features), both, 0
    if units.is_one_hot:
        counts = np.bincount(units.owners(features))
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return 2, (device.upload(starts), len(counts)), (None, None), int(counts.max(initial=0))
    return 0, (None, features), (None, None), 0


def _fours(values: Array, dtype: type) -> np.ndarray:
    """Pad the last axis with zeros to a multiple of four."""
    padding = [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % 4)]
    return np.ascontiguousarray(np.pad(values, padding), dtype)


def _stacked(lateral: Any, weights: Any, rows: int) -> Any:
    """Return couplings into the sampled units from all units: the sampled ones, padded, then the summed-out ones."""
    n, _ = weights.shape
    inside = sp.csr_array((n, n)) if lateral is None else sp.csr_array(lateral)
    return sp.vstack([inside, sp.csr_array((rows - n, n)), sp.csr_array(weights.T)])


def _before(path: SpinPath, owners: NDArray[np.int64]) -> Any:
    """Return the couplings from the sampled variables before each one, and the other couplings among them."""
    if path.lateral is None:
        return None, None
    links = sp.coo_array(path.lateral)
    rows, columns = links.coords
    shape = path.lateral.shape
    earlier = owners[rows] < owners[columns]
    return tuple(
        sp.csr_array((links.data[kept], (rows[kept], columns[kept])), shape=shape) for kept in (earlier, ~earlier)
    )


class Population(OnDevice):
    """Chains of any model: states [unit, chain], or [unit, word] where 32 chains share a word of spins."""

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        super().__init__(plan, prepared, chains)
        layout: GeneralLayout = prepared.layout
        self.spins = layout.macros["SPINS"] is not None
        units = sum(layout.units)
        shape, dtype = ((units, self.room // 32), np.uint32) if self.spins else ((units, self.room), real_type(plan))
        self.x = self.device.zeros(shape, dtype)
        self.scratch = self.device.zeros((max(1, layout.scratch), self.room), real_type(plan))
        self.rises = self.device.zeros((self.room,), np.float64)
        start = None if plan.chains.start is None else plan.chains.start[chains.start : chains.stop]
        self.component: Any = None  # Component of a mixture of each chain.
        if plan.path.mixture is not None and len(chains):
            path = Reference(plan, chains)
            start = (path.start() if start is None else path.start_from(never_one(start)))[: len(chains)]
            if path.z is not None:
                components = np.pad(path.z[: len(chains)], (0, self.room - len(chains)))
                self.component = self.device.upload(components.astype(np.int32))
        if start is not None:
            rows = self.in_kernel_units(start)
            states = bits_of_signs(rows) if self.spins else rows.T.astype(dtype)
            self.x[: len(states)] = self.device.upload(np.ascontiguousarray(states))
            self.fresh = 2

    @staticmethod
    def prepare(plan: Plan, device: Device) -> Prepared:
        """Convert a plan to the arguments of the kernel."""
        model, base = plan.path.end, plan.path.start
        path, dtype = plan.path.spins, real_type(plan)
        features = len(path.base_v), len(path.base_h)
        kind_v, variables_v, gauss_v, most_v = _side(device, model.natural.visible_units, features[0], dtype)
        kind_h, variables_h, gauss_h, most_h = _side(device, model.natural.hidden_units, features[1], dtype)
        n, m = (x if kind == 2 else -(-x // 4) * 4 for x, kind in zip(features, (kind_v, kind_h), strict=True))
        before, after = _before(path, model.visible_units.owners(features[0]))
        start = None
        if base.is_coupled:
            weights0 = sp.csr_array(features) if path.weights0 is None else path.weights0
            start = _stacked(path.lateral0, weights0, n)
        *up, length_up = _lists(device, path.weights, (n, m), dtype, even=True)
        *then, length_after = _lists(device, _stacked(after, path.weights, n), (n + m, n), dtype, even=True)
        up0 = _lists(device, path.weights0 if start is None else weights0, (n, m), dtype)[:3]
        lists = (
            *up,
            *up0,
            *_lists(device, before, (n, n), dtype)[:3],
            *then,
            *_lists(device, start, (n + m, n), dtype)[:3],
        )
        metropolis = plan.move.kind == "metropolis"
        macros: dict[str, object] = {
            "KIND_V": kind_v,
            "KIND_H": kind_h,
            "LATERAL": int(before is not None),
            "COUPLED": None if start is None else 1,
            "LENGTH_UP": length_up,
            "LENGTH_AFTER": length_after,
            "DOUBLE": 1 if plan.placement.precision == "double" else None,
            "SPINS": 1 if kind_v == kind_h == 0 else None,
            "METROPOLIS": 1 if metropolis else None,
            "DRAWN": None if path.component_hidden is None else 1,
        }
        fields, own = path.component_fields, path.component_weights
        components = 0 if own is None else len(own)
        padded = [np.ascontiguousarray if kind == 2 else _fours for kind in (kind_v, kind_h)]
        mixture = [None, None, None]
        if own is not None and fields is not None:
            assert plan.path.mixture is not None
            own = np.concatenate([own, plan.path.mixture.log_kept])
            mixture[:2] = device.upload(np.ascontiguousarray(own, dtype)), device.upload(padded[0](fields, dtype))
        if path.component_hidden is not None:
            mixture[2] = device.upload(padded[1](path.component_hidden, dtype))
        biases = [device.upload(_fours(x, dtype)) for x in (path.slope_v, path.slope_h, path.base_v, path.base_h)]
        arguments = (
            np.int32(n), np.int32(m),
            variables_v[0], variables_h[0], np.int32(variables_v[1]), np.int32(variables_h[1]),
            *lists, *biases, *gauss_v, *gauss_h, np.int32(components), *mixture,
            np.int32(plan.path.mixture is not None and plan.path.mixture.drawn_last), np.int32(plan.move.sweeps),
        )  # fmt: skip
        scratch = max(2 * max(most_v, most_h, components), n if metropolis else 0)
        couplings = [x for x in (path.weights, path.lateral, path.weights0, path.lateral0) if x is not None]
        entries = 2 * sum(x.nnz if sp.issparse(x) else x.size for x in couplings) + 50 * (n + m) + components * (n + m)
        seconds = _SECONDS * (entries + (20 * plan.move.sweeps * path.weights.size if metropolis else 0))
        size = np.dtype(dtype).itemsize
        bytes_per_chain = scratch * size + ((n + m) // 8 if macros["SPINS"] else (n + m) * size)
        layout = GeneralLayout(macros, arguments, (n, m), features[0], scratch)
        return prepared(plan, device, path, bytes_per_chain, seconds, layout)

    def launch(self, to_step: int) -> None:
        """Launch the kernel for the steps up to `to_step`."""
        layout, prepared, plan = self.prepared.layout, self.prepared, self.plan
        kernel = self.device.kernel(SOURCES, layout.macros)
        kernel(
            -(-self.room // _BLOCK), _BLOCK, 0, *layout.arguments,
            prepared.betas, prepared.differences, *prepared.address, self.first,
            np.int64(self.room), self.x, self.scratch, self.rises, self.weights, self.joint,
            self.component, np.int32(self.step), np.int32(to_step), np.int32(plan.steps), np.int32(self.fresh),
        )  # fmt: skip

    def kernel_states(self) -> Array:
        """Return the states of the sampled side, [chain, unit]."""
        states = self.device.download(self.x[: self.prepared.layout.features])
        if self.spins:
            return signs_of_bits(states, len(self.chains))
        return np.ascontiguousarray(states[:, : len(self.chains)].T, np.float64)

    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Continue chain i from the state of chain ``ancestors[i]``; the log-weights do not move."""
        places = self.padded(ancestors)
        if self.spins:
            chosen = self.device.zeros(self.x.shape, np.uint32)
            gather = self.device.kernel(SOURCES, self.prepared.layout.macros, "gather")
            n = np.int32(self.prepared.layout.features)
            gather(
                -(-self.room // _BLOCK), _BLOCK, 0, n, self.device.upload(places), np.int64(self.room), self.x, chosen
            )
            self.x = chosen
        else:
            self.x = self.device.take(self.x, places, 1)
        if self.component is not None:
            self.component = self.device.take(self.component, places, 0)
        self.fresh = 2  # 2: the quantities that depend on the states are computed anew.
