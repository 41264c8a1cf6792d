"""Free energies of many models, such as samples of disorder, temperatures, or checkpoints of a training run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any, Unpack

from ..checks import needs_gpu, whole, yes_or_no
from ..engines.plan import make_plan
from ..models.stacked import packed
from ..options import RunOptions, filled_in, plan_options, takes_options
from ..parallel.dispatch import dispatch
from ..parallel.ledger import Ledger
from ..parallel.tasks import Reply
from ..parallel.threads import run_jobs
from ..results.estimate import Estimate, of_log_weights
from ..running.session import Session, open_session
from .batches import Batch, BatchJob, Numbers, Outcome, are_batched
from .estimate import hints_of
from .estimates import Estimates, named_error
from .given_models import NOTHING, GivenModels, Item, SourceFailed, batches, given_models, some
from .keeping import InCheckpoint, InStore, Keeper, Known

_NOT_HERE = ("first_chain",)
_BATCH_SECONDS = 0.5  # Target duration of a batch on one thread, in seconds.
_MOST_TOGETHER = 512  # Most models of a batch on the CPU.
_MOST_ON_GPU = 8192  # Most models of a batch on a GPU.
_GPU_THREADS = 2  # Threads that use a GPU: one prepares models while the kernel runs those of another.
_RESULT_BYTES = 24  # Bytes of a chain on a GPU.
_SENT_SECONDS, _MOST_SENT = 8.0, 10_000  # Work for every worker, and most models, taken from an iterator at a time.
_TASKS = 4  # Least number of tasks of a worker.
_UNKNOWN_SECONDS = 5.0  # Assumed time of a model whose steps are chosen for it.
_FIRST_FAILURES = 8  # If so many models fail in the same way before any succeeds, the options are the cause.


class Unfinished(ValueError):
    """The iterator of the models has raised an error; `estimates` holds the results up to there."""

    def __init__(self, message: str, estimates: Any = None) -> None:
        super().__init__(message)
        self.estimates = estimates


@takes_options(leave_out=_NOT_HERE)
def estimate_many(
    models: Mapping[Any, Any] | Iterable[Any],
    *,
    tolerance: float | None = None,
    budget: float | None = None,
    store: str | os.PathLike[str] | None = None,
    keep_weights: bool | None = None,
    **options: Unpack[RunOptions],
) -> Estimates:
    """Estimate the free energy of every model; the numbers of a model are those of a call of its own.

    If steps or a schedule is given, models of one shape (units, sizes and places of couplings) run in batches: each
    model on one core, several at a time, or all of them in one launch on a GPU. Model number t has the seed
    ``seed + t``, so that errors are independent. The options are those of `estimate` and apply to every model. A model
    that fails does not stop the others: its numbers are NaN, and `errors` of the answer says why.

    Parameters
    ----------
    models
        A list; a dictionary from names to models; a tuple (weights, visible_bias, hidden_bias, units) of arrays stacked
        along a first axis; or an iterator, such as a generator, of models or of pairs (name, model). The models of an
        iterator are not kept in memory.
    tolerance, budget
        As in `estimate`, for every model.
    store
        SQLite file that receives the numbers of finished models. The same call continues from it after an
        interruption. Its table `estimate` has one row per model.
    keep_weights
        Whether to keep the log-weights, so that the answer has the whole `Estimate` of every model. By default they
        are kept unless there is a store or the models come from an iterator.
    """
    return estimate_given(given_models(models), tolerance, budget, store, keep_weights, options)


def estimate_given(
    given: GivenModels,
    tolerance: float | None,
    budget: float | None,
    store: str | os.PathLike[str] | None,
    keep_weights: bool | None,
    options: RunOptions,
) -> Estimates:
    """Estimate the free energies of models as `estimate_many` does."""
    chosen = filled_in(options, leave_out=_NOT_HERE)
    most = 2**40 if given.count is None else given.count
    chosen["seed"] = whole(chosen["seed"], "seed", 0, 2**64 - most)  # Each model has its own seed.
    if keep_weights is not None:
        yes_or_no(keep_weights, "keep_weights")
    if chosen["checkpoint"] is not None and (given.count is None or store is not None or keep_weights is False):
        raise ValueError("checkpoint requires a list of models whose log-weights are kept: use store for other models")
    how = {"tolerance": tolerance, "budget": budget}
    if budget is not None and tolerance is None:
        raise ValueError("budget requires tolerance")
    keeps = (store is None and given.count is not None) if keep_weights is None else bool(keep_weights)
    begin = time.perf_counter()
    known = [] if chosen["checkpoint"] is None else [item.model for item in given.items()]
    for name, model in zip(given.names or (), known, strict=False):
        if isinstance(model, Exception):  # The file names all models.
            raise ValueError(named_error(name, str(model)))
    with open_session({**chosen, **how}, "models", *known) as session:
        keeper: Any = nullcontext(Keeper())
        if session.store is not None:
            keeper = nullcontext(InCheckpoint(session.store))
        elif store is not None:
            keeper = closing(InStore(store, {**chosen, **how}))
        with keeper as place:
            job = BatchJob(dict(plan_options(chosen)), how, keeps, place.wants_digests)
            run = ManyRun(given, chosen, job, session, place)
            run.all()
    return run.answer(time.perf_counter() - begin)


class ManyRun:
    """The models of a call, and the results that are there."""

    def __init__(
        self,
        given: GivenModels,
        chosen: RunOptions,
        job: Any,
        session: Session,
        place: Keeper,
    ) -> None:
        self.given, self.chosen, self.job, self.session, self.place = given, chosen, job, session, place
        self.seed: int = chosen["seed"]  # type: ignore[assignment]
        self.options: dict[str, Any] = dict(plan_options(chosen))
        self.keeps: bool = job.keeps
        self.found: list[tuple[list[int], Numbers]] = []
        self.kept: dict[int, Any] = {}  # Log-weights or estimates, by number.
        self.models: dict[int, Any] = {}  # Models of an iterator whose log-weights are kept.
        self.names: list[Any] = []  # Names of the models of an iterator, in the order in which they came.
        self.known: Known = place.known(job.width)
        self.taken: list[int] = []  # Numbers of the models that were known before.
        self.lock = threading.Lock()
        self.failures, self.succeeded = dict[str, int](), bool(self.known.places)
        self.unfinished: SourceFailed | None = None

    def all(self) -> None:
        """Estimate all models that are not known yet."""
        try:
            if self.session.pool is None:
                self._on_threads()
            else:
                self._on_pool()
        except SourceFailed as error:
            self.unfinished = error

    def _items(self) -> Iterator[Item]:
        """Yield the models that are not known yet."""
        for item in self.given.items():
            if self.given.count is None:
                self.names.append(item.name)
                if self.keeps:
                    self.models[item.number] = item.model
            if item.number not in self.known.places:
                yield item
                continue
            self.place.check(self.known, item)
            self.taken.append(item.number)

    def _seconds(self, model: Any) -> float:
        """Return a guess of the time of a model on one core, in seconds."""
        if isinstance(model, Exception) or not are_batched(self.chosen, self.job.how):
            return _UNKNOWN_SECONDS
        try:
            plan = make_plan(model, **self.options)
        except (ValueError, TypeError):
            return _UNKNOWN_SECONDS
        return plan.chains.count * plan.seconds_per_chain

    def _on_threads(self) -> None:
        threads, on_gpu = self.session.threads, needs_gpu(self.chosen["engine"])
        left = None
        if self.given.count is not None:
            own = range(self.given.first, self.given.count)
            left = max(1, len(own) - sum(number in own for number in self.known.places))
        stop = threading.Event()
        pace: float | None = None  # Seconds that a model of the last batch has taken.

        def size(model: Any) -> int:
            if on_gpu:
                return _MOST_ON_GPU
            share = _MOST_TOGETHER if left is None else -(-left // (2 * threads))
            seconds = self._seconds(model) if pace is None or isinstance(model, Exception) else pace
            return max(1, min(_MOST_TOGETHER, share, int(_BATCH_SECONDS / max(1e-9, seconds))))

        def report(fraction: float) -> None:
            if stop.is_set():
                raise InterruptedError("another piece of work failed, or the caller was interrupted")

        def work(batch: list[Item]) -> Iterator[float]:
            nonlocal pace
            begin = time.perf_counter()
            seeds = [self.seed + item.number for item in batch]
            outcome = self.job.estimated(Batch([item.model for item in batch], seeds), 1, report)
            self.receive([item.number for item in batch], [item.name for item in batch], outcome)
            pace = (time.perf_counter() - begin) / len(batch)
            yield float(len(batch))

        chains = 0 if self.chosen["chains"] is None else self.chosen["chains"]
        failures: list[SourceFailed] = []
        cut = batches(self._items(), size, _RESULT_BYTES * chains if on_gpu else 0, failures)
        total = float("inf") if left is None else float(left)
        at_a_time = _GPU_THREADS if on_gpu else threads
        if left is not None and not on_gpu:
            at_a_time = min(threads, left)
        run_jobs(work, cut, total, at_a_time, self._tick, stop)
        if failures:
            raise failures[0]

    def _tick(self, fraction: float) -> None:
        if self.given.count is None:
            self.session.say(f"{len(self.names)} models")
        self.session.tick(fraction)

    def _on_pool(self) -> None:
        assert self.session.pool is not None
        if self.given.count is not None:
            numbers = [item.number for item in self._items()]  # This also takes those that are known.
            if numbers:
                model = self.given.model
                assert model is not None
                self._send(numbers, self.given.models)
            return
        items = self._items()
        failed: SourceFailed | None = None
        count = 4 * self.session.pool.workers()
        while failed is None:
            chunk, failed = some(items, count)
            if not chunk:
                break
            by_number = {item.number: item.model for item in chunk}
            names = {item.number: item.name for item in chunk}
            self._send(list(by_number), lambda own, by=by_number: [by[i] for i in own], names)
            work = _SENT_SECONDS * self.session.pool.workers() / max(1e-9, self._seconds(chunk[0].model))
            count = max(4 * self.session.pool.workers(), min(_MOST_SENT, int(work)))
        if failed is not None:
            raise failed

    def _send(self, numbers: Sequence[int], models: Any, names: Mapping[int, Any] | None = None) -> None:
        """Run some models on the pool."""
        pool = self.session.pool
        assert pool is not None

        def extra(part: range) -> Batch:
            own = [numbers[i] for i in part]
            if self.given.sent is not None:
                return Batch(self.given.sent(own), [self.seed + number for number in own])
            chosen = models(own)
            whole = not any(isinstance(x, Exception) for x in chosen)
            return Batch(packed(chosen) if whole else chosen, [self.seed + number for number in own])

        def receive(part: range, reply: Reply) -> None:
            own = [numbers[i] for i in part]
            known = self.given.names if names is None else names
            assert known is not None
            self.receive(own, [known[i] for i in own], reply.result)

        first = models([numbers[0]])[0]
        # Every worker gets several tasks, so that all of them end at about the same time.
        most = -(-len(numbers) // (_TASKS * pool.workers()))
        ledger = Ledger(len(numbers), self._seconds(first), most=most)
        dispatch(pool, self.job, ledger, receive, self.session.tick, extra)

    def receive(self, numbers: list[int], names: list[Any], outcome: Outcome) -> None:
        """Store the results of a batch."""
        if self.place.wants_answers or (self.place.wants_data and self.keeps):
            seconds = outcome.numbers.seconds
            for i, number in enumerate(numbers):
                if outcome.kept[i] is not None:
                    outcome.kept[i] = self._estimate(number, outcome.kept[i], float(seconds[i]))
        self.place.write(numbers, names, outcome)
        with self.lock:
            self.found.append((numbers, outcome.numbers))
            if self.keeps:
                self.kept.update(zip(numbers, outcome.kept, strict=True))
            self._count(outcome.numbers.errors, names)

    def _count(self, errors: Sequence[str], names: Sequence[Any]) -> None:
        """Raise the error if the first models all fail in the same way."""
        if self.succeeded:
            return
        for error, name in zip(errors, names, strict=True):
            if not error:
                self.succeeded = True
                return
            self.failures[error] = self.failures.get(error, 0) + 1
            if self.failures[error] >= _FIRST_FAILURES and len(self.failures) == 1:
                raise ValueError(named_error(name, error))

    def _estimate(self, number: int, kept: Any, seconds: float) -> Estimate:
        """Return the estimate of a model from what is kept of it."""
        if isinstance(kept, Estimate):
            return kept
        model = self.models[number] if self.given.model is None else self.given.model(number)
        plan = make_plan(model, **{**self.options, "seed": self.seed + number})
        found = of_log_weights(plan, kept, seconds)
        return replace(found, hints=hints_of(model, found, 1))

    def numbers(self, count: int) -> Numbers:
        """Return the numbers of so many models."""
        numbers = Numbers.unknown(count, self.job.width)
        for places, part in self.found:
            numbers.put(places, part)
        numbers.put(self.taken, self.known.numbers.at([self.known.places[number] for number in self.taken]))
        return numbers

    def answer(self, seconds: float) -> Estimates:
        """Return the results of all models, or raise an error if there are none."""
        count = self.given.count
        if count is None:
            count = len(self.names)
        if not count and self.unfinished is None:
            raise ValueError(NOTHING)
        numbers = self.numbers(count)
        names: Sequence[Any] = self.names if self.given.names is None else self.given.names

        def make(number: int) -> Estimate | None:
            kept = self.known.answers.get(number, self.kept.get(number))
            return None if kept is None else self._estimate(number, kept, float(numbers.seconds[number]))

        found = Estimates(tuple(names), numbers, seconds, make, self.keeps)
        if self.unfinished is not None:
            where = self.place.where or "in the attribute `estimates` of this error"
            raise Unfinished(f"{self.unfinished}; the finished models are {where}", found)
        if count and all(numbers.errors):
            raise ValueError(named_error(names[0], numbers.errors[0]))
        return found
