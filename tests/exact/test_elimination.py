"""Variable elimination against brute force, closed forms and the reference file."""

import itertools
import math

import numpy as np
import pytest
from conftest import LCG
from hypothesis import given, settings
from hypothesis import strategies as st

from marginalis.exact.elimination import eliminate_log_z, elimination_order

SS = np.array([[1.0, -1.0], [-1.0, 1.0]])  # s s' for spins down, up


def brute_force(cards, unary, edges, tables):
    exponents = []
    for x in itertools.product(*(range(c) for c in cards)):
        pairs = (t[x[i], x[j]] for (i, j), t in zip(edges, tables, strict=True))
        exponents.append(sum(u[k] for u, k in zip(unary, x, strict=True)) + sum(pairs))
    return np.logaddexp.reduce(exponents)


def ising(fields, edges, couplings):
    return [2] * len(fields), [np.array([-h, h]) for h in fields], edges, [j * SS for j in couplings]


def lattice(*shape, periodic=False):
    """Edges of a box, sites numbered row-major."""
    site = np.arange(math.prod(shape)).reshape(shape)
    edges = []
    for axis, side in enumerate(shape):
        pairs = np.stack([site, np.roll(site, -1, axis)], axis=-1)
        edges += pairs.take(range(side if periodic else side - 1), axis=axis).reshape(-1, 2).tolist()
    return [tuple(e) for e in edges]


def chimera(m, n):
    def site(r, c, side, k):
        return ((r * n + c) * 2 + side) * 4 + k

    edges = []
    for r, c in itertools.product(range(m), range(n)):
        edges += [(site(r, c, 0, k), site(r, c, 1, j)) for k in range(4) for j in range(4)]
        edges += [(site(r, c, 0, k), site(r + 1, c, 0, k)) for k in range(4) if r + 1 < m]
        edges += [(site(r, c, 1, k), site(r, c + 1, 1, k)) for k in range(4) if c + 1 < n]
    return edges


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 6), st.sampled_from([1.0, 100.0, 1e4, 1e6]), st.booleans())
def test_elimination_agrees_with_the_sum_over_all_states(seed, n, scale, hard):
    rng = np.random.default_rng(seed)
    cards = rng.integers(1, 5, n).tolist()
    pairs = list(itertools.combinations(range(n), 2)) * 2  # parallel edges
    edges = [tuple(rng.permutation(pairs[k])) for k in np.flatnonzero(rng.random(len(pairs)) < 0.4)]
    unary = [scale * rng.normal(size=c) for c in cards]
    tables = [scale * rng.normal(size=(cards[i], cards[j])) for i, j in edges]
    if hard:
        for table in tables:
            table[rng.random(table.shape) < 0.2] = -np.inf
    expected = brute_force(cards, unary, edges, tables) if n else 0.0
    for order in (None, rng.permutation(n).tolist()):
        result = eliminate_log_z(cards, unary, edges, tables, order)
        assert result == pytest.approx(expected, rel=1e-13, abs=1e-13 * scale)


def test_inputs_are_left_alone():
    cards, unary, edges, tables = ising([0.1, 0.2, 0.3], [(0, 1), (1, 2), (0, 2)], [1.0, 2.0, 3.0])
    before = [x.copy() for x in (*unary, *tables)]
    eliminate_log_z(cards, unary, edges, tables)
    assert all((a == b).all() for a, b in zip(before, (*unary, *tables), strict=True))


def test_forbidden_everywhere():
    tables = [np.full((2, 2), -np.inf)]
    assert eliminate_log_z([2, 2, 2], [np.zeros(2)] * 3, [(0, 2)], tables) == -math.inf


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_elimination_of_a_tree_is_exact_for_couplings_of_any_size(scale):
    n = 10_000
    rng = np.random.default_rng(1)
    j = scale * rng.normal(size=n - 1)
    edges = [(int(rng.integers(max(0, i - 5), i)), i) for i in range(1, n)]
    order, width = elimination_order(n, edges, [2] * n)
    assert width == 2
    expected = math.fsum(np.logaddexp(j, -j)) + math.log(2.0)
    assert eliminate_log_z(*ising(np.zeros(n), edges, j), order) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("n", "edges", "width"),
    [
        (10_000, [(0, i) for i in range(1, 10_000)], 2),
        (9_999, [(i, (i + 1) % 9_999) for i in range(9_999)], 3),
        (10_000, lattice(2, 5_000), 3),
        (200, lattice(10, 20), 11),
        (400, lattice(20, 20), 21),
        (64, lattice(4, 4, 4), 17),
        (32, chimera(2, 2), 12),
        (128, chimera(4, 4), 21),
        (60, [(i, 20 + j) for i in range(20) for j in range(40)], 21),
    ],
    ids=["star", "ring", "ladder", "strip", "grid", "cubic", "C2", "C4", "rbm"],
)
def test_width_of_the_elimination_order(n, edges, width):
    order, found = elimination_order(n, edges, [2] * n)
    assert sorted(order) == list(range(n))
    assert found <= width
    # the number is that of the order, and scales with the states per variable
    assert elimination_order(n, edges, [4] * n, stop_above=80.0)[1] == pytest.approx(2 * found)
    neighbours = [set() for _ in range(n)]
    for i, j in edges:
        neighbours[i].add(j)
        neighbours[j].add(i)
    largest = 0
    for v in order:
        largest = max(largest, 1 + len(neighbours[v]))
        for u in neighbours[v]:
            neighbours[u] = (neighbours[u] | neighbours[v]) - {u, v}
    assert largest == found


def test_search_stops_early():
    n = 1284
    edges = [(i, 784 + j) for i in range(784) for j in range(500)]
    order, width = elimination_order(n, edges, [2] * n)
    assert sorted(order) == list(range(n))
    assert width > 40
    complete = list(itertools.combinations(range(30), 2))
    model = ising(np.zeros(30), complete, np.ones(len(complete)))
    with pytest.raises(ValueError, match=r"order: it needs a table of 2\^30 entries"):
        eliminate_log_z(*model)


def test_relabelling_the_variables_changes_nothing():
    rng = np.random.default_rng(3)
    edges = chimera(2, 3)
    j, h = 2.0 * rng.normal(size=len(edges)), rng.normal(size=48)
    p = rng.permutation(48)
    moved = ising(h[np.argsort(p)], [(p[b], p[a]) for a, b in edges], j)
    assert eliminate_log_z(*moved) == pytest.approx(eliminate_log_z(*ising(h, edges, j)), rel=1e-13)


def _chain():
    return ising(np.zeros(40), lattice(40), LCG(5).normal(1.0, 39))


def _chimera():
    lcg, edges = LCG(9), chimera(2, 2)
    couplings = lcg.normal(0.6, len(edges))
    return ising(lcg.normal(0.2, 32), edges, couplings)


def _potts(q, coupling, edges, n):
    return [q] * n, [np.zeros(q)] * n, edges, [coupling * np.eye(q)] * len(edges)


def _potts_rbm():
    lcg = LCG(11)
    b, c, w = lcg.normal(0.5, 7, 4), lcg.normal(0.5, 5), lcg.normal(0.6, 7, 4, 5)
    unary = [*b, *(np.array([0.0, x]) for x in c)]
    edges = [(i, 7 + j) for i in range(7) for j in range(5)]
    return [4] * 7 + [2] * 5, unary, edges, [np.outer(w[i, :, j], [0, 1]) for i in range(7) for j in range(5)]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("ising_chain_40_h0", _chain),
        ("ising_ring_24_field", lambda: ising([0.3] * 24, lattice(24, periodic=True), [0.7] * 24)),
        ("ising_torus_4x4_K0.3", lambda: ising([0.0] * 16, lattice(4, 4, periodic=True), [0.3] * 32)),
        ("ising_cubic_4x4x4_open", lambda: ising([0.0] * 64, lattice(4, 4, 4), [0.22165462] * 144)),
        ("chimera_C2_32spins", _chimera),
        ("potts_ring_q4_15", lambda: _potts(4, 0.8, lattice(15, periodic=True), 15)),
        ("potts_torus_q3_4x6_Jc", lambda: _potts(3, 1.005052538742381, lattice(6, 4, periodic=True), 24)),
        ("rbm_potts4_vis7_bern_hid5", _potts_rbm),
    ],
)
def test_elimination_agrees_with_the_reference_values(reference, name, model):
    assert eliminate_log_z(*model()) == pytest.approx(reference[name]["logZ"], rel=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unary": [np.zeros(2)]}, "unary and tables must match"),
        ({"unary": [np.zeros(2), np.zeros(2)]}, r"unary\[1\] must have shape \(3,\)"),
        ({"tables": [np.zeros((3, 2))]}, r"tables\[0\] must have shape \(2, 3\)"),
        ({"tables": [np.full((2, 3), np.nan)]}, "finite or -inf"),
        ({"unary": [np.array([0, np.inf]), np.zeros(3)]}, "finite or -inf"),
        ({"edges": [(1, 1)]}, r"edges\[0\] = \(1, 1\)"),
        ({"edges": [(0, 2)]}, r"edges\[0\] = \(0, 2\)"),
        ({"order": [0, 0]}, "order must name each"),
        ({"order": [1]}, "order must name each"),
    ],
)
def test_bad_input(change, message):
    model = {"unary": [np.zeros(2), np.zeros(3)], "edges": [(0, 1)], "tables": [np.zeros((2, 3))]}
    with pytest.raises(ValueError, match=message):
        eliminate_log_z([2, 3], **(model | change))


def test_bad_order_input():
    with pytest.raises(ValueError, match="joined to itself"):
        elimination_order(2, [(1, 1)], [2, 2])
    with pytest.raises(ValueError, match="cards"):
        elimination_order(2, [(0, 1)], [2])
