"""Lattices, whose fields are few: the same chains as the reference has, to more digits than single precision."""

import numpy as np
import pytest
from conftest import log_weights

import marginalis as mg
from marginalis.engines import drive
from marginalis.engines.cpu import lattice
from marginalis.engines.cpu.lattice_population import LatticePopulation, serves_lattices
from marginalis.sampling.plan import make_plan
from marginalis.simd.functions import HAS_AVX512

pytestmark = pytest.mark.skipif(not HAS_AVX512, reason="lattices are like any graph without AVX-512")


def glass(shape, seed=0, **options):
    """Couplings of either sign, all of one size."""
    couplings = np.random.default_rng(seed).choice([-0.7, 0.7], (2, *shape))
    return mg.ising_grid(shape, coupling=tuple(couplings), **options)


def cubic():
    """A 4×4×4 torus of 0/1 units: six neighbours."""
    sites = np.arange(64).reshape(4, 4, 4)
    edges = np.hstack([[sites.ravel(), np.roll(sites, 1, axis).ravel()] for axis in range(3)]).T
    return mg.from_edges(edges, coupling=0.6, field=-1.7, units="binary")


MODELS = {
    "torus": mg.ising_grid((8, 8), coupling=0.44, periodic=True),
    "open, with a field": mg.ising_grid((7, 9), coupling=0.5, field=0.31),
    "glass": glass((8, 6), periodic=True, temperature=0.9),
    "cubic": cubic(),
}


def is_served(plan):
    return isinstance(drive.begin(plan).population(range(1)), LatticePopulation)


@pytest.mark.parametrize("name", MODELS)
def test_draw_for_draw(name, monkeypatch):
    monkeypatch.setattr(lattice, "CHUNK", 7)  # steps that tables are made for at a time
    monkeypatch.setattr("marginalis.engines.cpu.lattice_population.CHUNK", 7)
    for options in ({}, {"base": "biases", "first_chain": 5}, {"method": "mais-h"}):
        plan = make_plan(MODELS[name], steps=30, chains=70, seed=3, **options)
        assert plan.precision == "single"
        assert is_served(plan)
        slow, fast = (log_weights(plan, engine) for engine in ("numpy", "numba"))
        np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-6)


def test_what_is_not_taken_for_a_lattice():
    uneven = mg.ising_grid((8, 8), coupling=(np.full((8, 8), 0.3), np.full((8, 8), 0.4)))
    fields = mg.ising_grid((8, 8), coupling=0.4, field=np.random.default_rng(0).normal(size=(8, 8)))
    star = mg.from_edges([(0, i) for i in range(1, 9)])
    for model in (uneven, fields, star):
        assert lattice.find_lattice(make_plan(model, keep_whole=True)) is None
    for options in ({"precision": "double"}, {"method": "ais"}, {"transition": "metropolis"}):
        assert not serves_lattices(make_plan(MODELS["torus"], **options))


def test_same_bits_for_any_threads_split_and_samples():
    options = {"steps": 40, "seed": 4}
    whole = mg.estimate(MODELS["torus"], chains=200, threads=1, **options)
    assert np.array_equal(whole.log_weights, mg.estimate(MODELS["torus"], chains=200, threads=2, **options).log_weights)
    parts = [
        mg.estimate(MODELS["torus"], chains=n, first_chain=at, **options) for at, n in ((0, 99), (99, 2), (101, 99))
    ]
    assert np.array_equal(whole.log_weights, sum(parts).log_weights)


def test_resampled_populations_go_on_from_the_states_they_choose():
    options = {"steps": 40, "chains": 64, "seed": 1, "resample": 1.0, "populations": 2}
    slow, fast = (mg.estimate(MODELS["glass"], engine=e, **options).log_weights for e in ("numpy", "numba"))
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-6)
