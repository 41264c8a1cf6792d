"""The choice of engine and precision of a plan, made before the run from the model and its path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..checks import Array, stored
from ..models.forms import SpinForm
from ..models.model import MRF
from ..parallel.threads import jit_is_off
from ..paths.path import spin_base
from ..statistics.confidence import log_mean_exp

if TYPE_CHECKING:
    from .plan import Placement, Plan

MOST_NEIGHBOURS = 7  # Most neighbours of a lattice site that the lattice kernels support.
_PER_KIND = 64  # A lattice has at least this many sites per distinct field, because each field needs its own tables.
REFERENCE = "numpy"  # The name in options of the reference engine, which supports every plan.
_OPERATIONS_PER_SECOND = {"numba": 1e10, REFERENCE: 5e8}  # Rough speed of one core, per engine.
_EPS = 2.0**-52  # Relative rounding error of float64.
# Relative error of log-weights in single precision. The largest one measured is 1.7e-6, with couplings that all round
# in the same direction.
_SINGLE = 3e-6
# Bias per step of a log-weight from one logarithm of a quotient on the CPU. The largest one measured is 2e-9.
_BIAS_OF_LOGARITHM = 4e-9
_LOST = 1e-3  # Largest sum of the rounding errors of all fields for which single precision is used.
# Least sum of squares of the couplings and fields per √K: weaker ones spread the log-weights less than rounding does.
_WEAK = 0.03
_PER_LOGARITHM = 64, 4  # Summed-out variables per logarithm: those of two states, those of more.


def operations_per_second(engine: str) -> float:
    """Rough speed of one core, in the operations of `Path.operations`."""
    return _OPERATIONS_PER_SECOND.get(engine, 1e10)


def choose_placement(plan: Plan, engine: str) -> Placement:
    """Return the placement of a plan on the requested engine; ``auto`` is Numba if it supports the plan."""
    name = _choose_engine(engine, plan)
    # The Numba kernel for draws by planes computes its weights in double precision.
    requested = "double" if (plan.placement.draws, name) == ("planes", "numba") else plan.placement.precision
    return replace(plan.placement, engine=name, precision=_choose_precision(requested, name, plan))


def _choose_engine(engine: str, plan: Plan) -> str:
    if engine == "numpy":
        return engine
    model = plan.path.part
    hindrance = None if model is None else _hindrance(model)
    if model is not None and model.has_terms and engine == "cuda":
        hindrance = "has no kernel for factors of three or more variables"
    if hindrance is None and engine != "cuda" and model is not None and jit_is_off():
        hindrance = "cannot run while NUMBA_DISABLE_JIT is set"
    if hindrance is None:
        hindrance = unserved("numba" if engine == "auto" else engine, plan)
    if engine != "auto" and hindrance is not None:
        raise ValueError(f"engine {engine!r} {hindrance}; use 'auto' or 'numpy'")
    return ("numba" if hindrance is None else "numpy") if engine == "auto" else engine


def unserved(engine: str, plan: Plan) -> str | None:
    """Return why an engine cannot use the draws of a plan, or None; every engine supports draws by words."""
    if engine != "numpy" and plan.move.kind == "metropolis" and plan.path.mixture is not None:
        return "has no Metropolis sweeps on a path from a mixture"
    mixture = plan.path.mixture
    if engine != "numpy" and mixture is not None and plan.path.end.has_terms and not mixture.is_drawn:
        return "has no kernel for factors of three or more variables on a path from base='quenches'"
    if plan.placement.draws == "words" or engine == "numpy" or plan.path.is_exact:
        return None
    if plan.placement.draws == "planes" and (is_lattice if engine == "numba" else has_one_coupling)(plan):
        return None
    return f"supports only draws='words' for this model and path, not {plan.placement.draws!r}"


def is_lattice(plan: Plan, any_graph: bool = False) -> bool:
    """Whether a plan is for spins with couplings ±J, few distinct fields and few neighbours each, on a bipartite graph.

    AIS, Metropolis sweeps, and paths from a base with couplings or from a mixture are excluded.
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
    fields = np.concatenate([form.visible_bias, form.hidden_bias]) + 1j * np.concatenate(spin_base(form, base))
    return len(np.unique(fields)) <= max(1, model.n_variables // _PER_KIND)


def has_one_coupling(plan: Plan) -> bool:
    """Whether a plan is for such a lattice without any fields."""
    model, base = plan.path.end, plan.path.start
    biased = model.partial_spin_form.visible_bias.any() or model.partial_spin_form.hidden_bias.any()
    return not biased and base.is_uniform and is_lattice(plan)


def _hindrance(model: MRF) -> str | None:
    """Return why a fast engine cannot run a model, or None."""
    for units in (model.visible_units, model.hidden_units):
        if units.values is None and units.precisions is None and units.halves is None and not units.is_one_hot:
            return f"has no kernel for {units.noun[0]}s"
    # In terms of spins, a large coupling between 0/1 units brings fields and a constant of the same size, which cancel.
    # If the model's own terms are as large, the reference loses as many digits.
    size = model.partial_spin_form.size
    if not (_EPS * size <= 1e-6 or size <= 8.0 * model.highest):
        return "converts 0/1 units to spins, which loses all digits of couplings as negative as these"
    return None


def _choose_precision(precision: str, engine: str, plan: Plan) -> str:
    """Return the precision to use: single only if it is requested, the engine has it, and it is accurate enough."""
    if engine == "numpy" or plan.path.is_exact or precision == "double":
        return "double"
    model = plan.path.end
    form = model.partial_spin_form
    poor = _single_is_poor(form, *spin_base(form, plan.path.start), plan.steps) or _has_large_squares(model)
    return "double" if poor else "single"


def _has_large_squares(model: MRF) -> bool:
    """Whether the exponents of rectified units, which contain squares of the fields, are too large for float32.

    Their fields have no bound if the other side is not discrete, either.
    """
    natural, size = model.natural, abs(model.natural.weights)
    ends = (
        (natural.visible_units, natural.visible_bias, 1, natural.hidden_units),
        (
            natural.hidden_units,
            natural.hidden_bias,
            0,
            natural.visible_units,
        ),
    )
    for units, bias, axis, other in ends:
        if not units.is_discrete and units.halves is not None:
            fields = abs(bias) + np.asarray(size.sum(axis=axis)).ravel()
            if not other.is_discrete or float(np.linalg.norm(units.largest_terms(fields))) * 2.0**-24 > 1e-3:
                return True
    return False


def _single_is_poor(form: SpinForm, b0: Array, c0: Array, steps: int) -> bool:
    """Whether float32 is too inaccurate for the weights.

    Every field of size a adds an error of about 2^-24·a to a log-weight; the sum must stay below 0.001. The
    log-weights of weakly coupled spins spread by about Σw²/√K only, and the rounding of all steps must be smaller.
    """
    slopes = form.visible_bias - b0, form.hidden_bias - c0
    largest = np.concatenate(
        [
            np.maximum(np.abs(b0), np.abs(form.visible_bias) + form.reach[0]),
            np.maximum(np.abs(c0), np.abs(form.hidden_bias) + form.reach[1]),
        ]
    )
    if float(np.linalg.norm(np.minimum(largest, 1e9))) * 2.0**-24 > _LOST:
        return True
    squares = form.squares + sum(float(np.square(x).sum()) for x in slopes)
    return squares < _WEAK * math.sqrt(steps)


@np.errstate(over="ignore", invalid="ignore")  # Sizes that overflow are not served.
def surely_served(forms: Sequence[SpinForm], steps: int | None) -> NDArray[np.bool_]:
    """Whether models with dense couplings surely run on a fast engine from a uniform base, for each form.

    With a number of `steps`, they surely run in single precision as well. The rules are those for one model, with a
    margin for the order of the sums, so that the answer may be no for a model at the limit.
    """
    w, b, c = (np.stack([getattr(x, name) for x in forms]) for name in ("weights", "visible_bias", "hidden_bias"))
    size_w, size_b, size_c = np.abs(w), np.abs(b), np.abs(c)
    of_visible, of_hidden = size_w.sum(axis=2), size_w.sum(axis=1)
    size = of_visible.sum(axis=1) + size_b.sum(axis=1) + size_c.sum(axis=1) + np.abs([x.constant for x in forms])
    served = _EPS * size <= 0.9e-6
    if steps is None:
        return np.asarray(served)
    largest = np.concatenate([size_b + of_visible, size_c + of_hidden], axis=1)
    served &= np.linalg.norm(largest, axis=1) * 2.0**-24 <= 0.99 * _LOST
    squares = np.einsum("nij,nij->n", w, w) + np.square(b).sum(axis=1) + np.square(c).sum(axis=1)
    return np.asarray(served & (squares >= 1.01 * _WEAK * math.sqrt(steps)))


def rounding_of(plan: Plan, log_weights: Array, log_z0: float) -> float:
    """Return a bound of the rounding error of ln Z that all weights share, so that their spread does not show it.

    A negligible error is returned as zero; one that is too large raises a ValueError.
    """
    model, base = plan.path.part, plan.path.start
    if plan.placement.precision == "single":
        possible = log_weights[log_weights > -np.inf]
        relative = _SINGLE * max(1.0, abs(float(possible.mean())))
        return max(relative, _rounding_of_parameters(plan.path.end.partial_spin_form)) + _drift(plan)
    if model is None or not math.isfinite(model.highest):  # The energy of Gaussian units has no bound.
        return 0.0
    log_z = log_z0 + log_mean_exp(log_weights)
    if plan.placement.engine != "numpy":
        size = model.partial_spin_form.size
    else:  # The energy terms of typical states sum to at most about this.
        size = model.highest + max(0.0, model.highest - log_z) + 750.0 + model.n_variables
    size += abs(plan.path.exact_log_ratio) + float(np.abs(base.visible).sum() + np.abs(base.hidden).sum())
    error = _EPS * size
    if not error <= max(1e-3, 1e-9 * abs(log_z)):
        raise ValueError(
            f"ln Z is lost in rounding: terms of size {size:.2g} cancel to {log_z:.6g}, "
            f"which leaves an error of up to {error:.2g}"
        )
    return error if error > 1e-9 * max(1.0, abs(log_z)) else 0.0


def roundings_of(plans: Sequence[Plan], log_weights: Array, log_z0: Array) -> list[float | ValueError]:
    """Return for each plan of one shape what `rounding_of` returns for it, or the error that it raises.

    `log_weights` are [plan, chain]. Plans with dense couplings of spins have the same drift.
    """
    first = plans[0].path
    dense = not first.is_exact and first.end.lateral is None and not sp.issparse(first.end.weights)
    if plans[0].placement.precision == "single" and dense and _is_of_spins(first.end):
        drift = _drift(plans[0])
        return [_SINGLE * max(1.0, abs(mean)) + drift for mean in log_weights.mean(axis=1).tolist()]
    found: list[float | ValueError] = []
    for plan, row, value in zip(plans, log_weights, log_z0.tolist(), strict=True):
        try:
            found.append(rounding_of(plan, row, value))
        except ValueError as error:
            found.append(error)
    return found


def _is_of_spins(model: MRF) -> bool:
    """Whether no 0/1 unit is converted to a spin, so that parameters are rounded only once."""
    return model.visible_units.offset == model.hidden_units.offset == 0.0


def _drift(plan: Plan) -> float:
    """Return the bias from rounding, summed over the steps; GPU kernels and lattice tables have none."""
    if plan.placement.engine != "numba" or is_lattice(plan, any_graph=True):
        return 0.0
    model = plan.path.end
    logarithms = -(-model.n_hidden // _PER_LOGARITHM[model.n_hidden < len(model.hidden_bias)])
    return _BIAS_OF_LOGARITHM * plan.steps * logarithms


def _rounding_of_parameters(form: SpinForm) -> float:
    """Return the error of ln Z from rounding the parameters of 0/1 units, converted to spins, to single precision.

    A large coupling of 0/1 units becomes large couplings and fields of spins, whose rounding errors do not cancel.
    Equal errors add up in proportion to their number, different ones to its square root.
    """
    if form.visible[0] == form.hidden[0] == 0.0:
        return 0.0
    couplings = [np.asarray(stored(w)) for w in (form.weights, form.lateral) if w is not None]
    lost = [x - x.astype(np.float32) for x in (*couplings, form.visible_bias, form.hidden_bias)]
    alike = sum(abs(float(x.sum())) for x in lost)
    return 2.0 * alike + 3.0 * math.sqrt(sum(float(np.square(x).sum()) for x in lost))
