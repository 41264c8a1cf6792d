"""Kernels start at the target and stay there."""

import math

import networkx as nx
import numpy as np
import pytest
from conftest import PathSums, random_rbm

import marginalis as mg
from marginalis.engines import drive
from marginalis.engines.plan import make_plan
from marginalis.engines.reference.loop import Distributions
from marginalis.engines.reference.moves import gibbs


def potts(rng):
    return mg.from_tables(
        rng.normal(size=(4, 3)), {edge: rng.normal(size=(3, 3)) for edge in nx.complete_graph(4).edges}
    )


MODELS = {
    "rbm": lambda rng: random_rbm(rng, 3, 4, scale=0.9),
    "categorical rbm": lambda rng: random_rbm(rng, 6, 5, units=("categorical:3", "binary"), scale=0.9),
    "wheel": lambda rng: mg.from_edges(list(nx.wheel_graph(6).edges), coupling=rng.normal(size=10), field=0.3),
    "K5": lambda rng: mg.from_edges(list(nx.complete_graph(5).edges), coupling=rng.normal(size=10), field=0.3),
    "tables": potts,
}


def start_at_target(sums, k, chains, seed=0):
    """Indices of v drawn from P_k(v)."""
    p = np.exp(sums.marginal(k) - np.logaddexp.reduce(sums.marginal(k)))
    return np.random.default_rng(seed).choice(len(p), size=chains, p=p), p


def stays(v, sums, p):
    """χ² of the states against p, in standard deviations."""
    index = (v[:, None, :] == sums.v_states[None]).all(axis=2).argmax(axis=1)
    expected = p * len(v)
    counts = np.bincount(index, minlength=len(p))
    return (((counts - expected) ** 2 / expected).sum() - (len(p) - 1)) / math.sqrt(2 * (len(p) - 1))


@pytest.mark.parametrize("units", ["spin", "binary"])
def test_reference_kernel_leaves_target_invariant(units):
    model = random_rbm(np.random.default_rng(9), 3, 4, units=units, scale=0.9)
    plan = make_plan(model, method="mais-v", steps=5, chains=30_000, seed=7)
    path = Distributions(plan, range(plan.chains.count))
    sums = PathSums(model, plan.betas)
    index, p = start_at_target(sums, 3, plan.chains.count)
    v = sums.v_states[index]
    moved = gibbs(path, 3, v, path.fields(v))
    assert (moved != v).any()
    assert stays(moved, sums, p) < 4.5
    assert stays(gibbs(path, 5, v, path.fields(v)), sums, p) > 20  # the check sees a wrong temperature


@pytest.mark.parametrize("method", ["ais", "mais"])
@pytest.mark.parametrize("name", MODELS)
def test_fast_kernels_leave_target_invariant(name, method):
    model = MODELS[name](np.random.default_rng(9))
    plan = make_plan(model, method=method, steps=5, chains=60_000, seed=7, keep_whole=True)
    assert not plan.path.is_turned
    sums = PathSums(model, plan.betas)
    index, p = start_at_target(sums, 3, plan.chains.count)
    start = sums.v_states[index]
    started = plan.on_engine("numba").with_chains(start=start)
    population = drive.begin(started).population(range(plan.chains.count))
    assert np.array_equal(population.states(), start)
    population.step = 2  # the next move is that of step 3
    population.advance(3)
    moved = population.states()
    assert (moved != start).any()
    assert stays(moved, sums, p) < 4.5
    population.advance(4)
    assert stays(population.states(), sums, p) > 20
