"""Shared helpers: reference models from their recipes, and exact sums over all paths of tiny models."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import logging
import math
import os
import signal
import subprocess
import sys
import traceback
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import settings
from scipy.special import logsumexp

import marginalis as mg
from marginalis import cli
from marginalis.models.units import Categorical
from marginalis.results.record import Record
from marginalis.running.session import Session

# a test that passes once passes always, on a busy machine, too
settings.register_profile("seeded", derandomize=True, deadline=None)
settings.load_profile("seeded")

posix = pytest.mark.skipif(os.name == "nt", reason="pipes, links, devices and signals as POSIX has them")

LOGGER = logging.getLogger("marginalis")
DATA = Path(__file__).parent / "data"


class LCG:
    """The generator of the reference files (see their "doc")."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def u(self) -> float:
        self.state = (1664525 * self.state + 1013904223) % 2**32
        return (self.state + 0.5) / 2**32

    def _fill(self, draw, shape):
        return np.array([draw() for _ in range(math.prod(shape))]).reshape(shape)

    def uniform(self, low, high, *shape):
        return self._fill(lambda: low + (high - low) * self.u(), shape)

    def normal(self, sd, *shape):
        def draw():
            u1, u2 = self.u(), self.u()
            return sd * math.sqrt(-2 * math.log(u1)) * math.cos(2 * math.pi * u2)

        return self._fill(draw, shape)

    def sign(self, *shape):
        return self._fill(lambda: 1.0 if self.u() < 0.5 else -1.0, shape)


@pytest.fixture(scope="session")
def reference():
    """Exact ln Z by name."""
    cases = json.loads((DATA / "exact_log_z.json").read_text())["cases"]
    return {case["name"]: case for case in cases}


@pytest.fixture(scope="session")
def path_moments():
    return json.loads((DATA / "exact_path_moments.json").read_text())


def moments_model():
    """The 3×2 RBM of exact_path_moments.json."""
    lcg = LCG(21)
    b, c, w = lcg.normal(0.3, 3), lcg.normal(0.3, 2), lcg.normal(1.0, 3, 2)
    return mg.rbm(w, b, c)


def states(units, features: int) -> np.ndarray:
    """All states of a discrete side, one per row of features."""
    if isinstance(units, Categorical):
        blocks = [np.eye(q) for q in units.counts(features)]
        return np.array([np.concatenate(rows) for rows in itertools.product(*blocks)])
    values = {"spin": (-1.0, 1.0), "binary": (0.0, 1.0)}[units.name]
    return np.array(list(itertools.product(values, repeat=features)))


def brute_log_z(energy, *values):
    """ln Σ exp(−energy(x)) over all states."""
    return np.logaddexp.reduce([-energy(np.array(x)) for x in itertools.product(*values)])


def log_z_of_factors(model, held=None) -> float:
    """ln of the sum over all states of a `FactorModel` that agree with what is held, by the definition."""
    total = []
    for x in itertools.product(*map(range, model.cards)):
        if all(x[v] == state for v, state in (held or {}).items()):
            total.append(sum(float(t[tuple(x[v] for v in s)]) for s, t in zip(model.scopes, model.tables, strict=True)))
    return model.offset + float(np.logaddexp.reduce(total)) if total else -math.inf


def energy_of(model, x):
    """Energy of a state of two-state units given in the caller's order, from the model's own parameters."""
    v, h = x[model.split.visible], x[model.split.hidden]
    total = v @ model.visible_bias + h @ model.hidden_bias + v @ (model.weights @ h) + model.offset
    if model.lateral is not None:
        total += 0.5 * v @ (model.lateral @ v)
    return -total / model.temperature


@dataclass
class Moments:
    """Exact moments of a chain's weight over all paths."""

    mean: float
    second: float
    mean_log: float

    @property
    def relvar(self) -> float:
        return self.second / self.mean**2 - 1.0


class PathSums:
    """Products of transition matrices over all states of a tiny model: nothing here is sampled.

    ``log_p[k]`` is −E_k on the grid of all (v, h).
    """

    def __init__(self, model, betas, base=None, sweeps=0) -> None:
        v = states(model.visible_units, len(model.visible_bias))
        h = states(model.hidden_units, len(model.hidden_bias))
        t = model.temperature
        weights = model.weights.toarray() if model.is_sparse else model.weights
        target = ((v @ model.visible_bias)[:, None] + h @ model.hidden_bias + v @ weights @ h.T + model.offset) / t
        if model.lateral is not None:
            target += (0.5 / t) * ((v @ model.lateral) * v).sum(axis=1)[:, None]
        if model.has_terms:
            rows = np.concatenate([np.repeat(v, len(h), axis=0), np.tile(h, (len(v), 1))], axis=1)
            for features, couplings in model.terms:
                target += (rows[:, features].prod(axis=2) @ couplings).reshape(target.shape) / t
            starts = model.feature_starts
            for variables, values in model.tables:
                at = tuple(rows[:, starts[i] : starts[i + 1]].argmax(axis=1) for i in variables)
                target += values[at].reshape(target.shape) / t
        b0, c0 = base if base is not None else (np.zeros(v.shape[1]), np.zeros(h.shape[1]))
        start = (v @ b0)[:, None] + h @ c0
        self.v_states, self.h_states, self.sweeps = v, h, sweeps
        self.is_bipartite, self.owners = model.is_bipartite, model.visible_units.owners(v.shape[1])
        self.log_p = [(1 - beta) * start + beta * target for beta in betas]
        # not np.logaddexp.reduce, which adds one term after the other: its rounding would show in strict tests
        self.log_z = logsumexp(target)
        self.log_z0 = logsumexp(start)

    def conditional(self, k, axis):
        """P_k(h|v) for axis 1, P_k(v|h) for axis 0, as [v, h]."""
        return np.exp(self.log_p[k] - np.logaddexp.reduce(self.log_p[k], axis=axis, keepdims=True))

    def tau(self, k):
        """τ_k[v, v′]: blocked Gibbs, with `sweeps` Metropolis sweeps over the hidden units in between."""
        if not self.is_bipartite:
            return np.einsum("vh,hvw->vw", self.conditional(k, 1), self.one_by_one(k))
        sweep = np.linalg.matrix_power(self.metropolis(k), self.sweeps) if self.sweeps else np.eye(len(self.h_states))
        return self.conditional(k, 1) @ sweep @ self.conditional(k, 0).T

    def one_by_one(self, k):
        """G[h, v, v′]: given h, each visible variable in turn from its law given all others."""
        whole = np.eye(len(self.v_states))[None]
        for variable in np.unique(self.owners):
            others = self.v_states[:, self.owners != variable]
            same = (others[:, None] == others[None]).all(axis=2)
            log_p = np.where(same, self.log_p[k].T[:, None, :], -np.inf)
            whole = whole @ np.exp(log_p - np.logaddexp.reduce(log_p, axis=2, keepdims=True))
        return whole

    def metropolis(self, k):
        """M[h, h′]: one single-flip proposal per hidden unit in order, on P_k(h); two-state units only."""
        log_p = np.logaddexp.reduce(self.log_p[k], axis=0)
        states = range(len(log_p))
        whole = np.eye(len(log_p))
        for bit in reversed(range(self.h_states.shape[1])):  # the last unit changes fastest
            flip = [s ^ (1 << bit) for s in states]
            accept = np.minimum(1.0, np.exp(log_p[flip] - log_p))
            move = np.diag(1.0 - accept)
            move[states, flip] = accept
            whole = whole @ move
        return whole

    def marginal(self, k):
        """ln Σ_h exp(−E_k)."""
        return np.logaddexp.reduce(self.log_p[k], axis=1)

    def mais_v(self) -> Moments:
        steps = len(self.log_p) - 1
        log_w = [self.marginal(k) - self.marginal(k - 1) for k in range(1, steps + 1)]
        return self._moments(self.marginal(0), log_w, [self.tau(k) for k in range(1, steps)])

    def ais(self) -> Moments:
        steps = len(self.log_p) - 1
        log_w = [(self.log_p[k] - self.log_p[k - 1]).ravel() for k in range(1, steps + 1)]
        return self._moments(self.log_p[0].ravel(), log_w, [self.joint(k) for k in range(1, steps)])

    def joint(self, k):
        """T_k[x, x′] = P_k(h′|v′) τ_k(v′|v)."""
        v_to_x = (self.tau(k)[:, :, None] * self.conditional(k, 1)[None]).reshape(len(self.v_states), -1)
        return np.repeat(v_to_x, len(self.h_states), axis=0)

    def reverse(self, method) -> Moments:
        """Moments of 1/W (Z_0/Z on average) under the reverse process, from the definition of its transition."""
        steps = len(self.log_p) - 1
        laws = [self.log_p[k].ravel() if method == "ais" else self.marginal(k) for k in range(steps + 1)]
        forward = self.joint if method == "ais" else self.tau
        kernels = []
        for k in range(steps - 1, 0, -1):
            p = np.exp(laws[k] - np.logaddexp.reduce(laws[k]))
            kernels.append(forward(k).T * p[None, :] / p[:, None])
        return self._moments(laws[-1], [laws[k - 1] - laws[k] for k in range(steps, 0, -1)], kernels)

    def _moments(self, log_start, log_w, kernels) -> Moments:
        p = np.exp(log_start - np.logaddexp.reduce(log_start))
        first, second, law, mean_log = p, p, p, 0.0
        for k, lw in enumerate(log_w):
            mean_log += float(law @ lw)
            first, second = first * np.exp(lw), second * np.exp(2 * lw)
            if k < len(kernels):
                first, second, law = first @ kernels[k], second @ kernels[k], law @ kernels[k]
        return Moments(first.sum(), second.sum(), mean_log)


def exact_moments(model, method, betas, base=None, sweeps=0) -> Moments:
    if method == "mais-h":
        swapped = None if base is None else (base[1], base[0])
        return PathSums(model.transposed(), betas, swapped, sweeps).mais_v()
    sums = PathSums(model, betas, base, sweeps)
    return sums.ais() if method == "ais" else sums.mais_v()


def random_factors(seed, cards, arity=3, count=4, scale=0.8):
    """Random tables: one of each variable, one of `arity` variables, and others of two to `arity` variables."""
    rng = np.random.default_rng(seed)
    found = [((v,), rng.normal(size=card)) for v, card in enumerate(cards)]
    for k in range(count):
        scope = rng.choice(len(cards), arity if k == 0 else rng.integers(2, arity + 1), replace=False).tolist()
        found.append((tuple(scope), scale * rng.normal(size=[cards[v] for v in scope])))
    return mg.from_factors(found, states=dict(enumerate(cards)), log=True)


def random_rbm(rng, n, m, *, units="spin", scale=1.0, temperature=1.0):
    return mg.rbm(
        rng.normal(scale=scale, size=(n, m)),
        rng.normal(scale=0.5 * scale, size=n),
        rng.normal(scale=0.5 * scale, size=m),
        units=units,
        temperature=temperature,
    )


def command(*args, cwd=None, encoding="utf-8") -> subprocess.CompletedProcess:
    """Run the command line here, as its own process would: exit code and both streams."""
    words = ["marginalis", *map(str, args)]
    handlers = [(number, signal.getsignal(number)) for number in cli.SIGNALS]
    notices, level = list(LOGGER.handlers), LOGGER.level
    code = 0
    with contextlib.ExitStack() as stack:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(mock.patch.object(sys, "argv", words))
        if cwd is not None:
            stack.enter_context(contextlib.chdir(cwd))
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        except Exception:  # a user would see it
            traceback.print_exc()
            code = 1
        finally:
            for number, handler in handlers:
                signal.signal(number, handler)
            LOGGER.handlers, LOGGER.level = notices, level
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess(words, code, *texts)


def answer(*args) -> dict:
    """What a command that succeeds prints with --json."""
    done = command(*args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def quiet(fraction):
    """Hears how far a run is, and says nothing."""


def run(plan, threads=1, recorder=None):
    """ln W of every chain of a plan, or of every population."""
    return Session(threads).run(plan, recorder).log_weights


def log_weights(plan, engine, threads=1):
    """ln W of every chain of a plan, run by this engine."""
    return run(plan.on_engine(engine), threads)


def with_mixture(plan, mixture):
    """The plan on the path that starts from a mixture."""
    return replace(plan, path=plan.path.from_mixture(mixture, "mixture"))


@pytest.fixture
def plans(monkeypatch):
    """All plans that are run, as they are run."""
    found, run = [], Session.run
    monkeypatch.setattr(Session, "run", lambda self, plan, *rest: found.append(plan) or run(self, plan, *rest))
    return found


def z_score(sample, expected) -> float:
    """Deviation of a sample mean from `expected`, in standard errors."""
    return float((np.mean(sample) - expected) / (np.std(sample, ddof=1) / math.sqrt(len(sample))))


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix


def assert_moments(rows, mean, second):
    """Compare all means and all products of pairs with E[v] and E[vvᵀ]."""
    for i in range(rows.shape[1]):
        assert abs(z_score(rows[:, i], mean[i])) < 4.5
        for j in range(i):
            assert abs(z_score(rows[:, i] * rows[:, j], second[i, j])) < 4.5


def make_estimate(log_weights, **changes):
    """An estimate from these log-weights, as if they had been run."""
    recorded = dict(
        model="abc",
        variables=10,
        method="mais-v",
        steps=100,
        schedule="linear",
        base="uniform",
        transition="gibbs",
        engine="numba",
        precision="single",
        runs=((0, 0, len(log_weights)),),
        seconds=0.5,
    )
    record = Record(**{name: changes.pop(name, value) for name, value in recorded.items()})
    weights = mg.Weights(log_weights, changes.pop("log_z0", 2.0), changes.pop("rounding", 0.0))
    return mg.Estimate(**(dict(weights=weights, record=record, fingerprint="abc") | changes))


class Pool:
    """An executor that works at once."""

    num_workers = 2

    def __init__(self):
        self.models = 0

    def submit(self, function, task, data):
        self.models += len(task.part)
        future = Future()
        try:
            future.set_result(function(task, data))
        except Exception as error:
            future.set_exception(error)
        return future
