"""Which multiprocessors keep which weights of a large model, where all of them together have room for it."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_BYTES = 6 * 32 * 16  # of the weights of 32 inputs into 32 units
_OWN = 16 + 5 * 32 * 4  # of what else there is of 32 units
_STEP = 16  # of a step
_MANY = 256  # chains of a group from which on a warp alone takes 32 of them, and not 16
_TEAMS = {True: 5, False: 4}  # at most, by whether the warps of each multiply together: as many as have room for sums
_WARPS = {1: 2, 2: 4}  # of a team otherwise, by the sixteens of a warp: tiles of chains that it takes at a time
_TOKENS = {1: 2, 2: 4}  # teams that multiply at a time: with 16 warps it is best left to them


class Groups(NamedTuple):
    """Groups of blocks, each of which has all the weights."""

    number: int
    size: int  # blocks of each
    shares: tuple[NDArray[np.int32], NDArray[np.int32]]  # of each half step: [block, share, (word, from, to, at)]
    inside: int  # weights that a block has, of 32 inputs into 32 units
    together: bool  # whether the warps of a team multiply as one
    halves: int  # chains of a warp, in sixteens
    teams: int
    team: int  # its threads
    tokens: int  # teams that multiply at a time
    rows: int  # chains of a team at a time
    words: tuple[int, int]  # that chains lie apart, on both sides
    shared: int  # bytes of shared memory

    @property
    def macros(self) -> dict[str, object]:
        """What the kernel is compiled for."""
        together = 1 if self.together else None
        sizes = {"ROWS": self.rows, "HALVES": self.halves, "TEAMS": self.teams, "TEAM": self.team}
        return {**sizes, "TOKENS": self.tokens, "TOGETHER": together}


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


def _by_twos(bands: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return bands that are whole numbers of two words, one at least."""
    first = bands[:, 0] // 2 * 2
    return np.stack([first, np.maximum(bands[:, 1] + 1, first + 2) // 2 * 2], axis=1)


def groups(
    bands: tuple[NDArray[np.int32], NDArray[np.int32]], chains: int, multiprocessors: int, room: int, together: bool
) -> Groups | None:
    """Return how to cut the work up, or None where the weights do not fit.

    `bands` are the first and the last word of inputs that matter for every 32 units of both half steps, `room` the
    bytes of shared memory of a multiprocessor, `together` whether its warps can multiply as one.
    """
    best, found = float("inf"), None
    if together:
        bands = _by_twos(bands[0]), _by_twos(bands[1])
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
        halves = 2 if share >= _MANY and not together else 1
        warps = 4 if together else _WARPS[halves]
        rows = 16 * halves * warps
        weights = _BYTES * max(starts) + _OWN * sum(x.shape[1] for x in shares) + 128
        bits = 4 * rows * max(words_v, words_h) + _STEP
        teams = min(_TEAMS[together], -(-share // rows), (room - weights - 16) // bits)
        if teams < 1 or weights + _BYTES > room:  # what is read ahead goes past the last weights
            continue
        slow = (0.77 + 3.7 / (teams * warps)) * (1.2 if halves == 1 else 1.0)  # as measured
        seconds = slow * (max(loads_h) + max(loads_v)) * rows * -(-share // rows)
        if seconds < best:
            best = seconds
            tokens = teams if together else _TOKENS[halves]
            cut = together, halves, teams, 32 * warps, tokens, rows, (words_v, words_h)
            found = Groups(number, size, shares, max(starts), *cut, weights + max(teams * bits + 16, _BYTES))
    return found
