"""Classic models against sums over all states of their formulas, and the random graphs of the examples."""

import itertools
import math

import numpy as np
import pytest
from conftest import command

import marginalis as mg
from marginalis import examples

# The bonds of a lattice of 2 × 3 sites that is periodic along its rows, and the edges of a graph with an odd cycle.
LATTICE = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)]
EDGES = [(0, 1), (1, 2), (2, 0), (2, 3)]
GRAPHS = [((2, 3), LATTICE, {"periodic": (False, True)}), (EDGES, EDGES, {})]


def log_z(n, q, exponent):
    """ln Σ exp(exponent) over the states 0 … q − 1 of n variables."""
    return np.logaddexp.reduce([exponent(x) for x in itertools.product(range(q), repeat=n)])


@pytest.mark.parametrize(("graph", "bonds", "options"), GRAPHS, ids=["lattice", "edges"])
def test_models_of_several_states(graph, bonds, options):
    rng = np.random.default_rng(0)
    n = 1 + max(map(max, bonds))
    j, k, t = 0.8, -0.6, 1.3
    h, d = rng.normal(size=(2, n))

    def clock(x):
        angle = 2.0 * math.pi * np.array(x) / 5
        return (j * sum(math.cos(angle[a] - angle[b]) for a, b in bonds) + h @ np.cos(angle)) / t

    def blume_capel(x):
        s = np.array(x) - 1.0
        return (j * sum(s[a] * s[b] for a, b in bonds) - d @ s**2 + h @ s) / t

    def ashkin_teller(x):
        s, u = 2.0 * (np.array(x) // 2) - 1.0, 2.0 * (np.array(x) % 2) - 1.0
        return j * sum(s[a] * s[b] + u[a] * u[b] + k * s[a] * s[b] * u[a] * u[b] for a, b in bonds) / t

    run = dict(coupling=j, temperature=t, **options)
    for model, q, exponent in (
        (mg.clock(graph, 5, field=h, **run), 5, clock),
        (mg.blume_capel(graph, crystal_field=d, field=h, **run), 3, blume_capel),
        (mg.ashkin_teller(graph, four_spin=k, **run), 4, ashkin_teller),
    ):
        exact = log_z(n, q, exponent)
        assert mg.exact_log_z(model) == pytest.approx(exact, rel=1e-12)
        r = mg.estimate(model, steps=30, chains=300, engine="numpy")
        assert abs(r.log_z - exact) < 4.5 * r.stderr


def test_couplings_of_their_own():
    j = [0.5, -1.0, 0.0, 2.0]
    exact = log_z(4, 3, lambda x: sum(w * (x[a] - 1) * (x[b] - 1) for w, (a, b) in zip(j, EDGES, strict=True)))
    assert mg.exact_log_z(mg.blume_capel(EDGES, coupling=j)) == pytest.approx(exact, rel=1e-12)
    across, down = np.random.default_rng(1).normal(size=(2, 3, 3))
    potts = mg.potts_grid((3, 3), 2, coupling=(2.0 * across, 2.0 * down))  # The clock of two states is Potts and Ising.
    offset = across[:, :2].sum() + down[:2].sum()
    clock = mg.exact_log_z(mg.clock((3, 3), 2, coupling=(across, down)))
    assert clock == pytest.approx(mg.exact_log_z(potts) - offset, rel=1e-12)
    assert clock == pytest.approx(mg.exact_log_z(mg.ising_grid((3, 3), coupling=(across, down))), rel=1e-12)


def test_the_gas_counts_independent_sets():
    """The numbers of independent sets of squares (OEIS A006506), and the weights of a triangle with a tail."""
    for n, sets in ((1, 2), (2, 7), (3, 63), (4, 1234), (5, 55447)):
        assert mg.exact_log_z(mg.hard_core((n, n))) == pytest.approx(math.log(sets), rel=1e-13)
    z = [0.5, 2.0, 3.0, 1e9]
    total = 1.0 + sum(z) + z[3] * (z[0] + z[1])
    model = mg.hard_core(EDGES, activity=z)
    assert mg.exact_log_z(model) == pytest.approx(math.log(total), rel=1e-13)
    torus = mg.hard_core((4, 6), activity=1.5, periodic=True)
    r = mg.estimate(torus, steps=200, chains=300, schedule=np.linspace(0.0, 1.0, 201) ** 3, engine="numpy")
    assert abs(r.log_z - mg.exact_log_z(torus)) < 4.5 * r.stderr


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mg.clock((2, 2), 1), "q is 1"),
        (lambda: mg.clock("ab", 3), "graph is 'ab'; it must be sides of a lattice"),
        (lambda: mg.clock(np.ones((2, 3), int), 3), "it must be sides of a lattice, as in"),
        (lambda: mg.clock((1.5, 2.0), 3), "it must be sides of a lattice"),
        (lambda: mg.clock((2, -2), 3), "shape is -2"),
        (lambda: mg.clock(EDGES, 3, periodic=True), "periodic applies to lattices only"),
        (lambda: mg.clock(EDGES, 3, coupling=[1.0, 2.0]), "coupling has shape"),
        (lambda: mg.clock(EDGES, 3, field=[math.nan] * 4), "field holds NaN"),
        (lambda: mg.blume_capel((2, 2), crystal_field=[1.0]*3), "crystal_field has shape"),
        (lambda: mg.blume_capel([(1, 1)]), "the variable 1 is coupled to itself"),
        (lambda: mg.ashkin_teller((2, 2), four_spin=math.inf), "four_spin"),
        (lambda: mg.ashkin_teller((2, 2), temperature=0.0), "temperature is 0.0"),
        (lambda: mg.hard_core((2, 2), activity=0.0), "activity is 0.0; it must be positive"),
        (lambda: mg.hard_core((2, 2), activity=[1.0, -1.0, 1.0, 1.0]), "it must be positive"),
        (lambda: examples.random_regular(5, 3), "5 spins times 3 must be a multiple of 2"),
        (lambda: examples.random_regular(4, 4), "too many for 4 spins"),
        (lambda: examples.p_spin(60, 1), "p is 1"),
        (lambda: examples.sherrington_kirkpatrick(1), "spins is 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("n", "degree", "size"), [(10, 3, 2), (6, 4, 2), (12, 4, 3), (7, 6, 3), (40, 5, 4), (9, 2, 6)])
def test_every_variable_is_in_equally_many_sets(n, degree, size):
    for seed in range(5):
        scopes = examples.regular_scopes(n, degree, size, np.random.default_rng(seed))
        assert scopes.shape == (n * degree // size, size)
        assert (np.bincount(scopes.ravel(), minlength=n) == degree).all()
        assert len({frozenset(x) for x in scopes.tolist()}) == len(scopes)
        assert all(len(set(x)) == size for x in scopes.tolist())


def test_random_graphs():
    glass = examples.random_regular(14, 3, field="uniform:0.5", seed=2)
    pairs = np.concatenate([glass.edges + [0, glass.n_visible], glass.lateral_edges])
    assert (np.bincount(pairs.ravel(), minlength=14) == 3).all()
    kirkpatrick = examples.sherrington_kirkpatrick(12, seed=3)
    couplings = np.concatenate([np.asarray(kirkpatrick.weights).ravel(), np.triu(kirkpatrick.lateral).ravel()])
    assert 0.2 < couplings[couplings != 0.0].std() < 0.4  # 12^-1/2 = 0.29
    assert mg.exact_log_z(examples.sherrington_kirkpatrick(12, seed=3)) == mg.exact_log_z(kirkpatrick)
    disordered = examples.random_field((3, 4), field="gaussian:2", seed=1)
    fields = np.concatenate([disordered.visible_bias, disordered.hidden_bias])
    assert 1.0 < fields.std() < 3.0
    for model in (glass, disordered, kirkpatrick):
        r = mg.estimate(model, steps=100, chains=300, engine="numpy")
        assert abs(r.log_z - mg.exact_log_z(model)) < 4.5 * r.stderr


def test_p_spin():
    """Sums over all states of products of three spins, and an estimate."""
    model = examples.p_spin(12, field="gaussian:0.3", temperature=1.5, seed=4)
    scopes = [(x, t) for x, t in zip(model.scopes, model.tables, strict=True) if len(x) == 3]
    assert len(scopes) == 16
    assert {round(float(np.abs(t).max() * 1.5), 12) for _, t in scopes} == {1.0}
    spins = np.array(list(itertools.product([-1.0, 1.0], repeat=12)))
    terms = sum(t[1, 1, 1] * spins[:, list(x)].prod(axis=1) for x, t in scopes)
    own = dict(zip((x for x in model.scopes if len(x) == 1), (t for t in model.tables if t.ndim == 1), strict=True))
    terms += sum(t[1] * spins[:, x[0]] for x, t in own.items())
    exact = np.logaddexp.reduce(terms)
    assert mg.exact_log_z(model) == pytest.approx(exact, rel=1e-12)
    r = mg.estimate(model, steps=100, chains=300, engine="numpy")
    assert abs(r.log_z - exact) < 4.5 * r.stderr


def test_the_command_makes_them(tmp_path):
    for words in (
        "clock --shape 3x2 --states 5",
        "blume-capel --shape 2x2 --crystal-field 0.5",
        "hard-core --shape 3x3",
    ):
        made = command("make", *words.split(), "-o", tmp_path / "m.npz")
        assert made.returncode == 0, made.stderr
    assert mg.exact_log_z(mg.load(tmp_path / "m.npz")) == pytest.approx(math.log(63))
    assert command("make", "p-spin", "--spins", 9, "--degree", 3, "-o", tmp_path / "m.uai").returncode == 0
    assert mg.exact_log_z(mg.load(tmp_path / "m.uai")) == pytest.approx(
        mg.exact_log_z(examples.p_spin(9, 3, 3)), rel=1e-12
    )
    refused = command("make", "random-regular", "--degree", 0, "-o", tmp_path / "m.npz")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "degree is 0" in refused.stderr
