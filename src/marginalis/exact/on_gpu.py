"""Enumeration on a GPU: the sum over all states of one side."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..checks import dense
from ..gpu.device import Device
from ..models.forms import Natural, SpinForm, total
from ..models.units import Array, Units
from ..parallel.threads import Tick
from .enumeration import spins

SOURCE = Path(__file__).with_name("states.cu")
PAIRS_PER_SECOND = 3e12  # Approximate rate; a pair is one state of the enumerated side and one unit of the other.
_PART = 8  # Units of each of the first two parts.
_TOGETHER = 8  # States of the second part that are processed together; the same number is in states.cu.
_MOST_UNITS = 48  # Most units of the other side, whose factors are in shared memory.
_MOST_LOG = 600.0  # Largest logarithm of a factor; larger factors could overflow.
_LAUNCH_SECONDS = 0.1  # Approximate seconds of one kernel launch.
_LOG2_E = 1.0 / math.log(2.0)


def why_not(model: Natural | SpinForm, units: tuple[Units, Units]) -> str | None:
    """Return the reason why a model cannot be summed on a GPU, or None if it can."""
    if model.lateral is not None:
        return "sums bipartite models only"
    if model.weights.shape[1] > _MOST_UNITS:
        return f"sums models with up to {_MOST_UNITS} units on the larger side"
    slope = -2.0 if units[1].offset == 0.0 else 1.0
    reach = np.abs(model.hidden_bias) + np.abs(dense(model.weights)).sum(axis=0)
    return (
        "sums models with smaller parameters only" if abs(slope) * float(reach.max(initial=0.0)) > _MOST_LOG else None
    )


def sum_on_gpu(model: Natural | SpinForm, units: tuple[Units, Units], device: Device, tick: Tick) -> float:
    """Return the same as `enumerate_log_z`, computed on a GPU."""
    side, (taken_out, slope) = units[0], (1.0, -2.0) if units[1].offset == 0.0 else (0.0, 1.0)
    weights = dense(model.weights)
    n, m = weights.shape
    padding = max(0, 2 * _PART - n)
    w = np.pad(weights, ((0, padding), (0, 0)))
    linear = np.pad(model.visible_bias + taken_out * weights.sum(axis=1), (0, padding))
    c, n = model.hidden_bias, n + padding
    largest = abs(slope) * float((np.abs(c) + np.abs(w).sum(axis=0)).max(initial=0.0))
    states = side.offset + side.scale * spins(np.arange(1 << _PART), _PART)

    def own(exponent: Array) -> tuple[Array, NDArray[np.int32]]:
        powers = _LOG2_E * exponent
        whole = np.floor(powers)
        return np.exp2(powers - whole), whole.astype(np.int32)

    below, above, rest = slice(0, _PART), slice(_PART, 2 * _PART), slice(2 * _PART, n)
    # A unit of the third part is offset ± scale. The first part includes the offset, and the bits are the signs.
    shift, shifted = side.offset * w[rest].sum(axis=0), side.offset * float(linear[rest].sum())
    low = np.exp(slope * (c + shift + states @ w[below])).T
    mid = np.exp(slope * (states @ w[above])).reshape(-1, _TOGETHER, m).transpose(0, 2, 1)
    top = _LOG2_E * side.scale * np.hstack([slope * w[rest], linear[rest, None]])
    numbers = (m, max(1, int(650.0 / max(largest + 1.0, 1.0))), n - 2 * _PART)
    owns = *own(states @ linear[below] + shifted + taken_out * total(c)), *own(states @ linear[above])
    count = 1 << (n - 2 * _PART)
    blocks = min(count, 8 * device.multiprocessors)
    # Mantissas and exponents are in one array, so that one transfer returns both.
    places = blocks << _PART
    none = np.concatenate([np.zeros(2 * places, np.int32), np.full(places, -(1 << 29), np.int32)])
    *tables, sums = device.upload_all(low, mid, top, *owns, none)
    fixed = *map(np.int32, numbers), *tables
    kernel = device.kernel([SOURCE], {}, "sum_states")
    chunk = max(blocks, int(_LAUNCH_SECONDS * PAIRS_PER_SECOND / (m * 4.0**_PART)))
    for first in range(0, count, chunk):
        part = np.uint64(first), np.int32(min(chunk, count - first))
        kernel(blocks, 1 << _PART, 8 * m << _PART, *fixed, *part, sums, sums[2 * places :])
        if first + chunk < count:
            device.wait()
        tick(min(1.0, (first + chunk) / count))
    found = device.download(sums)
    powers = found[2 * places :].astype(np.float64)
    most = powers.max()
    scaled = math.fsum(found[: 2 * places].view(np.float64) * np.exp2(powers - most))
    return (math.log2(scaled) + float(most) - padding) * math.log(2.0)
