"""The GPU engine at its edges: what is missing is said in a line, kernels compile, and processes share a GPU."""

import shutil
import subprocess
import sys
from collections import defaultdict
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from conftest import command, random_rbm

import marginalis as mg
from marginalis import studies
from marginalis.engines import cuda, drive
from marginalis.engines.cuda import general, large, lattice, sites, small, together
from marginalis.engines.plan import make_plan
from marginalis.exact import on_gpu
from marginalis.gpu import device as gpu
from marginalis.running import session

MODEL = random_rbm(np.random.default_rng(3), 9, 40, scale=0.3)
LARGE = random_rbm(np.random.default_rng(6), 40, 70, scale=0.15)
OTHER = random_rbm(np.random.default_rng(4), 9, 6, units="categorical:3", scale=0.3)


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
    monkeypatch.setattr(gpu, "_opened", gpu._opened.__wrapped__)
    monkeypatch.setattr(session, "begin", None)  # pilots would run on the CPU: none does before the refusal
    mg.save(MODEL, tmp_path / "m.npz")
    flags = [] if number is None else ["--device", str(number)]
    for how in ([], ["--steps", "3", "--pool", "2"], ["--tolerance", "0.1"]):
        result = command("estimate", str(tmp_path / "m.npz"), "--engine", "cuda", *how, *flags)
        assert result.returncode == 2
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("given", ["0,x", [], [0, -1], "", 1.5, ["a"], [True]], ids=str)
def test_invalid_devices_are_refused(given):
    with pytest.raises(ValueError, match="device is"):
        gpu.device_numbers(given)


def test_devices_by_number_text_and_list():
    given = (None, 2, "2", " 0, 1", [1, 1], (3,))
    assert [gpu.device_numbers(x) for x in given] == [(0,), (2,), (2,), (0, 1), (1, 1), (3,)]


def test_a_full_gpu_is_one_line(monkeypatch, tmp_path):
    """As CuPy has it: with room for a thousand bytes, and not for the weights."""

    class OutOfMemoryError(MemoryError):
        pass

    def zeros(shape, dtype):
        raise OutOfMemoryError("Out of memory allocating 8,000 bytes (allocated so far: 0 bytes, limit set to: 1,000).")

    pool = SimpleNamespace(free_bytes=lambda: 0, used_bytes=lambda: 0, get_limit=lambda: 1000)
    here = MagicMock(attributes=defaultdict(int), mem_info=(1 << 40, 1 << 40))
    memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(memory=memory, Device=lambda number: here),
        get_default_memory_pool=lambda: pool,
        asarray=np.asarray,
        zeros=zeros,
    )
    device = gpu.Device(cupy, 1)
    assert device.free_bytes() == 800
    for module in (cuda, session):
        monkeypatch.setattr(module, "open_device", lambda number: device)
    mg.save(MODEL, tmp_path / "m.npz")
    result = command("estimate", str(tmp_path / "m.npz"), "--engine", "cuda", "--steps", "3", "--device", "1")
    assert result.returncode == 2
    assert "GPU 1 is full (Out of memory allocating 8,000 bytes" in result.stderr
    assert "choose another GPU (device), wait until there is room, or engine 'auto' runs on the CPU" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_small_arrays_stay_for_the_next_run():
    cupy = SimpleNamespace(asarray=np.asarray, cuda=SimpleNamespace(Device=MagicMock()))
    device = gpu.Device(cupy, 0)
    first = device.kept(("a", b"1"), lambda: np.ones(3))
    assert device.kept(("a", b"1"), None) is first
    for n in range(gpu._KEPT):
        assert device.kept(("b", n), lambda n=n: np.array(n)) == n
    assert device.kept(("a", b"1"), lambda: np.zeros(3)) is not first  # but not forever


@pytest.mark.gpu
def test_answers_agree_with_those_of_the_cpu():
    rng = np.random.default_rng(0)
    options = dict(steps=200, chains=400, precision="double")
    other, rows = random_rbm(rng, 9, 40, scale=0.2), rng.choice([-1.0, 1.0], size=(5, 9))
    for ask in (
        lambda engine: mg.thermodynamics(MODEL, [0.5, 1.0], **options, engine=engine).heat_capacity,
        lambda engine: mg.log_likelihood(MODEL, rows, **options, engine=engine).log_z,
        lambda engine: mg.expectations(MODEL, **options, engine=engine).means,
        lambda engine: mg.difference(MODEL, other, **options, engine=engine).forward_log_weights,
    ):
        np.testing.assert_allclose(ask("cuda"), ask("numba"), rtol=0, atol=1e-9)
    found, same = (mg.estimate(MODEL, tolerance=0.005, engine=engine) for engine in ("cuda", "numba"))
    assert max(found.stderr, same.stderr) < 0.005
    assert abs(found.log_z - same.log_z) < 4.5 * np.hypot(found.stderr, same.stderr)


@pytest.mark.gpu
@pytest.mark.parametrize("model", [MODEL, LARGE, OTHER], ids=["small", "large", "general"])
def test_a_cap_on_memory(model):
    """Chains come in turns where there is little room; where there is none, one line says so."""
    import cupy

    pool, options = cupy.get_default_memory_pool(), dict(steps=3, chains=30_000, precision="single", engine="cuda")
    whole = mg.estimate(model, **options).log_weights
    try:
        pool.free_all_blocks()
        pool.set_limit(size=pool.used_bytes() + (1 << 20))
        assert drive.begin(make_plan(model, **options)).together < 30_000
        assert np.array_equal(mg.estimate(model, **options).log_weights, whole)
        gpu.open_device(0)._kept.clear()  # beside what is kept there may be room for more
        pool.free_all_blocks()
        pool.set_limit(size=pool.used_bytes() + 1)
        with pytest.raises(gpu.NoDevice, match=r"is full .*: choose another GPU"):
            mg.estimate(model, **options)
    finally:
        pool.set_limit(size=0)


def test_exact_sums_and_studies_name_what_is_missing_too(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(gpu, "_opened", gpu._opened.__wrapped__)
    mg.save(MODEL, tmp_path / "m.npz")
    new = "--out", str(tmp_path / "new")
    for words in (("exact", str(tmp_path / "m.npz")), ("reproduce", "table1", *new), ("calibrate", *new)):
        result = command(*words, "--engine", "cuda")
        assert result.returncode == 2
        assert "needs CuPy" in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.gpu
def test_the_papers_table(tmp_path):
    options = dict(experiments=2, chains=20, threads=2)
    fast, slow = (
        studies.reproduce("table1", engine=engine, out=tmp_path / engine, **options)[0].rows
        for engine in ("cuda", "auto")
    )
    assert [row["mean"] for row in fast] == pytest.approx([row["mean"] for row in slow], rel=0, abs=1e-3)


COMPILED = [
    ([small.SOURCE], {"NV": 20, "NH": 40, "GROUP": 32, "SPINS": 7, "ROOM_BYTES": 4224, "BATCH": 8, "NUMBERS": 1}),
    (
        [small.SOURCE],
        {"NV": 20, "NH": 40, "GROUP": 1, "SPINS": 5, "ROOM_BYTES": 0, "BATCH": 8, "NUMBERS": 1, "JOINT": 1, "MANY": 1},
    ),
    ([small.TABLES], {"NV": 20, "NH": 40, "GROUP": 32, "SPINS": 7, "NUMBERS": 70000, "MANY": 1}),
    ([lattice.SOURCE], {"DEGREES_V": 16, "DEGREES_H": 24, "INSIDE": 1, "PLANES": 1, "BITS": 6, "MANY": 1}),
    ([lattice.SOURCE], {"DEGREES_V": 16, "DEGREES_H": 24, "SIGNED": 1, "SORTED": 1, "BITS": 6}),
    ([sites.SOURCE, lattice.GATHER], {"LENGTH_V": 4, "LENGTH_H": 8, "FIELDS": 1, "BASE": 1, "JOINT": 1}),
    (large.STREAMED, {"SUMMED": 1, "JOINT": 1, "ROWS": 64, "HALVES": 2, "BLOCKS": 2}),
    (large.STREAMED, {"SUMMED": 1, "BASE": 1, "DRAWN": 1, "ROWS": 64, "HALVES": 1, "BLOCKS": 2}),
    (large.RESIDENT, {"JOINT": 1, "ROWS": 128, "HALVES": 2, "TEAMS": 4, "TEAM": 128, "TOKENS": 2}),
    (large.RESIDENT, {"BASE": 1, "ROWS": 64, "HALVES": 1, "TEAMS": 5, "TEAM": 128, "TOKENS": 5, "TOGETHER": 1}),
    (general.SOURCES, {"KIND_V": 4, "KIND_H": 3, "LATERAL": 0, "LENGTH_UP": 0, "LENGTH_AFTER": 0, "DOUBLE": 1}),
    (general.SOURCES, {"KIND_V": 0, "KIND_H": 0, "LATERAL": 1, "SPINS": 1, "LENGTH_UP": 0, "LENGTH_AFTER": 4}),
    ([on_gpu.SOURCE], {}),
    ([together.MEANS], {}),
]


@pytest.mark.parametrize(("files", "macros"), COMPILED, ids=[files[-1].stem for files, _ in COMPILED])
def test_the_kernels_compile(tmp_path, files, macros):
    """As CUDA, with NVRTC if CuPy is there, or else with nvcc; neither needs a GPU."""
    options = gpu.compiler_options(macros)
    if not any(x.startswith("-arch") for x in options):
        options = "-arch=sm_80", *options
    source = gpu.kernel_source(*files)
    try:
        from cupy.cuda import nvrtc
    except ImportError:
        compiler = shutil.which("nvcc")
        if compiler is None:
            pytest.skip("neither CuPy nor nvcc")
        (tmp_path / "kernel.cu").write_text(source)
        subprocess.run([compiler, *options, "-cubin", "kernel.cu", "-o", "kernel.cubin"], check=True, cwd=tmp_path)
    else:
        nvrtc.compileProgram(nvrtc.createProgram(source, "kernel.cu", (), ()), options)
