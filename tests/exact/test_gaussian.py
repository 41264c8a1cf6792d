"""Gaussian closed forms against dense linear algebra, brute force and the reference file."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import LCG
from hypothesis import given, settings
from hypothesis import strategies as st

import marginalis as mg
from marginalis.exact import gaussian
from marginalis.exact.gaussian import gaussian_discrete_log_z, gaussian_gaussian_log_z, integrate_out


def by_inverse(w, b, c, p, q, lateral=0.0):
    joint = np.block([[np.diag(p) - lateral, -w], [-w.T, np.diag(q)]])
    beta = np.concatenate([b, c])
    log_det = np.linalg.slogdet(joint)[1]
    return 0.5 * (len(beta) * math.log(2 * math.pi) - log_det + beta @ np.linalg.solve(joint, beta))


def model(rng, n, m, strength):
    """Two sides whose precision matrix has its smallest scaled eigenvalue at 1 − strength."""
    p, q = np.exp(rng.normal(size=n)), np.exp(rng.normal(size=m))
    w = rng.normal(size=(n, m))
    w *= strength / np.linalg.norm(w, 2)
    return w * np.sqrt(np.outer(p, q)), rng.normal(size=n), rng.normal(size=m), p, q


def coupled(rng, n, m, strength):
    """The same with couplings among the units of the first side."""
    p, q = np.exp(rng.normal(size=n)), np.exp(rng.normal(size=m))
    joint = np.triu(rng.normal(size=(n + m, n + m)), 1)
    joint[n:, n:] = 0.0
    joint += joint.T
    joint *= strength / max(np.linalg.eigvalsh(joint)[-1], 1e-300)
    lateral, w = (x * np.sqrt(np.outer(p, y)) for x, y in ((joint[:n, :n], p), (joint[:n, n:], q)))
    return w, rng.normal(size=n), rng.normal(size=m), p, q, lateral


sides = st.integers(1, 12)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), sides, sides, st.sampled_from([0.0, 0.3, 0.9, 0.999]))
def test_gaussian_log_z_agrees_with_the_inverse_matrix(seed, n, m, strength):
    w, *rest = model(np.random.default_rng(seed), n, m, strength)
    expected = by_inverse(w, *rest)
    for weights in (w, sp.csr_matrix(w), sp.csr_array(w)):
        assert gaussian_gaussian_log_z(weights, *rest) == pytest.approx(expected, rel=1e-10, abs=1e-10)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), sides, sides, st.sampled_from([0.0, 0.3, 0.9, 0.999]))
def test_couplings_inside_a_side(seed, n, m, strength):
    w, *rest, lateral = coupled(np.random.default_rng(seed), n, m, strength)
    expected = by_inverse(w, *rest, lateral)
    for form in (np.array, sp.csr_array):
        assert gaussian_gaussian_log_z(form(w), *rest, form(lateral)) == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.fixture
def always_sparse(monkeypatch):
    monkeypatch.setattr(gaussian, "_DENSE_SIDE", 0)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 9), (30, 20)])
def test_sparse_factorisation(always_sparse, n, m):
    w, *rest = model(np.random.default_rng(1), n, m, 0.9)
    w[abs(w) < 0.02] = 0.0
    assert gaussian_gaussian_log_z(sp.csr_matrix(w), *rest) == pytest.approx(by_inverse(w, *rest), rel=1e-11)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (9, 5), (20, 30)])
def test_sparse_factorisation_with_couplings_inside(always_sparse, n, m):
    w, *rest, lateral = coupled(np.random.default_rng(1), n, m, 0.7)
    w[abs(w) < 0.02] = lateral[abs(lateral) < 0.02] = 0.0
    expected = by_inverse(w, *rest, lateral)
    assert gaussian_gaussian_log_z(sp.csr_array(w), *rest, sp.csr_array(lateral)) == pytest.approx(expected, rel=1e-11)


def test_large_triangular_lattice():
    """A torus: its precision matrix is diagonal in the Fourier modes."""
    n, coupling = 99, 0.14
    site = np.arange(n * n).reshape(n, n)
    ends = [np.roll(site, shift, axis=axis).ravel() for shift, axis in ((-1, 1), (-1, 0), ((-1, -1), (0, 1)))]
    edges = np.concatenate([np.stack([site.ravel(), end], axis=1) for end in ends])
    model = mg.from_edges(edges, coupling=coupling, field=0.3, units="gaussian", precision=1.1)
    assert not model.is_bipartite
    a, b = np.meshgrid(*[2 * np.pi * np.arange(n) / n] * 2)
    modes = 1.1 - 2 * coupling * (np.cos(a) + np.cos(b) + np.cos(a + b))
    expected = 0.5 * (n * n * np.log(2 * np.pi) - np.log(modes).sum() + n * n * 0.3**2 / modes[0, 0])
    found = mg.exact_log_z(model)
    assert found.method == "gaussian"
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_factor_that_would_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(gaussian, "_MOST_ENTRIES", 1 << 20)
    n = 6000
    rng = np.random.default_rng(5)
    edges = rng.integers(0, n, size=(3 * n, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    model = mg.from_edges(edges, coupling=0.02, n=n, units="gaussian")
    with pytest.raises(mg.ModelTooLarge, match="a Gaussian closed form would take longer"):
        mg.exact_log_z(model, method="gaussian")


def test_large_sparse():
    # rings of four, alternating sides, all alike
    n = 8000
    w = sp.kron(sp.identity(n // 2), np.array([[0.3, 0.4], [0.2, 0.1]]), format="csr")
    b, c = np.tile([0.5, -0.3], n // 2), np.tile([0.1, 0.7], n // 2)
    ones = np.ones(2)
    expected = n // 2 * by_inverse(w[:2, :2].toarray(), b[:2], c[:2], ones, ones)
    assert gaussian_gaussian_log_z(w, b, c, np.ones(n), np.ones(n)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("form", [np.array, sp.csr_matrix])
@pytest.mark.parametrize("strength", [1.0, 1.0 + 1e-9, 1.5, 100.0, 1.0 - 1e-15])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (6, 4), (20, 30)])
def test_not_normalisable(form, strength, n, m):
    w, *rest = model(np.random.default_rng(2), n, m, strength)
    with pytest.raises(ValueError, match="not positive definite"):
        gaussian_gaussian_log_z(form(w), *rest)


@pytest.mark.parametrize("strength", [1.0, 1.5, 100.0, 1.0 - 1e-15])
def test_not_normalisable_sparse(always_sparse, strength):
    w, *rest = model(np.random.default_rng(2), 6, 4, strength)
    with pytest.raises(ValueError, match="not positive definite"):
        gaussian_gaussian_log_z(sp.csr_matrix(w), *rest)


def test_integrating_out_one_unit():
    j, linear, constant = integrate_out(np.zeros((1, 0)), np.array([3.0]), np.array([2.0]))
    assert (j.shape, linear.shape) == ((0, 0), (0,))
    assert constant == pytest.approx(0.5 * math.log(math.pi) + 9 / 4, rel=1e-15)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 8),
    st.integers(1, 7),
    st.sampled_from([0.3, 3.0, 100.0]),
    st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (2.0, -0.5)]),
)
def test_discrete_side(seed, n, m, scale, values):
    rng = np.random.default_rng(seed)
    w, b, c, p = (
        scale * rng.normal(size=(n, m)),
        rng.normal(size=n),
        scale * rng.normal(size=m),
        np.exp(rng.normal(size=n)),
    )
    exponents = []
    for x in itertools.product(values, repeat=m):
        field = b + w @ x
        exponents.append(c @ x + 0.5 * (np.log(2 * np.pi / p) + field**2 / p).sum())
    expected = np.logaddexp.reduce(exponents)
    for weights in (w, sp.csr_matrix(w)):
        result = gaussian_discrete_log_z(weights, b, p, c, values)
        assert result == pytest.approx(expected, rel=1e-12, abs=1e-12 * scale**2)


def test_sums_in_chunks_agree(monkeypatch):
    rng = np.random.default_rng(5)
    args = 0.3 * rng.normal(size=(4, 11)), rng.normal(size=4), np.ones(4), rng.normal(size=11), (-1.0, 1.0)
    expected = gaussian_discrete_log_z(*args)
    monkeypatch.setattr(gaussian, "_CHUNK_BITS", 7)
    assert gaussian_discrete_log_z(*args) == pytest.approx(expected, rel=1e-14)


def test_reference_discrete(reference):
    lcg = LCG(12)
    a, sigma = lcg.normal(0.5, 30), lcg.uniform(0.7, 1.3, 30)
    c, w = lcg.normal(0.5, 8), lcg.normal(0.3, 30, 8)
    p = 1.0 / sigma**2
    result = gaussian_discrete_log_z(p[:, None] * w, p * a, p, c, (0.0, 1.0)) - 0.5 * (p * a**2).sum()
    assert result == pytest.approx(reference["rbm_gaussvis30_bernhid8"]["logZ"], rel=1e-12)


def test_reference_gaussian(reference):
    lcg = LCG(14)
    b, c, w = lcg.normal(0.5, 10), lcg.normal(0.5, 7), lcg.normal(0.1, 10, 7)
    expected = reference["rbm_gauss_gauss_10x7"]["logZ"]
    for form in (np.array, sp.csr_matrix):
        result = gaussian_gaussian_log_z(form(w), b, c, np.ones(10), np.ones(7))
        assert result == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"W": np.zeros((3, 2))}, r"W must have shape \(2, 3\), got \(3, 2\)"),
        ({"W": np.full((2, 3), np.nan)}, "W must be finite"),
        ({"b": np.array([0.0, np.inf])}, "b must be a vector of finite numbers"),
        ({"precision_v": np.ones(3)}, "precision_v must hold 2 finite numbers"),
        ({"precision_h": np.array([1.0, 0.0, 1.0])}, "precision_h must be positive, got 0.0"),
        ({"precision_v": np.array([1.0, -2.0])}, "precision_v must be positive, got -2.0"),
    ],
)
def test_bad_input(change, message):
    good = {
        "W": np.zeros((2, 3)),
        "b": np.zeros(2),
        "c": np.zeros(3),
        "precision_v": np.ones(2),
        "precision_h": np.ones(3),
    }
    with pytest.raises(ValueError, match=message):
        gaussian_gaussian_log_z(**(good | change))


def test_bad_discrete_input():
    with pytest.raises(ValueError, match="c must hold 3 finite numbers"):
        gaussian_discrete_log_z(np.zeros((2, 3)), np.zeros(2), np.ones(2), np.zeros(2), (0.0, 1.0))
    with pytest.raises(ValueError, match="precision must be positive"):
        integrate_out(np.zeros((2, 3)), np.zeros(2), np.zeros(2))


def in_fractions(w, b, c, p, q, lateral=None):
    """ln Z by elimination without any rounding."""
    n, m = w.shape
    size = n + m
    rows = [[Fraction(0)] * size for _ in range(size)]
    for i, x in enumerate([*p, *q]):
        rows[i][i] = Fraction(x)
    for i, j in itertools.product(range(n), range(m)):
        rows[i][n + j] = rows[n + j][i] = -Fraction(w[i, j])
    if lateral is not None:
        for i, j in itertools.permutations(range(n), 2):
            rows[i][j] = -Fraction(lateral[i, j])
    right = [Fraction(x) for x in [*b, *c]]
    log_det, quadratic = 0.0, Fraction(0)
    for k in range(size):
        assert rows[k][k] > 0
        log_det += math.log(rows[k][k])
        quadratic += right[k] ** 2 / rows[k][k]
        for i in range(k + 1, size):
            ratio = rows[i][k] / rows[k][k]
            rows[i] = [x - ratio * y for x, y in zip(rows[i], rows[k], strict=True)]
            right[i] -= ratio * right[k]
    return 0.5 * (size * math.log(2 * math.pi) - log_det + float(quadratic))


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-7, 1e-8, 1e-9])
@pytest.mark.parametrize("linear", [0.0, 1e-4, 1.0])
def test_near_singularity_nine_digits_are_right(gap, linear):
    """Double precision loses them from a gap of about 10⁻⁶ on; then the sum is repeated in extended precision."""
    for seed in range(4):
        w, b, c, p, q = model(np.random.default_rng(seed), 4, 3, 1.0 - gap)
        args = w, linear * b, linear * c, p, q
        assert gaussian_gaussian_log_z(*args) == pytest.approx(in_fractions(*args), rel=1e-9, abs=1e-9)
        w, b, c, p, q, lateral = coupled(np.random.default_rng(seed), 3, 3, 1.0 - gap)
        lateral = np.triu(lateral) + np.triu(lateral).T  # as it is given, to the last bit
        args = w, linear * b, linear * c, p, q, lateral
        assert gaussian_gaussian_log_z(*args) == pytest.approx(in_fractions(*args), rel=1e-9, abs=1e-9)


def test_refused_where_nine_digits_would_take_too_long(monkeypatch):
    monkeypatch.setattr(gaussian, "_MOST_EXTENDED", 0)
    with pytest.raises(ValueError, match="so nearly singular that ln Z"):
        gaussian_gaussian_log_z(*model(np.random.default_rng(0), 4, 3, 1.0 - 1e-9))
