"""Which multiprocessors keep which weights of a large model, where all of them together have room for it."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_BYTES = 6 * 32 * 16  # of the weights of 32 inputs into 32 units
_MANY = 256  # chains of a group from which on a warp takes 32 of them, and not 16
_TEAMS = 4  # at most
_WARPS = {1: 2, 2: 4}  # of a team, by the sixteens of a warp: tiles of chains that it takes at a time
_TOKENS = {1: 2, 2: 4}  # teams that multiply at a time: with 16 warps it is best left to them


class Groups(NamedTuple):
    """Groups of blocks, each of which has all the weights."""

    number: int
    size: int  # blocks of each
    shares: tuple[NDArray[np.int32], NDArray[np.int32]]  # of each half step: [block, share, (word, from, to, at)]
    inside: int  # weights that a block has, of 32 inputs into 32 units
    halves: int  # chains of a warp, in sixteens
    teams: int
    team: int  # its threads
    tokens: int  # teams that multiply at a time
    rows: int  # chains of a team at a time
    words: tuple[int, int]  # that chains lie apart, on both sides
    shared: int  # bytes of shared memory


def _deal(bands: NDArray[np.int32], loads: list[int]) -> tuple[list[list[int]], list[int]]:
    """Deal words of units to blocks, the longest bands first, to those with the least to do (and the least before)."""
    heap = [(0, before, block) for block, before in enumerate(loads)]
    dealt: list[list[int]] = [[] for _ in loads]
    own = [0] * len(loads)
    lengths = bands[:, 1] - bands[:, 0]
    for word in np.argsort(-lengths, kind="stable"):
        load, before, block = heapq.heappop(heap)
        dealt[block].append(int(word))
        own[block] = load + max(1, int(lengths[word]))
        heapq.heappush(heap, (own[block], before, block))
    return dealt, own


def _shares(bands: NDArray[np.int32], dealt: list[list[int]], starts: list[int]) -> NDArray[np.int32]:
    table = np.zeros((len(dealt), max(map(len, dealt)), 4), dtype=np.int32)
    table[:, :, 3] = -1
    for block, words in enumerate(dealt):
        for i, word in enumerate(words):
            first, last = bands[word]
            table[block, i] = word, first, last, starts[block]
            starts[block] += int(last - first)
    return table


def groups(
    bands: tuple[NDArray[np.int32], NDArray[np.int32]], chains: int, multiprocessors: int, room: int
) -> Groups | None:
    """Return how to cut the work up, or None where the weights do not fit.

    `bands` are the first and the last word of inputs that matter for every 32 units of both half steps, `room` the
    bytes of shared memory of a multiprocessor.
    """
    best, found = float("inf"), None
    # chains so many words apart that those of a warp lie in different banks
    words_v, words_h = (2 * (-(-len(b) // 2) | 1) for b in (bands[1], bands[0]))
    total = _BYTES * sum(int((b[:, 1] - b[:, 0]).sum()) for b in bands)
    most = min(multiprocessors, multiprocessors * room // max(1, total), -(-chains // 16))
    for number in range(1, most + 1):
        size = min(multiprocessors // number, max(map(len, bands)))
        dealt_h, loads_h = _deal(bands[0], [0] * size)
        dealt_v, loads_v = _deal(bands[1], loads_h)
        starts = [0] * size
        shares = _shares(bands[0], dealt_h, starts), _shares(bands[1], dealt_v, starts)
        share = -(-chains // number)
        halves = 2 if share >= _MANY else 1
        warps, rows = _WARPS[halves], 16 * halves * _WARPS[halves]
        weights, bits = _BYTES * max(starts) + 128, 4 * rows * max(words_v, words_h)
        teams = min(_TEAMS, -(-share // rows), (room - weights) // bits)
        if teams < 1:
            continue
        slow = (0.77 + 3.7 / (teams * warps)) * (1.2 if halves == 1 else 1.0)  # as measured
        seconds = slow * (max(loads_h) + max(loads_v)) * rows * -(-share // rows)
        if seconds < best:
            best = seconds
            cut = halves, teams, 32 * warps, _TOKENS[halves], rows, (words_v, words_h), weights + teams * bits
            found = Groups(number, size, shares, max(starts), *cut)
    return found
