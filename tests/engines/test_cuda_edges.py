"""The GPU engine at its edges: what is missing is said in a line, kernels compile, and processes share a GPU."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import command, random_rbm

import marginalis as mg
from marginalis import experiments
from marginalis.engines import drive, workers
from marginalis.engines.cuda import general, large, lattice, sites, small
from marginalis.exact import ways
from marginalis.gpu import device as gpu

MODEL = random_rbm(np.random.default_rng(3), 9, 40, scale=0.3)


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
    mg.save(MODEL, tmp_path / "m.npz")
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
    mg.save(MODEL, tmp_path / "m.npz")
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
        ([small.SOURCE], {"NV": 20, "NH": 40, "GROUP": 32, "SPINS": 7, "ROOM_BYTES": 4224, "BATCH": 8, "NUMBERS": 1}),
        ([lattice.SOURCE], {"DEGREES_V": 16, "DEGREES_H": 24, "INSIDE": 1, "PLANES": 1, "BITS": 6}),
        ([lattice.SOURCE], {"DEGREES_V": 16, "DEGREES_H": 24, "SIGNED": 1, "SORTED": 1, "BITS": 6}),
        ([sites.SOURCE, lattice.GATHER], {"LENGTH_V": 4, "LENGTH_H": 8, "FIELDS": 1, "BASE": 1, "JOINT": 1}),
        (large.STREAMED, {"SUMMED": 1, "JOINT": 1, "ROWS": 64, "HALVES": 2, "BLOCKS": 2}),
        (large.RESIDENT, {"JOINT": 1, "HALVES": 2, "TEAMS": 2, "TEAM": 256}),
        ([general.SOURCE], {"KIND_V": 0, "KIND_H": 0, "LATERAL": 1, "SPINS": 1, "LENGTH_UP": 0, "LENGTH_AFTER": 4}),
    ):
        program = nvrtc.createProgram(gpu.kernel_source(*files), "kernel.cu", (), ())
        nvrtc.compileProgram(program, ("-arch=compute_80", *gpu.compiler_options(macros)))
