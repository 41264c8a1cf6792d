"""Lattices: bonds where they should be, in any number of dimensions, open, periodic or triangular."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import brute_log_z, energy_of

import marginalis as mg


def test_grid_bonds_and_fields():
    rng = np.random.default_rng(0)
    for shape, periodic, triangular in (
        ((3, 4), False, False),
        ((4, 2), True, False),
        ((2, 4), (False, True), False),
        ((4, 3), (True, False), False),
        ((3, 4), True, False),
        ((4, 3), (False, True), False),
        ((3, 4), False, True),
        ((4, 4), True, True),
        ((3, 5), (True, False), True),
    ):
        across, down, diagonal, field = rng.normal(size=(4, *shape))
        coupling = (across, down, diagonal) if triangular else (across, down)
        given = dict(coupling=coupling, field=field, periodic=periodic, triangular=triangular)
        model = mg.ising_grid(shape, temperature=1.7, **given)
        wraps = (periodic, periodic) if isinstance(periodic, bool) else periodic
        rows, columns = shape
        for _ in range(5):
            s = rng.choice([-1.0, 1.0], size=shape)
            e = -(field * s).sum()
            for r, c in itertools.product(range(rows), range(columns)):
                if c + 1 < columns or wraps[1]:
                    e -= across[r, c] * s[r, c] * s[r, (c + 1) % columns]
                if r + 1 < rows or wraps[0]:
                    e -= down[r, c] * s[r, c] * s[(r + 1) % rows, c]
                if triangular and (r + 1 < rows or wraps[0]) and (c + 1 < columns or wraps[1]):
                    e -= diagonal[r, c] * s[r, c] * s[(r + 1) % rows, (c + 1) % columns]
            assert energy_of(model, s.ravel()) == pytest.approx(e / 1.7)


def test_grids_in_other_dimensions():
    chain = mg.ising_grid((40,), coupling=0.3)
    assert mg.exact_log_z(chain) == pytest.approx(40 * math.log(2) + 39 * math.log(math.cosh(0.3)))
    cube = mg.ising_grid((2, 3, 2), coupling=0.2, periodic=(True, False, True))
    bonds = [
        ((r, c, d), other)
        for r, c, d in itertools.product(range(2), range(3), range(2))
        for other in (((r + 1) % 2, c, d), (r, c + 1, d), (r, c, (d + 1) % 2))
        if other[1] < 3
    ]
    number = {site: i for i, site in enumerate(itertools.product(range(2), range(3), range(2)))}

    def energy(s):
        return -0.2 * sum(s[number[a]] * s[number[b]] for a, b in bonds)

    assert mg.exact_log_z(cube) == pytest.approx(brute_log_z(energy, *[(-1, 1)] * 12), rel=1e-12)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((1, 4), dict(periodic=True), "periodic axis 0 has one site, which would be coupled to itself"),
        ((4, 4), dict(triangular="yes"), "triangular is 'yes'"),
        ((4, 4, 4), dict(triangular=True), "triangular lattices have two axes, not 3"),
        ((4, 4), dict(triangular=True, coupling=(1.0, 1.0)), "coupling has 2 parts; .* each of 3 directions"),
        ((0, 4), {}, "shape is 0"),
        ((), {}, "shape"),
        (5, {}, "shape"),
        ((2.5, 2), {}, "shape"),
        ((4, 4), dict(coupling=(1.0,)), "coupling has 1 parts"),
        ((4, 4), dict(coupling=(1.0, np.zeros((3, 3)))), "coupling along axis 0 has shape"),
        ((4, 4), dict(coupling=np.nan), "coupling along axis 1 holds NaN"),
        ((4, 4), dict(field=np.zeros(3)), "field has shape"),
        ((4, 4), dict(periodic=(True,)), "periodic has 1 flags"),
        ((4, 4), dict(periodic="no"), "periodic is 'no'"),
        ((2, 2), dict(coupling=np.array([[1.0, 2.0], [3.0, 4.0]])), r"coupling has shape \(2, 2\)"),
        ((2, 2), dict(coupling=([1.0, 2.0], [3.0, 4.0])), "coupling along axis 1 has shape"),
        ((2, 3), dict(field=[1.0, 2.0, 3.0]), "field has shape"),
        ((4, 4), dict(temperature=0), "temperature"),
    ],
)
def test_bad_grids(shape, options, message):
    with pytest.raises(ValueError, match=message):
        mg.ising_grid(shape, **options)


def test_a_large_grid_stays_sparse():
    model = mg.ising_grid((1024, 1024), coupling=0.44, periodic=True)
    assert model.weights.nnz == 2 * 1024**2
    assert sp.issparse(model.weights)


def test_a_chain_takes_its_couplings_as_one_list():
    one, two = (mg.ising_grid((4,), coupling=j) for j in ([0.1, 0.2, 0.3], ([0.1, 0.2, 0.3, 9.0],)))
    assert mg.exact_log_z(one) == pytest.approx(mg.exact_log_z(two))
