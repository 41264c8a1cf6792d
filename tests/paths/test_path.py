"""The path as a value: its ends, its other side, its reverse, and what of it travels to other processes."""

import pickle

import networkx as nx
import numpy as np
import pytest
from conftest import random_rbm

import marginalis as mg
from marginalis.engines.plan import make_plan
from marginalis.paths.base import make_base
from marginalis.paths.path import make_path

RBM = random_rbm(np.random.default_rng(0), 5, 9)
WHEEL = mg.from_graph(nx.wheel_graph(7))


def same(a, b):
    """Whether two models have the same parameters."""
    sides = ("visible_bias", "hidden_bias")
    return a.weights.shape == b.weights.shape and all(np.array_equal(getattr(a, x), getattr(b, x)) for x in sides)


def path_of(model, base="biases", **options):
    return make_path(model, make_base(base, model), base, **options)


def test_the_smaller_side_is_sampled_unless_another_is_named():
    assert not path_of(RBM).is_turned
    assert path_of(RBM.transposed()).is_turned
    assert path_of(RBM).width == path_of(RBM.transposed()).width == 5
    assert path_of(RBM, turned=True).width == 9
    assert not path_of(WHEEL).is_turned


def test_the_other_side_of_the_other_side_is_the_first():
    path = path_of(RBM)
    other = path.turned()
    assert same(other.end, RBM.transposed())
    assert same(other.turned().end, path.end)
    assert same(other.unturned, RBM)
    assert other.log_z0 == path.log_z0


@pytest.mark.parametrize("model", [RBM, WHEEL], ids=["rbm", "wheel"])
def test_the_reverse_of_the_reverse_is_the_path(model):
    path = path_of(model)
    back = path.reversed(last_to_first=False)
    again = back.reversed(last_to_first=False)
    assert same(again.end, path.end)
    assert again.exact_log_ratio == path.exact_log_ratio == -back.exact_log_ratio
    states = np.arange(2.0 * path.width).reshape(2, -1)
    assert np.array_equal(back.reordered(path.reordered(states)), states)


def test_engines_get_what_is_annealed_and_not_the_whole_model():
    plan = make_plan(RBM, method="mais-h", steps=3, chains=4)
    assert plan.path.spins is plan.path.spins  # found once
    far = pickle.loads(pickle.dumps(plan))
    assert same(far.path.end, plan.path.end)
    assert far.path.model is far.path.part
    assert "spins" not in vars(far.path)


def test_a_pilot_shares_no_random_number_with_the_answer():
    plan = make_plan(RBM, steps=3, chains=64, resample=True, populations=4, seed=5)
    pilot = plan.pilot(7, 16, np.linspace(0.0, 1.0, 9))
    assert pilot.chains.seed != plan.chains.seed
    assert (pilot.steps, pilot.chains.count, pilot.chains.populations) == (8, 16, 0)
    assert pilot.path is plan.path
