"""Audits of samples: β is found within its error, checks are quiet for Boltzmann samples and loud for others."""

import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import command
from scipy.optimize import minimize_scalar

import marginalis as mg
from marginalis.answers.audit import _of_reverse_chains

RNG = np.random.default_rng(6)
RBM = mg.rbm(RNG.normal(size=(4, 6)) * 0.6, 0.3 * RNG.normal(size=4), 0.2 * RNG.normal(size=6), temperature=1.3)


def drawn(model, n, factor=1.0, seed=1):
    """Exact samples at β times a factor."""
    return mg.sample(replace(model, temperature=model.temperature / factor), n, exact=True, seed=seed).rows


def audit(model, rows, **options):
    return mg.audit(model, rows, **{"steps": 60, "bounds": False, **options})


def energies(model, rows):
    """H without the temperature."""
    log_p = mg.log_likelihood(replace(model, temperature=1.0), rows, 0.0).per_sample
    return -log_p


@pytest.mark.parametrize("factor", [0.4, 1.0, 1.5])
def test_beta_is_found_within_its_error(factor):
    true = factor / RBM.temperature
    results = [audit(RBM, drawn(RBM, 400, factor, seed), seed=seed) for seed in range(8)]
    z = np.array([(r.beta - true) / r.stderr for r in results])
    assert np.abs(z).max() < 4.5
    assert (z**2).mean() < 3.5
    assert all(r.objections == () for r in results)
    assert all(abs(r.pseudo_beta - true) < 4.5 * r.pseudo_stderr for r in results)


def test_beta_is_where_the_likelihood_is_highest():
    rows = drawn(RBM, 5000)
    mean = energies(RBM, rows).mean()

    def cost(beta):
        return beta * mean + mg.exact_log_z(replace(RBM, temperature=1.0 / beta))

    best = minimize_scalar(cost, bracket=(0.5, 1.0), tol=1e-10).x
    found = audit(RBM, rows, chains=4000)
    assert found.beta == pytest.approx(best, abs=4.5 * found.curve.energy_error.max() / found.model_spread**2)
    assert found.energy == pytest.approx(mean, rel=1e-12)
    assert found.spread == pytest.approx(energies(RBM, rows).std(ddof=1), rel=1e-12)
    hot = replace(RBM, temperature=1.0 / found.beta)
    assert abs(found.log_z - mg.exact_log_z(hot)) < 4.5 * found.log_z_error + 1e-3


def test_pseudo_likelihood_by_its_definition():
    """Products of P(x_i | the rest), from energies with one variable flipped."""
    model = mg.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)], coupling=[0.5, -0.7, 0.3, 0.9], field=[0.2, 0.0, -0.4, 0.1])
    rows = drawn(model, 300)
    gaps = []
    for i in range(4):
        flipped = rows.copy()
        flipped[:, i] *= -1.0
        gaps.append(energies(model, flipped) - energies(model, rows))
    gaps = np.array(gaps)
    best = minimize_scalar(lambda beta: np.logaddexp(0.0, -beta * gaps).sum(), bracket=(0.5, 1.5), tol=1e-12).x
    assert audit(model, rows).pseudo_beta == pytest.approx(best, rel=1e-6)


def test_visible_rows_alone():
    """Their own likelihood, the hidden side summed out; there is no pseudo-likelihood."""
    results = [audit(RBM, drawn(RBM, 600, 1.2, seed)[:, :4], seed=seed) for seed in range(6)]
    z = np.array([(r.beta - 1.2 / RBM.temperature) / r.stderr for r in results])
    assert np.abs(z).max() < 4.5
    assert all(r.pseudo_beta is None and r.spread_z is None for r in results)


def test_verdicts_on_good_cold_and_mixed_samples():
    good = mg.audit(RBM, drawn(RBM, 500), steps=60)
    assert good.verdict.startswith("The samples agree with Boltzmann samples of the model: β = 0.7")
    assert good.bounds.lower < good.bounds.upper
    assert good.kl_at_least <= 4.5 * good.kl_error
    cold = audit(RBM, drawn(RBM, 3000, 1.3))
    assert "are colder than the model by" in cold.verdict
    difference = replace(RBM, temperature=1.0 / cold.beta)
    kl = mg.exact_log_z(RBM) - mg.exact_log_z(difference) + (cold.nominal - cold.beta) * cold.energy
    error = np.hypot(2**0.5 * cold.log_z_error, (cold.nominal - cold.beta) * cold.energy_error)
    assert abs(cold.kl_nominal - kl) < 4.5 * error
    mixed = audit(RBM, np.concatenate([drawn(RBM, 400, factor) for factor in (0.4, 2.0)]))
    assert "are not Boltzmann samples at any temperature" in mixed.verdict
    assert len(mixed.objections) == 3
    quenched = drawn(RBM, 400, 0.3)
    for _ in range(10):  # to the nearest local minimum of the energy
        quenched[:, 4:] = np.sign(RBM.hidden_bias + quenched[:, :4] @ RBM.weights)
        quenched[:, :4] = np.sign(RBM.visible_bias + quenched[:, 4:] @ RBM.weights.T)
    result = audit(RBM, quenched)
    assert result.pseudo_beta == np.inf
    assert "not Boltzmann" in result.verdict
    assert "local minima of the energy" in str(result)
    json.loads(result.to_json())


def test_frequencies_of_states():
    """Samples with the right energies and the wrong states: only their frequencies tell."""
    rng = np.random.default_rng(3)
    model = mg.from_matrix(np.triu(rng.choice([-1.0, 1.0], size=(6, 6)), 1), temperature=8.0)
    good = [audit(model, drawn(model, 2000, seed=seed), seed=seed) for seed in range(8)]
    assert all(r.objections == () for r in good)
    assert max(r.kl_at_least / r.kl_error for r in good) < 3.0
    half = drawn(model, 2000)
    half *= half[:, :1]  # One state of each pair of states of equal energy; all 32 are frequent enough to be counted.
    found = audit(model, half)
    assert found.kl_source == "frequencies of states"
    assert abs(found.kl_at_least - np.log(2.0)) < 4.5 * found.kl_error < 0.1
    assert found.objections == (
        f"their distribution differs from P at β by at least {found.kl_at_least:.2g} ± {found.kl_error:.1g} nats, "
        "by frequencies of states",
    )
    large = audit(mg.ising_grid((6, 6), temperature=3.0), np.sign(rng.normal(size=(100, 36))))
    assert large.kl_at_least is None  # No state occurs often, and there are no reverse chains.


@pytest.mark.parametrize("steps", [1, 500])
def test_divergence_is_a_lower_bound(steps):
    """Of half P at 0.4 β and half P at 2 β from P at the β that fits both."""
    rows = np.concatenate([drawn(RBM, 400, factor) for factor in (0.4, 2.0)])
    found = mg.audit(RBM, rows, steps=steps)
    states = np.array(np.meshgrid(*[[-1.0, 1.0]] * 10)).reshape(10, -1).T
    v, h = states[:, :4], states[:, 4:]
    energy = -(v @ RBM.visible_bias + h @ RBM.hidden_bias + ((v @ RBM.weights) * h).sum(axis=1))

    def p(beta):
        return np.exp(-beta * energy) / np.exp(-beta * energy).sum()

    q = 0.5 * (p(0.4 * found.nominal) + p(2.0 * found.nominal))
    exact = float((q * np.log(q / p(found.beta))).sum())
    assert found.kl_source == "frequencies of states"
    assert 3.3 * found.kl_error < found.kl_at_least < exact + 4.5 * found.kl_error
    by_reverse_chains = _of_reverse_chains(found.bounds)
    assert by_reverse_chains.value < exact + 4.5 * by_reverse_chains.stderr


def test_uniform_random_states_have_beta_zero():
    result = audit(RBM, np.sign(RNG.normal(size=(500, 10))))
    assert abs(result.beta) < 4.5 * result.stderr < 0.5
    assert "are hotter than the model, β may be zero: β = " in result.verdict


@pytest.mark.parametrize("nominal", [1e-4, 0.02, 50.0, 1e4])
def test_a_model_at_a_temperature_far_from_that_of_the_samples(nominal):
    result = audit(RBM.at_temperature(1.0 / nominal), drawn(RBM, 400))
    assert abs(result.beta - 1.0 / RBM.temperature) < 4.5 * result.stderr < 0.2
    ratio = result.beta / nominal
    assert f"by a factor of {max(ratio, 1.0 / ratio):.3g} in β" in result.verdict


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (np.ones((50, 10)), "samples are all the same state"),
        (np.sign(RNG.normal(size=(5, 10))), "there are 5 samples; at least 20 are needed"),
        ((drawn(RBM, 30) + 1) / 2, "spin units are -1 or"),
        (np.ones((50, 7)), "samples has 7 columns; the model has 4 visible features, and 10 in all"),
        (([[1] * 10] * 30, [f"x{i}" for i in range(10)]), "samples has a column 'x0', which is no label"),
    ],
)
def test_samples_that_are_refused(rows, problem):
    with pytest.raises(ValueError, match=problem):
        audit(RBM, rows)


def test_models_that_are_refused():
    with pytest.raises(ValueError, match="neither fields nor couplings: every β fits"):
        audit(mg.rbm(np.zeros((2, 2)), [0.0, 0.0], [0.0, 0.0]), np.sign(RNG.normal(size=(50, 4))))
    with pytest.raises(ValueError, match="audit supports discrete variables only"):
        audit(mg.rbm(np.zeros((2, 2)), [0.0, 0.0], [0.0, 0.0], units="gaussian"), RNG.normal(size=(50, 4)))
    with pytest.raises(ValueError, match="chains is 3; it must be at least 10"):
        audit(RBM, drawn(RBM, 30), chains=3)
    with pytest.raises(ValueError, match="bounds"):
        audit(RBM, drawn(RBM, 30), bounds="yes")
    with pytest.raises(ValueError, match=r"samples are colder than β = .*: their β is beyond the range"):
        audit(RBM.at_temperature(1e15), drawn(RBM, 30))
    with pytest.raises(ValueError, match="no β of 0 or more explains them; is the sign of the model right"):
        audit(mg.rbm(-RBM.weights, -RBM.visible_bias, -RBM.hidden_bias), drawn(RBM, 300))


def test_samples_of_an_annealer():
    """Exact samples of dwave-samplers at a known β, on a Chimera cell with its labels in another order."""
    samplers = pytest.importorskip("dwave.samplers")
    import dimod

    rng = np.random.default_rng(2)
    edges = {(f"a{i}", f"b{j}"): rng.choice([-1.0, 1.0]) for i in range(4) for j in range(4)}
    labels = sorted({x for edge in edges for x in edge}, reverse=True)
    bqm = dimod.BinaryQuadraticModel({x: rng.normal() / 3.0 for x in labels}, edges, "SPIN")
    found = samplers.TreeDecompositionSampler().sample(bqm, num_reads=2000, beta=0.8, seed=1)
    assert list(found.variables) != list(bqm.variables)
    result = audit(bqm, found)
    assert abs(result.beta - 0.8) < 4.5 * result.stderr
    assert result.objections == ()


def test_samples_of_openjij():
    """Of a polynomial of degree 3, annealed slowly to β = 0.8; every read needs a seed of its own."""
    openjij = pytest.importorskip("openjij")
    import dimod

    terms = {("a", "b", "c"): -1.0, ("a",): 0.3, ("b", "d"): 0.5, ("c", "d", "e"): 0.7}
    sampler, options = openjij.SASampler(), {"num_reads": 1, "num_sweeps": 300, "beta_min": 0.01, "beta_max": 0.8}
    found = dimod.concatenate([sampler.sample_hubo(terms, "SPIN", seed=k, **options) for k in range(1, 401)])
    polynomial = dimod.BinaryPolynomial(terms, "SPIN")
    result = mg.audit(polynomial, found, steps=60)
    assert abs(result.beta - 0.8) < 4.5 * result.stderr < 0.5
    assert result.objections == ()
    assert (result.nominal, result.samples) == (1.0, 400)


def qubits(kind):
    """A problem with ±J couplings and fields on a piece of a graph of D-Wave's annealers."""
    pytest.importorskip("dwave.samplers")
    import dimod
    from dwave import graphs

    graph = {"chimera": (3,), "pegasus": (2,), "zephyr": (1,)}[kind]
    graph = getattr(graphs, f"{kind}_graph")(*graph)
    rng = np.random.default_rng(5)
    linear = {x: rng.normal() / 4.0 for x in graph if graph.degree(x)}
    return dimod.BinaryQuadraticModel(linear, {e: rng.choice([-1.0, 1.0]) for e in graph.edges}, 0.0, "SPIN")


@pytest.mark.parametrize("kind", ["chimera", "pegasus", "zephyr"])
def test_samples_of_an_annealer_on_its_graphs(kind):
    """Long annealing ends with Boltzmann samples at the last β, a quench does not."""
    bqm = qubits(kind)
    from dwave.samplers import SimulatedAnnealingSampler

    def sampled(betas, sweeps):
        options = {"beta_schedule_type": "custom", "beta_schedule": betas, "num_sweeps_per_beta": sweeps}
        return SimulatedAnnealingSampler().sample(bqm, num_reads=1000, seed=3, **options)

    model = mg.from_bqm(bqm, temperature=1.0 / 0.7)
    slow = mg.audit(model, sampled(np.linspace(0.02, 0.7, 100), 10), steps=200)
    assert abs(slow.beta - 0.7) < 4.5 * slow.stderr < 0.1
    assert slow.objections == ()
    assert slow.bounds.lower < slow.bounds.upper
    hot = mg.audit(model, sampled(np.linspace(0.02, 0.6, 100), 10), steps=200)
    assert "are hotter than the model" in hot.verdict
    fast = audit(model, sampled(np.array([0.02, 2.0]), 1), steps=200)
    assert "not Boltzmann samples" in fast.verdict


def test_the_audit_command(tmp_path):
    mg.save(RBM, tmp_path / "m.npz")
    np.save(tmp_path / "s.npy", drawn(RBM, 300))
    flags = ("--steps", 60, "--no-bounds", "--seed", 2)
    done = command("audit", tmp_path / "m.npz", tmp_path / "s.npy", *flags, "--json", "--plot", tmp_path / "f.svg")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    wanted = audit(RBM, drawn(RBM, 300), seed=2)
    assert (answer["beta"], answer["verdict"]) == (wanted.beta, wanted.verdict)
    assert "mean energy of 300 samples" in (tmp_path / "f.svg").read_text()
    np.save(tmp_path / "s.npy", np.ones((30, 10)))
    done = command("audit", tmp_path / "m.npz", tmp_path / "s.npy")
    assert (done.returncode, done.stderr.strip()) == (
        2,
        "marginalis: samples are all the same state, which agrees with any low temperature",
    )
