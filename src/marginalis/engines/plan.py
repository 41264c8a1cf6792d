"""Plans: everything that decides a run, validated. The same plan gives the same weights on any engine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Unpack
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..checks import Array, did_you_mean, plain_array, real_number, shown, whole
from ..exact.sampling import sample_visible
from ..gpu.device import device_numbers
from ..models.arrange import rearrange
from ..models.factors import FactorModel
from ..models.layered import annealable
from ..models.model import MRF
from ..options import (
    DEFAULT_CHAINS,
    DEFAULT_STEPS,
    NOT_OF_A_PLAN,
    SCHEDULES,
    PlanOptions,
    filled_in,
)
from ..paths.base import is_quenches, make_base
from ..paths.path import Path, make_path
from ..random import REVERSE, START, stream
from .placement import choose_placement, operations_per_second, unserved

_BASES_OF_TERMS = ("uniform", "biases")  # Names of bases that do not need couplings of pairs.
_FEWEST_TOGETHER = 10  # Smallest number of chains in a population that is not requested by the user.
# Default shares of effective chains below which a population is resampled. With the second, variances are a quarter
# smaller, and resampling is cheap compared with steps of more than _DEAR operations.
_RARELY, _OFTEN = 0.5, 0.9
_DEAR = 3e4


@dataclass(frozen=True, eq=False)
class Move:
    """The transition kernel τ_k of the sampled side."""

    kind: str = "gibbs"  # "gibbs" or "metropolis".
    sweeps: int = 0  # Number of Metropolis sweeps per step; 0 for Gibbs.


GIBBS = Move()


@dataclass(frozen=True, eq=False)
class Chains:
    """The chains of a run, their populations, and the states that they start from."""

    first: int
    count: int
    seed: int
    populations: int = 0  # Number of populations for resampling; 0 without it.
    resample_below: float = 0.0  # Share of effective chains below which a population is resampled; 0: never.
    start: Array | None = None  # States of the sampled side, one row per chain; None: drawn from P_0.
    start_log_weights: Array | None = None  # Log-weights of these chains from an earlier run; None: 0.

    @property
    def population_size(self) -> int:
        """Number of chains in a population."""
        return self.count // self.populations

    @property
    def numbers(self) -> Any:
        """The numbers of the chains, which are part of the addresses of their random numbers."""
        return np.arange(self.count, dtype=np.uint64) + np.uint64(self.first)


@dataclass(frozen=True)
class Placement:
    """The engine, precision, draws and devices of a plan."""

    engine: str
    precision: str  # Precision of the run, which may be finer than the requested one.
    draws: str = "words"  # Random numbers that units are drawn with (see `random`): "words" or "planes".
    devices: tuple[int, ...] = (0,)  # Numbers of the GPUs to use.


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that decides a run: path, steps, moves, chains and placement."""

    path: Path
    betas: Array
    method: str  # "ais", or "mais", which sums out the side that is not sampled.
    move: Move
    chains: Chains
    placement: Placement
    schedule: str  # Origin of the betas: "linear", "adaptive" or "given".

    @property
    def steps(self) -> int:
        """Return the number of annealing steps, K."""
        return len(self.betas) - 1

    @property
    def method_name(self) -> str:
        """The method, on a bipartite graph with the sampled side: for instance "mais-v" or "mais-h"."""
        annealed = self.path.model if self.path.is_exact else self.path.end
        if self.method == "ais" or not annealed.is_bipartite:
            return self.method
        return "mais-h" if self.path.is_turned else "mais-v"

    @property
    def seconds_per_chain(self) -> float:
        """Estimated time of one chain on one core, in seconds."""
        return self.steps * self.path.operations / operations_per_second(self.placement.engine)

    @property
    def usual_threshold(self) -> float:
        """Default share of effective chains below which a population is resampled."""
        return _OFTEN if self.path.operations > _DEAR else _RARELY

    def with_chains(self, **changes: Any) -> Plan:
        """Return the plan for other chains."""
        return replace(self, chains=replace(self.chains, **changes))

    def with_steps(self, betas: Array, schedule: str | None = None) -> Plan:
        """Return the plan with other steps, and the precision that these require."""
        name = self.schedule if schedule is None else schedule
        return replace(self, betas=betas, schedule=name).on_engine(self.placement.engine)

    def placed(self, **changes: str) -> Plan:
        """Return the plan with another precision, other draws or another engine, without checking them again."""
        return replace(self, placement=replace(self.placement, **changes))  # type: ignore[arg-type]

    def along(self, path: Path) -> Plan:
        """Return the plan on another path; the engine becomes the reference if it does not support the draws there."""
        plan = replace(self, path=path)
        return plan if unserved(plan.placement.engine, plan) is None else plan.on_engine("numpy")

    def pilot(self, purpose: int, chains: int, betas: Array | None = None, **changes: Any) -> Plan:
        """Return the plan of a pilot run, whose chains use a random stream of their own.

        `purpose` is the number of the stream (see `random`), so pilots are independent of the chains of the result.
        `changes` are changes of the fields of `Chains`; by default a pilot is not resampled. Forbidden states have a
        penalty only, so that all weights are finite.
        """
        few = Chains(**{"first": 0, "count": chains, "seed": stream(self.chains.seed, purpose), **changes})
        return replace(self, path=self.path.without_zeros(), chains=few, betas=self.betas if betas is None else betas)

    def resampled(self, populations: int) -> Plan:
        """Return the plan with resampling in this number of populations, if each has enough chains."""
        if self.chains.count < _FEWEST_TOGETHER * populations:
            return self
        chains = -(-self.chains.count // populations) * populations
        return self.with_chains(count=chains, resample_below=self.usual_threshold, populations=populations)

    def on_engine(self, engine: str) -> Plan:
        """Return the plan on the requested engine, in the precision that it requires there."""
        return replace(self, placement=choose_placement(self, engine))

    def started(self) -> Plan:
        """Return the plan with exact samples as start states if its base has couplings."""
        path = self.path
        if self.chains.start is not None or path.is_exact or not path.start.is_coupled:
            return self
        base = path.start
        first = path.end.with_natural(base.weights, base.visible, base.hidden, base.lateral)
        drawn = sample_visible(first, stream(self.chains.seed, START), self.chains.numbers)
        if drawn is None:
            raise ValueError(
                "base is a model that cannot be sampled exactly; mg.difference(base, model) does not need it"
            )
        return self.with_chains(start=drawn[0])

    def reversed(self, start: Array, equilibration: int = 0) -> Plan:
        """Return the plan of the reverse process (eq. reverse_process) from samples of P_K, one row per chain.

        Its weights estimate Z_0/Z. The chains first make `equilibration` moves under P_K.
        """
        chains = replace(
            self.chains,
            count=len(start),
            seed=stream(self.chains.seed, REVERSE),
            start=self.path.reordered(start),
        )
        return replace(
            self,
            path=self.path.reversed(last_to_first=self.move.kind == "metropolis"),
            betas=np.concatenate([np.full(equilibration, self.betas[-1]), self.betas[::-1]]),
            chains=chains,
        )

    def fingerprint(self) -> str:
        """Hash of everything but the chains and the seed; equal fingerprints mean estimates of the same quantity."""
        words = f"{self.method_name} {self.move.kind} {self.move.sweeps} {self.placement.precision}"
        if self.placement.draws != "words":
            words += f" {self.placement.draws}"
        if self.chains.populations:
            words += f" {self.chains.resample_below} {self.chains.population_size}"
        base, mixture = self.path.base, self.path.mixture
        arrays = [self.betas, base.visible, base.hidden]
        if mixture is not None:
            arrays += [x for x in (mixture.weights, mixture.fields, mixture.hidden, mixture.kept) if x is not None]
        arrays += [x for w in (base.weights, base.lateral) if w is not None for x in _stored(w)] + _factors_of(base)
        return f"{model_digest(self.path.model)} {digest(words, arrays)}"


_digests: WeakKeyDictionary[MRF, str] = WeakKeyDictionary()


def model_digest(model: MRF) -> str:
    """Hash of a model as it is stored; it is computed once, because models are immutable."""
    known = _digests.get(model)
    if known is None:
        known = _digests[model] = _model_digest(model)
    return known


def _model_digest(model: MRF) -> str:
    arrays = _stored(model.weights) + [model.visible_bias, model.hidden_bias, model.temperature, model.offset]
    if model.lateral is not None:
        arrays += _stored(model.lateral)
    arrays += _factors_of(model)
    return digest(f"{model.weights.shape} {model.visible_units} {model.hidden_units}", arrays)


def _factors_of(x: Any) -> list[Any]:
    """Return the arrays of the terms and tables of a model or of a base, if it has any."""
    if not x.has_terms:
        return []
    tables = [*x.tables, *getattr(x, "zeros", ())]
    return [a for terms in x.terms for a in terms] + [np.asarray(a) for table in tables for a in table]


def _stored(w: Any) -> list[Any]:
    return [w.indptr, w.indices, w.data] if sp.issparse(w) else [w]


def digest(words: str, arrays: list[Any]) -> str:
    """Return the hash of some words and arrays."""
    found = hashlib.sha256(words.encode())
    for array in arrays:
        found.update(np.ascontiguousarray(array).ravel().view(np.uint8).data)
    return found.hexdigest()


def make_plan(model: MRF, *, keep_whole: bool = False, **options: Unpack[PlanOptions]) -> Plan:
    """Check the options of a run, fill in the defaults, and return its plan.

    With `keep_whole` no part of the model is summed exactly beforehand, so that the states belong to the whole model
    and the intermediate weights to its P_k.
    """
    model = annealable(model)
    chosen = filled_in(options, leave_out=NOT_OF_A_PLAN)
    method, transition = chosen["method"], chosen["transition"]
    sweeps = whole(chosen["sweeps"], "sweeps", 1, 10**6)
    schedule = "linear" if chosen["schedule"] is None else chosen["schedule"]
    steps = betas(schedule, DEFAULT_STEPS if chosen["steps"] is None else chosen["steps"])
    if model.has_terms:
        _check_options_of_terms(chosen)
    if chosen["summed"] is not None:
        if method in ("mais-v", "mais-h"):
            raise ValueError(f"summed and method {method!r} both choose what is summed out: leave out one of them")
        model = rearrange(model, chosen["summed"])
        if model.is_bipartite and method == "mais":
            method = "mais-v"
    if keep_whole and 0 in (model.n_visible, model.n_hidden):
        raise ValueError("the model has no couplings, so that there is nothing to anneal: use exact_log_z")
    base = "uniform" if chosen["base"] is None or is_quenches(chosen["base"]) else chosen["base"]
    start = make_base(base, model)
    if not model.is_bipartite:
        if method in ("mais-v", "mais-h"):
            raise ValueError(f"method {method!r} names a side of a bipartite graph; on this one use 'mais' and summed")
        if transition == "metropolis":
            raise ValueError("transition 'metropolis' supports bipartite graphs only")
    if start.is_coupled and transition == "metropolis":
        raise ValueError("transition 'metropolis' does not support a base with couplings: use 'gibbs'")
    if start.lateral is not None and model.is_bipartite:  # The base couples visible variables to each other.
        if method == "mais-h":
            raise ValueError("method 'mais-h' sums out the visible side, which is coupled in the base; use 'mais'")
        method = "mais-v" if method == "mais" else method
    name = base if isinstance(base, str) else "model" if isinstance(base, MRF) or start.is_coupled else "given"
    path = make_path(model, start, name, None if method == "mais" else method == "mais-h", keep_whole=keep_whole)
    if transition == "metropolis" and not path.is_exact and path.end.spin_form is None:
        raise ValueError("transition 'metropolis' supports spin and binary units only")
    chains = whole(DEFAULT_CHAINS if chosen["chains"] is None else chosen["chains"], "chains", 1, 2**32)
    share, populations = resampling(chosen["resample"], chosen["populations"])
    if populations:
        chains = -(-chains // populations) * populations  # All populations have the same size.
    devices = (0,) if chosen["device"] is None else device_numbers(chosen["device"])
    plan = Plan(
        path=path,
        betas=steps,
        method="ais" if method == "ais" else "mais",
        move=Move(transition, sweeps) if transition == "metropolis" else GIBBS,
        chains=Chains(
            first=whole(chosen["first_chain"], "first_chain", 0, 2**32 - chains),
            count=chains,
            seed=whole(chosen["seed"], "seed", 0, 2**64 - 1),
            populations=populations,
            resample_below=share,
        ),
        placement=Placement("auto", chosen["precision"], chosen["draws"], devices),
        schedule=schedule if isinstance(schedule, str) else "given",
    )
    return plan.on_engine(chosen["engine"])


def betas(schedule: str | ArrayLike, steps: int = DEFAULT_STEPS) -> Array:
    """Return the sequence β_0 … β_K of the path (paper, below eq. P_k(x)_beta_k).

    ``"linear"`` has K = `steps` equal steps; any other schedule is an increasing list from 0 to 1.
    """
    if isinstance(schedule, str):
        if schedule != "linear":
            raise ValueError(
                f"schedule is {shown(schedule)}; it must be 'linear', 'adaptive' or a list of β from 0 to 1"
                + did_you_mean(schedule, SCHEDULES)
            )
        return np.linspace(0.0, 1.0, whole(steps, "steps", 1, 2**31) + 1)
    try:
        given = plain_array(schedule, "schedule")
        if given.dtype.kind == "c":
            raise TypeError
        with np.errstate(all="ignore"):  # A long double that overflows is refused below.
            sequence = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("schedule must be 'linear', 'adaptive' or a list of numbers from 0 to 1") from None
    if sequence.ndim != 1 or len(sequence) < 2:
        raise ValueError("schedule must list at least two β: 0 first and 1 last")
    if not np.isfinite(sequence).all():
        raise ValueError("schedule holds NaN or infinite values")
    if sequence[0] != 0.0 or sequence[-1] != 1.0:
        raise ValueError(f"schedule runs from {sequence[0]:g} to {sequence[-1]:g}; it must run from 0 to 1")
    rise = np.diff(sequence)
    if (rise <= 0).any():
        k = int(np.argmax(rise <= 0)) + 1
        raise ValueError(f"schedule must increase, but β_{k} = {sequence[k]:g} follows {sequence[k - 1]:g}")
    if whole(steps, "steps", 1, 2**31) not in (DEFAULT_STEPS, len(sequence) - 1):
        raise ValueError(f"steps is {steps}, but the schedule has {len(sequence) - 1} steps; leave steps out")
    return sequence


def _check_options_of_terms(chosen: Any) -> None:
    """Raise a ValueError if the options require a model of pairs."""
    if chosen["summed"] is not None:
        raise ValueError("summed requires a model of pairs; with larger factors the package chooses what to sum out")
    if isinstance(chosen["base"], MRF | FactorModel) or (
        isinstance(chosen["base"], str) and chosen["base"] not in _BASES_OF_TERMS
    ):
        raise ValueError("base requires a model of pairs; with larger factors use 'uniform', 'biases' or fields")


def resampling(resample: Any, populations: int) -> tuple[float, int]:
    """Return the share of effective chains below which populations are resampled, and their number; 0, 0: never."""
    number = whole(populations, "populations", 1, 2**31)
    if resample is None or resample is False:
        return 0.0, 0
    share = 0.5 if resample is True else real_number(resample, "resample")
    if not 0.0 < share <= 1.0:
        raise ValueError(f"resample is {shown(resample)}; it must be True, False or a share between 0 and 1")
    return share, number
