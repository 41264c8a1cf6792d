"""Stacked arrays are the models that their constructor makes, and models survive the way to a worker."""

import pickle
from dataclasses import fields

import numpy as np
import pytest
import scipy.sparse as sp

import marginalis as mg
from marginalis.models.stacked import as_stack, packed, unpacked


def same(a, b):
    """Whether two models agree in every field and in their natural parameters, to the last bit."""
    pairs = [(getattr(a, x.name), getattr(b, x.name)) for x in fields(a) if x.name not in ("natural", "split")]
    pairs += [(getattr(a.natural, x.name), getattr(b.natural, x.name)) for x in fields(a.natural)]
    pairs += [(a.split.visible, b.split.visible), (a.split.hidden, b.split.hidden)]
    for ours, theirs in pairs:
        np.testing.assert_array_equal(*(x.toarray() if sp.issparse(x) else x for x in (ours, theirs)))
    assert not any(x.flags.writeable for x in (a.visible_bias, a.natural.visible_bias))
    return type(a) is type(b)


@pytest.mark.parametrize("units", ["spin", "binary", ("spin", "binary"), ("gaussian", "spin"), "categorical:2"])
def test_stacked_arrays_are_the_models_of_their_rows(units):
    rng = np.random.default_rng(1)
    w, b, c = rng.normal(size=(5, 2, 4)) * 0.2, rng.normal(size=(5, 2)), rng.normal(size=(5, 4))
    stack = as_stack((w, b, c, units))
    assert len(stack) == 5
    for t, model in enumerate(stack.models(1, 4), 1):
        assert same(model, mg.rbm(w[t], b[t], c[t], units=units))


def test_a_model_that_is_not_valid_is_an_error_in_its_place():
    w, b, c = np.ones((4, 2, 3)), np.zeros((4, 2)), np.zeros((4, 3))
    w[1, 0, 0], b[3, 1] = np.nan, np.inf
    found = as_stack((w, b, c, "spin")).models(0, 4)
    assert [isinstance(x, ValueError) for x in found] == [False, True, False, True]
    assert "weights holds NaN" in str(found[1])
    assert "visible_bias holds NaN" in str(found[3])
    w[1, 0, 0], b[3, 1] = 1e308, 0.0
    assert "overflow" in str(as_stack((w, b, c, "spin")).models(0, 4)[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: np.zeros((4, 3))}, r"visible_bias has shape \(4, 3\) of float64; .* shape \(4, 2\)"),
        ({2: np.zeros((3, 3))}, "hidden_bias has shape"),
        ({0: np.ones((4, 2, 3)).astype(str)}, "weights has shape"),
        ({3: "magic"}, "units is 'magic'"),
        ({3: ("spin",)}, "one word or a pair"),
        ({3: None}, "does not say its units"),
    ],
)
def test_arrays_that_do_not_fit_are_named(change, message):
    given = [np.ones((4, 2, 3)), np.zeros((4, 2)), np.zeros((4, 3)), "spin"]
    for place, value in change.items():
        given[place] = value
    with pytest.raises(ValueError, match=message):
        as_stack(tuple(given))
    with pytest.raises(ValueError, match="does not say its units"):
        as_stack(tuple(given[:3]))


def test_models_are_the_same_after_the_way_to_a_worker():
    rng = np.random.default_rng(2)
    plain = [mg.rbm(rng.normal(size=(3, 2)), np.zeros(3), np.ones(2), temperature=t) for t in (0.5, 1.0, 2.0)]
    other = [*plain, mg.ising_grid((2, 3)), mg.rbm(np.ones((2, 2)), [0, 0], [1, 1], units="binary")]
    for models in (plain, other, [plain[0].transposed()]):
        sent = pickle.loads(pickle.dumps(packed(models)))
        for a, b in zip(unpacked(sent), models, strict=True):
            assert same(a, b)
    assert len(pickle.dumps(packed(plain * 20))) < 20 * len(pickle.dumps(plain[0]))
