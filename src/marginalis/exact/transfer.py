"""Site-by-site transfer for two-dimensional Ising grids with any couplings and fields.

The transfer matrix of Kramers & Wannier (Phys. Rev. 60, 252 (1941)) taken apart into single sites (Binder,
Physica 62, 508 (1972); Morgenstern & Binder, Phys. Rev. B 22, 288 (1980)): a vector over the 2^L states of
the newest L sites, in which one spin after the other is replaced by the one below it,

    v'(…, s', …) = e^{h s' + J s' s_left} Σ_s e^{K s s'} v(…, s, …),

at 2^L operations per site rather than 4^L per row. Bonds across a periodic row join sites that are in the
vector anyway. Where the rows themselves wrap around, Z is a trace: the first row is fixed to each of its
2^L states in turn, and each is carried round the torus by the same sweep.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..parallel.threads import Tick, interruptible, run_jobs
from ..simd.cache import kernel

Array = NDArray[np.float64]

# Bound on ln of the ratio by which the unseen part of the grid can favour one state of the vector over
# another. Below it no state that underflows (e^-708) can have mattered, even 2^30 of them together.
_SAFE_RANGE = 600.0
_LONG = 16  # sites of a row whose sweep takes long enough to think of interrupts
_ENTRIES_PER_JOB = 1 << 24
_NEVER = -1e300  # ln 0, without the infinities that would give NaN in differences


def transfer_cost(shape: tuple[int, int], periodic: tuple[bool, bool]) -> tuple[float, float]:
    """Return (log2 of the number of vector entries computed, log2 of the entries of the vector)."""
    length, width, closed = _direction(shape, periodic)[1:]
    sites = (length + closed) * width
    return math.log2(sites) + width * (1 + closed), float(width)


def transfer_log_z(
    field: Array,
    horizontal: Array,
    vertical: Array,
    periodic: tuple[bool, bool],
    *,
    threads: int = 1,
    tick: Tick = lambda done: None,
) -> float:
    """Return ln Σ_s exp(Σ h_rc s_rc + Σ J_rc s_rc s_r,c+1 + Σ K_rc s_rc s_r+1,c), exact to rounding.

    Parameters
    ----------
    field, horizontal, vertical
        h, J and K, all of the grid's shape. The last column of `horizontal` holds the bonds to the first
        column, the last row of `vertical` those to the first row.
    periodic
        Whether the rows wrap around (last row to first) and whether the columns do. Otherwise the wrap
        bonds are not used. A periodic side of two has two bonds between the same sites; both count.
    threads
        For grids that need the trace; the result does not depend on it.
    tick
        Is told the fraction done.
    """
    field, horizontal, vertical = (np.array(x, dtype=float) for x in (field, horizontal, vertical))
    if field.ndim != 2 or field.size == 0 or not field.shape == horizontal.shape == vertical.shape:
        raise ValueError(
            "field, horizontal and vertical must be two-dimensional and of one shape, got "
            f"{field.shape}, {horizontal.shape} and {vertical.shape}"
        )
    for side, wraps in zip(field.shape, periodic, strict=True):
        if wraps and side < 2:
            raise ValueError(f"periodic: a side of {side} cannot wrap around")
    if not periodic[0]:
        vertical[-1] = 0.0
    if not periodic[1]:
        horizontal[:, -1] = 0.0
    for name, x in (("field", field), ("horizontal", horizontal), ("vertical", vertical)):
        if not np.isfinite(x).all():
            raise ValueError(f"{name} must be finite")

    transpose, length, width, closed = _direction(field.shape, periodic)
    if transpose:
        field, horizontal, vertical = field.T, vertical.T, horizontal.T
    down, across, offset = _log_factors(field, horizontal, vertical, closed)
    first_row = across[0]
    unseen = 2.0 * np.abs(vertical).max(axis=0).sum() + 4.0 * np.abs(horizontal).max()
    in_logs = bool(unseen > _SAFE_RANGE)
    if not in_logs:
        down, across = np.exp(down), np.exp(across)

    if not closed:
        # As if there were a row of unconnected spins above, of total weight one.
        vector = np.full(1 << width, -width * math.log(2.0) if in_logs else 0.5**width)
        scale = 0.0
        for row in range(length):
            part = vector, down[row : row + 1], across[row : row + 1], in_logs
            scale += interruptible(_sweep, *part) if width > _LONG else _sweep(*part)
            tick((row + 1) / length)
        return offset + scale + _log_sum(vector, in_logs)

    # Without fields every state weighs as much as its mirror image, so half of the first rows will do.
    states = 1 << (width if field.any() else width - 1)
    results = np.empty(states)

    together = max(1, min(64, _ENTRIES_PER_JOB // (field.size << width)))

    def job(start: int) -> Iterator[float]:
        stop = min(start + together, states)
        _trace(np.empty(1 << width), down[1:], across[1:], first_row, in_logs, start, results[start:stop])
        yield stop - start

    run_jobs(job, range(0, states, together), states, threads, tick)
    mirror = 0.0 if field.any() else math.log(2.0)
    return offset + mirror + _log_sum(results, True)


def _direction(shape: tuple[int, ...], periodic: tuple[bool, bool]) -> tuple[bool, int, int, bool]:
    """Return (transpose, length, width, whether the length wraps around), whichever is cheaper."""
    rows, cols = shape
    along = (False, rows, cols, bool(periodic[0]))
    other = (True, cols, rows, bool(periodic[1]))
    return min(along, other, key=lambda d: (d[2] * (1 + d[3]), d[1]))


def _log_factors(field: Array, horizontal: Array, vertical: Array, closed: bool) -> tuple[Array, Array, float]:
    """ln of the factors that each site brings, largest 0, and the constant thereby taken out.

    down[r, c, s s'] for the bond from above, across[r, c, first, left, new] for the field and the bonds to
    the left neighbour and, in the last column, to the first. A closed grid has one more row, which is the
    first again: its bonds from above only.
    """
    spin = np.array([-1.0, 1.0])
    above = np.roll(vertical, 1, axis=0)
    above[0] = 0.0
    left = np.roll(horizontal, 1, axis=1)
    left[:, 0] = 0.0
    wrap = np.zeros_like(horizontal)
    wrap[:, -1] = horizontal[:, -1]
    first, neighbour, new = np.meshgrid(spin, spin, spin, indexing="ij")
    across = (field[..., None, None, None] + left[..., None, None, None] * neighbour) * new
    across = across + wrap[..., None, None, None] * (first * new)
    top = across.max(axis=(2, 3, 4), keepdims=True)
    down = np.stack([-above, above], axis=-1) - np.abs(above)[..., None]
    offset = math.fsum(np.abs(above).flat) + math.fsum(top.flat)
    across = across - top
    if closed:
        across = np.concatenate([across, np.zeros_like(across[:1])])
        last = vertical[-1]
        down = np.concatenate([down, np.stack([-last, last], axis=-1)[None] - np.abs(last)[None, :, None]])
        offset += math.fsum(np.abs(last))
    return np.ascontiguousarray(down), np.ascontiguousarray(across), offset


def _log_sum(values: Array, in_logs: bool) -> float:
    """Return ln Σ of the values, or of e^values."""
    if not in_logs:
        return math.log(values.sum())
    top = values.max()
    return float(top + math.log(np.exp(values - top).sum()))


_compiled = kernel(fastmath={"nnan", "nsz", "reassoc", "contract"})


@_compiled
def _site(vector, col, wraps, down, across, gain):
    """Replace the spin of one column, in place; return the largest entry.

    Column c is bit c of the vector's index; the factors are constant along runs of the lower bits, whose
    top one is the left neighbour and whose bottom one the first column, so the inner loop can use SIMD.
    """
    stride = 1 << col
    half = max(1, stride >> 1)
    step = 2 if wraps and half > 1 else 1
    top = 0.0
    for left in range(min(2, stride)):
        for parity in range(step):
            first = parity if half > 1 else left  # with two columns they are the same bit
            minus, plus = gain * across[first, left, 0], gain * across[first, left, 1]
            mm, pm, mp, pp = minus * down[1], minus * down[0], plus * down[0], plus * down[1]
            start = left * half + parity
            for base in range(0, len(vector), 2 * stride):
                for i in range(base + start, base + (left + 1) * half, step):
                    a, b = vector[i], vector[i + stride]
                    x, y = mm * a + pm * b, mp * a + pp * b
                    vector[i], vector[i + stride] = x, y
                    top = max(top, x, y)
    return top


@_compiled
def _site_in_logs(vector, col, wraps, down, across, gain):
    """`_site` for vector, factors and gain that are given as logarithms."""
    stride = 1 << col
    top = -np.inf
    for i in range(len(vector)):
        if i & stride:
            continue
        left, first = (i >> max(0, col - 1)) & 1, i & 1
        a, b = vector[i] + gain, vector[i + stride] + gain
        x, y = _log_add(a + down[1], b + down[0]), _log_add(a + down[0], b + down[1])
        if col == 0:
            left = first = 0
        x, y = x + across[first, left, 0], y + across[first, left, 1]
        vector[i], vector[i + stride] = x, y
        top = max(top, x, y)
    return top


@_compiled
def _log_add(a, b):
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


@_compiled
def _sweep(vector, down, across, in_logs):
    """Take the vector through the rows of factors, keeping its largest entry 1; return ln of the scale."""
    scale = 0.0
    width = down.shape[1]
    gain = 0.0 if in_logs else 1.0  # takes the previous site's largest entry to 1 without a pass of its own
    for row in range(down.shape[0]):
        for col in range(width):
            args = (vector, col, col == width - 1, down[row, col], across[row, col], gain)
            if in_logs:
                gain = -_site_in_logs(*args)
                scale -= gain
            else:
                gain = 1.0 / _site(*args)
                scale -= math.log(gain)
    if in_logs:
        vector += gain
    else:
        vector *= gain
    return scale


@_compiled
def _trace(vector, down, across, first_row, in_logs, start, results):
    """For each first row from `start` on, ln of its weight (`first_row`) times the sum over the others."""
    for k in range(len(results)):
        state = start + k
        weight = 0.0
        for col in range(len(first_row)):
            weight += first_row[col, state & 1, (state >> max(0, col - 1)) & 1, (state >> col) & 1]
        vector[:] = _NEVER if in_logs else 0.0
        vector[state] = 0.0 if in_logs else 1.0
        scale = _sweep(vector, down, across, in_logs)
        results[k] = weight + scale + (vector[state] if in_logs else math.log(vector[state]))
