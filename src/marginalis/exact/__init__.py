"""Exact ln Z: the cheapest method that fits the model, or the one that is asked for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..checks import one_of, real_number
from ..models.forms import Natural, SignedForm
from ..models.layered import as_model
from ..models.model import MRF
from ..models.units import SPIN, Gaussian, TwoState
from ..parallel.progress import ticker
from ..parallel.threads import Tick, cores, interruptible, jit_is_off
from .structure import grid_arrays, layer_arrays, ordered_factors

METHODS = ("auto", "enumeration", "layers", "transfer", "kac-ward", "kaufman", "gaussian", "elimination")

# Rates of one thread, cautious figures: what a model is refused or a method preferred by.
_PAIRS_PER_SECOND = 4e9  # one state of the enumerated side times one spin of the other
FEATURES_PER_SECOND = 5e7  # the same for other kinds of unit
ENTRIES_PER_SECOND = 1e8  # of transfer and elimination tables
_MOST_ENTRIES = 27.0  # binary logarithm: 1 GiB
_LU_SITES = 1 << 12  # an LU of more takes seconds, and hears no interrupt
_PROMISED = 1e-9  # relative accuracy, absolute for |ln Z| < 1
_EPS = 2.0**-52
SOON = 0.2  # seconds: do not look for a better way than this


class ModelTooLarge(ValueError):
    """The exact sum would take too long; the message says how large it is and how long it would take."""


class ExactLogZ(float):
    """ln Z as a float that knows the `method` it comes from and the `seconds` it took."""

    method: str
    seconds: float

    @classmethod
    def of(cls, value: float, method: str, seconds: float) -> ExactLogZ:
        """Return the value with its provenance."""
        result = cls(value)
        result.method, result.seconds = method, seconds
        return result


class Way(NamedTuple):
    """A method that applies to a model: about how long it takes, and the sum itself (offset left out).

    `adds`: about how large the numbers are, all together, that it adds up to come to a value. Where they nearly
    cancel, a value is good to 2^-52 of that only.
    """

    seconds: float
    size: str
    run: Callable[[int, Tick], float]
    adds: Callable[[float], float] = abs

    @property
    def is_sure(self) -> bool:
        """Whether rounding cannot matter, whatever the value."""
        return _EPS * self.adds(0.0) <= _PROMISED


def exact_log_z(
    model: MRF,
    *,
    method: str = "auto",
    threads: int | None = None,
    progress: bool | Tick = False,
    max_seconds: float = 3600.0,
) -> ExactLogZ:
    """Return the exact ln Z, with the attribute ``method`` that says how it was found.

    ``"auto"`` takes the cheapest of the methods that apply:

    - ``"enumeration"``: sum over all states of the smaller side, the other side summed out in closed form;
    - ``"layers"``: a deep Boltzmann machine layer by layer;
    - ``"transfer"``: a two-dimensional lattice site by site, any couplings and fields;
    - ``"elimination"``: variables of a sparse graph one by one, along an order of low width;
    - ``"kac-ward"``: an open two-dimensional lattice without fields, by a determinant;
    - ``"kaufman"``: the homogeneous torus without fields, by its closed formula;
    - ``"gaussian"``: Gaussian units on both sides, in closed form.

    Raises `ModelTooLarge` when none would finish within `max_seconds`.
    """
    model = as_model(model)
    threads = cores(threads)
    start = time.perf_counter()
    ways = _applicable(model, method, threads, max_seconds)
    for k, (name, way) in enumerate(ways):
        try:
            with ticker(progress, f"exact, {name}") as tick:
                value = _vouched(way, model.natural.offset, threads, tick)
        except ModelTooLarge:
            raise
        except ValueError:  # a method may find that it cannot vouch for its accuracy: on to the next
            if k == len(ways) - 1:
                raise
            continue
        return ExactLogZ.of(value, name, time.perf_counter() - start)
    raise AssertionError("a way returns or raises")


def _vouched(way: Way, offset: float, threads: int, tick: Tick) -> float:
    """Return what a way finds, plus the offset, or raise a ValueError if rounding may have spoiled it."""
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is no warning but an error, below
        try:
            found = way.run(threads, tick)
        except OverflowError:  # what fsum makes of it
            found = math.inf
        value = float(offset + found)
        error = _EPS * (way.adds(found) + abs(offset))
    if not math.isfinite(value):
        raise ValueError(f"ln Z is {value}: the parameters are too large for floating point")
    if not error <= _PROMISED * max(1.0, abs(value)):
        raise ValueError(
            f"ln Z cannot be told to {_PROMISED:g}: terms of size {error / _EPS:.2g} cancel to {value:.6g}, "
            f"which leaves an error of up to {error:.2g}"
        )
    return value


def cheapest(
    model: MRF, *, method: str = "auto", threads: int | None = None, max_seconds: float = 3600.0
) -> tuple[str, Way]:
    """Return the method that `exact_log_z` would try first, or raise its error."""
    return _applicable(model, method, cores(threads), max_seconds)[0]


def _applicable(model: MRF, method: str, threads: int, max_seconds: float) -> list[tuple[str, Way]]:
    """Return the methods that apply and fit the time, cheapest first; at least one, or raise."""
    one_of(method, METHODS, "method")
    limit = real_number(max_seconds, "max_seconds")
    found: list[tuple[str, Way]] = []
    for name in METHODS[1:] if method == "auto" else (method,):
        if name == "elimination" and any(way.seconds < SOON and way.is_sure for _, way in found):
            continue  # finding an order is work in itself
        way = _WAYS[name](model, threads)
        if way is not None:
            found.append((name, way))
    found.sort(key=lambda pair: pair[1].seconds)
    fitting = [(name, way) for name, way in found if way.seconds <= limit]
    if fitting:
        return fitting
    parts = _by_parts(model, threads, limit) if method == "auto" else None
    if parts is not None:
        return [("parts", parts)]
    if not found:
        raise ValueError(f"method {method!r} does not apply to this model")
    way = found[0][1]
    raise ModelTooLarge(
        f"{way.size} would take {duration(way.seconds)} on {threads} thread{'s' * (threads > 1)} "
        f"(limit: {duration(limit)})"
    )


def _enumeration(model: MRF, threads: int) -> Way | None:
    from .enumeration import enumerate_log_z, enumerate_states, log2_states

    if model.spin_form is not None and not jit_is_off():
        n, m = sorted((model.n_visible, model.n_hidden))
        size = f"the smaller side has {n} units: an exact sum over 2^{n} states x {m} units"
        turned = model if model.n_visible <= model.n_hidden else model.transposed()
        form, units, constant, adds = _two_state_form(turned)
        return Way(
            log2_seconds(n + math.log2(max(m, 1)), _PAIRS_PER_SECOND * threads),
            size,
            lambda threads, tick: constant + enumerate_log_z(form, units, threads, tick),
            adds,
        )
    gaussian = _gaussian_against_two_states(model)
    if gaussian is not None:
        return gaussian
    sizes = log2_states(model.visible_units, model.n_visible), log2_states(model.hidden_units, model.n_hidden)
    states = min(sizes)
    if states == math.inf:
        return None
    swap = sizes[1] < sizes[0]
    turned = model.transposed() if swap else model
    return Way(
        log2_seconds(states + math.log2(len(turned.hidden_bias) + 8), FEATURES_PER_SECOND),
        f"the smaller side has 2^{states:.1f} states: an exact sum",
        lambda threads, tick: enumerate_states(turned, tick),
        _adds(model) if math.isfinite(max(sizes)) else _gaussian_adds(turned.transposed()),
    )


def _adds(model: MRF) -> Callable[[float], float]:
    """Return what a discrete model in its own units adds up.

    Terms that no state can make up for do not count: a state that matters has all its terms within about
    `highest` − ln Z of their largest values.
    """
    top, slack = model.highest, 750.0 + model.n_variables
    return lambda value: top + max(0.0, top - value) + slack


def _two_state_form(
    model: MRF,
) -> tuple[Natural | SignedForm, tuple[TwoState, TwoState], float, Callable[[float], float]]:
    """Return the parameters to sum two-state units by, their kinds, a constant, and what is added up.

    0/1 units are taken as spins unless the fields and the constant that this brings could cancel.
    """
    form, v, h = model.spin_form, model.visible_units, model.hidden_units
    assert form is not None
    assert isinstance(v, TwoState)
    assert isinstance(h, TwoState)
    if v.offset == h.offset == 0.0 or _EPS * form.size <= 0.1 * _PROMISED:
        return form, (SPIN, SPIN), form.constant, _spins_add(model)
    return model.natural, (v, h), 0.0, _adds(model)


def _gaussian_against_two_states(model: MRF) -> Way | None:
    """Integrate out a Gaussian side first, so that its size does not matter to the sum over the other."""
    from .gaussian import gaussian_discrete_log_z

    turned = model if isinstance(model.visible_units, Gaussian) else model.transposed()
    w = turned.natural
    v, h = w.visible_units, w.hidden_units
    if not (isinstance(v, Gaussian) and isinstance(h, TwoState)) or turned.n_hidden > 24 or 0 in w.weights.shape:
        return None
    values = h.offset - h.scale, h.offset + h.scale
    return Way(
        log2_seconds(turned.n_hidden, ENTRIES_PER_SECOND / 10),
        f"an exact sum over 2^{turned.n_hidden} states",
        lambda threads, tick: gaussian_discrete_log_z(w.weights, w.visible_bias, v.gamma, w.hidden_bias, values),
        _gaussian_adds(turned),
    )


def _gaussian_adds(model: MRF) -> Callable[[float], float]:
    """Return what Gaussian visible units against discrete hidden ones add up, at most."""
    w, units = model.natural, model.natural.visible_units
    assert isinstance(units, Gaussian)
    columns = sp.csc_array(abs(w.weights))
    reach = np.zeros(len(w.visible_bias))
    owners = w.hidden_units.owners(len(w.hidden_bias))
    for j in range(model.n_hidden):  # only one feature of a variable is on
        reach += np.asarray(columns[:, owners == j].max(axis=1).todense()).ravel()
    squares = (np.abs(w.visible_bias) + reach) ** 2 / units.gamma
    size = 0.5 * float(squares.sum()) + float(np.abs(w.hidden_bias).sum())
    return lambda value: size


def _spins_add(model: MRF) -> Callable[[float], float]:
    """Return what a method adds up that takes all units as spins."""
    size = model.spin_form.size  # type: ignore[union-attr]
    return lambda value: size


def _layers(model: MRF, threads: int) -> Way | None:
    from .layers import layers_cost, layers_log_z

    if model.spin_form is None:
        return None
    form, units, constant, adds = _two_state_form(model)
    if units[0] != units[1]:  # whichever layers are of which kind
        form, units, constant, adds = model.spin_form, (SPIN, SPIN), model.spin_form.constant, _spins_add(model)
    arrays = layer_arrays(model, form)
    if arrays is None or len(arrays[1]) < 3:
        return None
    cost = layers_cost([len(b) for b in arrays[1]])
    return Way(
        log2_seconds(cost, ENTRIES_PER_SECOND),
        f"a layer-by-layer sum of 2^{cost:.0f} steps",
        lambda threads, tick: constant + layers_log_z(*arrays, units),
        adds,
    )


def _transfer(model: MRF, threads: int) -> Way | None:
    grid = grid_arrays(model)
    if grid is None:
        return None
    from .transfer import transfer_cost, transfer_log_z

    operations, entries = transfer_cost(grid.field.shape, grid.periodic)
    constant = model.spin_form.constant  # type: ignore[union-attr]
    return Way(
        math.inf if entries > _MOST_ENTRIES else log2_seconds(operations, ENTRIES_PER_SECOND),
        f"a site-by-site transfer with tables of 2^{entries:.0f} entries",
        lambda threads, tick: constant + transfer_log_z(*grid, threads=threads, tick=tick),
        _spins_add(model),
    )


def _elimination(model: MRF, threads: int) -> Way | None:
    from .elimination import eliminate_log_z

    found = ordered_factors(model)
    if found is None:
        return None
    parts, order, width = found
    return Way(
        math.inf if width > _MOST_ENTRIES else log2_seconds(width, ENTRIES_PER_SECOND) + 1e-4 * len(parts.cards),
        f"variable elimination with tables of 2^{width:.0f} entries",
        lambda threads, tick: eliminate_log_z(*parts, order),
        _adds(model),
    )


def eliminate(model: MRF) -> float | None:
    """Return ln Z by elimination, offset left out, or None if a side is not discrete."""
    way = _elimination(model, 1)
    return None if way is None or way.seconds > SOON * 100 else _vouched(way, 0.0, 1, lambda fraction: None)


def _kac_ward(model: MRF, threads: int) -> Way | None:
    grid = grid_arrays(model)
    if grid is None or any(grid.periodic) or grid.field.any():
        return None
    from .planar import boundary_log_z, kac_ward_log_z

    n = grid.field.size
    # the same determinant, eliminated row by row: for large lattices it needs far less memory than an LU
    planar = kac_ward_log_z if n <= _LU_SITES else boundary_log_z
    constant = model.spin_form.constant  # type: ignore[union-attr]
    return Way(
        3e-7 * n**1.5 + 1e-3,
        f"a Kac-Ward determinant of {n} sites",
        lambda threads, tick: constant + planar(grid.horizontal, grid.vertical),
        _spins_add(model),
    )


def _kaufman(model: MRF, threads: int) -> Way | None:
    from .kaufman import kaufman_log_z

    grid = grid_arrays(model)
    if grid is None or not all(grid.periodic) or grid.field.any():
        return None
    across, down = grid.horizontal.flat[0], grid.vertical.flat[0]
    if np.any(grid.horizontal != across) or np.any(grid.vertical != down):
        return None
    constant = model.spin_form.constant  # type: ignore[union-attr]
    rows, columns = grid.field.shape
    return Way(
        1e-4,
        "Kaufman's formula",
        lambda threads, tick: constant + kaufman_log_z(rows, columns, float(across), float(down)),
        _spins_add(model),
    )


def _gaussian(model: MRF, threads: int) -> Way | None:
    from .gaussian import gaussian_gaussian_log_z

    w = model.natural
    v, h = w.visible_units, w.hidden_units
    if not (isinstance(v, Gaussian) and isinstance(h, Gaussian)):
        return None
    return Way(
        1e-9 * min(len(w.visible_bias), len(w.hidden_bias)) ** 3,
        "a Gaussian closed form",
        lambda threads, tick: interruptible(
            gaussian_gaussian_log_z, w.weights, w.visible_bias, w.hidden_bias, v.gamma, h.gamma
        ),
    )


_WAYS: dict[str, Callable[[MRF, int], Way | None]] = {
    "enumeration": _enumeration,
    "layers": _layers,
    "transfer": _transfer,
    "elimination": _elimination,
    "kac-ward": _kac_ward,
    "kaufman": _kaufman,
    "gaussian": _gaussian,
}


def _by_parts(model: MRF, threads: int, max_seconds: float) -> Way | None:
    """Sum each connected part by its own cheapest method."""
    from ..sampling.components import submodel

    visible, hidden, count = model.connected_parts
    if count < 2:
        return None
    pieces = [submodel(model, visible == part, hidden == part) for part in range(count)]
    seconds = sum(cheapest(piece, threads=threads, max_seconds=max_seconds)[1].seconds for piece in pieces)
    sizes: list[float] = []

    def run(threads: int, tick: Tick) -> float:
        values = [float(exact_log_z(piece, threads=threads, max_seconds=max_seconds)) for piece in pieces]
        sizes[:] = np.abs(values).tolist()
        return math.fsum(values)

    return Way(seconds, f"{count} connected parts", run, lambda value: sum(sizes))


def log2_seconds(log2_operations: float, rate: float) -> float:
    """Return how long 2^`log2_operations` operations take at a rate."""
    return 2.0**log2_operations / rate if log2_operations < 1000 else math.inf


def duration(seconds: float) -> str:
    """Return a length of time in words."""
    if seconds > 1e15:
        return "longer than the age of the universe"
    for unit, size in (("years", 31557600.0), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"about {seconds / size:.3g} {unit}"
    return f"about {seconds:.2g} s"
