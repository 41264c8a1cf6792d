"""Counter-based uniforms: Philox-4x32-10 (Salmon et al., SC 2011).

A uniform has an address (chain, step, side, unit), and its value depends only on this address and the seed. Therefore
results do not depend on threads, blocks or the order of work, and two engines can be compared draw for draw.

By default (``draws="words"``) each uniform is one word of 32 bits. The Philox counter is (chain, step, unit // 4,
side), its four words serve four neighbouring units, and the key is the seed.

With ``draws="planes"`` each word holds one bit of 32 neighbouring chains, for kernels that need only the first few
bits of a uniform. Bit 31 − p of a uniform is bit chain % 32 of word p % 4 of the counter (chain // 32, step,
8·unit + p // 4, side + PLANES), so that plane p = 0 is the highest bit.

The choice concerns all units drawn by runs, pilots and the reverse process, Metropolis proposals included. Runs that
check a result, exact samples, and draws that belong to no unit (resampling, the component of a mixture) use words.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import Array

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
MASK = 0xFFFFFFFF

# The `side` of an address. AIS draws the hidden side twice per step, once for the move and once (JOINT) for the joint
# state, so that its visible states are equal to those of mAIS-V with the same seed.
VISIBLE, HIDDEN, JOINT = 0, 1, 2
TARGET = 3  # Exact samples of the target distribution, on all sides.
RESAMPLE = 4  # Resampling of a population, whose number is that of its first chain.
MIXTURE = 5  # The component of a mixture that a path starts from.
METROPOLIS = 16  # Proposals of the first Metropolis sweep; each further sweep has the next number.

PLANES = 1 << 30  # Added to the side if units are drawn by planes.
_TOGETHER = 32  # Number of chains that share one word of planes.

# Purposes of streams other than the main one of a run (see `stream`).
REVERSE, PILOT, QUENCH, OPINION, START = 1, 2, 3, 4, 5
SEQUENCE = 1 << 16  # Added to the number of a model in a sequence.
# Added to the number of an update of a model in training: fresh runs, and runs that only check ln Z.
FRESH, WITNESS = 1 << 30, 1 << 31


def philox(counter: Any, key: tuple[int, int]) -> tuple[NDArray[np.uint64], ...]:
    """Return the four 32-bit words of Philox-4x32-10 for a counter of four broadcastable integers."""
    c0, c1, c2, c3 = (np.asarray(c, dtype=np.uint64) for c in counter)
    m0, m1 = (np.uint64(m) for m in MULTIPLIERS)
    mask, word = np.uint64(MASK), np.uint64(32)
    for r in range(10):
        k0, k1 = (np.uint64((k + r * w) & MASK) for k, w in zip(key, KEY_STEPS, strict=True))
        p0, p1 = c0 * m0, c2 * m1
        c0, c1, c2, c3 = (p1 >> word) ^ c1 ^ k0, p1 & mask, (p0 >> word) ^ c3 ^ k1, p0 & mask
    return c0, c1, c2, c3


def uniforms(seed: int, chains: NDArray[np.uint64], step: int, side: int, units: int, draws: str = "words") -> Array:
    """Return uniforms in (0, 1), shape (chains, units), at the addresses (chain, step, side, 0 … units−1)."""

    def words(first: NDArray[np.uint64], per_call: float, added: int = 0) -> NDArray[np.uint64]:
        """Return all words, [first, call, 4]; each call of Philox serves `per_call` units."""
        groups = np.arange(math.ceil(units / per_call), dtype=np.uint64)
        counter = (first[:, None], np.uint64(step), groups[None, :], np.uint64(side + added))
        return np.stack(np.broadcast_arrays(*philox(counter, (seed & MASK, seed >> 32))), axis=-1)

    bits: Any
    if draws == "words":
        bits = words(chains, 4)
    else:
        groups, at = np.unique(chains // np.uint64(_TOGETHER), return_inverse=True)
        planes = words(groups, 1 / 8, PLANES).reshape(len(groups), units, 32)
        bits = _bits_transposed(planes)[at, :, _TOGETHER - 1 - (chains % np.uint64(_TOGETHER)).astype(np.int64)]
    return (bits.reshape(len(chains), -1)[:, :units] + 0.5) * 2.0**-32


def _bits_transposed(words: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Transpose squares of 32 words by 32 bits, highest bit first.

    Off-diagonal squares of half the size are swapped, recursively (Warren, Hacker's Delight, section 7-3).
    """
    bits = words.astype(np.uint32)
    for half, mask in (16, 0x0000FFFF), (8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555):
        pairs = bits.reshape(*bits.shape[:-1], -1, 2, half)
        upper, lower = pairs[..., 0, :], pairs[..., 1, :]
        change = (upper ^ lower >> np.uint32(half)) & np.uint32(mask)
        upper ^= change
        lower ^= change << np.uint32(half)
    return bits


def stream(seed: int, purpose: int) -> int:
    """Return the seed of another stream of uniforms, for instance for the reverse process or a pilot run."""
    words = philox((MASK, MASK, MASK, purpose), (seed & MASK, seed >> 32))
    return int(words[0]) | int(words[1]) << 32
