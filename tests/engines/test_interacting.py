"""Annealing of models with factors of three or more variables, on the reference engine and on the CPU."""

import itertools
import math
import pickle

import numpy as np
import pytest
from conftest import PathSums, log_weights, random_factors, run, states, z_score

import marginalis as mg
from marginalis.engines.cpu import begin
from marginalis.engines.plan import make_plan, model_digest
from marginalis.engines.recorder import Recorder, the_states
from marginalis.models.annealed import interacting
from marginalis.models.layered import annealable
from marginalis.running.session import Session

BETAS = (0.0, 0.3, 0.6, 1.0)


MODELS = {
    "spins": random_factors(1, (2,) * 5),
    "four": random_factors(2, (2,) * 6, arity=4),
    "states": random_factors(3, (2, 3, 2, 2)),
}
LARGE = {
    "spins": random_factors(5, (2,) * 30, arity=5, count=30),
    "states": random_factors(6, (2, 5, 3, 4, 7, 2, 9, 3, 17, 4, 6), arity=4, count=12),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_exponent_is_that_of_the_factors(name):
    model = MODELS[name]
    annealed = interacting(model)
    sums = PathSums(annealed, (0.0, 1.0))
    log_p = {}
    for x in itertools.product(*map(range, model.cards)):
        terms = zip(model.scopes, model.tables, strict=True)
        log_p[x] = model.offset + sum(float(table[tuple(x[v] for v in scope)]) for scope, table in terms)
    assert sums.log_z == pytest.approx(mg.exact_log_z(model), abs=1e-11)
    assert sorted(sums.log_p[1].ravel()) == pytest.approx(sorted(log_p.values()), abs=1e-11)
    # no factor has two hidden variables, or two of a block
    hidden = set(annealed.split.hidden.tolist())
    for group in [hidden, *({int(annealed.split.visible[i]) for i in block} for block in annealed.sweep)]:
        assert all(len(group & set(scope)) <= 1 for scope in model.scopes)
    assert list(annealed.labels) == list(model.labels)


@pytest.mark.parametrize("name", MODELS)
def test_both_theorems_and_the_weights_by_exact_path_sums(name):
    """Marginalized weights vary less and have the higher mean logarithm; sampled ones have the exact moments."""
    annealed = interacting(MODELS[name])
    sums = PathSums(annealed, BETAS)
    exact = {"mais": sums.mais_v(), "ais": sums.ais()}
    for moments in exact.values():
        assert moments.mean == pytest.approx(math.exp(sums.log_z - sums.log_z0), rel=1e-10)
    assert exact["mais"].relvar < exact["ais"].relvar
    assert exact["mais"].mean_log > exact["ais"].mean_log
    for method, moments in exact.items():
        plan = make_plan(
            annealed, method=method, schedule=list(BETAS), steps=len(BETAS) - 1, chains=20_000, seed=5, engine="numpy"
        )
        weights = np.exp(Session().run(plan).log_weights - annealed.offset)
        assert abs(z_score(weights, moments.mean / math.exp(annealed.offset))) < 4.5
        assert abs(z_score(weights**2, moments.second / math.exp(2 * annealed.offset))) < 4.5


@pytest.mark.parametrize("method", ["mais", "ais"])
@pytest.mark.parametrize("name", LARGE)
def test_engines_agree_draw_for_draw(name, method):
    """In double precision all log-weights agree to rounding, with base fields, resampling and reverse chains, too."""
    plan = make_plan(LARGE[name], method=method, base="biases", steps=12, chains=70, seed=4, precision="double")
    for own in (plan, plan.with_chains(populations=2, count=64, resample_below=1.0)):
        slow, fast = (log_weights(own, engine) for engine in ("numpy", "numba"))
        np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-11)
    single = make_plan(LARGE[name], method=method, steps=12, chains=70, seed=4)
    assert (single.placement.engine, single.placement.precision) == ("numba", "single")
    slow, fast = (log_weights(single, engine) for engine in ("numpy", "numba"))
    np.testing.assert_allclose(fast, slow, rtol=0, atol=2e-5)
    recorders = [Recorder([5, 12], 70, the_states, len(plan.path.end.visible_bias)) for _ in range(2)]
    for engine, recorder in zip(("numpy", "numba"), recorders, strict=True):
        run(plan.on_engine(engine), recorder=recorder)
    assert np.array_equal(recorders[0].values, recorders[1].values)
    back = plan.reversed(recorders[0].values[-1])
    slow, fast = (log_weights(back, engine) for engine in ("numpy", "numba"))
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-11)


def test_any_split_has_the_same_bits():
    for model in LARGE.values():
        whole = mg.estimate(model, steps=6, chains=70, seed=3, threads=1)
        parts = [mg.estimate(model, steps=6, chains=n, first_chain=at, seed=3) for at, n in ((0, 33), (33, 37))]
        assert np.array_equal(whole.log_weights, (parts[0] + parts[1]).log_weights)


def test_chains_that_start_at_the_target_stay_there():
    annealed = interacting(MODELS["spins"])
    rows = states(annealed.visible_units, annealed.n_visible)
    law = PathSums(annealed, (0.0, 1.0)).marginal(1)
    law = np.exp(law - np.logaddexp.reduce(law))
    rng = np.random.default_rng(0)
    count = 20_000
    start = rows[rng.choice(len(rows), count, p=law)]
    plan = make_plan(annealed, schedule=[0.0, 1.0], steps=1, chains=count, seed=3)
    plan = plan.with_chains(start=start)
    population = begin(plan.with_steps(np.ones(4))).population(range(count))
    population.advance(3)
    number = (population.states() > 0) @ (1 << np.arange(annealed.n_visible)[::-1])
    got = np.bincount(number, minlength=len(rows)) / count
    error = np.sqrt(law * (1.0 - law) / count)
    assert (np.abs(got - law) < 4.5 * error + 1e-4).all()


def test_the_reverse_process_takes_the_terms_along():
    annealed = interacting(MODELS["four"])
    back = annealed.reversed_sweep()
    forward, backward = PathSums(annealed, (0.0, 1.0)), PathSums(back, (0.0, 1.0))
    assert backward.log_z == pytest.approx(forward.log_z, abs=1e-11)
    assert sorted(backward.log_p[1].ravel()) == pytest.approx(sorted(forward.log_p[1].ravel()), abs=1e-11)
    assert [len(block) for block in back.sweep] == [len(block) for block in annealed.sweep][::-1]


def test_estimates_with_everything_that_the_driver_does():
    model = mg.from_polynomial({(i, (i + 1) % 9, (i + 4) % 9): 0.6 * (-1) ** i for i in range(9)} | {(0,): 0.3})
    exact = mg.exact_log_z(model)
    for options in ({}, {"method": "ais"}, {"resample": True, "populations": 20}, {"schedule": "adaptive"}):
        got = mg.estimate(model, steps=60, chains=1000, seed=2, **options)
        assert abs(got.log_z - exact) < 4.5 * got.stderr
        assert got.variables == 9
    curve = mg.estimate(model, steps=20, chains=200, seed=2, record=True)
    assert curve.curve is not None
    parts = [mg.estimate(model, steps=20, chains=100, seed=2, first_chain=first) for first in (0, 100)]
    assert np.array_equal(
        (parts[0] + parts[1]).log_weights, mg.estimate(model, steps=20, chains=200, seed=2).log_weights
    )
    again = pickle.loads(pickle.dumps(annealable(model)))
    assert model_digest(again) == model_digest(annealable(model))
    other = mg.from_polynomial({(i, (i + 1) % 9, (i + 4) % 9): 0.6 for i in range(9)} | {(0,): 0.3})
    assert model_digest(annealable(other)) != model_digest(again)


def test_zeros_are_reduced_or_become_penalties():
    """Those that reduction takes away do no harm; for others the package estimates, or bounds, ln Z."""
    rng = np.random.default_rng(0)
    soft = [((i, (i + 1) % 12, (i + 5) % 12), rng.normal(size=(2, 2, 2))) for i in range(12)]
    leaf = np.where(np.eye(2) == 1, -np.inf, 0.0)
    model = mg.from_factors([*soft, ((0, "leaf"), leaf)], log=True)
    got = mg.estimate(model, steps=50, chains=1000, seed=1)
    assert abs(got.log_z - mg.exact_log_z(model)) < 4.5 * got.stderr
    forbidden = np.zeros((2, 2, 2))
    forbidden[1, 1, 1] = -np.inf
    ring = [((i, (i + 3) % 12, (i + 7) % 12), forbidden) for i in range(12)]
    model = mg.from_factors([*soft, *ring], log=True)
    got = mg.estimate(model, steps=50, chains=1000, seed=1)
    assert got.lower_bound is None
    assert abs(got.log_z - mg.exact_log_z(model)) < 4.5 * got.stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"base": "mean-field"}, "use 'uniform', 'biases' or fields"),
        ({"summed": [0]}, "the package chooses what to sum out"),
        ({"transition": "metropolis"}, "bipartite graphs only"),
        ({"base": MODELS["spins"]}, "use 'uniform', 'biases' or fields"),
    ],
)
def test_what_is_not_served_is_refused(options, problem):
    with pytest.raises(ValueError, match=problem):
        mg.estimate(MODELS["spins"], **options)


def test_the_gpu_engine_names_the_engines_that_can():
    with pytest.raises(ValueError, match="has no kernel for factors of three or more variables; use 'auto' or 'numpy'"):
        make_plan(MODELS["spins"]).on_engine("cuda")


def test_z_scores_of_random_models():
    scores = []
    for seed in range(12):
        model = random_factors(100 + seed, (2,) * 8 if seed % 2 else (2, 3, 2, 2, 3), count=6)
        got = mg.estimate(model, steps=20, chains=400, seed=seed)
        scores.append((got.log_z - mg.exact_log_z(model)) / got.stderr)
    assert max(np.abs(scores)) < 4.5
    assert abs(z_score(np.array(scores), 0.0)) < 4.5
