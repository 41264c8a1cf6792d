"""The GPU engine: kernels in CUDA C, which CuPy compiles at run time.

Every Python module with a `Population` prepares plans for the kernel in the file of the same name with ``.cu``: `small`
and `large` for dense models of spins (`resident` distributes the weights of `large` among multiprocessors), `lattice`
and `sites` for sparse bipartite graphs, and `general` for any model. `population` is their common base, and `together`
that of launches for many models. The package uses `gpu.device` and imports no other engine. Read `population` first,
then `general`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from threading import Lock
from types import ModuleType
from weakref import WeakSet

from ...gpu.device import open_device
from ...parallel.threads import Tick
from .. import PreparedPlan
from ..plan import Plan
from . import general, large, lattice, sites, small
from .population import OnDevice
from .together import Weights, run_together


def kernel_for(plan: Plan) -> ModuleType:
    """Return the module of the first special kernel that supports a plan, otherwise that of the general kernel."""
    return next((kernel for kernel in (small, lattice, sites, large) if kernel.serves(plan)), general)


def begin(plan: Plan) -> PreparedPlan:
    """Prepare a plan on its GPUs."""
    made_for = kernel_for(plan)
    shares = Counter(plan.placement.devices)
    prepared = {number: made_for.Population.prepare(plan, open_device(number)) for number in shares}
    together = min(x.device.free_bytes() // x.bytes_per_chain // shares[number] for number, x in prepared.items())
    lock, busy = Lock(), [(number, WeakSet[OnDevice]()) for number in plan.placement.devices]

    def population(chains: range) -> OnDevice:
        """Return a population on the least busy GPU."""
        with lock:
            number, there = min(busy, key=lambda of: len(of[1]))
            made: OnDevice = made_for.Population(plan, prepared[number], chains)
            there.add(made)
        return made

    return PreparedPlan(
        population,
        max(32, together // 32 * 32),
        at_least=plan.chains.count,
        carries_marginal=plan.method == "ais",
        at_a_time=len(plan.placement.devices),
    )


def run_batch(plans: Sequence[Plan], tick: Tick, group: int = 1) -> list[Weights] | None:
    """Run plans of one shape in as few launches as possible; return None if no kernel supports them together.

    Of every plan the result has the log-weights, and those of mAIS if AIS has computed them as well. With a `group` it
    has ln of the mean weight of every so many consecutive chains instead.
    """
    chains, kernel = plans[0].chains, kernel_for(plans[0])
    if chains.populations or chains.start is not None or not hasattr(kernel, "Together"):
        return None
    return run_together(kernel, plans, tick, group) if kernel.serves_together(plans) else None
