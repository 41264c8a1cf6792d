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
from .estimate import estimate as run_estimate
from .exact import METHODS as EXACT_METHODS
from .exact import ModelTooLarge, cheapest, duration, exact_log_z
from .models import BipartiteMRF
from .plan import METHODS, PRECISIONS, make_plan
from .schedules import DEFAULT_STEPS, read_schedule
from .transitions import TRANSITIONS

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
    method: Annotated[str, typer.Option(help=", ".join(METHODS))] = "mais",
    steps: Annotated[int, typer.Option(help="Annealing steps K.")] = DEFAULT_STEPS,
    chains: Annotated[int, typer.Option(help="Independent chains N.")] = 1000,
    transition: Annotated[str, typer.Option(help=", ".join(TRANSITIONS))] = "gibbs",
    sweeps: Annotated[int, typer.Option(help="Sweeps of the metropolis transition.")] = 1,
    schedule: Annotated[str, typer.Option(help="linear, or a text file of beta values from 0 to 1.")] = "linear",
    base: Annotated[str, typer.Option(help="uniform or biases.")] = "uniform",
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    first_chain: Annotated[int, typer.Option(help="Number of the first chain.")] = 0,
    precision: Annotated[str, typer.Option(help=", ".join(PRECISIONS))] = "single",
    engine: Annotated[str, typer.Option(help=", ".join(engines.ENGINES))] = "auto",
    threads: Threads = None,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option(help="Write the log-weights to this .npz file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the log-weights (.png, .pdf, .svg).")] = None,
) -> None:
    """Estimate the free energy by mAIS or AIS."""
    if plot is not None:
        from . import plots

        plots.check_format(plot)
    outputs = [path for path in (out, plot) if path is not None]
    for path in outputs:
        io.check_writable(path)
        if path.resolve() in [other.resolve() for other in (Path(model), *outputs) if other is not path]:
            raise ValueError(f"{path} is named twice: model and outputs must be different files")
    result = run_estimate(
        io.load(model),
        method=method,
        steps=steps,
        chains=chains,
        transition=transition,
        sweeps=sweeps,
        schedule="linear" if schedule == "linear" else read_schedule(schedule),
        base=base,
        seed=seed,
        first_chain=first_chain,
        precision=precision,
        engine=engine,
        threads=threads,
        progress=True,
    )
    if as_json:
        typer.echo(result.to_json())
        for warning in result.warnings:
            typer.echo(f"warning: {warning}", err=True)
    else:
        typer.echo(str(result))
    if out is not None:
        arrays: dict[str, Any] = {
            "log_weights": result.log_weights,
            "log_z0": result.log_z0,
            "summary": result.to_json(),
        }
        io.write_whole(out, lambda file: np.savez(file, allow_pickle=False, **arrays))
    if plot is not None:
        plots.save(plots.weights(result), plot)


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
        rows = [{"experiment": r.experiment.name, **row} for r in results for row in r.rows]
        plain = [
            {k: None if isinstance(x, float) and not math.isfinite(x) else x for k, x in row.items()} for row in rows
        ]
        typer.echo(json.dumps({"rows": plain}, allow_nan=False))
        return
    from rich.console import Console
    from rich.table import Table

    for r in results:
        keys = list(dict.fromkeys(key for row in r.rows for key in row))
        table = Table(*(key.replace("_", " ") for key in keys), title=r.experiment.title)
        for row in r.rows:
            cells = (row.get(key) for key in keys)
            table.add_row(*("" if x is None else f"{x:.5g}" if isinstance(x, float) else str(x) for x in cells))
        Console(width=None if sys.stdout.isatty() else 160).print(table)
    typer.echo(f"report: {out / 'report.html'}", err=True)


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
