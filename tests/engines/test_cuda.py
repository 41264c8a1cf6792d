"""The GPU engine draws what the reference draws: kernels as C++ for the host here, on a GPU with `make test-gpu`."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from conftest import log_weights, random_rbm, run, with_mixture
from cuda_host import HOST

import marginalis as mg
from marginalis.engines import cuda, drive
from marginalis.engines.cuda import general, large, lattice, resident, sites, small
from marginalis.engines.plan import make_plan
from marginalis.engines.recorder import Recorder
from marginalis.engines.reference.loop import Distributions
from marginalis.exact import batch, on_gpu
from marginalis.paths.mixture import Mixture


def agree(model, kernel, tolerance=1e-10, **options):
    """Compare the log-weights of all chains with the reference's."""
    chosen = {"steps": 20, "chains": 70, "seed": 8, "first_chain": 5, "precision": "double", **options}
    plan = make_plan(model, **chosen, engine="cuda")
    assert cuda.kernel_for(plan) is kernel
    found = log_weights(plan, "cuda")
    np.testing.assert_allclose(found, log_weights(plan, "numpy"), rtol=0, atol=tolerance)
    return found


MIXED = random_rbm(np.random.default_rng(3), 9, 40, units=("spin", "binary"), scale=0.3, temperature=0.6)


@pytest.mark.parametrize(("method", "base"), [("mais-v", "uniform"), ("ais", "uniform"), ("mais-h", "biases")])
@pytest.mark.parametrize("precision", ["single", "double"])
def test_small_models_in_every_arrangement_of_threads(roomy, monkeypatch, method, base, precision):
    found = []
    arrangements = [(32, 8), (1, 5), (32, 6)] if precision == "single" else [(32, 8)]
    for group, spins in arrangements:
        monkeypatch.setattr(small, "threads_per_chain", lambda *sizes, group=group: group)
        monkeypatch.setattr(small, "_LONGEST", spins)
        tolerance = 2e-5 if precision == "single" else 1e-10
        options = dict(method=method, base=base, precision=precision)
        found.append(agree(MIXED, small, tolerance, **options))
    assert all(np.array_equal(found[0], other) for other in found)


def test_few_chains_get_more_threads():
    assert [small.threads_per_chain(20, 40, n, 132) for n in (1000, 5000, 10_000)] == [32, 32, 1]


def bonds(rows, columns, signs, periodic=False):
    """Ising models with couplings ± 0.5."""
    pair = 0.5 * np.random.default_rng(2).choice(signs, size=(2, rows, columns))
    return mg.ising_grid((rows, columns), coupling=tuple(pair), periodic=periodic, temperature=0.9)


def cube(side):
    """A periodic cubic lattice of both signs; six couplings of 0.5 add up exactly in any order."""
    graph = nx.convert_node_labels_to_integers(nx.grid_graph((side, side, side), periodic=True))
    signs = np.random.default_rng(3).choice([-1.0, 1.0], size=graph.number_of_edges())
    return mg.from_edges(list(graph.edges), coupling=0.5 * signs)


LATTICES = {
    "torus": bonds(10, 12, [1.0], periodic=True),
    "glass": bonds(10, 12, [1.0, -1.0], periodic=True),
    "open": bonds(11, 11, [1.0, -1.0]),
    "cube": cube(6),
}


@pytest.mark.parametrize(
    ("name", "draws"),
    [("torus", "words"), ("torus", "planes"), ("glass", "planes"), ("open", "words"), ("cube", "planes")],
)
def test_lattices_of_one_coupling(roomy, monkeypatch, name, draws):
    if name == "glass":  # as if it were too large for shared memory, with many steps
        monkeypatch.setattr(lattice, "MOST_INSIDE", 0)
        monkeypatch.setattr(lattice, "_TABLED", 0)
    agree(LATTICES[name], lattice, draws=draws)


def test_sparse_graphs(roomy):
    """Any couplings, with fields or without; neighbours up to eight."""
    found = agree(grid(), sites, method="ais", base="biases")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "_MOST_WARPS", 2)
        patch.setattr(lattice, "MOST_INSIDE", 0)
        assert np.array_equal(found, agree(grid(), sites, method="ais", base="biases"))
    rng = np.random.default_rng(7)
    edges = [(i, 70 + (i + apart) % 70) for i in range(70) for apart in (0, 7, 13, 20, 31)]
    graph = mg.from_edges(edges, coupling=0.3 * rng.normal(size=len(edges)))
    agree(graph, sites, 5e-5, precision="single", resample=0.9, populations=5)


def test_what_has_more_than_one_coupling_is_not_drawn_by_planes():
    for model in (MIXED, mg.ising_grid((10, 10), coupling=(np.ones((10, 9)), 0.5 * np.ones((9, 10))))):
        with pytest.raises(ValueError, match="engine 'cuda' supports only draws='words' for this model"):
            make_plan(model, steps=3, chains=10, engine="cuda", draws="planes")


UNITS = ["categorical:3", ("gaussian", "binary"), ("spin", "gaussian"), ("categorical:3", "spin")]


@pytest.mark.parametrize("units", UNITS, ids=str)
def test_binary_categorical_and_gaussian_units_agree_with_the_reference(on, units):
    rng = np.random.default_rng(4)
    model = mg.rbm(0.3 * rng.normal(size=(9, 6)), rng.normal(size=9), rng.normal(size=6), units=units)
    agree(model, general, method="ais", base="biases")
    agree(model, general, method="mais-h")


def glass(rows=4, columns=5, seed=0):
    """A triangular lattice with random couplings."""
    rng = np.random.default_rng(seed)
    edges = [
        (r * columns + c, s * columns + d)
        for r in range(rows)
        for c in range(columns)
        for s, d in ((r, c + 1), (r + 1, c), (r + 1, c + 1))
        if s < rows and d < columns
    ]
    return mg.from_edges(edges, coupling=rng.normal(size=len(edges)), field=0.3 * rng.normal(size=rows * columns))


def test_any_graph_agrees_with_the_reference(on):
    agree(glass(), general, method="ais", base="biases")
    agree(glass(), general, tolerance=2e-5, precision="single", resample=0.9, populations=5)


def test_metropolis_agrees_with_the_reference(on):
    model = random_rbm(np.random.default_rng(5), 7, 6, scale=0.6)
    agree(model, general, method="mais-v", transition="metropolis", sweeps=2, base="biases")


def test_a_path_from_another_model_and_from_a_mixture(on):
    """A base with couplings, and one with components, on a graph that is not bipartite."""
    rng = np.random.default_rng(1)
    plan = make_plan(glass(), base=glass(seed=1), keep_whole=True, steps=20, chains=40, precision="double")
    n = len(plan.path.base.visible)
    coupled = plan.with_chains(start=rng.choice([-1.0, 1.0], size=(40, n)))
    plan = make_plan(glass(), keep_whole=True, method="ais", steps=20, chains=40, precision="double")
    mixed = with_mixture(plan, Mixture(rng.normal(size=3), rng.normal(size=(3, n))))
    for path in (coupled, mixed):
        np.testing.assert_allclose(log_weights(path, "cuda"), log_weights(path, "numpy"), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["graph", "rbm", "categorical"])
@pytest.mark.parametrize("precision", ["single", "double"])
def test_a_component_that_is_drawn(on, kind, precision):
    """Fields on both sides, forwards and backwards, with resampling."""
    rng = np.random.default_rng(2)
    model = {
        "graph": glass(),
        "rbm": random_rbm(rng, 7, 6, units=("binary", "spin")),
        "categorical": mg.rbm(*(rng.normal(size=n) for n in ((6, 4), 6, 4)), units=("categorical:3", "categorical:2")),
    }[kind]
    plan = make_plan(model, keep_whole=True, method="ais", steps=20, chains=40, precision=precision)
    sides = plan.path.end.visible_bias, plan.path.end.hidden_bias
    fields = [rng.normal(scale=0.5, size=(3, len(x))) for x in sides]
    mixture = Mixture(rng.normal(size=3), *fields, rng.normal(size=3))
    forward = with_mixture(plan, mixture)
    start = Distributions(forward, range(40)).start()
    for path in (forward, forward.reversed(start), forward.with_chains(populations=4, resample_below=0.9)):
        close = 1e-10 if path.on_engine("cuda").placement.precision == "double" else 2e-5
        np.testing.assert_allclose(log_weights(path, "cuda"), log_weights(path, "numpy"), rtol=0, atol=close)


@pytest.mark.parametrize(("units", "components"), [(("binary", "spin"), 3), (("spin", "binary"), 70)])
@pytest.mark.parametrize("method", ["ais", "mais-h"])
def test_a_component_that_is_drawn_in_large_models(on, monkeypatch, units, components, method):
    """Products for the components too, in both sizes of tiles, resampled or from given states."""
    rng = np.random.default_rng(4)
    model = random_rbm(rng, 70, 40, units=units, scale=0.15)
    plan = make_plan(model, method=method, steps=6, chains=140, seed=3, first_chain=5, engine="cuda")
    sides = plan.path.end.visible_bias, plan.path.end.hidden_bias
    fields = [rng.normal(scale=0.2, size=(components, len(x))) for x in sides]
    forward = with_mixture(plan, Mixture(rng.normal(size=components), *fields, rng.normal(size=components)))
    assert cuda.kernel_for(forward) is large
    start = Distributions(forward, range(140)).start()
    found = []
    for path in (forward, forward.with_chains(populations=4, resample_below=0.99), forward.with_chains(start=start)):
        with monkeypatch.context() as patch:
            patch.setattr(large, "_SPAN", 2)
            found.append(log_weights(path, "cuda"))
            np.testing.assert_allclose(found[-1], log_weights(path, "numpy"), rtol=0, atol=5e-5)
            patch.setattr(large, "_FEW", large._MANY)
            patch.setattr(on, "multiprocessors", 2)
            assert np.array_equal(found[-1], log_weights(path, "cuda"))


BIG = random_rbm(np.random.default_rng(6), 40, 70, units=("binary", "spin"), scale=0.15)


@pytest.mark.parametrize(("method", "base"), [("ais", "biases"), ("mais-h", "uniform")])
def test_large_models(on, monkeypatch, method, base):
    """In whatever way the work is cut up, the bits are the same: tiles of two sizes, and weights that stay."""
    options = dict(method=method, base=base, precision="single", steps=4, chains=130, resample=0.99, populations=2)
    found = []
    with monkeypatch.context() as patch:
        patch.setattr(on, "shared_bytes", 0)
        for cut in (large._FEW, large._MANY)[base == "uniform" :]:
            patch.setattr(large, "_FEW", cut)
            found.append(agree(BIG, large, 5e-5, **options))
    if on is HOST:  # two blocks of several teams
        monkeypatch.setattr(on, "shared_bytes", 60_000)
        monkeypatch.setattr(on, "multiprocessors", 2)
    monkeypatch.setattr(resident, "_MANY", 0 if base == "uniform" else 1 << 30)
    for together in {False, on is HOST or on.has_warpgroups}:
        monkeypatch.setattr(on, "has_warpgroups", together)
        plan = make_plan(BIG, **options)
        groups = large.Population(plan, large.Population.prepare(plan, on), range(130)).groups
        assert groups is not None
        assert groups.together is together
        found.append(agree(BIG, large, 5e-5, **options))
    assert all(np.array_equal(found[0], other) for other in found)


@pytest.mark.parametrize("model", [MIXED, cube(4), glass()], ids=["small", "cube", "any"])
def test_a_hundred_steps_in_single_precision(roomy, model):
    """Hardly a chain goes another way because of rounding."""
    plan = make_plan(model, steps=100, chains=128, seed=4, precision="single", engine="cuda")
    assert plan.placement.precision == "single"
    apart = np.abs(log_weights(plan, "cuda") - log_weights(plan, "numpy"))
    assert np.mean(apart < 1e-3) >= 0.98


def grid(rows=9, columns=23):
    """A lattice with random couplings and a field."""
    rng = np.random.default_rng(6)
    couplings = rng.normal(size=(rows, columns - 1)), rng.normal(size=(rows - 1, columns))
    return mg.ising_grid((rows, columns), coupling=couplings, field=0.3)


def potts():
    """A small Potts machine."""
    rng = np.random.default_rng(4)
    return mg.rbm(rng.normal(size=(9, 6)), rng.normal(size=9), rng.normal(size=6), units="categorical:3")


DRIFTING = {"small": MIXED, "large": random_rbm(np.random.default_rng(8), 100, 9, scale=0.4), "sites": grid()}
DRIFTING |= {"general": glass(), "categorical": potts()}


@pytest.mark.parametrize("name", DRIFTING)
@pytest.mark.parametrize("base", ["uniform", "biases"])
def test_single_precision_does_not_drift(roomy, name, base):
    """What rounding does to a chain that takes the same way is as small after many steps as after few.

    A division that is wrong by a last digit on one side would add 6e-8 to every logarithm of every step.
    """
    few = 40 if name in ("large", "sites") else 300  # these take a logarithm for every four units
    steps, chains = (few, 32) if roomy is HOST else (30_000, 4096)
    plan = make_plan(DRIFTING[name], steps=steps, chains=chains, seed=3, base=base, precision="single", engine="cuda")
    assert plan.placement.precision == "single"
    apart = log_weights(plan, "cuda") - log_weights(plan.placed(precision="double"), "cuda")
    assert abs(np.median(apart)) < (1.2e-5 if roomy is HOST else 3e-5)


def test_bands_of_a_deep_model(on, monkeypatch):
    monkeypatch.setattr(large, "_SPAN", 2)
    rng = np.random.default_rng(7)
    sizes = (40, 70, 30, 66)
    couplings = [0.2 * rng.normal(size=pair) for pair in pairwise(sizes)]
    model = mg.dbm(couplings, [np.zeros(n) for n in sizes])
    found = agree(model, large, 5e-5, precision="single", steps=6)
    if on is HOST:  # weights that stay, four warps that multiply as one: bands of whole twos
        for name, value in {"shared_bytes": 90_000, "multiprocessors": 2, "has_warpgroups": True}.items():
            monkeypatch.setattr(on, name, value)
        assert np.array_equal(found, agree(model, large, 5e-5, precision="single", steps=6))


def test_where_four_warps_have_no_room_each_multiplies_alone():
    """They take more chains at a time, and whole twos of words: some models fit without only."""
    sizes = 992, 1280
    words = [-(-n // 32) for n in sizes]
    into = [np.tile(np.array([[0, m]], np.int32), (n, 1)) for n, m in ((words[1], words[0]), (words[0], words[1]))]
    assert resident.groups((into[0], into[1]), 64, 132, 232_448, True) is None
    assert resident.groups((into[0], into[1]), 64, 132, 232_448, False) is not None


def test_three_bytes_hold_a_weight():
    rng = np.random.default_rng(8)
    weights = rng.normal(size=(128, 64)) * np.exp(3 * rng.normal(size=64))
    packed, scale, high, low = large.pack(weights)
    assert packed.shape == (1, 4, 2, 6, 32, 2, 2, 4)
    error = (256.0 * high + low) * scale - weights.sum(axis=0)
    assert (np.abs(error) < 128 * scale / 2).all()
    assert (scale < np.abs(weights).max(axis=0) * 2.0**-21).all()


@pytest.mark.parametrize(
    ("model", "precision", "draws"),
    [
        (MIXED, "single", "words"),
        (BIG, "single", "words"),
        (LATTICES["open"], "single", "planes"),
        (glass(), "double", "words"),
    ],
)
def test_bits_do_not_depend_on_how_chains_are_divided(on, model, precision, draws):
    """Chains of one run and of several, all at once and in memory that is scarce, stopping on the way or not."""
    options = dict(steps=3, seed=3, precision=precision, engine="cuda", draws=draws)
    whole = make_plan(model, chains=96, **options)
    found = run(whole, 1)
    parts = [make_plan(model, chains=n, first_chain=at, **options) for at, n in ((0, 33), (33, 1), (34, 62))]
    joined = np.concatenate([run(part, 1) for part in parts])
    assert np.array_equal(found, joined)
    several = make_plan(model, chains=96, device="0,0", **options)  # one GPU twice: two populations at a time
    assert drive.begin(several).at_a_time == 2
    assert np.array_equal(found, run(several, 1))
    if on is HOST:
        on.free = 1
        assert drive.begin(whole).together == 32
        assert np.array_equal(found, run(whole, 1))
        on.free = 1 << 30


RECORDED = {"small": MIXED, "large": BIG, "general": glass(), "lattice": LATTICES["open"]}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_weights_agree_with_the_reference(on, monkeypatch, name):
    """Weights and states after chosen steps, resampled or not, and a start from given states: the reverse process."""
    model, options = RECORDED[name], {"seed": 2, "first_chain": 3, "draws": "planes" if name == "lattice" else "words"}
    if name == "lattice":
        monkeypatch.setattr(lattice, "_TABLED", 3)  # so that steps on the way have tables of their own
        agree(model, lattice, steps=6, resample=0.9, populations=5, draws="planes")
    plan = make_plan(model, steps=4, chains=40, **options)
    runs = []
    for engine in ("numpy", "cuda"):
        recorder = Recorder([1, 3, 4], plan.chains.count, lambda k, v: v, len(plan.path.start.visible))
        last = run(plan.on_engine(engine), 1, recorder)
        back = plan.reversed(recorder.values[-1], equilibration=2).on_engine(engine)
        runs.append((last, recorder, run(back, 1)))
    (last, recorder, back), (last_too, recorder_too, back_too) = runs
    np.testing.assert_allclose(last, last_too, rtol=0, atol=1e-4)
    np.testing.assert_allclose(back, back_too, rtol=0, atol=1e-4)
    np.testing.assert_allclose(recorder.log_weights, recorder_too.log_weights, rtol=0, atol=1e-4)
    np.testing.assert_allclose(recorder.values, recorder_too.values)


@pytest.mark.parametrize("units", ["spin", ("binary", "spin"), ("spin", "binary")])
def test_exact_sums_on_a_gpu_agree_with_those_on_the_cpu(on, units):
    rng = np.random.default_rng(9)
    for n, m, scale in ((3, 5, 0.7), (17, 19, 8.0)):
        model = random_rbm(rng, n, m, units=units, scale=scale)
        assert mg.exact_log_z(model, engine="cuda") == pytest.approx(mg.exact_log_z(model), rel=1e-12)


def test_exact_sums_of_many_models_are_those_of_each(on, monkeypatch):
    """Models of one shape are summed in one launch, with the bits that each has alone; a bad one stops no other."""
    monkeypatch.setattr(batch, "open_device", lambda number: on)
    monkeypatch.setattr(on_gpu, "_MOST_BYTES", 1 << 19)  # several launches
    rng = np.random.default_rng(10)
    models = [random_rbm(rng, n, m, scale=x) for n, m, x in [(17, 4, 0.5), (3, 5, 1.0)] for _ in range(7)]
    models.insert(3, random_rbm(rng, 3, 50))
    found = batch.exact_of_many(models, engine="cuda")
    assert "up to 48 units" in str(found.pop(3))
    del models[3]
    assert [float(x) for x in found] == [float(mg.exact_log_z(model, engine="cuda")) for model in models]
    assert {x.method for x in found} == {"enumeration"}


def test_exact_sums_that_are_not_served():
    with pytest.raises(ValueError, match="two-state units only; use 'auto'"):
        mg.exact_log_z(mg.rbm([[0.1]], [0], [0], units="gaussian"), engine="cuda")
    with pytest.raises(ValueError, match="up to 48 units"):
        mg.exact_log_z(random_rbm(np.random.default_rng(0), 3, 50), engine="cuda")
    with pytest.raises(ValueError, match="bipartite"):
        mg.exact_log_z(glass(), engine="cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("draws", ["words", "planes"])
def test_many_chains_agree_with_the_exact_value(draws):
    rng = np.random.default_rng(0)
    model = random_rbm(rng, 20, 40, scale=0.3) if draws == "words" else bonds(12, 12, [1.0], periodic=True)
    r = mg.estimate(model, steps=200, chains=1 << 20, engine="cuda", draws=draws)
    assert abs(r.log_z - mg.exact_log_z(model)) < 4.5 * r.stderr
