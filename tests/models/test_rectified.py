"""Rectified units: numbers of high precision, quadrature, exact sums over the other side, files."""

import math
import pickle

import numpy as np
import pytest
from conftest import command, z_score
from scipy.integrate import dblquad, quad

import marginalis as mg
from marginalis.engines.plan import make_plan
from marginalis.models.units import Rectified

# gamma_plus, gamma_minus (None for a ReLU), theta_plus, theta_minus, field; then ln of the integral, mean and variance,
# as mpmath finds them with 300 digits.
PRECISE = [
    (1, 1, 0, 0, 0.0, 0.9189385332046727, 0.0, 1.0),
    (1, 1, 0, 0, -1.0, 1.418938533204673, -1.0, 1.0),
    (1, 1, 0, 0, 4.0, 8.918938533204673, 4.0, 1.0),
    (1, 1, 0, 0, -9.0, 41.41893853320467, -9.0, 1.0),
    (1, 1, 0, 0, 60.0, 1800.918938533205, 60.0, 1.0),
    (1, 1, 0, 0, -300.0, 45000.9189385332, -300.0, 1.0),
    (1, 1, 0, 0, 1000000.0, 500000000000.9189, 1000000.0, 1.0),
    (1, 1, 0, 0, -1000000.0, 500000000000.9189, -1000000.0, 1.0),
    (0.3, 2.5, 1.0, -2.0, 0.0, 3.279877129171823, 2.95141240972525, 4.567225956058077),
    (0.3, 2.5, 1.0, -2.0, -1.0, 2.451164411938041, -0.7104911786385199, 1.671104566019017),
    (0.3, 2.5, 1.0, -2.0, 4.0, 43.18759160203431, 16.66666666666667, 3.333333333333333),
    (0.3, 2.5, 1.0, -2.0, -9.0, 24.66079316726828, -4.399999999996825, 0.4000000000143972),
    (0.3, 2.5, 1.0, -2.0, 60.0, 6203.187591602035, 203.3333333333333, 3.333333333333333),
    (0.3, 2.5, 1.0, -2.0, -300.0, 18241.26079316727, -120.8, 0.4),
    (0.3, 2.5, 1.0, -2.0, 1000000.0, 1666670000003.188, 3333336.666666667, 3.333333333333333),
    (0.3, 2.5, 1.0, -2.0, -1000000.0, 200000800001.2608, -400000.8, 0.4),
    (0.25, None, 0, 0, 0.0, 0.9189385332046727, 1.595769121605731, 1.453520910529675),
    (0.25, None, 0, 0, -1.0, -0.1710986199174139, 0.7464310656456817, 0.457116401656325),
    (0.25, None, 0, 0, 4.0, 33.61208571376462, 16.00000000000001, 3.999999999999838),
    (0.25, None, 0, 0, -9.0, -2.200287536949562, 0.1104355896161211, 0.01212275436577997),
    (0.25, None, 0, 0, 60.0, 7201.612085713765, 240.0, 4.0),
    (0.25, None, 0, 0, -300.0, -5.703785252414689, 0.003333314815072011, 1.11109259302125e-5),
    (0.25, None, 0, 0, 1000000.0, 2000000000001.612, 4000000.0, 4.0),
    (0.25, None, 0, 0, -1000000.0, -13.81551055796452, 9.999999999995e-7, 9.999999999985e-13),
]
ONE_SIDED, TWO_SIDED = mg.ReLU(1.5), mg.dReLU(1.0, 2.0, 0.3, -0.4)


@pytest.fixture(autouse=True)
def on_the_reference(monkeypatch):
    """Most of these tests are about the units, and need no kernel compiled."""
    monkeypatch.setenv("MARGINALIS_ENGINE", "numpy")


def a_kind(gamma_plus, gamma_minus, theta_plus, theta_minus):
    return mg.ReLU(gamma_plus) if gamma_minus is None else mg.dReLU(gamma_plus, gamma_minus, theta_plus, theta_minus)


@pytest.mark.parametrize("row", PRECISE, ids=str)
def test_sums_and_moments_keep_their_digits_in_the_far_tails(row):
    *parameters, field, log_z, mean, variance = row
    kind, fields = a_kind(*parameters), np.array([[field]])
    assert kind.log_normaliser(fields)[0] == pytest.approx(log_z, rel=1e-12)
    assert kind.mean(fields)[0, 0] == pytest.approx(mean, rel=1e-11, abs=1e-15)
    assert kind.response(fields, np.ones((1, 1)))[0, 0] == pytest.approx(variance, rel=1e-11)


# Parameters and field as above; mean and variance of hx − γh²/2 + θh, as mpmath finds them with 300 digits.
EXPONENTS = [
    (1, 1, 0, 0, 0.0, -0.5, 0.5),
    (1, 1, 0, 0, 4.0, 7.5, 0.5),
    (1, 1, 0, 0, -300.0, 44999.5, 0.5),
    (0.3, 2.5, 1.0, -2.0, 0.0, 1.141214847935416, 0.4072573769545606),
    (0.3, 2.5, 1.0, -2.0, -1.0, 0.9967025864336642, 0.9280880742348224),
    (0.3, 2.5, 1.0, -2.0, 60.0, 6201.166666666667, 0.5),
    (0.3, 2.5, 1.0, -2.0, -300.0, 18240.3, 0.5),
    (0.25, None, 0, 0, 0.0, -0.5, 0.5),
    (0.25, None, 0, 0, -1.0, -0.8732155328228409, 0.8008868668255017),
    (0.25, None, 0, 0, 4.0, 31.50000000000002, 0.4999999999993432),
    (0.25, None, 0, 0, -9.0, -0.996960153272545, 0.9939658525433169),
    (0.25, None, 0, 0, 60.0, 7199.5, 0.5),
    (0.25, None, 0, 0, -300.0, -0.9999972222608017, 0.999994444560182),
    (0.25, None, 0, 0, -1000000.0, -0.99999999999975, 0.9999999999995),
]


@pytest.mark.parametrize("row", EXPONENTS, ids=str)
def test_moments_of_the_exponent_keep_their_digits_in_the_far_tails(row):
    *parameters, field, mean, variance = row
    found = a_kind(*parameters).exponents(np.array([[field]]))
    assert (found[0][0], found[1][0]) == (pytest.approx(mean, rel=1e-12), pytest.approx(variance, rel=1e-11))


@pytest.mark.parametrize("kind", [ONE_SIDED, TWO_SIDED, mg.dReLU(0.2, 3.0, -4.0, 2.0)])
def test_draws_invert_the_distribution_function(kind):
    for field in (-40.0, -5.0, 0.0, 3.0, 30.0):
        u = np.array([1e-9, 1e-3, 0.2, 0.5, 0.9, 0.9999])
        h = kind.draw(np.full((len(u), 1), field), u[:, None])[:, 0]
        assert (np.diff(h) > 0.0).all()
        log_z = kind.log_normaliser(np.array([[field]]))[0]

        def density(x, field=field, log_z=log_z):
            return math.exp(kind.own_terms(np.array([[x]]))[0] + field * x - log_z)

        low = 0.0 if kind.is_nonnegative else -math.inf
        for a, b, x, y in zip(h, h[1:], u, u[1:], strict=False):
            assert quad(density, a, b, points=[0.0] if a < 0.0 < b else None)[0] == pytest.approx(y - x, rel=1e-6)
        assert quad(density, low, h[3], points=None if low else [0.0])[0] == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("kind", [ONE_SIDED, TWO_SIDED])
def test_fields_of_means(kind):
    fields = np.array([[-30.0, -3.0, 0.0, 2.0, 50.0]])
    assert kind.fields_of(kind.mean(fields)) == pytest.approx(fields, abs=1e-9)
    assert kind.inside(np.zeros((1, 3)), 0.96).shape == (1, 3)


def model_of(rng, units, shape=(3, 4), scale=0.6, temperature=1.0):
    w, b, c = (scale * rng.normal(size=n) for n in (shape, shape[0], shape[1]))
    return mg.rbm(w, b, c, units=units, temperature=temperature)


@pytest.mark.parametrize("units", [("spin", TWO_SIDED), (ONE_SIDED, "binary"), ("categorical:2", ONE_SIDED)])
def test_exact_sums_against_quadrature(units):
    """Two units on either side, integrated numerically for every state of the discrete side."""
    rng = np.random.default_rng(0)
    model = model_of(rng, units, (2, 2), temperature=1.4)
    rectified_first = not isinstance(units[0], str)
    side = model.transposed() if rectified_first else model
    kind, t = side.hidden_units, model.temperature
    states = {"spin": [[-1, -1], [-1, 1], [1, -1], [1, 1]], "binary": [[0, 0], [0, 1], [1, 0], [1, 1]]}
    ends = [(0.0, math.inf)] if kind.is_nonnegative else [(-math.inf, 0.0), (0.0, math.inf)]
    total = 0.0
    for v in states.get(side.visible_units.name, [[1, 0], [0, 1]]):
        own = math.exp(np.array(v) @ side.visible_bias / t)
        for field in side.hidden_bias + np.array(v) @ np.asarray(side.weights):

            def density(h, field=field):
                return math.exp((h * field + kind.own_terms(np.array([[h]]))[0]) / t)

            own *= sum(quad(density, *x, epsabs=1e-13, epsrel=1e-12)[0] for x in ends)
        total += own
    assert mg.exact_log_z(model) == pytest.approx(math.log(total), rel=1e-9)


PAIRS = [
    ("spin", ONE_SIDED),
    (TWO_SIDED, "binary"),
    ("categorical:2", TWO_SIDED),
    (mg.dReLU([1.0, 0.5, 2.0], 2.0, 0.3, [0.0, -1.0, 1.0]), "spin"),
]


@pytest.mark.parametrize("method", ["mais-v", "mais-h", "ais"])
@pytest.mark.parametrize("units", PAIRS, ids=str)
def test_weights_are_unbiased(units, method):
    model = model_of(np.random.default_rng(1), units, (4, 4) if "categorical:2" in units else (3, 4), temperature=0.8)
    r = mg.estimate(model, method=method, steps=5, chains=4000, seed=2)
    assert abs(z_score(np.exp(r.log_weights + r.log_z0 - mg.exact_log_z(model)), 1.0)) < 4.5


def test_two_real_sides_by_both_methods():
    """No exact sum: the two marginals agree, and a Gaussian side can be integrated out by hand."""
    rng = np.random.default_rng(3)
    for units in (("gaussian", TWO_SIDED), (ONE_SIDED, TWO_SIDED)):
        model = model_of(rng, units, (2, 3), scale=0.3)
        a, b = (mg.estimate(model, method=method, steps=30, chains=1000) for method in ("mais-v", "mais-h"))
        assert abs(a.log_z - b.log_z) < 4.5 * math.hypot(a.stderr, b.stderr)
    w, c = 0.5, 0.2
    model = mg.rbm([[w]], [0.0], [c], units=("gaussian", TWO_SIDED))

    def density(h):
        return math.sqrt(2.0 * math.pi) * math.exp(0.5 * (w * h) ** 2 + c * h + TWO_SIDED.own_terms(np.array([[h]]))[0])

    r = mg.estimate(model, steps=30, chains=2000)
    exact = sum(quad(density, *ends)[0] for ends in ((-math.inf, 0.0), (0.0, math.inf)))
    assert abs(r.log_z - math.log(exact)) < 4.5 * r.stderr


def test_every_answer_supports_rectified_units():
    rng = np.random.default_rng(5)
    model, near = (model_of(rng, ("spin", TWO_SIDED), (3, 3)) for _ in range(2))
    exact = mg.exact_log_z(model)
    for base in ("biases", "mean-field", near):
        for turned in (model, model.transposed()) if isinstance(base, str) else (model,):
            r = mg.estimate(turned, base=base, steps=30, chains=500)
            assert abs(r.log_z - exact) < 4.5 * r.stderr
    bounds = mg.bound(model, steps=30, chains=300)
    assert bounds.lower < -exact < bounds.upper
    got, wanted = (mg.expectations(model, exact=way, **run) for way, run in ((False, dict(steps=30)), (True, {})))
    assert (np.abs(got.means - wanted.means) < 4.5 * got.mean_errors).all()
    assert (np.abs(got.correlations - wanted.correlations) < 4.5 * got.correlation_errors).all()
    d = mg.difference(model, near, steps=20, chains=300)
    assert abs(d.log_ratio - mg.exact_log_z(near) + exact) < 4.5 * d.stderr
    rows = mg.sample(model, 2000, seed=1).rows
    for feature, mean in enumerate(wanted.means):
        assert abs(z_score(rows[:, feature], mean)) < 4.5
    turned = model.transposed()
    h = rows[:5, 3:]
    terms = h @ turned.visible_bias + TWO_SIDED.own_terms(h)
    terms += np.log(2.0 * np.cosh(turned.hidden_bias + h @ np.asarray(turned.weights))).sum(axis=1)
    assert mg.log_likelihood(turned, h).per_sample == pytest.approx(terms - exact)
    assert pickle.loads(pickle.dumps(TWO_SIDED)) == TWO_SIDED
    assert "3 spins + 3 dReLU units" in str(model)


@pytest.mark.parametrize("units", PAIRS + [(ONE_SIDED, TWO_SIDED)], ids=str)
def test_files_keep_rectified_units(tmp_path, units):
    model = model_of(np.random.default_rng(1), units, (4, 4) if "categorical:2" in units else (3, 3), 0.3, 1.1)
    mg.save(model, tmp_path / "m.npz")
    same = mg.load(tmp_path / "m.npz")
    assert (same.visible_units, same.hidden_units) == (model.visible_units, model.hidden_units)
    a, b = (mg.estimate(m, steps=3, chains=20) for m in (model, same))
    assert a == b
    assert "relu" in command("info", tmp_path / "m.npz").stdout


def test_a_file_with_wrong_parameters_is_refused(tmp_path):
    model = model_of(np.random.default_rng(1), ("spin", TWO_SIDED))
    mg.save(model, tmp_path / "m.npz")
    arrays = dict(np.load(tmp_path / "m.npz"))
    for change, message in (
        ({"hidden_gamma_plus": np.array([-1.0])}, "gamma_plus must be positive and finite"),
        ({"hidden_gamma_plus": np.ones(3)}, "has 3 numbers; it must have 1 or 4"),
        ({"hidden_theta_plus": np.array([np.nan])}, "theta_plus must be finite"),
        ({"hidden_theta_plus": None}, "it needs the keys hidden_gamma_plus, hidden_gamma_minus"),
    ):
        np.savez(tmp_path / "bad.npz", **{k: x for k, x in (arrays | change).items() if x is not None})
        with pytest.raises(ValueError, match=message):
            mg.load(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mg.ReLU(0.0), "gamma is 0.0; it must be positive"),
        (lambda: mg.ReLU([]), "gamma is empty"),
        (lambda: mg.dReLU(1.0, math.inf), "gamma_minus holds NaN or infinite values"),
        (lambda: mg.dReLU(theta_plus="a"), "theta_plus has dtype"),
        (lambda: mg.rbm(np.zeros((2, 3)), [0, 0], [0] * 3, units=("spin", mg.ReLU([1, 2]))), "gamma has length 2"),
        (lambda: mg.rbm([[2.0]], [0], [0], units=(ONE_SIDED, ONE_SIDED)), "this ReLU model not normalisable"),
        (lambda: mg.rbm([[2.0]], [0], [0], units=("gaussian", TWO_SIDED)), "this Gaussian and dReLU model not norm"),
        (lambda: mg.rbm([[1.0]], [0], [0], units="relu"), "or mg.ReLU"),
        (lambda: mg.log_likelihood(mg.rbm([[1.0]], [0], [0], units=(ONE_SIDED, "spin")), [[-1.0]]), "are 0 or larger"),
    ],
)
def test_invalid_rectified_units_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_negative_couplings_of_two_one_sided_sides_are_normalisable():
    model = mg.rbm([[-5.0]], [0.0], [0.0], units=(ONE_SIDED, ONE_SIDED))

    def density(y, x):
        return math.exp(-5.0 * x * y - 0.75 * (x * x + y * y))

    r = mg.estimate(model, steps=30, chains=1000)
    assert abs(r.log_z - math.log(dblquad(density, 0.0, 10.0, 0.0, 10.0)[0])) < 4.5 * r.stderr


def test_variables_change_places():
    kind = mg.dReLU([1.0, 2.0, 3.0], 0.5, [0.1, 0.2, 0.3], 0.0)
    assert kind.take(np.array([2, 0])) == Rectified((3.0, 1.0), (0.5,), (0.3, 0.1), (0.0,))
    both = kind.joined(mg.ReLU(7.0), (3, 1), np.array([3, 0, 1, 2]))
    assert both.gamma_plus == (7.0, 1.0, 2.0, 3.0)
    assert both.gamma_minus == (math.inf, 0.5, 0.5, 0.5)
    assert both.name == "drelu"


def compared(units, method, **options):
    """Log-weights by the kernel and by the reference."""
    model = model_of(np.random.default_rng(4), units, (4, 6), 0.3, 1.3)
    run = dict(precision="double", method=method, steps=20, chains=100, seed=3) | options
    return [mg.estimate(model, engine=engine, **run).log_weights for engine in ("numba", "numpy")]


def test_the_kernel_draws_what_the_reference_draws():
    """Both kinds, sampled and summed, in the far tails too."""
    fast, slow = compared((mg.dReLU(1.0, 2.0, [9.0, -9.0, 0.3, 0.0], [9.0, 9.0, -0.4, 0.0]), ONE_SIDED), "ais")
    assert np.abs(fast - slow).max() < 1e-9


@pytest.mark.parametrize("units", [("spin", ONE_SIDED), ("spin", mg.dReLU(1.0, 2.0, [9.0, -9.0, 0.3, 0, 2, 0], 1.5))])
def test_single_precision_draws_the_same_up_to_rounding(units):
    """Fields on both sides of zero and in both tails; the largest α are about 10."""
    fast, slow = compared(units, "mais-v", precision="single")
    off = np.abs(fast - slow)
    assert 0.0 < np.median(off) < 1e-5
    assert np.mean(off < 1e-4) >= 0.97


def test_single_precision_is_refused_where_squares_of_fields_lose_their_digits():
    for model, precision in (
        (model_of(np.random.default_rng(4), ("spin", ONE_SIDED), (4, 6), 0.3), "single"),
        (model_of(np.random.default_rng(4), ("spin", ONE_SIDED), (4, 6), 200.0), "double"),
        (model_of(np.random.default_rng(4), (TWO_SIDED, ONE_SIDED), (4, 6), 0.1), "double"),
    ):
        plan = make_plan(model, steps=100, chains=10, engine="numba", precision="single")
        assert plan.placement.precision == precision


@pytest.mark.study
@pytest.mark.parametrize("method", ["mais-v", "mais-h", "ais"])
@pytest.mark.parametrize("units", [*PAIRS[:3], ("gaussian", mg.ReLU(2.0)), (mg.ReLU(2.0), mg.dReLU(3.0, 2.0))], ids=str)
def test_the_kernel_draws_what_the_reference_draws_on_all_pairs(units, method):
    fast, slow = compared(units, method)
    assert np.mean(np.abs(fast - slow) < 1e-9) >= 0.97


@pytest.mark.study
def test_a_mixture_and_the_default_path():
    model = model_of(np.random.default_rng(5), (TWO_SIDED, "spin"), (5, 3))
    exact = mg.exact_log_z(model)
    for options in (dict(base="quenches", steps=30), {}, dict(tolerance=0.05)):
        r = mg.estimate(model, engine="numba", **options)
        assert abs(r.log_z - exact) < 4.5 * r.stderr


@pytest.mark.study
@pytest.mark.parametrize("method", ["mais-v", "mais-h", "ais"])
def test_estimates_of_many_small_models(method):
    rng = np.random.default_rng(7)
    z, covered = [], []
    for seed in range(170):
        scalar = rng.uniform(0.3, 3.0, 2)
        kind = mg.ReLU(scalar[0]) if rng.integers(2) else mg.dReLU(*scalar, *rng.normal(size=2))
        other = ["spin", "binary"][rng.integers(2)]
        units = (other, kind) if rng.integers(2) else (kind, other)
        model = model_of(rng, units, tuple(rng.integers(1, 5, 2)), rng.choice([0.3, 0.6, 1.0]), rng.choice([0.7, 1.0]))
        r = mg.estimate(model, method=method, steps=int(rng.choice([10, 50])), chains=400, seed=seed)
        if not r.warnings:
            off = r.free_energy + mg.exact_log_z(model)
            if r.ess > 100.0:  # Fewer weights that count are skewed, which the interval allows for.
                z.append(off / max(r.stderr, 1e-9))
            covered.append(r.interval[0] <= -mg.exact_log_z(model) <= r.interval[1])
    assert np.abs(z).max() < 4.5
    assert 0.85 < np.std(z) < 1.15
    assert np.mean(covered) > 0.92
