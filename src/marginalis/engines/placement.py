"""Which engine runs a plan, and in which precision: settled before the run, from the model and its path."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from ..checks import Array
from ..models.forms import SignedForm
from ..models.model import MRF
from ..models.units import Rectified
from ..parallel.threads import jit_is_off
from ..paths.spins import signed_base

if TYPE_CHECKING:
    from .plan import Placement, Plan

MOST_NEIGHBOURS = 7  # of a site of a lattice
_PER_KIND = 64  # sites of a lattice for each field, at least: tables are made for every one
_OPERATIONS_PER_SECOND = {"numba": 1e10, "numpy": 5e8}  # of a core
_EPS = 2.0**-52
_SINGLE = 3e-6  # relative error of log-weights in single precision; seen: 1.7e-6, where all couplings round alike


# On a CPU, the logarithm of a quotient adds a bias of its own to a log-weight at every step. Seen: 2e-9.
_BIAS_OF_LOGARITHM = 4e-9
_PER_LOGARITHM = 64, 4  # Summed-out variables whose factors go into one such product: of two states, of more.


def needs_gpu(engine: object) -> bool:
    """Whether an engine, if it is one at all, runs on a GPU."""
    return isinstance(engine, str) and engine == "cuda"


def operations_per_second(engine: str) -> float:
    """Rough speed of one core, in the operations of `Path.operations`."""
    return _OPERATIONS_PER_SECOND.get(engine, 1e10)


def settled(plan: Plan, engine: str) -> Placement:
    """Return the placement of a plan on the engine asked for: ``auto`` is Numba where it applies."""
    name = _settle_engine(engine, plan)
    # Lattices whose sites are counted as bits are not rounded to single precision.
    asked = "double" if (plan.placement.draws, name) == ("planes", "numba") else plan.placement.precision
    return replace(plan.placement, engine=name, precision=_settle_precision(asked, name, plan))


def _settle_engine(engine: str, plan: Plan) -> str:
    if engine == "numpy":
        return engine
    model = plan.path.part
    hindrance = None if model is None else _hindrance(model, engine)
    if model is not None and model.has_terms:
        hindrance = "has no kernel for factors of three or more variables"
    if hindrance is None and engine != "cuda" and model is not None and jit_is_off():
        hindrance = "has nothing to run while NUMBA_DISABLE_JIT is set"
    if hindrance is None:
        hindrance = unserved("numba" if engine == "auto" else engine, plan)
    if engine != "auto" and hindrance is not None:
        raise ValueError(f"engine {engine!r} {hindrance}; use 'auto' or 'numpy'")
    return ("numba" if hindrance is None else "numpy") if engine == "auto" else engine


def unserved(engine: str, plan: Plan) -> str | None:
    """Return why an engine cannot draw the units of a plan as that says, if so: all do so by words."""
    if engine != "numpy" and plan.move.kind == "metropolis" and plan.path.mixture is not None:
        return "has no Metropolis sweeps on a path from a mixture"
    if plan.placement.draws == "words" or engine == "numpy" or plan.path.part is None:
        return None
    if plan.placement.draws == "planes" and (is_lattice if engine == "numba" else has_one_coupling)(plan):
        return None
    return f"serves draws='words' only for such a model or path, not {plan.placement.draws!r}"


def is_lattice(plan: Plan, any_graph: bool = False) -> bool:
    """Whether a plan is for spins with couplings J or −J, few fields and few neighbours each, on a bipartite graph.

    AIS, Metropolis sweeps, and paths from a base with couplings or from a mixture are not meant.
    """
    model, base = plan.path.end, plan.path.start
    plain = plan.move.kind == "gibbs" and plan.method != "ais" and plan.path.mixture is None and not base.is_coupled
    if not plain or model.spin_form is None or not (any_graph or model.is_bipartite):
        return False
    form = model.spin_form
    couplings = [w for w in (form.weights, form.lateral) if w is not None]
    if not all(sp.issparse(w) for w in couplings):
        return False
    size = np.concatenate([np.abs(w.data) for w in couplings])
    if not size.any() or (size[size > 0.0] != size.max()).any():
        return False
    neighbours = sum((w != 0).sum(axis=1) for w in couplings), (form.weights != 0).sum(axis=0)
    if max(x.max() for x in neighbours) > MOST_NEIGHBOURS:
        return False
    fields = np.concatenate([form.visible_bias, form.hidden_bias]) + 1j * np.concatenate(signed_base(form, base))
    return len(np.unique(fields)) <= max(1, model.n_variables // _PER_KIND)


def has_one_coupling(plan: Plan) -> bool:
    """Whether a plan is for such a lattice without any fields."""
    model, base = plan.path.end, plan.path.start
    biased = model.signed_form.visible_bias.any() or model.signed_form.hidden_bias.any()
    return not biased and base.is_uniform and is_lattice(plan)


def _hindrance(model: MRF, engine: str) -> str | None:
    """Return why a fast engine cannot serve a model, if so."""
    for units in (model.visible_units, model.hidden_units):
        if isinstance(units, Rectified) and engine != "cuda":
            continue
        if units.values is None and units.precisions is None and not units.is_one_hot:
            return f"has no kernel for {units.noun[0]}s"
    # In spins a penalty between 0/1 units brings fields and a constant as large, which have to cancel. Where
    # the model's own terms are as large, so are the weights, and the reference rounds them as much.
    size = model.signed_form.size
    if not (_EPS * size <= 1e-6 or size <= 8.0 * model.highest):
        return "takes 0/1 units as spins, which loses all digits of couplings as negative as these"
    return None


def _settle_precision(precision: str, engine: str, plan: Plan) -> str:
    """Return the precision to use: single only where it is asked for, the engine knows it, and it is good enough."""
    if engine == "numpy" or plan.path.part is None or precision == "double":
        return "double"
    model = plan.path.part
    if any(isinstance(units, Rectified) for units in (model.visible_units, model.hidden_units)):
        return "double"  # The exponents of rectified units cancel from one step to the next.
    form = model.signed_form
    return "double" if _single_is_poor(form, *signed_base(form, plan.path.start), plan.steps) else "single"


def _single_is_poor(form: SignedForm, b0: Array, c0: Array, steps: int) -> bool:
    """Whether float32 would spoil the weights.

    Fields of size a cost a log-weight about 2^-24·a each, which is too much beyond 0.001 in all. At the other
    end the log-weights of weakly coupled spins spread by no more than about Σw²/√K, beside which the rounding
    of every step must not show.
    """
    slopes = form.visible_bias - b0, form.hidden_bias - c0
    largest = np.concatenate(
        [
            np.maximum(np.abs(b0), np.abs(form.visible_bias) + form.reach[0]),
            np.maximum(np.abs(c0), np.abs(form.hidden_bias) + form.reach[1]),
        ]
    )
    if float(np.linalg.norm(np.minimum(largest, 1e9))) * 2.0**-24 > 1e-3:
        return True
    squares = form.squares + sum(float(np.square(x).sum()) for x in slopes)
    return squares < 0.03 * math.sqrt(steps)


def rounding_of(plan: Plan, log_weights: Array, log_z: float) -> float:
    """Return what rounding may have done to ln Z: all weights alike, so that their spread does not show it.

    Zero where it is below all that matters; a ValueError where it may have spoiled the answer.
    """
    model, base = plan.path.part, plan.path.start
    if plan.placement.precision == "single":
        relative = _SINGLE * max(1.0, abs(float(log_weights.mean())))
        return max(relative, _rounding_of_parameters(plan.path.end.signed_form)) + _drift(plan)
    if model is None or not math.isfinite(model.highest):  # Gaussians
        return 0.0
    if plan.placement.engine != "numpy":
        size = model.signed_form.size
    else:  # a state that matters has all its terms within about this of their largest values
        size = model.highest + max(0.0, model.highest - log_z) + 750.0 + model.n_variables
    size += abs(plan.path.exact_log_ratio) + float(np.abs(base.visible).sum() + np.abs(base.hidden).sum())
    error = _EPS * size
    if not error <= max(1e-3, 1e-9 * abs(log_z)):
        raise ValueError(
            f"ln Z is lost in rounding: terms of size {size:.2g} cancel to {log_z:.6g}, "
            f"which leaves an error of up to {error:.2g}"
        )
    return error if error > 1e-9 * max(1.0, abs(log_z)) else 0.0


def _drift(plan: Plan) -> float:
    """Return what rounding adds up to over the steps; increments on a GPU and sums of tables have no such bias."""
    if plan.placement.engine != "numba" or is_lattice(plan, any_graph=True):
        return 0.0
    model = plan.path.end
    features = len(model.hidden_bias)
    variables = model.hidden_units.variables(features)
    logarithms = -(-variables // _PER_LOGARITHM[variables < features])
    return _BIAS_OF_LOGARITHM * plan.steps * logarithms


def _rounding_of_parameters(form: SignedForm) -> float:
    """Return what ln Z may owe to the parameters of 0/1 units being rounded to single precision as spins.

    A penalty turns into couplings and fields as large, whose own rounding does not cancel: it adds up where they
    are all alike, and like noise where they are not. The weights need not show how large they are.
    """
    if form.visible[0] == form.hidden[0] == 0.0:
        return 0.0
    couplings = [np.asarray(w.data if sp.issparse(w) else w) for w in (form.weights, form.lateral) if w is not None]
    lost = [x - x.astype(np.float32) for x in (*couplings, form.visible_bias, form.hidden_bias)]
    alike = sum(abs(float(x.sum())) for x in lost)
    return 2.0 * alike + 3.0 * math.sqrt(sum(float(np.square(x).sum()) for x in lost))
