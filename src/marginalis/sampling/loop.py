"""The readable loop: AIS and mAIS line by line as in the paper, for every kind of unit, in float64.

The path of distributions is −E_k = (1−β_k) ln P̃_0 + β_k (−E) (eq. P_k(x)_beta_k; the paper's inline formula
for E_k has a sign slip on ln P_0). With an independent base only the fields move: the hidden side given v
has fields c0 + β_k·gap(v), where gap(v) = (c − c0) + vᵀW, so one matrix product serves the weight at step k
and the move that follows it.

This module is the truth that the fast engines are tested against.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..models.units import Array
from ..parallel.threads import Tick
from ..random import HIDDEN, JOINT, VISIBLE, uniforms
from .moves import KERNELS
from .plan import Plan
from .recorder import Watch

_CHUNK = 4096  # chains annealed together; bounds the memory, changes nothing else
_OPERATIONS = 2e8  # of one call into a library, about: some tenths of a second, so that an interrupt is prompt
_ROWS = 64  # chains of one matrix product: the last bits of a row depend on how many there are, and on its place


class Path:
    """P_0 … P_K for a set of chains, oriented so that the visible side is the one that is sampled."""

    def __init__(self, plan: Plan, part: slice) -> None:
        model, base, swap = plan.oriented()
        chains = np.arange(part.start, part.stop, dtype=np.uint64) + np.uint64(plan.first_chain)
        self.given = None if plan.start is None else plan.start[part]
        if len(chains) == 1:  # NumPy adds up a single row of a sparse product in another order: take it twice
            chains = np.repeat(chains, 2)
            self.given = None if self.given is None else np.repeat(self.given, 2, axis=0)
        self.betas, self.seed, self.chains = plan.betas, plan.seed, chains
        self.move, self.sweeps = KERNELS[plan.transition], plan.sweeps
        natural = model.natural
        self.visible, self.hidden = natural.visible_units, natural.hidden_units
        self.n_visible, self.n_hidden = model.n_visible, model.n_hidden
        self.weights, b, c = natural.weights, natural.visible_bias, natural.hidden_bias
        self.b0, self.c0 = base.visible, base.hidden
        self.gap_b, self.gap_c = b - self.b0, c - self.c0
        self.visible_side, self.hidden_side = (HIDDEN, VISIBLE) if swap else (VISIBLE, HIDDEN)

    def gap(self, v: Array) -> Array:
        """Return (c − c0) + vᵀW: the fields of the hidden side under β are c0 + β·gap."""
        return self.gap_c + self.product(v, self.weights)

    def product(self, x: Array, weights: Any) -> Array:
        """Return x @ weights, row by row the same bits for any choice of chains."""
        if sp.issparse(weights):
            return x @ weights
        lead = int(self.chains[0]) % _ROWS
        rows = np.zeros((lead + len(x) + -(lead + len(x)) % _ROWS, x.shape[1]))
        rows[lead : lead + len(x)] = x
        return (rows.reshape(-1, _ROWS, x.shape[1]) @ weights).reshape(len(rows), -1)[lead : lead + len(x)]

    def start(self) -> Array:
        """Draw v⁽¹⁾ from P_0(v), unless the plan gives it."""
        if self.given is not None:
            return self.given
        return self.draw_visible(np.broadcast_to(self.b0, (len(self.chains), len(self.b0))), step=0)

    def visible_fields(self, k: int, h: Array) -> Array:
        """Fields of the visible side given h, under β_k."""
        return self.b0 + self.betas[k] * (self.gap_b + self.product(h, self.weights.T))

    def draw_visible(self, fields: Array, step: int) -> Array:
        """Draw v from P_k(v|h) (eq. conditional_dist_V|H), given its fields."""
        return self.visible.draw(fields, self.uniforms(step, self.visible_side, self.n_visible))

    def draw_hidden(self, k: int, gap: Array, step: int, side: int | None = None) -> Array:
        """Draw h from P_k(h|v) (eq. conditional_dist_H|V), given gap(v)."""
        side = self.hidden_side if side is None else side
        fields = self.c0 + self.betas[k] * gap
        return self.hidden.draw(fields, self.uniforms(step, side, self.n_hidden))

    def log_w(self, k: int, v: Array, h: Array, gap: Array) -> Array:
        """ln w_k(v, h) = −E_k + E_{k−1} (eq. AIS_IW_wk)."""
        return (self.betas[k] - self.betas[k - 1]) * ((v * self.gap_b).sum(axis=1) + (gap * h).sum(axis=1))

    def log_lambda(self, k: int, v: Array, gap: Array) -> Array:
        """ln λ_k(v) = −E_V(v, k) + E_V(v, k−1) (eqs. mAIS_IW_lambda_k, bipartite_marginal_energy_V)."""
        now, before = (self.hidden.log_normaliser(self.c0 + self.betas[q] * gap) for q in (k, k - 1))
        return (self.betas[k] - self.betas[k - 1]) * (v * self.gap_b).sum(axis=1) + now - before

    def column(self, j: int) -> Array:
        """Weights of hidden unit j."""
        column = self.weights[:, [j]]
        return np.asarray(column.toarray() if sp.issparse(column) else column).ravel()

    def uniforms(self, step: int, side: int, units: int) -> Array:
        """Uniforms of all chains at an address."""
        return uniforms(self.seed, self.chains, step, side, units)


def mais(path: Path) -> Iterator[tuple[Array, Array]]:
    """Marginalized AIS (eqs. mAIS_sampling, mAIS_IW_Lambda): yields ln λ_k and the next v for k = 1 … K."""
    steps = len(path.betas) - 1
    v = path.start()
    for k in range(1, steps + 1):
        gap = path.gap(v)
        log_lambda = path.log_lambda(k, v, gap)  # the weight first, at the state before the move
        if k < steps:
            v = path.move(path, k, gap)
        yield log_lambda, v


def ais(path: Path) -> Iterator[tuple[Array, Array]]:
    """AIS on the joint space (eqs. AIS_sampling, AIS_IW_w) with T_k of eq. T_k_bipartite: yields ln w_k, next v.

    T_k(x′|x) = P_k(h′|v′) τ_k(v′|v), so h⁽ᵏ⁾ comes from P_{k−1}(h|v⁽ᵏ⁾); for k = 1 that is P_0.
    """
    steps = len(path.betas) - 1
    v = path.start()
    for k in range(1, steps + 1):
        gap = path.gap(v)
        h = path.draw_hidden(k - 1, gap, step=k - 1, side=JOINT)
        log_w = path.log_w(k, v, h, gap)
        if k < steps:
            v = path.move(path, k, gap)
        yield log_w, v


def _chains_together(plan: Plan) -> int:
    model = plan.oriented()[0]
    entries = model.weights.nnz if model.is_sparse else model.weights.size
    per_chain = entries + 10 * (len(model.visible_bias) + len(model.hidden_bias))
    return min(_CHUNK, max(1, int(_OPERATIONS / per_chain) // _ROWS) * _ROWS)


def anneal(plan: Plan, tick: Tick, watch: Watch | None = None) -> Array:
    """Return ln W of every chain for the annealed part of the plan; `tick` hears the fraction done.

    A plan whose β run from 1 to 0 from given samples of P_K is the reverse process (eq. reverse_process): the
    weight of step k is then 1/w_k, since blocked Gibbs is its own reverse (eq. reverse_transition) and h is
    drawn afresh from P_k(h|v) in both directions.
    """
    method = ais if plan.method == "ais" else mais
    log_weights = np.zeros(plan.chains)
    chunk = _chains_together(plan)
    for start in range(0, plan.chains, chunk):
        part = slice(start, min(start + chunk, plan.chains))
        for k, (log_w, v) in enumerate(method(Path(plan, part)), start=1):
            log_weights[part] += log_w[: part.stop - part.start]
            if watch is not None and k in watch:
                watch.note(k, part, log_weights[part], v[: part.stop - part.start])
            tick((part.start + (part.stop - part.start) * k / plan.steps) / plan.chains)
    return log_weights
