"""β sequences 0 = β_0 < β_1 < … < β_K = 1 (paper, below eq. P_k(x)_beta_k)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from ..checks import Array, did_you_mean, open_file, plain_array, reading, shown, whole

SCHEDULES = ("linear", "adaptive")
# Largest size of a file of β values, in bytes.
_MAX_FILE_BYTES = 64 << 20
# Default number of annealing steps K.
DEFAULT_STEPS = 1000


def betas(schedule: str | ArrayLike, steps: int = DEFAULT_STEPS) -> Array:
    """Return β_0 … β_K: ``"linear"`` with K = `steps`, or the given increasing list from 0 to 1."""
    if isinstance(schedule, str):
        if schedule != "linear":
            raise ValueError(
                f"schedule is {shown(schedule)}; it must be 'linear', 'adaptive' or a list of β from 0 to 1"
                + did_you_mean(schedule, SCHEDULES)
            )
        return np.linspace(0.0, 1.0, whole(steps, "steps", 1, 2**31) + 1)
    try:
        given = plain_array(schedule, "schedule")
        if given.dtype.kind == "c":
            raise TypeError
        with np.errstate(all="ignore"):  # A long double that overflows is refused below.
            sequence = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("schedule must be 'linear', 'adaptive' or a list of numbers from 0 to 1") from None
    if sequence.ndim != 1 or len(sequence) < 2:
        raise ValueError("schedule must list at least two β: 0 first and 1 last")
    if not np.isfinite(sequence).all():
        raise ValueError("schedule holds NaN or infinite values")
    if sequence[0] != 0.0 or sequence[-1] != 1.0:
        raise ValueError(f"schedule runs from {sequence[0]:g} to {sequence[-1]:g}; it must run from 0 to 1")
    rise = np.diff(sequence)
    if (rise <= 0).any():
        k = int(np.argmax(rise <= 0)) + 1
        raise ValueError(f"schedule must increase, but β_{k} = {sequence[k]:g} follows {sequence[k - 1]:g}")
    if whole(steps, "steps", 1, 2**31) not in (DEFAULT_STEPS, len(sequence) - 1):
        raise ValueError(f"steps is {steps}, but the schedule has {len(sequence) - 1} steps; leave steps out")
    return sequence


def read_schedule(path: str | Path) -> Array:
    """Read β values from a text file: numbers separated by white space or commas, ``#`` comments."""
    with reading("schedule file", path):
        with open_file(path, _MAX_FILE_BYTES) as file:
            try:
                text = file.read(_MAX_FILE_BYTES).decode("utf-8")
            except UnicodeDecodeError:
                raise ValueError("is not a text file") from None
        words = (w for line in text.splitlines() for w in line.split("#")[0].replace(",", " ").split())
        return betas(np.fromiter((float(w) for w in words), np.float64))
