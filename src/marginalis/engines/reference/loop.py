"""The readable loop: AIS and mAIS line by line as in the paper, for every kind of unit and any graph, in float64.

The path of distributions is −E_k = (1−β_k)(−E_start) + β_k (−E) (eq. P_k(x)_beta_k; the paper's inline formula for
E_k has a sign slip on ln P_0), so every field is affine in β: the summed-out side h given v has the fields
start(v) + β_k·slope(v), where slope(v) = (c − c0) + vᵀ(W − W0), and start(v) = c0 wherever the base has no couplings
of its own. One matrix product serves the weight at step k and the move that follows it.

The fast engines are tested against this module.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logsumexp

from ...checks import Array, dense
from ...models.forms import less
from ...models.interacting import InteractingMRF
from ...models.model import MRF
from ...models.terms import TermFields, pulled
from ...models.units import Units
from ...paths.mixture import pick
from ...random import HIDDEN, JOINT, MIXTURE, VISIBLE, uniforms
from ..plan import Plan
from .moves import KERNELS
from .terms import term_fields

_CHUNK = 4096  # Chains advanced together. It bounds the memory and has no effect on the results.
_OPERATIONS = 2e8  # Operations per library call: some tenths of a second, so that interrupts are handled promptly.
_ROWS = 64  # Chains per matrix product; fixed because the last bits of a row depend on their number and its place.


class Fields(NamedTuple):
    """Fields of the summed-out side given v: start + β·slope under β."""

    start: Array
    slope: Array

    def under(self, beta: float) -> Array:
        """Return the fields under β."""
        return self.start + beta * self.slope


class Block(NamedTuple):
    """Visible variables that are drawn together, and the couplings into their features."""

    variables: Any
    features: Any
    units: Units
    weights: Any  # From the hidden side: the slope in β, and the value at the start of the path.
    weights0: Any
    lateral: Any  # The same from the visible side.
    lateral0: Any
    terms: Any = ()  # Factors of several variables that add to its fields: the slope in β, and the start.
    terms0: Any = ()


class Distributions:
    """P_0 … P_K for a set of chains: the visible side is sampled, the hidden one summed out."""

    def __init__(self, plan: Plan, chains: range) -> None:
        model, base, swap = plan.path.end, plan.path.start, plan.path.is_turned
        self.betas, self.seed, self.draws = plan.betas, plan.chains.seed, plan.placement.draws
        self.chains = never_one(np.arange(chains.start, chains.stop, dtype=np.uint64) + np.uint64(plan.chains.first))
        self.move, self.sweeps = KERNELS[plan.move.kind], plan.move.sweeps
        end = model.natural
        self.n_visible, self.n_hidden = model.n_visible, model.n_hidden
        self.b0, self.c0 = base.visible, base.hidden
        self.slope_b, self.slope_c = end.visible_bias - self.b0, end.hidden_bias - self.c0
        self.weights0, self.lateral0 = base.weights, base.lateral
        self.weights, self.lateral = less(end.weights, base.weights), less(end.lateral, base.lateral)
        self.visible, self.hidden = end.visible_units, end.hidden_units
        self.terms: TermFields | None = None
        self.terms0: TermFields | None = None
        if model.has_terms:
            self.terms, self.terms0 = term_fields(model, base)
        self.sweep = [self._block(model, block) for block in base.sweep(model)]
        self.mixture = plan.path.mixture
        self.z: NDArray[np.int64] | None = None  # Component of the mixture of each chain, if drawn.
        self.visible_side, self.hidden_side = (HIDDEN, VISIBLE) if swap else (VISIBLE, HIDDEN)

    def _block(self, model: MRF, variables: NDArray[np.int64]) -> Block:
        """Return one block of visible variables with the couplings into it."""
        if len(variables) == model.n_visible:
            at: Any = slice(None)
            return Block(at, at, self.visible, _t(self.weights), _t(self.weights0), None, None)
        at = np.flatnonzero(np.isin(model.visible_units.owners(len(self.b0)), variables))
        w, w0 = (None if x is None else _t(x[at]) for x in (self.weights, self.weights0))
        inside, inside0 = (None if x is None else x[:, at] for x in (self.lateral, self.lateral0))
        terms, terms0 = (() if x is None else x.block(at) for x in (self.terms, self.terms0))
        return Block(variables, at, self.visible.take(variables), w, w0, inside, inside0, terms, terms0)

    def start(self) -> Array:
        """Draw v⁽¹⁾ from P_0(v), whose variables are independent, or from a mixture of such distributions."""
        fields = np.broadcast_to(self.b0, (len(self.chains), len(self.b0)))
        if self.mixture is not None:
            z = self.mixture.start(self.visible, self.hidden, self.uniforms(0, MIXTURE, 1)[:, 0])
            self.z = z if self.mixture.is_drawn else None
            fields = self.mixture.fields[z]
        return self.visible.draw(fields, self.uniforms(0, self.visible_side, self.n_visible))

    def start_from(self, v: Array) -> Array:
        """Start from given v⁽¹⁾; the component of a mixture is drawn from P_{β_0}(z|v)."""
        if self.mixture is not None and self.mixture.hidden is not None:
            logits = (1.0 - self.betas[0]) * self.mixture.logits(v) + self.mixture.log_kept
            for z in range(self.mixture.components):
                self.z = np.full(len(v), z)
                logits[:, z] += self.hidden.log_normaliser(self.fields(v).under(self.betas[0]))
            self.z = pick(logits, self.uniforms(0, MIXTURE, 1)[:, 0])
        return v

    def fields(self, v: Array) -> Fields:
        """Return the fields of the hidden side given v (and the component of a mixture, if drawn)."""
        start = self.c0 if self.weights0 is None else self.c0 + self.product(v, self.weights0)
        slope = self.slope_c + self.product(v, self.weights)
        if self.terms is not None:
            slope = slope + self.terms.on_hidden(v)
        if self.terms0 is not None:
            start = start + self.terms0.on_hidden(v)
        if self.z is None:
            return Fields(start, slope)
        assert self.mixture is not None
        assert self.mixture.hidden is not None
        pull = self.mixture.hidden[self.z]
        return Fields(start + pull, slope - pull)

    def rise(self, v: Array) -> Array:
        """Return the slope in β of −E_k(v, h), the terms with h aside: v·(b − b0) + ½vᵀ(L − L0)v."""
        linear = (v * self.slope_b).sum(axis=1)
        if self.terms is not None:
            linear = linear + self.terms.rise(v)
        if self.lateral is None:
            return linear
        return linear + 0.5 * (v * self.product(v, self.lateral)).sum(axis=1)

    def draw_hidden(self, k: int, fields: Fields, step: int, side: int | None = None) -> Array:
        """Draw h from P_k(h|v) (eq. conditional_dist_H|V), given its fields."""
        side = self.hidden_side if side is None else side
        return self.hidden.draw(fields.under(self.betas[k]), self.uniforms(step, side, self.n_hidden))

    def draw_visible(self, k: int, v: Array, h: Array) -> Array:
        """Draw v′ from P_k(v|h), block after block (eq. conditional_dist_V|H: one block on a bipartite graph)."""
        u = self.uniforms(k, self.visible_side, self.n_visible)
        pull = self.pull(k, v, h)
        v = v.copy()
        for block in self.sweep:
            x = self.visible_fields(k, v, h, block)
            if pull is not None:
                x = x + pull[:, block.features]
            v[:, block.features] = block.units.draw(x, u[:, block.variables])
        self.draw_component_last(k, v, h)
        return v

    def pull(self, k: int, v: Array, h: Array) -> Array | None:
        """Draw the component of a mixture given v and h, and return its fields on the sampled side under β_k."""
        if self.mixture is None:
            return None
        z = self.z
        if z is None or not self.mixture.drawn_last:
            z = self.draw_component(k, v, h)
        return (1.0 - self.betas[k]) * self.mixture.fields[z]

    def draw_component(self, k: int, v: Array, h: Array) -> NDArray[np.int64]:
        """Draw the component of a mixture from P_k(z|v, h)."""
        assert self.mixture is not None
        logits = self.mixture.logits(v)
        if self.mixture.hidden is not None:
            logits = logits + h @ self.mixture.hidden.T
        logits = (1.0 - self.betas[k]) * logits + self.mixture.log_kept
        z = pick(logits, self.uniforms(k, MIXTURE, 1)[:, 0])
        if self.mixture.is_drawn:
            self.z = z
        return z

    def draw_component_last(self, k: int, v: Array, h: Array) -> None:
        """Draw the component after the sampled side if the mixture is drawn last, as in the reverse process."""
        if self.z is not None and self.mixture is not None and self.mixture.drawn_last:
            self.draw_component(k, v, h)

    def visible_fields(self, k: int, v: Array, h: Array, block: Block) -> Array:
        """Fields of a block of visible variables given all others, under β_k."""
        start, slope = self.b0[block.features], self.slope_b[block.features]
        slope = slope + self.product(h, block.weights)
        if block.terms:
            slope = slope + pulled(block.terms, np.concatenate([v, h], axis=1), slope.shape[1])
        if block.terms0:
            start = start + pulled(block.terms0, np.concatenate([v, h], axis=1), slope.shape[1])
        if block.lateral is not None:
            slope = slope + self.product(v, block.lateral)
        if block.weights0 is not None:
            start = start + self.product(h, block.weights0)
        if block.lateral0 is not None:
            start = start + self.product(v, block.lateral0)
        return start + self.betas[k] * slope

    def log_w(self, k: int, v: Array, h: Array, fields: Fields) -> Array:
        """ln w_k(v, h) = −E_k + E_{k−1} (eq. AIS_IW_wk)."""
        log_w = (self.betas[k] - self.betas[k - 1]) * (self.rise(v) + (fields.slope * h).sum(axis=1))
        return log_w if self.mixture is None else log_w + self.log_release(k, v)

    def log_lambda(self, k: int, v: Array, fields: Fields) -> Array:
        """ln λ_k(v) = −E_V(v, k) + E_V(v, k−1) (eqs. mAIS_IW_lambda_k, bipartite_marginal_energy_V)."""
        now, before = (self.hidden.log_normaliser(fields.under(self.betas[q])) for q in (k, k - 1))
        log_lambda = (self.betas[k] - self.betas[k - 1]) * self.rise(v) + now - before
        return log_lambda if self.mixture is None else log_lambda + self.log_release(k, v)

    def log_release(self, k: int, v: Array) -> Array:
        """Return the change of the log-weight from a mixture's fields on v; its component is summed out or sampled."""
        assert self.mixture is not None
        logits = self.mixture.logits(v)
        if self.z is not None:
            return (self.betas[k - 1] - self.betas[k]) * logits[np.arange(len(v)), self.z]
        now, before = (logsumexp((1.0 - self.betas[q]) * logits, axis=1) for q in (k, k - 1))
        return now - before

    def product(self, x: Array, weights: Any) -> Array:
        """Return x @ weights; the bits of a row do not depend on the other chains."""
        if sp.issparse(weights):
            return x @ weights
        lead = int(self.chains[0]) % _ROWS
        rows = np.zeros((lead + len(x) + -(lead + len(x)) % _ROWS, x.shape[1]))
        rows[lead : lead + len(x)] = x
        return (rows.reshape(-1, _ROWS, x.shape[1]) @ weights).reshape(len(rows), -1)[lead : lead + len(x)]

    def column(self, j: int) -> Array:
        """Weights of hidden unit j."""
        column = self.weights[:, [j]]
        return np.asarray(dense(column)).ravel()

    def uniforms(self, step: int, side: int, units: int) -> Array:
        """Uniforms of all chains at an address; those of units are made of words or planes, according to the plan."""
        return uniforms(self.seed, self.chains, step, side, units, "words" if side == MIXTURE else self.draws)


def never_one(rows: Any) -> Any:
    """Return the rows, a single row twice: NumPy sums a sparse product of one row in another order."""
    return np.repeat(rows, 2, axis=0) if len(rows) == 1 else rows


def _t(w: Any) -> Any:
    return None if w is None else w.T


def mais(path: Distributions, k: int, v: Array) -> tuple[Array, Array]:
    """Step k of marginalized AIS (eqs. mAIS_sampling, mAIS_IW_Lambda): ln λ_k, and the next v."""
    fields = path.fields(v)
    log_lambda = path.log_lambda(k, v, fields)  # The weight belongs to the state before the move.
    if k < len(path.betas) - 1:
        v = path.move(path, k, v, fields)
    return log_lambda, v


def ais(path: Distributions, k: int, v: Array) -> tuple[Array, Array]:
    """Step k of AIS on the joint space (eqs. AIS_sampling, AIS_IW_w) with T_k of eq. T_k_bipartite: ln w_k, next v.

    T_k(x′|x) = P_k(h′|v′) τ_k(v′|v), so h⁽ᵏ⁾ comes from P_{k−1}(h|v⁽ᵏ⁾); for k = 1 that is P_0.
    """
    fields = path.fields(v)
    h = path.draw_hidden(k - 1, fields, step=k - 1, side=JOINT)
    log_w = path.log_w(k, v, h, fields)
    if k < len(path.betas) - 1:
        v = path.move(path, k, v, fields)
    return log_w, v


class Population:
    """Chains annealed from P_0 to P_K, all at the same step.

    With given samples of P_K as start states and β running from 1 to 0 this is the reverse process (eq.
    reverse_process). The weight of step k is then 1/w_k, because h is drawn anew in both directions and the reverse of
    a sweep (eq. reverse_transition) visits the blocks from last to first.
    """

    stride = 1  # Steps between two checks for an interrupt.

    def __init__(self, plan: Plan, chains: range) -> None:
        self.path = Distributions(plan, chains)
        self.take_step = ais if plan.method == "ais" else mais
        self.step, self.size = 0, len(chains)
        given = None if plan.chains.start is None else never_one(plan.chains.start[chains.start : chains.stop])
        self.v = self.path.start() if given is None else self.path.start_from(given)
        self._log_weights = np.zeros(len(self.v))

    def advance(self, to_step: int) -> None:
        """Take steps until `to_step` steps have been taken in total."""
        for k in range(self.step + 1, to_step + 1):
            log_w, self.v = self.take_step(self.path, k, self.v)
            self._log_weights += log_w
        self.step = to_step

    @property
    def log_weights(self) -> Array:
        """ln W of every chain up to this step."""
        return self._log_weights[: self.size]

    def states(self) -> Array:
        """Return the states of the sampled side, [chain, feature]."""
        return self.v[: self.size]

    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Continue chain i from the state of chain ``ancestors[i]``; the log-weights do not move."""
        self.v = never_one(self.v[ancestors])
        if self.path.z is not None:
            self.path.z = never_one(self.path.z[ancestors])


def chains_together(plan: Plan) -> int:
    """Return the largest number of chains to advance together."""
    model = plan.path.end
    entries = sum(w.nnz if sp.issparse(w) else w.size for w in (model.weights, model.lateral) if w is not None)
    if isinstance(model, InteractingMRF):
        entries += sum(4 * x.features.size for x in model.terms)
        entries += sum(4 * sum(x.values.shape) for x in model.tables)
    per_chain = entries + 10 * (len(model.visible_bias) + len(model.hidden_bias))
    return min(_CHUNK, max(1, int(_OPERATIONS / per_chain) // _ROWS) * _ROWS)
