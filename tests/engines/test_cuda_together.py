"""Many models in one launch of a GPU: every model has the bits that it has alone."""

import networkx as nx
import numpy as np
import pytest
from conftest import random_rbm
from cuda_host import HOST

import marginalis as mg
from marginalis.engines import batch, cuda, drive
from marginalis.engines.cuda import lattice, small, together
from marginalis.engines.plan import make_plan
from marginalis.statistics.confidence import log_mean_exp


@pytest.fixture
def one(roomy, monkeypatch):
    """Return a GPU, or the host in its place, on which models run together."""
    if roomy is HOST:
        monkeypatch.setattr(together, "open_device", lambda number: HOST)
    return roomy


def quiet(fraction):
    pass


def agree(models, **options):
    """Compare the log-weights of models that run together with those of each alone."""
    chosen = {"steps": 5, "chains": 40, "first_chain": 37, **options}
    plans = [make_plan(model, **chosen, seed=2**40 + t, engine="cuda") for t, model in enumerate(models)]
    seen = []
    results = cuda.run_batch(plans, seen.append)
    assert seen[-1] == pytest.approx(1.0)
    assert len({x.tobytes() for x, _ in results}) == len(models)
    for plan, (log_weights, marginal) in zip(plans, results, strict=True):
        alone = drive.advance(plan, drive.begin(plan), range(plan.chains.count), 1, quiet)
        np.testing.assert_array_equal(log_weights, alone.log_weights)
        assert (marginal is None) == (alone.marginal is None)
        if alone.marginal is not None:
            np.testing.assert_array_equal(marginal, alone.marginal)


def test_means_of_groups_of_chains(one):
    """Of trials of many chains only the means come back, each as from the log-weights themselves."""
    options = {"method": "ais", "steps": 3, "chains": 120, "engine": "cuda"}
    plans = [make_plan(model, seed=t, **options) for t, model in enumerate(rbms(9, 20))]
    whole, means = cuda.run_batch(plans, quiet), cuda.run_batch(plans, quiet, 40)
    for found, weights in zip(means, whole, strict=True):
        for mean, own in zip(found, weights, strict=True):
            np.testing.assert_allclose(mean, log_mean_exp(own.reshape(3, 40), axis=1), rtol=1e-12, atol=1e-12)
    by_rows = [x.log_weights for x in batch.run_batch(plans, 1, quiet, 40)]
    np.testing.assert_array_equal(by_rows, [x for x, _ in means])


def rbms(n, m, units="spin", count=3):
    rng = np.random.default_rng(n)
    return [random_rbm(rng, n, m, units=units, scale=0.3, temperature=0.5 + t) for t in range(count)]


@pytest.mark.parametrize("threads", [1, 32])
@pytest.mark.parametrize(
    ("sizes", "units", "options"),
    [
        ((9, 40), ("spin", "binary"), {"method": "ais", "base": "biases"}),
        ((40, 36), "binary", {}),
        ((5, 33), "spin", {"precision": "double", "method": "ais"}),
    ],
)
def test_small_models_together_have_the_bits_of_each_alone(one, monkeypatch, threads, sizes, units, options):
    monkeypatch.setattr(small, "threads_per_chain", lambda *sizes: threads)
    agree(rbms(*sizes, units), **options)


def test_as_many_models_at_a_time_as_fit(one, monkeypatch):
    """Memory for two of five models at a time, launches of one step, and two GPUs."""
    monkeypatch.setattr(together, "_MOST_ROWS", 2)
    monkeypatch.setattr(together, "LAUNCH_SECONDS", 0.0)
    agree(rbms(4, 7, count=5))
    agree(rbms(4, 7, count=5), device="0,0")


def test_sparse_small_models(one):
    path = nx.path_graph(9)
    for _, _, bond in path.edges(data=True):
        bond["coupling"] = 0.4
    agree([mg.from_graph(path, temperature=t) for t in (0.8, 0.9, 1.0)])


def glasses(temperatures, rows=10, columns=12, periodic=True):
    """Return Ising models with couplings ±0.5."""
    rng = np.random.default_rng(1)
    pairs = [tuple(0.5 * rng.choice([-1.0, 1.0], size=(2, rows, columns))) for _ in temperatures]
    return [
        mg.ising_grid((rows, columns), coupling=pair, periodic=periodic, temperature=t)
        for pair, t in zip(pairs, temperatures, strict=True)
    ]


@pytest.mark.parametrize("options", [{}, {"draws": "planes"}, {"precision": "double"}], ids=str)
def test_lattices_of_one_coupling(one, monkeypatch, options):
    agree(glasses([0.9, 0.9, 1.3]), **options)
    monkeypatch.setattr(lattice, "MOST_INSIDE", 0)
    agree(glasses([0.9, 0.8], 11, 11, periodic=False), **options)


def test_plans_without_a_common_kernel_run_one_by_one(one):
    """Resampled chains, kernels without a launch for many models, and lattices that are not all of one coupling."""
    uneven = glasses([0.9])[0]
    weights = uneven.weights.copy()
    weights.data[0] *= 2.0
    kinds = {
        "resampled": (rbms(4, 7), {"resample": 0.5, "populations": 4}),
        "general": (rbms(3, 4, ("gaussian", "spin")), {}),
        "uneven": ([*glasses([0.9]), mg.MRF(weights, uneven.visible_bias, uneven.hidden_bias)], {}),
    }
    for models, options in kinds.values():
        plans = [make_plan(model, steps=3, chains=40, engine="cuda", **options) for model in models]
        assert cuda.run_batch(plans, quiet) is None
