"""A plan: everything that decides a run, validated. The same plan gives the same weights on any engine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..checks import whole
from ..models.model import BipartiteMRF, as_model
from ..models.units import Array
from ..random import REVERSE, stream
from .base import Base, make_base
from .components import Parts, cut
from .moves import TRANSITIONS
from .schedule import DEFAULT_STEPS, betas

METHODS = ("ais", "mais", "mais-v", "mais-h")
PRECISIONS = ("single", "double")
DEFAULT_CHAINS = 1000


@dataclass(frozen=True, eq=False)
class Plan:
    """What to run: model, method (``ais``, ``mais-v`` or ``mais-h``), path, chains and seed."""

    model: BipartiteMRF
    parts: Parts  # what is annealed, and what is summed exactly
    method: str
    betas: Array
    base: Base
    transition: str
    sweeps: int  # of Metropolis proposals; 0 without them
    chains: int
    first_chain: int
    seed: int
    precision: str
    schedule: str  # names, for the record: "linear", "adaptive" or "given"
    base_name: str  # "given", if it has no other
    start: Array | None = None  # states of the sampled side, a row per chain; drawn from P_0 without them

    @property
    def steps(self) -> int:
        """Return the number of annealing steps, K."""
        return len(self.betas) - 1

    def oriented(self) -> tuple[BipartiteMRF, Base, bool]:
        """Return what is annealed and its base, turned so that the visible side is sampled; and if turned."""
        model, base = self.parts.annealed, self.parts.base
        assert model is not None
        if self.method != "mais-h":
            return model, base, False
        return model.transposed(), base.transposed(), True

    def reversed(self, start: Array, equilibration: int = 0) -> Plan:
        """Return the plan of the reverse process (eq. reverse_process) from samples of P_K, a row per chain.

        Its weights are those of Z_0/Z. The chains first take `equilibration` moves under P_K.
        """
        model, base, swap = self.oriented()
        if self.transition == "metropolis":  # the reverse of a sweep takes the units from last to first
            w, b, c = model.weights[:, ::-1], model.visible_bias, model.hidden_bias[::-1]
            model = BipartiteMRF(w, b, c, model.visible_units, model.hidden_units, model.temperature)
            base = Base(base.visible, base.hidden[::-1])
        if swap:
            model, base = model.transposed(), base.transposed()
        return replace(
            self,
            parts=Parts(model, base, -self.parts.log_ratio),
            betas=np.concatenate([np.full(equilibration, self.betas[-1]), self.betas[::-1]]),
            chains=len(start),
            seed=stream(self.seed, REVERSE),
            start=start,
        )

    def fingerprint(self) -> str:
        """Hash of all but the chains and the seed: estimates that share it estimate the same thing."""
        words = f"{self.method} {self.transition} {self.sweeps} {self.precision}"
        return f"{model_digest(self.model)} {_digest(words, [self.betas, self.base.visible, self.base.hidden])}"


def model_digest(model: BipartiteMRF) -> str:
    """Hash of a model as it is stored."""
    w = model.weights
    arrays: list[Any] = [w.indptr, w.indices, w.data] if sp.issparse(w) else [w]
    arrays += [model.visible_bias, model.hidden_bias, model.temperature, model.offset]
    return _digest(f"{w.shape} {model.visible_units} {model.hidden_units}", arrays)


def _digest(words: str, arrays: list[Any]) -> str:
    digest = hashlib.sha256(words.encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def make_plan(
    model: BipartiteMRF,
    *,
    method: str = "mais",
    steps: int = DEFAULT_STEPS,
    chains: int = DEFAULT_CHAINS,
    transition: str = "gibbs",
    sweeps: int = 1,
    schedule: str | ArrayLike = "linear",
    base: str | Base | Sequence[ArrayLike] = "uniform",
    seed: int = 0,
    first_chain: int = 0,
    precision: str = "single",
    whole_model: bool = False,
) -> Plan:
    """Validate the arguments of `estimate` and settle what is left open.

    With `whole_model` nothing is summed exactly beforehand, so that the states are those of the whole model and
    the weights on the way those of its P_k.
    """
    model = as_model(model)
    for value, known, argument in (
        (method, METHODS, "method"),
        (transition, TRANSITIONS, "transition"),
        (precision, PRECISIONS, "precision"),
    ):
        if value not in known:
            raise ValueError(f"{argument} is {value!r}; it must be one of {', '.join(known)}")
    sweeps = whole(sweeps, "sweeps", 1, 10**6) if transition == "metropolis" else 0
    path = betas(schedule, steps)
    if whole_model and 0 in (model.n_visible, model.n_hidden):
        raise ValueError("the model has no couplings, one side being empty: there is no path; see exact_log_z")
    start = make_base(base, model)
    parts = Parts(model, start, model.natural.offset) if whole_model else cut(model, start)
    if method == "mais":  # sum out the larger side (paper, section on the size ratio)
        sampled = parts.annealed or model
        method = "mais-v" if sampled.n_hidden >= sampled.n_visible else "mais-h"
    if transition == "metropolis" and parts.annealed is not None and parts.annealed.spin_form is None:
        raise ValueError("transition 'metropolis' serves spin and binary units only")
    return Plan(
        model=model,
        parts=parts,
        method=method,
        betas=path,
        base=start,
        transition=transition,
        sweeps=sweeps,
        chains=whole(chains, "chains", 1, 2**32),
        first_chain=whole(first_chain, "first_chain", 0, 2**32 - whole(chains, "chains", 1, 2**32)),
        seed=whole(seed, "seed", 0, 2**64 - 1),
        precision=precision,
        schedule=schedule if isinstance(schedule, str) else "given",
        base_name=base if isinstance(base, str) else "given",
    )
