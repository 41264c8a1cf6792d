"""The layer-by-layer sum against elimination, enumeration and the reference file."""

import itertools
import math

import numpy as np
import pytest
from conftest import LCG
from hypothesis import given, settings
from hypothesis import strategies as st

from marginalis.exact import layers
from marginalis.exact.elimination import eliminate_log_z
from marginalis.exact.layers import layers_cost, layers_log_z


def by_elimination(weights, biases):
    starts = np.cumsum([0, *(len(b) for b in biases)])
    edges, tables = [], []
    for k, w in enumerate(weights):
        for (i, j), value in np.ndenumerate(w):
            edges.append((int(starts[k] + i), int(starts[k + 1] + j)))
            tables.append(value * np.array([[1.0, -1.0], [-1.0, 1.0]]))
    unary = [np.array([-b, b]) for b in np.concatenate(biases)]
    return eliminate_log_z([2] * len(unary), unary, edges, tables)


def machine(rng, sizes, scale):
    weights = [scale * rng.normal(size=pair) for pair in itertools.pairwise(sizes)]
    return weights, [scale * rng.normal(size=n) for n in sizes]


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.sampled_from([0.1, 1.0, 30.0, 1e3, 1e5]),
)
def test_layers_agree_with_elimination(seed, sizes, scale):
    weights, biases = machine(np.random.default_rng(seed), sizes, scale)
    expected = by_elimination(weights, biases)
    assert layers_log_z(weights, biases) == pytest.approx(expected, rel=1e-12, abs=1e-12 * scale)


@pytest.mark.parametrize("scale", [0.5, 10.0, 1e4])
@pytest.mark.parametrize("explicit", [[0, 1, 2, 3, 4], [1, 3], [0, 2, 4], [1, 2, 3], [0, 2, 3], [1, 3, 4]])
def test_every_choice_of_layers(monkeypatch, explicit, scale):
    weights, biases = machine(np.random.default_rng(1), [3, 4, 2, 5, 3], scale)
    expected = by_elimination(weights, biases)
    monkeypatch.setattr(layers, "_plan", lambda sizes: (0.0, explicit))
    monkeypatch.setattr(layers, "_CHUNK", 16)
    assert layers_log_z(weights, biases) == pytest.approx(expected, rel=1e-12)


def test_reversing_the_layers_changes_nothing():
    weights, biases = machine(np.random.default_rng(2), [12, 9, 10, 30, 4], 0.4)
    turned = layers_log_z([w.T for w in weights[::-1]], biases[::-1])
    assert turned == pytest.approx(layers_log_z(weights, biases), rel=1e-12)


def test_wide_outer_layers():
    # without coupling between them, layers are independent
    rng = np.random.default_rng(3)
    biases = [rng.normal(size=n) for n in (2500, 5, 1500)]
    weights = [np.zeros(pair) for pair in itertools.pairwise((2500, 5, 1500))]
    expected = math.fsum(np.logaddexp(b, -b).sum() for b in biases)
    assert layers_log_z(weights, biases) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("sizes", "explicit"),
    [
        ([784, 10, 500], [1]),
        ([8, 500, 9], [0, 2]),
        ([20, 40], [0]),
        ([40, 20], [1]),
        ([30, 12, 12, 30], [1, 2]),
        ([8, 40, 8, 40, 8], [0, 2, 4]),
        ([40, 10, 40, 10, 40], [1, 3]),
    ],
)
def test_the_cheapest_layers_are_enumerated(sizes, explicit):
    cost, chosen = layers._plan(sizes)
    assert chosen == explicit
    assert cost == layers_cost(sizes) == pytest.approx(layers_cost(sizes[::-1]), abs=0.01)


def test_cost_of_a_huge_machine_is_a_number():
    assert 1000 < layers_cost([784, 500, 1000, 2000]) < 2000


def test_layers_agree_with_the_reference_value(reference):
    lcg = LCG(15)
    sizes = [7, 6, 5, 4]
    biases = [lcg.normal(0.4, n) for n in sizes]
    weights = [lcg.normal(0.7, *pair) for pair in itertools.pairwise(sizes)]
    # x = (1 + s)/2: fields gain a quarter of the weights, and so does the constant
    constant = sum(b.sum() / 2 for b in biases) + sum(w.sum() / 4 for w in weights)
    fields = [b / 2 for b in biases]
    for k, w in enumerate(weights):
        fields[k] = fields[k] + w.sum(axis=1) / 4
        fields[k + 1] = fields[k + 1] + w.sum(axis=0) / 4
    result = constant + layers_log_z([w / 4 for w in weights], fields)
    assert result == pytest.approx(reference["dbm_01_7-6-5-4"]["logZ"], rel=1e-12)


def test_layers_agree_with_the_reference_rbm(reference):
    lcg = LCG(3)
    b, c, w = lcg.normal(0.5, 8), lcg.normal(0.5, 6), lcg.normal(0.7, 8, 6)
    expected = reference["rbm_pm1_small_8x6"]["logZ"]
    assert layers_log_z([w], [b, c]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("weights", "biases", "message"),
    [
        ([], [], "every layer needs"),
        ([np.zeros((2, 0))], [np.zeros(2), np.zeros(0)], "every layer needs at least one unit"),
        ([], [np.zeros(2), np.zeros(2)], "weights: 2 layers need 1 matrices, got 0"),
        ([np.zeros((3, 2))], [np.zeros(2), np.zeros(3)], r"weights\[0\] must have shape \(2, 3\)"),
        ([np.full((1, 1), np.nan)], [np.zeros(1), np.zeros(1)], "weights must be finite"),
        ([np.zeros((1, 1))], [np.zeros(1), np.full(1, np.inf)], "biases must be finite"),
    ],
)
def test_bad_input(weights, biases, message):
    with pytest.raises(ValueError, match=message):
        layers_log_z(weights, biases)
