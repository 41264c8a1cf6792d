"""Paths from mixtures with fields on both sides: exact path sums, both theorems, and the engines draw for draw."""

import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from conftest import PathSums, log_weights, random_factors, random_rbm, run, with_mixture, z_score

import marginalis as mg
from marginalis.engines.plan import make_plan
from marginalis.engines.recorder import Recorder, the_states
from marginalis.exact.sampling import sample_visible
from marginalis.paths.mixture import Mixture
from marginalis.random import MIXTURE, uniforms

BETAS = np.array([0.0, 0.2, 0.55, 0.8, 1.0])
COMPONENTS = 3


class MixtureSums(PathSums):
    """Products of transition matrices over all (v, z), with h summed out or beside them."""

    def __init__(self, model, betas, mixture, sweeps=0):
        super().__init__(model, betas, sweeps=sweeps)
        v, h = self.v_states, self.h_states
        start = mixture.weights[:, None, None] + (mixture.fields @ v.T)[:, :, None] + (mixture.hidden @ h.T)[:, None]
        target = self.log_p[-1]
        whole = np.stack([target] * mixture.components)
        self.shape = whole.shape  # component, v, h
        kept = mixture.kept[:, None, None]
        self.grids = [kept + (1 - beta) * start + beta * whole for beta in betas]
        self.log_p = [grid.reshape(-1, self.shape[2]) for grid in self.grids]
        self.v_states = np.tile(v, (mixture.components, 1))
        self.log_z0 = np.logaddexp.reduce(self.log_p[0].ravel())

    def tau(self, k):
        """h given (v, z), z given (v, h), Metropolis sweeps of h given z, v given (h, z)."""
        (m, n, s), p = self.shape, self.grids[k]
        given = [np.exp(p - np.logaddexp.reduce(p, axis=axis, keepdims=True)) for axis in (0, 1, 2)]
        flips = np.stack([np.eye(s)] * m)
        if self.sweeps:
            for z in range(m):
                part = PathSums.__new__(PathSums)
                part.log_p, part.h_states = [p[z]], self.h_states
                flips[z] = np.linalg.matrix_power(part.metropolis(0), self.sweeps)
        # [z, v] → h → z′ → h′ → v′
        whole = np.einsum("zvh,yvh,yhg,ywg->zvyw", given[2], given[0], flips, given[1])
        return whole.reshape(m * n, m * n)


def mixture_for(plan, seed=3, scale=0.5):
    rng = np.random.default_rng(seed)
    model = plan.path.end
    fields = [scale * rng.normal(size=(COMPONENTS, len(x))) for x in (model.visible_bias, model.hidden_bias)]
    return Mixture(rng.normal(size=COMPONENTS), *fields, rng.normal(size=COMPONENTS))


def pairs(units, shape, seed):
    rng = np.random.default_rng(seed)
    return mg.rbm(rng.normal(size=shape), rng.normal(size=shape[0]), rng.normal(size=shape[1]), units=units)


MODELS = {
    "spin": random_rbm(np.random.default_rng(0), 3, 2),
    "binary": random_rbm(np.random.default_rng(1), 3, 2, units="binary", temperature=1.3),
    "mixed": random_rbm(np.random.default_rng(2), 3, 2, units=("spin", "binary")),
    "categorical": pairs(("categorical:3", "categorical:2"), (6, 4), 4),
}


def planned(name, method, **options):
    plan = make_plan(MODELS[name], method=method, schedule=list(BETAS), keep_whole=True, **options)
    return with_mixture(plan, mixture_for(plan))


def sums_of(plan):
    return MixtureSums(plan.path.end, BETAS, plan.path.mixture, plan.move.sweeps)


def some(names, quick):
    """Names as parameters: each kind of unit is one more kernel to compile, so that most are for the studies."""
    return [x if x in quick else pytest.param(x, marks=pytest.mark.study) for x in names]


@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", ["ais", "mais-v", "mais-h"])
def test_moments_are_exact(name, method, engine):
    if engine == "numba" and name == "categorical":
        pytest.skip("draw for draw the reference's, below")
    plan = planned(name, method, chains=20_000 if engine == "numpy" else 100_000, seed=1)
    sums = sums_of(plan)
    exact = sums.ais() if method == "ais" else sums.mais_v()
    assert exact.mean == pytest.approx(
        np.exp(plan.path.mixture.kept).sum() * math.exp(sums.log_z - sums.log_z0), rel=1e-9
    )
    assert plan.path.log_z0 + math.log(exact.mean) == pytest.approx(mg.exact_log_z(MODELS[name]), abs=1e-9)
    found = log_weights(plan, engine, threads=2)
    assert abs(z_score(np.exp(found), exact.mean)) < 4.5
    assert abs(z_score(np.exp(2 * found), exact.second)) < 4.5
    assert abs(z_score(found, exact.mean_log)) < 4.5


@pytest.mark.parametrize("name", ["spin", "binary"])
@pytest.mark.parametrize("method", ["mais-v", "ais"])
def test_metropolis_sweeps_stay_in_the_component(name, method):
    plan = planned(name, method, chains=20_000, seed=1, transition="metropolis", sweeps=2, engine="numpy")
    sums = sums_of(plan)
    exact = sums.ais() if method == "ais" else sums.mais_v()
    found = log_weights(plan, "numpy")
    assert abs(z_score(np.exp(found), exact.mean)) < 4.5
    assert abs(z_score(np.exp(2 * found), exact.second)) < 4.5
    assert abs(z_score(found, exact.mean_log)) < 4.5


@pytest.mark.parametrize("seed", range(5))
def test_both_theorems_hold(seed):
    """Summing h out makes weights more even, and their mean logarithm larger (the paper's two theorems)."""
    model = random_rbm(np.random.default_rng(seed), 3, 3, scale=1.5)
    plan = make_plan(model, method="mais-v", steps=4)
    sums = MixtureSums(model, BETAS, mixture_for(plan, seed, 1.5))
    joint, marginal = sums.ais(), sums.mais_v()
    assert marginal.relvar <= joint.relvar
    assert marginal.mean_log >= joint.mean_log


@pytest.mark.parametrize("name", ["spin", "mixed", "categorical"])
@pytest.mark.parametrize("method", ["ais", "mais-v"])
@pytest.mark.parametrize("sweeps", [0, 1])
def test_the_reverse_process_has_exact_moments(name, method, sweeps):
    if sweeps and name == "categorical":
        pytest.skip("Metropolis sweeps flip spins")
    options = dict(transition="metropolis", sweeps=sweeps) if sweeps else {}
    plan = planned(name, method, chains=20_000, seed=2, **options)
    exact = sums_of(plan).reverse(method)
    start, _ = sample_visible(plan.path.end, 11, np.arange(20_000, dtype=np.uint64))
    for engine in ("numpy", "numba") if name == "spin" and not sweeps else ("numpy",):
        found = log_weights(plan.reversed(start), engine, threads=2)
        assert abs(z_score(np.exp(found), exact.mean)) < 4.5
        assert abs(z_score(found, exact.mean_log)) < 4.5


ANY = {
    "rbm": random_rbm(np.random.default_rng(0), 13, 14),
    "binary": random_rbm(np.random.default_rng(1), 14, 11, units="binary"),
    "wheel": mg.from_graph(nx.wheel_graph(7)),
    "dense": mg.from_matrix(np.triu(np.random.default_rng(2).normal(size=(8, 8)), 1)),
    "potts": mg.potts(list(nx.wheel_graph(6).edges), 3, coupling=0.7),
    "potts on a ring": mg.potts(list(nx.cycle_graph(8).edges), 3, coupling=0.7),
    "gaussian": mg.rbm(
        0.3 * np.random.default_rng(5).normal(size=(5, 6)), np.zeros(5), np.ones(6), units=("spin", "gaussian")
    ),
    "double": random_rbm(np.random.default_rng(6), 9, 10),
    "factors of spins": random_factors(5, (2,) * 30, arity=5, count=30),
    "tables": random_factors(6, (2, 5, 3, 4, 7, 2, 9, 3, 17, 4, 6), arity=4, count=12),
    "few tables": random_factors(7, (2, 3, 2, 4, 3), arity=3, count=5),
    "few factors of spins": random_factors(8, (2,) * 7, arity=4, count=6),
}


def states_after(plan):
    """States of the sampled side after the last step."""
    recorder = Recorder([plan.steps], plan.chains.count, the_states, plan.path.width)
    run(plan.on_engine("numpy"), recorder=recorder)
    return recorder.values[0]


@pytest.mark.parametrize("name", some(ANY, ("rbm", "binary", "wheel", "potts on a ring", "factors of spins", "tables")))
@pytest.mark.parametrize("method", ["mais", "ais"])
def test_engines_agree_draw_for_draw(name, method):
    options = {"precision": "double"} if name == "double" else {}
    plan = make_plan(ANY[name], method=method, steps=30, chains=80, seed=3, **options)
    plan = with_mixture(plan, mixture_for(plan))
    slow, fast = (log_weights(plan, engine) for engine in ("numpy", "numba"))
    assert np.mean(np.abs(slow - fast) < 1e-3) >= 0.97
    if plan.path.end.has_terms:  # These kernels take the reverse process, too.
        back = plan.reversed(states_after(plan))
        slow, fast = (log_weights(back, engine) for engine in ("numpy", "numba"))
        assert np.mean(np.abs(slow - fast) < 1e-3) >= 0.97
    resampled = plan.with_chains(populations=5, resample_below=0.9)
    slow, fast = (log_weights(resampled, engine) for engine in ("numpy", "numba"))
    assert np.mean(np.abs(slow - fast) < 1e-3) >= 0.8


UNBIASED = ("wheel", "dense", "potts", "potts on a ring", "gaussian", "few tables", "few factors of spins")


@pytest.mark.parametrize("name", some(UNBIASED, ("potts on a ring", *UNBIASED[-2:])))
def test_any_graph_is_unbiased(name):
    plan = make_plan(ANY[name], steps=10, chains=20_000, seed=1)
    plan = with_mixture(plan, mixture_for(plan))
    found = log_weights(plan, "numba", 2)
    exact = mg.exact_log_z(ANY[name])
    assert abs(z_score(np.exp(found + plan.path.log_z0 - exact), 1.0)) < 4.5
    start, _ = sample_visible(plan.path.end, 11, np.arange(20_000, dtype=np.uint64))
    back = log_weights(plan.reversed(start), "numba", 2)
    assert abs(z_score(np.exp(back - plan.path.log_z0 + exact), 1.0)) < 4.5


@pytest.mark.parametrize("method", ["mais-v", "mais-h", "ais"])
def test_look_up_tables_serve_mixtures_of_many_components(method):
    rng = np.random.default_rng(0)
    model = random_rbm(rng, 150, 130, units="binary", scale=0.1)
    plan = make_plan(model, method=method, steps=10, chains=48, seed=3)
    sides = plan.path.end.visible_bias, plan.path.end.hidden_bias
    fields = [rng.normal(scale=0.3, size=(37, len(x))) for x in sides]
    mixture = Mixture(rng.normal(size=37), *fields, rng.normal(size=37))
    plan = with_mixture(plan, mixture)
    assert np.allclose(log_weights(plan, "numpy"), log_weights(plan, "numba"), atol=1e-4)
    start = rng.integers(2, size=(48, len(sides[0]))).astype(float)
    back = plan.reversed(start)
    assert np.mean(np.abs(log_weights(back, "numpy") - log_weights(back, "numba")) < 1e-3) >= 0.97


@pytest.mark.parametrize("name", ["rbm", "wheel"])
def test_no_chain_draws_a_last_component_of_probability_zero(name):
    """The uniform of this chain at step 32 is 1 − 2e-8, which single precision rounds to 1."""
    chain, step = 661_856, 32
    u = uniforms(0, np.array([chain], dtype=np.uint64), step, MIXTURE, 1)
    assert np.float32(u[0, 0]) == 1.0
    plan = make_plan(ANY[name], steps=60, chains=16, first_chain=chain - 7, seed=0)
    mixture = mixture_for(plan)
    plan = with_mixture(plan, replace(mixture, weights=np.array([0.0, 0.0, -400.0])))
    assert np.allclose(log_weights(plan, "numpy"), log_weights(plan, "numba"), atol=1e-3)
