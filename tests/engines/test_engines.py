"""Engines agree draw for draw; results depend on nothing but model, plan and seed."""

import math
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import log_weights, random_rbm

import marginalis as mg
from marginalis.engines import drive
from marginalis.engines.cpu import population, tables
from marginalis.engines.plan import make_plan
from marginalis.engines.reference import loop
from marginalis.examples import random_dbm
from marginalis.simd.functions import HAS_AVX512


def both(model, **options):
    plan = make_plan(model, **options)
    return [log_weights(plan, engine) for engine in ("numpy", "numba")]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("base", ["uniform", "biases"])
@pytest.mark.parametrize("method", ["ais", "mais-v", "mais-h"])
def test_draw_for_draw(method, base, sparse):
    """In double precision all log-weights agree to rounding, so every single draw was the same."""
    rng = np.random.default_rng(3)
    model = random_rbm(rng, 9, 6, units=("spin", "binary"), scale=0.7, temperature=0.6)
    if sparse:
        holes = np.where(rng.random((9, 6)) < 0.5, model.weights, 0)
        model = mg.MRF(
            sp.coo_matrix(holes),
            model.visible_bias,
            model.hidden_bias,
            model.visible_units,
            model.hidden_units,
            0.6,
        )
    options = dict(method=method, base=base, steps=40, chains=100, seed=8, first_chain=5)
    slow, fast = both(model, **options, precision="double")
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-11)
    slow, fast = both(model, **options, precision="single")
    np.testing.assert_allclose(fast, slow, rtol=0, atol=2e-4)


def test_draw_for_draw_on_the_papers_model():
    model = mg.rbm(
        np.random.default_rng(0).normal(size=(20, 40)) / 60**0.5, np.zeros(20), np.zeros(40), temperature=0.2
    )
    for method in ("ais", "mais-v", "mais-h"):
        slow, fast = both(model, method=method, steps=60, chains=200, precision="double")
        np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-10)


def test_more_units_than_one_logarithm_covers():
    """The products of (1+e) are flushed every 64 units; a 300×200 model needs several."""
    model = random_rbm(np.random.default_rng(1), 200, 301, scale=0.1)
    slow, fast = both(model, method="mais-v", steps=15, chains=20, precision="double")
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-9)
    slow, fast = both(model, method="mais-h", steps=15, chains=20, precision="single")
    np.testing.assert_allclose(fast, slow, rtol=0, atol=5e-3)


def test_layers_and_slices_of_tables():
    """Spins are looked up in tables: in the bands of a DBM, and in two slices of 32 tables, to the digits of floats."""
    deep = random_dbm((40, 70, 30, 21), seed=2)
    wide = mg.rbm(0.05 * np.random.default_rng(3).normal(size=(250, 150)), np.full(250, 0.3), np.zeros(150))
    for model in (deep, wide):
        slow, fast = both(model, method="mais-v", steps=20, chains=70, precision="single")
        assert np.median(np.abs(fast - slow)) < 1e-5
        assert np.mean(np.abs(fast - slow) < 1e-4) > 0.9  # a draw may differ


@pytest.mark.parametrize("method", ["ais", "mais"])
def test_same_bits_for_any_threads_and_split(method):
    model = random_rbm(np.random.default_rng(2), 12, 7)
    options = dict(method=method, steps=50, seed=4)
    whole = mg.estimate(model, chains=1000, threads=1, **options)
    assert np.array_equal(whole.log_weights, mg.estimate(model, chains=1000, threads=3, **options).log_weights)
    parts = [mg.estimate(model, chains=n, first_chain=at, **options) for at, n in ((0, 499), (499, 2), (501, 499))]
    joined = parts[0] + parts[1] + parts[2]
    assert np.array_equal(whole.log_weights, joined.log_weights)
    assert whole.log_z == joined.log_z
    assert whole.stderr == joined.stderr


def test_same_bits_for_any_chunk_of_steps_and_blocks(monkeypatch):
    model = random_rbm(np.random.default_rng(2), 12, 7)
    plan = make_plan(model, steps=50, chains=300, seed=4)
    slow, fast = (log_weights(plan, engine, threads=2) for engine in ("numpy", "numba"))
    monkeypatch.setattr(population, "CALL_OPERATIONS", 1e5)
    monkeypatch.setattr(population, "JOB_BYTES", 300)
    monkeypatch.setattr(tables, "_TABLE_BYTES", 0)  # slices of tables are made when they are needed
    monkeypatch.setattr(loop, "_CHUNK", 17)
    assert drive.begin(plan.on_engine("numpy")).together == 17
    assert drive.begin(plan.on_engine("numba")).together < 100
    assert np.array_equal(slow, log_weights(plan, "numpy"))
    assert np.array_equal(fast, log_weights(plan, "numba", threads=2))


def test_one_seed_pairs_ais_with_mais_v():
    """AIS takes the v-path of mAIS-V with the same seed, so the two estimates are strongly correlated."""
    model = random_rbm(np.random.default_rng(6), 8, 8, scale=0.8)
    joint, marginal = (mg.estimate(model, method=m, steps=30, chains=4000).log_weights for m in ("ais", "mais-v"))
    other = mg.estimate(model, method="mais-v", steps=30, chains=4000, seed=1).log_weights
    assert np.corrcoef(joint, marginal)[0, 1] > 0.3
    assert abs(np.corrcoef(joint, other)[0, 1]) < 4.5 / math.sqrt(4000)


def test_seeds_differ():
    model = random_rbm(np.random.default_rng(6), 8, 8)
    one, two = (mg.estimate(model, steps=10, chains=64, seed=s).log_weights for s in (1, 2**63))
    assert not np.intersect1d(one, two).size


# ---------------------------------------------------------------- extremes


@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("method", ["ais", "mais-v", "mais-h"])
def test_huge_fields_stay_finite(method, engine):
    model = random_rbm(np.random.default_rng(4), 6, 5, temperature=1e-4)
    result = mg.estimate(model, method=method, steps=200, chains=50, engine=engine)
    assert np.isfinite(result.log_weights).all()
    exact = mg.exact_log_z(model)
    assert math.isfinite(exact)
    assert result.log_z < exact + 10  # has a chance of at most e^-10, by Markov's inequality
    if method != "ais":  # summing a side out leaves few enough valleys for 50 chains to find the deepest
        assert result.log_z > exact - 5


def test_huge_fields_do_not_lose_digits():
    """At 1/T = 10⁴ float32 fields would cost 0.1 per weight: the engine takes double by itself."""
    model = random_rbm(np.random.default_rng(4), 6, 5, temperature=1e-4)
    slow, fast = both(model, method="mais-v", steps=30, chains=50)
    np.testing.assert_allclose(fast, slow, rtol=1e-12)


def test_a_base_with_huge_fields_does_not_lose_digits():
    """The fields of the base are rounded like those of the model."""
    model = random_rbm(np.random.default_rng(4), 6, 5, scale=0.3)
    base = np.full(6, 1.5e5), np.full(5, -1.5e5)
    slow, fast = both(model, method="mais-v", steps=30, chains=50, base=base)
    np.testing.assert_allclose(fast, slow, rtol=1e-12)


def test_weak_couplings_do_not_drown_in_rounding():
    """At T = 100 the log-weights hardly spread: float32 would be off by many standard errors."""
    model = mg.rbm(
        np.random.default_rng(0).normal(size=(20, 40)) / 60**0.5, np.zeros(20), np.zeros(40), temperature=100
    )
    r = mg.estimate(model, steps=1000, chains=1000)
    assert r.stderr < 1e-5
    assert abs(r.log_z - mg.exact_log_z(model)) < 4.5 * r.stderr


def test_the_stated_rounding_covers_the_drift_of_many_steps():
    """Chains that take the same way in both precisions differ by the bias of one logarithm for every step."""
    rng = np.random.default_rng(1)
    model = mg.ising_grid((8, 8), coupling=(rng.normal(size=(8, 7)), rng.normal(size=(7, 8))), field=0.3)
    single, double = (mg.estimate(model, steps=100_000, chains=32, seed=3, precision=x) for x in ("single", "double"))
    assert abs(np.median(single.log_weights - double.log_weights)) < single.rounding < 1e-3
    assert mg.estimate(model, steps=1000, chains=32).rounding < 1.2e-4


def test_overflow_is_an_error_not_a_number():
    with pytest.raises(ValueError, match="sums overflow"):
        mg.rbm(np.full((3, 2), 1e308), np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match="precisions divided by it"):
        mg.rbm([[0.0]], [0], [0], units="gaussian", temperature=1e-320)
    with pytest.raises(ValueError, match="so large that ln Z overflows"):
        mg.rbm([[1e200]], [0], [0], units=("gaussian", "spin"))


def test_weights_are_exact_for_parameters_of_any_finite_size():
    """The terms of −E add up to at most 2·scale, and ln Z is correct to the last digits of a double."""
    for scale in (1e-300, 1e30, 1e290):
        model = mg.rbm([[scale, -scale]], [scale], [0, scale])
        for engine in ("numpy", "numba"):
            result = mg.estimate(model, steps=10, chains=32, engine=engine)
            assert result.log_z == pytest.approx(mg.exact_log_z(model), rel=1e-14)
            assert math.isfinite(result.stderr)


def test_engines_are_chosen_by_name():
    model = mg.rbm([[1.0]], [0.0], [0.0])
    assert mg.estimate(model, steps=2, chains=2).engine == "numba"
    assert mg.estimate(model, steps=2, chains=2, engine="numpy").engine == "numpy"
    with pytest.raises(ValueError, match="engine"):
        mg.estimate(model, engine="fortran")
    with pytest.raises(ValueError, match="threads"):
        mg.estimate(model, threads=0)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_stops_the_work(threads):
    """An exception from the progress callback (as Ctrl-C would raise) ends the run; no thread goes on."""

    def interrupt(fraction):
        raise KeyboardInterrupt

    model = random_rbm(np.random.default_rng(0), 30, 30)
    with pytest.raises(KeyboardInterrupt):
        mg.estimate(model, steps=20_000, chains=2000, threads=threads, progress=interrupt)


def test_the_progress_callback_receives_growing_fractions_up_to_1():
    heard = []
    mg.estimate(random_rbm(np.random.default_rng(0), 5, 5), steps=100, chains=500, progress=heard.append, threads=1)
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("units", ["spin", "categorical:3", ("gaussian", "binary")])
@pytest.mark.parametrize("method", ["ais", "mais-v", "mais-h"])
def test_the_reference_gives_the_same_bits_for_any_split(units, method, sparse):
    """Matrix products round a row differently in other company; the reference sees to it that they do not."""
    rng = np.random.default_rng(0)
    w = 0.05 * rng.normal(size=(30, 42))
    model = mg.rbm(sp.csr_array(w) if sparse else w, rng.normal(size=30), rng.normal(size=42), units=units)
    options = dict(method=method, steps=10, engine="numpy")
    whole = mg.estimate(model, chains=200, **options)
    for cut in (1, 7, 64, 199):
        parts = [mg.estimate(model, chains=n, first_chain=f, **options) for n, f in ((cut, 0), (200 - cut, cut))]
        assert np.array_equal(whole.log_weights, (parts[0] + parts[1]).log_weights)


def test_the_reference_takes_large_models_in_small_pieces():
    """No call into a library for longer than some tenths of a second."""
    large = mg.rbm(np.ones((3000, 2000)), np.zeros(3000), np.zeros(2000))
    plan = make_plan(large, chains=5000)
    chunk = loop.chains_together(plan)
    assert chunk % loop._ROWS == 0
    assert chunk * large.weights.size < 1e9
    assert loop.chains_together(make_plan(random_rbm(np.random.default_rng(0), 20, 30), chains=5000)) == 4096


def test_dense_graphs_are_looked_up(monkeypatch):
    """As exact as single precision is, and the same bits however tables are sliced and blocks taken together."""
    rng = np.random.default_rng(5)
    model = mg.from_matrix(np.triu(rng.normal(size=(150, 150)), 1) / 150**0.5, rng.normal(size=150), units="binary")
    plan = make_plan(model, steps=20, chains=150, seed=6, precision="single")
    found = log_weights(plan, "numba")
    error = np.abs(found - log_weights(plan, "numpy"))
    assert np.median(error) < 1e-5
    assert np.mean(error < 1e-4) > 0.97
    assert drive.begin(plan.on_engine("numba")).population(range(0)).room is not None or not HAS_AVX512
    monkeypatch.setattr(tables, "_TABLE_BYTES", 0)
    monkeypatch.setattr(population, "JOB_BYTES", 4000)
    assert np.array_equal(found, log_weights(plan, "numba", threads=2))


@pytest.mark.parametrize("chains", [range(8192), range(5, 1000), range(30)])
@pytest.mark.parametrize(
    ("whole", "least", "most"), [(16, 64, 10**6), (16, 256, 1000), (16, 16, 40), (50, 10**6, 10**6)]
)
def test_chains_are_cut_into_parts_that_shrink_towards_the_end(chains, whole, least, most):
    for threads in (1, 2, 16):
        parts = list(drive._parts(chains, whole, threads, least, most))
        assert [i for part in parts for i in part] == list(chains)
        sizes = [len(part) for part in parts]
        assert sizes == sorted(sizes, reverse=True)
        assert all(size % whole == 0 and size <= most for size in sizes[:-1])
        # nobody waits for the last part longer than for a share
        assert sizes[-1] <= max(min(least, -(-len(chains) // threads)) + whole, sizes[0] if threads == 1 else 0)


def test_a_plan_travels_without_what_it_has_kept_at_hand():
    plan = make_plan(random_rbm(np.random.default_rng(0), 6, 4), chains=16, steps=3)
    data = pickle.dumps(plan)
    assert plan.path.is_turned
    assert plan.path.end is plan.path.end
    assert len(pickle.dumps(plan)) == len(data)
