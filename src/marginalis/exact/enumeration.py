"""Enumeration: the sum over all states of one side, without exponentials in the inner loop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..checks import dense
from ..models.forms import Natural, SpinForm, total
from ..models.model import MRF
from ..models.units import Array, Units
from ..parallel.threads import Tick, run_jobs
from .structure import DiscreteSide

_HI_CHUNK = 1024  # Most states of the upper units per kernel call.
# The same if lower and upper units are coupled, so that the table of couplings stays in the cache.
_LATERAL_CHUNK = 128
_TABLE_ENTRIES = 1 << 17  # Most entries of the table over the lower units.
_STATES_AT_ONCE = 1 << 12  # Most states of a piece of `log_marginals`.
_FIELDS_AT_ONCE = 1 << 14  # Fields of a piece of states, few enough to stay in the cache and in reused memory.


class ChunkSums(NamedTuple):
    """Sums over chunks of states: sums[chunk, lane]·2^exponents[chunk, lane], without the units that were added.

    Chunk k has the states from k·2^`log2_size` on, if bit i of the number of a state is the state of unit i.
    """

    sums: Array
    exponents: Array
    log2_size: int

    @property
    def log_z(self) -> float:
        """The logarithm of the whole sum; NaN if all terms have underflowed."""
        top = self.exponents.max()
        scaled = math.fsum((self.sums * np.exp2(self.exponents - top)).ravel())
        return (math.log2(scaled) + float(top)) * math.log(2.0) if scaled > 0.0 else math.nan

    @property
    def shares(self) -> Array:
        """The sum over each chunk, relative to the largest term."""
        return np.asarray((self.sums * np.exp2(self.exponents - self.exponents.max())).sum(axis=1))


def enumerate_log_z(model: Natural | SpinForm, units: tuple[Units, Units], threads: int, tick: Tick) -> float:
    """ln Σ_v exp(b·v + ½vᵀLv) Π_j Z(a_j(v)), with a_j(v) = c_j + Σ_i w_ij v_i, over two-state units of either kind."""
    return chunk_sums(model, units, threads, tick).log_z


def chunk_sums(
    model: Natural | SpinForm, units: tuple[Units, Units], threads: int, tick: Tick, log2_size: int | None = None
) -> ChunkSums:
    """Return the sum over all states of two-state units in chunks, of 2^`log2_size` states each if that is given.

    For a spin Z(a) = 2cosh a = e^a (1 + e^{−2a}); for a 0/1 unit Z(a) = 1 + e^a. The product of the e^{a_j} has an
    exponent linear in v, and e^{−2a_j} or e^{a_j} is a table over the lower units times a table over the upper ones.
    A state therefore costs one multiply-add and one multiplication per unit, and no exponential. Couplings L between
    lower and upper units add one number per state.
    """
    from .kernel import LANES, pack_cross, pack_lower, sum_states  # Importing Numba takes a second.

    side, (taken_out, slope) = units[0], (1.0, -2.0) if units[1].offset == 0.0 else (0.0, 1.0)
    w, c = dense(model.weights), model.hidden_bias
    n, m = w.shape
    # Isolated units are added until there are at least LANES lower and four upper states.
    padding, empty = max(0, 6 - n), int(m == 0)
    w = np.pad(w, ((0, padding), (0, empty)))  # A side without units gets one isolated unit.
    b, c = np.pad(model.visible_bias, (0, padding)), np.pad(c, (0, empty))
    among = None if model.lateral is None else np.pad(dense(model.lateral), ((0, padding), (0, padding)))
    n, m = n + padding, m + empty
    lower = max(4, min(n - 2, 10, int(math.log2(max(16.0, _TABLE_ENTRIES / m)))))
    if log2_size is not None:
        lower = min(lower, log2_size - 2)  # A call of the kernel sums four upper states at least.
    upper = n - lower
    linear = b + taken_out * w.sum(axis=1)
    largest = abs(slope) * float((np.abs(c) + np.abs(w).sum(axis=0)).max())
    # Tables of e^{−2a} overflow beyond e^700; above this limit they hold exponents, and the kernel exponentiates.
    in_logs = largest > 600.0
    flush = m if in_logs else max(1, int(650.0 / max(largest + 1.0, 1.0)))

    def values(states: np.ndarray, n: int) -> Array:
        return side.offset + side.scale * spins(states, n)

    def own(states: Array, part: slice) -> Array:
        """Return the part of the exponent that depends on some units alone."""
        alone = states @ linear[part]
        return alone if among is None else alone + 0.5 * np.einsum("ki,ki->k", states @ among[part, part], states)

    below, above = slice(0, lower), slice(lower, n)
    states_below = values(np.arange(1 << lower), lower)
    table = slope * (c + states_below @ w[below])
    low = pack_lower(table, own(states_below, below) + taken_out * total(c), in_logs)
    chunk_size = max(4, min(_HI_CHUNK if among is None else _LATERAL_CHUNK, (1 << upper) // 16))
    if log2_size is not None:
        chunk_size = 1 << min(log2_size - lower, upper)
    chunks = range(0, 1 << upper, chunk_size)
    sums, exponents = np.zeros((2, len(chunks), LANES))
    # The first upper units run through the same states in every chunk; the last ones are fixed within a chunk.
    running = chunk_size.bit_length() - 1
    across = None if among is None else among[above, below] @ states_below.T
    cross = None if across is None else pack_cross(values(np.arange(chunk_size), running) @ across[:running])

    def job(chunk: int) -> Iterator[float]:
        numbers = np.arange(chunk * chunk_size, (chunk + 1) * chunk_size)
        states = values(numbers, upper)
        high = slope * (states @ w[above])
        given = low if across is None else low.shifted((states[0, running:, None] * across[running:]).sum(axis=0))
        sums[chunk], exponents[chunk] = sum_states(given, high, own(states, above), cross, in_logs, flush)
        yield len(numbers)

    run_jobs(job, range(len(chunks)), 1 << upper, threads, tick)
    exponents -= padding + empty
    return ChunkSums(sums, exponents, lower + chunk_size.bit_length() - 1)


def spins(states: np.ndarray, n: int) -> Array:
    """Return rows of ±1, the binary digits of the states."""
    return 2.0 * ((states[:, None] >> np.arange(n)) & 1).astype(np.float64) - 1.0


def enumerate_states(model: MRF, tick: Tick) -> float:
    """ln Σ_v exp(b·v + ½vᵀLv) Z_h(c + vᵀW) over all states of a discrete visible side, for any hidden units."""
    total, done = -math.inf, 0.0
    count = 2.0 ** float(model.visible_units.log2_states(model.n_visible).sum())
    for exponents in log_marginals(model):
        total = float(np.logaddexp(total, np.logaddexp.reduce(exponents)))
        done += len(exponents)
        tick(min(1.0, done / count))
    return total


def log_marginals(model: MRF) -> Iterator[Array]:
    """Yield b·v + ½vᵀLv + ln Z_h(c + vᵀW) of all states of a discrete visible side, in pieces.

    The last variable changes fastest.
    """
    natural = model.natural
    side = DiscreteSide.of(natural.visible_units, len(natural.visible_bias))
    assert side is not None
    # A piece runs through the states of the last variables; the fields of the others are added to all of it.
    most = max(1, min(_STATES_AT_ONCE, _FIELDS_AT_ONCE // max(1, len(natural.hidden_bias))))
    split, piece, count = len(side.cards), 1, math.prod(side.cards)
    while split and piece * side.cards[split - 1] <= most:
        split -= 1
        piece *= side.cards[split]
    first = side.starts[split]
    tail = side.numbered(np.arange(piece))[:, first:]
    own, fields = tail @ natural.visible_bias[first:], tail @ natural.weights[first:]
    lateral = natural.lateral
    if lateral is not None:
        own = own + 0.5 * np.einsum("ki,ki->k", tail @ lateral[first:][:, first:], tail)
    for state in range(0, count, piece):
        head = side.numbered(np.array([state]))[0, :first]
        exponents = own + head @ natural.visible_bias[:first]
        if lateral is not None:
            from_head = head @ lateral[:first]
            exponents += tail @ from_head[first:] + 0.5 * (from_head[:first] @ head)
        if len(natural.hidden_bias):
            shift = natural.hidden_bias + head @ natural.weights[:first]
            exponents += natural.hidden_units.log_normaliser(fields + shift)
        yield exponents
