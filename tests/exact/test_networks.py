"""Networks of tables: searched orders, contraction within a memory, counting in a child process, and their choice."""

import itertools
import math
import os
import signal
import threading
import time

import numpy as np
import pytest

import marginalis as mg
from marginalis.exact import counting, networks
from marginalis.exact.contraction import contract, plan_contraction
from marginalis.exact.counting import CountingFailed, count_log_z, encode, is_deterministic
from marginalis.exact.elimination import eliminate_factors
from marginalis.exact.ordering import elimination_order, table_entries
from marginalis.exact.search import search_order

INFINITE = 1e12


def no_tick(fraction):
    pass


def random_network(seed, n, *, zeros=0.0, scale=2.0, values=0, window=6):
    rng = np.random.default_rng(seed)
    cards = [int(x) for x in rng.integers(2, 4, n)]
    factors = [((v,), rng.normal(size=cards[v])) for v in range(n)]
    for _ in range(2 * n):
        start = int(rng.integers(0, n - window + 1))
        scope = tuple(start + rng.permutation(window)[: rng.integers(2, 4)])
        shape = [cards[v] for v in scope]
        table = rng.integers(0, values, shape) * 0.7 if values else scale * rng.normal(size=shape)
        table = np.where(rng.random(shape) < zeros, -np.inf, table)
        factors.append((tuple(map(int, scope)), table))
    return cards, factors


@pytest.mark.parametrize(("zeros", "scale"), [(0.0, 2.0), (0.15, 2.0), (0.0, 200.0), (0.1, 300.0)])
def test_contraction_is_elimination(zeros, scale):
    """Plain numbers where their range allows it, logarithms where it does not, whole or in slices."""
    for seed in range(2):
        cards, factors = random_network(seed, 25, zeros=zeros, scale=scale, window=12)
        scopes = [scope for scope, _ in factors]
        edges = networks.edges_of(scopes)
        order, _ = elimination_order(25, edges, cards)
        wanted = eliminate_factors(cards, factors, order)
        whole = plan_contraction(cards, scopes, order, INFINITE)
        assert whole.slices == 1
        assert contract(cards, factors, whole, 1, no_tick) == pytest.approx(wanted, rel=1e-12)
        assert contract(cards, factors, whole, 3, no_tick) == contract(cards, factors, whole, 1, no_tick)
        sliced = plan_contraction(cards, scopes, order, 0.5 * whole.bytes)
        assert sliced.slices > 1
        assert sliced.bytes <= 0.5 * whole.bytes
        assert contract(cards, factors, sliced, 1, no_tick) == pytest.approx(wanted, rel=1e-12)


def test_no_contraction_is_planned_without_memory():
    cards, factors = random_network(0, 25)
    order, _ = elimination_order(25, networks.edges_of([scope for scope, _ in factors]), cards)
    assert plan_contraction(cards, [scope for scope, _ in factors], order, 10.0) is None


def test_the_search_finds_orders_that_are_no_worse():
    rng = np.random.default_rng(3)
    n, cards = 80, [2] * 80
    edges = sorted({tuple(sorted(map(int, rng.choice(n, 2, replace=False)))) for _ in range(170)})
    order, _ = elimination_order(n, edges, cards)
    greedy = math.log2(table_entries(edges, cards, order))
    found, cost = search_order(n, edges, cards, seconds=0.2, below=100.0)
    assert sorted(found) == list(range(n))
    assert cost == pytest.approx(math.log2(table_entries(edges, cards, found)), abs=1e-9)
    assert cost < greedy
    assert search_order(n, edges, cards, seconds=0.1, below=5.0) is None


def test_wide_networks_are_summed(monkeypatch):
    """By a searched order and in slices, if the simple way would take long."""
    monkeypatch.setattr(networks, "AT_ONCE", 0.0)
    cards, factors = random_network(5, 30, zeros=0.02)
    model = mg.FactorModel(tuple(cards), tuple(s for s, _ in factors), tuple(t for _, t in factors))
    order, _ = elimination_order(30, networks.edges_of(model.scopes), cards)
    wanted = eliminate_factors(cards, factors, order)
    assert mg.exact_log_z(model) == pytest.approx(wanted, rel=1e-12)
    monkeypatch.setattr(networks, "free_memory", lambda: 2000.0)
    (way,) = networks.network_ways(cards, factors, 100.0, counting=False)
    assert way.bytes <= 0.6 * 2000.0 or "times" not in way.size
    assert way.run(1, no_tick) == pytest.approx(wanted, rel=1e-12)


def test_pairs_of_large_width():
    """A random graph that is eliminated along a searched order agrees with enumeration."""
    import networkx as nx

    rng = np.random.default_rng(1)
    graph = nx.random_regular_graph(3, 22, seed=1)
    for edge in graph.edges:
        graph.edges[edge]["coupling"] = float(rng.normal())
    model = mg.from_graph(graph)
    factors = mg.FactorModel.of(model)
    order, _ = elimination_order(22, networks.edges_of(factors.scopes), factors.cards)
    pairs = list(zip(factors.scopes, factors.tables, strict=True))
    plan = networks.best_contraction(factors.cards, pairs, 10.0)
    assert plan.entries <= table_entries(networks.edges_of(factors.scopes), factors.cards, order)
    value = factors.offset + contract(factors.cards, pairs, plan, 1, no_tick)
    assert value == pytest.approx(mg.exact_log_z(model, method="enumeration"), rel=1e-12)


def exactly(cards, factors):
    order, _ = elimination_order(len(cards), networks.edges_of([s for s, _ in factors]), cards)
    return eliminate_factors(cards, factors, order)


def test_clauses_have_the_sum_as_their_count():
    """By enumeration of all propositions, without a counter."""
    rng = np.random.default_rng(7)
    for zeros in (0.0, 0.4):
        cards = [2, 3, 2]
        factors = []
        for scope in ((0, 1), (1, 2), (2,), (0, 2)):
            table = rng.integers(-1, 2, [cards[v] for v in scope]).astype(float)
            table.flat[1:] = np.where(rng.random(table.size - 1) < zeros, -np.inf, table.flat[1:])
            factors.append((scope, table))
        formula = encode(cards, factors)
        total = 0.0
        for values in itertools.product([False, True], repeat=formula.propositions):
            signed = [k + 1 if value else -k - 1 for k, value in enumerate(values)]
            chosen = set(signed)
            if all(any(literal in chosen for literal in clause) for clause in formula.clauses):
                total += math.prod(formula.weights.get(literal, 1.0) for literal in signed)
        assert formula.constant + math.log(total) == pytest.approx(exactly(cards, factors), rel=1e-12)


def test_counting_agrees_with_elimination():
    pytest.importorskip("pyganak")
    for seed in range(2):
        cards, factors = random_network(seed, 15, zeros=0.3, values=3)
        model = mg.FactorModel(tuple(cards), tuple(s for s, _ in factors), tuple(t for _, t in factors))
        try:
            wanted = mg.exact_log_z(model, method="elimination")
        except ValueError:
            with pytest.raises(ValueError, match="Z = 0"):
                mg.exact_log_z(model, method="counting")
            continue
        found = mg.exact_log_z(model, method="counting")
        assert found.method == "counting"
        assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("log", [-25.0, 25.0])
def test_counts_beyond_the_range_of_floating_point(log):
    """Neighbours differ, so that all triples have the rare value: a count of 2 e^(38 log)."""
    pytest.importorskip("pyganak")
    differ = np.where(np.eye(2) == 1, -np.inf, 0.0)
    rare = np.zeros((2, 2, 2))
    rare[0, 1, 0] = rare[1, 0, 1] = log
    factors = [((i, i + 1), differ) for i in range(39)] + [((i, i + 1, i + 2), rare) for i in range(38)]
    found = count_log_z(encode([2] * 40, factors), 20.0, 4e9, no_tick)
    assert found == pytest.approx(38 * log + math.log(2.0), rel=1e-12)


def test_tasks_that_are_larger_than_a_pipe(monkeypatch):
    """However often the child is looked at before it has read all."""
    pytest.importorskip("pyganak")
    monkeypatch.setattr(counting, "_LOOK", 1e-3)
    differ = np.where(np.eye(2) == 1, -np.inf, 0.0)
    formula = encode([2] * 5000, [((i, i + 1), differ) for i in range(4999)])
    assert len(str(formula.clauses)) > 1 << 17
    assert count_log_z(formula, 20.0, 4e9, no_tick) == pytest.approx(math.log(2.0), rel=1e-12)


def parity(n, rng):
    """Random parities of three spins: enough of them leave no state."""
    odd = np.indices((2, 2, 2)).sum(axis=0) % 2
    tables = [np.where(odd == k, 0.0, -np.inf) for k in (0, 1)]
    return [(tuple(map(int, rng.choice(n, 3, replace=False))), tables[rng.integers(2)]) for _ in range(3 * n)]


def test_contradictions_are_found_by_counting():
    pytest.importorskip("pyganak")
    factors = parity(30, np.random.default_rng(0))
    assert is_deterministic(factors)
    assert count_log_z(encode([2] * 30, factors), 20.0, 4e9, no_tick) == -math.inf


def test_networks_without_the_counting_package(monkeypatch):
    monkeypatch.setattr(counting, "is_installed", lambda: False)
    model = mg.FactorModel((2, 2), ((0, 1),), (np.log([[1.0, 2.0], [2.0, 3.0]]),))
    hard = mg.FactorModel(
        (2,) * 12, tuple(itertools.combinations(range(12), 3)), (np.arange(8.0).reshape(2, 2, 2),) * 220
    )
    assert mg.exact_log_z(model) == pytest.approx(math.log(8.0))
    with pytest.raises(mg.ModelTooLarge, match=r"pip install 'marginalis\[networks\]'"):
        mg.exact_log_z(hard, method="counting")


def hard_formula(n=60):
    rng = np.random.default_rng(1)
    scopes = [tuple(map(int, rng.choice(n, 4, replace=False))) for _ in range(3 * n)]
    return encode([2] * n, [(scope, rng.normal(size=(2,) * 4)) for scope in scopes])


def test_a_count_that_runs_over():
    pytest.importorskip("pyganak")
    with pytest.raises(CountingFailed, match=r"counting took more than its 1 s"):
        count_log_z(hard_formula(), 1.0, 4e9, no_tick)


def test_a_count_without_memory():
    pytest.importorskip("pyganak")
    with pytest.raises(CountingFailed, match="counting"):
        count_log_z(hard_formula(), 10.0, 3e7, no_tick)


def test_a_counting_process_that_dies(monkeypatch):
    """The error says so, and the next way is taken."""
    pytest.importorskip("pyganak")
    started = []
    popen = counting.subprocess.Popen

    def start(*args, **kwargs):
        child = popen(*args, **kwargs)
        started.append(child)
        threading.Thread(target=lambda: (time.sleep(0.05), os.kill(child.pid, signal.SIGKILL))).start()
        return child

    monkeypatch.setattr(counting.subprocess, "Popen", start)
    with pytest.raises(CountingFailed, match="or failed"):
        count_log_z(hard_formula(), 10.0, 4e9, no_tick)
    monkeypatch.setattr(networks, "AT_ONCE", 0.0)
    monkeypatch.setattr(networks, "_REDUCTION", 0.0)
    monkeypatch.setattr(networks, "_SURE", -1.0)
    monkeypatch.setattr(networks, "_LEAST_COUNTING", 0.0)
    monkeypatch.setattr(networks, "is_deterministic", lambda factors: True)
    cards, factors = random_network(0, 20, zeros=0.05)
    model = mg.FactorModel(tuple(cards), tuple(s for s, _ in factors), tuple(t for _, t in factors))
    left = model.given()
    assert [
        way.name for way in networks.network_ways(left.cards, list(zip(left.scopes, left.tables, strict=True)), 9.0)
    ] == [
        "counting",
        "elimination",
        "counting",
    ]
    before = len(started)
    found = mg.exact_log_z(model)
    assert len(started) > before
    assert found.method == "elimination"
    assert found == pytest.approx(exactly(cards, factors), rel=1e-12)


def test_marginals_along_a_searched_order(monkeypatch):
    """They are derivatives of ln Z with respect to the fields."""
    monkeypatch.setattr(networks, "_FEW", 0.0)
    cards, factors = random_network(3, 20)
    model = mg.FactorModel(tuple(cards), tuple(s for s, _ in factors), tuple(t for _, t in factors))
    found = mg.expectations(model).marginals
    log_z = mg.exact_log_z(model)
    for v in range(6):
        wanted = [math.exp(mg.exact_log_z(model.given({v: state})) - log_z) for state in range(cards[v])]
        assert found[v] == pytest.approx(wanted, abs=1e-11)
