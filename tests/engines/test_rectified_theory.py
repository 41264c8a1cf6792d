"""Both theorems on machines with rectified units, by sums over all paths: real units take the nodes of a quadrature."""

import itertools
import math

import numpy as np
import pytest
from conftest import PathSums, states, z_score
from scipy.special import logsumexp

import marginalis as mg
from marginalis.engines.plan import make_plan
from marginalis.running.session import Session

BETAS = (0.0, 0.35, 0.7, 1.0)
NODES, WIDTHS = np.polynomial.legendre.leggauss(24)
UNITS = {
    "ReLU": mg.ReLU(1.2),
    "dReLU": mg.dReLU(1.0, 1.6, 0.4, -0.3),
    "xReLU": mg.dReLU(0.9 / (1 + 0.4), 0.9 / (1 - 0.4), 0.2 + 0.5 / 1.4, 0.2 - 0.5 / 0.6),
}


class QuadratureSums(PathSums):
    """`PathSums` of discrete visible units and one rectified hidden unit, whose own terms belong to every P_k."""

    def __init__(self, model, betas) -> None:
        v, t = states(model.visible_units, len(model.visible_bias)), model.temperature
        edges = np.array([0.0, 1.5, 4.0, 12.0])
        ends = list(itertools.pairwise(edges))
        if not model.hidden_units.is_nonnegative:
            ends += [(-b, -a) for a, b in ends]
        h = np.concatenate([(a + b) / 2 + (b - a) / 2 * NODES for a, b in ends])[:, None]
        own = np.concatenate([np.log((b - a) / 2 * WIDTHS) for a, b in ends])
        own = own + model.hidden_units.own_terms(h) / t
        target = ((v @ model.visible_bias)[:, None] + h @ model.hidden_bias + v @ model.weights @ h.T) / t
        self.v_states, self.h_states, self.sweeps, self.is_bipartite = v, h, 0, True
        self.log_p = [beta * target + own for beta in betas]
        self.log_z, self.log_z0 = logsumexp(target + own), logsumexp(self.log_p[0])


@pytest.mark.parametrize("rectified_first", [False, True])
@pytest.mark.parametrize("name", UNITS)
def test_both_theorems_and_the_weights_by_exact_path_sums(name, rectified_first):
    rng = np.random.default_rng(3)
    w, b, c = 0.4 * rng.normal(size=(3, 1)), 0.4 * rng.normal(size=3), np.array([0.5])
    model = mg.rbm(w, b, c, units=("spin", UNITS[name]), temperature=0.9)
    sums = QuadratureSums(model, BETAS)
    assert mg.exact_log_z(model) == pytest.approx(sums.log_z, abs=1e-9)
    exact = {"mais-v": sums.mais_v(), "ais": sums.ais()}
    if rectified_first:  # The real unit is sampled and the spins are summed out.
        other = QuadratureSums(model, BETAS)
        other.log_p = [x.T for x in sums.log_p]
        other.v_states, other.h_states = sums.h_states, sums.v_states
        model = mg.rbm(w.T, c, b, units=(UNITS[name], "spin"), temperature=0.9)
        exact = {"mais-v": other.mais_v(), "ais": other.ais()}
    for method, moments in exact.items():
        assert moments.mean == pytest.approx(math.exp(sums.log_z - sums.log_z0), rel=1e-8)
        plan = make_plan(
            model, method=method, schedule=list(BETAS), steps=3, chains=20_000, seed=5, engine="numpy", keep_whole=True
        )
        weights = np.exp(Session().run(plan).log_weights)
        assert abs(z_score(weights, moments.mean)) < 4.5
        assert abs(z_score(weights**2, moments.second)) < 4.5
        assert abs(z_score(np.log(weights), moments.mean_log)) < 4.5
    assert exact["mais-v"].relvar < exact["ais"].relvar
    assert exact["mais-v"].mean_log > exact["ais"].mean_log
