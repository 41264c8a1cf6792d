"""Every answer about models whose factors join three or more variables, against sums over all states."""

import itertools
import json

import numpy as np
import pytest

import marginalis as mg
from marginalis import examples
from marginalis.models.layered import as_model


def tables(seed, cards=(2, 3, 3, 2, 3), arity=4, count=6):
    rng = np.random.default_rng(seed)
    found = [((v,), rng.normal(size=card)) for v, card in enumerate(cards)]
    for k in range(count):
        scope = rng.choice(len(cards), arity if k == 0 else rng.integers(2, arity + 1), replace=False).tolist()
        found.append((tuple(scope), 0.8 * rng.normal(size=[cards[v] for v in scope])))
    return mg.from_factors(found, states=dict(enumerate(cards)), log=True)


def spins(strength):
    # No sum of couplings is zero: engines may round a field of zero to either side.
    terms = {(i, (i + 1) % 9, (i + 4) % 9): strength * float(np.sin(i + 1.0)) for i in range(9)}
    return mg.from_polynomial(terms | {(0,): 0.3, (2, 5): 0.4})


PAIRS_OF_MODELS = {"spins": (spins(0.7), spins(-0.4)), "states": (tables(3), tables(5))}


class Law:
    """All states of a model with their exponents and, at β, their probabilities."""

    def __init__(self, model, beta=1.0) -> None:
        self.cards = model.cards
        self.states = np.array(list(itertools.product(*map(range, model.cards))))
        terms = zip(model.scopes, model.tables, strict=True)
        self.exponents = model.offset + sum(table[tuple(self.states[:, list(scope)].T)] for scope, table in terms)
        self.log_z = float(np.logaddexp.reduce(beta * self.exponents))
        self.p = np.exp(beta * self.exponents - self.log_z)

    @property
    def one_hot(self):
        columns = [self.states[:, [v]] == np.arange(card) for v, card in enumerate(self.cards)]
        return np.concatenate(columns, axis=1).astype(float)

    @property
    def marginals(self):
        return self.p @ self.one_hot

    def moments(self):
        mean = float(self.p @ self.exponents)
        return -mean, float(self.p @ self.exponents**2) - mean**2


@pytest.fixture(params=PAIRS_OF_MODELS)
def both(request):
    return PAIRS_OF_MODELS[request.param]


@pytest.fixture
def model(both):
    return both[0]


@pytest.fixture
def law(model):
    return Law(model)


def off(found, wanted, error):
    """The largest deviation in standard errors."""
    return float(np.max(np.abs((np.asarray(found) - wanted) / np.asarray(error))))


def test_default_calls_and_tolerances(model, law):
    default = mg.estimate(model, seed=1)
    assert off(default.log_z, law.log_z, default.stderr) < 4.5
    assert default.schedule == "adaptive"
    close = mg.estimate(model, tolerance=0.02, seed=1)
    assert (close.interval[1] - close.interval[0]) / 2 <= 0.02
    assert off(close.log_z, law.log_z, close.stderr) < 4.5
    exact = mg.free_energy(model)
    assert exact.is_exact
    assert exact.log_z == pytest.approx(law.log_z, rel=1e-11)


def test_weights_that_are_uneven_are_resampled():
    rng = np.random.default_rng(0)
    scopes = [rng.choice(40, 3, replace=False).tolist() for _ in range(53)]
    glass = mg.from_polynomial({tuple(x): 2.0 * rng.choice([-1.0, 1.0]) for x in scopes})
    got = mg.estimate(glass, seed=1)
    assert got.populations == 20
    few = mg.estimate(glass, tolerance=0.2, seed=1)
    assert off(few.log_z, mg.exact_log_z(glass), few.stderr) < 4.5


@pytest.mark.parametrize("seed", [1, 2])
def test_three_spin_models_of_64_sites_against_elimination(seed):
    glass = examples.p_spin(64, p=3, degree=3, seed=seed)
    got = mg.estimate(glass, tolerance=0.1, seed=1)
    assert not got.warnings
    assert off(got.log_z, mg.exact_log_z(glass), got.stderr) < 4.5


def test_many_factors_and_many_states():
    """Orders of elimination are given up early on large networks, and few of 700 equal states are starts of phases."""
    rng = np.random.default_rng(1)
    scopes = [tuple(rng.choice(1300, 3, replace=False).tolist()) for _ in range(4000)]
    with pytest.raises(mg.ModelTooLarge):
        mg.exact_log_z(mg.from_factors([(x, np.exp(0.05 * rng.normal(size=(2, 2, 2)))) for x in scopes]))
    wide = mg.from_factors([(("a", "b", "c"), 30.0 * rng.random((700, 2, 2)) ** 8)])
    found = mg.estimate(wide, seed=1)
    assert off(found.log_z, mg.exact_log_z(wide), found.stderr) < 4.5


def test_free_energy_is_estimated_where_the_sum_is_too_large(monkeypatch):
    from marginalis.answers import free_energy

    def too_large(*args, **options):
        raise mg.ModelTooLarge("too large")

    monkeypatch.setattr(free_energy, "predicted", too_large)
    model = PAIRS_OF_MODELS["states"][0]
    found = mg.free_energy(model, tolerance=0.1)
    assert not found.is_exact
    assert off(found.log_z, Law(model).log_z, found.stderr) < 4.5


def test_bounds_hold_and_start_from_exact_samples(model, law):
    got = mg.bound(model, steps=30, seed=1)
    assert got.samples == "exact, by elimination"
    assert got.lower <= -law.log_z <= got.upper
    assert off(got.log_z, law.log_z, got.stderr) < 4.5
    assert not got.warnings


def test_exact_samples_and_annealed_ones(model, law):
    got = mg.sample(model, 4000, seed=2)
    assert got.source == "elimination"
    wanted = law.marginals if got.rows.shape[1] == len(law.marginals) else law.marginals[1::2] - law.marginals[::2]
    assert off(got.rows.mean(axis=0), wanted, got.rows.std(axis=0) / np.sqrt(len(got))) < 4.5
    assert mg.sample(model, 10, exact=False, steps=20).source == "annealing"


def test_means_of_states_and_functions(model, law):
    def first_two(rows):
        return rows[:, 0] * rows[:, 2]

    exact = mg.expectations(model)
    assert exact.is_exact
    np.testing.assert_allclose(exact.means, law.marginals, atol=1e-12)
    got = mg.expectations(model, first_two, exact=False, steps=50, chains=3000, seed=3)
    assert got.labels == model.labels
    assert [len(p) for p in got.marginals] == list(model.cards)
    assert off(got.means, law.marginals, got.mean_errors) < 4.5
    function = float(law.p @ first_two(law.one_hot))
    assert off(got.functions["first_two"], function, got.function_errors["first_two"]) < 4.5
    with pytest.raises(mg.ModelTooLarge, match="leave out exact"):
        mg.expectations(model, first_two, exact=True)


def test_unseen_states_reach_through_factors():
    """A variable that no chain turns over takes the variables of its factors along."""
    model = mg.from_polynomial({("a",): 9.0, ("a", "b", "c"): 1.0})
    got = mg.expectations(model, exact=False, steps=200, chains=100, seed=1, base="uniform")
    law = Law(model)
    assert (np.abs(got.means - law.marginals) < 4.5 * got.mean_errors).all()
    sizes, inside = as_model(model).coupling_sizes
    assert (sizes.sum() + inside.sum() / 2, sizes.max()) == (3.0, 1.0)


def test_thermodynamics_at_several_temperatures(model):
    betas = [0.0, 0.5, 1.0, 1.5]
    got = mg.thermodynamics(model, betas, steps=100, chains=2000, seed=2)
    for k, beta in enumerate(betas):
        at = Law(model, beta)
        energy, variance = at.moments()
        assert got.energy[k] == pytest.approx(energy, abs=4.5 * got.energy_error[k] + 1e-11)
        assert got.log_z[k] == pytest.approx(at.log_z, abs=4.5 * got.log_z_error[k] + 1e-11)
        assert got.heat_capacity[k] == pytest.approx(beta**2 * variance, abs=4.5 * got.heat_capacity_error[k] + 1e-11)


@pytest.mark.parametrize("options", [{}, {"method": "ais", "engine": "numpy", "chains": 200, "steps": 50}])
def test_differences_of_two_models(both, options):
    wanted = Law(both[1]).log_z - Law(both[0]).log_z
    got = mg.difference(*both, seed=1, **options)
    assert off(got.log_ratio, wanted, got.stderr) < 4.5
    assert got.bounds[0] <= wanted <= got.bounds[1]
    back = mg.difference(*both[::-1], seed=2, **options)
    assert off(back.log_ratio, -wanted, back.stderr) < 4.5


def test_the_difference_to_a_model_of_pairs():
    pairs = mg.from_polynomial({(i, (i + 1) % 5): 0.5 for i in range(5)})
    more = mg.from_polynomial({(i, (i + 1) % 5): 0.5 for i in range(5)} | {(0, 2, 3): 0.7})
    got = mg.difference(pairs, more, seed=1)
    assert off(got.log_ratio, Law(more).log_z - Law(pairs).log_z, got.stderr) < 4.5
    with pytest.raises(ValueError, match="labels differ"):
        mg.difference(mg.from_polynomial({("x", "y"): 1.0}), more)


def test_the_difference_has_the_same_bits_on_both_engines(both):
    slow, fast = (mg.difference(*both, seed=1, steps=8, chains=40, engine=e) for e in ("numpy", "numba"))
    np.testing.assert_allclose(fast.forward_log_weights, slow.forward_log_weights, atol=2e-5)
    np.testing.assert_allclose(fast.reverse_log_weights, slow.reverse_log_weights, atol=2e-5)


def test_sequences_of_models(both):
    model, other = both
    sequence = [model.at_temperature(2.0), model, other]
    got = mg.along(sequence, chains=2000, seed=4)
    for t, x in enumerate(sequence):
        assert off(got.log_z[t], Law(x).log_z, got.stderr[t]) < 4.5
    wider = mg.from_polynomial({(v, w, u): 0.1 for v, w, u in itertools.combinations(range(9), 3)} | {(0, 1): 0.1})
    with pytest.raises(ValueError, match=r"models\[1\] has (factors that join|other variables)"):
        mg.along([spins(0.7), wider])


def test_many_models_at_once(both):
    found = mg.estimate_many(list(both), steps=50, seed=2)
    for x, model in zip(found, both, strict=True):
        assert off(x.log_z, Law(model).log_z, x.stderr) < 4.5


def test_samples_are_audited_and_have_likelihoods(model, law):
    rows = mg.sample(model, 2000, seed=9).rows
    got = mg.audit(model, rows, seed=1)
    assert abs(got.nominal_z) < 4.5
    assert not got.objections
    likelihood = mg.log_likelihood(model, rows)
    states = mg.states(model, rows)
    number = np.ravel_multi_index(states.T, model.cards)
    np.testing.assert_allclose(likelihood.per_sample, np.log(law.p[number]), atol=1e-11)


def test_curves_files_and_checkpoints(model, law, tmp_path):
    got = mg.estimate(model, steps=50, chains=500, seed=1, record=True)
    assert got.curve.log_z[-1] == pytest.approx(got.log_z, abs=1e-12)
    plain = mg.estimate(model, steps=50, chains=500, seed=1)
    plain.save(tmp_path / "r.npz")
    assert mg.load_estimate(tmp_path / "r.npz") == plain
    assert json.loads(plain.to_json())["log_z"] == plain.log_z
    stored = [mg.estimate(model, steps=50, chains=500, seed=1, checkpoint=tmp_path / "c.db") for _ in range(2)]
    assert stored[0] == stored[1] == plain
    mg.save(model, tmp_path / "m.uai")
    assert Law(mg.load(tmp_path / "m.uai")).log_z == pytest.approx(law.log_z, rel=1e-13)
    mg.save(model, tmp_path / "m.npz")
    assert Law(mg.load(tmp_path / "m.npz")).log_z == law.log_z
    with pytest.raises(ValueError, match="save the FactorModel itself"):
        mg.save(as_model(model), tmp_path / "m.npz")


def test_the_annealed_form_is_summed_exactly_as_well(both):
    """It is what answers such as `Along.models` and `Expectations.model` hold."""
    for model in both:
        annealed = as_model(model)
        assert mg.exact_log_z(annealed) == pytest.approx(Law(model).log_z, rel=1e-12)
        again = annealed.as_factors()
        assert again.labels == model.labels
        assert again.cards == model.cards
        for refused in (lambda m=annealed: m.given({0: 1}), lambda m=annealed: m.transposed()):
            with pytest.raises(ValueError, match=r"FactorModel\.given|not bipartite"):
                refused()


def test_a_phase_that_the_plain_path_misses_is_found():
    """Annealing of a ferromagnet with products of three spins ends in its glassy states, far below the phase up."""
    spins = 180
    scopes = examples.p_spin(spins, p=3, degree=4, seed=2).scopes
    ferromagnet = mg.from_polynomial({tuple(map(int, scope)): 1.0 for scope in scopes if len(scope) == 3})
    up = sum(len(scope) == 3 for scope in scopes)  # −E of the state with all spins up
    plain = mg.estimate(ferromagnet, steps=1000, chains=500, seed=1)
    assert plain.log_z_interval[1] < up - 5.0
    found = mg.estimate(ferromagnet, seed=1)
    # single flips from the state up add 180·e⁻⁸, and pairs of them e⁻¹² or less each
    assert abs(found.log_z - (up + spins * np.exp(-8.0))) < 4.5 * found.stderr + 0.1
    assert not found.warnings


def test_a_phase_of_tables_that_fields_oppose_is_found():
    """State 0 is favoured by fields, state 1 by tables of three variables; annealing follows the fields."""
    rng = np.random.default_rng(3)
    count = 60
    tables = [((i,), np.array([0.0, -2.6, -0.2])) for i in range(count)]
    for scope in (x for _ in range(4) for x in rng.permutation(count).reshape(-1, 3)):
        table = 0.1 * rng.normal(size=(3, 3, 3))
        table[1, 1, 1] += 2.6
        tables.append((tuple(scope.tolist()), table))
    model = mg.from_factors(tables, log=True)
    ones = sum(float(table[(1,) * table.ndim]) for table in model.tables)
    plain = mg.estimate(model, steps=300, chains=300, seed=1)
    assert plain.log_z_interval[1] < ones - 5.0
    found = mg.estimate(model, seed=1)
    assert found.log_z_interval[1] > ones
