"""Contraction of a network of tables along an order of elimination, with time and memory known in advance.

Every variable is summed out of the product of the tables that contain it. The sum is computed in blocks that stay in
the cache, so only the message is stored, never the product. Tables are stored as plain numbers as long as their
products cannot leave the range of floating point, otherwise as logarithms. If the messages would need too much memory,
some variables are conditioned on: the network is contracted once for each of their states (a slice).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from ..checks import Array
from ..models.reduction import Factor
from ..parallel.threads import Tick, run_jobs
from .contraction_kernel import log_blocks, plain_blocks

_RANGE = 650.0  # Products whose logarithms span less than this have no underflow that matters.
_BLOCK = 1 << 11  # Smallest number of entries of a block, if the message has that many.
_MOST_INPUTS = 4  # Most tables that one sum multiplies; if there are more, the small ones are multiplied first.
_AT_ONCE = 1 << 22  # Number of entries between two checks for interrupts.
_SECONDS_PER_ENTRY = 1.6e-9  # Seconds of one thread per entry of the product of all tables of a variable.
_SECONDS_PER_STEP = 3e-4  # Seconds to sum out one variable with small tables.
_SECONDS_PER_BYTE = 2e-9  # Seconds per byte of memory used for the first time, which is slow on virtual machines.
# Memory limits that are tried, as fractions of the memory needed without slices.
_LESS_MEMORY = (1.0, 0.25, 1.0 / 16.0, 1.0 / 64.0)
_SLICED = 12  # Number of variables that are tried as the next one to condition on.
_WORTH = 2.0**29  # Smaller memory limits are tried only if more bytes than this are needed.
_MOST_SLICES = 1 << 14  # Most slices of a contraction.


class Contraction(NamedTuple):
    """The plan of a contraction, with its time and memory; `sliced` are the variables that are conditioned on."""

    order: list[int]
    sliced: tuple[int, ...]
    slices: int
    entries: float  # Entries of all products, over all slices.
    largest: float  # Entries of the largest message.
    bytes: float  # Bytes of all tables that exist at the same time.

    @property
    def seconds(self) -> float:
        """Approximate time on one thread."""
        steps = self.slices * len(self.order) * _SECONDS_PER_STEP
        return self.entries * _SECONDS_PER_ENTRY + steps + self.bytes * _SECONDS_PER_BYTE


def plan_contraction(
    cards: Sequence[int],
    scopes: Sequence[Sequence[int]],
    order: Sequence[int],
    memory: float,
    max_seconds: float = math.inf,
) -> Contraction | None:
    """Return a plan along an order with a memory limit in bytes, or None if that takes too many slices.

    Slices that need less memory are used if they are faster. No slices are tried if the contraction without any takes
    longer than `max_seconds`.
    """
    entries, largest, needed, _ = _simulated(cards, scopes, order, set())
    whole = Contraction(list(order), (), 1, entries, largest, needed)
    if whole.seconds > max_seconds:
        return whole
    limits = [min(memory, share * needed) for share in _LESS_MEMORY if needed > _WORTH or share == 1.0]
    plans = [_plan_within(cards, scopes, order, limit) for limit in limits]
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.seconds, default=None)


def _plan_within(
    cards: Sequence[int], scopes: Sequence[Sequence[int]], order: Sequence[int], memory: float
) -> Contraction | None:
    """Return the contraction within the memory that conditions on few variables."""
    sliced: list[int] = []
    slices = 1
    while True:
        entries, largest, needed, widest = _simulated(cards, scopes, order, set(sliced))
        if needed <= memory:
            left = [v for v in order if v not in sliced]
            return Contraction(left, tuple(sliced), slices, entries * slices, largest, needed)
        used = {v: sum(v in scope for scope in scopes) for v in widest}
        options = []
        for v in sorted(widest, key=used.__getitem__, reverse=True)[:_SLICED]:
            cost, _, need, _ = _simulated(cards, scopes, order, {*sliced, v})
            options.append((cost * cards[v], need, v))
        if not options:
            return None
        chosen = min(options)[-1]
        sliced.append(chosen)
        slices *= cards[chosen]
        if slices > _MOST_SLICES:
            return None


def _simulated(
    cards: Sequence[int], scopes: Sequence[Sequence[int]], order: Sequence[int], without: set[int]
) -> tuple[float, float, float, set[int]]:
    """Return the entries of all products and of the largest message, the peak memory in bytes, and the widest scope."""
    rank = {v: k for k, v in enumerate(order)}
    waiting: dict[int, list[tuple[set[int], float]]] = {v: [] for v in order}
    live = 0.0
    for given in scopes:
        left = {v for v in given if v not in without}
        if left:
            size = float(math.prod(cards[v] for v in left))
            waiting[min(left, key=rank.__getitem__)].append((left, size))
            live += size
    entries = largest = peak = 0.0
    widest: set[int] = set()
    for v in order:
        if v in without:
            continue
        scope = {v}.union(*(left for left, _ in waiting[v]))
        size = float(math.prod(cards[u] for u in scope))
        message = size / cards[v]
        entries += size
        peak = max(peak, live + message)
        if message > largest:
            largest, widest = message, scope
        live += message - sum(held for _, held in waiting.pop(v))
        scope.discard(v)
        if scope:
            waiting[min(scope, key=rank.__getitem__)].append((scope, message))
    return entries, largest, 8.0 * peak, widest


class _Buffers:
    """Memory of tables that are no longer needed, reused because allocating memory takes longer than summing."""

    def __init__(self, most: float) -> None:
        self._most, self._live, self._free = most, 0, [np.empty(0)]

    def take(self, size: int) -> Array:
        """Return a buffer for a table."""
        fitting = [k for k, held in enumerate(self._free) if size <= held.size <= 4 * size]
        if fitting:
            return self._free.pop(min(fitting, key=lambda k: self._free[k].size))
        if 8 * (self._live + size) > self._most:
            self._live -= sum(held.size for held in self._free)
            self._free = []
        self._live += size
        return np.empty(size)

    def give(self, memory: Array | None) -> None:
        """Return the buffer of a table for reuse."""
        if memory is not None:
            self._free.append(memory)


class _Table:
    """A table over variables in order of elimination: numbers or their logarithms, with bounds on the logarithms."""

    def __init__(
        self,
        scope: tuple[int, ...],
        values: Array,
        is_log: bool,
        low: float,
        high: float,
        memory: Array | None = None,
    ) -> None:
        self.scope, self.values, self.is_log, self.low, self.high = scope, values, is_log, low, high
        self.memory = memory

    def as_log(self) -> None:
        """Convert plain numbers to logarithms."""
        if not self.is_log:
            with np.errstate(divide="ignore"):
                np.log(self.values, out=self.values)
            self.is_log = True

    def as_plain(self) -> None:
        """Convert logarithms to plain numbers; their bounds must allow that."""
        if self.is_log:
            np.exp(self.values, out=self.values)
            self.is_log = False


def contract(cards: Sequence[int], factors: Sequence[Factor], plan: Contraction, threads: int, tick: Tick) -> float:
    """Return ln of the sum over all states of exp of the sum of the tables, or −∞ if no state is possible."""
    values = []
    buffers = _Buffers(plan.bytes)
    for k, states in enumerate(product(*(range(cards[v]) for v in plan.sliced))):
        held = dict(zip(plan.sliced, states, strict=True))
        given = [
            (tuple(v for v in scope if v not in held), table[tuple(held.get(v, slice(None)) for v in scope)])
            for scope, table in factors
        ]
        values.append(_contract(cards, given, plan.order, buffers, threads, _share(tick, k, plan.slices)))
    top = max(values)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(value - top) for value in values))


def _share(tick: Tick, k: int, count: int) -> Tick:
    return lambda fraction: tick((k + fraction) / count)


def _contract(
    cards: Sequence[int], factors: Sequence[Factor], order: list[int], buffers: _Buffers, threads: int, tick: Tick
) -> float:
    rank = {v: k for k, v in enumerate(order)}
    waiting: dict[int, list[_Table]] = {v: [] for v in order}
    constants: list[float] = []

    def place(table: _Table) -> None:
        if table.scope:
            waiting[table.scope[0]].append(table)
        else:
            table.as_log()
            constants.append(float(table.values.ravel()[0]))

    for scope, values in factors:
        axes = np.argsort([rank[v] for v in scope]).tolist()
        logs = np.array(values.transpose(axes), dtype=float, order="C")  # This is a copy, which may be changed.
        finite = logs[np.isfinite(logs)]
        if not finite.size:
            return -math.inf
        high, low = float(finite.max()), float(finite.min())
        logs -= high
        constants.append(high)
        place(_Table(tuple(scope[k] for k in axes), logs, True, low - high, 0.0))
    for done, v in enumerate(order):
        inputs = waiting.pop(v)
        if not inputs:
            constants.append(math.log(cards[v]))
            continue
        message, constant = _summed(cards, v, inputs, rank, buffers, threads)
        constants.append(constant)
        if constant == -math.inf:
            return -math.inf
        place(message)
        tick((done + 1) / len(order))
    return math.fsum(constants)


def _summed(
    cards: Sequence[int], v: int, inputs: list[_Table], rank: dict[int, int], buffers: _Buffers, threads: int
) -> tuple[_Table, float]:
    """Return the message of a variable, scaled to a largest entry of about one, and ln of the scale."""
    high = math.fsum(table.high for table in inputs)
    plain = high - math.fsum(table.low for table in inputs) + math.log(cards[v]) <= _RANGE
    for table in inputs:
        if plain:
            table.as_plain()
        else:
            table.as_log()
    inputs.sort(key=lambda table: table.values.size)
    while len(inputs) > _MOST_INPUTS:
        first, second, *others = inputs
        buffers.give(first.memory)
        buffers.give(second.memory)
        inputs = sorted([*others, _multiplied(cards, first, second, rank, plain)], key=lambda t: t.values.size)
    scope = tuple(sorted({u for table in inputs for u in table.scope if u != v}, key=rank.__getitem__))
    shape = [cards[u] for u in scope]
    memory = buffers.take(math.prod(shape))
    out = memory[: math.prod(shape)]
    inner, block = _inner(shape)
    outer = len(shape) - inner
    strides = np.zeros((_MOST_INPUTS, max(outer, 1)), dtype=np.int64)
    offsets = np.zeros((_MOST_INPUTS, block), dtype=np.uint32)
    kinds = np.full(_MOST_INPUTS, -1, dtype=np.int64)
    step = np.zeros(_MOST_INPUTS, dtype=np.int64)
    for k, table in enumerate(reversed(inputs)):
        by = dict(zip(table.scope, np.array(table.values.strides) // 8, strict=True))
        step[k] = by[v]
        strides[k, :outer] = [by.get(u, 0) for u in scope[:outer]]
        grid = np.zeros([1] * inner, dtype=np.int64)
        for axis, u in enumerate(scope[outer:]):
            index = np.arange(cards[u], dtype=np.int64) * by.get(u, 0)
            grid = grid + index.reshape([-1 if j == axis else 1 for j in range(inner)])
        offsets[k] = np.broadcast_to(grid, shape[outer:]).ravel()
        kinds[k] = 0 if not offsets[k].any() else 1 if (offsets[k] == np.arange(block)).all() else 2
    flat = [table.values.ravel() for table in reversed(inputs)]
    flat += [flat[0][:1]] * (_MOST_INPUTS - len(flat))
    sizes = np.array(shape[:outer] or [1], dtype=np.int64)
    count = out.size // block
    at_once = max(1, _AT_ONCE // (block * cards[v]))
    found = np.empty((-(-count // at_once), 2))
    kernel_of = plain_blocks if plain else log_blocks
    scale = -high

    def work(part: int) -> Iterator[float]:
        blocks = part * at_once, min((part + 1) * at_once, count)
        kernel_of(*flat, kinds, strides, offsets, step, sizes, cards[v], scale, *blocks, out, found[part])
        yield 1.0

    parts = range(len(found))
    run_jobs(work, parts, float(len(found)), min(threads, len(found)), lambda fraction: None)
    low, top = float(found[:, 0].min()), float(found[:, 1].max())
    for table in inputs:
        buffers.give(table.memory)
    if top == -math.inf:
        return _Table((), np.zeros(1), True, 0.0, 0.0), -math.inf
    return _Table(scope, out.reshape(shape), not plain, low, top, memory), high


def _inner(shape: list[int]) -> tuple[int, int]:
    """Return the number of last axes that form a block, and the entries of a block."""
    inner, block = 0, 1
    while inner < len(shape) and block < _BLOCK:
        inner += 1
        block *= shape[-inner]
    return inner, block


def _multiplied(cards: Sequence[int], one: _Table, two: _Table, rank: dict[int, int], plain: bool) -> _Table:
    scope = tuple(sorted({*one.scope, *two.scope}, key=rank.__getitem__))
    views = [table.values.reshape([cards[u] if u in table.scope else 1 for u in scope]) for table in (one, two)]
    values = np.multiply(*views) if plain else np.add(*views)
    return _Table(scope, np.ascontiguousarray(values), not plain, one.low + two.low, one.high + two.high)
