"""Layer-by-layer sum for deep Boltzmann machines of ±1 or 0/1 units.

The units of a layer are independent if its neighbours are fixed, Σ_x e^{a·x} = Π_j 2cosh a_j for spins. It is therefore
enough to enumerate a subset of the layers that leaves out no two consecutive ones. Between enumerated layers, a vector
over the states of one is transformed to a vector over the states of the next,

    f'(y) = Σ_x f(x) e^{x'Wy}                  (neighbouring layers)
    f'(y) = Σ_x f(x) Π_j 2cosh a_j(x, y)       (one layer in between, summed in closed form),

or with Π_j (1 + e^{a_j}) for 0/1 units, since as spins they could have large fields that cancel. The cost is
2^{n_x + n_y} operations, times the units in between. Adding and removing units one at a time would not be cheaper:
W couples every x_i to every y_j and f couples all x_i, so the intermediate tables would be over all units of both
layers. The first and the last layer, if left out, have closed forms given the next layer, so a machine with up to three
layers costs 2^n of one layer, or of both outer ones. `_plan` finds the cheapest subset.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from ..models.units import SPIN, Array, Units

_CHUNK = 1 << 18  # Entries of a temporary array.
_LOG2_FACTORS = 24  # log2 of the entries of the second factor of a matrix product.
# Within this range of ln, a matrix product loses no state that matters; underflow begins at e^-708.
_SAFE_RANGE = 600.0
_COSH = 5.0  # log2 of the cost of a 2cosh relative to a multiply-add of a matrix product.


def layers_cost(sizes: Sequence[int]) -> float:
    """Return log2 of the number of multiply-adds, of which a core does 3e9 to 8e9 per second."""
    return _plan(sizes)[0]


def layers_log_z(weights: Sequence[Array], biases: Sequence[Array], kinds: Sequence[Units] = (SPIN,)) -> float:
    """Return ln Σ_x exp(Σ_l b_l·x_l + Σ_l x_l' W_l x_{l+1}) over all units; W_l is n_l × n_{l+1}.

    `kinds` are the unit types of the layers, repeated cyclically.
    """
    biases = [np.asarray(b, dtype=float) for b in biases]
    weights = [np.asarray(w, dtype=float) for w in weights]
    if biases and len(weights) != len(biases) - 1:
        raise ValueError(f"weights: {len(biases)} layers need {len(biases) - 1} matrices, got {len(weights)}")
    for k, w in enumerate(weights):
        if w.shape != (len(biases[k]), len(biases[k + 1])):
            raise ValueError(f"weights[{k}] must have shape {(len(biases[k]), len(biases[k + 1]))}, got {w.shape}")
    for name, arrays in (("weights", weights), ("biases", biases)):
        if not all(np.isfinite(a).all() for a in arrays):
            raise ValueError(f"{name} must be finite")

    _, explicit = _plan([len(b) for b in biases])
    if not explicit:  # There is only one layer.
        return _log_prod(biases[0].copy(), kinds[0]).item()
    kinds = [kinds[k % len(kinds)] for k in range(len(biases))]
    first, last = explicit[0], explicit[-1]
    log_f = _own(biases, weights, kinds, first, before=first > 0, after=first == last < len(biases) - 1)
    for here, there in pairwise(explicit):
        if there == here + 1:
            log_f = _through_weights(log_f, weights[here], kinds[here : there + 1])
        else:
            log_f = _through_layer(log_f, weights[here], biases[here + 1], weights[here + 1], kinds[here : there + 1])
        log_f += _own(biases, weights, kinds, there, before=False, after=there == last < len(biases) - 1)
    return _log_sum_exp(log_f, axis=0).item()


def _plan(sizes: Sequence[int]) -> tuple[float, list[int]]:
    """Return log2 of the cost and the layers to enumerate, by dynamic programming along the chain."""
    if not sizes or min(sizes) < 1:
        raise ValueError(f"biases: every layer needs at least one unit, got sizes {list(sizes)}")
    if len(sizes) == 1:
        return math.log2(sizes[0]), []
    sizes = list(sizes)
    # The cost and the enumerated layers of the cheapest way to the vector of each layer.
    best: list[tuple[float, list[int]]] = []
    for k, n in enumerate(sizes):
        options = []
        if k == 0:
            options.append((float(n), [k]))
        if k == 1:
            options.append((n + _COSH + math.log2(sizes[0]), [k]))
        if k >= 1:
            cost, path = best[k - 1]
            options.append((_log2_sum(cost, sizes[k - 1] + n), [*path, k]))
        if k >= 2:
            cost, path = best[k - 2]
            through = sizes[k - 2] + n + math.log2(sizes[k - 1]) + _COSH
            options.append((_log2_sum(cost, through), [*path, k]))
        best.append(min(options))
    end = best[-2][0], sizes[-2] + _COSH + math.log2(sizes[-1])
    return min(best[-1], (_log2_sum(*end), best[-2][1]))


def _log2_sum(a: float, b: float) -> float:
    return max(a, b) + math.log2(1.0 + 2.0 ** -abs(a - b))


def _own(
    biases: list[Array], weights: list[Array], kinds: Sequence[Units], k: int, *, before: bool, after: bool
) -> Array:
    """Return b·x for every state x of layer k, plus the closed forms of the layers before and after it."""
    outer = []
    if before:
        outer.append((weights[k - 1].T, biases[k - 1], kinds[k - 1]))
    if after:
        outer.append((weights[k], biases[k + 1], kinds[k + 1]))
    n = len(biases[k])
    result = np.empty(1 << n)
    for rows in _slices(1 << n, max([1, *(len(b) for _, b, _ in outer)])):
        x = _states(rows, n, kinds[k])
        result[rows] = x @ biases[k]
        for w, b, kind in outer:
            result[rows] += _log_prod(b + x @ w, kind)
    return result


def _through_weights(log_f: Array, w: Array, kinds: Sequence[Units]) -> Array:
    """ln Σ_x f(x) e^{x'Wy} for every y.

    For y = (u, v) the exponential is a product e^{x'Uu} e^{x'Vv}, and the sum over x is a matrix product. Each factor
    is scaled by its largest entry over x. This is safe as long as the second factor is at least e^-600 where the first
    one is 1, which limits the number of units in v.
    """
    n, m = w.shape
    ranges = 2.0 * np.cumsum(np.abs(w).sum(axis=0))
    most = max(0, min((m + 1) // 2, _LOG2_FACTORS - n))
    lower = int(np.searchsorted(ranges[:most], _SAFE_RANGE, side="right"))
    x = _states(slice(0, 1 << n), n, kinds[0])
    second = x @ w[:, :lower] @ _states(slice(0, 1 << lower), lower, kinds[1]).T
    second_top = second.max(axis=0)
    np.exp(second - second_top, out=second)
    upper = m - lower
    exponents = (x @ w[:, lower:]).T
    result = np.empty((1 << upper, 1 << lower))
    for rows in _slices(1 << upper, max(1, (1 << n) // 8)):
        first = _states(rows, upper, kinds[1]) @ exponents
        first += log_f
        first_top = first.max(axis=1, keepdims=True)
        first -= first_top
        np.exp(first, out=first)
        result[rows] = np.log(first @ second) + first_top + second_top
    return result.ravel()


def _through_layer(log_f: Array, w: Array, b: Array, w2: Array, kinds: Sequence[Units]) -> Array:
    """ln Σ_x f(x) Π_j 2cosh(b_j + (W'x)_j + (W₂y)_j) for every y."""
    n, m = len(w), w2.shape[1]
    from_x = _states(slice(0, 1 << n), n, kinds[0]) @ w
    result = np.full(1 << m, -np.inf)
    for rows in _slices(1 << m, len(b)):
        from_y = b + _states(rows, m, kinds[2]) @ w2.T
        for states in _slices(1 << n, from_y.size):
            terms = _log_prod(from_x[states] + from_y[:, None], kinds[1]) + log_f[states]
            result[rows] = np.logaddexp(result[rows], _log_sum_exp(terms, axis=1))
    return result


def _slices(count: int, entries: int) -> Iterator[slice]:
    """Cut 0 … count−1 into pieces whose temporary arrays, with `entries` per item, stay small."""
    step = max(1, _CHUNK // entries)
    return (slice(i, min(i + step, count)) for i in range(0, count, step))


def _states(rows: slice, n: int, kind: Units) -> Array:
    """Return rows of ±1 or 0/1, the binary digits of the states in the slice."""
    digits = (np.arange(rows.start, rows.stop)[:, None] >> np.arange(n)) & 1
    return kind.offset + kind.scale * (2.0 * digits.astype(float) - 1.0)


def _log_prod(x: Array, kind: Units) -> Array:
    """ln Π_j 2cosh x_j = Σ|x_j| + ln Π(1 + e^{−2|x_j|}) over the last axis, or ln Π(1 + e^{x_j}); overwrites x."""
    total: Array = np.maximum(x, 0.0).sum(axis=-1) if kind.offset else np.abs(x, out=x).sum(axis=-1)
    np.abs(x, out=x)
    x *= -2.0 * kind.scale
    np.exp(x, out=x)
    x += 1.0
    for j in range(0, x.shape[-1], 1000):  # 2^1000 does not overflow.
        total += np.log(x[..., j : j + 1000].prod(axis=-1))
    return total


def _log_sum_exp(x: Array, axis: int) -> Array:
    top = x.max(axis=axis, keepdims=True)
    return np.log(np.exp(x - top).sum(axis=axis)) + top.squeeze(axis)
