"""Site-by-site transfer for two-dimensional Ising grids with any couplings and fields.

The transfer matrix of Kramers & Wannier (Phys. Rev. 60, 252 (1941)) is factored into single sites (Binder,
Physica 62, 508 (1972); Morgenstern & Binder, Phys. Rev. B 22, 288 (1980)). A vector over the 2^L states of the newest L
sites is updated by replacing one spin after the other by the one below it,

    v'(…, s', …) = e^{h s' + J s' s_left} Σ_s e^{K s s'} v(…, s, …),

with 2^L operations per site instead of 4^L per row. The bond that closes a periodic row joins sites that are both in
the vector. If the rows themselves wrap around, Z is a trace: the first row is fixed to each of its 2^L states in turn,
and the same sweep is done for each.

On a triangular lattice the columns are processed from the last to the first, so that the site up the diagonal is still
in the vector. The exception is the diagonal that wraps around; a periodic row keeps its site in one additional bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..checks import Array
from ..parallel.threads import Tick, interruptible, run_jobs
from ..simd.cache import kernel

# Bound on ln of the ratio by which the rest of the grid can favour one state of the vector over another. Below this
# bound, states that underflow (e^-708) are negligible, even 2^30 of them together.
_SAFE_RANGE = 600.0
_LONG = 16  # Rows with more sites than this are swept in an interruptible way.
_ENTRIES_PER_JOB = 1 << 22  # Approximate number of vector entries computed by one job.
_NEVER = -1e300  # ln 0 as a finite number, because differences of infinities are NaN.


def transfer_cost(shape: tuple[int, int], periodic: tuple[bool, bool], triangular: bool = False) -> tuple[float, float]:
    """Return (log2 of the number of vector entries computed, log2 of the entries of the vector)."""
    _, length, width, closed, kept = _direction(shape, periodic, triangular)
    sites = (length + closed) * width
    return math.log2(sites) + width * (1 + closed) + kept, float(width + kept)


def transfer_log_z(
    field: Array,
    horizontal: Array,
    vertical: Array,
    periodic: tuple[bool, bool],
    diagonal: Array | None = None,
    *,
    threads: int = 1,
    tick: Tick = lambda done: None,
) -> float:
    """Return ln Σ_s exp(Σ h_rc s_rc + Σ J_rc s_rc s_r,c+1 + Σ K_rc s_rc s_r+1,c + Σ D_rc s_rc s_r+1,c+1).

    The result is exact up to rounding.

    Parameters
    ----------
    field, horizontal, vertical
        h, J and K, all with the shape of the grid. The last column of `horizontal` holds the bonds to the first
        column, the last row of `vertical` those to the first row.
    periodic
        Whether the rows wrap around (last row to first) and whether the columns do. Otherwise the wrap
        bonds are not used. A periodic side of two has two bonds between the same sites; both count.
    diagonal
        D, of the same shape, or None on a square lattice.
    threads
        Threads for grids that need the trace; the result does not depend on their number.
    tick
        A callback that receives the fraction done.
    """
    field, horizontal, vertical = (np.array(x, dtype=float) for x in (field, horizontal, vertical))
    slant = np.zeros(field.shape) if diagonal is None else np.array(diagonal, dtype=float)
    if field.ndim != 2 or field.size == 0 or not field.shape == horizontal.shape == vertical.shape == slant.shape:
        raise ValueError(
            "field, horizontal and vertical must be two-dimensional and of one shape, got "
            f"{field.shape}, {horizontal.shape} and {vertical.shape}"
            f"{'' if diagonal is None else f', diagonal {slant.shape}'}"
        )
    for side, wraps in zip(field.shape, periodic, strict=True):
        if wraps and side < 2:
            raise ValueError(f"periodic: a side of {side} cannot wrap around")
    if not periodic[0]:
        vertical[-1] = slant[-1] = 0.0
    if not periodic[1]:
        horizontal[:, -1] = slant[:, -1] = 0.0
    for name, x in (("field", field), ("horizontal", horizontal), ("vertical", vertical), ("diagonal", slant)):
        if not np.isfinite(x).all():
            raise ValueError(f"{name} must be finite")

    triangular = diagonal is not None
    transpose, length, width, closed, kept = _direction(field.shape, periodic, triangular)
    if transpose:
        field, horizontal, vertical, slant = field.T, vertical.T, horizontal.T, slant.T
    if triangular:  # Columns go from the last to the first, so column c is bit width − 1 − c.
        field, vertical = field[:, ::-1], vertical[:, ::-1]
        horizontal, slant = (np.roll(x[:, ::-1], -1, axis=1) for x in (horizontal, slant))
    down, across, offset = _log_factors(field, horizontal, vertical, slant, closed, triangular)
    first_row = across[0]
    unseen = 2.0 * np.abs(vertical).max(axis=0).sum() + 4.0 * np.abs(horizontal).max()
    unseen += 2.0 * np.abs(slant).max(axis=0).sum() + 4.0 * np.abs(slant).max()
    in_logs = bool(unseen > _SAFE_RANGE)
    if not in_logs:
        down, across = np.exp(down), np.exp(across)
    way = in_logs, triangular, kept

    if not closed:
        # The start corresponds to a row of unconnected spins above, with total weight one.
        vector = np.full(1 << (width + kept), -width * math.log(2.0) if in_logs else 0.5**width)
        scale = 0.0
        for row in range(length):
            part = vector, down[row : row + 1], across[row : row + 1], *way
            scale += interruptible(_sweep, *part) if width > _LONG else _sweep(*part)
            tick((row + 1) / length)
        return offset + scale + _log_sum(vector[: 1 << width], in_logs)

    # Without fields every state has the weight of its mirror image, so half of the first rows is enough.
    states = 1 << (width if field.any() else width - 1)
    results = np.empty(states)

    together = max(1, min(64, _ENTRIES_PER_JOB // (field.size << (width + kept))))

    def job(start: int) -> Iterator[float]:
        stop = min(start + together, states)
        vector = np.empty(1 << (width + kept))
        _trace(vector, down[1:], across[1:], first_row, *way, start, results[start:stop])
        yield stop - start

    run_jobs(job, range(0, states, together), states, threads, tick)
    mirror = 0.0 if field.any() else math.log(2.0)
    return offset + mirror + _log_sum(results, True)


def _direction(
    shape: tuple[int, ...], periodic: tuple[bool, bool], triangular: bool
) -> tuple[bool, int, int, bool, bool]:
    """Return (transpose, length, width, whether the length wraps around, whether to keep an additional bit).

    The direction is the cheaper one of the two.
    """
    rows, cols = shape
    wraps, turns = bool(periodic[0]), bool(periodic[1])
    along = (False, rows, cols, wraps, triangular and turns)
    other = (True, cols, rows, turns, triangular and wraps)
    return min(along, other, key=lambda d: (d[2] * (1 + d[3]) + d[4], d[1]))


def _log_factors(
    field: Array, horizontal: Array, vertical: Array, slant: Array, closed: bool, triangular: bool
) -> tuple[Array, Array, float]:
    """Return ln of the factors of each site, shifted to a maximum of 0, and the sum of the shifts.

    down[r, c, s s'] is for the bond from above. across[r, c, first, left, right, new] is for the field and the bonds to
    the left neighbour, to the first column (in the last column), and to the spin above the right neighbour. A closed
    grid has one additional row, which is the first row again with its bonds from above only.
    """
    spin = np.array([-1.0, 1.0])
    above, beyond = np.roll(vertical, 1, axis=0), np.roll(slant, 1, axis=0)
    above[0] = beyond[0] = 0.0
    left = np.roll(horizontal, 1, axis=1)
    left[:, 0] = 0.0
    wrap = np.zeros_like(horizontal)
    wrap[:, -1] = horizontal[:, -1]
    first, neighbour, corner, new = np.meshgrid(spin, spin, spin[: 1 + triangular], spin, indexing="ij")
    each = (..., *[None] * 4)
    across = (field[each] + left[each] * neighbour) * new + wrap[each] * (first * new)
    across = across + beyond[each] * (corner * new)
    top = across.max(axis=(2, 3, 4, 5), keepdims=True)
    down = np.stack([-above, above], axis=-1) - np.abs(above)[..., None]
    offset = math.fsum(np.abs(above).flat) + math.fsum(top.flat)
    across = across - top
    if closed:
        last, corners = vertical[-1], slant[-1]
        again = corners[:, None, None, None, None] * (corner * new) - np.abs(corners)[:, None, None, None, None]
        across = np.concatenate([across, again[None]])
        down = np.concatenate([down, np.stack([-last, last], axis=-1)[None] - np.abs(last)[None, :, None]])
        offset += math.fsum(np.abs(last)) + math.fsum(np.abs(corners))
    return np.ascontiguousarray(down), np.ascontiguousarray(across), offset


def _log_sum(values: Array, in_logs: bool) -> float:
    """Return ln Σ of the values, or of e^values."""
    if not in_logs:
        return math.log(values.sum())
    top = values.max()
    return float(top + math.log(np.exp(values - top).sum()))


_compiled = kernel(fastmath={"nnan", "nsz", "reassoc", "contract"})


@_compiled
def _site(vector, col, wraps, triangular, down, across, gain):
    """Replace the spin of one column, in place; return the largest entry.

    Column c is bit c of the index of the vector. Of the lower bits the factors depend only on the highest (the left
    neighbour) and the lowest (the first column), so the inner loop can use SIMD.
    """
    stride = 1 << col
    half = max(1, stride >> 1)
    step = 2 if wraps and half > 1 else 1
    rights = 2 if triangular and 2 * stride < len(vector) else 1  # Number of states of the next higher bit.
    top = 0.0
    for right in range(rights):
        for left in range(min(2, stride)):
            for parity in range(step):
                first = parity if half > 1 else left  # With two columns both are the same bit.
                minus, plus = gain * across[first, left, right, 0], gain * across[first, left, right, 1]
                mm, pm, mp, pp = minus * down[1], minus * down[0], plus * down[0], plus * down[1]
                start = left * half + parity
                for base in range(2 * right * stride, len(vector), 2 * rights * stride):
                    for i in range(base + start, base + (left + 1) * half, step):
                        a, b = vector[i], vector[i + stride]
                        x, y = mm * a + pm * b, mp * a + pp * b
                        vector[i], vector[i + stride] = x, y
                        top = max(top, x, y)
    return top


@_compiled
def _site_in_logs(vector, col, wraps, triangular, down, across, gain):
    """Do the same as `_site` for vector, factors and gain given as logarithms."""
    stride = 1 << col
    top = -np.inf
    for i in range(len(vector)):
        if i & stride:
            continue
        left, first, right = (i >> max(0, col - 1)) & 1, i & 1, (i >> (col + 1)) & triangular
        a, b = vector[i] + gain, vector[i + stride] + gain
        x, y = _log_add(a + down[1], b + down[0]), _log_add(a + down[0], b + down[1])
        if col == 0:
            left = first = 0
        x, y = x + across[first, left, right, 0], y + across[first, left, right, 1]
        vector[i], vector[i + stride] = x, y
        top = max(top, x, y)
    return top


@_compiled
def _log_add(a, b):
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


@_compiled
def _keep_first(vector, in_logs):
    """Copy the spin of column 0, which is about to be replaced, to the top bit."""
    half = len(vector) >> 1
    nothing = _NEVER if in_logs else 0.0
    for i in range(0, half, 2):
        vector[half + i], vector[half + i + 1], vector[i + 1] = nothing, vector[i + 1], nothing


@_compiled
def _drop_first(vector, in_logs):
    """Sum over the top bit; the sum is in the lower half."""
    half = len(vector) >> 1
    for i in range(half):
        vector[i] = _log_add(vector[i], vector[half + i]) if in_logs else vector[i] + vector[half + i]


@_compiled
def _sweep(vector, down, across, in_logs, triangular, kept):
    """Apply the rows of factors to the vector, keeping its largest entry about 1; return ln of the scale."""
    scale = 0.0
    width = down.shape[1]
    gain = 0.0 if in_logs else 1.0  # Scales the largest entry to 1 in the update of the next site.
    for row in range(down.shape[0]):
        if kept:
            _keep_first(vector, in_logs)
        for col in range(width):
            args = (vector, col, col == width - 1, triangular, down[row, col], across[row, col], gain)
            if in_logs:
                gain = -_site_in_logs(*args)
                scale -= gain
            else:
                gain = 1.0 / _site(*args)
                scale -= math.log(gain)
        if kept:
            _drop_first(vector, in_logs)
    if in_logs:
        vector += gain
    else:
        vector *= gain
    return scale


@_compiled
def _trace(vector, down, across, first_row, in_logs, triangular, kept, start, results):
    """Compute, for each first row from `start` on, ln of its weight (`first_row`) times the sum over the other rows."""
    for k in range(len(results)):
        state = start + k
        weight = 0.0
        for col in range(len(first_row)):
            weight += first_row[col, state & 1, (state >> max(0, col - 1)) & 1, 0, (state >> col) & 1]
        vector[:] = _NEVER if in_logs else 0.0
        vector[state] = 0.0 if in_logs else 1.0
        scale = _sweep(vector, down, across, in_logs, triangular, kept)
        results[k] = weight + scale + (vector[state] if in_logs else math.log(vector[state]))
