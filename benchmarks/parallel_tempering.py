"""Parallel tempering and Bennett's acceptance ratio in plain NumPy: another way to ln Z, to compare with.

Replicas stand on a ladder β_0 = 0 < … < β_R = 1 of the path from the uniform distribution to the model. All are moved
by block Gibbs sweeps, h given v and v given h; after each sweep neighbours may exchange their states (Swendsen & Wang,
Phys. Rev. Lett. 57, 2607 (1986); Hukushima & Nemoto, J. Phys. Soc. Jpn. 65, 1604 (1996)). As in mAIS, h is summed out
of all densities. ln Z is ln Z_0, which is known, and a Bennett difference for each pair of neighbours.

Bipartite graphs only. What it costs is told in sweeps of one replica, so that NumPy is not held against it.
"""

from __future__ import annotations

import numpy as np

import marginalis as mg
from marginalis.statistics.bennett import bennett

SPACING = 1.0  # standard deviations of the work between neighbours: about half of the exchanges are accepted
FEWEST = 10  # replicas: with four, which is where a spacing of 1 puts it, the error on digits was five times as large
PILOT_STEPS = PILOT_CHAINS = 64
BURN_IN = 0.1  # share of the sweeps that are not counted


def ladder(model: mg.MRF, seed: int) -> tuple[np.ndarray, int]:
    """Return β of the replicas, about equally far from one another, and the sweeps that finding them took."""
    pilot = mg.estimate(
        model, steps=PILOT_STEPS, chains=PILOT_CHAINS, schedule="adaptive", base="uniform", record=True, seed=seed
    )
    works = np.diff(pilot.curve.log_weights, axis=0, prepend=0.0)
    length = np.concatenate([[0.0], np.cumsum(works.std(axis=1))])
    replicas = max(FEWEST, 1 + int(np.ceil(length[-1] / SPACING)))
    betas = np.concatenate([[0.0], pilot.curve.betas])
    places = np.linspace(0.0, length[-1], replicas)
    return np.interp(places, length, betas), 2 * PILOT_STEPS * PILOT_CHAINS  # one half to fit the pilot's own steps


def log_z(model: mg.MRF, betas: np.ndarray, sweeps: int, runs: int, seed: int) -> np.ndarray:
    """Return ln Z of `runs` independent runs of so many sweeps of each replica, burn-in included."""
    natural, rng, replicas = model.natural, np.random.default_rng(seed), len(betas)
    assert natural.lateral is None, "a bipartite graph is needed"
    visible, hidden = natural.visible_units, natural.hidden_units
    w, b, c = (x.astype(np.float32) for x in (natural.weights, natural.visible_bias, natural.hidden_bias))
    beta = np.tile(betas.astype(np.float32), runs)[:, None]  # row: a replica, run after run
    shape = runs, replicas

    def uniforms(n: int) -> np.ndarray:
        return rng.random((len(beta), n), dtype=np.float32)

    def log_density(at: np.ndarray, linear: np.ndarray, fields: np.ndarray) -> np.ndarray:
        return at[:, 0] * linear + hidden.log_normaliser(at * fields)

    v = visible.draw(np.zeros((len(beta), len(b)), np.float32), uniforms(model.n_visible))
    fields = c + v @ w
    first = int(BURN_IN * sweeps)
    works: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])  # of pairs (0, 1), (2, 3), …; of pairs (1, 2), …
    for sweep in range(sweeps):
        h = hidden.draw(beta * fields, uniforms(model.n_hidden))
        v = visible.draw(beta * (b + h @ w.T), uniforms(model.n_visible))
        fields, linear = c + v @ w, v @ b
        odd = sweep % 2
        lower = np.arange(odd, replicas - 1, 2)
        partner = np.arange(replicas)
        partner[lower], partner[lower + 1] = lower + 1, lower
        theirs = beta.reshape(shape)[:, partner].reshape(-1, 1)
        work = (log_density(beta, linear, fields) - log_density(theirs, linear, fields)).reshape(shape)
        if sweep >= first:
            works[odd].append(work)
        accepted = np.log(rng.random((runs, len(lower)))) < -(work[:, lower] + work[:, lower + 1])
        at = np.tile(np.arange(replicas), (runs, 1))
        at[:, lower] += accepted
        at[:, lower + 1] -= accepted
        rows = (at + replicas * np.arange(runs)[:, None]).ravel()
        v, fields = v[rows], fields[rows]

    # [pair's parity][sweep, run, replica]; those of the upper replica lead downwards
    pairs = [np.array(half, dtype=np.float64) for half in works]
    log_z0 = sum(float(units.log_normaliser(np.zeros((1, n)))[0]) for units, n in ((visible, len(b)), (hidden, len(c))))
    return np.array(
        [
            natural.offset
            + log_z0
            - sum(bennett(pairs[r % 2][:, run, r], pairs[r % 2][:, run, r + 1]).difference for r in range(replicas - 1))
            for run in range(runs)
        ]
    )
