"""The commands that compute answers: estimate, bound, thermodynamics, difference, exact, info, likelihood."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..answers.estimate import estimate as run_estimate
from ..answers.likelihood import log_likelihood
from ..checks import one_of
from ..display.words import method_name
from ..engines.plan import make_plan
from ..exact import METHODS as EXACT_METHODS
from ..exact import ModelTooLarge, cheapest, duration, exact_log_z
from ..files import atomic, tables
from ..files.rbms import load_updates
from ..files.uai import write_pr
from ..models import describe
from ..models.data import visible_table
from ..models.factors import FactorModel
from ..models.interacting import InteractingMRF
from ..models.layered import annealable
from ..models.model import MRF
from .common import Json, Log10, PrFile, Threads, app, check_outputs, say, show
from .model_file import ModelFile, takes_model
from .options import read_files, takes_flags

Tolerance = Annotated[
    float | None, typer.Option(help="Choose the schedule, steps and chains so that the interval is +- this.")
]
Budget = Annotated[float | None, typer.Option(help="Seconds that --tolerance may take.")]
ESTIMATE_PLOTS = ("weights", "running", "curve")  # Functions of `plots` that draw an `Estimate`.


@app.command()
@takes_model
@takes_flags()
def estimate(
    model: ModelFile,
    options: dict[str, Any],
    tolerance: Tolerance = None,
    budget: Budget = None,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option(help="Write the result to this .npz file, for `join`.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a figure (.png, .pdf, .svg).")] = None,
    plot_kind: Annotated[str, typer.Option(help=f"What to draw: {', '.join(ESTIMATE_PLOTS)}.")] = "weights",
    log10: Log10 = False,
    pr: PrFile = None,
) -> None:
    """Estimate the free energy by mAIS or AIS."""
    inputs = [*model.inputs, options["schedule"], options["base"], options["checkpoint"]]
    check_outputs(inputs, out, pr, figure=plot)
    if plot_kind != "weights" and plot is None:
        raise ValueError(f"plot-kind {plot_kind!r} requires --plot FILE")
    one_of(plot_kind, ESTIMATE_PLOTS, "plot-kind")
    loaded = model.load_annealable()
    record = plot is not None and plot_kind == "curve"
    result = run_estimate(loaded, tolerance=tolerance, budget=budget, record=record, **read_files(options, loaded))
    show(result, as_json, log10)
    if pr is not None:
        write_pr(result.log_z, pr)
    if out is not None:
        result.save(out)
    if plot is not None:
        from .. import plots
        from ..answers.exact_curve import exact_curve

        beside = {}
        if (
            record and result.base == "uniform" and not loaded.has_zeros
        ):  # From the uniform base, Z(β) is that of the model at temperature T/β.
            beside = {"exact": exact_curve(loaded, np.array([0.0, 1.0 / loaded.temperature]))}
        plots.save(getattr(plots, plot_kind)(result, **beside), plot)


@app.command()
@takes_model
@takes_flags(leave_out=("resample", "populations"))
def bound(
    model: ModelFile,
    options: dict[str, Any],
    samples: Annotated[
        Path | None, typer.Option(help="Samples of the model, rows of visible units (.npy, .npz, .csv).")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Probability with which both bounds hold.")] = 0.95,
    equilibration: Annotated[
        int | None, typer.Option(help="Moves of approximate samples before the reverse run; --steps by default.")
    ] = None,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the works of both directions (.png, .pdf, .svg).")] = None,
) -> None:
    """Bound the free energy from both sides, by the forward and the reverse process."""
    from ..answers.bounds import bound as run_bound

    check_outputs([*model.inputs, samples, options["schedule"], options["base"]], figure=plot)
    loaded = model.load_pairs()
    rows = None if samples is None else tables.load_data(samples)
    chosen = read_files(options, loaded)
    result = run_bound(loaded, rows, confidence=confidence, equilibration=equilibration, **chosen)
    show(result, as_json)
    if plot is not None:
        from .. import plots

        plots.save(plots.works(result), plot)


@app.command()
@takes_model
@takes_flags(leave_out=("base", "first_chain", "resample", "populations"))
def thermodynamics(
    model: ModelFile,
    options: dict[str, Any],
    betas: Annotated[
        str | None, typer.Option(help="Inverse temperatures: a list, as in 0.2,0.4, or from:to:number.")
    ] = None,
    temperatures: Annotated[str | None, typer.Option(help="Or temperatures, likewise.")] = None,
    moves: Annotated[int, typer.Option(help="Moves at each of them over which energies are averaged.")] = 10,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="Draw energy, entropy, heat capacity (.png, .pdf, .svg).")] = None,
) -> None:
    """Compute energy, entropy and heat capacity against temperature, from one run."""
    from ..answers.thermodynamics import thermodynamics as run_thermodynamics

    check_outputs([*model.inputs, options["schedule"]], figure=plot)
    loaded = model.load_pairs()
    if (betas is None) == (temperatures is None):
        raise ValueError("give either --betas or --temperatures")
    given = {
        name: numbers_in(text, name)
        for name, text in (("betas", betas), ("temperatures", temperatures))
        if text is not None
    }
    result = run_thermodynamics(loaded, **given, moves=moves, **read_files(options, loaded))
    show(result, as_json)
    if plot is not None:
        from .. import plots
        from ..answers.exact_curve import exact_curve

        plots.save(plots.thermodynamics(result, exact=exact_curve(loaded, result.betas)), plot)


@app.command()
@takes_model
@takes_flags(leave_out=("base", "resample", "populations", "summed"))
def difference(
    model: ModelFile,
    other: Annotated[str, typer.Argument(metavar="MODEL_B", help="Another model of the same variables.")],
    options: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Estimate ln Z of MODEL_B minus ln Z of MODEL, along the direct path between them."""
    from ..answers.difference import difference as run_difference

    first = model.load_pairs()
    last = model._replace(path=other, update=None).load_pairs()
    show(run_difference(first, last, **read_files(options, last)), as_json)


def numbers_in(text: str, flag: str) -> Any:
    """Return the numbers of a list, as in 0.2,0.4, or of a range from:to:number."""
    try:
        if text.count(":") == 2:
            first, last, number = text.split(":")
            return np.linspace(float(first), float(last), int(number))
        return np.array([float(word) for word in text.split(",")])
    except ValueError:
        raise ValueError(f"{flag} is {text!r}; it must be a list, as in 0.2,0.4, or from:to:number") from None


@app.command()
@takes_model
def exact(
    model: ModelFile,
    method: Annotated[str, typer.Option(help=", ".join(EXACT_METHODS))] = "auto",
    threads: Threads = None,
    max_seconds: Annotated[float, typer.Option(help="Refuse a sum that would take longer.")] = 3600.0,
    engine: Annotated[str, typer.Option(help="auto; cuda enumerates on a GPU.")] = "auto",
    device: Annotated[int | None, typer.Option(help="Number of the GPU; the first by default.")] = None,
    as_json: Json = False,
    log10: Log10 = False,
    pr: PrFile = None,
) -> None:
    """Compute the free energy exactly, by the cheapest method that fits."""
    check_outputs(model.inputs, pr)
    loaded = model.load()
    log_z = exact_log_z(
        loaded, method=method, threads=threads, progress=True, max_seconds=max_seconds, engine=engine, device=device
    )
    decimal = log_z / math.log(10.0)
    if as_json:
        answer = {"log_z": log_z, "free_energy": -log_z, "method": log_z.method, "seconds": log_z.seconds}
        say(json.dumps(answer | ({"log10_z": decimal} if log10 else {}), allow_nan=False))
    else:
        say(f"F = {-log_z:.12g}\nln Z = {log_z:.12g}   F/n = {-log_z / max(1, loaded.n_variables):.12g}")
        if log10:
            say(f"log10 Z = {decimal:.12g}")
        say(f"exact, by {log_z.method}, {log_z.seconds:.2f} s")
    if pr is not None:
        write_pr(log_z, pr)


@app.command()
@takes_model
def info(model: ModelFile, as_json: Json = False) -> None:
    """Describe a model file."""
    loaded = model.load()
    facts = _facts_of_factors(loaded) if isinstance(loaded, FactorModel) else _facts(loaded)
    if as_json:
        say(json.dumps(facts))
        return
    lines = {**facts, "forbidden_states": "yes" if facts.get("forbidden_states") else "no"}
    if isinstance(loaded, MRF):
        summed = f"{describe.count(_summed_out(loaded), 'variable')}, by {method_name(facts['mais_is'])}"
        lines = {**describe.lines(loaded), "summed out": summed, "exact": facts["exact"]}
    for key, value in lines.items():
        say(f"{key.replace('_', ' '):<17} {value}")


@app.command()
@takes_model
@takes_flags()
def likelihood(
    model: ModelFile,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Samples x visible units: .npy, .npz (data) or .csv.")],
    options: dict[str, Any],
    log_z: Annotated[float | None, typer.Option("--log-z", help="ln Z, taken as exact; computed by default.")] = None,
    tolerance: Tolerance = None,
    budget: Budget = None,
    all_updates: Annotated[
        bool, typer.Option("--all-updates", help="Every checkpoint of a training run (HDF5), from one run.")
    ] = False,
    as_json: Json = False,
    out: Annotated[
        Path | None, typer.Option(help="Write ln p to this .npy file: of every sample, or a row per update.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="With --all-updates: draw the curve (.png, .pdf, .svg).")] = None,
) -> None:
    """Compute the mean log-likelihood of data, with the uncertainty of ln Z."""
    check_outputs([*model.inputs, data], out, figure=plot)
    if plot is not None and not all_updates:
        raise ValueError("--plot requires --all-updates")
    rows = tables.load_data(data)
    if all_updates:
        if any(x is not None for x in (log_z, tolerance, budget, model.update, model.evidence)):
            raise ValueError("--all-updates excludes --update, --evidence, --log-z, --tolerance and --budget")
        result: Any = _of_all_updates(model.path, rows, options)
    else:
        loaded = model.load_pairs()
        given = {name: x for name, x in (("tolerance", tolerance), ("budget", budget)) if x is not None}
        given |= read_files(options, loaded) if log_z is None else {}
        result = log_likelihood(loaded, rows, log_z, **given)
    show(result, as_json)
    if out is not None:
        atomic.write_whole(out, lambda file: np.save(file, result.per_sample, allow_pickle=False))
    if plot is not None:
        from .. import plots

        plots.save(plots.likelihoods(result), plot)


def _of_all_updates(path: str, rows: Any, options: dict[str, Any]) -> Any:
    from ..answers.along import along

    updates = load_updates(path)
    for name in ("schedule", "summed"):
        if options.pop(name) is not None:
            raise ValueError(f"--{name} cannot be used with --all-updates, which chooses it")
    # Data of a wrong shape raise an error before the computation starts.
    visible_table(updates[next(iter(updates))], rows)
    return log_likelihood(along(updates, **read_files(options, updates[next(iter(updates))])), rows)


def _exact_way(model: MRF | FactorModel) -> str:
    try:
        name, way = cheapest(model)
        return f"{name}, {duration(way.seconds)}"
    except ModelTooLarge as error:
        return f"no: {error}"


def _annealing(model: FactorModel) -> str:
    """Return what an estimate of ln Z of a model of factors is."""
    try:
        found = annealable(model)
    except ValueError as error:
        return f"no: {error}"
    if isinstance(found, InteractingMRF) and not found.is_reached:
        return "a lower bound of ln Z: single moves may not connect the states that are possible"
    return "yes"


def _facts_of_factors(model: FactorModel) -> dict[str, Any]:
    return {
        "variables": model.n_variables,
        "most_states": max(model.cards, default=1),
        "factors": len(model.scopes),
        "largest_factor": model.largest_scope,
        "forbidden_states": model.is_hard,
        "annealing": _annealing(model),
        "exact": _exact_way(model),
    }


def _summed_out(model: MRF) -> int:
    """Return the number of variables that mAIS sums out at every step."""
    return {"mais-v": model.n_hidden, "mais-h": model.n_visible}.get(make_plan(model).method_name, model.n_hidden)


def _facts(model: MRF) -> dict[str, Any]:
    return {**describe.facts(model), "mais_is": make_plan(model).method_name, "exact": _exact_way(model)}
