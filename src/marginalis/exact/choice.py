"""Exact ln Z by the cheapest method that applies to the model, or by a given one."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import GPU_ENGINE, needs_gpu, one_of, real_number, whole
from ..models.factors import FactorModel
from ..models.interacting import InteractingMRF
from ..models.layered import as_factors, as_model
from ..models.model import MRF
from ..parallel.progress import ticker
from ..parallel.threads import Tick, cores
from .connected_parts import isolated, log_z_of_isolated, pieces, submodel
from .counting import CountingFailed
from .factored import factored_ways
from .structure import spin_fields
from .surfaces import is_sparse_enough
from .ways import EPS, PROMISED, SEARCHING, SOON, WAYS, ExactMethod, enumeration_on_gpu

METHODS = ("auto", *WAYS, "counting")

_INSTANT = 1e-3  # Durations below this many seconds are described without a number.
_MANY = 1000  # With more isolated variables than this, they are summed separately; methods would sum them one by one.


class ModelTooLarge(ValueError):
    """Raised if the exact sum would take too long; the message gives its size and the time it would take."""


class ExactLogZ(float):
    """ln Z as a float with its `method`, a description of it in words (`how`), and the `seconds` it took.

    As a number it is ln Z, not F; `free_energy` is F.
    """

    method: str
    seconds: float
    how: str

    @classmethod
    def of(cls, value: float, method: str, seconds: float, how: str = "") -> ExactLogZ:
        """Return the value with its provenance."""
        result = cls(value)
        result.method, result.seconds, result.how = method, seconds, f"exact, by {how or method}"
        return result

    @property
    def log_z(self) -> float:
        """ln Z."""
        return float(self)

    @property
    def free_energy(self) -> float:
        """F = −ln Z."""
        return -float(self)

    def summary(self) -> str:
        """Return F and ln Z with the method and the time, as text."""
        return f"F = {-float(self):.10g}   (exact)\nln Z = {float(self):.10g}\n{self.how}, {self.seconds:.2f} s"


def exact_log_z(
    model: Any,
    *,
    method: str = "auto",
    threads: int | None = None,
    progress: bool | Tick = False,
    max_seconds: float = 3600.0,
    engine: str = "auto",
    device: int | None = None,
) -> ExactLogZ:
    """Return the exact ln Z; its attribute ``method`` is the name of the method used.

    Parameters
    ----------
    model
        A model, anything that `as_model` accepts, or a `FactorModel`, which is summed by elimination or counting.
    method
        ``"auto"`` takes the cheapest of the methods that apply:

        - ``"enumeration"``: sum over all states of the smaller side, with the other side summed out in closed form; on
          a graph that is not bipartite, the sum is over the states of the visible variables;
        - ``"layers"``: a deep Boltzmann machine layer by layer;
        - ``"transfer"``: a two-dimensional lattice, square or triangular, site by site, any couplings and fields;
        - ``"elimination"``: variables of a sparse graph one by one, in an order of low width, and in slices if the
          tables would not fit in memory;
        - ``"counting"``: solutions of a network with many zeros, by weighted model counting (extra ``networks``);
        - ``"kac-ward"``: an open square lattice without fields, by a determinant;
        - ``"pfaffian"``: square and triangular lattices, open or periodic, any couplings, no fields;
        - ``"planar"``: any planar graph, any couplings, no fields or fields along one face only;
        - ``"kaufman"``: the homogeneous square torus without fields, by its closed formula;
        - ``"gaussian"``: Gaussian units only, on any graph, in closed form.
    threads
        Number of threads; by default the value of the environment variable MARGINALIS_THREADS, or all cores.
    progress
        True for a progress bar, or a callback that receives the progress, from 0 to 1.
    max_seconds
        Longest time that the sum may be predicted to take.
    engine
        ``"cuda"`` enumerates on a GPU.
    device
        Number of the GPU, by default the first.

    Raises
    ------
    ModelTooLarge
        If no method would finish within `max_seconds`. The message says how long the fastest would take.
    """
    found = predicted(model, method=method, threads=threads, max_seconds=max_seconds, engine=engine, device=device)
    return found.run(progress)


@dataclass(frozen=True)
class Prediction:
    """The exact methods that apply to a model within a time limit, cheapest first, before any of them is run."""

    ways: list[tuple[str, ExactMethod]]
    offset: float
    threads: int
    begun: float  # Start of the search for methods, from `time.perf_counter`.

    @property
    def seconds(self) -> float:
        """Predicted time of the cheapest method, in seconds."""
        return self.ways[0][1].seconds

    @property
    def is_predictable(self) -> bool:
        """Whether `seconds` is a prediction; for counting it is a limit."""
        return self.ways[0][0] != "counting"

    @property
    def how(self) -> str:
        """The cheapest method in words."""
        return self.ways[0][1].in_words

    def run(self, progress: bool | Tick = False) -> ExactLogZ:
        """Return ln Z by the first method that is accurate enough, or raise the error of the last one."""
        for k, (name, way) in enumerate(self.ways):
            try:
                with ticker(progress, f"exact, {name}") as tick:
                    value = _checked_value(way, self.offset, self.threads, tick)
            except ModelTooLarge:
                raise
            except CountingFailed as error:
                if k == len(self.ways) - 1:
                    raise ModelTooLarge(str(error)) from None
                continue
            except ValueError:  # This method is not accurate enough here, so the next one is tried.
                if k == len(self.ways) - 1:
                    raise
                continue
            return ExactLogZ.of(value, name, time.perf_counter() - self.begun, way.in_words)
        raise AssertionError("a way returns or raises")


def predicted(
    model: Any,
    *,
    method: str = "auto",
    threads: int | None = None,
    max_seconds: float = 3600.0,
    engine: str = "auto",
    device: int | None = None,
) -> Prediction:
    """Return the methods `exact_log_z` would try for a model, with their predicted times, or raise its error."""
    one_of(engine, ("auto", GPU_ENGINE), "engine")
    begun = time.perf_counter()
    model = as_summable(model)
    threads = cores(threads)
    offset = model.offset if isinstance(model, FactorModel) else model.natural.offset
    if needs_gpu(engine):
        ways = [_on_gpu(model, method, device, max_seconds)]
    else:
        ways = _applicable(model, method, threads, max_seconds)
    return Prediction(ways, offset, threads, begun)


def _on_gpu(model: MRF | FactorModel, method: str, device: int | None, max_seconds: float) -> tuple[str, ExactMethod]:
    one_of(method, ("auto", "enumeration"), "method")
    if isinstance(model, FactorModel):
        raise ValueError("engine 'cuda' sums two-state units only; use 'auto'")
    way = enumeration_on_gpu(model, None if device is None else whole(device, "device", 0, 2**16)).method
    if not way.seconds <= real_number(max_seconds, "max_seconds"):
        raise ModelTooLarge(
            f"{way.size}, which would take about {way.seconds:.2g} s on a GPU; max_seconds raises the limit"
        )
    return "enumeration", way


def as_summable(model: Any) -> MRF | FactorModel:
    """Return the model as an `MRF` of pairs if it is one, otherwise as factors without impossible states."""
    model = as_factors(model)
    if isinstance(model, InteractingMRF):
        model = model.as_factors()
    if isinstance(model, FactorModel):
        model = model.given()
        return model if model.why_not_annealed() else model.as_mrf()
    return as_model(model)


def _checked_value(way: ExactMethod, offset: float, threads: int, tick: Tick) -> float:
    """Return ln Z by a method, plus the offset, or raise a ValueError if rounding errors may be too large."""
    with np.errstate(over="ignore", invalid="ignore"):  # An overflow raises an error below instead of a warning.
        try:
            found = way.run(threads, tick)
        except OverflowError:  # `math.fsum` raises this on an overflow.
            found = math.inf
    return checked_value(found, way, offset)


def checked_value(found: float, way: ExactMethod, offset: float) -> float:
    """Return the result of a method, plus the offset, or raise a ValueError if rounding errors may be too large."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = float(offset + found)
        error = EPS * (way.adds(found) + abs(offset))
    if not math.isfinite(value):
        raise ValueError(f"ln Z is {value}: the parameters are too large for floating point")
    if not error <= PROMISED * max(1.0, abs(value)):
        raise ValueError(
            f"ln Z cannot be computed to {PROMISED:g}: terms of size {error / EPS:.2g} cancel to {value:.6g}, "
            f"which leaves an error of up to {error:.2g}"
        )
    return value


def cheapest(
    model: MRF | FactorModel, *, method: str = "auto", threads: int | None = None, max_seconds: float = 3600.0
) -> tuple[str, ExactMethod]:
    """Return the method that `exact_log_z` would try first, or raise its error."""
    return _applicable(model, method, cores(threads), max_seconds)[0]


def _applicable(
    model: MRF | FactorModel, method: str, threads: int, max_seconds: float
) -> list[tuple[str, ExactMethod]]:
    """Return the methods that apply and finish in time, cheapest first; raise an error if there is none."""
    one_of(method, METHODS, "method")
    limit = real_number(max_seconds, "max_seconds")
    if method == "auto" and isinstance(model, MRF):
        apart = _without_isolated(model, threads, limit)
        if apart is not None:
            return apart
    found: list[tuple[str, ExactMethod]] = []
    names = METHODS[1:] if method == "auto" else (method,)
    if isinstance(model, FactorModel):
        found = factored_ways(model, method, limit)
    else:
        for name in names:
            if name not in WAYS:
                continue  # This method is for models of factors only.
            if name in SEARCHING:
                search = max(SOON, SEARCHING[name] * model.n_edges)
                if any(way.seconds < search and way.is_sure for _, way in found):
                    continue
            way = WAYS[name](model, threads)
            if way is not None:
                found.append((name, way))
        found.sort(key=lambda pair: pair[1].seconds)
    fitting = [(name, way) for name, way in found if way.seconds <= limit]
    if fitting:
        return fitting
    parts = _by_parts(model, threads, limit) if method == "auto" and isinstance(model, MRF) else None
    if parts is not None:
        return [("parts", parts)]
    if not found and method == "auto":
        raise ModelTooLarge(
            "no exact method applies to this model: neither side is discrete, nor are all variables normal"
        )
    if not found:
        raise ValueError(f"method {method!r} does not apply to this model")
    way = found[0][1]
    raise ModelTooLarge(
        f"{way.size} would take {duration(way.seconds)} on {threads} thread{'s' * (threads > 1)} "
        f"(limit: {duration(limit)}){_no_surface(model, found) if method == 'auto' else ''}"
    )


def _no_surface(model: MRF | FactorModel, found: list[tuple[str, ExactMethod]]) -> str:
    """Return a remark for the message if Pfaffians do not apply to a sparse graph of two-state units."""
    if not isinstance(model, MRF) or any(name in ("pfaffian", "planar") for name, _ in found):
        return ""
    if model.spin_form is None or not is_sparse_enough(model):
        return ""
    fields = ", with its fields," if spin_fields(model, model.spin_form).any() else ""
    return f"; the graph{fields} is neither planar nor a torus, so that there is no Pfaffian method"


def _without_isolated(model: MRF, threads: int, max_seconds: float) -> list[tuple[str, ExactMethod]] | None:
    """Return the methods for a model with many isolated variables, which are summed at once; None for other models."""
    if not model.is_sparse or model.n_variables <= _MANY:
        return None
    alone = isolated(model)
    if sum(int(side.sum()) for side in alone) <= _MANY:
        return None
    value, size = log_z_of_isolated(model, *alone)
    if all(side.all() for side in alone):
        return [("parts", ExactMethod(0.0, "variables without couplings", lambda threads, tick: value, lambda _: size))]
    rest = _applicable(submodel(model, ~alone[0], ~alone[1]), "auto", threads, max_seconds)
    return [(name, _plus(way, value, size)) for name, way in rest]


def _plus(way: ExactMethod, value: float, size: float) -> ExactMethod:
    """Return a method that adds a value, itself a sum of terms of total size `size`, to the result of another one."""
    return ExactMethod(
        way.seconds,
        way.size,
        lambda threads, tick: value + way.run(threads, tick),
        lambda found: size + way.adds(found - value),
    )


def soon(model: MRF, threads: int, seconds: float, searching: float = 0.0) -> float | None:
    """Return ln Z if a method takes at most this many seconds.

    Elimination, which needs a search for an order, is tried if search and sum take at most `searching` seconds.
    """
    if model.has_terms:  # The methods for models of factors search.
        return None
    for name, make in WAYS.items():
        if name == "elimination":
            seconds = min(seconds, searching - SEARCHING[name] * model.n_edges)
            if seconds <= 0.0:
                continue
        elif name in ("kac-ward", "pfaffian", "planar") or (model.is_sparse and model.n_variables > _MANY):
            continue
        way = make(model, threads)
        if way is not None and way.seconds <= seconds:
            try:
                return _checked_value(way, model.natural.offset, threads, lambda fraction: None)
            except ValueError:  # The method is not accurate enough here.
                continue
    return None


def eliminate(model: MRF) -> float | None:
    """Return ln Z by elimination, without the offset, or None if it does not apply or takes too long."""
    way = WAYS["elimination"](model, 1)
    if way is None or way.seconds > 100 * SOON + 1e-4 * model.n_variables:
        return None
    return _checked_value(way, 0.0, 1, lambda fraction: None)


def _by_parts(model: MRF, threads: int, max_seconds: float) -> ExactMethod | None:
    """Return the method that sums each connected part by the cheapest method for that part."""
    count = model.connected_parts[2]
    if count < 2:
        return None
    parts = list(pieces(model))
    seconds = sum(cheapest(part, threads=threads, max_seconds=max_seconds)[1].seconds for part in parts)
    sizes: list[float] = []

    def run(threads: int, tick: Tick) -> float:
        values = [float(exact_log_z(part, threads=threads, max_seconds=max_seconds)) for part in parts]
        sizes[:] = np.abs(values).tolist()
        return math.fsum(values)

    return ExactMethod(seconds, f"{count} connected parts", run, lambda value: sum(sizes))


def duration(seconds: float) -> str:
    """Return a duration in words."""
    if seconds > 1e15:
        return "longer than the age of the universe"
    for unit, size in (("years", 31557600.0), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"about {seconds / size:.3g} {unit}"
    return f"about {seconds:.2g} s" if seconds >= _INSTANT else "less than a millisecond"
