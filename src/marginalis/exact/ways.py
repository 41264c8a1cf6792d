"""The methods for ln Z: which of them apply to a model, their predicted times, and the size of their terms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..gpu.device import open_device
from ..models.forms import Natural, SpinForm
from ..models.model import MRF
from ..models.units import SPIN, Units
from ..parallel.threads import Tick, interruptible, jit_is_off
from .elimination import eliminate_log_z
from .enumeration import enumerate_log_z, enumerate_states
from .gaussian import gaussian_discrete_log_z, gaussian_gaussian_log_z, gaussian_seconds
from .integrated import MOST_DENSE, integrate_gaussians
from .kaufman import kaufman_log_z
from .layers import layers_cost, layers_log_z
from .networks import NetworkWay, faster_ways
from .on_gpu import PAIRS_PER_SECOND, sums_on_gpu, why_not
from .ordering import table_entries
from .structure import Factors, grid_arrays, layer_arrays, ordered_factors
from .surfaces import Surface, lattice_of, planar_of

# Conservative rates of one thread, by which methods are compared and too large models rejected.
PAIRS_ON_CPU = 4e9  # A pair is one state of the enumerated side and one spin of the other side.
_LATERAL = 8  # Couplings inside the enumerated side cost as much as this many spins of the other side.
FEATURES_PER_SECOND = 5e7  # Pairs per second for other kinds of unit.
ENTRIES_PER_SECOND = 1e8  # Table entries per second of transfer and elimination.
_MOST_ENTRIES = 27.0  # log2 of the most entries of a table: 1 GiB.
_COLD = 1.5  # Above this coupling, the Kac-Ward determinant of a frustrated lattice needs many bits.
_SEARCHED = 40.0  # log2 of the largest table of a greedy order up to which a search for a better order is worthwhile.
_LONGEST = 1e5  # Longest elimination, in seconds, for which slices that fit in memory are searched for.
_LU_SITES = 1 << 12  # Most sites for an LU; a larger one takes seconds and cannot be interrupted.
PROMISED = 1e-9  # Relative accuracy of ln Z, absolute for |ln Z| < 1.
EPS = 2.0**-52  # Relative spacing of doubles.
SOON = 0.2  # If a method takes less than this many seconds, no better one is searched for.


class ExactMethod(NamedTuple):
    """A method that applies to a model: its approximate time in seconds, and the sum itself (without the offset).

    `bytes` is the memory of its tables, if these are large. `adds` returns the approximate total size of the terms that
    are added up to a value; rounding limits the accuracy of the value to 2^-52 of that size.
    """

    seconds: float
    size: str
    run: Callable[[int, Tick], float]
    adds: Callable[[float], float] = abs
    bytes: float = 0.0

    @property
    def in_words(self) -> str:
        """Description of the method, as in "a sum over 2^20 states x 40 units"."""
        return self.size.rpartition(": ")[2].replace("an exact sum", "a sum")

    @property
    def is_sure(self) -> bool:
        """Whether rounding errors are negligible for every value."""
        return EPS * self.adds(0.0) <= PROMISED


def _enumeration(model: MRF, threads: int) -> ExactMethod | None:
    if model.spin_form is not None and not jit_is_off():
        turned = model.transposed() if model.is_bipartite and model.n_visible > model.n_hidden else model
        n, m = turned.n_visible, turned.n_hidden
        what = "the smaller side has" if model.is_bipartite else "without those summed in closed form there are"
        form, units, constant, adds = _two_state_form(turned)
        work = max(m, 1) if model.is_bipartite else m + _LATERAL
        return ExactMethod(
            log2_seconds(n + math.log2(work), PAIRS_ON_CPU * threads),
            f"{what} {n} units: an exact sum over 2^{n} states x {m} units",
            lambda threads, tick: constant + enumerate_log_z(form, units, threads, tick),
            adds,
        )
    gaussian = _gaussian_against_two_states(model) if model.is_bipartite else _gaussians_first(model)
    if gaussian is not None:
        return gaussian
    sizes = [
        float(units.log2_states(variables).sum())
        for units, variables in ((model.visible_units, model.n_visible), (model.hidden_units, model.n_hidden))
    ]
    states = min(sizes) if model.is_bipartite else sizes[0]
    if states == math.inf:
        return None
    swap = model.is_bipartite and sizes[1] < sizes[0]
    turned = model.transposed() if swap else model
    features = (
        turned.hidden_units.sum_cost * len(turned.hidden_bias)
        + 8
        + (0 if model.is_bipartite else len(turned.visible_bias))
    )
    return ExactMethod(
        log2_seconds(states + math.log2(features), FEATURES_PER_SECOND),
        f"{'the smaller side has' if model.is_bipartite else 'there are'} 2^{states:.1f} states: an exact sum",
        lambda threads, tick: enumerate_states(turned, tick),
        _adds(model) if math.isfinite(max(sizes)) else _continuous_adds(turned.transposed()),
    )


class GpuSum(NamedTuple):
    """A sum over all states on a GPU: the parameters, kinds of units, a constant, and its method."""

    form: Natural | SpinForm
    units: tuple[Units, Units]
    constant: float
    method: ExactMethod


def enumeration_on_gpu(model: MRF, number: int | None) -> GpuSum:
    """Return the sum over all states on a GPU, or raise a ValueError if it does not apply."""
    if model.spin_form is None:
        raise ValueError("engine 'cuda' sums two-state units only; use 'auto'")
    turned = model.transposed() if model.is_bipartite and model.n_visible > model.n_hidden else model
    form, units, constant, adds = _two_state_form(turned)
    hindrance = why_not(form, units)
    if hindrance is not None:
        raise ValueError(f"engine 'cuda' {hindrance}; use 'auto'")
    device = open_device(number)
    n, m = turned.n_visible, turned.n_hidden
    method = ExactMethod(
        log2_seconds(n + math.log2(max(m, 1)), PAIRS_PER_SECOND),
        f"the smaller side has {n} units: an exact sum over 2^{n} states x {m} units",
        lambda threads, tick: constant + sums_on_gpu([form], units, device, tick)[0],
        adds,
    )
    return GpuSum(form, units, constant, method)


def _adds(model: MRF) -> Callable[[float], float]:
    """Return the size of the terms of a discrete model in its own units, as a function of ln Z.

    Only states that contribute count: such a state has all its terms within about `highest` − ln Z of their maxima.
    """
    top, slack = model.highest, 750.0 + model.n_variables
    return lambda value: top + max(0.0, top - value) + slack


def _two_state_form(
    model: MRF,
) -> tuple[Natural | SpinForm, tuple[Units, Units], float, Callable[[float], float]]:
    """Return the parameters for a sum over two-state units, their kinds, a constant, and the size of the terms.

    0/1 units are converted to spins unless the resulting fields and constant could cancel.
    """
    form, v, h = model.spin_form, model.visible_units, model.hidden_units
    assert form is not None
    if v.offset == h.offset == 0.0 or EPS * form.size <= 0.1 * PROMISED:
        return form, (SPIN, SPIN), form.constant, _spins_add(model)
    return model.natural, (v, h), 0.0, _adds(model)


def _gaussian_against_two_states(model: MRF) -> ExactMethod | None:
    """Integrate out a Gaussian side first, so that the cost of the sum over the other side does not depend on it."""
    turned = model if model.visible_units.precisions is not None else model.transposed()
    w = turned.natural
    v, h = w.visible_units, w.hidden_units
    gamma, values = v.precisions, h.values
    if gamma is None or values is None or turned.n_hidden > 24 or 0 in w.weights.shape:
        return None
    return ExactMethod(
        log2_seconds(turned.n_hidden, ENTRIES_PER_SECOND / 10),
        f"an exact sum over 2^{turned.n_hidden} states",
        lambda threads, tick: gaussian_discrete_log_z(w.weights, w.visible_bias, gamma, w.hidden_bias, values),
        _gaussian_adds(turned),
    )


def _gaussians_first(model: MRF) -> ExactMethod | None:
    """Integrate out the Gaussian side of any graph, which couples the discrete variables, and sum over these."""
    v, h = model.visible_units, model.hidden_units
    first = v.precisions is not None
    if first == (h.precisions is not None) or (first and model.n_visible > MOST_DENSE):
        return None
    units, n = (h, model.n_hidden) if first else (v, model.n_visible)
    if not units.is_discrete:
        return None
    states = float(units.log2_states(n).sum())
    sizes: list[float] = []

    def run(threads: int, tick: Tick) -> float:
        rest, constant, size = integrate_gaussians(model)
        way = _enumeration(rest, threads)
        assert way is not None
        value = way.run(threads, tick)
        sizes[:] = size, way.adds(value)
        return constant + value

    rate = PAIRS_ON_CPU if units.values is not None else FEATURES_PER_SECOND
    return ExactMethod(
        log2_seconds(states + math.log2(n + _LATERAL), rate) + 1e-9 * len(model.visible_bias) ** 3,
        f"an exact sum over 2^{states:.1f} states",
        run,
        lambda value: sum(sizes),
    )


def _continuous_adds(model: MRF) -> Callable[[float], float]:
    """Return the size of the terms for continuous visible and discrete hidden units."""
    if model.visible_units.precisions is not None:
        return _gaussian_adds(model)
    return lambda value: abs(value) + 750.0 + model.n_variables


def _gaussian_adds(model: MRF) -> Callable[[float], float]:
    """Return an upper bound of the size of the terms for Gaussian visible and discrete hidden units."""
    w, units = model.natural, model.natural.visible_units
    assert units.precisions is not None
    columns = sp.csc_array(abs(w.weights))
    reach = np.zeros(len(w.visible_bias))
    owners = w.hidden_units.owners(len(w.hidden_bias))
    for j in range(model.n_hidden):  # Only one feature of a variable is non-zero.
        reach += np.asarray(columns[:, owners == j].max(axis=1).todense()).ravel()
    squares = (np.abs(w.visible_bias) + reach) ** 2 / units.precisions
    size = 0.5 * float(squares.sum()) + float(np.abs(w.hidden_bias).sum())
    return lambda value: size


def _spins_add(model: MRF) -> Callable[[float], float]:
    """Return the size of the terms of a method that converts all units to spins."""
    size = model.spin_form.size  # type: ignore[union-attr]
    return lambda value: size


def _layers(model: MRF, threads: int) -> ExactMethod | None:
    if model.spin_form is None:
        return None
    form, units, constant, adds = _two_state_form(model)
    if units[0] != units[1]:  # Layers may have different kinds, so all units are converted to spins.
        form, units, constant, adds = model.spin_form, (SPIN, SPIN), model.spin_form.constant, _spins_add(model)
    arrays = layer_arrays(model, form)
    if arrays is None or len(arrays[1]) < 3:
        return None
    cost = layers_cost([len(b) for b in arrays[1]])
    return ExactMethod(
        log2_seconds(cost, ENTRIES_PER_SECOND),
        f"a layer-by-layer sum of 2^{cost:.0f} steps",
        lambda threads, tick: constant + layers_log_z(*arrays, units),
        adds,
    )


def _transfer(model: MRF, threads: int) -> ExactMethod | None:
    grid = grid_arrays(model)
    if grid is None:
        return None
    from .transfer import transfer_cost, transfer_log_z

    operations, entries = transfer_cost(grid.field.shape, grid.periodic, grid.diagonal is not None)
    constant = model.spin_form.constant  # type: ignore[union-attr]
    return ExactMethod(
        math.inf if entries > _MOST_ENTRIES else log2_seconds(operations, ENTRIES_PER_SECOND),
        f"a site-by-site transfer with tables of 2^{entries:.0f} entries",
        lambda threads, tick: constant + transfer_log_z(*grid, threads=threads, tick=tick),
        _spins_add(model),
    )


def _elimination(model: MRF, threads: int) -> ExactMethod | None:
    found = ordered_factors(model)
    if found is None:
        return None
    parts, order, width = found
    # On graphs that are not bipartite many tables may be as large as the largest one.
    entries = width if model.is_bipartite or width > _MOST_ENTRIES else _log2_entries(parts, order)
    seconds = log2_seconds(entries, ENTRIES_PER_SECOND) + 1e-4 * len(parts.cards)
    simple = NetworkWay(
        "elimination",
        math.inf if width > _MOST_ENTRIES else seconds,
        8.0 * 2.0**width,
        f"variable elimination with tables of 2^{width:.0f} entries",
        lambda threads, tick: eliminate_log_z(*parts, order),
    )
    best = simple
    if width <= _SEARCHED:
        tables = [((i,), u) for i, u in enumerate(parts.unary)] + list(zip(parts.edges, parts.tables, strict=True))
        best = faster_ways(parts.cards, tables, simple, _LONGEST, counting=False)[0]
    return ExactMethod(best.seconds, best.size, best.run, _adds(model), best.bytes)


def _log2_entries(parts: Factors, order: list[int]) -> float:
    return math.log2(max(1, table_entries(parts.edges, parts.cards, order)))


def _kac_ward(model: MRF, threads: int) -> ExactMethod | None:
    grid = grid_arrays(model)
    if grid is None or any(grid.periodic) or grid.field.any() or grid.diagonal is not None:
        return None
    from .planar import boundary_log_z, kac_ward_log_z

    n = grid.field.size
    # For large lattices a row-by-row elimination needs far less memory than an LU.
    planar = kac_ward_log_z if n <= _LU_SITES else boundary_log_z
    constant = model.spin_form.constant  # type: ignore[union-attr]
    largest = max(float(np.abs(x).max()) for x in (grid.horizontal, grid.vertical))
    return ExactMethod(
        1e-3 + 2e-6 * n**1.5 + (1e-6 * n**2 if largest > _COLD else 0.0),
        f"a Kac-Ward determinant of {n} sites",
        lambda threads, tick: constant + planar(grid.horizontal, grid.vertical),
        _spins_add(model),
    )


def _kaufman(model: MRF, threads: int) -> ExactMethod | None:
    grid = grid_arrays(model)
    if grid is None or not all(grid.periodic) or grid.field.any() or grid.diagonal is not None:
        return None
    across, down = grid.horizontal.flat[0], grid.vertical.flat[0]
    if np.any(grid.horizontal != across) or np.any(grid.vertical != down):
        return None
    rows, columns = grid.field.shape
    if (across < 0 and columns % 2) or (down < 0 and rows % 2):  # The torus is frustrated.
        return None
    constant = model.spin_form.constant  # type: ignore[union-attr]
    return ExactMethod(
        1e-4,
        "Kaufman's formula",
        lambda threads, tick: constant + kaufman_log_z(rows, columns, float(across), float(down)),
        _spins_add(model),
    )


def _pfaffian(model: MRF, threads: int) -> ExactMethod | None:
    return _on_surface(model, lattice_of(model))


def _planar(model: MRF, threads: int) -> ExactMethod | None:
    return _on_surface(model, planar_of(model))


def _on_surface(model: MRF, surface: Surface | None) -> ExactMethod | None:
    if surface is None:
        return None
    constant = model.spin_form.constant  # type: ignore[union-attr]
    return ExactMethod(
        surface.seconds,
        f"the Pfaffian of {surface.name}",
        lambda threads, tick: constant + surface.log_z(),
        _spins_add(model),
    )


def _gaussian(model: MRF, threads: int) -> ExactMethod | None:
    w = model.natural
    v, h = w.visible_units, w.hidden_units
    gamma = v.precisions, h.precisions
    if gamma[0] is None or gamma[1] is None:
        return None
    return ExactMethod(
        gaussian_seconds(w.weights, w.lateral),
        "a Gaussian closed form",
        lambda threads, tick: interruptible(
            gaussian_gaussian_log_z, w.weights, w.visible_bias, w.hidden_bias, *gamma, w.lateral
        ),
    )


# The last methods, those in `SEARCHING`, are left out if another method is fast.
WAYS: dict[str, Callable[[MRF, int], ExactMethod | None]] = {
    "enumeration": _enumeration,
    "layers": _layers,
    "transfer": _transfer,
    "kac-ward": _kac_ward,
    "kaufman": _kaufman,
    "gaussian": _gaussian,
    "pfaffian": _pfaffian,
    "elimination": _elimination,
    "planar": _planar,
}


# Methods that need a search to see if they apply, with its time in seconds per edge.
SEARCHING = {"elimination": 2e-4, "planar": 2e-4}


def log2_seconds(log2_operations: float, rate: float) -> float:
    """Return the seconds that 2^`log2_operations` operations take at a rate."""
    return 2.0**log2_operations / rate if log2_operations < 1000 else math.inf
