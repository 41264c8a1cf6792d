"""The GPU engine draws what the reference draws: kernels as C++ for the host here, on a GPU with `make test-gpu`."""

import sys
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import command, log_weights, random_rbm
from cuda_host import COMPILER, HostDevice

import marginalis as mg
from marginalis import experiments
from marginalis.engines import cuda, drive, workers
from marginalis.engines.cuda import general, large, resident, small
from marginalis.exact import ways
from marginalis.gpu import device as gpu
from marginalis.sampling.mixture import Mixture
from marginalis.sampling.plan import make_plan
from marginalis.sampling.recorder import Recorder

HOST = HostDevice()
ON = [
    pytest.param("host", marks=pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")),
    pytest.param("gpu", marks=pytest.mark.gpu),
]


@pytest.fixture(params=ON)
def on(request, monkeypatch):
    """Return the GPU, or the host in its place."""
    if request.param == "gpu":
        return gpu.open_device(None)
    monkeypatch.setattr(cuda, "open_device", lambda number: HOST)
    monkeypatch.setattr(ways, "open_device", lambda number: HOST)
    monkeypatch.setattr(small, "_BLOCKS", dict.fromkeys(small._BLOCKS, 32))
    return HOST


def agree(model, kernel, tolerance=1e-10, **options):
    """Compare the log-weights of all chains with the reference's."""
    chosen = {"steps": 20, "chains": 70, "seed": 8, "first_chain": 5, "precision": "double", **options}
    plan = make_plan(model, **chosen, engine="cuda")
    assert next((x for x in (small, large) if x.serves(plan)), general) is kernel
    found = log_weights(plan, "cuda")
    np.testing.assert_allclose(found, log_weights(plan, "numpy"), rtol=0, atol=tolerance)
    return found


MIXED = random_rbm(np.random.default_rng(3), 9, 40, units=("spin", "binary"), scale=0.3, temperature=0.6)


@pytest.mark.parametrize(("method", "base"), [("mais-v", "uniform"), ("ais", "uniform"), ("mais-h", "biases")])
@pytest.mark.parametrize("precision", ["single", "double"])
def test_small_models_in_every_arrangement_of_threads(on, monkeypatch, method, base, precision):
    found = []
    for group in (small._BLOCKS if on is not HOST or base == "biases" else (1, 4)) if precision == "single" else (1,):
        monkeypatch.setattr(small, "threads_per_chain", lambda chains, processors, group=group: group)
        tolerance = 2e-5 if precision == "single" else 1e-10
        options = dict(method=method, base=base, precision=precision)
        found.append(agree(MIXED, small, tolerance, **options))
    assert all(np.array_equal(found[0], other) for other in found)


def test_few_chains_get_more_threads():
    assert [small.threads_per_chain(n, 132) for n in (1000, 5000, 10_000)] == [32, 8, 1]


UNITS = ["categorical:3", ("gaussian", "binary"), ("spin", "gaussian"), ("categorical:3", "spin")]


@pytest.mark.parametrize("units", UNITS, ids=str)
def test_other_units(on, units):
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


def test_any_graph(on):
    agree(glass(), general, method="ais", base="biases")
    agree(glass(), general, tolerance=2e-5, precision="single", resample=0.9, populations=5)


def test_metropolis(on):
    model = random_rbm(np.random.default_rng(5), 7, 6, scale=0.6)
    agree(model, general, method="mais-v", transition="metropolis", sweeps=2, base="biases")


def test_a_path_from_another_model_and_from_a_mixture(on):
    """A base with couplings, and one with components, on a graph that is not bipartite."""
    rng = np.random.default_rng(1)
    plan = make_plan(glass(), base=glass(seed=1), keep_whole=True, steps=20, chains=40, precision="double")
    n = len(plan.base.visible)
    coupled = replace(plan, start=rng.choice([-1.0, 1.0], size=(40, n)))
    plan = make_plan(glass(), keep_whole=True, method="ais", steps=20, chains=40, precision="double")
    mixed = replace(plan, mixture=Mixture(rng.normal(size=3), rng.normal(size=(3, n))))
    for path in (coupled, mixed):
        np.testing.assert_allclose(log_weights(path, "cuda"), log_weights(path, "numpy"), rtol=0, atol=1e-10)


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
    plan = make_plan(BIG, **options)
    assert large.Population(plan, large.Population.prepare(plan, on), range(130)).groups is not None
    found.append(agree(BIG, large, 5e-5, **options))
    assert all(np.array_equal(found[0], other) for other in found)


def test_bands_of_a_deep_model(on, monkeypatch):
    monkeypatch.setattr(large, "_SPAN", 2)
    rng = np.random.default_rng(7)
    sizes = (40, 70, 30, 66)
    couplings = [0.2 * rng.normal(size=pair) for pair in pairwise(sizes)]
    model = mg.dbm(couplings, [np.zeros(n) for n in sizes])
    agree(model, large, 5e-5, precision="single", steps=6)


def test_three_bytes_hold_a_weight():
    rng = np.random.default_rng(8)
    weights = rng.normal(size=(128, 64)) * np.exp(3 * rng.normal(size=64))
    packed, scale, high, low = large.pack(weights)
    assert packed.shape == (1, 4, 2, 6, 32, 2, 2, 4)
    error = (256.0 * high + low) * scale - weights.sum(axis=0)
    assert (np.abs(error) < 128 * scale / 2).all()
    assert (scale < np.abs(weights).max(axis=0) * 2.0**-21).all()


@pytest.mark.parametrize(("model", "precision"), [(MIXED, "single"), (BIG, "single"), (glass(), "double")])
def test_the_same_bits_in_parts(on, model, precision):
    """Chains of one run and of several, all at once and in memory that is scarce, stopping on the way or not."""
    options = dict(steps=3, seed=3, precision=precision, engine="cuda")
    whole = make_plan(model, chains=96, **options)
    found = drive.run(whole, 1, lambda fraction: None)
    parts = [make_plan(model, chains=n, first_chain=at, **options) for at, n in ((0, 33), (33, 1), (34, 62))]
    joined = np.concatenate([drive.run(part, 1, lambda fraction: None) for part in parts])
    assert np.array_equal(found, joined)
    if on is HOST:
        on.free = 1
        assert drive.begin(whole).together == 32
        assert np.array_equal(found, drive.run(whole, 1, lambda fraction: None))
        on.free = 1 << 30


@pytest.mark.parametrize("model", [MIXED, BIG, glass()], ids=["small", "large", "general"])
def test_records_on_the_way(on, model):
    """Weights and states after chosen steps, and a start from given states: the reverse process."""
    plan = make_plan(model, steps=4, chains=40, seed=2)
    runs = []
    for engine in ("numpy", "cuda"):
        recorder = Recorder([1, 3, 4], plan.chains, lambda k, v: v, len(plan.oriented()[1].visible))
        last = drive.run(plan.settled(engine), 1, lambda fraction: None, recorder)
        back = plan.reversed(recorder.values[-1], equilibration=2).settled(engine)
        runs.append((last, recorder, drive.run(back, 1, lambda fraction: None)))
    (last, recorder, back), (last_too, recorder_too, back_too) = runs
    np.testing.assert_allclose(last, last_too, rtol=0, atol=1e-4)
    np.testing.assert_allclose(back, back_too, rtol=0, atol=1e-4)
    np.testing.assert_allclose(recorder.log_weights, recorder_too.log_weights, rtol=0, atol=1e-4)
    np.testing.assert_allclose(recorder.values, recorder_too.values)


@pytest.mark.parametrize("units", ["spin", ("binary", "spin"), ("spin", "binary")])
def test_exact_sums(on, units):
    rng = np.random.default_rng(9)
    for n, m, scale in ((3, 5, 0.7), (17, 19, 8.0)):
        model = random_rbm(rng, n, m, units=units, scale=scale)
        assert mg.exact_log_z(model, engine="cuda") == pytest.approx(mg.exact_log_z(model), rel=1e-12)


def test_exact_sums_that_are_not_served():
    with pytest.raises(ValueError, match="two-state units only; use 'auto'"):
        mg.exact_log_z(mg.rbm([[0.1]], [0], [0], units="gaussian"), engine="cuda")
    with pytest.raises(ValueError, match="up to 48 units"):
        mg.exact_log_z(random_rbm(np.random.default_rng(0), 3, 50), engine="cuda")
    with pytest.raises(ValueError, match="bipartite"):
        mg.exact_log_z(glass(), engine="cuda")


@pytest.mark.gpu
def test_many_chains_agree_with_the_exact_value():
    model = random_rbm(np.random.default_rng(0), 20, 40, scale=0.3)
    r = mg.estimate(model, steps=200, chains=1 << 20, engine="cuda")
    assert abs(r.log_z - mg.exact_log_z(model)) < 4.5 * r.stderr


# ---------------------------------------------------------------- what is missing


def fake_cupy(driver=13000, count=1, capability="90", error=None):
    class CUDARuntimeError(RuntimeError):
        pass

    def counted():
        if error:
            raise CUDARuntimeError(error)
        return count

    runtime = SimpleNamespace(
        driverGetVersion=lambda: driver, getDeviceCount=counted, CUDARuntimeError=CUDARuntimeError
    )
    device = lambda number: SimpleNamespace(compute_capability=capability)  # noqa: E731
    return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, Device=device))


@pytest.mark.parametrize(
    ("cupy", "number", "words"),
    [
        (None, None, "needs CuPy: pip install 'marginalis[cuda]'; engine 'auto' runs on the CPU"),
        (fake_cupy(driver=0), None, "there is no driver"),
        (fake_cupy(error="cudaErrorInsufficientDriver: CUDA driver version is insufficient"), None, "is insufficient"),
        (fake_cupy(count=2), 2, "device is 2; there are 2 GPUs, numbers 0 to 1"),
        (fake_cupy(capability="61"), 0, "too old"),
    ],
)
def test_one_line_for_what_is_missing(monkeypatch, tmp_path, cupy, number, words):
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(workers, "open_device", gpu.open_device.__wrapped__)
    monkeypatch.setattr(drive, "begin", None)  # pilots would run on the CPU: none does before the refusal
    mg.save(MIXED, tmp_path / "m.npz")
    flags = [] if number is None else ["--device", str(number)]
    for how in ([], ["--steps", "3", "--pool", "2"], ["--tolerance", "0.1"]):
        result = command("estimate", str(tmp_path / "m.npz"), "--engine", "cuda", *how, *flags)
        assert result.returncode == 2
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_exact_sums_and_studies_say_it_too(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cupy", None)
    for module in (ways, experiments):
        monkeypatch.setattr(module, "open_device", gpu.open_device.__wrapped__)
    mg.save(MIXED, tmp_path / "m.npz")
    for words in (("exact", str(tmp_path / "m.npz")), ("reproduce", "table1", "--out", str(tmp_path / "new"))):
        result = command(*words, "--engine", "cuda")
        assert result.returncode == 2
        assert "needs CuPy" in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.gpu
def test_the_papers_table_by_processes(tmp_path):
    options = dict(experiments=2, chains=20, threads=2)
    fast, slow = (
        experiments.reproduce("table1", engine=engine, out=tmp_path / engine, **options)[0].rows
        for engine in ("cuda", "auto")
    )
    assert [row["mean"] for row in fast] == pytest.approx([row["mean"] for row in slow], rel=0, abs=1e-3)


def test_the_kernels_compile_with_nvrtc():
    nvrtc = pytest.importorskip("cupy.cuda.nvrtc", exc_type=ImportError)
    for files, macros in (
        ([small.SOURCE], {"NV": 20, "NH": 40, "GROUP": 8, "NUMBERS": 1}),
        (large.STREAMED, {"SUMMED": 1, "JOINT": 1, "ROWS": 64, "HALVES": 2, "BLOCKS": 2}),
        (large.RESIDENT, {"JOINT": 1, "HALVES": 2, "TEAMS": 2, "TEAM": 256}),
        ([general.SOURCE], {"KIND_V": 0, "KIND_H": 0, "LATERAL": 1, "SPINS": 1, "LENGTH_UP": 0, "LENGTH_AFTER": 4}),
    ):
        program = nvrtc.createProgram(gpu.kernel_source(*files), "kernel.cu", (), ())
        nvrtc.compileProgram(program, ("-arch=compute_80", *gpu.compiler_options(macros)))
