"""A base may be another model of the same variables: then the path gives the ratio of the two Z."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from conftest import PathSums, log_weights, z_score

import marginalis as mg
from marginalis.models.arrange import rearrange
from marginalis.sampling.plan import make_plan


def two_rbms(rng):
    return [mg.rbm(rng.normal(size=(4, 5)), rng.normal(size=4), rng.normal(size=5)) for _ in range(2)]


def two_tables(rng):
    edges = list(nx.wheel_graph(5).edges)
    return [mg.from_tables(rng.normal(size=(5, 3)), {e: rng.normal(size=(3, 3)) for e in edges}) for _ in range(2)]


def on_one_graph(rng, units="spin"):
    edges = list(nx.gnm_random_graph(8, 17, seed=2).edges)
    return [
        mg.from_edges(edges, coupling=rng.normal(size=len(edges)), field=rng.normal(size=8), units=units)
        for _ in range(2)
    ]


def on_two_graphs(rng):
    """Of the second model only those are summed out that are coupled in neither."""
    graphs = [nx.gnm_random_graph(8, 17, seed=seed) for seed in (2, 3)]
    start, end = (mg.from_edges(list(g.edges), coupling=rng.normal(size=17), field=rng.normal(size=8)) for g in graphs)
    both = mg.from_graph(nx.compose(*graphs))
    return start, rearrange(end, both.split.hidden)


PAIRS = {
    "rbm": two_rbms,
    "one graph": on_one_graph,
    "two graphs": on_two_graphs,
    "binary": lambda rng: on_one_graph(rng, "binary"),
    "tables": two_tables,
}


def log_z(model):
    return PathSums(model, [0.0, 1.0]).log_z


@pytest.mark.parametrize("method", ["mais", "ais"])
@pytest.mark.parametrize("name", PAIRS)
def test_a_path_from_model_to_model_gives_the_ratio(name, method):
    rng = np.random.default_rng(11)
    start, end = PAIRS[name](rng)
    plan = make_plan(end, base=start, method=method, steps=20, chains=4000, precision="double", keep_whole=True, seed=5)
    base = plan.base
    assert base.is_coupled
    sums = PathSums(plan.model.with_natural(base.weights, base.visible, base.hidden, base.lateral), [0.0, 1.0])
    assert sums.log_z + base.offset == pytest.approx(log_z(start), rel=1e-12)
    law = np.exp(sums.marginal(1) - sums.log_z)
    plan = replace(plan, start=sums.v_states[rng.choice(len(law), size=plan.chains, p=law)])
    slow, fast = (log_weights(plan, engine) for engine in ("numpy", "numba"))
    assert np.mean(np.abs(slow - fast) < 1e-9) >= 0.97
    assert abs(z_score(np.exp(slow - log_z(end) + log_z(start)), 1.0)) < 4.5


def test_models_of_other_variables_are_no_base():
    a, b = mg.from_edges([(0, 1), (1, 2)]), mg.from_edges([(0, 1), (1, 2)], labels="abc")
    with pytest.raises(ValueError, match="the labels differ"):
        make_plan(a, base=b)
    with pytest.raises(ValueError, match="other units"):
        make_plan(a, base=mg.from_edges([(0, 1), (1, 2)], units="binary"))
