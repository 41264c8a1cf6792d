"""Bennett's estimate against pymbar and closed forms, and how often its interval covers."""

import math

import numpy as np
import pytest
from conftest import random_rbm

import marginalis as mg
from marginalis.answers.bounds import bennett
from marginalis.exact.sampling import sample_visible
from marginalis.examples import rbm_hopfield

LINEAR5 = np.linspace(0, 1, 6)


def test_bennetts_intervals_cover_at_the_promised_rate():
    rng = np.random.default_rng(0)
    missed, widths = 0, []
    for seed in range(300):
        model = random_rbm(rng, 4, 5, scale=rng.uniform(0.3, 1.5))
        method = ("ais", "mais-v", "mais-h")[seed % 3]
        b = mg.bound(model, method=method, steps=30, chains=64, seed=seed)
        low, high = b.interval
        missed += not low <= -mg.exact_log_z(model) <= high
        widths.append(b.upper - b.lower)
    assert min(widths) > 0.0
    assert np.median(widths) < 2.0
    assert abs(missed - 15) <= 3.5 * math.sqrt(300 * 0.05 * 0.95)


@pytest.mark.parametrize(("n_forward", "n_reverse"), [(400, 400), (1000, 150)])
def test_bennett_agrees_with_pymbar(n_forward, n_reverse):
    pymbar = pytest.importorskip("pymbar")
    model = rbm_hopfield(6, 9, temperature=0.4, seed=1)
    v, _ = sample_visible(model, 5, np.arange(n_reverse, dtype=np.uint64))
    b = mg.bound(model, v, method="mais-v", steps=10, chains=n_forward)
    theirs = pymbar.bar(-b.forward.log_weights, -b.reverse_log_weights)
    assert b.free_energy + b.forward.log_z0 == pytest.approx(theirs["Delta_f"], abs=1e-6)
    assert b.stderr == pytest.approx(theirs["dDelta_f"], rel=1e-5)


def test_bennett_of_gaussian_works():
    """Works N(Δ ± s²/2, s²) obey Crooks' relation exactly."""
    rng = np.random.default_rng(0)
    delta, s = 3.0, 1.5
    z = []
    for _ in range(300):
        forward = rng.normal(delta + s**2 / 2, s, 100)
        reverse = rng.normal(-delta + s**2 / 2, s, 200)
        found = bennett(forward, reverse)
        z.append((found.difference - delta) / found.stderr)
    assert abs(np.mean(z)) < 4.5 / math.sqrt(300)
    assert abs(np.std(z) - 1) < 0.2
    far = bennett(forward + 500.0, reverse)
    assert math.isfinite(far.difference)
    assert far.overlap < 20


def test_copies_of_one_start_count_as_one():
    rng = np.random.default_rng(1)
    forward, reverse = rng.normal(1.5, 1.0, 100), rng.normal(-0.5, 1.0, 100)
    once, twice = bennett(forward, reverse), np.arange(200) // 2
    assert bennett(forward[twice], reverse[twice], twice, twice) == pytest.approx(once)
    assert bennett(forward[twice], reverse[twice]).stderr == pytest.approx(once.stderr / math.sqrt(2))
