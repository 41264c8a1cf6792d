"""The commands that write example models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import examples
from ..files import model_files
from ..models import describe
from ..models.classic import ashkin_teller, blume_capel, clock, hard_core
from ..models.factors import FactorModel
from ..models.model import MRF
from .common import app, say

make_app = typer.Typer(no_args_is_help=True, help="Write a seeded example model.")
app.add_typer(make_app, name="make")

_NOWHERE = Path("-")  # As the output file: the model is returned and not written.

Output = Annotated[Path, typer.Option("-o", "--output", help="Model file to write.")]
Visible = Annotated[int, typer.Option(help="Number of visible units.")]
Hidden = Annotated[int, typer.Option(help="Number of hidden units.")]
Spins = Annotated[int, typer.Option(help="Number of spins.")]
Temperature = Annotated[float, typer.Option(help="T; it divides the whole energy.")]
Seed = Annotated[int, typer.Option(help="Seed of the parameters.")]
Shape = Annotated[str, typer.Option(help="Sides of the lattice, as in 16x16.")]
Law = Annotated[str, typer.Option(help="A number, gaussian:sd, uniform:a or pm:a.")]
Periodic = Annotated[bool, typer.Option("--periodic", help="Periodic in all directions.")]


@make_app.command("rbm-gaussian")
def make_rbm_gaussian(
    output: Output, visible: Visible = 20, hidden: Hidden = 40, temperature: Temperature = 1.0, seed: Seed = 0
) -> Any:
    """Write the paper's RBM with Gaussian weights of variance 1/n."""
    return _write(examples.rbm_gaussian(visible, hidden, temperature=temperature, seed=seed), output)


@make_app.command("rbm-hopfield")
def make_rbm_hopfield(
    output: Output, visible: Visible = 20, hidden: Hidden = 40, temperature: Temperature = 1.0, seed: Seed = 0
) -> Any:
    """Write the paper's RBM with Hopfield weights, +-1/sqrt(|V|)."""
    return _write(examples.rbm_hopfield(visible, hidden, temperature=temperature, seed=seed), output)


@make_app.command("ising-grid")
def make_ising_grid(
    output: Output,
    shape: Shape = "16x16",
    coupling: Law = "1",
    field: Law = "0",
    periodic: Periodic = False,
    triangular: Annotated[bool, typer.Option("--triangular", help="With diagonals, in two dimensions.")] = False,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
) -> Any:
    """Write an Ising lattice or spin glass in any number of dimensions."""
    model = examples.ising_grid(
        _sizes(shape, "x", "shape"),
        coupling=coupling,
        field=field,
        periodic=periodic,
        triangular=triangular,
        temperature=temperature,
        seed=seed,
    )
    return _write(model, output)


@make_app.command("potts-grid")
def make_potts_grid(
    output: Output,
    shape: Shape = "8x8",
    states: Annotated[int, typer.Option(help="States per variable, q.")] = 3,
    coupling: Law = "1",
    periodic: Periodic = False,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
) -> Any:
    """Write a Potts lattice in any number of dimensions."""
    sizes = _sizes(shape, "x", "shape")
    model = examples.potts_grid(sizes, states, coupling=coupling, periodic=periodic, temperature=temperature, seed=seed)
    return _write(model, output)


@make_app.command("dbm")
def make_dbm(
    output: Output,
    layers: Annotated[str, typer.Option(help="Sizes of the layers, as in 784,500,500.")] = "20,40,20",
    scale: Annotated[float, typer.Option(help="Weights have variance scale^2/(n_l + n_l+1).")] = 1.0,
    units: Annotated[str, typer.Option(help="binary or spin.")] = "binary",
    temperature: Temperature = 1.0,
    seed: Seed = 0,
) -> Any:
    """Write a deep Boltzmann machine with Gaussian weights."""
    sizes = _sizes(layers, ",", "layers")
    return _write(examples.random_dbm(sizes, scale=scale, units=units, temperature=temperature, seed=seed), output)


@make_app.command("chimera")
def make_chimera(
    output: Output,
    size: Annotated[str, typer.Option(help="Cells, as in 4 or 2x3.")] = "4",
    shore: Annotated[int, typer.Option(help="Spins of each shore of a cell.")] = 4,
    coupling: Law = "gaussian:1",
    field: Law = "0",
    temperature: Temperature = 1.0,
    seed: Seed = 0,
) -> Any:
    """Write a spin glass on a Chimera graph."""
    cells = _sizes(size, "x", "size")
    if len(cells) > 2:
        raise ValueError(f"size is {size!r}; it must be one or two numbers, as in 4 or 2x3")
    model = examples.chimera(
        cells[0], cells[-1], shore, coupling=coupling, field=field, temperature=temperature, seed=seed
    )
    return _write(model, output)


@make_app.command("sk")
def make_sk(output: Output, spins: Spins = 64, field: Law = "0", temperature: Temperature = 1.0, seed: Seed = 0) -> Any:
    """Write a Sherrington-Kirkpatrick model, with couplings N(0, 1/n)."""
    return _write(examples.sherrington_kirkpatrick(spins, field=field, temperature=temperature, seed=seed), output)


@make_app.command("random-field")
def make_random_field(
    output: Output,
    shape: Shape = "16x16",
    field: Law = "gaussian:1",
    coupling: Law = "1",
    periodic: Periodic = False,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
) -> Any:
    """Write a random-field Ising lattice in any number of dimensions."""
    sizes = _sizes(shape, "x", "shape")
    model = examples.random_field(
        sizes, field=field, coupling=coupling, periodic=periodic, temperature=temperature, seed=seed
    )
    return _write(model, output)


@make_app.command("random-regular")
def make_random_regular(
    output: Output,
    spins: Spins = 64,
    degree: Annotated[int, typer.Option(help="Number of neighbours of each spin.")] = 3,
    coupling: Law = "pm:1",
    field: Law = "0",
    temperature: Temperature = 1.0,
    seed: Seed = 0,
) -> Any:
    """Write a spin glass on a random regular graph."""
    model = examples.random_regular(spins, degree, coupling=coupling, field=field, temperature=temperature, seed=seed)
    return _write(model, output)


@make_app.command("p-spin")
def make_p_spin(
    output: Annotated[Path, typer.Option("-o", "--output", help="Model file to write, .uai.")],
    spins: Spins = 60,
    p: Annotated[int, typer.Option("--p", help="Number of spins in a product.")] = 3,
    degree: Annotated[int, typer.Option(help="Number of products that each spin is in.")] = 4,
    coupling: Law = "pm:1",
    field: Law = "0",
    temperature: Temperature = 1.0,
    seed: Seed = 0,
) -> Any:
    """Write a p-spin model on a random regular hypergraph."""
    model = examples.p_spin(spins, p, degree, coupling=coupling, field=field, temperature=temperature, seed=seed)
    return _write(model, output)


@make_app.command("clock")
def make_clock(
    output: Output,
    shape: Shape = "8x8",
    states: Annotated[int, typer.Option(help="States per variable, q.")] = 6,
    periodic: Periodic = False,
    temperature: Temperature = 1.0,
) -> Any:
    """Write a clock model on a lattice."""
    return _write(clock(_sizes(shape, "x", "shape"), states, periodic=periodic, temperature=temperature), output)


@make_app.command("blume-capel")
def make_blume_capel(
    output: Output,
    shape: Shape = "8x8",
    crystal_field: Annotated[float, typer.Option(help="Energy of a spin that is not zero.")] = 0.0,
    periodic: Periodic = False,
    temperature: Temperature = 1.0,
) -> Any:
    """Write a Blume-Capel model on a lattice."""
    sizes = _sizes(shape, "x", "shape")
    return _write(blume_capel(sizes, crystal_field=crystal_field, periodic=periodic, temperature=temperature), output)


@make_app.command("ashkin-teller")
def make_ashkin_teller(
    output: Output,
    shape: Shape = "8x8",
    four_spin: Annotated[float, typer.Option(help="Coupling of the products of all four spins of a bond.")] = 0.0,
    periodic: Periodic = False,
    temperature: Temperature = 1.0,
) -> Any:
    """Write an Ashkin-Teller model on a lattice."""
    sizes = _sizes(shape, "x", "shape")
    return _write(ashkin_teller(sizes, four_spin=four_spin, periodic=periodic, temperature=temperature), output)


@make_app.command("hard-core")
def make_hard_core(
    output: Output,
    shape: Shape = "8x8",
    activity: Annotated[float, typer.Option(help="Weight of a particle.")] = 1.0,
    periodic: Periodic = False,
) -> Any:
    """Write a hard-core lattice gas."""
    return _write(hard_core(_sizes(shape, "x", "shape"), activity=activity, periodic=periodic), output)


@dataclass(frozen=True)
class Made:
    """Makes the model of a seed: the arguments of ``marginalis make`` without the seed and the output."""

    words: tuple[str, ...]

    def __call__(self, seed: int) -> Any:
        """Return the model of a seed; raise a ValueError if the arguments are not valid."""
        words = [*self.words, "--seed", str(seed), "--output", str(_NOWHERE)]
        try:
            return typer.main.get_command(make_app)(words, standalone_mode=False)
        except (ValueError, OSError):
            raise
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            raise ValueError(f"make {' '.join(self.words)!r}: {error.format_message()}") from None


def _sizes(text: str, separator: str, argument: str) -> list[int]:
    try:
        return [int(word) for word in text.split(separator)]
    except ValueError:
        example = separator.join(("16", "16"))
        raise ValueError(f"{argument} is {text!r}; it must be whole numbers, as in {example}") from None


def _write(model: MRF | FactorModel, path: Path) -> MRF | FactorModel:
    if path == _NOWHERE:
        return model
    model_files.save(model, path)
    words = str(model) if isinstance(model, FactorModel) else describe.essence(model)
    say(f"wrote {path}: {words}", err=True)
    return model
