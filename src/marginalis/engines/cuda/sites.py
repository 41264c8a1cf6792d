"""Sparse bipartite graphs of spins, with any couplings and fields: arguments and populations of `sites.cu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...gpu.device import Device
from ..plan import Plan
from . import lattice
from .population import Prepared, prepared, real_type, weight_grid

SOURCE = Path(__file__).with_name("sites.cu")
_MOST = 8  # Largest number of neighbours of a site.
_SECONDS = 3e-12  # Approximate time per chain, step and site.


class SitesLayout(NamedTuple):
    """A plan as arguments of the kernel."""

    macros: dict[str, object]
    arguments: tuple[Any, ...]  # The arguments that are the same for every launch.
    grid: np.float64
    order: NDArray[np.int64]
    sites: tuple[int, int]  # Sites of both sides, rounded up to multiples of four.
    inside: bool  # Whether the states of 32 chains fit into shared memory.


def serves(plan: Plan) -> bool:
    """Whether the kernel supports a plan."""
    model, base = plan.path.end, plan.path.start
    if plan.placement.draws != "words" or plan.move.kind != "gibbs" or plan.path.mixture is not None or base.is_coupled:
        return False
    if model.spin_form is None or not model.is_bipartite or not sp.issparse(model.weights):
        return False
    degrees = [np.bincount(ends) for ends in sp.coo_array(model.weights).coords]
    return max((int(x.max()) for x in degrees if len(x)), default=_MOST + 1) <= _MOST


def _neighbours(into: Any, first: int, dtype: type) -> tuple[int, NDArray[np.uint32], np.ndarray]:
    """Return the length (four or eight) of the lists of every site's neighbours, these lists, and their couplings."""
    lengths = np.diff(into.indptr)
    most = 4 if lengths.max() <= 4 else 8
    places = np.repeat(np.arange(len(lengths)), lengths), np.arange(into.nnz) - np.repeat(into.indptr[:-1], lengths)
    shape = -(-len(lengths) // 4) * 4, most
    sources: NDArray[np.uint32] = np.zeros(shape, np.uint32)
    weights: np.ndarray = np.zeros(shape, dtype)
    sources[places], weights[places] = first + into.indices, into.data
    return most, sources, weights


class Population(lattice.Population):
    """Chains whose spins are stored as bits of words, [chain // 32, site]; a chain's bit is its number modulo 32."""

    @staticmethod
    def prepare(plan: Plan, device: Device) -> Prepared:
        """Convert a plan to the arguments of the kernel."""
        path, dtype = plan.path.spins, real_type(plan)
        into_v = sp.csr_array(path.weights)
        n, m = (-(-x // 4) * 4 for x in into_v.shape)
        length_v, *lists_v = _neighbours(into_v, n, dtype)
        length_h, *lists_h = _neighbours(sp.csr_array(into_v.T), 0, dtype)
        fields = path.slope_v, path.slope_h, path.base_v, path.base_h
        padded: list[np.ndarray] = [np.pad(x, (0, -len(x) % 4)).astype(dtype) for x in fields]
        inside = 4 * (n + m) <= min(lattice.MOST_INSIDE, device.shared_bytes - 2048 * 16)
        macros: dict[str, object] = {
            "LENGTH_V": length_v,
            "LENGTH_H": length_h,
            "FIELDS": 1 if path.slope_v.any() or path.slope_h.any() else None,
            "BASE": None if plan.path.start.is_uniform else 1,
            "JOINT": 1 if plan.method == "ais" else None,
            "DOUBLE": 1 if plan.placement.precision == "double" else None,
            "INSIDE": 1 if inside else None,
        }
        arguments = np.int32(n), np.int32(m), *(device.upload(x) for x in (*lists_v, *lists_h, *padded))
        grid = weight_grid(path, into_v.data, plan.betas)
        layout = SitesLayout(macros, arguments, grid, np.arange(into_v.shape[0]), (n, m), inside)
        return prepared(plan, device, path, (n if inside else n + m) // 8, _SECONDS * (n + m), layout)

    def launch(self, to_step: int) -> None:
        """Launch the kernel for the steps up to `to_step`."""
        layout, prepared, device = self.prepared.layout, self.prepared, self.device
        groups, (n, m) = self.room // 32, layout.sites
        states = 4 * (n + m) if layout.inside else 0
        warps = lattice.warps_of(device, groups, states + 2048, max(n, m) / 4)
        device.kernel([SOURCE], {**layout.macros, "BOUNDS": lattice.bounds(warps)})(
            groups, 32 * warps, 512 * warps + states, *layout.arguments, prepared.betas, prepared.differences,
            *prepared.address, np.uint32(int(self.first) // 32), np.int32(self.lead), np.int32(len(self.chains)),
            self.x, self.weights, self.joint, layout.grid,
            np.int32(self.step), np.int32(to_step), np.int32(self.plan.steps), np.int32(self.fresh),
        )  # fmt: skip
