"""Computes all answers about the free energy of one model and writes them to one self-contained page."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from ..answers.bounds import Bounds, bound
from ..answers.estimate import estimate
from ..answers.exact_curve import ExactCurve, exact_curve
from ..answers.likelihood import LogLikelihood, log_likelihood
from ..answers.thermodynamics import Thermodynamics, thermodynamics
from ..checks import real_number, shown
from ..display.card import Displayed
from ..display.words import decimals, method_name
from ..exact import ExactLogZ, ModelTooLarge, exact_log_z
from ..files.atomic import check_writable, write_whole
from ..models.factors import FactorModel
from ..models.layered import as_factors, as_model
from ..models.model import MRF
from ..options import RunOptions, filled_in, leaves_path_open, plan_options, takes_options
from ..results.estimate import Estimate
from ..results.written import finite
from .html import page_of

_TEMPERATURES = 25  # Number of temperatures at which the heat capacity is computed.


@dataclass(frozen=True, eq=False, repr=False)
class Report(Displayed):
    """The answers on the page of `report`; an answer that is not available is None."""

    model: MRF | FactorModel  #: The model.
    estimate: Estimate | None  #: Estimate of F.
    bounds: Bounds | None  #: Bounds of F.
    thermodynamics: Thermodynamics | None  #: Energy, entropy and heat capacity against β.
    exact: ExactLogZ | None  #: The exact ln Z.
    exact_curve: ExactCurve | None  #: ln Z and heat capacity against β.
    likelihood: LogLikelihood | None  #: ln p of the rows of data.
    missing: Mapping[str, str]  #: The reason for each missing part.
    path: Path  #: The file of the page.
    title: str  #: Title of the page.
    command: str  #: The command or call that makes the page again.
    summed_out: int  #: Number of variables that are summed out at every step.
    was_free: bool  #: Whether the path was left to the package, which then tries several.

    @property
    def free_energy(self) -> float:
        """F: the exact value if there is one, otherwise the estimate."""
        if self.exact is not None:
            return -float(self.exact)
        assert self.estimate is not None  # There is always an exact value or an estimate.
        return self.estimate.free_energy

    @property
    def log_z(self) -> float:
        """ln Z = −F."""
        return -self.free_energy

    def __float__(self) -> float:
        return self.free_energy

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all answers, without duplicates."""
        parts = (self.estimate, self.bounds, self.thermodynamics, self.likelihood)
        return tuple(dict.fromkeys(w for part in parts if part is not None for w in part.warnings))

    def remarks(self) -> dict[str, tuple[str, ...]]:
        """Return the warnings that concern a part other than F itself, by the name of the part."""
        b, t = self.bounds, self.thermodynamics
        return {
            # The first warning of bounds from approximate samples concerns the starting states.
            "bounds": () if b is None or b.samples != "approximate" else b.warnings[:1],
            "temperature": () if t is None else t.warnings,
        }

    def said(self) -> dict[str, tuple[float, float, float]]:
        """Return F by every method used, with the ends of its range; for bounds the value is NaN."""
        found: dict[str, tuple[float, float, float]] = {}
        if self.estimate is not None:
            e = self.estimate
            found[f"{method_name(e.method)}, base {e.base}"] = (e.free_energy, *e.interval)
        if self.bounds is not None:
            if self.bounds.is_two_sided:
                found["both directions (Bennett)"] = (self.bounds.free_energy, *self.bounds.interval)
            found["bounds"] = (math.nan, self.bounds.lower, self.bounds.upper)
        if self.thermodynamics is not None:
            t = self.thermodynamics
            f, reach = -float(t.log_z[-1]), 1.96 * float(t.log_z_error[-1])
            found["run over temperatures"] = (f, f - reach, f + reach)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return all answers as plain data."""
        exact = None
        if self.exact is not None:
            exact = {"log_z": float(self.exact), "free_energy": -float(self.exact), "method": self.exact.method}
        parts = (self.estimate, self.bounds, self.thermodynamics, self.likelihood)
        plain = [None if part is None else part.to_dict() for part in parts]
        names = ("estimate", "bounds", "thermodynamics", "likelihood")
        return {
            "free_energy": finite(self.free_energy),
            "exact": exact,
            **dict(zip(names, plain, strict=True)),
            "missing": dict(self.missing),
            "command": self.command,
            "report": str(self.path),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        if self.estimate is not None:
            lines = str(self.estimate).splitlines()[:2]
        else:
            lines = [f"F = {self.free_energy:.12g}   (exact)", f"ln Z = {-self.free_energy:.12g}"]
        if self.exact is not None and self.estimate is not None:
            lines.append(f"exact F = {self.free_energy:.{decimals(self.estimate.stderr) + 2}f}, by {self.exact.method}")
        if self.bounds is not None:
            lines.append(str(self.bounds).splitlines()[0])
        lines.append(f"report: {self.path}")
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])


@takes_options()
def report(
    model: Any,
    path: str | Path,
    *,
    data: Any = None,
    title: str | None = None,
    command: str | None = None,
    exact_seconds: float = 10.0,
    **options: Unpack[RunOptions],
) -> Report:
    """Write an HTML page about the free energy of a model: answers, bounds, figures, provenance.

    Parameters
    ----------
    model
        As in `estimate`. For a `FactorModel` that cannot be annealed the page has the exact value only.
    path
        The file to write. A path that cannot be written raises an error before the computation starts.
    data
        Rows of visible units, whose log-likelihood is added to the page.
    title
        Title of the page.
    command
        The command that makes the page again; by default this call in Python.
    exact_seconds
        The exact value is computed if it is predicted to take at most this many seconds.
    """
    chosen = filled_in(options)
    seconds = real_number(exact_seconds, "exact_seconds")
    for name, words in (("title", title), ("command", command)):
        if not (words is None or isinstance(words, str)):
            raise ValueError(f"{name} is {shown(words)}; it must be a text")
    check_writable(path)
    model, annealed, why = _annealed(model)
    missing: dict[str, str] = {}
    if data is None:
        missing["likelihood"] = "no data were given"
    elif annealed is not None:
        log_likelihood(annealed, data, 0.0)  # Invalid rows raise an error before the long computations.
    else:
        raise ValueError(f"data: there is no likelihood, since {why}")
    exact = None
    try:
        exact = exact_log_z(model, max_seconds=seconds, threads=chosen["threads"], progress=chosen["progress"])
    except ModelTooLarge as error:
        missing["exact"] = str(error)
    estimated = bounds = thermal = likelihood = None
    if annealed is not None:
        estimated = estimate(annealed, **_accepted(estimate, chosen))
        bounds = bound(annealed, **_accepted(bound, chosen))
        thermal = _thermal(annealed, chosen, missing)
        if data is not None:
            likelihood = log_likelihood(annealed, data, estimated if exact is None else float(exact))
    else:
        if exact is None:
            raise ModelTooLarge(f"{missing['exact']}; and there is no estimate: {why}")
        missing["estimate"] = why
    result = Report(
        model=model,
        estimate=estimated,
        bounds=bounds,
        thermodynamics=thermal,
        exact=exact,
        exact_curve=None if exact is None or thermal is None else exact_curve(model, thermal.betas, min(seconds, 3.0)),
        likelihood=likelihood,
        missing=missing,
        path=Path(path),
        title=title or f"a model of {model.n_variables} variables",
        command=command or _call(path, options, chosen),
        summed_out=0 if estimated is None else _summed_out(annealed, estimated.method, chosen["summed"]),
        was_free=leaves_path_open(plan_options(chosen)),
    )
    text = page_of(result)
    write_whole(path, lambda file: file.write(text))
    return result


def _annealed(model: Any) -> tuple[MRF | FactorModel, MRF | None, str]:
    """Return the model, the form in which it is annealed, and the reason why there is none."""
    model = as_factors(model)
    if not isinstance(model, FactorModel):
        model = as_model(model)
        return model, model, ""
    model = model.given()
    if model.why_not_annealed() is None:
        model = model.as_mrf()
        return model, model, ""
    try:
        return model, as_model(model), ""
    except ValueError as error:
        return model, None, str(error)


def _thermal(model: MRF, options: RunOptions, missing: dict[str, str]) -> Thermodynamics | None:
    """Return ln Z and heat capacity from infinite temperature down to that of the model."""
    if not (model.visible_units.is_discrete and model.hidden_units.is_discrete):
        missing["thermodynamics"] = "a Gaussian variable has no state at infinite temperature"
        return None
    betas = [k / _TEMPERATURES / model.temperature for k in range(1, _TEMPERATURES + 1)]
    return thermodynamics(model, betas, **_accepted(thermodynamics, options))


def _summed_out(model: Any, method: str, summed: Any) -> int:
    """Return the number of variables that a run sums out."""
    if method == "ais":
        return 0
    return len(summed) if summed is not None else model.n_visible if method == "mais-h" else model.n_hidden


def _accepted(door: Callable[..., Any], options: RunOptions) -> Any:
    """Return the options that a public function accepts."""
    known = inspect.signature(door).parameters
    return {name: value for name, value in options.items() if name in known}


def _call(path: str | Path, given: RunOptions, chosen: RunOptions) -> str:
    """Return the call in Python, with the seed that was used."""
    options = {**given, "seed": chosen["seed"]}
    words = [f"{name}={shown(value)}" for name, value in options.items() if name not in ("progress", "threads")]
    return f"mg.report({', '.join(['model', repr(str(path)), *words])})"
