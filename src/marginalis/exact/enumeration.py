"""The sum over all states of one side, without exponentials in the inner loop."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from ..models import BipartiteMRF, SpinForm
from ..parallel import Tick, run_jobs
from ..units import Array, Categorical, TwoState, Units

_HI_CHUNK = 1024  # most states of the upper half per kernel call
_TABLE_ENTRIES = 1 << 17
_STATES_AT_ONCE = 1 << 12


def enumerate_log_z(form: SpinForm, threads: int, tick: Tick) -> float:
    """ln Σ_s exp(b·s) Π_j 2cosh a_j(s), with a_j(s) = c_j + Σ_i w_ij s_i.

    2cosh a = e^a (1 + e^{−2a}): the e^{a_j} together are one factor linear in s, and e^{−2a_j} is a table
    over the lower spins times a table over the upper ones. So a state costs one multiply-add and one
    multiplication per unit, and no exponential.
    """
    from ..engines.exact_kernel import LANES, pack_lower, sum_states  # Numba takes a second to load

    w = form.weights.toarray() if sp.issparse(form.weights) else form.weights
    n, m = w.shape
    padding = max(0, 6 - n)  # unconnected spins, so that there are LANES lower and four upper states
    w = np.pad(w, ((0, padding), (0, 0)))
    b = np.pad(form.visible_bias, (0, padding))
    n += padding
    lower = max(4, min(n - 2, 10, int(math.log2(max(16.0, _TABLE_ENTRIES / m)))))
    upper = n - lower
    linear = b + w.sum(axis=1)
    largest = 2.0 * float((np.abs(form.hidden_bias) + np.abs(w).sum(axis=0)).max())
    # Tables of e^{−2a} overflow beyond e^700; then they hold exponents, and the kernel exponentiates.
    in_logs = largest > 600.0
    flush = m if in_logs else max(1, int(650.0 / max(largest + 1.0, 1.0)))

    spins = _spins(np.arange(1 << lower), lower)
    table = -2.0 * (form.hidden_bias + spins @ w[:lower])
    low = pack_lower(table, spins @ linear[:lower] + math.fsum(form.hidden_bias), in_logs)
    chunk_size = max(4, min(_HI_CHUNK, (1 << upper) // 16))
    chunks = range(0, 1 << upper, chunk_size)
    sums, exponents = np.zeros((2, len(chunks), LANES))

    def job(chunk: int) -> Iterator[float]:
        states = np.arange(chunk * chunk_size, (chunk + 1) * chunk_size)
        spins = _spins(states, upper)
        high = -2.0 * (spins @ w[lower:])
        sums[chunk], exponents[chunk] = sum_states(low, high, spins @ linear[lower:], in_logs, flush)
        yield len(states)

    run_jobs(job, range(len(chunks)), 1 << upper, threads, tick)
    top = exponents.max()
    total = math.fsum((sums * np.exp2(exponents - top)).ravel())
    return (math.log2(total) + float(top) - padding) * math.log(2.0)


def _spins(states: np.ndarray, n: int) -> Array:
    """Rows of ±1: the binary digits of the states."""
    return 2.0 * ((states[:, None] >> np.arange(n)) & 1).astype(np.float64) - 1.0


def log2_states(units: Units, variables: int) -> float:
    """Return the binary logarithm of the number of states of a side; infinite if it is not discrete."""
    if isinstance(units, TwoState):
        return float(variables)
    if isinstance(units, Categorical):
        sizes = units.sizes if isinstance(units.sizes, tuple) else (units.sizes,) * variables
        return sum(math.log2(q) for q in sizes)
    return math.inf


def enumerate_states(model: BipartiteMRF, tick: Tick) -> float:
    """ln Σ_v exp(b·v) Z_h(c + vᵀW) over all states of a discrete visible side, whatever the hidden one is."""
    natural = model.natural
    features = len(natural.visible_bias)
    if isinstance(natural.visible_units, TwoState):
        low, high = (natural.visible_units.offset + sign * natural.visible_units.scale for sign in (-1, 1))
        blocks = [np.array([[low], [high]])] * features
    else:
        assert isinstance(natural.visible_units, Categorical)
        blocks = [np.eye(q) for q in natural.visible_units.counts(features)]
    blocks = [np.zeros((1, 0)), *blocks]  # one state of nothing, for a side without variables
    sizes = [len(block) for block in blocks]
    total, count = -math.inf, math.prod(sizes)
    for start in range(0, count, _STATES_AT_ONCE):
        states = np.arange(start, min(start + _STATES_AT_ONCE, count))
        digits = np.unravel_index(states, sizes)
        v = np.concatenate([block[digit] for block, digit in zip(blocks, digits, strict=True)], axis=1)
        exponents = v @ natural.visible_bias
        if len(natural.hidden_bias):
            fields = natural.hidden_bias + v @ natural.weights
            exponents = exponents + natural.hidden_units.log_normaliser(fields)
        total = float(np.logaddexp(total, np.logaddexp.reduce(exponents)))
        tick((states[-1] + 1) / count)
    return total
