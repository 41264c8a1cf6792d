"""The distribution of the weights of a large model among multiprocessors, if all of them together can hold it."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_BYTES = 6 * 32 * 16  # Bytes of the weights of 32 inputs into 32 units.
_OWN = 16 + 5 * 32 * 4  # Bytes of the other data of 32 units.
_STEP = 16  # Bytes of the data of a step.
_MANY = 256  # From this many chains per group on, a single warp processes 32 chains at a time, and otherwise 16.
_TEAMS = {True: 5, False: 4}  # Largest number of teams whose sums fit, by whether their warps multiply together.
_WARPS = {1: 2, 2: 4}  # Warps of a team that do not multiply together, by the groups of 16 chains per warp.
_TOKENS = {1: 2, 2: 4}  # Teams that may multiply at a time, by the groups of 16 chains per warp.


class Groups(NamedTuple):
    """Groups of blocks; the blocks of each group together hold all the weights."""

    number: int
    size: int  # Number of blocks of each group.
    shares: tuple[NDArray[np.int32], NDArray[np.int32]]  # For each half step: [block, share, (word, from, to, at)].
    inside: int  # Weights of a block, in units of 32 inputs into 32 units.
    together: bool  # Whether the warps of a team multiply together.
    halves: int  # Chains of a warp, in units of 16.
    teams: int
    team: int  # Number of threads of a team.
    tokens: int  # Number of teams that may multiply at a time.
    rows: int  # Number of chains that a team processes at a time.
    words: tuple[int, int]  # Distance between chains in words, on both sides.
    shared: int  # Bytes of shared memory.

    @property
    def macros(self) -> dict[str, object]:
        """The macros with which the kernel is compiled."""
        together = 1 if self.together else None
        sizes = {"ROWS": self.rows, "HALVES": self.halves, "TEAMS": self.teams, "TEAM": self.team}
        return {**sizes, "TOKENS": self.tokens, "TOGETHER": together}


def _deal(bands: NDArray[np.int32], loads: list[int]) -> tuple[list[list[int]], list[int]]:
    """Assign words of units to blocks, longest bands first, always to the block with the least work so far."""
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
    """Return bands extended to a positive even number of words."""
    first = bands[:, 0] // 2 * 2
    return np.stack([first, np.maximum(bands[:, 1] + 1, first + 2) // 2 * 2], axis=1)


def groups(
    bands: tuple[NDArray[np.int32], NDArray[np.int32]], chains: int, multiprocessors: int, room: int, together: bool
) -> Groups | None:
    """Return the best distribution of the work, or None if the weights do not fit.

    `bands` are the ranges of words of inputs that are not zero for every 32 units of both half steps, `room` the bytes
    of shared memory of a multiprocessor, and `together` whether its warps can multiply together.
    """
    best, found = float("inf"), None
    if together:
        bands = _by_twos(bands[0]), _by_twos(bands[1])
    # The distance between chains puts those of a warp into different memory banks.
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
        if teams < 1 or weights + _BYTES > room:  # Prefetching reads past the last weights.
            continue
        slow = (0.77 + 3.7 / (teams * warps)) * (1.2 if halves == 1 else 1.0)  # Measured relative time.
        seconds = slow * (max(loads_h) + max(loads_v)) * rows * -(-share // rows)
        if seconds < best:
            best = seconds
            tokens = teams if together else _TOKENS[halves]
            cut = together, halves, teams, 32 * warps, tokens, rows, (words_v, words_h)
            found = Groups(number, size, shares, max(starts), *cut, weights + max(teams * bits + 16, _BYTES))
    return found
