"""Lattices, whose fields are few: the same chains as the reference has, to more digits than single precision."""

import numpy as np
import pytest
from conftest import log_weights

import marginalis as mg
from marginalis.engines import cuda, drive
from marginalis.engines.cpu import lattice, planes
from marginalis.engines.cpu.lattice_kernel import MOST
from marginalis.engines.placement import MOST_NEIGHBOURS, is_lattice
from marginalis.engines.plan import make_plan
from marginalis.simd.functions import HAS_AVX512

POPULATIONS = {"words": lattice.Population, "planes": planes.Population}


def glass(shape, seed=0, **options):
    """Couplings of either sign, all of one size."""
    couplings = np.random.default_rng(seed).choice([-0.7, 0.7], (2, *shape))
    return mg.ising_grid(shape, coupling=tuple(couplings), **options)


def cubic(side=4, **options):
    """A torus in three dimensions: six neighbours."""
    sites = np.arange(side**3).reshape(side, side, side)
    edges = np.hstack([[sites.ravel(), np.roll(sites, 1, axis).ravel()] for axis in range(3)]).T
    return mg.from_edges(edges, **options)


MODELS = {
    "torus": mg.ising_grid((8, 8), coupling=0.44, periodic=True),
    "glass": glass((7, 9), field=0.31, temperature=0.9),
    "triangular": mg.ising_grid((9, 9), coupling=0.27, triangular=True, periodic=True),
    "cubic": cubic(coupling=0.25),
    "binary": cubic(coupling=-0.6, field=1.7, units="binary"),
}


SERVED = [(name, draws) for name in MODELS for draws in POPULATIONS if (name, draws) != ("triangular", "planes")]


@pytest.mark.parametrize(("name", "draws"), SERVED)
def test_draw_for_draw(name, draws, monkeypatch):
    if draws == "words" and not HAS_AVX512:
        pytest.skip("lattices are like any graph without AVX-512")
    for module in (lattice, planes):  # steps that tables are made for at a time
        monkeypatch.setattr(module, "CHUNK", 7)
    side = "mais-h" if MODELS[name].is_bipartite else "mais"
    for options in ({}, {"base": "biases", "first_chain": 5}, {"method": side}):
        plan = make_plan(MODELS[name], steps=30, chains=70, seed=3, draws=draws, **options)
        assert plan.placement.engine == "numba"
        assert type(drive.begin(plan).population(range(1))) is POPULATIONS[draws]
        slow, fast = (log_weights(plan, engine) for engine in ("numpy", "numba"))
        np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-6 if draws == "words" else 1e-11)


PLAIN = {  # without fields, and large enough for the kernel of lattices on a GPU
    "torus": mg.ising_grid((10, 12), coupling=0.44, periodic=True),
    "glass": glass((10, 12), periodic=True),
    "open": glass((11, 11)),
    "cubic": cubic(6, coupling=0.25),
    "seven": mg.from_edges(
        [(i, 70 + (i + d) % 70) for i in range(70) for d in (0, 7, 13, 20, 31, 40, 52)], coupling=0.1
    ),
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(("draws", "precision"), [("words", "single"), ("planes", "single"), ("planes", "double")])
def test_a_gpu_has_the_same_bits(roomy, name, draws, precision):
    """Counts are exact, and both engines weigh them with the same numbers in the same order."""
    if draws == "words" and not HAS_AVX512:
        pytest.skip("lattices are like any graph without AVX-512")
    options = dict(steps=20, chains=70, seed=8, first_chain=5, precision=precision, draws=draws)
    plan = make_plan(PLAIN[name], engine="cuda", **options)
    assert cuda.kernel_for(plan) is cuda.lattice
    assert np.array_equal(log_weights(plan, "cuda"), log_weights(plan, "numba"))


def test_what_is_not_taken_for_a_lattice():
    uneven = mg.ising_grid((8, 8), coupling=(np.full((8, 8), 0.3), np.full((8, 8), 0.4)))
    fields = mg.ising_grid((8, 8), coupling=0.4, field=np.random.default_rng(0).normal(size=(8, 8)))
    hub = mg.from_edges([(i, j) for i in range(2) for j in range(2, 10)])
    for model in (uneven, fields, hub):
        assert not is_lattice(make_plan(model, keep_whole=True), any_graph=True)
    assert not is_lattice(make_plan(MODELS["triangular"]))  # as planes know them
    for options in ({"method": "ais"}, {"transition": "metropolis"}):
        assert not is_lattice(make_plan(MODELS["torus"], **options), any_graph=True)
        assert make_plan(MODELS["torus"], draws="planes", **options).placement.engine == "numpy"
        with pytest.raises(ValueError, match="not 'planes'"):
            make_plan(MODELS["torus"], draws="planes", engine="numba", **options)
    assert not lattice.serves(make_plan(MODELS["torus"], precision="double"))
    assert MOST_NEIGHBOURS <= MOST


@pytest.mark.parametrize("draws", POPULATIONS)
def test_same_bits_for_any_threads_and_split(draws):
    """Chains in words of 32, by their numbers, and in groups of 512, which jobs of threads respect."""
    options = {"steps": 12, "seed": 4, "draws": draws}
    whole = mg.estimate(MODELS["torus"], chains=1200, threads=1, **options)
    other = mg.estimate(MODELS["torus"], chains=1200, threads=2, **options)
    assert np.array_equal(whole.log_weights, other.log_weights)
    parts = [
        mg.estimate(MODELS["torus"], chains=n, first_chain=at, threads=2, **options)
        for at, n in ((0, 99), (99, 2), (101, 1099))
    ]
    assert np.array_equal(whole.log_weights, sum(parts).log_weights)
    # of so many draws some have to be told from their thresholds by 20 bits
    slow = mg.estimate(MODELS["torus"], chains=1200, engine="numpy", **options)
    np.testing.assert_allclose(whole.log_weights, slow.log_weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize("draws", POPULATIONS)
def test_resampled_populations_go_on_from_the_states_they_choose(draws):
    options = {"steps": 40, "chains": 66, "seed": 1, "resample": 1.0, "populations": 2, "draws": draws}
    for model in (MODELS["glass"], MODELS["binary"]):
        slow, fast = (mg.estimate(model, engine=e, **options).log_weights for e in ("numpy", "numba"))
        np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-6)
