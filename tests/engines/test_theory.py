"""The paper's statements, by exact sums over all paths of tiny models and by the sampler against them."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from conftest import LCG, PathSums, exact_moments, log_weights, moments_model, random_rbm, z_score

import marginalis as mg
from marginalis.engines.plan import make_plan
from marginalis.engines.reference.loop import Distributions
from marginalis.engines.reference.moves import gibbs

LINEAR5 = np.linspace(0, 1, 6)
METHODS = ("mais-v", "mais-h", "ais")
REFERENCE_NAMES = {"mais-v": "mV", "mais-h": "mH", "ais": "AIS3"}


@pytest.mark.parametrize("method", METHODS)
def test_path_sums_match_the_reference(path_moments, method):
    """Two independent programs agree on the exact moments of the weight."""
    expected = path_moments[REFERENCE_NAMES[method]]
    found = exact_moments(moments_model(), method, LINEAR5)
    assert found.mean == pytest.approx(expected["E_W"], rel=1e-12)
    assert found.relvar == pytest.approx(expected["relvar"], rel=1e-11)
    assert found.mean_log == pytest.approx(expected["E_lnW"], rel=1e-12)


@pytest.mark.parametrize(("engine", "draws"), [("numpy", "words"), ("numba", "words"), ("numpy", "planes")])
@pytest.mark.parametrize("method", METHODS)
def test_sampler_has_the_exact_moments(path_moments, method, engine, draws):
    """Mean, second moment and mean logarithm of the sampled weights, in standard errors."""
    expected = path_moments[REFERENCE_NAMES[method]]
    chains = 20_000 if engine == "numpy" else 400_000
    result = mg.estimate(moments_model(), method=method, steps=5, chains=chains, seed=3, engine=engine, draws=draws)
    w = np.exp(result.log_weights)
    assert abs(z_score(w, expected["E_W"])) < 4.5
    assert abs(z_score(w**2, (1 + expected["relvar"]) * expected["E_W"] ** 2)) < 4.5
    assert abs(z_score(result.log_weights, expected["E_lnW"])) < 4.5
    assert result.log_z0 == pytest.approx(5 * math.log(2))


UNITS = ["spin", "binary", ("spin", "binary"), ("binary", "spin")]


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("method", METHODS)
def test_sampler_with_units_bases_and_schedules(method, units):
    """As above away from the paper's setting: mixed units, temperature, fields as base, uneven β."""
    rng = np.random.default_rng(5)
    model = random_rbm(rng, 3, 2, units=units, temperature=0.8)
    betas = np.array([0, 0.1, 0.15, 0.5, 1.0])
    for base in ("biases", (rng.normal(size=3), rng.normal(size=2))):
        fields = (model.visible_bias / 0.8, model.hidden_bias / 0.8) if base == "biases" else base
        exact = exact_moments(model, method, betas, fields)
        result = mg.estimate(model, method=method, schedule=betas, base=base, chains=100_000, seed=1)
        sums = PathSums(model, betas, fields)
        assert result.log_z0 == pytest.approx(sums.log_z0)
        assert exact.mean == pytest.approx(math.exp(sums.log_z - sums.log_z0))
        assert abs(z_score(np.exp(result.log_weights), exact.mean)) < 4.5
        assert abs(z_score(result.log_weights, exact.mean_log)) < 4.5


@pytest.mark.parametrize("units", UNITS)
def test_theorem_1_and_2_without_sampling(units):
    """Var Z_AIS ≥ Var Z_mAIS and E[F_AIS] ≥ E[F_mAIS] ≥ F, exactly, on random tiny RBMs."""
    rng = np.random.default_rng(11)
    for _ in range(60):
        n, m, steps = rng.integers(1, 4), rng.integers(1, 4), rng.integers(1, 7)
        betas = np.concatenate([[0], np.sort(rng.uniform(size=steps - 1)), [1]])
        model = random_rbm(rng, n, m, units=units, scale=rng.uniform(0.1, 4))
        base = (rng.normal(size=n), rng.normal(size=m)) if rng.random() < 0.5 else None
        sums = PathSums(model, betas, base)
        joint, marginal = sums.ais(), sums.mais_v()
        log_ratio = sums.log_z - sums.log_z0
        tolerance = 1e-9 * (1 + abs(log_ratio))
        assert math.log(joint.mean) == pytest.approx(log_ratio, abs=tolerance)
        assert math.log(marginal.mean) == pytest.approx(log_ratio, abs=tolerance)
        assert joint.relvar >= marginal.relvar * (1 - 1e-9) - 1e-9
        assert joint.mean_log <= marginal.mean_log + tolerance
        assert marginal.mean_log <= log_ratio + tolerance


def test_theorem_2_for_two_chains():
    """The bias ordering holds for N > 1 too: all pairs of paths of a 2×1 RBM, K = 3."""
    model = random_rbm(np.random.default_rng(2), 2, 1, scale=1.5)
    sums = PathSums(model, np.linspace(0, 1, 4))
    n_v, n_h = sums.log_p[0].shape

    def mean_log_of_pairs(joint):
        size = n_v * n_h if joint else n_v
        weights, probabilities = [], []
        for path in itertools.product(range(size), repeat=3):
            at = [divmod(x, n_h) if joint else (x, slice(None)) for x in path]
            log_w, p = 0.0, 1.0
            for k, (v, h) in enumerate(at, start=1):
                now, before = (np.logaddexp.reduce(np.atleast_1d(sums.log_p[q][v, h])) for q in (k, k - 1))
                log_w += now - before
                if k == 1:
                    p *= np.exp(before - sums.log_z0)
                else:
                    p *= sums.tau(k - 1)[at[k - 2][0], v] * np.sum(sums.conditional(k - 1, 1)[v, h])
            weights.append(math.exp(log_w))
            probabilities.append(p)
        w, p = np.array(weights), np.array(probabilities)
        assert p.sum() == pytest.approx(1)
        return float(np.log((w[:, None] + w) / 2).ravel() @ np.outer(p, p).ravel())

    assert mean_log_of_pairs(True) < mean_log_of_pairs(False) < sums.log_z - sums.log_z0


def test_two_draw_sweep_is_outside_the_theorems():
    """The counterexample that fixes which transition `ais` uses: E ln W of ours stays below mAIS-V's."""
    model = mg.rbm([[-8, -7], [4, 3]], [13, -11], [0, 0])
    betas = np.array([0, 0.2, 0.25, 0.7, 1])
    sums = PathSums(model, betas)
    assert sums.mais_v().mean_log == pytest.approx(32.56, abs=0.005)
    assert sums.ais().mean_log < sums.mais_v().mean_log
    ours = mg.estimate(model, method="ais", schedule=betas, chains=50_000, seed=1)
    assert abs(z_score(ours.log_weights, sums.ais().mean_log)) < 4.5


def moved_first(path):
    """The classic bug, kept here so that the check below is seen to catch it."""
    v = path.start()
    for k in range(1, len(path.betas)):
        v = gibbs(path, k, v, path.fields(v))
        yield path.log_lambda(k, v, path.fields(v))


def test_the_weight_comes_before_the_move():
    """E W = Z/Z_0 holds for the loop as written, on both engines, and not when the move comes first."""
    lcg = LCG(1)
    b, c = lcg.uniform(-0.001, 0.001, 20), lcg.uniform(-0.001, 0.001, 40)
    model = mg.rbm(lcg.normal(60**-0.5, 20, 40), b, c, temperature=0.5)
    log_ratio = mg.exact_log_z(model) - 60 * math.log(2)
    plan = make_plan(model, method="mais-v", steps=20, chains=4000, seed=2)
    path = Distributions(plan, range(4000))

    def z(log_weights):
        return z_score(np.exp(log_weights - log_ratio), 1.0)

    for method in ("mais", "ais"):
        assert abs(z(log_weights(replace(plan, method=method), "numpy"))) < 4.5
    for method in METHODS:
        assert abs(z(mg.estimate(model, method=method, steps=20, chains=100_000).log_weights)) < 4.5
    assert z(sum(moved_first(path))) > 6
