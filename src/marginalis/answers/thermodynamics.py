"""Energy, entropy and heat capacity against temperature, from the chains of one run.

With a uniform base P_k is the model at the inverse temperature β_k if all variables are discrete, so the weighted
chains of one run sample every temperature on the path. Real variables keep the term −γx²/2 of their own along the path,
so that each temperature takes a run.

For each state v of the sampled side exact means over the other side are used (eq. bipartite_marginal_energy_V and its
derivatives): with A = −βH and the summed-out side h, d ln Σ_h e^{xA}/dx is the mean of A given v, and the second
derivative is its variance.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from ..checks import real_array, whole
from ..display import sketch
from ..display.words import decimals
from ..engines.plan import Plan
from ..engines.recorder import Recorder
from ..models.layered import as_model
from ..models.model import MRF
from ..models.units import Array
from ..options import RunOptions, filled_in, leaves_path_open, plan_options, takes_options
from ..paths.narrow_base import range_of_change
from ..planning.pilots import plan_with_pilots
from ..planning.run_chosen import missed
from ..results.estimate import run_plan
from ..results.record import Answer, Record
from ..results.written import finite
from ..running.session import Session, open_session
from ..statistics import confidence
from ..statistics.confidence import log_mean_exp
from ..statistics.weights import Weights

_FINE = 1e-9  # Rounding errors below this are neglected.
_COARSE = 1e-3  # Rounding errors above this cause a warning.
# Weights are doubtful if the predicted error of their mean exceeds the first number, unless their effective number
# exceeds the second.
_LARGE_ERROR, _AMPLE_ESS = 0.35, 200.0
_SAME_ENERGY = 0.3  # Energies that differ by less than this, in units of kT, count as equal.
_NOT_HERE = ("first_chain", "resample", "populations")  # The errors assume independent chains.
QUANTITIES = ("log_z", "energy", "entropy", "heat_capacity")


@dataclass(frozen=True, eq=False, repr=False)
class Thermodynamics(Answer):
    """Totals for the whole model at each inverse temperature, with the standard error of each (k_B = 1).

    `energy` is U = ⟨H⟩ of H = −(b·v + c·h + vᵀWh + offset), `entropy` S = ln Z + βU, `heat_capacity`
    C = β²(⟨H²⟩ − ⟨H⟩²). `free_energy` is −ln Z, as everywhere in this package; times T it is the free energy U − TS.
    """

    betas: Array  #: Inverse temperatures β.
    log_z: Array  #: ln Z at each β.
    log_z_error: Array  #: Their standard errors.
    energy: Array  #: Mean energy at each β, without the factor 1/T.
    energy_error: Array  #: Their standard errors.
    entropy: Array  #: Entropy at each β, in nats.
    entropy_error: Array  #: Their standard errors.
    heat_capacity: Array  #: Heat capacity at each β, in units of k_B.
    heat_capacity_error: Array  #: Their standard errors.
    ess: Array  #: Effective number of chains at each β.
    record: Record  #: Options, seeds, engine and seconds of the run.
    warnings: tuple[str, ...]  #: Reasons to doubt the values, as sentences.
    _is_table = True

    @property
    def temperatures(self) -> Array:
        """1/β."""
        with np.errstate(divide="ignore"):
            return 1.0 / self.betas

    @property
    def free_energy(self) -> Array:
        """F = −ln Z at each β."""
        return -self.log_z

    def rows(self) -> list[dict[str, float]]:
        """Return one row per β, in the order of `betas`."""
        names = ["betas", *(name + end for name in QUANTITIES for end in ("", "_error")), "ess"]
        columns = [getattr(self, name) for name in names]
        return [
            dict(zip(["beta", *names[1:]], map(float, values), strict=True)) for values in zip(*columns, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; infinite numbers, such as the errors of one chain, become None."""
        rows = []
        for row in self.rows():
            first = {"beta": row["beta"], "log_z": row["log_z"], "free_energy": -row["log_z"]}
            rows.append({name: finite(value) for name, value in {**first, **row}.items()})
        return {"rows": rows, "variables": self.variables, **self.record.to_dict(), "warnings": list(self.warnings)}

    def __str__(self) -> str:
        lines = [f"{'β':>10} {'ln Z = −F':>20} {'U':>20} {'S':>20} {'C':>20} {'ESS':>9}"]
        for row in self.rows():
            cells = []
            for name in QUANTITIES:
                digits = decimals(row[name + "_error"])
                cells.append(f"{row[name]:.{digits}f} ± {row[name + '_error']:.{digits}f}")
            lines.append(f"{row['beta']:10.5g} " + " ".join(f"{cell:>20}" for cell in cells) + f" {row['ess']:9.1f}")
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])

    def _headline(self) -> str:
        n = len(self.betas)
        return f"Heat capacity C at {n} temperature{'s' * (n > 1)}   ({self.chains} chains, {self.seconds:.2f} s)"

    def _sketch(self) -> str:
        return sketch.line(self.betas, self.heat_capacity, 2.0 * self.heat_capacity_error, "heat capacity against β")


@takes_options(leave_out=("base", *_NOT_HERE))
def thermodynamics(
    model: Any,
    betas: ArrayLike | None = None,
    *,
    temperatures: ArrayLike | None = None,
    moves: int = 10,
    **options: Unpack[RunOptions],
) -> Thermodynamics:
    """Return ln Z, energy, entropy and heat capacity of a model at inverse temperatures `betas`, or at `temperatures`.

    β takes the place of 1/T; the temperature of the model is ignored. If all variables are discrete, one run from β = 0
    to the largest β gives all values: the given β are inserted as steps. Models with real variables take a run of this
    length for each β, which must be positive.

    Parameters
    ----------
    model
        A model, or anything that `as_model` accepts.
    betas
        Inverse temperatures β.
    temperatures
        Temperatures 1/β, instead of `betas`.
    moves
        Number of moves of the chains at each β, over which energies are averaged.

    Returns
    -------
    Thermodynamics
        Arrays with an entry per β, with errors; `to_dataframe`, `to_xarray`, `plot`.
    """
    stay = whole(moves, "moves", 1, 10**6)
    model = as_model(model)
    wanted = inverse_temperatures(betas, temperatures)
    if "base" in options:
        raise ValueError("thermodynamics starts from the uniform base, which is β = 0; leave base out")
    chosen = filled_in(options, leave_out=_NOT_HERE)
    begin = time.perf_counter()
    runs, back = runs_of(model, wanted)
    hot = [own for own, _, _ in runs]
    rows: list[list[float]] = []
    doubtful: list[float] = []
    warnings: tuple[str, ...] = ()
    with open_session(chosen, "thermodynamics", *hot) as session:
        for number, (own, beta, at) in enumerate(runs):
            part = session.part(number / len(runs), (number + 1) / len(runs))
            plan, found, unsure, last = _run(own, beta, at, stay, part, chosen)
            rows += found
            doubtful += unsure
            if last is not None and leaves_path_open(plan_options(chosen)):
                above = missed(plan.path.model, last, plan_options(chosen), part)
                warnings += tuple(f"at β = {beta:.4g}, {text}" for text in above)
    names = [name + end for name in QUANTITIES for end in ("", "_error")] + ["ess"]
    table = np.array(rows)[back].T
    if not np.isfinite(table[:8:2]).all() or (plan.chains.count > 1 and not np.isfinite(table).all()):
        raise ValueError("energies or heat capacities are not finite: the parameters are too large for floating point")
    columns = dict(zip(names, table, strict=True))
    if doubtful:
        warnings += (
            f"the weights are too uneven for trusted errors at {len(doubtful)} of {len(rows)} β, "
            f"the first of them {min(doubtful):.4g}; raise steps",
        )
    lost = 2.0**-50 * np.abs(table[0]).max()
    if lost > _COARSE:
        warnings += (
            f"ln Z is as large as {np.abs(table[0]).max():.2g} and is rounded to {lost:.1g}: S and C are not accurate",
        )
    return Thermodynamics(
        betas=wanted,
        **columns,
        record=Record.of(plan, time.perf_counter() - begin, session.names),
        warnings=warnings,
    )


def runs_of(model: MRF, wanted: Array) -> tuple[list[tuple[MRF, float, Array]], Any]:
    """Return the runs that give all of the inverse temperatures, and the place of each among their results.

    A run has the model at its largest β, this β, and the values of β/largest at which energies are averaged.
    """
    real = [x for x in (model.visible_units, model.hidden_units) if not x.is_discrete]
    if real and not wanted.all():
        raise ValueError(f"betas must be positive for this model: {real[0].noun[0]}s have no distribution at β = 0")
    largest = float(wanted.max()) or 1.0
    if real:
        distinct, back = np.unique(wanted, return_inverse=True)
        runs = [(float(beta), np.ones(1)) for beta in distinct]
    else:
        places, back = np.unique(wanted / largest, return_inverse=True)
        runs = [(largest, places)]
    try:
        return [(model.at_temperature(1.0 / beta), beta, places) for beta, places in runs], back
    except ValueError as error:
        raise ValueError(f"betas go up to {largest:g}, too far for this model: {error}") from None


def _run(
    hot: MRF, largest: float, places: Array, stay: int, session: Session, chosen: RunOptions
) -> tuple[Plan, list[list[float]], list[float], Weights | None]:
    """Run chains from β = 0 to the largest β, the one of the model `hot`; average energies at `places`, in units of it.

    Return the plan, the numbers of `_averages` for each place, the β at which the weights are uneven, and the weights
    at the largest β.
    """
    plan, inner, recorder = recorded(hot, places, stay, session, chosen)
    offset = plan.path.model.natural.offset
    widest = range_of_change(plan.path.model, plan.path.base)
    log_z0 = plan.path.base.log_z(plan.path.model)
    rows = [at_infinity(plan, log_z0, largest)] if places[0] == 0.0 else []
    doubtful = []
    for x, log_weights, values in zip(inner, recorder.log_weights, recorder.values, strict=True):
        log_z = log_z0 + log_mean_exp(log_weights) + x * offset
        rows.append(_averages(log_weights, log_z, values, x, largest, offset, widest))
        if _is_doubtful(log_weights):
            doubtful.append(x * largest)
    last = Weights(recorder.log_weights[-1], log_z0 + offset) if len(inner) else None
    return plan, rows, doubtful, last


def recorded(
    hot: MRF, places: Array, stay: int, session: Session, chosen: Mapping[str, Any]
) -> tuple[Plan, Array, Recorder]:
    """Run chains to the model `hot`, and record log-weights and energies at the positive `places` of the path.

    At each place the energies are averaged over `stay` moves; see `_Energies`.
    """
    plan = plan_with_pilots(hot, session, keep_whole=True, **plan_options(chosen))  # type: ignore[arg-type]
    inner = places[places > 0.0]
    path = np.union1d(plan.betas, inner)
    plan = plan.with_steps(np.repeat(path, np.where(np.isin(path, inner), stay, 1)))
    stops = np.searchsorted(plan.betas, inner)[:, None] + np.arange(stay)
    recorder = Recorder(stops.ravel(), plan.chains.count, _Energies(plan), 3, group=stay)
    if len(inner):
        run_plan(plan, session, recorder)
    return plan, inner, recorder


def inverse_temperatures(betas: ArrayLike | None, temperatures: ArrayLike | None) -> Array:
    """Return the given β, or the inverses of the given temperatures."""
    if (betas is None) == (temperatures is None):
        raise ValueError("give either betas or temperatures")
    name, given = ("betas", betas) if temperatures is None else ("temperatures", temperatures)
    wanted = real_array(np.atleast_1d(given) if np.isscalar(given) else given, name, 1)
    if temperatures is None:
        if (wanted < 0.0).any():
            raise ValueError("betas must be a list of inverse temperatures, none of them negative")
        return wanted
    if (wanted <= 0.0).any():
        raise ValueError("temperatures must be a list of positive numbers; infinity is betas=0")
    return 1.0 / wanted


def _is_doubtful(log_weights: Array) -> bool:
    """Whether the weights are too uneven for errors of means, which are not widened like the interval of ln Z."""
    few = confidence.effective_size(log_weights) < _AMPLE_ESS
    spread = confidence.log_spread(log_weights)
    wide = few and confidence.expected_error(spread, len(log_weights)) > _LARGE_ERROR
    return wide or bool(confidence.warnings_of(log_weights))


class _Energies:
    """Mean of A = −H/T given a state of the sampled side, the square of it, and the variance, at β_k of a plan."""

    def __init__(self, plan: Plan) -> None:
        model = plan.path.end
        natural = model.natural
        self.betas, self.units, self.sampled = plan.betas, natural.hidden_units, natural.visible_units
        self.is_discrete = self.units.is_discrete and self.sampled.is_discrete
        self.model = model

    @np.errstate(over="ignore", invalid="ignore")  # Results that are not finite raise an error later.
    def __call__(self, k: int, v: Array) -> Array:
        slope = self.model.hidden_fields(v)
        fields = self.betas[k] * slope
        if self.is_discrete:
            mean, variance = slope * self.units.mean(fields), slope * self.units.response(fields, slope)
            inner, variance = mean.sum(axis=1), variance.sum(axis=1)
        else:  # β_k = 1, the end of the path.
            inner, variance = self.units.exponents(slope)
            inner = inner + self.sampled.own_terms(v)
        mean = self.model.visible_exponent(v) + inner
        return np.stack([mean, mean**2, variance], axis=1)


@np.errstate(over="ignore", invalid="ignore")
def _averages(
    log_weights: Array, log_z: float, values: Array, x: float, largest: float, offset: float, widest: float
) -> list[float]:
    """Return ln Z, U, S, C, each with its standard error, and the effective number of chains.

    Errors follow from the delta method: the sum of the squared influences of the chains. They are larger if the
    influences are so skewed or so few that twice the error would not cover 95 %, and at least as large as the possible
    effect of states that no chain has visited. The values of −H/T of all states lie in a range of width `widest`.
    """
    n = len(log_weights)
    w = confidence.relative_weights(log_weights)
    w /= w.sum()
    mean = float(w @ values[:, 0])
    deviation = values[:, 0] - mean
    squares = values[:, 2] + values[:, 1] - 2.0 * mean * values[:, 0] + mean * mean
    variance = float(w @ squares)
    beta = x * largest
    on_log_z = w - 1.0 / n
    on_mean = w * deviation
    on_variance = w * (squares - variance)
    energy = -(mean + offset) / largest
    above = _unseen_excitation(w, values[:, 0], x, widest)
    once = float(w @ w)
    numbers = []
    # Each row: a number, the influence of each chain, that of unseen states, and the size of terms that may cancel.
    for value, influence, unseen, terms in (
        (log_z, on_log_z, 0.0, abs(log_z)),
        (energy, -on_mean / largest, above / beta, abs(energy)),
        (log_z + beta * energy, on_log_z - x * on_mean, above, abs(log_z)),
        (x**2 * variance, x**2 * on_variance, above**2, x * mean * (x * mean)),
    ):
        error = max(_error(influence), once * unseen) if n > 1 else math.inf
        rounding = 2.0**-50 * terms
        numbers += [value, max(error, rounding if rounding > _FINE else 0.0)]
    return [*numbers, 1.0 / once]


def _unseen_excitation(weights: Array, values: Array, x: float, widest: float) -> float:
    """Return the largest energy, in units of kT, of unvisited states above the states of nearly all chains.

    States with a probability of one over the effective number n of chains lie ln n above them, or at the end of the
    range of energies if that is less. The result is zero if the chains are in states of different energies, because
    their spread is then known from the chains.
    """
    order = np.argsort(values)
    common = values[order][np.searchsorted(np.cumsum(weights[order]), 0.5)]
    once = float(weights @ weights)
    if float(weights[x * np.abs(values - common) > _SAME_ENERGY].sum()) >= once:
        return 0.0
    return min(-math.log(once), x * widest)


def _error(influence: Array) -> float:
    """Return the standard error of a number from the influence of each chain; 1.96 times it covers 95 %."""
    n, top = len(influence), float(np.abs(influence).max())
    if not 0.0 < top < math.inf:
        return top
    influence = influence / top  # This scaling avoids an overflow of the squares.
    t, too_high, too_low = confidence.reaches(influence)  # The mean of the influences is zero.
    reach = max(t, (too_high + too_low) / 2.0)
    return top * math.sqrt(n / (n - 1.0) * float(influence @ influence)) * reach / float(ndtri(0.975))


@np.errstate(over="ignore", invalid="ignore")
def at_infinity(plan: Plan, log_z0: float, largest: float) -> list[float]:
    """Return the numbers of `_averages` at β = 0, which are exact because all variables are independent."""
    model, natural = plan.path.model, plan.path.model.natural
    v = natural.visible_units.mean(np.zeros((1, len(natural.visible_bias))))
    h = natural.hidden_units.mean(np.zeros((1, len(natural.hidden_bias))))
    if model.has_terms:  # Products of spins have the mean 0, and the means of tables are part of the offset.
        product = v @ natural.visible_bias + h @ natural.hidden_bias
    else:
        product = model.visible_exponent(v) + (h * model.hidden_fields(v)).sum(axis=1)
    energy = -(float(product[0]) + natural.offset) / largest
    return [log_z0, 0.0, energy, 0.0, log_z0, 0.0, 0.0, 0.0, float(plan.chains.count)]
