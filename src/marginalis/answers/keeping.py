"""Where the results of many models are kept while the others run: nowhere, in a store, or in a checkpoint."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ..checks import shown
from ..display.words import printable
from ..engines.plan import model_digest
from ..files.atomic import check_writable
from ..files.results import packed, unpacked
from ..files.store import EstimateRow, Store
from ..parallel.tasks import machine
from ..results.estimate import Estimate, load_estimate, of_content
from ..results.written import plain_name
from ..running.checkpoint import Checkpoint, StoredResult, settings_of
from .batches import Numbers, Outcome, numbers_of
from .given_models import Item

_RUN = "models"  # Name of the run in a checkpoint.


class Known(NamedTuple):
    """The models whose results were stored by an earlier call."""

    places: dict[int, int]  # Places in the following lists by the numbers of the models.
    models: list[str]  # Digests of the models, or empty texts.
    numbers: Numbers
    answers: dict[int, Estimate]  # Estimates by the numbers of the models, where log-weights are kept.


class Keeper:
    """Base class of the places that keep the results of many models; this one keeps nothing."""

    wants_digests = False  # Whether `write` needs the digests of the models.
    wants_answers = False  # Whether `Outcome.kept` has whole estimates.
    wants_data = False  # Whether it has them only if the log-weights are kept.
    where = ""  # Where the results are, for a message.

    def known(self, width: int = 0) -> Known:
        """Return the stored results, each with `width` further numbers."""
        return Known({}, [], Numbers.unknown(0, width), {})

    def check(self, known: Known, item: Item) -> None:
        """Raise a ValueError if a stored result belongs to another model."""

    def write(self, numbers: list[int], names: list[Any], outcome: Outcome) -> None:
        """Store the results of some models."""


class InCheckpoint(Keeper):
    """Keeps whole estimates in the checkpoint of the call, whose settings name all models."""

    wants_answers = True

    def __init__(self, file: Checkpoint) -> None:
        self.file, self.where = file, f"in {file.path}"

    def known(self, width: int = 0) -> Known:
        """Return the stored results."""
        answers = {}
        for _, piece in self.file.read(_RUN):
            try:
                answer = _from_zip(piece.data) if piece.data[:2] == b"PK" else of_content(unpacked(piece.data))
            except ValueError as error:
                raise self.file.damage(error) from None
            answers[piece.first] = answer
        numbers = Numbers.unknown(len(answers))
        for place, answer in enumerate(answers.values()):
            numbers.put([place], numbers_of(answer))
        return Known({number: i for i, number in enumerate(answers)}, [""] * len(answers), numbers, answers)

    def write(self, numbers: list[int], names: list[Any], outcome: Outcome) -> None:
        """Store the estimates of some models."""
        whole = [(t, x) for t, x in zip(numbers, outcome.kept, strict=True) if x is not None]
        self.file.write(_RUN, [StoredResult(t, 1, machine(), packed(x.content())) for t, x in whole])


def _from_zip(data: bytes) -> Estimate:
    """Return the estimate in a file of version 0.3, which was a whole ``.npz``."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "estimate.npz"
        place.write_bytes(data)
        return load_estimate(place)


class InStore(Keeper):
    """Keeps a row of numbers for each model in a store, and the log-weights if they are kept at all."""

    wants_digests = wants_data = True

    def __init__(self, path: str | os.PathLike[str], options: Mapping[str, Any], name: str = "estimate-many") -> None:
        """Open or create the store; raise a ValueError if it belongs to a call with other options.

        `name` is that of the run in the store.
        """
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise ValueError(f"store is {shown(path)}; it must be the path of a file")
        check_writable(Path(path))
        self.store, self.name, self.where = Store(Path(path)), name, f"in {path}"
        try:
            self.store.begin({name: settings_of(options)}, resume=True)
        except BaseException:
            self.store.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self.store.close()

    def known(self, width: int = 0) -> Known:
        """Return the results of the models that have not failed, each with `width` further numbers."""
        count = self.store.count_estimates(self.name)
        found = Known({}, [], Numbers.unknown(count, width), {})
        for row in islice(self.store.estimates(self.name), count):  # Another process may be adding rows.
            try:
                self._add(found, row)
            except (TypeError, ValueError, IndexError) as error:
                raise self.store.damage(f"the row of model {row.number} cannot be read ({error})") from None
        if width:
            self._add_further(found)
        return found

    def _add_further(self, found: Known) -> None:
        missing = set(found.places)
        for number, values in self.store.further(self.name):
            if number in found.places:
                if values.shape != found.numbers.further.shape[1:]:
                    raise self.store.damage(f"the further numbers of model {number} cannot be read")
                found.numbers.further[found.places[number]] = values
                missing.discard(number)
        if missing:
            raise self.store.damage(f"model {min(missing)} lacks its further numbers")

    def _add(self, found: Known, row: EstimateRow) -> None:
        place = found.places[int(row.number)] = len(found.models)
        numbers = found.numbers
        reals = [math.nan if x is None else float(x) for x in row[3:9]]
        log_z, stderr, low, high, *rest = reals
        if not math.isfinite(log_z):
            raise ValueError("it has no ln Z")
        sizes = int(row.steps or 0), int(row.chains or 0), float(row.seconds or 0.0)
        for array, value in zip(numbers, (log_z, stderr, (low, high), *rest, *sizes), strict=False):
            array[place] = value
        numbers.warnings[place] = tuple(str(row.warnings).splitlines())
        found.models.append(str(row.model))
        if row.data is not None:
            found.answers[int(row.number)] = of_content(unpacked(row.data))

    def check(self, known: Known, item: Item) -> None:
        """Raise a ValueError if a stored result belongs to another model."""
        stored = known.models[known.places[item.number]]
        if isinstance(item.model, Exception) or model_digest(item.model) != stored:
            raise ValueError(f"models[{item.name!r}] is not the model whose result is {self.where}: use another store")

    def write(self, numbers: list[int], names: list[Any], outcome: Outcome) -> None:
        """Store the numbers of some models."""
        values = outcome.numbers.further
        further = zip(numbers, values, strict=True) if values.shape[1] else ()
        self.store.write_estimates(self.name, rows_of(numbers, names, outcome), further)


def rows_of(numbers: list[int], names: list[Any], outcome: Outcome) -> list[EstimateRow]:
    """Return the rows of a store for the results of some models."""
    x = outcome.numbers
    columns = zip(
        numbers,
        (printable(str(plain_name(name))) for name in names),
        outcome.digests,
        *(values.tolist() for values in (x.log_z, x.stderr, *x.interval.T, x.ess, x.tail_index)),
        *(values.tolist() for values in (x.steps, x.chains, x.seconds)),
        ("\n".join(own) for own in x.warnings),
        x.errors,
        (packed(kept.content()) if isinstance(kept, Estimate) else None for kept in outcome.kept),
        strict=True,
    )
    return [EstimateRow(*row) for row in columns]
