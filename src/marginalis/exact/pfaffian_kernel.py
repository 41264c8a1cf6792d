"""Elimination of pairs of sites from antisymmetric matrices, in double precision and with twice the digits.

A matrix has one layer, or is the sum of two layers. Two doubles hold 106 bits. Their arithmetic is that of Dekker
(Numer. Math. 18, 224 (1971)), which requires that operations are neither reordered nor fused.
"""

import math

import numpy as np

from ..simd.cache import kernel

_SMALLEST = 1e-270  # A pivot below this may have lost digits to underflow.
_SPLITTER = 134217729.0  # 2^27 + 1 splits a double into two halves.


@kernel()
def face_matrix(walls, layers):
    """Return the matrix of the sites of one face: products of their weights, positive above the diagonal."""
    n = len(walls)
    matrix = np.zeros((layers, n, n))
    for i in range(n):
        for j in range(i + 1, n):
            high, low = _times(walls[i], walls[j])
            matrix[0, i, j], matrix[0, j, i] = high, -high
            if layers == 2:  # Pairs cancel exactly only if the products are exact.
                matrix[1, i, j], matrix[1, j, i] = low, -low
    return matrix


@kernel()
def assemble(sites_a, a, waiting_a, sites_b, b, waiting_b, bonds, closes, place):
    """Join two parts: return all sites, starting with those to eliminate, their matrix, and the number to eliminate.

    The bonds of edges with both ends in these parts are added if `closes` is true for them.
    """
    layers, n_a, n_b = a.shape[0], len(sites_a), len(sites_b)
    n = n_a + n_b
    for k in range(n):
        place[sites_a[k] if k < n_a else sites_b[k - n_a]] = k
    sites, position = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    free = 0
    for free_first in (True, False):
        at = free
        for k in range(n):
            site = sites_a[k] if k < n_a else sites_b[k - n_a]
            waits = k < waiting_a or n_a <= k < n_a + waiting_b
            if (waits or (closes[site >> 1] and place[site ^ 1] >= 0)) == free_first:
                sites[at], position[k] = site, at
                at += 1
        if free_first:
            free = at
    m = np.zeros((layers, n, n))
    for layer in range(layers):
        for k in range(n):
            first, last = (0, n_a) if k < n_a else (n_a, n)
            for c in range(first, last):
                x = a[layer, k, c] if k < n_a else b[layer, k - n_a, c - n_a]
                m[layer, position[k], position[c]] = x
    for k in range(n_a + n_b):
        waits = k < waiting_a or n_a <= k < n_a + waiting_b
        i = position[k]
        if i < free and not waits:
            site = sites[i]
            j = position[place[site ^ 1]]
            bond = bonds[site >> 1] * (1.0 if site % 2 == 0 else -1.0)
            high, low = _sum(m[0, i, j], 0.0 if layers == 1 else m[1, i, j], bond, 0.0)
            m[0, i, j] = high
            if layers == 2:
                m[1, i, j] = low
    for k in range(n):
        place[sites[k]] = -1
    return sites, m, free


@kernel()
def eliminate(sites, m, free, threshold, high, low, two_layers):
    """Eliminate pairs of the first `free` sites in place while there are pivots; return the number of eliminated sites.

    `two_layers` is True for a matrix of two layers, and None for one, so that no code for two is compiled.

    Also returned is the product of high + low and the pivots, as a sum of two doubles (NaN if a pivot is too small) and
    the exponent of a power of two. In rows that are not free, only entries right of the diagonal are updated.
    """
    n, layers = len(sites), m.shape[0]
    exponent = 0
    gone = np.int64(0)  # For a literal argument other functions would be compiled.
    while free - gone >= 2:
        one, two = _pivot(m[0], gone, free, threshold)
        if one < 0:
            break
        if two == gone:  # The first exchange moves this site.
            two = one
        _exchange(sites, m, gone, one, free)
        _exchange(sites, m, gone + 1, two, free)
        p, p_low = m[0, gone, gone + 1], 0.0
        if two_layers is not None:
            p_low = m[1, gone, gone + 1]
        if not abs(p) >= _SMALLEST:
            high = np.nan
        high, low = _product(high, low, p, p_low)
        high, shift = math.frexp(high)
        low = math.ldexp(low, -shift)
        exponent += shift
        if two_layers is None:
            _update(m[0], gone, free, p)
        else:
            _update_twice(m, gone, free, p, p_low)
        gone += 2
    for layer in range(layers):
        for k in range(free, n):
            for c in range(gone, k):
                m[layer, k, c] = -m[layer, c, k]
    return gone, high, low, exponent


@kernel()
def add_inverse(rows, inverse):
    """Complete the inverse of a matrix whose part on the sites that were not eliminated is given.

    `rows` are the rows of the eliminated sites after `eliminate`.
    """
    gone, n = rows.shape
    for i in range(gone - 2, -1, -2):
        j = i + 1
        a = rows[i, j]
        x, y = np.zeros(n), np.zeros(n)
        for k in range(i + 2, n):
            u, v = rows[i, k] / a, rows[j, k] / a
            if u != 0.0 or v != 0.0:
                for c in range(i + 2, n):
                    x[c] += v * inverse[k, c]
                    y[c] -= u * inverse[k, c]
        corner = 1.0 / a
        for k in range(i + 2, n):
            corner += rows[i, k] / a * x[k]
            inverse[i, k], inverse[k, i] = x[k], -x[k]
            inverse[j, k], inverse[k, j] = y[k], -y[k]
        inverse[j, i], inverse[i, j] = corner, -corner


@kernel()
def _pivot(m, gone, free, threshold):
    """Return a pair of free sites whose entry is large compared to both of their rows, or (−1, −1)."""
    n = len(m)
    for i in range(gone, free):
        j, best, largest = -1, 0.0, 0.0
        for k in range(gone, free):
            size = abs(m[i, k])
            if size > best:
                j, best = k, size
        for k in range(free, n):
            largest = max(largest, abs(m[i, k]))
        if j < 0 or best < threshold * largest:
            continue
        largest = 0.0
        for k in range(gone, n):
            largest = max(largest, abs(m[j, k]))
        if best >= threshold * largest:
            return i, j
    return -1, -1


@kernel()
def _exchange(sites, m, i, j, free):
    """Exchange two free sites."""
    if i == j:
        return
    sites[i], sites[j] = sites[j], sites[i]
    for layer in range(m.shape[0]):
        for k in range(m.shape[1]):
            m[layer, i, k], m[layer, j, k] = m[layer, j, k], m[layer, i, k]
        for k in range(free):
            m[layer, k, i], m[layer, k, j] = m[layer, k, j], m[layer, k, i]


@kernel()
def _update(m, gone, free, pivot):
    """Update m_kl ← m_kl − (u_k v_l − v_k u_l) / pivot, where u and v are the rows of the eliminated pair."""
    n = len(m)
    v = m[gone + 1]
    w = m[gone] / pivot
    for k in range(gone + 2, n):
        a, b = w[k], v[k]
        if a == 0.0 and b == 0.0:
            continue
        row = m[k]
        for c in range(gone + 2 if k < free else k + 1, n):
            row[c] -= a * v[c] - b * w[c]


@kernel()
def _update_twice(m, gone, free, pivot, pivot_low):
    """Do the same as `_update`, where every number is the sum of two doubles."""
    n = m.shape[1]
    v, v_low = m[0, gone + 1], m[1, gone + 1]
    w, w_low = np.zeros(n), np.zeros(n)
    for k in range(gone + 2, n):
        w[k], w_low[k] = _quotient(m[0, gone, k], m[1, gone, k], pivot, pivot_low)
    t = _SPLITTER * v
    v_left = t - (t - v)
    v_right = v - v_left
    t = _SPLITTER * w
    w_left = t - (t - w)
    w_right = w - w_left
    for k in range(gone + 2, n):
        a, a_low, b, b_low = w[k], w_low[k], v[k], v_low[k]
        if a == 0.0 and b == 0.0:
            continue
        a_left, a_right, b_left, b_right = w_left[k], w_right[k], v_left[k], v_right[k]
        row, low = m[0, k], m[1, k]
        for c in range(gone + 2 if k < free else k + 1, n):
            p = a * v[c]
            e = ((a_left * v_left[c] - p) + (a_left * v_right[c] + a_right * v_left[c])) + a_right * v_right[c]
            q = b * w[c]
            f = ((b_left * w_left[c] - q) + (b_left * w_right[c] + b_right * w_left[c])) + b_right * w_right[c]
            e = (e + (a * v_low[c] + a_low * v[c])) - (f + (b * w_low[c] + b_low * w[c]))
            s = p - q
            t = s - p
            e += (p - (s - t)) - (q + t)
            x = row[c]
            y = x - s
            t = y - x
            e = ((x - (y - t)) - (s + t)) + (low[c] - e)
            z = y + e
            row[c] = z
            low[c] = e - (z - y)


@kernel()
def _times(a, b):
    """Return the exact product of two doubles as a sum of two doubles."""
    p = a * b
    t = _SPLITTER * a
    a_left = t - (t - a)
    a_right = a - a_left
    t = _SPLITTER * b
    b_left = t - (t - b)
    b_right = b - b_left
    return p, ((a_left * b_left - p) + (a_left * b_right + a_right * b_left)) + a_right * b_right


@kernel()
def _sum(a, a_low, b, b_low):
    s = a + b
    t = s - a
    e = (a - (s - t)) + (b - t) + (a_low + b_low)
    high = s + e
    return high, e - (high - s)


@kernel()
def _product(a, a_low, b, b_low):
    p, e = _times(a, b)
    e += a * b_low + a_low * b
    high = p + e
    return high, e - (high - p)


@kernel()
def _quotient(a, a_low, b, b_low):
    q = a / b
    r, r_low = _product(q, 0.0, b, b_low)
    r, r_low = _sum(a, a_low, -r, -r_low)
    q_low = r / b
    r2, r2_low = _product(q_low, 0.0, b, b_low)
    r, r_low = _sum(r, r_low, -r2, -r2_low)
    high, low = _sum(q, 0.0, q_low, r / b)
    return high, low
