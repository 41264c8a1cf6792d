"""Estimates of models with zeros: intervals where single moves reach all states, else lower bounds of ln Z."""

import itertools
import json

import numpy as np
import pytest

import marginalis as mg

N = 12
FORBIDS_EQUAL = {q: 1.0 - np.eye(q) for q in (6,)}


def fields(rng, cards, strength=0.7):
    return [((i,), np.exp(strength * rng.normal(size=card))) for i, card in enumerate(cards)]


def colouring(rng, q=6):
    edges = [e for e in itertools.combinations(range(N), 2) if rng.random() < 0.35]
    return mg.from_factors([(e, FORBIDS_EQUAL[q]) for e in edges] + fields(rng, [q] * N))


def independent_sets(rng):
    edges = [e for e in itertools.combinations(range(N), 2) if rng.random() < 0.4]
    return mg.from_factors([(e, [[1, 1], [1, 0]]) for e in edges] + fields(rng, [2] * N, 2.0))


def packing(rng):
    """No three of four variables that share a factor are 1."""
    table = (np.indices((2,) * 4).sum(axis=0) < 3).astype(float)
    found = [(rng.choice(N, 4, replace=False).tolist(), table) for _ in range(14)]
    return mg.from_factors(found + fields(rng, [2] * N))


def parity(rng):
    table = (np.indices((2, 2, 2)).sum(axis=0) % 2 == 0).astype(float)
    found = [(rng.choice(N, 3, replace=False).tolist(), table) for _ in range(7)]
    return mg.from_factors(found + fields(rng, [2] * N))


def permutation(rng, n=6):
    return mg.from_factors([(e, FORBIDS_EQUAL[n]) for e in itertools.combinations(range(n), 2)] + fields(rng, [n] * n))


def clauses(rng):
    found = fields(rng, [2] * N)
    for _ in range(40):
        table = np.ones((2, 2, 2))
        table[tuple(rng.integers(0, 2, 3))] = 0.0
        found.append((rng.choice(N, 3, replace=False).tolist(), table))
    return mg.from_factors(found)


def anything(rng):
    cards = rng.integers(2, 4, N)
    found = fields(rng, cards)
    for _ in range(15):
        scope = rng.choice(N, int(rng.integers(2, 5)), replace=False).tolist()
        table = np.exp(rng.normal(size=[cards[v] for v in scope]))
        found.append((scope, table * (rng.random(table.shape) > 0.15)))
    return mg.from_factors(found)


REACHED = {"colouring": colouring, "independent sets": independent_sets, "packing": packing}
OTHERS = {"parity": parity, "permutation": permutation, "clauses": clauses, "anything": anything}
OPTIONS = [
    {"steps": 60, "chains": 300},
    {"steps": 100, "chains": 400, "resample": True},
    {"method": "ais", "steps": 80, "chains": 300},
    {"tolerance": 0.1},
]


def answers(count, kinds):
    """Yield the exact ln Z and the estimate of random models that leave something to anneal."""
    for seed in range(count):
        make = list(kinds.values())[seed % len(kinds)]
        try:
            model = make(np.random.default_rng(seed))
            exact = mg.exact_log_z(model)
            yield exact, mg.estimate(model, seed=seed, threads=1, **OPTIONS[seed // len(kinds) % len(OPTIONS)])
        except ValueError as error:
            if "Z = 0" not in str(error) and "no variable is left" not in str(error):
                raise


def check_intervals(count):
    z, inside = [], []
    for exact, got in answers(count, REACHED):
        assert got.lower_bound is None
        if got.warnings:
            continue
        low, high = got.log_z_interval
        inside.append(low <= exact <= high)
        z.append((got.log_z - exact) / got.stderr)
    assert np.abs(z).max() < 4.5
    return np.array(inside), np.std(z)


def check_bounds(count):
    gaps, bounds = [], 0
    for exact, got in answers(count, OTHERS):
        if got.lower_bound is None:
            continue
        bounds += 1
        gaps.append(exact - got.lower_bound)
        assert got.stderr == np.inf
        assert got.log_z_interval == (got.lower_bound, np.inf)
        assert any("no interval" in warning for warning in got.warnings)
    return np.array(gaps)


def test_intervals_and_bounds_of_small_models():
    inside, _ = check_intervals(24)
    assert inside.mean() > 0.85
    gaps = check_bounds(28)
    assert len(gaps) > 20
    assert (gaps > 0.0).mean() > 0.9
    assert np.median(gaps) < 0.6


@pytest.mark.study
def test_intervals_and_bounds_of_many_small_models():
    inside, spread = check_intervals(700)
    print(f"{len(inside)} intervals cover {inside.mean():.3f}, sd of z {spread:.3f}")
    assert 0.93 <= inside.mean() <= 0.98
    assert 0.9 < spread < 1.1
    gaps = check_bounds(500)
    print(f"{len(gaps)} bounds hold {(gaps > 0).mean():.3f}, median distance {np.median(gaps):.3f}")
    assert (gaps > 0.0).mean() > 0.95


def test_weights_are_unbiased_and_forbidden_states_have_none():
    """With few steps many chains end in a forbidden state; the mean weight is Z all the same, in every way to run."""
    model = permutation(np.random.default_rng(1))
    exact = mg.exact_log_z(model)
    for options in ({"steps": 2}, {"steps": 3, "method": "ais", "engine": "numpy"}, {"steps": 20, "resample": 0.9}):
        got = mg.estimate(model, chains=20_000, populations=200, seed=4, **options)
        weights = np.exp(got.log_z0 + got.log_weights - exact)
        assert abs(weights.mean() - 1.0) < 4.5 * weights.std() / np.sqrt(len(weights))
        assert got.lower_bound < exact
    assert (mg.estimate(model, steps=1, chains=1000, seed=4).log_weights == -np.inf).any()


def test_engines_checkpoints_and_files_agree(tmp_path):
    model = packing(np.random.default_rng(2))
    slow, fast = (mg.estimate(model, steps=2, chains=70, seed=3, engine=e) for e in ("numpy", "numba"))
    np.testing.assert_allclose(fast.log_weights, slow.log_weights, atol=3e-5)
    assert np.isneginf(slow.log_weights).any()
    stored = mg.estimate(model, steps=2, chains=70, seed=3, checkpoint=tmp_path / "c.db")
    assert stored == fast
    bound = mg.estimate(permutation(np.random.default_rng(0)), steps=40, chains=200, seed=3)
    bound.save(tmp_path / "r.npz")
    again = mg.load_estimate(tmp_path / "r.npz")
    assert again == bound
    assert (
        again.lower_bound
        == bound.lower_bound
        < (
            bound + mg.estimate(permutation(np.random.default_rng(0)), steps=40, chains=2000, first_chain=200, seed=3)
        ).lower_bound
    )
    plain = json.loads(bound.to_json())
    assert (plain["lower_bound"], plain["stderr"]) == (bound.lower_bound, None)
    assert plain["interval"] == [None, -bound.lower_bound]
    assert "ln Z ≥" in str(bound)
    assert "±" not in str(bound)


def test_the_curve_ends_at_the_estimate():
    got = mg.estimate(packing(np.random.default_rng(2)), steps=20, chains=300, seed=1, record=True)
    assert got.curve.log_z[-1] == pytest.approx(got.log_z, abs=1e-12)


def test_the_one_door_says_how(monkeypatch):
    from marginalis.answers import free_energy

    def too_large(*args, **options):
        raise mg.ModelTooLarge("too large")

    monkeypatch.setattr(free_energy, "predicted", too_large)
    for make, is_bound in ((colouring, False), (permutation, True)):
        model = make(np.random.default_rng(0))
        found = mg.free_energy(model, tolerance=0.1)
        assert not found.is_exact
        assert (found.lower_bound is not None) == is_bound
        assert ("at least" in found.how) == is_bound
        assert found.to_dict()["lower_bound"] == found.lower_bound
        exact = mg.exact_log_z(model)
        assert found.lower_bound < exact if is_bound else abs(found.log_z - exact) < 4.5 * found.stderr


def test_contradictions_that_no_chain_solves_are_an_error():
    """Of 2^40 states hardly one is possible, and chains of two steps find none."""
    rng = np.random.default_rng(3)
    table = (np.indices((2,) * 5).sum(axis=0) % 2 == 0).astype(float)
    found = [(rng.choice(40, 5, replace=False).tolist(), table) for _ in range(38)]
    with pytest.raises(ValueError, match="no chain has found a state that the factors allow"):
        mg.estimate(mg.from_factors(found), steps=2, chains=16)


def test_other_answers_refuse_zeros_with_a_reason():
    model = permutation(np.random.default_rng(0))
    for answer in (mg.bound, mg.thermodynamics, lambda m: mg.difference(m, m), lambda m: mg.along([m])):
        with pytest.raises(ValueError, match=r"forbids some states \(zeros\): only mg.free_energy, mg.estimate"):
            answer(model)
