"""Kernels of `contraction`: sums of a product of tables over one variable, block by block."""

from __future__ import annotations

import math

import numpy as np

from ..simd.cache import kernel


@kernel()
def _start(block, sizes, strides, at):
    """Write the index of the first entry that a block needs in each table."""
    for k in range(at.shape[0]):
        at[k] = 0
    rest = block
    for axis in range(sizes.shape[0] - 1, -1, -1):
        digit = rest % sizes[axis]
        rest //= sizes[axis]
        for k in range(at.shape[0]):
            at[k] += digit * strides[k, axis]


_FAST = {"nnan", "nsz", "contract", "reassoc"}  # Infinite logarithms occur, but NaN does not.


@kernel(fastmath=_FAST)
def _times(table, kind, first, offsets, values):
    if kind == 0:
        factor = table[first]
        for j in range(values.shape[0]):
            values[j] *= factor
    elif kind == 1:
        part = table[first : first + values.shape[0]]
        for j in range(values.shape[0]):
            values[j] *= part[j]
    elif kind == 2:
        part = table[first:]
        for j in range(values.shape[0]):
            values[j] *= part[offsets[j]]


@kernel(fastmath=_FAST)
def _plus(table, kind, first, offsets, values):
    if kind == 0:
        term = table[first]
        for j in range(values.shape[0]):
            values[j] += term
    elif kind == 1:
        part = table[first : first + values.shape[0]]
        for j in range(values.shape[0]):
            values[j] += part[j]
    elif kind == 2:
        part = table[first:]
        for j in range(values.shape[0]):
            values[j] += part[offsets[j]]


@kernel(fastmath=_FAST)
def plain_blocks(a, b, c, d, kinds, strides, offsets, step, sizes, card, scale, start, stop, out, found):
    """Sum products of plain numbers; ln of the smallest positive and of the largest entry is written to `found`."""
    size = offsets.shape[1]
    at = np.zeros(4, np.int64)
    values = np.empty(size)
    factor = math.exp(scale)
    bits = out.view(np.uint64)  # Positive doubles are ordered as their bits, and 0 − 1 wraps to the largest integer.
    least = np.uint64(0xFFFFFFFFFFFFFFFF)
    most = np.uint64(0)
    for block in range(start, stop):
        _start(block, sizes, strides, at)
        total = out[block * size : (block + 1) * size]
        for j in range(size):
            total[j] = 0.0
        for x in range(card):
            first = at[0] + x * step[0]
            if kinds[0] == 1:
                part = a[first : first + size]
                for j in range(size):
                    values[j] = factor * part[j]
            else:
                part = a[first:]
                for j in range(size):
                    values[j] = factor * part[offsets[0, j]]
            _times(b, kinds[1], at[1] + x * step[1], offsets[1], values)
            _times(c, kinds[2], at[2] + x * step[2], offsets[2], values)
            _times(d, kinds[3], at[3] + x * step[3], offsets[3], values)
            for j in range(size):
                total[j] += values[j]
        words = bits[block * size : (block + 1) * size]
        for j in range(size):
            least = min(least, words[j] - np.uint64(1))
            most = max(most, words[j])
    ends = np.empty(2, np.uint64)
    ends[0] = least + np.uint64(1)
    ends[1] = most
    low, high = ends.view(np.float64)
    found[0] = math.log(low) if low > 0.0 else np.inf
    found[1] = math.log(high) if high > 0.0 else -np.inf


@kernel(fastmath=_FAST)
def log_blocks(a, b, c, d, kinds, strides, offsets, step, sizes, card, scale, start, stop, out, found):
    """Sum products of numbers given as logarithms; the smallest finite and the largest result go to `found`."""
    size = offsets.shape[1]
    at = np.zeros(4, np.int64)
    terms = np.empty((card, size))
    least = np.inf
    most = -np.inf
    for block in range(start, stop):
        _start(block, sizes, strides, at)
        for x in range(card):
            values = terms[x]
            for j in range(size):
                values[j] = scale
            _plus(a, kinds[0], at[0] + x * step[0], offsets[0], values)
            _plus(b, kinds[1], at[1] + x * step[1], offsets[1], values)
            _plus(c, kinds[2], at[2] + x * step[2], offsets[2], values)
            _plus(d, kinds[3], at[3] + x * step[3], offsets[3], values)
        for j in range(size):
            top = terms[0, j]
            for x in range(1, card):
                top = max(top, terms[x, j])
            result = top
            if top > -np.inf:
                total = 0.0
                for x in range(card):
                    total += math.exp(terms[x, j] - top)
                result = top + math.log(total)
                most = max(most, result)
                least = min(least, result)
            out[block * size + j] = result
    found[0] = least
    found[1] = most
