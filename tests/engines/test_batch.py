"""Many models at once: every model has the bits that it has alone."""

import numpy as np
import pytest

import marginalis as mg
from marginalis.engines.batch import run_batch, shape_of
from marginalis.engines.drive import advance, begin
from marginalis.engines.plan import make_plan


def quiet(fraction):
    pass


def rbms(count, *, units="spin", temperature=1.0, shape=(5, 9)):
    rng = np.random.default_rng(count)
    v, h = shape
    drawn = [(rng.normal(0, 0.7, shape), rng.normal(0, 0.4, v), rng.normal(0, 0.3, h)) for _ in range(count)]
    return [mg.rbm(*parameters, units=units, temperature=temperature) for parameters in drawn]


def tori(count, *, size=(4, 6), disorder=True):
    rng = np.random.default_rng(count)

    def bonds():
        return rng.choice([-1.0, 1.0], size) if disorder else rng.normal(size=size)

    return [mg.ising_grid(size, coupling=(bonds(), bonds()), periodic=True) for _ in range(count)]


def triangles(count):
    rng = np.random.default_rng(count)
    edges = [(a, b) for a in range(7) for b in range(a)]
    return [mg.from_edges(edges, coupling=rng.normal(size=len(edges))) for _ in range(count)]


CASES = {
    "rbm": (rbms(5), {}),
    "binary": (rbms(3, units="binary"), {}),
    "turned": (rbms(3, shape=(12, 5)), {}),
    "gaussian": (rbms(3, units=("gaussian", "spin"), shape=(3, 4)), {}),
    "biases": (rbms(3), {"base": "biases"}),
    "ais": (rbms(3), {"method": "ais"}),
    "double": (rbms(3), {"precision": "double"}),
    "metropolis": (rbms(3), {"transition": "metropolis"}),
    "resampled": (rbms(3), {"resample": 0.9, "populations": 4}),
    "reference": (rbms(3), {"engine": "numpy"}),
    "lattice": (tori(3), {}),
    "planes": (tori(3), {"draws": "planes"}),
    "bonds": (tori(3, disorder=False), {}),
    "graph": (triangles(3), {}),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_every_model_has_the_bits_that_it_has_alone(case, threads):
    models, options = CASES[case]
    plans = [make_plan(m, **{"steps": 9, "chains": 40, **options, "seed": 3 + t}) for t, m in enumerate(models)]
    assert len({shape_of(plan) for plan in plans}) == 1
    seen = []
    together = run_batch(plans, threads, seen.append)
    assert seen[-1] == pytest.approx(1.0)
    for plan, found in zip(plans, together, strict=True):
        alone = advance(plan, begin(plan), range(plan.chains.count), 1, quiet)
        np.testing.assert_array_equal(found.log_weights, alone.log_weights)
        assert (found.marginal is None) == (alone.marginal is None)
        if alone.marginal is not None:
            np.testing.assert_array_equal(found.marginal, alone.marginal)
    assert len({found.log_weights.tobytes() for found in together}) == len(models)


def test_models_of_different_shapes_have_different_keys():
    models = {
        "5x9": rbms(1)[0],
        "9x5": rbms(1, shape=(9, 5))[0],
        "binary": rbms(1, units="binary")[0],
        "torus": tori(1)[0],
        "other torus": tori(1, size=(4, 8))[0],
        "graph": triangles(1)[0],
    }
    keys = {name: shape_of(make_plan(m, steps=5, chains=20)) for name, m in models.items()}
    assert len(set(keys.values())) == len(models)
    for options in ({"chains": 21}, {"steps": 6}, {"method": "ais"}, {"base": "biases"}, {"precision": "double"}):
        assert shape_of(make_plan(models["5x9"], **{"steps": 5, "chains": 20, **options})) != keys["5x9"]
    warmer = models["5x9"].at_temperature(2.0)
    assert shape_of(make_plan(warmer, steps=5, chains=20, seed=9)) == keys["5x9"]


def test_no_plans_give_no_results():
    assert run_batch([], 2, quiet) == []
