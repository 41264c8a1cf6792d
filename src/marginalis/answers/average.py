"""The function `average`: means over samples of disorder, with errors that contain sampling and disorder.

The value of a sample is exact where that is cheap. Otherwise few chains are enough, because the mean over M samples
averages their errors; steps and chains are chosen from a pilot batch, so that a given error costs least.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import islice
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from ..checks import Array, positive, whole, yes_or_no
from ..engines.plan import make_plan
from ..exact import duration
from ..models.model import MRF
from ..options import DEFAULT_CHAINS, RunOptions, filled_in, plan_options, takes_options
from ..parallel.progress import tell
from ..running.checkpoint import settings_of
from ..running.session import Session, open_session, quiet
from ..statistics.disorder import mean_over, standard_error_of
from .averages import FREE, Average, Costs, allocation, checked_quantity, words_of
from .averaging import SampleJob
from .batches import Batch, Numbers, Outcome, are_batched
from .estimates import named_error
from .given_models import NOTHING, GivenModels, Item, SourceFailed, given_models, models_of_seeds
from .keeping import InStore, Keeper
from .many import ManyRun, Unfinished
from .thermodynamics import inverse_temperatures

_NOT_HERE = ("first_chain", "checkpoint")
_PILOT, _THERMAL_PILOT = 32, 12  # Models of a pilot batch, without and with energies.
_PILOT_CHAINS = 64  # Chains of each of them.
_PILOT_STEPS, _MOST_STEPS = 100, 20_000  # Least and largest number of steps that a pilot may choose.
_EVEN, _WANTED = 1.0, 0.5  # Largest mean relative variance of a weight, and the one for which the steps are chosen.
_PILOT_FIRST = 2**31  # Number of the first chain of a pilot, which no answer has.
_SAMPLE_SECONDS = 2e-4  # Time of a sample besides its chains, in seconds: its model, plan and statistics.
_ENERGY_SECONDS = 2e-3  # The same for each temperature at which energies are averaged.
_UNKNOWN_COUNT = 1000  # Assumed number of the models of an iterator.
_MARGIN, _MOST_GROWTH = 1.05, 4.0  # A round that misses the tolerance is followed by one of so many more samples.


@takes_options(leave_out=_NOT_HERE)
def average(
    models: Callable[[int], Any] | Mapping[Any, Any] | Iterable[Any],
    quantity: str = "free_energy",
    *,
    samples: int | None = None,
    temperatures: ArrayLike | None = None,
    betas: ArrayLike | None = None,
    tolerance: float | None = None,
    exact: bool | None = None,
    moves: int = 10,
    store: str | os.PathLike[str] | None = None,
    **options: Unpack[RunOptions],
) -> Average:
    """Return the mean of a quantity over samples of disorder, with its error, spread, quantiles and histogram.

    The standard error is that of the scatter over the samples, which contains the errors of sampling. The bias of few
    chains, which does not average out, is estimated from the same chains and subtracted.

    Parameters
    ----------
    models
        A function that returns the model of a seed, called with ``seed + t`` for t = 0, 1, …; or models as for
        `estimate_many`. The models are not kept in memory.
    quantity
        ``"free_energy"``, ``"log_z"``, ``"energy"``, ``"entropy"`` or ``"heat_capacity"``, also with
        ``"_per_variable"``. If it is an energy or a heat capacity, the answer has all of them: see `Average.of`.
    samples
        Number of samples for a function, and the largest number for an iterator.
    temperatures, betas
        Temperatures, or inverse temperatures, at which every model is taken in place of its own.
    tolerance
        Wanted half-width of the 95 % interval of the mean. It decides the number of samples, unless the models are a
        list, and the number of chains.
    exact
        Whether values are exact sums: by default those are that take less than a tenth of a second.
    moves
        Moves at each temperature over which energies are averaged.
    store
        SQLite file that receives the numbers of finished samples. The same call continues from it after an
        interruption.
    """
    given: Any = models if callable(models) and not isinstance(models, MRF) else given_models(models)
    grid = None if temperatures is None and betas is None else inverse_temperatures(betas, temperatures)
    return average_given(given, quantity, samples, grid, tolerance, exact, moves, store, options)


def average_given(
    given: GivenModels | Callable[[int], Any],
    quantity: str,
    samples: int | None,
    betas: Array | None,
    tolerance: float | None,
    exact: bool | None,
    moves: int,
    store: str | os.PathLike[str] | None,
    options: RunOptions,
) -> Average:
    """Return the mean of a quantity as `average` does."""
    begin = time.perf_counter()
    chosen = filled_in(options, leave_out=_NOT_HERE)
    chosen["seed"] = whole(chosen["seed"], "seed", 0, 2**64 - 2**40)
    quantity = checked_quantity(quantity)
    is_thermal = quantity.removesuffix("_per_variable") not in FREE or (betas is not None and not betas.all())
    if is_thermal and (chosen["resample"] or chosen["base"] not in (None, "uniform")):
        raise ValueError("energies need independent chains from the uniform base: leave out resample and base")
    goal = None if tolerance is None else positive(tolerance, "tolerance")
    if exact is not None:
        yes_or_no(exact, "exact")
    source = _Source(given, samples, goal, int(chosen["seed"]))  # type: ignore[arg-type]
    stay = whole(moves, "moves", 1, 10**6)
    job = SampleJob({}, None if betas is None else tuple(betas.tolist()), is_thermal, exact, stay)
    with open_session({**chosen, "checkpoint": None}, "average") as session:
        call = _Call(source, job, quantity, betas, goal, chosen, session)
        call.plan()
        keeper: Any = nullcontext(Keeper())
        if store is not None:
            own = {"energies": is_thermal, "betas": job.betas, "exact": exact, "moves": stay}
            keeper = closing(InStore(store, {**call.chosen, **own}, "average"))
        with keeper as place:
            return call.run(place, begin)


class _Source:
    """The samples of a call, taken in rounds."""

    def __init__(self, given: Any, samples: int | None, goal: float | None, seed: int) -> None:
        self.seed = seed
        self.function: Callable[[int], Any] | None = None if isinstance(given, GivenModels) else given
        self.given: GivenModels | None = given if isinstance(given, GivenModels) else None
        self.limit = None if samples is None else whole(samples, "samples", 1, 2**40)
        if self.function is not None and samples is None and goal is None:
            raise ValueError("samples must be given for a function of a seed, or a tolerance")
        if self.given is not None and self.given.count is not None:
            if samples is not None and samples != self.given.count:
                raise ValueError(f"samples is {samples}, but there are {self.given.count} models: leave it out")
            self.limit = self.given.count
        self._items: Iterator[Item] | None = None
        self._seen: list[Item] = []  # Models of an iterator that were taken for the pilot.

    @property
    def is_fixed(self) -> bool:
        """Whether all models are given, so that their number cannot be chosen."""
        return self.given is not None and self.given.count is not None

    def first(self, count: int) -> list[Item]:
        """Return some models for a pilot: the first ones, or evenly spaced ones of a list."""
        if self.function is not None:
            number = count if self.limit is None else min(count, self.limit)
            return list(models_of_seeds(self.function, self.seed, 0, number).items())
        assert self.given is not None
        if self.given.model is None:
            self._items = self.given.items()
            try:
                self._seen.extend(islice(self._items, count))
            except SourceFailed:  # It is raised again by the run.
                self._items = self.given.items()
            return self._seen
        assert self.given.count is not None
        numbers = np.unique(np.linspace(0, self.given.count - 1, count).round().astype(int)).tolist()
        return [Item(number, None, self.given.model(number)) for number in numbers]

    def some(self, first: int, last: int | None) -> GivenModels:
        """Return the models from a number to another, the end if it is None."""
        if self.function is not None:
            assert last is not None
            return models_of_seeds(self.function, self.seed, first, last)
        assert self.given is not None
        if self.given.model is not None:
            return self.given
        if self._items is None:
            self._items = self.given.items()
        return replace(self.given, items=lambda: self._next(None if last is None else last - first))

    def _next(self, count: int | None) -> Iterator[Item]:
        """Yield the next models of an iterator."""
        assert self._items is not None
        while self._seen and count != 0:
            yield self._seen.pop(0)
            count = None if count is None else count - 1
        yield from islice(self._items, count)


class _Call:
    """A call of `average`: its plan, and the numbers of the samples so far."""

    def __init__(
        self,
        source: _Source,
        job: SampleJob,
        quantity: str,
        betas: Array | None,
        goal: float | None,
        chosen: RunOptions,
        session: Session,
    ) -> None:
        self.source, self.job, self.quantity, self.betas, self.goal = source, job, quantity, betas, goal
        self.chosen, self.session = chosen, session
        self.costs = Costs(self._fixed, 0.0, 0, 0)
        self.count = source.limit  # Samples of the first round; None: all of an iterator.
        self.parts: list[Numbers] = []
        self.names: list[Any] = []

    @property
    def _fixed(self) -> float:
        return _SAMPLE_SECONDS + (_ENERGY_SECONDS * self.job.shape[0] if self.job.is_thermal else 0.0)

    def plan(self) -> None:
        """Choose steps, chains and the number of samples from a pilot batch, where they are left open."""
        own: dict[str, Any] = dict(self.chosen)
        takes_steps = own["schedule"] in (None, "linear") if not isinstance(own["schedule"], np.ndarray) else False
        has_steps = own["steps"] is not None or not takes_steps
        trial = {**own, "steps": own["steps"] if has_steps else _PILOT_STEPS}
        counts = self.goal is not None and not self.source.is_fixed
        if are_batched(trial, {}) and not (has_steps and own["chains"] is not None and not counts):
            self._pilot(trial, has_steps, own["chains"])
        elif own["chains"] is None:
            own["chains"] = DEFAULT_CHAINS
            self.chosen = own  # type: ignore[assignment]
        if self.count is None and self.goal is not None:
            self.count = _UNKNOWN_COUNT
        self.job = replace(self.job, options=dict(plan_options(self.chosen)))

    def _pilot(self, trial: dict[str, Any], has_steps: bool, chains: int | None) -> None:
        items = self.source.first(_THERMAL_PILOT if self.job.is_thermal else _PILOT)
        models = [item.model for item in items]
        if not models:
            return
        batch = Batch(models, [self.source.seed + item.number for item in items])
        trial = {**trial, "chains": _PILOT_CHAINS if chains is None else chains, "first_chain": _PILOT_FIRST}
        while True:
            tell("a pilot batch of %d models, %d chains", len(models), trial["chains"])
            job = replace(self.job, options=dict(plan_options(trial)), digests=False)  # type: ignore[arg-type]
            outcome = job.estimated(batch, self.session.threads, quiet)
            annealed = np.flatnonzero(np.asarray(outcome.numbers.chains) > 0).tolist()
            good = [i for i, error in enumerate(outcome.numbers.errors) if not error]
            if not annealed or not good:
                break
            plan = make_plan(models[annealed[0]], **plan_options(trial))  # type: ignore[arg-type]
            count = int(outcome.numbers.chains[annealed[0]])
            self.costs = Costs(self._fixed, plan.seconds_per_chain / plan.steps, plan.steps, count)
            found = self._answer([outcome.numbers], [item.name for item in items], 0.0)
            uneven = found.relative_variance
            if has_steps or uneven <= _EVEN or trial["steps"] >= _MOST_STEPS:
                break
            trial["steps"] = min(_MOST_STEPS, int(trial["steps"] * min(8.0, max(2.0, uneven / _WANTED))))
        own = {**self.chosen, "steps": trial["steps"], "chains": trial["chains"]}
        if annealed and good:
            self._allocate(found, own, chains)
        elif good and self.goal is not None and not self.source.is_fixed:
            found = self._answer([outcome.numbers], [item.name for item in items], 0.0)
            self._set_count(found.cheapest(self.goal).samples)
        self.chosen = own  # type: ignore[assignment]

    def _allocate(self, found: Average, own: dict[str, Any], chains: int | None) -> None:
        """Choose the number of chains, unless it is given, and the number of samples from the pilot `found`."""
        worst = found.worst
        variance, spread = float(worst[:, 1].mean()), mean_over(worst).spread
        spread = 0.0 if math.isnan(spread) else spread
        count = self.count or _UNKNOWN_COUNT
        error = math.sqrt((spread**2 + variance) / count)
        if self.goal is not None:
            error = standard_error_of(self.goal)
        best = allocation(worst, found.relative_variance, self.costs, error)
        if chains is None:
            own["chains"] = best.chains
            if self.goal is not None and self.source.is_fixed and count * error**2 > spread**2:
                needed = variance * self.costs.chains / (count * error**2 - spread**2)
                own["chains"] = max(best.chains, 16 * math.ceil(needed / 16))
        elif self.goal is not None:
            best = best._replace(samples=max(2, math.ceil((spread**2 + variance) / error**2)))
        self.costs = replace(self.costs, chains=own["chains"])
        if self.goal is not None:
            number = count if self.source.is_fixed else best.samples
            seconds = number * (self.costs.fixed + self.costs.rate * own["steps"] * own["chains"])
            tell("%d samples, %d chains of %d steps: %s", number, own["chains"], own["steps"], duration(seconds))
        if self.goal is not None and not self.source.is_fixed:
            self._set_count(best.samples)

    def _set_count(self, count: int) -> None:
        self.count = count if self.source.limit is None else min(count, self.source.limit)

    def run(self, place: Keeper, begin: float) -> Average:
        """Return the mean over the samples, of as many rounds as the tolerance needs."""
        job = replace(self.job, digests=place.wants_digests)
        first = 0
        while True:
            given = self.source.some(first, self.count)
            run = _Round(given, self.chosen, job, self.session, place, self)
            run.all()
            count = given.count if given.count is not None else first + len(run.names)
            numbers = run.numbers(count)
            self.parts.append(numbers.at(range(first, count)))
            self.names.extend(run.names if given.names is None else given.names[first:])
            if run.unfinished is not None:
                where = place.where or "in the attribute `estimates` of this error"
                found = self._answer(self.parts, self.names, time.perf_counter() - begin) if self._has_any else None
                raise Unfinished(f"{run.unfinished}; the finished models are {where}", found)
            if not self.names:
                raise ValueError(NOTHING)
            if not self._has_any:
                raise ValueError(named_error(self.names[0], self.parts[0].errors[0]))
            found = self._answer(self.parts, self.names, time.perf_counter() - begin)
            if not self._goes_on(found, count):
                return found
            first = count

    @property
    def _has_any(self) -> bool:
        return any(not error for part in self.parts for error in part.errors)

    def _goes_on(self, found: Average, count: int) -> bool:
        """Whether another round follows; if so, set the number of samples at its end."""
        if self.goal is None or self.source.is_fixed or self.count is None or count < self.count:
            return False
        half = found.half_width
        if half <= self.goal or count == self.source.limit:
            return False
        growth = min(_MOST_GROWTH, max(1.1, _MARGIN * (half / self.goal) ** 2)) if math.isfinite(half) else _MOST_GROWTH
        self._set_count(math.ceil(growth * count))
        return True

    def _answer(self, parts: Sequence[Numbers], names: Sequence[Any], seconds: float) -> Average:
        further = np.concatenate([part.further for part in parts])
        own: Any = {**self.chosen}
        steps, chains = (np.concatenate([np.asarray(getattr(part, x)) for part in parts]) for x in ("steps", "chains"))
        annealed = np.flatnonzero(chains)
        costs = self.costs
        if len(annealed):
            costs = replace(costs, steps=int(steps[annealed[0]]), chains=int(chains[annealed[0]]))
        return Average(
            quantity=self.quantity,
            table=further[:, 1:].reshape(len(further), *self.job.shape),
            names=tuple(names),
            variables=further[:, 0],
            betas=self.betas,
            steps=steps,
            chains=chains,
            model_warnings=[x for part in parts for x in part.warnings],
            failures=[x for part in parts for x in part.errors],
            costs=costs,
            settings=settings_of(own),
            seconds=seconds,
            tolerance=self.goal if seconds else None,
        )


class _Round(ManyRun):
    """Samples of a call that run together; the progress bar has the mean so far beside it."""

    def __init__(
        self, given: GivenModels, chosen: RunOptions, job: SampleJob, session: Session, place: Keeper, call: _Call
    ) -> None:
        super().__init__(given, chosen, job, session, place)
        self.call, self.sums = call, [0.0, 0.0, 0.0]
        for part in call.parts:
            self._count_in(part)

    def _count_in(self, numbers: Numbers) -> None:
        """Add samples to the running mean of the quantity at the first temperature."""
        found = numbers.further[~np.isnan(numbers.further).any(axis=1)]
        if not len(found):
            return
        part = Numbers.unknown(len(found), found.shape[1])._replace(further=found)
        values = np.atleast_1d(self.call._answer([part], range(len(found)), 0.0).values.reshape(len(found), -1)[:, 0])
        self.sums = [a + b for a, b in zip(self.sums, (len(values), values.sum(), values @ values), strict=True)]

    def receive(self, numbers: list[int], names: list[Any], outcome: Outcome) -> None:
        """Store the results of a batch."""
        super().receive(numbers, names, outcome)
        with self.lock:
            self._count_in(outcome.numbers)

    def _tick(self, fraction: float) -> None:
        n, total, squares = self.sums
        if n > 1:
            mean = total / n
            error = math.sqrt(max(0.0, squares / n - mean * mean) / (n - 1))
            self.session.say(f"{int(n)} samples, {words_of(self.call.quantity)} = {mean:.5g} ± {error:.2g}")
        self.session.tick(fraction)
