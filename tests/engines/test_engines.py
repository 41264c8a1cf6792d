"""Engines agree draw for draw; results depend on nothing but model, plan and seed."""

import _thread
import ast
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import PathSums, random_rbm

import marginalis as mg
from marginalis import engines
from marginalis.engines.cpu.anneal_kernel import anneal_blocks
from marginalis.engines.cpu.numba_cpu import _prepare, _state
from marginalis.parallel.threads import interruptible, run_jobs
from marginalis.sampling import loop
from marginalis.sampling.loop import Path
from marginalis.sampling.moves import gibbs
from marginalis.sampling.plan import make_plan
from marginalis.simd import cache
from marginalis.simd.cache import kernel
from marginalis.simd.vector import LANES


def both(model, **options):
    plan = make_plan(model, **options)
    return [engines.run(plan, name, 1, lambda fraction: None) for name in ("numpy", "numba")]


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
    from marginalis.engines import numba_cpu

    model = random_rbm(np.random.default_rng(2), 12, 7)
    plan = make_plan(model, steps=50, chains=300, seed=4)
    slow, fast = (engines.run(plan, name, 2, lambda fraction: None) for name in ("numpy", "numba"))
    monkeypatch.setattr(numba_cpu, "_CALL_OPERATIONS", 1e5)
    monkeypatch.setattr(numba_cpu, "_JOB_BYTES", 3000)
    monkeypatch.setattr(annealing, "_CHUNK", 17)
    assert np.array_equal(slow, engines.run(plan, "numpy", 1, lambda fraction: None))
    assert np.array_equal(fast, engines.run(plan, "numba", 2, lambda fraction: None))


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


# ---------------------------------------------------------------- stationarity


def start_at_target(sums, k, chains, seed=0):
    """Indices of v drawn from P_k(v)."""
    p = np.exp(sums.marginal(k) - np.logaddexp.reduce(sums.marginal(k)))
    return np.random.default_rng(seed).choice(len(p), size=chains, p=p), p


def stays(v, sums, p):
    """χ² of the states against p, in standard deviations."""
    index = (v[:, None, :] == sums.v_states[None]).all(axis=2).argmax(axis=1)
    expected = p * len(v)
    counts = np.bincount(index, minlength=len(p))
    return (((counts - expected) ** 2 / expected).sum() - (len(p) - 1)) / math.sqrt(2 * (len(p) - 1))


@pytest.mark.parametrize("units", ["spin", "binary"])
def test_reference_kernel_leaves_target_invariant(units):
    model = random_rbm(np.random.default_rng(9), 3, 4, units=units, scale=0.9)
    plan = make_plan(model, method="mais-v", steps=5, chains=30_000, seed=7)
    path = annealing.Path(plan, slice(0, plan.chains))
    sums = PathSums(model, plan.betas)
    index, p = start_at_target(sums, 3, plan.chains)
    v = sums.v_states[index]
    moved = gibbs(path, 3, path.gap(v))
    assert (moved != v).any()
    assert stays(moved, sums, p) < 4.5
    assert stays(gibbs(path, 5, path.gap(v)), sums, p) > 20  # the check sees a wrong temperature


@pytest.mark.parametrize("method", ["ais", "mais-v"])
def test_fast_kernel_leaves_target_invariant(method):
    model = random_rbm(np.random.default_rng(9), 3, 4, scale=0.9)
    blocks = 4000
    plan = make_plan(model, method=method, steps=5, chains=blocks * LANES, seed=7)
    prepared = _prepare(plan)
    sums = PathSums(model, plan.betas)
    index, p = start_at_target(sums, 3, plan.chains)
    state = _state(prepared, blocks, method == "ais")
    v = state[0]
    v[:, :3, :] = sums.v_states[index].reshape(blocks, LANES, 3).transpose(0, 2, 1)
    anneal_blocks(*prepared.kernel_args, np.uint64(0), *state, (2, 3, 0))
    moved = v[:, :3, :].transpose(0, 2, 1).reshape(-1, 3)
    assert stays(moved, sums, p) < 4.5
    anneal_blocks(*prepared.kernel_args, np.uint64(0), *state, (3, 4, 0))
    assert stays(v[:, :3, :].transpose(0, 2, 1).reshape(-1, 3), sums, p) > 20


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


def test_overflow_is_an_error_not_a_number():
    with pytest.raises(ValueError, match="sums overflow"):
        mg.rbm(np.full((3, 2), 1e308), np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match="precisions divided by it"):
        mg.rbm([[0.0]], [0], [0], units="gaussian", temperature=1e-320)
    with pytest.raises(ValueError, match="so large that ln Z overflows"):
        mg.rbm([[1e200]], [0], [0], units=("gaussian", "spin"))


def test_parameters_of_any_finite_size():
    for scale in (1e-300, 1e30, 1e290):
        result = mg.estimate(mg.rbm([[scale, -scale]], [scale], [0, scale]), steps=10, chains=32)
        assert np.isfinite(result.log_weights).all()


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


def test_progress_is_heard():
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


# ---------------------------------------------------------------- other processors, other settings

ALL_KERNELS = """
import numpy as np, scipy.sparse as sp, marginalis as mg
from marginalis.simd.functions import HAS_AVX512
assert not HAS_AVX512
rng = np.random.default_rng(0)
w, b, c = rng.normal(size=(5, 6)), rng.normal(size=5), rng.normal(size=6)
dense, sparse = (mg.rbm(x, b, c) for x in (w, sp.csr_array(np.where(rng.random(w.shape) < 0.2, w, 0) + np.eye(5, 6))))
for model, precision, atol, transition in (
    (dense, "single", 1e-4, "gibbs"),
    (dense, "double", 1e-10, "metropolis"),
    (sparse, "single", 1e-4, "metropolis"),
    (sparse, "double", 1e-10, "gibbs"),
)[:KERNELS]:
    options = dict(steps=9, chains=40, precision=precision, transition=transition)
    slow, fast = (mg.estimate(model, engine=e, **options).log_weights for e in ("numpy", "numba"))
    np.testing.assert_allclose(fast, slow, atol=atol)
for t in (1.0, 1e-3):  # both forms of the tables
    model = mg.rbm(w, b, c, temperature=t)
    np.testing.assert_allclose(mg.exact_log_z(model, method="enumeration"), mg.exact_log_z(model, method="elimination"))
"""


def in_a_fresh_interpreter(code, **settings):
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("settings", "kernels"),
    [({"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}, 4), ({"NUMBA_ENABLE_AVX": "0"}, 1)],
    ids=["generic", "no AVX"],
)
def test_processors_without_avx512(settings, kernels):
    """The portable code path of every kernel, compiled for a plain processor, or as the user wants it."""
    in_a_fresh_interpreter(ALL_KERNELS.replace("KERNELS", str(kernels)), **settings)


def test_without_compilation_the_reference_serves():
    code = """
import numpy as np, pytest, marginalis as mg
model = mg.rbm(np.ones((3, 4)), np.zeros(3), np.zeros(4))
result = mg.estimate(model, steps=5, chains=8)
assert result.engine == "numpy"
assert abs(mg.exact_log_z(model, method="enumeration") - mg.exact_log_z(model, method="elimination")) < 1e-12
with pytest.raises(ValueError, match="NUMBA_DISABLE_JIT"):
    mg.estimate(model, engine="numba")
"""
    in_a_fresh_interpreter(code, NUMBA_DISABLE_JIT="1")


# ---------------------------------------------------------------- the cache on disk


def twice(x):
    return x + x


def compiled(monkeypatch, place):
    """The function as a new process would have it, its cache being in that place."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(place))
    return kernel()(twice)


def hits(function):
    assert function(2.0) == 4.0
    return sum(function.stats.cache_hits.values())


def test_the_cache_is_used(monkeypatch, tmp_path):
    assert hits(compiled(monkeypatch, tmp_path)) == 0
    assert hits(compiled(monkeypatch, tmp_path)) == 1
    monkeypatch.setattr(cache, "SOURCES", cache.SOURCES + 1)  # as if another file of the kernels had changed
    assert hits(compiled(monkeypatch, tmp_path)) == 0


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [lambda old: b"", lambda old: old[: len(old) // 2], lambda old: b"\x00" * 64])
def test_a_spoiled_cache_is_replaced(monkeypatch, tmp_path, kind, damage):
    compiled(monkeypatch, tmp_path)(2.0)
    (file,) = tmp_path.rglob(f"*.{kind}")
    file.write_bytes(damage(file.read_bytes()))
    assert hits(compiled(monkeypatch, tmp_path)) == 0
    assert hits(compiled(monkeypatch, tmp_path)) == 1


def test_no_place_for_a_cache(monkeypatch, tmp_path):
    """A file where a folder should be, no folder at all, and a full disk: compiled all the same."""
    (tmp_path / "file").write_text("")
    assert compiled(monkeypatch, tmp_path / "file" / "cache")(2.0) == 4.0
    with monkeypatch.context() as patch:
        patch.setattr("numba.core.caching.CompileResultCacheImpl._locator_classes", [])
        assert hits(compiled(monkeypatch, tmp_path)) == 0

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._open_for_write", full)
    assert hits(compiled(monkeypatch, tmp_path)) == 0


def test_the_cache_knows_every_file_of_the_kernels():
    """What the modules of kernels import, and what that imports, is in the checksum."""
    package = Path(mg.__file__).parent
    todo = [package / "exact/transfer.py", package / "exact/planar.py", *(package / "engines").glob("*_kernel.py")]
    # where jobs run changes nothing in a kernel
    seen = {package / "parallel.py"}
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = path.parents[node.level - 1]
                names = [node.module] if node.module else [name.name for name in node.names]
                found = [folder / f"{name.replace('.', '/')}.py" for name in names]
                assert all(file.exists() for file in found), f"{path}: look for what {names} are"
                todo += found
    assert seen - {package / "parallel.py"} <= set(cache.FILES)
    assert package / "random.py" in seen


# ---------------------------------------------------------------- interrupts


def test_long_calls_hear_an_interrupt():
    ended = threading.Event()

    def work():
        _thread.interrupt_main()
        ended.wait(60)
        return ended.is_set()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background may not have it
    try:
        with pytest.raises(KeyboardInterrupt):
            interruptible(work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not ended.is_set()
    ended.set()
    assert interruptible(lambda: 3) == 3
    with np.errstate(over="ignore"):
        assert interruptible(lambda: np.float64(1e308) * 10) == np.inf
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 / 0)


def test_an_interrupt_does_not_wait_for_a_long_call():
    """Two threads are in a kernel call that goes on and on."""
    ended = threading.Event()

    def work(job):
        ended.wait(60)
        yield 1

    def interrupt(fraction):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(work, range(4), 4, 2, interrupt)
    assert not ended.is_set()
    assert threading.active_count() > 1  # they are still there, and nobody waited
    ended.set()


def test_the_reference_takes_large_models_in_small_pieces():
    """No call into a library for longer than some tenths of a second."""
    large = mg.rbm(np.ones((3000, 2000)), np.zeros(3000), np.zeros(2000))
    plan = make_plan(large, chains=5000)
    chunk = annealing._chains_together(plan)
    assert chunk % annealing._ROWS == 0
    assert chunk * large.weights.size < 1e9
    assert annealing._chains_together(make_plan(random_rbm(np.random.default_rng(0), 20, 30), chains=5000)) == 4096
