"""Comparison of given samples with the Boltzmann distribution of a model, and their effective inverse temperature.

Among the distributions P_β(x) ∝ exp(−βH(x)) the likelihood of the samples is largest where their mean energy equals
that of the model. This β is the effective inverse temperature; ⟨H⟩ against β comes from an annealing run. Two checks
follow: the pseudo-likelihood, which needs no run, must give the same β, and the variance of the energies must be that
of the model.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
from numpy.polynomial import Polynomial
from scipy.special import ndtr, ndtri

from ..checks import Array, whole, yes_or_no
from ..display import sketch
from ..display.words import decimals
from ..models.layered import as_model
from ..models.model import MRF
from ..options import RunOptions, filled_in, takes_options
from ..results.record import Answer, Record
from ..results.written import finite
from .bounds import Bounds, bound
from .energies import Divergence, EvaluatedSamples
from .thermodynamics import Thermodynamics, thermodynamics

# Inverse temperatures of the first run, in units of the guess.
_COARSE = (0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.15, 1.35, 1.6, 2.0, 2.5, 3.0)
# Least and largest guess, in units of the model's own β; the pseudo-likelihood alone may diverge.
_GUESSES = 1 / 3, 3.0
_COARSE_CHAINS = 500  # Chains of the first run, which only brackets β.
# Inverse temperatures of the second run, in steps about the root found by the first.
_FINE = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
_LEAST_STEP, _WIDEST_STEP = 2e-3, 0.04  # Least and largest step of the second run, relative to β.
_TRIES = 6  # The points of the second run are moved at most this many times,
_COARSE_TRIES = 20  # and those of the first, whose range grows threefold or shrinks to a tenth.
_SHRINK = 0.1
_FEWEST_CHAINS = 10  # The errors of the energies need at least this many chains.
_CHAINS = (1000, 10_000)  # Limits of the number of chains of the second run, which is otherwise that of samples.
_SMALL = 0.05  # Below this divergence, in nats, its expansion to second order in the difference of β is used.
_FAR = 3.3  # A check fails beyond this many standard errors; one in a thousand does so by chance.
# Options that audit lacks.
_OPTIONS = ("base", "first_chain", "resample", "populations", "checkpoint", "schedule", "summed")


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Answer):
    """The effective inverse temperature of samples, and checks whether they follow the Boltzmann distribution.

    Energies H are those of the model without its temperature; β takes the place of 1/T.
    """

    beta: float  #: Maximum of the likelihood.
    stderr: float  #: Standard error of `beta`.
    nominal: float  #: 1/T of the model.
    pseudo_beta: float | None  #: Maximum of the pseudo-likelihood; infinite if the samples are local minima.
    pseudo_stderr: float | None  #: Standard error of `pseudo_beta`.
    pseudo_z: float | None  #: Its slope at β in standard errors; None if only visible variables are given.
    samples: int  #: Number of samples.
    energy: float  #: Mean of the samples.
    energy_error: float  #: Its standard error.
    model_energy: float  #: Mean under the model at its own temperature.
    model_energy_error: float  #: Its standard error.
    spread: float  #: Standard deviation of the energy of the samples.
    model_spread: float  #: Standard deviation of the energy of the model at β.
    spread_z: float | None  #: Difference of the variances in standard errors.
    log_z: float  #: ln Z of the model at β.
    log_z_error: float  #: Its standard error.
    kl_nominal: float  #: Kullback–Leibler divergence of P at β from P at the temperature of the model
    bounds: Bounds | None  #: Bounds of F at β; the reverse chains start from the samples.
    kl_at_least: float | None  #: Lower bound of the divergence of the samples' distribution from P at β.
    kl_error: float | None  #: Its standard error.
    kl_source: str | None  #: What it follows from: "reverse chains" or "frequencies of states".
    curve: Thermodynamics  #: Values at a few points around β.
    record: Record  #: Options, seeds, engine and seconds of the run.
    run_warnings: tuple[str, ...]  #: Warnings of the runs that the audit consists of.

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of β."""
        reach = float(ndtri(0.975)) * self.stderr
        return self.beta - reach, self.beta + reach

    @property
    def nominal_z(self) -> float:
        """β minus that of the model, in standard errors."""
        return (self.beta - self.nominal) / self.stderr

    @property
    def p_nominal(self) -> float:
        """Two-sided p-value of the hypothesis that the samples have the temperature of the model."""
        return float(2.0 * ndtr(-abs(self.nominal_z)))

    @property
    def objections(self) -> tuple[str, ...]:
        """Checks that failed: evidence that the samples are not Boltzmann samples at β, or at any β."""
        found = []
        if self.pseudo_z is not None and abs(self.pseudo_z) > _FAR:
            found.append(
                f"pseudo-likelihood and likelihood give different β, by {abs(self.pseudo_z):.1f} standard errors"
            )
        if self.spread_z is not None and abs(self.spread_z) > _FAR:
            found.append(
                f"their energies spread by {self.spread:.4g}, those of the model by {self.model_spread:.4g} "
                f"({abs(self.spread_z):.1f} standard errors)"
            )
        if self.bounds is not None and self.bounds.lower > self.bounds.upper:
            found.append("the bounds of F from both directions contradict each other")
        if self.kl_at_least is not None and self.kl_error is not None and self.kl_at_least > _FAR * self.kl_error:
            found.append(f"their distribution differs from P at β by at least {self._least_divergence}")
        return tuple(found)

    @property
    def _least_divergence(self) -> str:
        return f"{self.kl_at_least:.2g} ± {self.kl_error:.1g} nats, by {self.kl_source}"

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        digits = decimals(self.stderr)
        at = f"β = {self.beta:.{digits}f} ± {self.stderr:.{digits}f}"
        if self.objections:
            return f"The samples are not Boltzmann samples at any temperature (closest: {at}): {self.objections[0]}."
        if abs(self.nominal_z) <= float(ndtri(0.975)):
            return f"The samples agree with Boltzmann samples of the model: {at}, the model has {self.nominal:g}."
        kind = "colder" if self.beta > self.nominal else "hotter"
        sure = "probably " if abs(self.nominal_z) <= _FAR else ""
        return f"The samples are {sure}{kind} than the model{self._how_far}: {at}, the model has {self.nominal:g}."

    @property
    def _how_far(self) -> str:
        if self.beta <= 3.0 * self.stderr:
            return ", β may be zero"
        ratio = self.beta / self.nominal
        if not 0.5 < ratio < 2.0:
            return f" by a factor of {max(ratio, 1.0 / ratio):.3g} in β"
        far = 100.0 * abs(ratio - 1.0)
        return f" by {f'{far:.0f}' if far >= 10.0 else f'{far:.2g}'} % of β"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the result, as sentences."""
        return self.run_warnings

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        names = (
            *("beta", "stderr", "nominal", "pseudo_beta", "pseudo_stderr", "pseudo_z", "samples", "energy"),
            *("energy_error", "model_energy", "model_energy_error", "spread", "model_spread", "spread_z", "log_z"),
            *("log_z_error", "kl_nominal", "kl_at_least", "kl_error", "kl_source"),
        )
        plain = {name: getattr(self, name) for name in names}
        b = self.bounds
        return {
            **{name: finite(x) if isinstance(x, float) else x for name, x in plain.items()},
            "interval": list(self.interval),
            "p_nominal": self.p_nominal,
            "bounds": None if b is None else [b.lower, b.upper],
            "objections": list(self.objections),
            "verdict": self.verdict,
            **self.record.to_dict(),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        digits = decimals(self.stderr)
        low, high = self.interval
        lines = [
            f"β = {self.beta:.{digits}f} ± {self.stderr:.{digits}f}"
            f"   (95 % interval {low:.{digits}f} to {high:.{digits}f}; the model has {self.nominal:g})",
            self.verdict,
        ]
        if self.pseudo_beta is not None and not math.isfinite(self.pseudo_beta):
            lines.append("the pseudo-likelihood has no maximum: nearly all samples are local minima of the energy")
        elif self.pseudo_beta is not None and self.pseudo_stderr is not None:
            more = decimals(self.pseudo_stderr)
            lines.append(f"by pseudo-likelihood β = {self.pseudo_beta:.{more}f} ± {self.pseudo_stderr:.{more}f}")
        more = decimals(max(self.energy_error, self.model_energy_error))
        lines.append(
            f"mean energy {self.energy:.{more}f} ± {self.energy_error:.{more}f}, of the model at its own temperature "
            f"{self.model_energy:.{more}f} ± {self.model_energy_error:.{more}f}"
        )
        lines.append(
            f"standard deviation of the energy {self.spread:.4g}, of the model at β {self.model_spread:.4g}; "
            f"divergence of P at β from the model {self.kl_nominal:.3g} nats"
        )
        if self.bounds is not None:
            more = decimals(self.bounds.stderr)
            lines.append(
                f"{self.bounds.lower:.{more}f} ≤ F at β ≤ {self.bounds.upper:.{more}f}   "
                f"(probability {self.bounds.confidence:g}, if the samples are Boltzmann's)"
            )
        if self.kl_at_least is not None:
            lines.append(f"divergence of the samples' distribution from P at β at least {self._least_divergence}")
        lines.append(
            f"{self.samples} samples; {self.method}, {self.record}, {self.chains} chains, {self.seconds:.2f} s"
        )
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])

    def _sketch(self) -> str:
        c = self.curve
        return sketch.line(c.betas, c.energy, 2.0 * c.energy_error, "mean energy of the model against β")


@takes_options(leave_out=_OPTIONS)
def audit(model: Any, samples: Any, *, bounds: bool = True, **options: Unpack[RunOptions]) -> Audit:
    """Compare samples of some sampler, such as a quantum annealer, with the Boltzmann distribution of a model.

    Parameters
    ----------
    model
        A model as for `estimate`; all variables must be discrete.
    samples
        Independent samples: a dimod ``SampleSet``, a data frame, or rows in the order of ``model.labels``. They are
        samples of all variables, or of the visible ones. The latter are compared with their marginal distribution,
        without the check by pseudo-likelihood.
    bounds
        Bound F at the effective temperature from both sides, with the samples as the start of the reverse chains.

    Raises
    ------
    ValueError
        If there are fewer than 20 samples, if they are all equal, if their variables or values are not those of the
        model, or if no β ≥ 0 can explain their energies.
    """
    begin = time.perf_counter()
    yes_or_no(bounds, "bounds")
    chosen = filled_in(options, leave_out=_OPTIONS)
    if chosen["chains"] is not None:
        whole(chosen["chains"], "chains", _FEWEST_CHAINS, 2**53)
    given: Any = {name: value for name, value in chosen.items() if name in options or name == "seed"}
    model = as_model(model)
    if not (model.visible_units.is_discrete and model.hidden_units.is_discrete):
        raise ValueError("audit supports discrete variables only")
    rows = EvaluatedSamples.of(model, samples)
    pseudo = None if rows.hidden is None else rows.pseudo_likelihood()
    least, most = (x * rows.nominal for x in _GUESSES)
    guess = min(max(pseudo.beta if pseudo else rows.nominal, least), most)
    beta, curve = _located(model, rows, guess, given)
    a, inner = rows.energies(beta)
    u, u_error = _at(curve, "energy", beta), _at(curve, "energy_error", beta)
    variance = _variance(curve, beta)
    information = variance - float(inner.mean())  # Information of one sample about β.
    if not information > 1e-9 * max(variance, 1e-300):
        raise ValueError("samples do not determine β: the energy of the model does not vary there")
    n = len(a)
    sampling = float(a.std(ddof=1)) / math.sqrt(n)
    stderr = math.hypot(sampling, u_error) / information
    pseudo_z = None
    if pseudo is not None:  # The slope at β, corrected for the error of β.
        score, curvature = rows.slopes(beta)
        ratio = float(curvature.mean()) / information
        spread = math.hypot(float((score + ratio * a).std(ddof=1)) / math.sqrt(n), ratio * u_error)
        pseudo_z = float(score.mean()) / spread if spread > 0.0 else 0.0
    spread_z = None
    if rows.hidden is not None:
        spread_z = _spread_z(a, variance, _at(curve, "heat_capacity_error", beta) / max(beta, curve.betas[1]) ** 2)
    nominal = thermodynamics(model, [rows.nominal], **given)
    log_z = _at(curve, "log_z", beta)
    warnings = [*curve.warnings, *nominal.warnings]
    divergences = [rows.frequencies(beta, log_z, _at(curve, "log_z_error", beta))]
    two_sided = None
    if bounds and beta > 0.0:
        start = rows.visible if rows.hidden is None else rows.in_order()
        two_sided = bound(rows.model.at_temperature(1.0 / beta), start, **given)
        divergences.append(_of_reverse_chains(two_sided))
        warnings += two_sided.forward.warnings
    kl = max((x for x in divergences if x is not None), key=lambda x: x.value / x.stderr, default=None)
    return Audit(
        beta=beta,
        stderr=stderr,
        nominal=rows.nominal,
        pseudo_beta=None if pseudo is None else pseudo.beta,
        pseudo_stderr=None if pseudo is None else pseudo.stderr,
        pseudo_z=pseudo_z,
        samples=n,
        energy=float(a.mean()),
        energy_error=sampling,
        model_energy=float(nominal.energy[0]),
        model_energy_error=float(nominal.energy_error[0]),
        spread=float(a.std(ddof=1)),
        model_spread=math.sqrt(max(0.0, variance)),
        spread_z=spread_z,
        log_z=log_z,
        log_z_error=_at(curve, "log_z_error", beta),
        kl_nominal=_divergence(rows.nominal - beta, float(nominal.log_z[0]) - log_z, u, variance),
        bounds=two_sided,
        kl_at_least=None if kl is None else kl.value,
        kl_error=None if kl is None else kl.stderr,
        kl_source=None if kl is None else kl.source,
        curve=curve,
        record=replace(curve.record, seconds=time.perf_counter() - begin),
        run_warnings=tuple(dict.fromkeys(warnings)),
    )


def _located(model: MRF, rows: EvaluatedSamples, guess: float, given: Any) -> tuple[float, Thermodynamics]:
    """Return the β at which the mean energy is that of the samples, and a curve of a few points around it."""
    from scipy.interpolate import PchipInterpolator  # These imports are slow.
    from scipy.optimize import brentq

    few = {**given, "chains": min(given.get("chains") or _COARSE_CHAINS, _COARSE_CHAINS)}
    a, _ = rows.energies(guess)
    shortest = _FAR / max(float(a.std(ddof=1)) * math.sqrt(len(a)), 1e-300)  # A smaller β cannot be told from zero.
    for _ in range(_COARSE_TRIES):
        coarse = _curve(model, guess * np.array(_COARSE), few)
        excess = _excess(rows, coarse)
        if not (excess <= 0.0).any():
            guess *= _COARSE[-1]
        elif excess[1] <= 0.0 and coarse.betas[1] > shortest:  # The first interval holds β.
            guess = max(guess * _SHRINK, shortest)
        else:
            break
    else:
        raise ValueError(f"samples are colder than β = {guess:.3g}: their β is beyond the range that can be run")
    k = max(1, int(np.flatnonzero(excess <= 0.0)[0]))
    slope = (excess[k] - excess[k - 1]) / (coarse.betas[k] - coarse.betas[k - 1])
    beta = float(coarse.betas[k] - excess[k] / slope)
    if excess[0] > 0.0:  # A smooth curve through all points is more accurate than the chord.
        beta = float(brentq(PchipInterpolator(coarse.betas, excess), coarse.betas[k - 1], coarse.betas[k]))
    a, _ = rows.energies(max(beta, 0.0))
    error = float(a.std(ddof=1)) / math.sqrt(len(a)) / abs(slope)
    if beta < -_FAR * error:
        raise ValueError(
            f"samples have a mean energy of {float(a.mean()):.5g}, above {coarse.energy[0]:.5g} at β = 0: no β of 0 or "
            "more explains them; is the sign of the model right?"
        )
    chains = given.get("chains") or int(np.clip(len(a), *_CHAINS))
    floor = 0.5 * error if beta < 3.0 * error else 0.0  # Near β = 0 a step cannot be a fraction of β.
    step = max(beta, 0.0) * _WIDEST_STEP
    for _ in range(_TRIES):
        step = max(step, floor, 1e-6 * guess)
        center = max(beta, 2.0 * step)
        curve = _curve(model, center + step * _FINE, {**given, "chains": chains})
        excess = _excess(rows, curve)
        fit = Polynomial.fit(curve.betas, excess, 2)  # The fit smooths the noise of the points.
        beta = _root(fit, curve.betas)
        error = math.hypot(float(a.std(ddof=1)) / math.sqrt(len(a)), float(curve.energy_error.max()))
        error /= max(abs(float(fit.deriv()(beta))), 1e-300)
        inside = abs(beta - center) <= 2.0 * step or (beta < center and curve.betas[0] < step)
        wanted = max(floor, min(max(3.0 * error, center * _LEAST_STEP), center * _WIDEST_STEP))
        if inside and step <= 2.0 * wanted:
            return beta, curve
        step = wanted if inside else 2.0 * step
    if inside:
        return beta, curve
    raise ValueError(f"the energies of the run are too uncertain to find β near {beta:.4g}; raise steps or chains")


def _curve(model: MRF, betas: Array, given: Any) -> Thermodynamics:
    try:
        return thermodynamics(model, betas, **given)
    except ValueError as error:
        if str(error).startswith("betas go up to"):
            raise ValueError("samples are colder than any β that the model can be run at") from None
        raise


def _excess(rows: EvaluatedSamples, curve: Thermodynamics) -> Array:
    """Return the energy of the model minus that of the samples at each β; it decreases with β."""
    return np.array([u - float(rows.energies(b)[0].mean()) for b, u in zip(curve.betas, curve.energy, strict=True)])


def _root(fit: Any, betas: Array) -> float:
    """Return the root of the polynomial nearest to the middle, or else that of its tangent there."""
    middle, reach = float(betas[len(betas) // 2]), 2.0 * float(np.ptp(betas))
    roots = np.asarray(fit.roots())
    real = roots[np.abs(roots.imag) <= 1e-9 * np.ptp(betas)].real
    if len(real):
        found = float(real[np.abs(real - middle).argmin()])
        if abs(found - middle) <= reach:
            return found
    slope = float(fit.deriv()(middle))
    return middle - float(np.clip(float(fit(middle)) / (slope or -math.inf), -reach, reach))


def _at(curve: Thermodynamics, name: str, beta: float) -> float:
    """Return a quantity of the curve at β by a polynomial fit; for an error, the largest of the curve."""
    values = getattr(curve, name)
    if name.endswith("error"):
        return float(values.max())
    return float(Polynomial.fit(curve.betas, values, 3)(beta))


def _of_reverse_chains(found: Bounds) -> Divergence:
    """Return a lower bound of the divergence of the samples' distribution from P at β.

    The mean of the reverse log-weights plus ln(Z/Z_0) is this divergence minus that of the reverse paths from the
    forward ones. It exceeds zero only if the forward run, too, prefers states of the samples.
    """
    reverse, forward = found.reverse_log_weights, found.forward
    error = math.hypot(float(reverse.std(ddof=1)) / math.sqrt(len(reverse)), forward.stderr)
    return Divergence(max(0.0, float(reverse.mean()) + forward.log_z - forward.log_z0), error, "reverse chains")


def _divergence(ahead: float, log_ratio: float, energy: float, variance: float) -> float:
    """Return the divergence of P at β from P at β + `ahead`; to second order if it is small compared with the noise."""
    second = 0.5 * variance * ahead * ahead
    return second if second < _SMALL else max(0.0, log_ratio + ahead * energy)


def _variance(curve: Thermodynamics, beta: float) -> float:
    """Return the variance of the energy at β, interpolated from C/β² at the positive β."""
    positive = curve.betas > 0.0
    x, y = curve.betas[positive], curve.heat_capacity[positive] / curve.betas[positive] ** 2
    return float(np.interp(beta, x, y))


def _spread_z(energies: Array, variance: float, error: float) -> float:
    """Return the variance of the energies minus that of the model, in standard errors."""
    squares = (energies - energies.mean()) ** 2
    own = float(squares.std(ddof=1)) / math.sqrt(len(squares))
    both = math.hypot(own, error)
    return (float(squares.mean()) * len(squares) / (len(squares) - 1.0) - variance) / both if both > 0.0 else 0.0
