"""Functions of vectors against the same in extended precision, over their whole range."""

import numpy as np
import pytest
from numba import njit

from marginalis.simd.functions import accept, exp2_nonpositive, log, rise, select
from marginalis.simd.vector import LANES, aligned, exponent_and_mantissa, load, splat, store

PRECISIONS = [np.float32, np.float64]
wide = np.longdouble


@njit
def run_exp2(x, out):
    for i in range(0, len(x), LANES):
        store(out, i, exp2_nonpositive(load(x, i)))


@njit
def run_log(x, out):
    for i in range(0, len(x), LANES):
        store(out, i, log(load(x, i)))


@njit
def run_split(x, n, m):
    for i in range(0, len(x), LANES):
        a, b = exponent_and_mantissa(load(x, i))
        store(n, i, a)
        store(m, i, b)


@njit
def run_rise(now, before, gap, per_step, out):
    for i in range(0, len(now), LANES):
        store(out, i, rise(load(now, i), load(before, i), load(gap, i), per_step))


@njit
def run_accept(gain, top, bottom, word, out):
    for i in range(0, len(gain), LANES):
        x = load(gain, i)
        one = x - x + 1.0
        store(out, i, select(accept(x, load(top, i), load(bottom, i), load(word, i)), one, one - one))


def vector(values, dtype):
    """The values in an array that kernels can read, filled up with its last one."""
    out = aligned((-(-len(values) // LANES) * LANES,), dtype)
    out[:] = values[-1]
    out[: len(values)] = values
    return out


def positive(dtype, rng):
    """Normal numbers of every exponent, and the neighbours of powers of two."""
    info = np.finfo(dtype)
    powers = 2.0 ** np.arange(info.minexp, info.maxexp).astype(float)
    random = powers * (1.0 + rng.random(len(powers)))
    beside = [np.nextafter(powers.astype(dtype), dtype(x)) for x in (0, np.inf)]
    roots = np.sqrt(0.5) * powers[powers < info.max / 2]
    x = np.concatenate([powers, np.minimum(random, info.max), *beside, roots]).astype(dtype)
    return vector(x[x >= info.tiny], dtype)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_exp2(dtype):
    rng, info = np.random.default_rng(0), np.finfo(dtype)
    whole = -np.arange(-info.minexp + 1.0)
    x = np.concatenate([whole, whole + 0.5, whole + 1e-7, -np.logspace(-300, 0, 400), info.minexp * rng.random(4000)])
    x = vector(np.clip(x, info.minexp, 0.0), dtype)
    out = aligned(x.shape, dtype)
    run_exp2(x, out)
    exact = np.exp2(x.astype(wide))
    # a polynomial of degree 5 or 11
    tolerance = 3e-7 if dtype is np.float32 else 1e-14
    assert float(np.abs(out / exact - 1).max()) < tolerance
    assert out[x == 0.0].max() <= 1.0 + tolerance
    far = vector(-np.logspace(np.log10(-2.0 * info.minexp), np.log10(float(info.max)) - 1, 50), dtype)
    run_exp2(far, out)
    assert out[: len(far)].max() <= info.tiny * (1 + tolerance)  # nothing, or the smallest normal number
    assert out[: len(far)].min() >= 0.0


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_log(dtype):
    x = positive(dtype, np.random.default_rng(1))
    near = vector(1.0 + np.linspace(-0.3, 0.4, 4001), dtype)
    for values in (x, near):
        out = aligned(values.shape, dtype)
        run_log(values, out)
        exact = np.log(values.astype(wide))
        error = np.abs(out - exact) / np.maximum(np.abs(exact), 1e-300)
        # the series of artanh, which has no constant error: ln 1 is 0, and near it all digits are right
        assert float(error[exact != 0].max()) < (1e-6 if dtype is np.float32 else 2e-15)
        assert (out[exact == 0] == 0).all()


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_exponent_and_mantissa(dtype):
    x = positive(dtype, np.random.default_rng(2))
    n, m = (aligned(x.shape, dtype) for _ in range(2))
    run_split(x, n, m)
    fraction, exponent = np.frexp(x)
    assert np.array_equal(m, 2 * fraction)
    assert np.array_equal(n, exponent - 1)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_rise_of_sizes_is_exact_to_rounding(dtype):
    """(|now| − |before|)·per_step to rounding of the larger one, and of the gap itself for like signs."""
    rng, eps = np.random.default_rng(3), np.finfo(dtype).eps
    before = vector(rng.normal(size=4096) * 10.0 ** rng.uniform(-6, 6, 4096), dtype)
    per_step = 1000.0
    gap = vector(rng.normal(size=4096) * 10.0 ** rng.uniform(-3, 9, 4096), dtype)
    now = vector(before.astype(wide) + gap.astype(wide) / per_step, dtype)
    out = aligned(now.shape, dtype)
    run_rise(now, before, gap, per_step, out)
    exact = (np.abs(before.astype(wide) + gap.astype(wide) / per_step) - np.abs(before.astype(wide))) * per_step
    alike = np.signbit(now) == np.signbit(before)
    assert alike.any()
    assert not alike.all()
    assert float(np.abs(out - exact)[alike].max() / np.abs(gap[alike]).max()) < eps
    across = np.abs(now) + np.abs(before)
    assert float((np.abs(out - exact) / (per_step * across))[~alike].max()) < 4 * eps


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_flips_are_accepted_with_the_metropolis_probability(dtype):
    rng = np.random.default_rng(4)
    n, info = 8192, np.finfo(dtype)
    gain = vector(
        np.concatenate([rng.normal(size=n // 2) * 4, rng.choice([-1, 1], n // 2) * np.logspace(-6, 30, n // 2)]), dtype
    )
    top, bottom = (vector(2.0 ** rng.uniform(0, 64, n), dtype) for _ in range(2))
    word = vector(rng.integers(0, 2**32, n, dtype=np.uint64), np.uint64)
    word[:4] = 0, 1, 2**32 - 2, 2**32 - 1
    out = aligned((n,), dtype)
    run_accept(gain, top, bottom, word, out)
    u = (word.astype(wide) + wide(0.5)) / wide(2) ** 32
    with np.errstate(over="ignore", under="ignore"):
        odds = np.exp2(gain.astype(wide)) * top.astype(wide) / bottom.astype(wide) / u  # accepted above 1
    doubtful = np.abs(odds - 1) < 64 * info.eps
    # what would be subnormal may come out as the smallest normal number, which no uniform is below
    assert np.array_equal((out == 1)[~doubtful], (odds > 1)[~doubtful])
    assert 0.2 < out.mean() < 0.8
    assert doubtful.mean() < 0.01


@njit
def run_splat(out):
    store(out, 0, splat(2.5))


def test_splat():
    out = aligned((LANES,), np.float64)
    run_splat(out)
    assert (out == 2.5).all()
