"""Numbers of samples of disorder for a mean over them: exact where that is cheap, otherwise from chains.

The numbers of a sample are those of `statistics.disorder`, for ln Z or for ln Z, energy, entropy and heat capacity, at
the temperature of the model or at several inverse temperatures. The chains of samples of one shape run together if only
ln Z is asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..checks import Array
from ..engines.plan import model_digest
from ..exact import ModelTooLarge, exact_log_z, predicted
from ..models.model import MRF
from ..models.stacked import unpacked
from ..parallel.threads import Tick
from ..results.estimate import Estimate
from ..running.session import Session, quiet
from ..statistics import confidence
from ..statistics.disorder import BIAS, REMAINING, VALUE, VARIANCE, numbers_of_log_weights, numbers_of_parts
from .batches import Batch, BatchJob, Numbers, Outcome
from .exact_curve import BEND, SLOPE, STEP
from .thermodynamics import QUANTITIES, at_infinity, recorded, runs_of

PER_SAMPLE = 4  # Numbers of a quantity: value, variance, bias, remaining bias.
_CHEAP = 0.1  # A sample is summed exactly if that is predicted to take less than this many seconds on one core.
_LONGEST = 3600.0  # Longest exact sum, in seconds, if exact values are demanded.
_PARTS = (1, 2, 4)  # Into how many parts the chains are divided to find the bias of a mean energy.


@dataclass(frozen=True)
class SampleJob:
    """The options of the samples; a task carries a `Batch`, and gives `Numbers` with further numbers.

    These are the number of variables and the numbers [β, quantity, 4] of a sample.
    """

    options: Mapping[str, Any]  # Those that decide the log-weights.
    betas: tuple[float, ...] | None  # None: the temperature of each model.
    is_thermal: bool  # Whether energies are asked for.
    exact: bool | None  # None: where that is cheap.
    moves: int
    digests: bool = False
    _hopeless: set[Any] = field(default_factory=set, compare=False)  # Shapes of models for which no sum is cheap.

    keeps = False

    @property
    def how(self) -> Mapping[str, Any]:
        """Tolerance and budget of each estimate: none."""
        return {}

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the numbers of a sample."""
        return len(self.betas or (1.0,)), len(QUANTITIES) if self.is_thermal else 1, PER_SAMPLE

    @property
    def width(self) -> int:
        """Number of further numbers."""
        return 1 + math.prod(self.shape)

    def run(self, part: range, extra: Batch, threads: int) -> Outcome:
        """Return the numbers of the samples of a batch."""
        return self.estimated(extra, threads, quiet)

    def estimated(self, batch: Batch, threads: int, tick: Tick) -> Outcome:
        """Return the numbers of the samples of a batch, computed on so many threads."""
        models = unpacked(batch.models)
        numbers = Numbers.unknown(len(models), self.width)
        begin = time.perf_counter()
        left = []
        for place, model in enumerate(models):
            if isinstance(model, Exception):
                numbers.errors[place] = str(model)
                continue
            numbers.further[place, 0] = model.n_variables
            found = self._summed(model, numbers, place)
            if found is not None:
                self._put(numbers, place, found)
            elif not numbers.errors[place]:
                left.append(place)
            tick((place - len(left)) / len(models))
        seeds = [batch.seeds[place] for place in left]
        digests = [""] * len(models)
        if self.digests:
            digests = ["" if isinstance(x, Exception) else model_digest(x) for x in models]
        if self.is_thermal:
            for place, seed in zip(left, seeds, strict=True):
                self._thermal(models[place], seed, numbers, place, threads, tick)
        elif left:
            self._annealed([models[place] for place in left], seeds, left, numbers, threads, tick)
        numbers.seconds[:] = (time.perf_counter() - begin) / max(1, len(models))
        return Outcome(numbers, [None] * len(models), digests)

    def _put(self, numbers: Numbers, place: int, found: Array) -> None:
        """Store the numbers [β, quantity, 4] of a sample."""
        if not np.isfinite(found[:, :, [VALUE, BIAS, REMAINING]]).all():
            numbers.errors[place] = "the result is not finite: the parameters are too large for floating point"
            return
        numbers.further[place, 1:] = found.ravel()
        coldest = 0 if self.betas is None else int(np.argmax(self.betas))
        numbers.log_z[place], variance = found[coldest, 0, VALUE], found[coldest, 0, VARIANCE]
        numbers.stderr[place] = math.sqrt(variance)
        if not variance:
            numbers.interval[place] = -found[coldest, 0, VALUE]

    def _summed(self, model: MRF, numbers: Numbers, place: int) -> Array | None:
        """Return exact numbers of a sample, or None if they are not cheap; with `exact` the reason is an error."""
        if self.exact is False or (self.betas is not None and not all(self.betas)):
            return None
        shape = type(model), model.n_visible, model.n_hidden, model.n_edges
        if self.exact is None and shape in self._hopeless:
            return None
        betas = [1.0 / model.temperature] if self.betas is None else self.betas
        steps = 1.0 + STEP * np.arange(-2, 3) if self.is_thermal else np.ones(1)
        limit = _LONGEST if self.exact else _CHEAP / (len(betas) * len(steps))
        try:
            if self.exact is None and predicted(model, threads=1, max_seconds=limit).seconds > limit:
                raise ModelTooLarge("an exact sum is not cheap")
            found = np.zeros(self.shape)
            for place_of_beta, beta in enumerate(betas):
                at = [model.at_temperature(1.0 / (beta * x)) for x in steps.tolist()]
                log_z = np.array([float(exact_log_z(x, threads=1, max_seconds=limit)) for x in at])
                found[place_of_beta, :, VALUE] = _of_sums(log_z, beta)
        except (ValueError, MemoryError) as error:
            if self.exact:
                numbers.errors[place] = str(error)
            elif isinstance(error, ModelTooLarge):  # Other errors, as of rounding, belong to one model.
                self._hopeless.add(shape)
            return None
        return found

    def _annealed(
        self,
        models: Sequence[MRF],
        seeds: Sequence[int],
        places: Sequence[int],
        numbers: Numbers,
        threads: int,
        tick: Tick,
    ) -> None:
        """Estimate ln Z of samples at every temperature."""
        job = BatchJob(self.options, {}, True, False)
        found = np.zeros((len(models), *self.shape))
        betas: Sequence[float | None] = [None] if self.betas is None else self.betas
        for number, beta in enumerate(betas):
            own: Any = models if beta is None else [_at(model, beta) for model in models]
            outcome = job.estimated(Batch(list(own), seeds), threads, tick)
            for i, place in enumerate(places):
                numbers.errors[place] = numbers.errors[place] or outcome.numbers.errors[i]
                numbers.warnings[place] = numbers.warnings[place] or outcome.numbers.warnings[i]
            numbers.steps[places], numbers.chains[places] = outcome.numbers.steps, outcome.numbers.chains
            self._collect(outcome, found[:, number, 0], numbers, places)
            coldest = beta is None or beta == max(self.betas or (beta,))
            if coldest:
                for ours, theirs in zip(numbers[2:5], outcome.numbers[2:5], strict=True):
                    ours[places] = theirs
        for place, own in zip(places, found, strict=True):
            if not numbers.errors[place]:
                self._put(numbers, place, own)

    def _collect(self, outcome: Outcome, found: Array, numbers: Numbers, places: Sequence[int]) -> None:
        """Compute the numbers of models from their log-weights, those of equally many chains in one pass."""
        weights: dict[int, list[int]] = {}
        kept = [x.log_weights if isinstance(x, Estimate) else x for x in outcome.kept]
        for i, x in enumerate(outcome.kept):
            if isinstance(x, Estimate) and x.weights.one_sided:
                numbers.errors[places[i]] = "only a lower bound of ln Z is known"
            elif x is not None:
                weights.setdefault(len(kept[i]), []).append(i)
        for members in weights.values():
            log_weights = np.stack([kept[i] for i in members])
            found[members] = numbers_of_log_weights(log_weights, np.zeros(len(members)))
            found[members, VALUE] = outcome.numbers.log_z[members]

    def _thermal(self, model: MRF, seed: int, numbers: Numbers, place: int, threads: int, tick: Tick) -> None:
        """Estimate ln Z, energy, entropy and heat capacity of a sample from the chains of one run."""
        options = {**self.options, "seed": seed, "base": None, "resample": False}
        wanted = np.array([1.0 / model.temperature] if self.betas is None else self.betas)
        rows: list[Array] = []
        try:
            runs, back = runs_of(model, wanted)
            for own, largest, places in runs:
                plan, inner, recorder = recorded(own, places, self.moves, Session(threads, tick=tick), options)
                log_z0 = plan.path.base.log_z(plan.path.model)
                if places[0] == 0.0:
                    known = np.zeros((len(QUANTITIES), PER_SAMPLE))
                    known[:, VALUE] = at_infinity(plan, log_z0, largest)[:8:2]
                    rows.append(known)
                offset = plan.path.model.natural.offset
                for x, log_weights, values in zip(inner, recorder.log_weights, recorder.values, strict=True):
                    rows.append(_of_chains(log_weights, values, log_z0, x, largest, offset))
                if len(inner):
                    numbers.warnings[place] = confidence.warnings_of(recorder.log_weights[-1])
                    numbers.ess[place] = confidence.effective_size(recorder.log_weights[-1])
        except InterruptedError:
            raise
        except (ValueError, TypeError) as error:
            numbers.errors[place] = str(error)
            return
        numbers.steps[place], numbers.chains[place] = plan.steps, plan.chains.count
        self._put(numbers, place, np.array(rows)[back])


def _at(model: MRF, beta: float) -> MRF | ValueError:
    """Return the model at an inverse temperature, or the error that says why there is none."""
    try:
        return model.at_temperature(math.inf if beta == 0.0 else 1.0 / beta)
    except ValueError as error:
        return error


def _of_sums(log_z: Array, beta: float) -> Array:
    """Return ln Z, U, S and C from exact sums at β(1 + iδ), i = −2 … 2; or ln Z alone from that at β."""
    if len(log_z) == 1:
        return log_z
    energy = -float(log_z @ SLOPE) / (STEP * beta)
    return np.array([log_z[2], energy, log_z[2] + beta * energy, float(log_z @ BEND) / STEP**2])


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def _of_chains(log_weights: Array, values: Array, log_z0: float, x: float, largest: float, offset: float) -> Array:
    """Return the numbers [quantity, 4] of ln Z, U, S and C at the place x of a path from its weighted chains.

    `values` has for each chain the mean of −H/T, of its square, and the variance given its state; see `_Energies`.
    """
    n = len(log_weights)
    means = [_of_groups(log_weights, values, count, log_z0, x, largest, offset).mean(axis=0) for count in _PARTS]
    if n < _PARTS[-1] * 2:
        means[1:] = [means[0]] * 2
    w = confidence.relative_weights(log_weights)
    w /= w.sum()
    mean = float(w @ values[:, 0])
    squares = values[:, 2] + values[:, 1] - 2.0 * mean * values[:, 0] + mean * mean
    on_log_z, on_mean = w - 1.0 / n, w * (values[:, 0] - mean)
    on_variance = w * (squares - w @ squares)
    influences = on_log_z, -on_mean / largest, on_log_z - x * on_mean, x**2 * on_variance
    scale = n / (n - 1.0) if n > 1 else math.inf
    variance = np.array([scale * float(own @ own) for own in influences])
    found = numbers_of_parts(means[0], variance, means[1], means[2])
    found[0] = numbers_of_log_weights(log_weights[None, :], np.array([log_z0 + x * offset]))[0]
    return found


def _of_groups(
    log_weights: Array, values: Array, count: int, log_z0: float, x: float, largest: float, offset: float
) -> Array:
    """Return rows (ln Z, U, S, C), one for each of so many groups of chains."""
    size = max(1, len(log_weights) // count)
    count = len(log_weights) // size if count > 1 else 1
    own = log_weights[: count * size].reshape(count, size) if count > 1 else log_weights[None, :]
    numbers = values[: own.size].reshape(*own.shape, 3)
    top = own.max(axis=1, keepdims=True)
    w = np.exp(own - top)
    total = w.sum(axis=1)
    log_z = log_z0 + top[:, 0] + np.log(total / own.shape[1]) + x * offset
    first, second, inner = (np.einsum("gi,gi->g", w, numbers[:, :, k]) / total for k in range(3))
    energy = -(first + offset) / largest
    return np.stack([log_z, energy, log_z + x * largest * energy, x**2 * (inner + second - first**2)], axis=1)
