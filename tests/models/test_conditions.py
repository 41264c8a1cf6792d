"""Models with some variables held, of any kind, and models from tables and polynomials."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import marginalis as mg


def log_sum(log_p, cards, held):
    """ln of the sum of exp(log_p) over all states that agree with what is held."""
    states = itertools.product(*(range(card) if held.get(v) is None else [held[v]] for v, card in enumerate(cards)))
    return float(np.logaddexp.reduce([log_p(x) for x in states]))


@settings(deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["spin", "binary"]), st.booleans())
def test_graphs_given_some_values(seed, units, bipartite):
    rng = np.random.default_rng(seed)
    n = 7
    pairs = [p for p in itertools.combinations(range(n), 2) if rng.random() < 0.6 and (not bipartite or sum(p) % 2)]
    bonds = {pair: float(rng.normal()) for pair in pairs}
    fields = rng.normal(size=n)
    model = mg.from_edges(
        list(bonds) or np.zeros((0, 2), int),
        coupling=list(bonds.values()),
        field=fields,
        n=n,
        units=units,
        temperature=1.7,
    )
    values = (-1.0, 1.0) if units == "spin" else (0.0, 1.0)
    held = {int(v): values[rng.integers(2)] for v in rng.choice(n, rng.integers(1, n), replace=False)}
    left = model.given(held)
    assert list(left.labels) == [label for label in model.labels if label not in held]
    assert left.temperature == 1.7

    def log_p(x):
        s = [values[k] for k in x]
        return (sum(fields * s) + sum(j * s[a] * s[b] for (a, b), j in bonds.items())) / 1.7

    wanted = log_sum(log_p, [2] * n, {v: values.index(x) for v, x in held.items()})
    assert mg.exact_log_z(left) == pytest.approx(wanted, rel=1e-11, abs=1e-11)


def test_sides_of_other_kinds():
    rng = np.random.default_rng(2)
    w = 0.3 * rng.normal(size=(3, 4))
    model = mg.rbm(w, rng.normal(size=3), rng.normal(size=4), units=("gaussian", "spin"))
    x = 0.7
    left = model.given({1: x})
    total = []
    for h in itertools.product([-1.0, 1.0], repeat=4):  # the normal integral over the others, in closed form
        field = model.visible_bias + w @ h
        others = [0.5 * field[i] ** 2 + 0.5 * math.log(2.0 * math.pi) for i in (0, 2)]
        total.append(model.hidden_bias @ h + field[1] * x - 0.5 * x**2 + sum(others))
    assert mg.exact_log_z(left) == pytest.approx(float(np.logaddexp.reduce(total)), rel=1e-12)
    all_visible = model.given({0: 0.1, 1: x, 2: -0.4})
    assert mg.exact_log_z(all_visible) == pytest.approx(
        model.visible_bias @ [0.1, x, -0.4]
        - 0.5 * (0.01 + x**2 + 0.16)
        + np.log(2.0 * np.cosh(model.hidden_bias + np.array([0.1, x, -0.4]) @ w)).sum(),
        rel=1e-12,
    )


def test_classes_of_a_potts_model():
    model = mg.potts([(0, 1), (1, 2), (0, 2), (2, 3)], 3, coupling=[0.8, -0.4, 0.3, 1.1], field=[0.1, -0.3, 0.0])
    total = np.logaddexp.reduce([mg.exact_log_z(model.given({1: q})) for q in range(3)])
    assert total == pytest.approx(mg.exact_log_z(model), rel=1e-12)


@pytest.mark.parametrize(
    ("held", "problem"),
    [
        ({"z": 1}, "names the variable 'z', which the model does not have"),
        ({0: 0}, "the value of 0 is 0"),
        ({0: math.nan}, "the value of 0 is nan"),
        ({0: 1, 1: 1, 2: 1}, "nothing is left to sum"),
        ([0, 1], "it must map labels to values"),
    ],
)
def test_impossible_conditions_are_refused(held, problem):
    with pytest.raises(ValueError, match=problem):
        mg.from_edges([(0, 1), (1, 2)]).given(held)


def test_factors_by_label():
    rng = np.random.default_rng(4)
    a, b = rng.random((2, 3)), rng.random((3, 2, 4))
    model = mg.from_factors([(("x", "y"), a), (("y", "x", "z"), b)], states={"w": 5})
    assert model.labels == ("w", "x", "y", "z")
    wanted = math.log(5.0 * np.einsum("xy,yxz->", a, b))
    assert mg.exact_log_z(model) == pytest.approx(wanted, rel=1e-13)
    again = mg.from_factors([("xy", np.log(a)), (["y", "x", "z"], np.log(b))][1:] + [(("x", "y"), np.log(a))], log=True)
    assert mg.exact_log_z(again) == pytest.approx(wanted - math.log(5.0), rel=1e-13)
    assert mg.exact_log_z(model.given({"z": 2})) == pytest.approx(math.log(5.0 * np.einsum("xy,yx->", a, b[..., 2])))


@pytest.mark.parametrize(
    ("factors", "problem"),
    [
        ([(("a", "a"), np.ones((2, 2)))], "names a variable twice"),
        ([(("a", "b"), np.ones(4))], "1 axes for 2 variables"),
        ([(("a", "b"), np.ones((2, 2))), (("a",), np.ones(3))], "has 3 states of the variable 'a', which has 2"),
        ([(("a",), [1.0, math.nan])], "finite weights"),
        ([(("a",), [1.0, -1.0])], "finite weights"),
        ([(("a",), [0.0, 0.0])], "Z = 0: the table of"),
        ([3], "it must be a pair"),
        ([], "name no variables"),
        ([(("a", "b"), np.ones((0, 2)))], "no states of the variable 'a'"),
        ([(("a",), [1.0, 1.0j])], "dtype complex128; it must hold real numbers"),
        ([(("a",), ["1", "2"])], "must hold real numbers"),
        ([(("a",), None)], "must hold real numbers"),
        ([((["a"],), [1.0, 2.0])], "can name no variable"),
        ([((math.nan,), [1.0, 2.0])], "can name no variable"),
        ({("a", "b"): np.ones((2, 2))}, "list of pairs"),
    ],
)
def test_bad_factors(factors, problem):
    with pytest.raises(ValueError, match=problem):
        mg.from_factors(factors)


def test_a_factor_of_no_variable_is_a_constant():
    model = mg.from_factors([((), 3.0), (("a", "b", "c"), np.ones((2, 2, 2)))])
    assert mg.exact_log_z(model) == pytest.approx(math.log(24.0), rel=1e-14)
    assert mg.estimate(model, steps=2, chains=16).log_z == pytest.approx(math.log(24.0), rel=1e-12)


@pytest.mark.parametrize("state", ["x", 0.5, -1, 2, None])
def test_states_of_evidence_are_whole_numbers(state):
    model = mg.from_factors([(("a", "b"), np.ones((2, 2)))])
    with pytest.raises(ValueError, match="it has 2 states, from 0"):
        model.given({"a": state})
    with pytest.raises(ValueError, match="must map labels to states"):
        model.given([("a", 0)])


@settings(deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["spin", "binary"]))
def test_polynomials(seed, units):
    rng = np.random.default_rng(seed)
    names, low = "abcde", -1.0 if units == "spin" else 0.0
    terms = {tuple(rng.permutation(list(names))[: rng.integers(0, 5)].tolist()): float(rng.normal()) for _ in range(7)}
    if not any(terms):
        return
    model = mg.from_polynomial(terms, units=units, temperature=0.6)
    labels = list(model.labels)

    def log_p(x):
        value = {label: (low, 1.0)[k] for label, k in zip(labels, x, strict=True)}
        return sum(j * math.prod(value[v] for v in term) for term, j in terms.items()) / 0.6

    assert mg.exact_log_z(model) == pytest.approx(log_sum(log_p, model.cards, {}), rel=1e-11, abs=1e-11)


def test_a_large_ring_of_three_spin_couplings():
    """By elimination, where an enumeration could not."""
    n = 40
    model = mg.from_polynomial({(i, (i + 1) % n, (i + 2) % n): 0.7 * (-1) ** i for i in range(n)})
    step = np.zeros((4, 4))
    power = np.eye(4)
    for i in range(n):
        step = np.zeros((4, 4))
        for a, b, c in itertools.product((0, 1), repeat=3):
            step[2 * a + b, 2 * b + c] = math.exp(0.7 * (-1) ** i * (2 * a - 1) * (2 * b - 1) * (2 * c - 1))
        power = power @ step
    assert mg.exact_log_z(model) == pytest.approx(math.log(np.trace(power)), rel=1e-12)


@pytest.mark.parametrize(
    ("terms", "options", "problem"),
    [
        ({("a", "a"): 1.0}, {}, "names a variable twice"),
        ({"ab": 1.0}, {}, "must be a tuple of labels"),
        ({("a",): math.inf}, {}, "the coefficient of"),
        ({("a",): 1.0}, {"units": "gaussian"}, "units"),
        ({("a",): 1.0}, {"temperature": 0.0}, "temperature"),
        ({(): 1.0}, {}, "no variables"),
        ([("a", "b")], {}, "must map tuples"),
    ],
)
def test_bad_polynomials(terms, options, problem):
    with pytest.raises(ValueError, match=problem):
        mg.from_polynomial(terms, **options)
