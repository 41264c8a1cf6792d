"""Many models at once: every model has the bits that it has alone."""

import numpy as np
import pytest

import marginalis as mg
from marginalis.engines.batch import run_batch, shape_of
from marginalis.engines.drive import advance, begin
from marginalis.engines.plan import make_plan
from marginalis.engines.plans import make_plans


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


def test_plans_of_many_models_are_those_of_each():
    """Made together or alone: the same placement, arrays, chains and digest, whatever the size of the couplings."""
    rng = np.random.default_rng(8)
    models = rbms(4) + rbms(2, units="binary") + rbms(3, shape=(12, 5)) + tori(2)
    models += [rbms(3)[t].at_temperature(temperature) for t, temperature in enumerate((1e-4, 1e-7, 1e4))]
    models += [mg.rbm(rng.normal(size=(5, 9)) * (rng.random((5, 9)) < 0.5), np.zeros(5), np.zeros(9)) for _ in range(2)]
    for options in ({}, {"engine": "numpy"}, {"precision": "double"}, {"base": "biases"}, {"method": "mais-h"}):
        given = {"steps": 7, "chains": 30, **options}
        made = make_plans(models, range(5, 5 + len(models)), given)
        for t, (plan, model) in enumerate(zip(made, models, strict=True)):
            alone = make_plan(model, **given, seed=5 + t)
            assert plan.placement == alone.placement
            assert (plan.fingerprint(), plan.path.log_z0) == (alone.fingerprint(), alone.path.log_z0)
            assert (plan.chains.seed, plan.path.exact_log_ratio) == (alone.chains.seed, alone.path.exact_log_ratio)
            assert plan.path.is_turned == alone.path.is_turned
            if plan.path.part is None:
                continue
            for name in ("weights", "slope_v", "slope_h", "rise"):
                ours, theirs = getattr(plan.path.spins, name), getattr(alone.path.spins, name)
                assert np.max(abs(ours - theirs)) == 0.0
    assert len({plan.placement for plan in make_plans(models, range(len(models)), {"steps": 7})}) > 1


def test_a_model_without_a_plan_has_an_error_in_its_place():
    models = [rbms(1)[0], mg.potts_grid((2, 3), 3), rbms(1)[0]]
    made = make_plans(models, range(3), {"steps": 3, "transition": "metropolis"})
    assert [isinstance(x, ValueError) for x in made] == [False, True, False]
    assert all(isinstance(x, ValueError) for x in make_plans(models, range(3), {"steps": -3}))
