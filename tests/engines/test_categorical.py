"""Categorical variables of many states: rows of couplings that are looked up give the bits of the general kernel."""

import numpy as np
import pytest
from conftest import log_weights, with_mixture

import marginalis as mg
from marginalis.engines.cpu import categorical, graph
from marginalis.engines.plan import make_plan
from marginalis.engines.reference.loop import Distributions
from marginalis.paths.mixture import Mixture


def tables(sizes, share=1.0, seed=0):
    """Variables of these numbers of states, a share of whose pairs is coupled."""
    rng = np.random.default_rng(seed)
    pairs = [(i, j) for i in range(len(sizes)) for j in range(i) if rng.random() < share]
    pair = {(i, j): 0.3 * rng.normal(size=(sizes[i], sizes[j])) for i, j in pairs}
    return mg.from_tables([rng.normal(size=q) for q in sizes], pair)


def bipartite():
    rng = np.random.default_rng(1)
    units = ("categorical:9", "categorical:17")
    return mg.rbm(0.3 * rng.normal(size=(45, 102)), rng.normal(size=45), rng.normal(size=102), units=units)


MODELS = {
    "equal": tables([8] * 7),
    "mixed": tables([5, 17, 8, 21, 6, 9, 33, 7]),
    "sparse": tables([9] * 12, 0.25),
    "two sides": bipartite(),
    "turned": bipartite().transposed(),
}


def advanced(family, plan):
    """Log-weights and states of chains by one family of kernels, in two calls and with chains that change places."""
    count = plan.chains.count
    population = family.Population(plan, family.prepare(plan), range(count))
    population.advance(3)
    population.choose(np.arange(count)[::-1].copy())
    population.advance(plan.steps)
    return population.log_weights, population.marginal_log_weights, population.states()


@pytest.mark.parametrize("options", [{"precision": "single"}, {"precision": "double", "method": "ais"}], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_the_bits_are_those_of_the_general_kernel(name, options):
    plan = make_plan(MODELS[name], steps=8, chains=40, base="biases", seed=4, first_chain=5, engine="numba", **options)
    assert categorical.serves(plan)
    for found, wanted in zip(advanced(categorical, plan), advanced(graph, plan), strict=True):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("method", ["mais", "ais"])
def test_the_kernel_draws_what_the_reference_draws(method):
    run = dict(steps=20, chains=100, seed=2, precision="double", method=method)
    fast, slow = (mg.estimate(MODELS["mixed"], engine=engine, **run).log_weights for engine in ("numba", "numpy"))
    assert np.abs(fast - slow).max() < 1e-9


@pytest.mark.parametrize(
    "options",
    [{"method": "ais"}, *(pytest.param(x, marks=pytest.mark.study) for x in ({}, {"precision": "single"}))],
    ids=str,
)
@pytest.mark.parametrize("name", ["mixed", "two sides"])
def test_the_component_of_a_mixture_is_another_variable(name, options):
    """Forwards, backwards and with resampling, it gives the log-weights of the reference."""
    rng = np.random.default_rng(3)
    run = {"steps": 20, "chains": 100, "seed": 2, "precision": "double", **options}
    plan = make_plan(MODELS[name], keep_whole=True, engine="numba", **run)
    sides = plan.path.end.visible_bias, plan.path.end.hidden_bias
    fields = [rng.normal(scale=0.5, size=(5, len(x))) for x in sides]
    mixture = Mixture(rng.normal(size=5), *fields, rng.normal(size=5))
    forward = with_mixture(plan, mixture)
    assert categorical.serves(forward)
    start = Distributions(forward, range(100)).start()
    for path in (forward, forward.reversed(start), forward.with_chains(populations=4, resample_below=0.9)):
        off = np.abs(log_weights(path, "numba") - log_weights(path, "numpy"))
        assert np.mean(off < (1e-9 if run["precision"] == "double" else 2e-4)) >= 0.97


def test_few_states_and_few_couplings_are_left_to_the_general_kernel():
    def is_served(model, **options):
        return categorical.serves(make_plan(model, steps=3, chains=10, engine="numba", **options))

    assert is_served(MODELS["equal"])
    assert not is_served(tables([3] * 8))
    assert not is_served(mg.potts_grid((3, 4), 21))
    assert not is_served(mg.rbm(np.ones((21, 2)), np.zeros(21), np.zeros(2), units=("categorical:21", "spin")))
    assert not is_served(MODELS["equal"], base=tables([8] * 7, 0.2), method="ais")
