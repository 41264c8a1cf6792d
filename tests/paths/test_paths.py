"""A base may be another model of the same variables: then the path gives the ratio of the two Z."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from conftest import PathSums, answer, log_weights, random_rbm, z_score

import marginalis as mg
from marginalis.engines.plan import make_plan
from marginalis.models.arrange import rearrange
from marginalis.paths.base import coupled_base


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
    options = dict(method=method, steps=20, chains=4000, precision="double", keep_whole=True, seed=5)
    plan = make_plan(end, base=coupled_base(start, end), **options)
    base = plan.path.base
    assert base.is_coupled
    sums = PathSums(plan.path.model.with_natural(base.weights, base.visible, base.hidden, base.lateral), [0.0, 1.0])
    assert sums.log_z + base.offset == pytest.approx(log_z(start), rel=1e-12)
    law = np.exp(sums.marginal(1) - sums.log_z)
    plan = plan.with_chains(start=sums.v_states[rng.choice(len(law), size=plan.chains.count, p=law)])
    slow, fast = (log_weights(plan, engine) for engine in ("numpy", "numba"))
    assert np.mean(np.abs(slow - fast) < 1e-9) >= 0.97
    assert abs(z_score(np.exp(slow - log_z(end) + log_z(start)), 1.0)) < 4.5


def test_models_of_other_variables_are_no_base():
    a, b = mg.from_edges([(0, 1), (1, 2)]), mg.from_edges([(0, 1), (1, 2)], labels="abc")
    with pytest.raises(ValueError, match="the labels differ"):
        make_plan(a, base=b)
    with pytest.raises(ValueError, match="other units"):
        make_plan(a, base=mg.from_edges([(0, 1), (1, 2)], units="binary"))


def a_model(name):
    """A model, and others of the same variables without couplings, with some and with an offset, to start from."""
    rng = np.random.default_rng(4)
    if name == "rbm":
        model, coupled = (random_rbm(rng, 5, 3) for _ in range(2))
        free = mg.rbm(np.zeros((5, 3)), rng.normal(size=5), rng.normal(size=3))
    else:
        edges = [(0, 1), (1, 2), (0, 2), (2, 3)]
        model, coupled = (mg.from_edges(edges, coupling=rng.normal(size=4), field=rng.normal(size=4)) for _ in "ab")
        free = mg.from_edges(edges, coupling=0.0, field=rng.normal(size=4))
    return model, (free, coupled, replace(coupled, offset=3.0))


@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("name", ["rbm", "graph"])
def test_the_log_z_of_a_model_to_start_from_is_counted(name, engine):
    model, starts = a_model(name)
    exact = mg.exact_log_z(model)
    methods = ("mais-v", "mais-h", "ais") if name == "rbm" else ("mais", "ais")
    for start in starts:
        for method in methods:
            options = dict(base=start, method=method, engine=engine, seed=2)
            whole = mg.estimate(model, steps=20, chains=1000, **options)
            assert abs(whole.log_z - exact) < 4.5 * whole.stderr
            populations = mg.estimate(model, steps=20, chains=1000, resample=0.95, **options)
            assert abs(populations.log_z - exact) < 4.5 * populations.stderr
        parts = [mg.estimate(model, steps=20, chains=500, first_chain=k, **options) for k in (0, 500)]
        assert np.array_equal(sum(parts).log_weights, whole.log_weights)


def test_every_answer_counts_the_log_z_of_a_model_to_start_from(tmp_path):
    model, starts = a_model("rbm")
    exact = mg.exact_log_z(model)
    for start in starts:
        chosen = mg.estimate(model, base=start, tolerance=0.05)
        assert abs(chosen.log_z - exact) < 4.5 * chosen.stderr
        chosen.save(tmp_path / "r.npz")
        assert mg.load_estimate(tmp_path / "r.npz").log_z == chosen.log_z
        curve = mg.estimate(model, base=start, steps=50, record=True).curve
        beta, first, last = curve.betas[0], make_plan(model, base=start).path.base, model.natural
        between = (
            None if y is None else beta * y + (0.0 if x is None else (1 - beta) * x)
            for x, y in zip(
                (first.weights, first.visible, first.hidden, first.lateral),
                (last.weights, last.visible_bias, last.hidden_bias, last.lateral),
                strict=True,
            )
        )
        assert abs(curve.log_z[0] - mg.exact_log_z(model.with_natural(*between))) < 4.5 * curve.stderr[0]
        assert abs(curve.log_z[-1] - exact) < 4.5 * curve.stderr[-1]
        bounds = mg.bound(model, base=start, steps=50)
        assert bounds.lower < -exact < bounds.upper
        assert abs(bounds.free_energy + exact) < 4.5 * bounds.stderr
        along = mg.along([model, starts[1]], base=start, steps=50)
        assert (np.abs(along.log_z - [exact, mg.exact_log_z(starts[1])]) < 4.5 * along.stderr).all()
        means = mg.expectations(model, base=start, steps=50, exact=False)
        assert abs(means.estimate.log_z - exact) < 4.5 * means.estimate.stderr
        assert (np.abs(means.means - mg.expectations(model, exact=True).means) < 4.5 * means.mean_errors).all()
        mg.save(model, tmp_path / "m.npz")
        mg.save(start, tmp_path / "base.npz")
        told = answer("estimate", tmp_path / "m.npz", "--base", tmp_path / "base.npz", "--steps", 50)
        assert abs(told["log_z"] - exact) < 4.5 * told["stderr"]


def test_a_model_to_start_from_that_cannot_be_summed_is_refused():
    rng = np.random.default_rng(0)
    big, other = (random_rbm(rng, 60, 60, scale=0.1) for _ in range(2))
    with pytest.raises(ValueError, match=r"mg\.difference"):
        mg.estimate(big, base=other, steps=10)
    assert mg.difference(other, big, steps=10, chains=20).steps == 10
    small, (_, start, _) = a_model("rbm")
    with pytest.raises(ValueError, match="does not support a base with couplings"):
        mg.estimate(small, base=start, transition="metropolis")


def test_a_base_may_couple_the_side_that_the_model_leaves_free():
    rng = np.random.default_rng(1)
    edges = [(a, b) for a in range(4) for b in range(4, 7)]
    coupling = 0.5 * rng.normal(size=12)
    model = mg.from_edges(edges, coupling=coupling)
    start = mg.from_edges([*edges, (0, 1), (1, 2)], coupling=[*coupling, 0.7, -0.4])
    r = mg.estimate(model, base=start, steps=30, chains=2000)
    assert abs(r.log_z - mg.exact_log_z(model)) < 4.5 * r.stderr
