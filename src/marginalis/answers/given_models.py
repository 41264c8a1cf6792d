"""The models of a call for many models: lists, dictionaries, stacked arrays and iterators, cut into batches."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..checks import a_kind, one_line
from ..models.layered import as_model
from ..models.model import MRF
from ..models.stacked import Stack, as_stack, is_stack

_MOST_BYTES = 1 << 26  # Largest size of the couplings of a batch, in bytes.
_CONVERTED = 64  # Models of stacked arrays that are checked at a time.
_KINDS = "a list or a dictionary of models, stacked arrays, or an iterator of models"
NOTHING = f"models must be {_KINDS}, and it is empty"


class SourceFailed(ValueError):
    """The iterator of the models has raised an error."""


class Item(NamedTuple):
    """A model with its number and name, or the error in its place."""

    number: int
    name: Any
    model: Any


@dataclass(frozen=True)
class GivenModels:
    """The models in the caller's order; `count` is None if it is not known, as for a generator."""

    items: Callable[[], Iterator[Item]]
    count: int | None
    names: Sequence[Any] | None  # None: known when the items are.
    model: Callable[[int], Any] | None  # Returns a model again by its number; None if they come only once.
    several: Callable[[int, int], list[Any]] | None = None  # Returns the models from a number to another at once.
    first: int = 0  # Number of the first model; `count` is the number after the last one.
    sent: Callable[[Sequence[int]], Any] | None = None  # Returns what is sent to a worker in place of some models.

    def models(self, numbers: Sequence[int]) -> list[Any]:
        """Return models again by their numbers, which increase."""
        assert self.model is not None
        if self.several is not None and numbers[-1] - numbers[0] == len(numbers) - 1:
            return self.several(numbers[0], numbers[-1] + 1)
        return [self.model(number) for number in numbers]


def given_models(models: Any) -> GivenModels:
    """Return the models of an argument, or raise a ValueError if it is no collection of models."""
    if is_stack(models):
        stack = as_stack(models)
        names = range(len(stack))
        return GivenModels(
            lambda: _of_stack(stack), len(stack), names, lambda i: stack.models(i, i + 1)[0], stack.models
        )
    if isinstance(models, Mapping):
        return _listed(list(models.values()), list(models))
    if isinstance(models, list | tuple):
        return _listed(models, range(len(models)))
    if isinstance(models, Iterable) and not isinstance(models, str | bytes | np.ndarray) and not _is_one_model(models):
        return GivenModels(lambda: _of_iterator(models), None, None, None)
    raise ValueError(f"models must be {_KINDS}, not {a_kind(models)}")


@dataclass(frozen=True)
class Seeded:
    """Models that a worker makes, by a function of a seed."""

    function: Callable[[int], Any]
    seeds: Sequence[int]

    def __len__(self) -> int:
        return len(self.seeds)

    def models(self, first: int, last: int) -> list[Any]:
        """Return the models from one place to another; a model that cannot be made is replaced by the error."""
        return [_made(self.function, seed) for seed in self.seeds[first:last]]


def models_of_seeds(function: Callable[[int], Any], seed: int, first: int, count: int) -> GivenModels:
    """Return the models ``function(seed + t)`` for t from `first` to `count`."""

    def items() -> Iterator[Item]:
        for number in range(first, count):
            yield Item(number, seed + number, _made(function, seed + number))

    def sent(numbers: Sequence[int]) -> Seeded:
        return Seeded(function, [seed + number for number in numbers])

    names = range(seed, seed + count)
    return GivenModels(
        items, count, names, lambda i: _made(function, seed + i), None, first, sent if _is_known(function) else None
    )


def _is_known(function: Any) -> bool:
    """Whether workers can import a function."""
    if getattr(function, "__module__", "__main__") == "__main__":
        return False
    try:
        pickle.dumps(function)
    except Exception:  # Whatever the objects in it raise.
        return False
    return True


def _made(function: Callable[[int], Any], seed: int) -> Any:
    """Return the model of a seed, or the error that says why there is none."""
    try:
        model = function(seed)
    except Exception as error:  # Errors of the caller's function belong to one model.
        return ValueError(one_line(f"{type(error).__name__}: {error}", 200))
    return _converted(model, seed)


def _is_one_model(value: Any) -> bool:
    return isinstance(value, MRF) or hasattr(value, "nodes") or hasattr(value, "quadratic")


def _listed(models: Sequence[Any], names: Sequence[Any]) -> GivenModels:
    if not models:
        raise ValueError(NOTHING)
    for name, model in zip(names, models, strict=True):
        if model is None or isinstance(model, str | bytes | int | float):
            raise ValueError(f"models[{name!r}] is {a_kind(model)}; it must be a model")

    def items() -> Iterator[Item]:
        for number, (name, model) in enumerate(zip(names, models, strict=True)):
            yield Item(number, name, _converted(model, name))

    return GivenModels(items, len(models), names, lambda number: _converted(models[number], names[number]))


def _of_stack(stack: Stack) -> Iterator[Item]:
    for first in range(0, len(stack), _CONVERTED):
        for number, model in enumerate(stack.models(first, min(first + _CONVERTED, len(stack))), first):
            yield Item(number, number, model)


def _of_iterator(models: Iterable[Any]) -> Iterator[Item]:
    """Yield the models of an iterator, which may also give pairs (name, model)."""
    number = 0
    source = iter(models)
    while True:
        try:
            given = next(source)
        except StopIteration:
            return
        except Exception as error:
            text = one_line(f"{type(error).__name__}: {error}", 200)
            raise SourceFailed(f"models has raised an error after {number} models: {text}") from error
        name, model = given if isinstance(given, tuple) and len(given) == 2 else (number, given)
        yield Item(number, name, _converted(model, name))
        number += 1


def _converted(model: Any, name: Any) -> Any:
    """Return a value as a model, or the error that says why it is none."""
    if isinstance(model, MRF):
        return model
    try:
        return as_model(model, f"models[{name!r}]")
    except (ValueError, TypeError) as error:
        text = str(error).removeprefix(f"models[{name!r}]").removeprefix(": ").strip()
        return ValueError(text)


def bytes_of(model: Any) -> int:
    """Return the size of the couplings of a model, in bytes."""
    if not isinstance(model, MRF):
        return 0
    return sum(12 * w.nnz if sp.issparse(w) else w.nbytes for w in (model.weights, model.lateral) if w is not None)


def batches(
    items: Iterator[Item], size: Callable[[Any], int], each: int, failures: list[SourceFailed]
) -> Iterator[list[Item]]:
    """Cut the items into batches of at most `size(model)` of them, by the first model of each.

    `each` is the size in bytes of the results of a model. If the iterator of the models raises an error, the models
    before it are still yielded, and the error is added to `failures`.
    """
    while not failures:
        batch: list[Item] = []
        room, most = _MOST_BYTES, 1
        try:
            for item in items:
                if not batch:
                    most = size(item.model)
                batch.append(item)
                room -= bytes_of(item.model) + each
                if len(batch) >= most or room <= 0:
                    break
        except SourceFailed as error:
            failures.append(error)
        if not batch:
            return
        yield batch


def some(items: Iterator[Item], count: int) -> tuple[list[Item], SourceFailed | None]:
    """Return the next items, and the error of the iterator if it has raised one."""
    found: list[Item] = []
    try:
        found.extend(islice(items, count))
    except SourceFailed as error:
        return found, error
    return found, None
