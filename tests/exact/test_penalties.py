"""0/1 units that exclude each other: however large the penalty, ln Z is right or refused."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import marginalis as mg
from marginalis.engines.plan import make_plan
from marginalis.exact import METHODS, cheapest
from marginalis.exact.choice import _checked_value
from marginalis.exact.elimination import eliminate_log_z
from marginalis.exact.ways import ExactMethod

SIZES = [1e3, 1e6, 1e8, 1e12, 1e15, 1e16, 1e30, 1e100, 1e300]
HARD_SQUARES = 8.816260208734581  # ln of the number of independent sets of the 4×5 grid


def hard_squares(penalty, field=0.0, rows=4, columns=5):
    site = np.arange(rows * columns).reshape(rows, columns)
    edges = [*zip(site[:, :-1].flat, site[:, 1:].flat, strict=True), *zip(site[:-1].flat, site[1:].flat, strict=True)]
    return mg.from_edges([(int(a), int(b)) for a, b in edges], coupling=-penalty, field=field, units="binary")


def brute_force(model):
    """ln Z by whole fractions: nothing is rounded before the exponentials of differences."""
    sides = [(-1, 1) if units.name == "spin" else (0, 1) for units in (model.visible_units, model.hidden_units)]
    dense = model.weights.toarray() if model.is_sparse else model.weights
    w = [[Fraction(x) for x in row] for row in dense]
    b, c = ([Fraction(x) for x in bias] for bias in (model.visible_bias, model.hidden_bias))
    exponents = []
    for v in itertools.product(sides[0], repeat=len(b)):
        own = sum(x * y for x, y in zip(b, v, strict=True))
        fields = [c[j] + sum(w[i][j] * v[i] for i in range(len(b))) for j in range(len(c))]
        exponents += [
            own + sum(x * y for x, y in zip(fields, h, strict=True)) for h in itertools.product(sides[1], repeat=len(c))
        ]
    top = max(exponents)
    near = [float(x - top) for x in exponents if x - top > -800]
    return float(top + Fraction(math.log(math.fsum(map(math.exp, near)))))


@pytest.mark.parametrize("penalty", SIZES)
def test_hard_squares_have_the_known_number_of_configurations(penalty):
    model = hard_squares(penalty)
    for method in ("auto", "enumeration", "elimination"):
        assert mg.exact_log_z(model, method=method) == pytest.approx(HARD_SQUARES, abs=1e-9)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 4),
    m=st.integers(1, 4),
    units=st.tuples(*[st.sampled_from(["spin", "binary"])] * 2),
    size=st.sampled_from(SIZES),
    signs=st.sampled_from(["negative", "positive", "both", "made up for"]),
)
def test_penalties_among_other_couplings(seed, n, m, units, size, signs):
    rng = np.random.default_rng(seed)
    large = size * (1.0 + rng.random((n, m))) * (-1 if signs == "negative" else 1)
    if signs == "both":
        large *= rng.choice([-1, 1], (n, m))
    w = np.where(rng.random((n, m)) < 0.5, large, rng.normal(size=(n, m)))
    b, c = rng.normal(size=n), rng.normal(size=m)
    if signs == "made up for":  # of huge terms nothing huge is left
        b = b - w.sum(axis=1)
    exact = brute_force(mg.rbm(w, b, c, units=units))
    for weights in (w, sp.csr_array(w)):
        model = mg.rbm(weights, b, c, units=units)
        for method in METHODS:
            try:
                cheapest(model, method=method)
            except ValueError:  # does not apply
                continue
            try:
                found = mg.exact_log_z(model, method=method)
            except ValueError:  # refused: only where something huge was made up for
                found = None
            assert found == pytest.approx(exact, rel=1e-9, abs=1e-9) or (found is None and signs == "made up for")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sizes", [(3, 4, 2), (2, 3, 2, 3)])
def test_deep_machines(size, sizes):
    rng = np.random.default_rng(1)
    weights = [np.where(rng.random(s) < 0.5, -size, rng.normal(size=s)) for s in itertools.pairwise(sizes)]
    model = mg.dbm(weights, [rng.normal(size=n) for n in sizes])
    exact = brute_force(model)
    for method in ("auto", "layers", "enumeration", "elimination"):
        assert mg.exact_log_z(model, method=method) == pytest.approx(exact, rel=1e-9, abs=1e-9)


def test_parts_take_the_second_best_way_too():
    one = hard_squares(1e15)
    model = mg.MRF(
        sp.block_diag([one.weights] * 3, format="csr"),
        np.tile(one.visible_bias, 3),
        np.tile(one.hidden_bias, 3),
        one.visible_units,
        one.hidden_units,
    )
    assert mg.exact_log_z(model, max_seconds=1e-4 * 70) == pytest.approx(3 * HARD_SQUARES, abs=1e-8)
    assert mg.estimate(model, steps=2, chains=2).log_z == pytest.approx(3 * HARD_SQUARES, abs=1e-8)


def test_results_lost_to_rounding_are_refused():
    """Unit by unit −p and +p leave 1.5, of which doubles at 10¹⁶ know nothing; or an offset hides the rest."""
    lost = mg.rbm([[1e17]], [-1e17], [1.5], units="binary")
    for ask in (mg.exact_log_z, lambda m: mg.estimate(m, steps=5, chains=8)):
        with pytest.raises(ValueError, match="cancel"):
            ask(lost)
    spins = mg.rbm([[1e13]], [0.3], [0.0])
    model = mg.MRF(spins.weights, spins.visible_bias, spins.hidden_bias, offset=-1e13)
    with pytest.raises(ValueError, match=r"cancel to .*, which leaves an error"):
        mg.exact_log_z(model)


def test_huge_sums_are_no_traceback():
    """`fsum` raises where a plain sum is infinite."""
    way = ExactMethod(0.0, "", lambda threads, tick: eliminate_log_z([2] * 3, [np.full(2, 1e308)] * 3, [], []))
    with pytest.raises(ValueError, match="too large for floating point"):
        _checked_value(way, 0.0, 1, lambda fraction: None)


# ---------------------------------------------------------------- estimates


@pytest.mark.parametrize("penalty", SIZES)
@pytest.mark.parametrize("transition", ["gibbs", "metropolis"])
def test_estimates_of_hard_squares(penalty, transition):
    model = hard_squares(penalty, rows=2, columns=4)
    exact = mg.exact_log_z(model, method="elimination")
    options = dict(chains=256, transition=transition, schedule=np.linspace(0, 1, 31) ** 8)
    chosen = mg.estimate(model, **options)
    assert abs(chosen.log_z - exact) < 4.5 * chosen.stderr
    if transition == "gibbs":  # a sweep may break ties another way
        assert chosen.log_z == pytest.approx(mg.estimate(model, engine="numpy", **options).log_z, abs=1e-5)
    if penalty >= 1e12:
        assert chosen.engine == "numpy"
        with pytest.raises(ValueError, match="engine 'numba' converts 0/1 units to spins"):
            mg.estimate(model, engine="numba", **options)


@pytest.mark.parametrize("penalty", [123.4567, 1234.567])
@pytest.mark.parametrize("shape", [(2, 4), (4, 5), (8, 8)])
def test_single_precision_says_what_it_costs(penalty, shape):
    """Couplings that are all rounded alike, and cancel in the weights, still move ln Z."""
    model = hard_squares(penalty, 0.37, *shape)
    options = dict(chains=200, schedule=np.linspace(0, 1, 101) ** 4)
    single, double = (mg.estimate(model, precision=p, **options) for p in ("single", "double"))
    same = np.abs(single.log_weights - double.log_weights) < 0.01  # the others took another path
    assert same.mean() > 0.9
    error = np.abs(np.mean((single.log_weights - double.log_weights)[same]))
    assert error <= single.rounding
    assert single.rounding < 0.01


def test_large_couplings_that_weigh_stay_on_the_fast_engine():
    rng = np.random.default_rng(0)
    model = mg.rbm(rng.normal(size=(9, 8)), np.zeros(9), np.zeros(8), units="binary", temperature=1e-12)
    assert make_plan(model).placement.engine == "numba"
    result = mg.estimate(model, steps=20, chains=40)
    assert result.rounding > 1e-9 * abs(result.log_z) or result.rounding == 0.0
