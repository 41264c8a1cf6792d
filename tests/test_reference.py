"""All models of the reference file: rebuilt, summed exactly by every method that applies, and estimated."""

import itertools
import math

import numpy as np
import pytest
from conftest import LCG

import marginalis as mg
from marginalis.exact import METHODS, cheapest
from marginalis.examples import chimera_edges

KC = math.log(1 + math.sqrt(2)) / 2


def small_rbm(seed, n, m, sd, units):
    lcg = LCG(seed)
    b, c = lcg.normal(0.5, n), lcg.normal(0.5, m)
    return mg.rbm(lcg.normal(sd, n, m), b, c, units=units)


def paper_rbm(seed, draw, temperature):
    lcg = LCG(seed)
    b, c = lcg.uniform(-0.001, 0.001, 20), lcg.uniform(-0.001, 0.001, 40)
    return mg.rbm(draw(lcg), b, c, temperature=temperature)


def gaussian_weights(lcg):
    return lcg.normal(60**-0.5, 20, 40)


def ring(n):
    return [(i, (i + 1) % n) for i in range(n)]


def glass_torus():
    lcg = LCG(8)
    field, across, down = lcg.normal(0.2, 8, 8), lcg.sign(8, 8), lcg.sign(8, 8)
    return mg.ising_grid((8, 8), coupling=(across, down), field=field, periodic=True)


def chimera():
    lcg = LCG(9)
    edges = chimera_edges(2, 2)
    coupling = lcg.normal(0.6, len(edges))
    return mg.from_edges(edges, coupling=coupling, field=lcg.normal(0.2, 32))


def potts_rbm():
    lcg = LCG(11)
    b, c = lcg.normal(0.5, 28), lcg.normal(0.5, 5)
    return mg.rbm(lcg.normal(0.6, 28, 5), b, c, units=("categorical:4", "binary"))


def gaussian_binary():
    lcg = LCG(12)
    a, sigma, c = lcg.normal(0.5, 30), lcg.uniform(0.7, 1.3, 30), lcg.normal(0.5, 8)
    w = lcg.normal(0.3, 30, 8)
    model = mg.rbm(w / sigma[:, None] ** 2, a / sigma**2, c, units=("gaussian", "binary"), visible_precision=sigma**-2)
    return mg.MRF(
        model.weights,
        model.visible_bias,
        model.hidden_bias,
        model.visible_units,
        model.hidden_units,
        offset=-0.5 * float((a**2 / sigma**2).sum()),
    )


def gaussian_gaussian():
    lcg = LCG(14)
    b, c = lcg.normal(0.5, 10), lcg.normal(0.5, 7)
    return mg.rbm(lcg.normal(0.1, 10, 7), b, c, units="gaussian")


def deep():
    lcg = LCG(15)
    sizes = (7, 6, 5, 4)
    biases = [lcg.normal(0.4, n) for n in sizes]
    return mg.dbm([lcg.normal(0.7, a, b) for a, b in itertools.pairwise(sizes)], biases)


def torus(*shape, k=KC):
    return mg.ising_grid(shape, coupling=k, periodic=True)


CASES = {
    "rbm_pm1_gauss_20x40_invT0.2": lambda: paper_rbm(1, gaussian_weights, 5.0),
    "rbm_pm1_gauss_20x40_invT2": lambda: paper_rbm(1, gaussian_weights, 0.5),
    "rbm_pm1_hopfield_20x40_invT2": lambda: paper_rbm(2, lambda lcg: lcg.sign(20, 40) / math.sqrt(20), 0.5),
    "rbm_pm1_small_8x6": lambda: small_rbm(3, 8, 6, 0.7, "spin"),
    "rbm_01_12x9": lambda: small_rbm(4, 12, 9, 0.8, "binary"),
    "bipartite_curie_weiss_30x20": lambda: mg.rbm(np.full((30, 20), 600**-0.5), np.full(30, 0.05), np.full(20, -0.02)),
    "ising_chain_40_h0": lambda: mg.from_edges([(i, i + 1) for i in range(39)], coupling=LCG(5).normal(1, 39)),
    "ising_ring_24_field": lambda: mg.from_edges(ring(24), coupling=0.7, field=0.3),
    "ising_torus_4x4_K0.3": lambda: torus(4, 4, k=0.3),
    "ising_torus_8x8_K0.4407": lambda: torus(8, 8),
    "ising_torus_16x16_K0.4407": lambda: torus(16, 16),
    "ising_torus_64x64_K0.4407": lambda: torus(64, 64),
    "ising_torus_8x12_Kc": lambda: torus(12, 8),
    "ising_open_8x8_K0.4407": lambda: mg.ising_grid((8, 8), coupling=KC),
    "ising_open_16x16_K0.6": lambda: mg.ising_grid((16, 16), coupling=0.6),
    "ising_torus_8x8_pmJ_field": glass_torus,
    "ising_cubic_4x4x4_open": lambda: mg.ising_grid((4, 4, 4), coupling=0.22165462),
    "chimera_C2_32spins": chimera,
    "potts_ring_q4_15": lambda: mg.potts([(i, i + 1) for i in range(14)] + [(14, 0)], 4, coupling=0.8),
    "potts_torus_q3_4x6_Jc": lambda: mg.potts_grid((6, 4), 3, coupling=math.log(1 + math.sqrt(3)), periodic=True),
    "rbm_potts4_vis7_bern_hid5": potts_rbm,
    "rbm_gaussvis30_bernhid8": gaussian_binary,
    "rbm_gauss_gauss_10x7": gaussian_gaussian,
    "dbm_01_7-6-5-4": deep,
}
STEPS = {
    "ising_torus_64x64_K0.4407": 20_000,
    "ising_torus_16x16_K0.4407": 3000,
    "ising_open_16x16_K0.6": 3000,
}


def test_every_stored_reference_has_a_case(reference):
    assert set(CASES) == set(reference)


@pytest.mark.parametrize("name", sorted(CASES))
def test_exact_values_of_the_reference_models(reference, name):
    """The cheapest method, and every other one that takes less than seconds, finds the reference value."""
    model, case = CASES[name](), reference[name]
    assert model.n_variables == case["n_units"]
    log_z = mg.exact_log_z(model)
    assert log_z == pytest.approx(case["logZ"], rel=1e-12)
    found = []
    for method in METHODS[1:]:
        try:
            cheapest(model, method=method, max_seconds=5.0)
        except ValueError:  # does not apply, or is too large
            continue
        other = mg.exact_log_z(model, method=method)
        assert other == pytest.approx(log_z, rel=1e-9)
        assert other.method == method
        found.append(method)
    assert log_z.method in found


@pytest.mark.parametrize("name", sorted(set(CASES) - set(STEPS)))
def test_estimates_of_the_reference_models(reference, name):
    """AIS and mAIS, of either side of a bipartite graph: within 4.5 standard errors of the exact value, and alike."""
    model, exact = CASES[name](), reference[name]["logZ"]
    fast = model.spin_form is not None
    steps, chains = (1000, 2000) if fast else (150, 1000)
    methods = ("ais", "mais-v", "mais-h") if model.is_bipartite else ("ais", "mais")
    results = [mg.estimate(model, method=m, steps=steps, chains=chains) for m in methods]
    for r in results:
        assert not r.warnings
        assert abs(r.log_z - exact) < 4.5 * r.stderr
    one, two = results[-2:]
    assert abs(one.log_z - two.log_z) < 4.5 * math.hypot(one.stderr, two.stderr)


@pytest.mark.study
@pytest.mark.parametrize("name", sorted(STEPS))
def test_estimates_of_large_lattices(reference, name):
    for method in ("mais-v", "mais-h", "ais"):
        r = mg.estimate(CASES[name](), method=method, steps=STEPS[name], chains=1000)
        assert not r.warnings
        assert abs(r.log_z - reference[name]["logZ"]) < 4.5 * r.stderr


def test_a_method_that_gives_up_is_followed_by_the_next():
    """A cold ±J glass is beyond the planar determinant; the transfer answers instead."""
    rng = np.random.default_rng(1)
    coupling = rng.choice([-1.0, 1.0], (10, 10)), rng.choice([-1.0, 1.0], (10, 10))
    model = mg.ising_grid((10, 10), coupling=coupling, temperature=1e-4)
    log_z = mg.exact_log_z(model)
    assert log_z.method != "kac-ward"
    assert log_z == pytest.approx(mg.exact_log_z(model, method="transfer"), rel=1e-12)
    with pytest.raises(ValueError, match="too strong"):
        mg.exact_log_z(model, method="kac-ward")
