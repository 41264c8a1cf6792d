"""A plan: everything that decides a run, validated. The same plan gives the same weights on any engine."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Unpack
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp

from ..checks import Array, real_number, shown, whole
from ..exact.sampling import sample_visible
from ..gpu.device import device_numbers
from ..models.arrange import rearrange
from ..models.layered import as_model
from ..models.model import MRF
from ..options import (
    DEFAULT_CHAINS,
    DEFAULT_STEPS,
    NOT_OF_A_PLAN,
    PlanOptions,
    filled_in,
)
from ..paths.base import Base, is_quenches, make_base
from ..paths.mixture import Mixture
from ..paths.reduce import Remainder, sum_small_parts, whole_model
from ..paths.schedule import betas
from ..random import REVERSE, START, stream
from .placement import settle_engine, settle_precision, unserved

_OPERATIONS_PER_SECOND = {"numba": 1e10, "numpy": 5e8}  # of a core, as `Plan.operations` counts them


_FEWEST_TOGETHER = 10  # chains of a population that the package makes by itself
_RARELY, _OFTEN = 0.5, 0.9  # share of effective chains below which it resamples them: with the second, variances are a
_DEAR = 3e4  # quarter less, which pays where a step takes so many operations


@dataclass(frozen=True, eq=False)
class Plan:
    """What to run: model, method, path, chains and seed, and on which engine."""

    model: MRF
    remainder: Remainder  # what is annealed, and what is summed exactly
    method: str  # "ais", "mais-v" or "mais-h"; "mais" where the graph is not bipartite
    betas: Array
    base: Base
    transition: str
    sweeps: int  # of Metropolis proposals; 0 without them
    chains: int
    first_chain: int
    seed: int
    precision: str  # what the run will be in, which may be finer than what was asked for
    engine: str
    schedule: str  # names, for the record: "linear", "adaptive" or "given"
    base_name: str  # "given", if it has no other
    resample: float = 0.0  # share of effective chains in a population below which it is resampled; 0 for never
    populations: int = 0  # that resampling cuts the chains into; 0 without it
    mixture: Mixture | None = None  # that the sampled side starts from, in the place of the base
    start: Array | None = None  # states of the sampled side, a row per chain; drawn from P_0 without them
    start_log_weights: Array | None = None  # of these chains, from an earlier run; 0 without them
    draws: str = "words"  # which random numbers units are drawn by: "words" or "planes"
    devices: tuple[int, ...] = (0,)  # numbers of the GPUs, for the engine that runs there

    @property
    def steps(self) -> int:
        """Return the number of annealing steps, K."""
        return len(self.betas) - 1

    @property
    def population_size(self) -> int:
        """Number of chains in a population."""
        return self.chains // self.populations

    @property
    def operations(self) -> float:
        """Rough cost of a step of one chain."""
        if self.remainder.model is None:
            return 1.0
        model = self.oriented()[0]
        entries = sum(w.nnz if sp.issparse(w) else w.size for w in (model.weights, model.lateral) if w is not None)
        extra = 0
        if self.mixture is not None:
            extra = 8 * self.mixture.fields.size + 60 * self.mixture.components
            if self.mixture.hidden is not None:
                extra = 2 * self.mixture.components * model.n_features + 60 * self.mixture.components
        return 2.0 * entries + 60.0 * model.n_features + extra

    @property
    def seconds_per_chain(self) -> float:
        """Guess of what a chain takes on one core."""
        return self.steps * self.operations / _OPERATIONS_PER_SECOND.get(self.engine, 1e10)

    @property
    def log_z0(self) -> float:
        """ln Z at the start of the path; a free component of a mixture at its end counts against it."""
        log_z = self.base.log_z(self.model)
        if self.mixture is None:
            return log_z
        model, base, _ = self.oriented()
        natural, replaced = model.natural, [(model.natural.visible_units, base.visible)]
        if self.mixture.is_drawn:
            replaced.append((natural.hidden_units, base.hidden))
        own = sum(float(units.log_normaliser(fields[None])[0]) for units, fields in replaced)
        mixed = self.mixture.log_z(natural.visible_units, natural.hidden_units)
        return log_z - own + mixed - math.log(self.mixture.components)

    def oriented(self) -> tuple[MRF, Base, bool]:
        """Return what is annealed and its base, turned so that the visible side is sampled; and if turned."""
        model, base = self.remainder.model, self.remainder.base
        assert model is not None
        return (*self._turned, True) if self.method == "mais-h" else (model, base, False)

    @cached_property
    def _turned(self) -> tuple[MRF, Base]:
        assert self.remainder.model is not None
        return self.remainder.model.transposed(), self.remainder.base.transposed()

    def __getstate__(self) -> dict[str, Any]:
        """What is only kept to save time does not travel to other processes."""
        return {x.name: getattr(self, x.name) for x in fields(self)}

    def same_path(self, other: Plan) -> bool:
        """Whether both start from the same base and sample the same side."""
        return self.base_name == other.base_name and self.method == other.method

    @property
    def usual_share(self) -> float:
        """Share of effective chains below which a population is resampled, where that is left to the package."""
        return _OFTEN if self.operations > _DEAR else _RARELY

    def resampled(self, populations: int) -> Plan:
        """Return the plan with its chains in so many populations, if that leaves enough in each."""
        if self.chains < _FEWEST_TOGETHER * populations:
            return self
        chains = -(-self.chains // populations) * populations
        return replace(self, chains=chains, resample=self.usual_share, populations=populations)

    def settled(self, engine: str) -> Plan:
        """Return the plan for the engine asked for, in the precision that it takes."""
        model, base = self.remainder.model, self.remainder.base
        name = settle_engine(engine, model, self)
        # what counts sites as bits rounds nothing to single precision
        asked = "double" if (self.draws, name) == ("planes", "numba") else self.precision
        return replace(self, engine=name, precision=settle_precision(asked, name, model, base, self.steps))

    def rerouted(self, **changes: Any) -> Plan:
        """Return the plan on another path, on the reference if its engine does not serve the draws there."""
        plan = replace(self, **changes)
        return plan if unserved(plan.engine, plan) is None else plan.settled("numpy")

    def started(self) -> Plan:
        """Return the plan with exact samples of a base with couplings as the states that its chains start from."""
        if self.start is not None or self.remainder.model is None or not self.remainder.base.is_coupled:
            return self
        model, base, _ = self.oriented()
        chains = np.arange(self.chains, dtype=np.uint64) + np.uint64(self.first_chain)
        first = model.with_natural(base.weights, base.visible, base.hidden, base.lateral)
        drawn = sample_visible(first, stream(self.seed, START), chains)
        if drawn is None:
            raise ValueError(
                "base is a model that cannot be sampled exactly; mg.difference(base, model) can do without"
            )
        return replace(self, start=drawn[0])

    def reversed(self, start: Array, equilibration: int = 0) -> Plan:
        """Return the plan of the reverse process (eq. reverse_process) from samples of P_K, a row per chain.

        Its weights are those of Z_0/Z. The chains first take `equilibration` moves under P_K.
        """
        model, base, swap = self.oriented()
        mixture = None if self.mixture is None else self.mixture.reversed()
        if self.transition == "metropolis":  # the reverse of a sweep takes the units from last to first
            w, b, c = model.weights[:, ::-1], model.visible_bias, model.hidden_bias[::-1]
            model = MRF(w, b, c, model.visible_units, model.hidden_units, model.temperature)
            base = Base(base.visible, base.hidden[::-1])
            mixture = mixture and mixture.reordered(hidden=np.arange(len(c))[::-1])
        if not model.is_bipartite:  # and so does that of a Gibbs sweep
            at = model.visible_features(np.arange(model.n_visible)[::-1])
            model, start = model.reversed_sweep(), start[:, at]
            base = base.with_visible(at)
            mixture = mixture and mixture.reordered(visible=at)
        if swap:
            model, base = model.transposed(), base.transposed()
        return replace(
            self,
            remainder=Remainder(model, base, -self.remainder.log_ratio),
            betas=np.concatenate([np.full(equilibration, self.betas[-1]), self.betas[::-1]]),
            chains=len(start),
            seed=stream(self.seed, REVERSE),
            start=start,
            mixture=mixture,
        )

    def fingerprint(self) -> str:
        """Hash of all but the chains and the seed: estimates that share it estimate the same thing."""
        words = f"{self.method} {self.transition} {self.sweeps} {self.precision}"
        if self.draws != "words":
            words += f" {self.draws}"
        if self.populations:
            words += f" {self.resample} {self.population_size}"
        base = [self.base.visible, self.base.hidden]
        if self.mixture is not None:
            base += [self.mixture.weights, self.mixture.fields]
            base += [] if self.mixture.hidden is None else [self.mixture.hidden]
        base += [x for w in (self.base.weights, self.base.lateral) if w is not None for x in _stored(w)]
        return f"{model_digest(self.model)} {digest(words, [self.betas, *base])}"


_digests: WeakKeyDictionary[MRF, str] = WeakKeyDictionary()


def model_digest(model: MRF) -> str:
    """Hash of a model as it is stored; models do not change, so it is found once."""
    known = _digests.get(model)
    if known is None:
        known = _digests[model] = _model_digest(model)
    return known


def _model_digest(model: MRF) -> str:
    arrays = _stored(model.weights) + [model.visible_bias, model.hidden_bias, model.temperature, model.offset]
    if model.lateral is not None:
        arrays += _stored(model.lateral)
    return digest(f"{model.weights.shape} {model.visible_units} {model.hidden_units}", arrays)


def _stored(w: Any) -> list[Any]:
    return [w.indptr, w.indices, w.data] if sp.issparse(w) else [w]


def digest(words: str, arrays: list[Any]) -> str:
    """Return the hash of some words and arrays."""
    found = hashlib.sha256(words.encode())
    for array in arrays:
        found.update(np.ascontiguousarray(array).ravel().view(np.uint8).data)
    return found.hexdigest()


def make_plan(model: MRF, *, keep_whole: bool = False, **options: Unpack[PlanOptions]) -> Plan:
    """Check the options of a run and settle what they leave open.

    With `keep_whole` nothing is summed exactly beforehand, so that the states are those of the whole model and
    the weights on the way those of its P_k.
    """
    model = as_model(model)
    chosen = filled_in(options, leave_out=NOT_OF_A_PLAN)
    method, transition = chosen["method"], chosen["transition"]
    sweeps = whole(chosen["sweeps"], "sweeps", 1, 10**6)
    schedule = "linear" if chosen["schedule"] is None else chosen["schedule"]
    path = betas(schedule, DEFAULT_STEPS if chosen["steps"] is None else chosen["steps"])
    if chosen["summed"] is not None:
        if method in ("mais-v", "mais-h"):
            raise ValueError(f"summed says what to sum out, and so does method {method!r}: leave out one of them")
        model = rearrange(model, chosen["summed"])
        if model.is_bipartite and method == "mais":
            method = "mais-v"
    if keep_whole and 0 in (model.n_visible, model.n_hidden):
        raise ValueError("the model has no couplings, one side being empty: there is no path; see exact_log_z")
    base = "uniform" if chosen["base"] is None or is_quenches(chosen["base"]) else chosen["base"]
    start = make_base(base, model)
    remainder = whole_model(model, start) if keep_whole else sum_small_parts(model, start)
    if not model.is_bipartite:
        if method in ("mais-v", "mais-h"):
            raise ValueError(f"method {method!r} names a side of a bipartite graph; on this one use 'mais' and summed")
        if transition == "metropolis":
            raise ValueError("transition 'metropolis' serves bipartite graphs only")
    if start.is_coupled and transition == "metropolis":
        raise ValueError("transition 'metropolis' serves no path from a model with couplings: use 'gibbs'")
    if start.lateral is not None and model.is_bipartite:  # in the base the visible variables are coupled to each other
        if method == "mais-h":
            raise ValueError("method 'mais-h' sums out the visible side, which is coupled in the base; use 'mais'")
        method = "mais-v" if method == "mais" else method
    if method == "mais":  # sum out the larger side (paper, section on the size ratio)
        sampled = remainder.model or model
        if sampled.is_bipartite:
            method = "mais-v" if sampled.n_hidden >= sampled.n_visible else "mais-h"
    if transition == "metropolis" and remainder.model is not None and remainder.model.spin_form is None:
        raise ValueError("transition 'metropolis' serves spin and binary units only")
    chains = whole(DEFAULT_CHAINS if chosen["chains"] is None else chosen["chains"], "chains", 1, 2**32)
    share, populations = resampling(chosen["resample"], chosen["populations"])
    if populations:
        chains = -(-chains // populations) * populations  # all of one size
    plan = Plan(
        model=model,
        remainder=remainder,
        method=method,
        betas=path,
        base=start,
        transition=transition,
        sweeps=sweeps if transition == "metropolis" else 0,
        chains=chains,
        first_chain=whole(chosen["first_chain"], "first_chain", 0, 2**32 - chains),
        seed=whole(chosen["seed"], "seed", 0, 2**64 - 1),
        precision=chosen["precision"],
        engine="auto",
        schedule=schedule if isinstance(schedule, str) else "given",
        base_name=base if isinstance(base, str) else "model" if isinstance(base, MRF) else "given",
        resample=share,
        populations=populations,
        draws=chosen["draws"],
        devices=device_numbers(chosen["device"]),
    )
    return plan.settled(chosen["engine"])


def resampling(resample: Any, populations: int) -> tuple[float, int]:
    """Return the share of effective chains below which populations are resampled, and their number; 0, 0 for never."""
    number = whole(populations, "populations", 1, 2**31)
    if resample is None or resample is False:
        return 0.0, 0
    share = 0.5 if resample is True else real_number(resample, "resample")
    if not 0.0 < share <= 1.0:
        raise ValueError(f"resample is {shown(resample)}; it must be True, False or a share between 0 and 1")
    return share, number
