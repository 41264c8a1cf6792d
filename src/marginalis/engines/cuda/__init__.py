"""The GPU engine: kernels in CUDA C, compiled at run time."""

from __future__ import annotations

from functools import partial
from types import ModuleType

from ...gpu.device import open_device
from ...sampling.plan import Plan
from .. import Begun
from . import general, large, lattice, sites, small


def kernel_for(plan: Plan) -> ModuleType:
    """Return the kernel that is made for such models, or the one for all."""
    return next((kernel for kernel in (small, lattice, sites, large) if kernel.serves(plan)), general)


def begin(plan: Plan) -> Begun:
    """Lay a plan out on its GPU, for the kernel that is made for such models."""
    device = open_device(plan.device)
    made_for = kernel_for(plan)
    prepared = made_for.Population.prepare(plan, device)
    together = max(32, device.free_bytes() // prepared.bytes_per_chain // 32 * 32)
    population = partial(made_for.Population, plan, prepared)
    return Begun(population, together, at_least=plan.chains, carries_marginal=plan.method == "ais", alone=True)
