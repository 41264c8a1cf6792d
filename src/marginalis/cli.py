"""The command line: answers on stdout, messages on stderr; bad input exits with 2 and one line."""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import typer

from . import __version__, engines, examples, io
from .bases import BASES, data_base
from .estimate import estimate as run_estimate
from .exact import METHODS as EXACT_METHODS
from .exact import ModelTooLarge, cheapest, duration, exact_log_z
from .likelihood import log_likelihood
from .models import BipartiteMRF
from .plan import DEFAULT_CHAINS, METHODS, PRECISIONS, make_plan
from .schedules import DEFAULT_STEPS, SCHEDULES, read_schedule
from .transitions import TRANSITIONS

ESTIMATE_PLOTS = ("weights", "running", "curve")  # functions of `plots` that draw an Estimate

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
make_app = typer.Typer(no_args_is_help=True, help="Write a seeded example model.")
app.add_typer(make_app, name="make")

ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="Model file (.npz).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Threads = Annotated[int | None, typer.Option(help="Threads; all cores by default.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="Model file to write.")]
Visible = Annotated[int, typer.Option(help="Number of visible units.")]
Hidden = Annotated[int, typer.Option(help="Number of hidden units.")]
Temperature = Annotated[float, typer.Option(help="T; it divides the whole energy.")]
Seed = Annotated[int, typer.Option(help="Seed of the parameters.")]
Shape = Annotated[str, typer.Option(help="Sides of the lattice, as in 16x16.")]
Law = Annotated[str, typer.Option(help="A number, gaussian:sd, uniform:a or pm:a.")]
Method = Annotated[str, typer.Option(help=", ".join(METHODS))]
Steps = Annotated[int | None, typer.Option(help=f"Annealing steps K; {DEFAULT_STEPS} by default.")]
Chains = Annotated[int | None, typer.Option(help=f"Independent chains N; {DEFAULT_CHAINS} by default.")]
Transition = Annotated[str, typer.Option(help=", ".join(TRANSITIONS))]
Sweeps = Annotated[int, typer.Option(help="Sweeps of the metropolis transition.")]
Schedule = Annotated[
    str | None,
    typer.Option(
        help=f"{', '.join(SCHEDULES)}, or a text file of beta values from 0 to 1; adaptive, unless --steps is given."
    ),
]
BaseName = Annotated[
    str, typer.Option("--base", help=f"{', '.join(BASES)}, or a file of data (.npy, .npz, .csv) for its base rates.")
]
RunSeed = Annotated[int, typer.Option(help="Seed of the random numbers.")]
Precision = Annotated[str, typer.Option(help=", ".join(PRECISIONS))]
Engine = Annotated[str, typer.Option(help=", ".join(engines.ENGINES))]
Periodic = Annotated[bool, typer.Option("--periodic", help="Periodic in all directions.")]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Free energies F = -ln Z of bipartite Markov random fields, by AIS and marginalized AIS."""
    if version:
        typer.echo(f"marginalis {__version__}")
        raise typer.Exit


@app.command()
def estimate(
    model: ModelPath,
    method: Method = "mais",
    steps: Steps = None,
    chains: Chains = None,
    transition: Transition = "gibbs",
    sweeps: Sweeps = 1,
    schedule: Schedule = None,
    base: BaseName = "uniform",
    seed: RunSeed = 0,
    first_chain: Annotated[int, typer.Option(help="Number of the first chain.")] = 0,
    precision: Precision = "single",
    tolerance: Annotated[
        float | None, typer.Option(help="Choose the schedule, steps and chains so that the interval is +- this.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds that --tolerance may take.")] = None,
    engine: Engine = "auto",
    threads: Threads = None,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option(help="Write the log-weights to this .npz file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a figure (.png, .pdf, .svg).")] = None,
    plot_kind: Annotated[str, typer.Option(help=f"What to draw: {', '.join(ESTIMATE_PLOTS)}.")] = "weights",
) -> None:
    """Estimate the free energy by mAIS or AIS."""
    _check_outputs(model, out, figure=plot)
    if plot_kind != "weights" and plot is None:
        raise ValueError(f"plot-kind {plot_kind!r} goes with --plot FILE")
    if plot_kind not in ESTIMATE_PLOTS:
        raise ValueError(f"plot-kind is {plot_kind!r}; it must be one of {', '.join(ESTIMATE_PLOTS)}")
    loaded = io.load(model)
    result = run_estimate(
        loaded,
        method=method,
        steps=steps,
        chains=chains,
        transition=transition,
        sweeps=sweeps,
        schedule=_schedule(schedule),
        base=_base(base, loaded),
        seed=seed,
        first_chain=first_chain,
        precision=precision,
        tolerance=tolerance,
        budget=budget,
        record=plot is not None and plot_kind == "curve",
        engine=engine,
        threads=threads,
        progress=True,
    )
    _print(result, as_json)
    if out is not None:
        arrays: dict[str, Any] = {
            "log_weights": result.log_weights,
            "log_z0": result.log_z0,
            "summary": result.to_json(),
        }
        io.write_whole(out, lambda file: np.savez(file, allow_pickle=False, **arrays))
    if plot is not None:
        from . import plots

        plots.save(getattr(plots, plot_kind)(result), plot)


@app.command()
def bound(
    model: ModelPath,
    samples: Annotated[
        Path | None, typer.Option(help="Samples of the model, rows of visible units (.npy, .npz, .csv).")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Probability with which both bounds hold.")] = 0.95,
    method: Method = "mais",
    steps: Steps = None,
    chains: Chains = None,
    transition: Transition = "gibbs",
    sweeps: Sweeps = 1,
    schedule: Schedule = None,
    base: BaseName = "uniform",
    equilibration: Annotated[
        int | None, typer.Option(help="Moves of approximate samples before the reverse run; --steps by default.")
    ] = None,
    seed: RunSeed = 0,
    precision: Precision = "single",
    engine: Engine = "auto",
    threads: Threads = None,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the works of both directions (.png, .pdf, .svg).")] = None,
) -> None:
    """Bound the free energy from both sides, by the forward and the reverse process."""
    from .bounds import bound as run_bound

    _check_outputs(model, figure=plot)
    loaded = io.load(model)
    result = run_bound(
        loaded,
        None if samples is None else io.load_data(samples),
        confidence=confidence,
        method=method,
        steps=steps,
        chains=chains,
        transition=transition,
        sweeps=sweeps,
        schedule=_schedule(schedule),
        base=_base(base, loaded),
        equilibration=equilibration,
        seed=seed,
        precision=precision,
        engine=engine,
        threads=threads,
        progress=True,
    )
    _print(result, as_json)
    if plot is not None:
        from . import plots

        plots.save(plots.works(result), plot)


@app.command()
def thermodynamics(
    model: ModelPath,
    betas: Annotated[str, typer.Option(help="Inverse temperatures: a list, as in 0.2,0.4, or from:to:number.")],
    method: Method = "mais",
    steps: Steps = None,
    chains: Chains = None,
    transition: Transition = "gibbs",
    sweeps: Sweeps = 1,
    moves: Annotated[int, typer.Option(help="Moves at each of them over which energies are averaged.")] = 10,
    schedule: Schedule = None,
    seed: RunSeed = 0,
    engine: Engine = "auto",
    threads: Threads = None,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="Draw energy, entropy, heat capacity (.png, .pdf, .svg).")] = None,
) -> None:
    """Compute energy, entropy and heat capacity against temperature, from one run."""
    from .thermodynamics import thermodynamics as run_thermodynamics

    _check_outputs(model, figure=plot)
    result = run_thermodynamics(
        io.load(model),
        _betas(betas),
        method=method,
        steps=steps,
        chains=chains,
        transition=transition,
        sweeps=sweeps,
        moves=moves,
        schedule=_schedule(schedule),
        seed=seed,
        engine=engine,
        threads=threads,
        progress=True,
    )
    _print(result, as_json)
    if plot is not None:
        from . import plots

        plots.save(plots.thermodynamics(result), plot)


def _print(result: Any, as_json: bool) -> None:
    """Print a result; its warnings go to stderr where stdout is JSON."""
    if not as_json:
        typer.echo(str(result))
        return
    typer.echo(result.to_json())
    for warning in result.warnings:
        typer.echo(f"warning: {warning}", err=True)


def _check_outputs(model: str, *paths: Path | None, figure: Path | None = None) -> None:
    """Raise a ValueError now if an output cannot be written later, or is the model or another output."""
    if figure is not None:
        from . import plots

        plots.check_format(figure)
    outputs = [path for path in (*paths, figure) if path is not None]
    for path in outputs:
        io.check_writable(path)
        if path.resolve() in [other.resolve() for other in (Path(model), *outputs) if other is not path]:
            raise ValueError(f"{path} is named twice: model and outputs must be different files")


def _schedule(text: str | None) -> Any:
    return text if text in (None, *SCHEDULES) else read_schedule(str(text))


def _base(text: str, model: BipartiteMRF) -> Any:
    if text in BASES:
        return text
    if not Path(text).suffix:
        raise ValueError(f"base is {text!r}; it must be one of {', '.join(BASES)} or a data file")
    return data_base(model, io.load_data(text))


def _betas(text: str) -> Any:
    try:
        if text.count(":") == 2:
            first, last, number = text.split(":")
            return np.linspace(float(first), float(last), int(number))
        return np.array([float(word) for word in text.split(",")])
    except ValueError:
        raise ValueError(f"betas is {text!r}; it must be a list, as in 0.2,0.4, or from:to:number") from None


@app.command()
def exact(
    model: ModelPath,
    method: Annotated[str, typer.Option(help=", ".join(EXACT_METHODS))] = "auto",
    threads: Threads = None,
    max_seconds: Annotated[float, typer.Option(help="Refuse a sum that would take longer.")] = 3600.0,
    as_json: Json = False,
) -> None:
    """Compute the free energy exactly, by the cheapest method that fits."""
    loaded = io.load(model)
    log_z = exact_log_z(loaded, method=method, threads=threads, progress=True, max_seconds=max_seconds)
    if as_json:
        answer = {"log_z": log_z, "free_energy": -log_z, "method": log_z.method, "seconds": log_z.seconds}
        typer.echo(json.dumps(answer, allow_nan=False))
    else:
        typer.echo(f"F = {-log_z:.12g}\nln Z = {log_z:.12g}   F/n = {-log_z / loaded.n_variables:.12g}")
        typer.echo(f"exact, by {log_z.method}, {log_z.seconds:.2f} s")


@app.command()
def info(model: ModelPath, as_json: Json = False) -> None:
    """Describe a model file."""
    loaded = io.load(model)
    facts = _facts(loaded)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for key, value in facts.items():
        typer.echo(f"{key.replace('_', ' '):<22} {f'{value:.6g}' if isinstance(value, float) else value}")


@app.command()
def likelihood(
    model: ModelPath,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Samples x visible units: .npy, .npz (data) or .csv.")],
    log_z: Annotated[float | None, typer.Option("--log-z", help="ln Z, taken as exact; found if not given.")] = None,
    steps: Steps = None,
    chains: Chains = None,
    seed: RunSeed = 0,
    threads: Threads = None,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option(help="Write ln p of every sample to this .npy file.")] = None,
) -> None:
    """Compute the mean log-likelihood of data, with the doubt about ln Z."""
    _check_outputs(model, out)
    if out is not None and out.resolve() == data.resolve():
        raise ValueError(f"{out} is named twice: data and output must be different files")
    options: dict[str, Any] = dict(steps=steps, chains=chains, seed=seed, threads=threads, progress=True)
    result = log_likelihood(io.load(model), io.load_data(data), log_z, **(options if log_z is None else {}))
    _print(result, as_json)
    if out is not None:
        io.write_whole(out, lambda file: np.save(file, result.per_sample, allow_pickle=False))


def _facts(model: BipartiteMRF) -> dict[str, Any]:
    stored = model.weights.data if model.is_sparse else model.weights
    try:
        name, way = cheapest(model)
        exact = f"{name}, {duration(way.seconds)}"
    except ModelTooLarge as error:
        exact = f"no: {error}"
    return {
        "visible": model.n_visible,
        "hidden": model.n_hidden,
        "variables": model.n_variables,
        "visible_units": model.visible_units.name,
        "hidden_units": model.hidden_units.name,
        "temperature": model.temperature,
        "coupling": "sparse" if model.is_sparse else "dense",
        "couplings": int(np.count_nonzero(stored)),
        "largest_coupling": float(np.abs(stored).max(initial=0.0)),
        "largest_field": float(max(np.abs(b).max(initial=0.0) for b in (model.visible_bias, model.hidden_bias))),
        "mais_is": make_plan(model).method,
        "exact": exact,
    }


@make_app.command("rbm-gaussian")
def make_rbm_gaussian(
    output: Output, visible: Visible = 20, hidden: Hidden = 40, temperature: Temperature = 1.0, seed: Seed = 0
) -> None:
    """Write the paper's RBM with Gaussian weights of variance 1/n."""
    _write(examples.rbm_gaussian(visible, hidden, temperature=temperature, seed=seed), output)


@make_app.command("rbm-hopfield")
def make_rbm_hopfield(
    output: Output, visible: Visible = 20, hidden: Hidden = 40, temperature: Temperature = 1.0, seed: Seed = 0
) -> None:
    """Write the paper's RBM with Hopfield weights, +-1/sqrt(|V|)."""
    _write(examples.rbm_hopfield(visible, hidden, temperature=temperature, seed=seed), output)


@make_app.command("ising-grid")
def make_ising_grid(
    output: Output,
    shape: Shape = "16x16",
    coupling: Law = "1",
    field: Law = "0",
    periodic: Periodic = False,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
) -> None:
    """Write an Ising lattice or spin glass in any number of dimensions."""
    model = examples.ising_grid(
        _sizes(shape, "x", "shape"),
        coupling=coupling,
        field=field,
        periodic=periodic,
        temperature=temperature,
        seed=seed,
    )
    _write(model, output)


@make_app.command("potts-grid")
def make_potts_grid(
    output: Output,
    shape: Shape = "8x8",
    states: Annotated[int, typer.Option(help="States per variable, q.")] = 3,
    coupling: Law = "1",
    periodic: Periodic = False,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
) -> None:
    """Write a Potts lattice in any number of dimensions."""
    sizes = _sizes(shape, "x", "shape")
    model = examples.potts_grid(sizes, states, coupling=coupling, periodic=periodic, temperature=temperature, seed=seed)
    _write(model, output)


@make_app.command("dbm")
def make_dbm(
    output: Output,
    layers: Annotated[str, typer.Option(help="Sizes of the layers, as in 784,500,500.")] = "20,40,20",
    scale: Annotated[float, typer.Option(help="Weights have variance scale^2/(n_l + n_l+1).")] = 1.0,
    units: Annotated[str, typer.Option(help="binary or spin.")] = "binary",
    temperature: Temperature = 1.0,
    seed: Seed = 0,
) -> None:
    """Write a deep Boltzmann machine with Gaussian weights."""
    sizes = _sizes(layers, ",", "layers")
    _write(examples.random_dbm(sizes, scale=scale, units=units, temperature=temperature, seed=seed), output)


@make_app.command("chimera")
def make_chimera(
    output: Output,
    size: Annotated[str, typer.Option(help="Cells, as in 4 or 2x3.")] = "4",
    shore: Annotated[int, typer.Option(help="Spins of each shore of a cell.")] = 4,
    coupling: Law = "gaussian:1",
    field: Law = "0",
    temperature: Temperature = 1.0,
    seed: Seed = 0,
) -> None:
    """Write a spin glass on a Chimera graph."""
    cells = _sizes(size, "x", "size")
    if len(cells) > 2:
        raise ValueError(f"size is {size!r}; it must be one or two numbers, as in 4 or 2x3")
    model = examples.chimera(
        cells[0], cells[-1], shore, coupling=coupling, field=field, temperature=temperature, seed=seed
    )
    _write(model, output)


def _sizes(text: str, separator: str, argument: str) -> list[int]:
    try:
        return [int(word) for word in text.split(separator)]
    except ValueError:
        example = separator.join(("16", "16"))
        raise ValueError(f"{argument} is {text!r}; it must be whole numbers, as in {example}") from None


def _write(model: BipartiteMRF, path: Path) -> None:
    io.save(model, path)
    typer.echo(f"wrote {path}: {model.n_visible} x {model.n_hidden}, T = {model.temperature:g}", err=True)


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(metavar="EXPERIMENT", help="table1, ape-temperature, size-ratio, convergence or all"),
    ],
    experiments: Annotated[int | None, typer.Option(help="RBM instances; the paper's number by default.")] = None,
    chains: Annotated[int | None, typer.Option(help="Chains N; the paper's number by default.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the store, tables, figures and report.")] = Path("reproduction"),
    seed: Annotated[int, typer.Option(help="Seed of models and random numbers.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run.")] = False,
    threads: Threads = None,
    csv: Annotated[bool, typer.Option("--csv", help="Also export every single result as CSV.")] = False,
    as_json: Json = False,
) -> None:
    """Re-run the experiments of the paper, beside its printed values."""
    from .experiments import reproduce as run

    results = run(
        name,
        experiments=experiments,
        chains=chains,
        out=out,
        seed=seed,
        resume=resume,
        threads=threads,
        progress=True,
        export=csv,
    )
    if as_json:
        _print_json([{"experiment": r.experiment.name, **row} for r in results for row in r.rows])
        return
    for r in results:
        _print_table(r.rows, r.experiment.title)
    typer.echo(f"report: {out / 'report.html'}", err=True)


@app.command()
def calibrate(
    repeats: Annotated[int | None, typer.Option(help="Estimates per cell.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few models, K and N: a minute.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the tables.")] = Path("calibration"),
    seed: Annotated[int, typer.Option(help="Seed of models and random numbers.")] = 0,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Check on random models that 95 % intervals hold 95 % of the time, or warn."""
    from .experiments import calibration

    repeats = calibration.check_repeats(calibration.REPEATS if repeats is None else repeats)
    calibration.make_folder(out)
    result = calibration.calibrate(
        repeats=repeats,
        seed=seed,
        threads=threads,
        quick=quick,
        progress=True,
    )
    calibration.write(result, out)
    if as_json:
        _print_json(result.cells)
        return
    _print_table(calibration.side_by_side(result.intervals), "Coverage by standard deviation of the log-weights")
    _print_table(result.alarms, "Warnings by number of chains")
    typer.echo(f"every cell: {out / 'calibration.csv'}", err=True)


def _print_json(rows: list[dict[str, Any]]) -> None:
    plain = [{k: None if isinstance(x, float) and not math.isfinite(x) else x for k, x in row.items()} for row in rows]
    typer.echo(json.dumps({"rows": plain}, allow_nan=False))


def _print_table(rows: list[dict[str, Any]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    keys = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*(key.replace("_", " ") for key in keys), title=title)
    for row in rows:
        cells = (row.get(key) for key in keys)
        table.add_row(*("" if x is None else f"{x:.5g}" if isinstance(x, float) else str(x) for x in cells))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def main() -> None:
    """Run the command line; errors become one line on stderr and an exit code."""
    notices = logging.StreamHandler()
    notices.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("marginalis").addHandler(notices)
    logging.getLogger("marginalis").setLevel(logging.INFO)
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        _leave("interrupted", 130)
    except MemoryError as error:
        _leave(f"not enough memory: {error}", 2)
    except Exception as error:
        # Usage errors know how to word themselves; their class has moved between versions of typer.
        if hasattr(error, "format_message"):
            _leave(error.format_message() or "give a command; see marginalis --help", 2)
        if isinstance(error, sqlite3.OperationalError):
            _leave(f"the store cannot be written: {error}; what was finished is in it", 1)
        if isinstance(error, OSError):
            _leave(str(error), 1)
        if not isinstance(error, ValueError):
            raise
        _leave(str(error), 2)
    if code == 130:  # newer typer turns the interrupt into a code
        _leave("interrupted", 130)
    sys.exit(code)


def _leave(message: str, code: int) -> NoReturn:
    print(f"marginalis: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
