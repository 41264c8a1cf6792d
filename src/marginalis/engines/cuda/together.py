"""Many models of one shape in one launch: the common part of their populations, and the loop over what fits at a time.

A module with a class `Together` runs the models of several plans in one launch of its kernel: the kernel has a row of
blocks for each model, whose parameters and random numbers it finds by the number of the row. A model has the bits that
it has alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import numpy as np

from ...checks import Array
from ...gpu.device import Device, open_device
from ...parallel.threads import Tick, run_jobs
from ...random import HIDDEN, VISIBLE
from ..plan import Plan
from .population import LAUNCH_SECONDS, STEP_SECONDS, real_type

Weights = tuple[Array, Array | None]  # Log-weights of a plan, and those of mAIS if AIS has computed them as well.

MEANS = Path(__file__).with_name("means.cu")
_BLOCK = 128  # Threads of a block of the kernel for means.
_SHARE = 0.5  # Largest share of the free memory of a GPU that a launch uses.
_MOST_ROWS = 65535  # Largest number of rows of blocks of a launch.


class OneLaunch(ABC):
    """The chains of many models on a GPU, all at the same step; weights are [method, model, chain]."""

    seconds: float  # Estimated time of one chain·step on a busy GPU.
    betas: Any
    differences: Any  # β_k − β_{k−1}.

    def __init__(self, plans: Sequence[Plan], device: Device, *arrays: np.ndarray) -> None:
        """Upload what all kernels need, and `arrays`, in one transfer; `given` are the latter on the GPU."""
        plan = plans[0]
        self.plans, self.plan, self.device, self.step, self.fresh = plans, plan, device, 0, 1
        self.chains = plan.chains.count
        seeds = np.array([x.chains.seed for x in plans], np.uint64)
        words = np.stack([seeds & np.uint64(0xFFFFFFFF), seeds >> np.uint64(32)], axis=1).astype(np.uint32)
        betas: np.ndarray = plan.betas.astype(real_type(plan))
        common: tuple[np.ndarray, ...] = words, betas, np.diff(plan.betas)
        self.seeds, self.betas, self.differences, *self.given = device.upload_all(*common, *arrays)
        self.sides = tuple(np.uint32(x) for x in ((HIDDEN, VISIBLE) if plan.path.is_turned else (VISIBLE, HIDDEN)))
        self.both = device.zeros((1 if plan.method != "ais" else 2, len(plans), self.chains), np.float64)
        self.weights, self.joint = self.both[0], None if plan.method != "ais" else self.both[1]

    @abstractmethod
    def launch(self, to_step: int) -> None:
        """Launch the kernel for the steps up to `to_step`."""

    def run(self) -> Iterator[int]:
        """Take all steps, in launches of bounded duration, and yield the number of steps that each has taken."""
        rate = max(self.seconds * len(self.plans) * self.chains, STEP_SECONDS)
        stride = max(1, int(LAUNCH_SECONDS / rate))
        while self.step < self.plan.steps:
            to_step = min(self.step + stride, self.plan.steps)
            self.launch(to_step)
            taken, self.step, self.fresh = to_step - self.step, to_step, 0
            if to_step < self.plan.steps:
                self.device.wait()
            yield taken

    def found(self, group: int = 1) -> list[Weights]:
        """Return the log-weights of every model, or ln of the mean weight of every `group` of its chains."""
        sums = self.device.staged(self.both if group == 1 else self._log_means(group))
        last = [plan.path.spins.constants(plan.betas[[0, -1]])[1] for plan in self.plans]
        marginal: list[Any] = [sums[0, i] + constant for i, constant in enumerate(last)]
        if self.joint is None:
            return [(x, None) for x in marginal]
        return [(sums[1, i] + last[i], x) for i, x in enumerate(marginal)]

    def _log_means(self, group: int) -> Any:
        """Return ln of the mean weight of every group of consecutive chains, [method, model, group]."""
        shape = *self.both.shape[:2], self.chains // group
        means = self.device.empty(shape, np.float64)
        count = shape[0] * shape[1] * shape[2]
        kernel = self.device.kernel([MEANS], {}, "log_means")
        kernel(-(-32 * count // _BLOCK), _BLOCK, 0, np.int32(count), np.int32(group), self.both, means)
        return means


def run_together(kernel: ModuleType, plans: Sequence[Plan], tick: Tick, group: int = 1) -> list[Weights]:
    """Run plans of one shape that a kernel supports, as many models at a time as fit into memory, on their GPUs.

    With a `group`, the results are ln of the mean weight of every so many consecutive chains.
    """
    numbers = plans[0].placement.devices
    idle: SimpleQueue[Device] = SimpleQueue()
    for number in numbers:
        idle.put(open_device(number))
    each = kernel.bytes_per_model(plans[0])
    room = min(_SHARE * open_device(number).free_bytes() // each for number in numbers) // len(numbers)
    size = int(min(max(1, room), _MOST_ROWS, -(-len(plans) // len(numbers))))
    found: list[Any] = [None] * len(plans)

    def job(part: range) -> Iterator[float]:
        device = idle.get()
        try:
            with device.own_stream():
                some = kernel.Together(plans[part.start : part.stop], device)
                for steps in some.run():
                    yield steps * len(part)
                found[part.start : part.stop] = some.found(group)
        finally:
            idle.put(device)

    parts = (range(len(plans))[first : first + size] for first in range(0, len(plans), size))
    run_jobs(job, parts, plans[0].steps * len(plans), len(numbers), tick)
    return found
