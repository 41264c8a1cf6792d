"""Enumeration on a GPU: the sums over all states of one side, for one model or many."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
_MOST_MODELS = 65535  # Largest number of rows of blocks of a launch.
_MOST_BYTES = 1 << 28  # Largest memory of the tables and results of the models of a launch.
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


def sums_on_gpu(
    models: Sequence[Natural | SpinForm], units: tuple[Units, Units], device: Device, tick: Tick
) -> list[float]:
    """Return what `enumerate_log_z` returns for each of several models of one shape, computed on a GPU.

    The models are summed in as few launches as possible, and each has the bits that it has alone.
    """
    m = models[0].weights.shape[1]
    count = 1 << max(0, models[0].weights.shape[0] - 2 * _PART)
    blocks = min(count, 8 * device.multiprocessors)
    each = 8 * (2 * m + 4) << _PART
    each += 12 * blocks << _PART
    size = max(1, min(_MOST_MODELS, _MOST_BYTES // each))
    found: list[float] = []
    for first in range(0, len(models), size):
        some = models[first : first + size]

        def own(fraction: float, low: int = first, number: int = len(some)) -> None:
            tick((low + fraction * number) / len(models))

        found += _sum_some(some, units, device, own)
    return found


def _sum_some(
    models: Sequence[Natural | SpinForm], units: tuple[Units, Units], device: Device, tick: Tick
) -> list[float]:
    """Sum models whose tables fit into memory together."""
    side, (taken_out, slope) = units[0], (1.0, -2.0) if units[1].offset == 0.0 else (0.0, 1.0)
    weights: Array = np.stack([dense(model.weights) for model in models])
    b, c = (np.stack([getattr(model, name) for model in models]) for name in ("visible_bias", "hidden_bias"))
    n, m = weights.shape[1:]
    padding = max(0, 2 * _PART - n)
    w = np.pad(weights, ((0, 0), (0, padding), (0, 0)))
    linear = np.pad(b + taken_out * weights.sum(axis=2), ((0, 0), (0, padding)))
    n += padding
    largest = abs(slope) * float((np.abs(c) + np.abs(w).sum(axis=1)).max(initial=0.0))
    states = side.offset + side.scale * spins(np.arange(1 << _PART), _PART)

    def own(exponent: Array) -> tuple[Array, NDArray[np.int32]]:
        powers = _LOG2_E * exponent
        whole = np.floor(powers)
        return np.exp2(powers - whole), whole.astype(np.int32)

    below, above, rest = slice(0, _PART), slice(_PART, 2 * _PART), slice(2 * _PART, n)
    # A unit of the third part is offset ± scale. The first part includes the offset, and the bits are the signs.
    shift = side.offset * w[:, rest].sum(axis=1)
    fixed = side.offset * linear[:, rest].sum(axis=1) + taken_out * np.array([total(x) for x in c])
    low = np.exp(slope * ((c + shift)[:, None] + states @ w[:, below])).transpose(0, 2, 1)
    mid = np.exp(slope * (states @ w[:, above])).reshape(len(w), -1, _TOGETHER, m).transpose(0, 1, 3, 2)
    top = _LOG2_E * side.scale * np.concatenate([slope * w[:, rest], linear[:, rest, None]], axis=2)
    owns = *own(linear[:, below] @ states.T + fixed[:, None]), *own(linear[:, above] @ states.T)
    # The factors between two changes of the exponent; more often than necessary changes no bit.
    numbers = (m, max(1, int(650.0 / max(largest + 1.0, 1.0))), n - 2 * _PART)
    count = 1 << (n - 2 * _PART)
    blocks = min(count, 8 * device.multiprocessors)
    # Mantissas and exponents are in one array, so that one transfer returns both.
    places = len(w) * blocks << _PART
    none = np.concatenate([np.zeros(2 * places, np.int32), np.full(places, -(1 << 29), np.int32)])
    *tables, sums = device.upload_all(*map(np.ascontiguousarray, (low, mid, top, *owns)), none)
    given = *map(np.int32, numbers), *tables
    kernel = device.kernel([SOURCE], {}, "sum_states")
    # A multiple of `blocks`, so that a block sums the same states whatever the number of models.
    chunk = blocks * max(1, int(_LAUNCH_SECONDS * PAIRS_PER_SECOND / (len(w) * m * 4.0**_PART * blocks)))
    for first in range(0, count, chunk):
        part = np.uint64(first), np.int32(min(chunk, count - first))
        kernel((blocks, len(w)), 1 << _PART, 8 * m << _PART, *given, *part, sums, sums[2 * places :])
        if first + chunk < count:
            device.wait()
        tick(min(1.0, (first + chunk) / count))
    found = device.download(sums)
    powers = found[2 * places :].astype(np.float64).reshape(len(w), -1)
    most = powers.max(axis=1)
    scaled = found[: 2 * places].view(np.float64).reshape(len(w), -1) * np.exp2(powers - most[:, None])
    ends = zip(scaled.sum(axis=1).tolist(), most.tolist(), strict=True)
    return [(math.log2(total) + exponent - padding) * math.log(2.0) for total, exponent in ends]
