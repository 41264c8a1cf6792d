"""Random small models of factors, polynomials, rectified units and conditions against sums over all states.

The exact values use nothing of the package: discrete variables are enumerated and real ones are integrated numerically.
"""

import itertools
from collections import Counter

import numpy as np
import pytest

import marginalis as mg

OPTIONS = [
    {"steps": 30, "chains": 500},
    {"steps": 100, "chains": 400},
    {"steps": 60, "chains": 500, "method": "ais"},
    {"steps": 60, "chains": 640, "resample": 0.8, "populations": 40},
    {},
]


def all_states(cards):
    return np.array(list(itertools.product(*map(range, cards))))


def log_sum(cards, factors, held=None):
    """ln Σ of the product of tables, given as logarithms, over all states that agree with those held."""
    rows = all_states(cards)
    for variable, state in (held or {}).items():
        rows = rows[rows[:, variable] == state]
    return float(np.logaddexp.reduce(sum(table[tuple(rows[:, list(scope)].T)] for scope, table in factors)))


def random_factors(rng, zeros):
    """Tables of up to four variables; with `zeros`, state 0 of each variable is never forbidden."""
    cards = rng.integers(2, 5 if rng.integers(2) else 3, rng.integers(4, 8)).tolist()
    strength = rng.choice([0.3, 0.7, 1.2])
    factors = [((v,), rng.normal(size=card)) for v, card in enumerate(cards) if rng.random() < 0.7]
    for _ in range(rng.integers(2, 9)):
        scope = rng.choice(len(cards), rng.integers(2, 5), replace=False).tolist()
        table = strength * rng.normal(size=[cards[v] for v in scope])
        if zeros:
            is_free = (np.indices(table.shape) == 0).any(axis=0)
            table[~is_free & (rng.random(table.shape) < 0.5)] = -np.inf
        factors.append((tuple(scope), table))
    return cards, factors


def of_factors(rng, zeros=False):
    cards, factors = random_factors(rng, zeros)
    return mg.from_factors(factors, states=dict(enumerate(cards)), log=True), log_sum(cards, factors)


def of_factors_with_zeros(rng):
    return of_factors(rng, zeros=True)


def of_polynomials(rng):
    n, units, t = int(rng.integers(4, 10)), ["spin", "binary"][rng.integers(2)], rng.choice([0.6, 1.0, 1.7])
    terms = {
        tuple(rng.choice(n, rng.integers(1, 5), replace=False).tolist()): float(rng.normal()) * rng.choice([0.4, 0.9])
        for _ in range(rng.integers(3, 14))
    }
    rows = all_states([2] * n)
    values = 2.0 * rows - 1.0 if units == "spin" else rows.astype(float)
    used = {v for term in terms for v in term}
    exponent = sum(j * values[:, list(term)].prod(axis=1) for term, j in terms.items()) / t
    free = (n - len(used)) * np.log(2.0)
    model = mg.from_polynomial(terms, units=units, temperature=t)
    return model, float(np.logaddexp.reduce(exponent)) - free


def rectified(rng, count):
    """Parameters γ₊, γ₋, θ₊, θ₋ of ReLU, dReLU, pReLU, xReLU or nsReLU units; γ₋ is None for ReLU."""
    kind = ["ReLU", "dReLU", "pReLU", "xReLU", "nsReLU"][rng.integers(5)]
    gamma = rng.uniform(0.6, 2.5, count)
    if kind == "ReLU":
        return gamma, None, np.zeros(count), np.zeros(count)
    if kind == "dReLU":
        return gamma, rng.uniform(0.6, 2.5, count), *(0.7 * rng.normal(size=(2, count)))
    theta, delta, eta = 0.5 * rng.normal(size=count), 0.5 * rng.normal(size=count), rng.uniform(-0.8, 0.8, count)
    gamma = np.ones(count) if kind == "nsReLU" else gamma
    eta = eta if kind == "pReLU" else 3.0 * eta / (1.0 + np.abs(3.0 * eta))
    return gamma / (1 + eta), gamma / (1 - eta), theta + delta / (1 + eta), theta - delta / (1 - eta)


_EDGES = np.linspace(-40.0, 40.0, 801)
_NODES, _WIDTHS = np.polynomial.legendre.leggauss(8)
GRID = (_EDGES[:-1, None] + 0.05 * (_NODES + 1.0)).ravel()
LOG_WIDTHS = np.log(np.tile(0.05 * _WIDTHS, 800))


def log_integral(fields, parameters, unit, t, value=None):
    """ln ∫ exp of a rectified unit at the fields, or the exponent itself at a value."""
    plus, minus, up, down = (None if x is None else x[unit] for x in parameters)
    h = GRID if value is None else np.array([value])
    own = np.where(h >= 0.0, up * h - 0.5 * plus * h * h, -np.inf)
    if minus is not None:
        own = np.where(h < 0.0, down * h - 0.5 * minus * h * h, own)
    exponents = (np.multiply.outer(fields, h) + own) / t
    return np.logaddexp.reduce(exponents + (LOG_WIDTHS if value is None else 0.0), axis=-1)


def of_rectified_units(rng, conditioned=False):
    """Discrete units on one side and rectified ones on the other; with `conditioned`, one of each is held."""
    units = ["spin", "binary", "categorical:3"][rng.integers(3)]
    n, m, t = int(rng.integers(2, 6)), int(rng.integers(2, 6)), rng.choice([0.7, 1.0, 1.5])
    n = min(n, 4) if units == "categorical:3" else n
    rows = all_states([3 if units == "categorical:3" else 2] * n)
    x = rows.astype(float) if units == "binary" else 2.0 * rows - 1.0
    if units == "categorical:3":
        x = np.eye(3)[rows].reshape(len(rows), -1)
    w = rng.choice([0.2, 0.5]) * rng.normal(size=(x.shape[1], m))
    b, c = 0.5 * rng.normal(size=x.shape[1]), 0.5 * rng.normal(size=m)
    parameters = plus, minus, up, down = rectified(rng, m)
    kind = mg.ReLU(plus) if minus is None else mg.dReLU(plus, minus, up, down)
    held_unit, value, total = (int(rng.integers(m)), float(rng.uniform(0.1, 1.5)), x @ b / t)
    for unit in range(m):
        held = value if conditioned and unit == held_unit else None
        total = total + log_integral(x @ w[:, unit] + c[unit], parameters, unit, t, held)
    side = bool(rng.integers(2))
    model = mg.rbm(w, b, c, units=(units, kind), temperature=t)
    if side:
        model = mg.rbm(w.T, c, b, units=(kind, units), temperature=t)
    if not conditioned:
        return model, float(np.logaddexp.reduce(total))
    other, state = int(rng.integers(n)), int(rng.integers(2))
    first, second = (m, 0) if side else (0, n)
    own = {"spin": 2 * state - 1}.get(units, state)
    model = model.given({first + other: own, second + held_unit: value})
    return model, float(np.logaddexp.reduce(total[rows[:, other] == state]))


def of_conditions(rng):
    if rng.integers(2):
        return of_rectified_units(rng, conditioned=True)
    cards, factors = random_factors(rng, bool(rng.integers(2)))
    held = {int(rng.integers(len(cards))): 0}
    model = mg.from_factors(factors, states=dict(enumerate(cards)), log=True)
    return model.given(held), log_sum(cards, factors, held)


KINDS = [of_factors, of_factors_with_zeros, of_polynomials, of_rectified_units, of_conditions]


def compare(count):
    """Compare exact sums and estimates with the exact values; return z, coverage and counts of the estimates."""
    z, covered, counts = [], [], Counter()
    for seed in range(count):
        model, exact = KINDS[seed % len(KINDS)](np.random.default_rng(seed))
        assert mg.exact_log_z(model) == pytest.approx(exact, rel=1e-8, abs=1e-8)
        options = OPTIONS[seed // len(KINDS) % len(OPTIONS)]
        try:
            found = mg.estimate(model, seed=seed, threads=1, **options)
        except ValueError as error:
            if "no variable is left" not in str(error):
                raise
            counts["of one state"] += 1
            continue
        if found.lower_bound is not None:
            assert found.lower_bound <= exact + 1e-9
            counts["lower bounds"] += 1
        elif found.warnings:
            counts["with warnings"] += 1
        elif found.stderr < 1e-9:
            assert found.log_z == pytest.approx(exact, abs=1e-8 + found.rounding)
            counts["exact"] += 1
        else:
            low, high = found.log_z_interval
            covered.append(low <= exact <= high)
            z.append((found.log_z - exact) / found.stderr)
    return np.array(z), np.mean(covered), counts


def test_estimates_of_some_new_kinds(monkeypatch):
    monkeypatch.setenv("MARGINALIS_ENGINE", "numpy")  # Each kind has a kernel of its own to compile.
    z, covered, _ = compare(20)
    assert np.abs(z).max() < 4.5
    assert covered > 0.7


@pytest.mark.study
def test_estimates_of_many_new_kinds():
    z, covered, counts = compare(1000)
    print(
        f"{len(z)} intervals cover {covered:.3f}; z: mean {z.mean():+.3f}, sd {z.std():.3f}, largest {abs(z).max():.2f}"
    )
    print(dict(counts))
    assert len(z) > 500
    assert np.abs(z).max() < 4.5
    assert 0.9 < z.std() < 1.1
    assert 0.93 <= covered <= 0.97
