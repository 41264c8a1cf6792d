"""The class that a training loop calls to watch ln Z and ln p of held-out rows."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

import numpy as np

from ..answers.history import NOTHING, History, Point
from ..answers.likelihood import log_terms
from ..checks import a_kind, one_line, positive, real_number, shown, whole, yes_or_no
from ..display.card import Displayed
from ..engines.plan import model_digest
from ..files.atomic import make_folder
from ..models.layered import as_model
from ..models.model import MRF
from ..options import RunOptions, filled_in, plan_options
from ..running.session import open_session
from .follow import Followed, begun, followed
from .live import LiveFigure
from .loops import lightning_callback
from .store import FIGURE, POPULATION, TABLE, Stored, read_population, write_population, write_table

logger = logging.getLogger("marginalis")

_OPTIONS = ("summed", "schedule", "first_chain", "checkpoint", "progress", "pool")  # Options that a watch lacks.
_CHAINS = 200  # Default number of chains: many steps of few chains follow a model better than the reverse.


class Watch(Displayed):
    """ln Z and ln p of held-out rows, with error bands, while a model is trained.

    Call `update` with the model after every epoch, or every few batches. One population of chains is annealed from each
    state of the model to the next. Its weights estimate ln Z without bias, and few steps are enough as long as the
    model changes little. A fresh run replaces the population, with a Python warning, if the model has changed too much,
    or if another run finds a larger ln Z.

    Parameters
    ----------
    folder
        Folder for three files, which are written after every update, each whole or not at all: ``watch.csv`` (the table
        of all points), ``watch.png`` (the figure) and ``watch.npz`` (the population). A watch on the same folder goes
        on where the last one stopped. Without a folder nothing is written. If a file cannot be written, for example
        because the disk is full, one Python warning says so and training goes on.
    rows
        Held-out rows, or a mapping of names to rows, for the mean of ln p. A thousand rows cost little.
    tolerance
        Standard error of ln Z at which a fresh run is made, in nats.
    share
        Largest share of the time that the watch may take. `update` does nothing and returns None while the watch has
        taken more than this since it was made. By default every call measures ln Z. The points depend on the speed of
        the machine then.
    figure
        Write the figure.
    live
        Show the figure in a notebook and redraw it after every update.
    options
        Options of `along`; by default there are 200 chains, resampled in 20 populations.

    Examples
    --------
    >>> watch = mg.Watch("run", rows={"test": test})  # doctest: +SKIP
    >>> for epoch in range(100):  # doctest: +SKIP
    ...     train()
    ...     watch.update(rbm, step=epoch)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        rows: Any = None,
        tolerance: float = 0.5,
        share: float | None = None,
        figure: bool = True,
        live: bool = False,
        **options: Unpack[RunOptions],
    ) -> None:
        if folder is not None and not (isinstance(folder, str | os.PathLike) and os.fspath(folder)):
            raise ValueError(f"folder is {shown(folder)}; it must name a folder")
        for name, value in (("figure", figure), ("live", live)):
            yes_or_no(value, name)
        self.tolerance = positive(tolerance, "tolerance")
        self.share = None if share is None else real_number(share, "share")
        if self.share is not None and not 0.0 < self.share <= 1.0:
            raise ValueError(f"share is {shown(share)}; it must be above 0 and at most 1, as 0.1 is")
        chosen = filled_in(options, leave_out=_OPTIONS)
        if chosen["chains"] is None:
            chosen["chains"] = _CHAINS
        if chosen["resample"] is None:
            chosen["resample"] = True
        self._options, self._given = chosen, plan_options(chosen)
        self._rows = _named_rows(rows)
        self.folder = None if folder is None else Path(folder)
        self._points: tuple[Point, ...] = ()
        self._followed: Followed | None = None
        self._told: set[str] = set()  # Notes that were told.
        self._failed = False  # Whether a file could not be written.
        self._begun = time.perf_counter()
        self._taken = 0.0  # Seconds that this object has taken.
        if self.folder is not None:
            make_folder(self.folder, POPULATION, TABLE, FIGURE)
            if (self.folder / POPULATION).exists():
                self._resume(self.folder / POPULATION)
        path = self.folder / FIGURE if self.folder is not None and figure else None
        self._figure = LiveFigure(path, live)

    @property
    def history(self) -> History:
        """All points so far."""
        return History(self._points)

    @property
    def share_of_time(self) -> float:
        """Share of the time since this object was made that it has taken itself."""
        return self._taken / max(time.perf_counter() - self._begun, 1e-9)

    def update(self, model: Any, step: int | None = None) -> Point | None:
        """Measure ln Z of the model, and the mean of ln p of the rows, and return them as a `Point`.

        Parameters
        ----------
        model
            Anything that `as_model` takes: a model, a fitted or partly fitted ``BernoulliRBM``, a torch module or its
            state, or a tuple (weights, visible_bias, hidden_bias, units).
        step
            Number of the step of training; by default one more than at the last update. A step that is not after the
            last one replaces all points from there on, unless the model is the same as at that step.

        Returns
        -------
        Point or None
            None if the watch has taken more than its `share` of the time.

        Raises
        ------
        ValueError
            At the first update, if no model can be made of the argument, or if the rows do not belong to it. A later
            failure, for example because a weight is not finite, is a Python warning and a point without numbers.
        """
        last = self._points[-1].step if self._points else -1
        number = last + 1 if step is None else whole(step, "step", -(2**53), 2**53)
        if self.share is not None and self._points and self.share_of_time > self.share:
            return None
        begin = time.perf_counter()
        try:
            return self._update(model, number, begin)
        finally:
            self._taken += time.perf_counter() - begin

    def close(self) -> None:
        """Draw the figure with all points. `with` does so at its end."""
        if self._points:
            self._try(lambda: self._figure.draw(self.history, last=True))

    def lightning(
        self, model: Callable[[Any], Any] | None = None, *, every_n_epochs: int = 1, every_n_batches: int | None = None
    ) -> Any:
        """Return a callback for ``Trainer(callbacks=[…])`` of PyTorch Lightning, which calls `update`.

        The step is the trainer's ``global_step``. The values are logged as ``log_z`` and ``<name>_ln_p``, so that other
        callbacks may use them.

        Parameters
        ----------
        model
            Function of the Lightning module that returns what `update` takes; by default the module itself.
        every_n_epochs, every_n_batches
            When to call `update`; if the second is given, the first does not apply.
        """
        return lightning_callback(self, model, every_n_epochs, every_n_batches)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __str__(self) -> str:
        return str(self.history)

    def to_dataframe(self) -> Any:
        """Return the points as a pandas DataFrame. Needs pandas."""
        return self.history.to_dataframe()

    def plot(self, **options: Any) -> Any:
        """Return the figure of all points."""
        return self.history.plot(**options)

    def _headline(self) -> str:
        return self.history._headline()

    def _sketch(self) -> str:
        return self.history._sketch()

    def _update(self, value: Any, step: int, begin: float) -> Point:
        try:
            model = as_model(value)
            digest = model_digest(model)
            known = self._known(step, digest)
            if known is not None:
                return known
            self._forget_from(step)
            point = self._measured(model, digest[:16], step, begin)
        except ValueError as error:
            if not self._points:
                raise
            self._forget_from(step)
            note = one_line(f"no ln Z: {error}", 300)
            point = Point(step, math.nan, (math.nan, math.nan), math.nan, source=NOTHING, note=note)
            point = _with_empty(point, self._rows)
        self._points += (point,)
        self._write()
        if self._is_loud(point):
            warnings.warn(f"step {step}: {point.note}", stacklevel=3)
        return point

    def _measured(self, model: MRF, digest: str, step: int, begin: float) -> Point:
        terms = {name: log_terms(model, rows) for name, rows in self._rows.items()}
        with open_session(self._options, "watch") as session:
            if self._followed is None:
                found = begun(model, self._given, self.tolerance, session)
            else:
                found = followed(self._followed, model, self._given, self.tolerance, session)
        self._followed = found
        weights = found.weights
        low, high = weights.interval
        return Point(
            step,
            weights.log_z,
            (-high, -low),
            weights.stderr,
            {name: float(x.mean()) - weights.log_z for name, x in terms.items()},
            {name: float(x.std(ddof=1)) / math.sqrt(len(x)) if len(x) > 1 else math.inf for name, x in terms.items()},
            found.source,
            found.worked,
            time.perf_counter() - begin,
            found.note,
            digest,
        )

    def _is_loud(self, point: Point) -> bool:
        """Whether a Python warning tells the note of a point: surprises always, other notes once."""
        surprise = point.source == NOTHING or (self._followed is not None and self._followed.loud)
        new = point.note not in self._told
        self._told.add(point.note)
        return bool(point.note) and (surprise or new)

    def _known(self, step: int, digest: str) -> Point | None:
        """Return the point of this step if it is there already, with the same model."""
        return next((p for p in self._points if p.step == step and p.model == digest[:16]), None)

    def _forget_from(self, step: int) -> None:
        """Remove the points from a step on, because training goes on from an earlier one."""
        if self._points and step <= self._points[-1].step:
            logger.warning(
                "step %d is not after step %d: the points from there on are replaced", step, self._points[-1].step
            )
            self._points = tuple(p for p in self._points if p.step < step)

    def _write(self) -> None:
        points, folder = self._points, self.folder
        if folder is not None:
            found = self._followed
            if found is not None:
                self._try(lambda: write_population(folder / POPULATION, Stored(self._settings(), points, found)))
            self._try(lambda: write_table(folder / TABLE, points))
        self._try(lambda: self._figure.draw(self.history))

    def _try(self, write: Callable[[], object]) -> None:
        """Write a file; if that fails, warn once and go on."""
        try:
            write()
        except (OSError, ValueError) as error:
            if not self._failed:
                self._failed = True
                warnings.warn(
                    f"{error}; training goes on, and files of the watch are missing or not up to date", stacklevel=5
                )

    def _settings(self) -> dict[str, Any]:
        """Return what decides the points, to be compared when a watch goes on."""
        given = {name: value for name, value in self._given.items() if name not in ("engine", "device")}
        plain = {name: value if _is_plain(value) else _digest_of(value) for name, value in given.items()}
        rows = {name: _digest_of(rows) for name, rows in self._rows.items()}
        return {**plain, "tolerance": self.tolerance, "rows": rows}

    def _resume(self, path: Path) -> None:
        """Go on from the file of another watch with the same settings."""
        stored = read_population(path)
        own = self._settings()
        for name in sorted({*own, *stored.settings}):
            if own.get(name) != stored.settings.get(name):
                was, now = (shown(x.get(name)) for x in (stored.settings, own))
                here = "" if name == "rows" else f", {was} there and {now} here"
                raise ValueError(
                    f"folder {one_line(path.parent, 100)} has a watch with other {name}{here}: choose another folder"
                )
        self._points, self._followed = stored.points, stored.followed
        logger.info("%s: going on after step %d", path, self._points[-1].step)


def _named_rows(rows: Any) -> dict[str, Any]:
    """Return sets of rows by name; their values are checked when the model is known."""
    if rows is None:
        return {}
    if not isinstance(rows, Mapping):
        return {"rows": rows}
    for name, value in rows.items():
        if not isinstance(name, str) or not name.isprintable() or not name.strip():
            raise ValueError(f"rows has the name {shown(name)}; names of sets of rows are short texts")
        if value is None:
            raise ValueError(f"rows[{name!r}] is None; it must be an array of rows")
    return dict(rows)


def _with_empty(point: Point, rows: Mapping[str, Any]) -> Point:
    """Return a point without numbers, with a column for every set of rows."""
    empty = dict.fromkeys(rows, math.nan)
    return Point(**{**vars(point), "log_p": empty, "rows_error": empty})


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _digest_of(value: Any) -> str:
    """Return a digest of rows or of another array, or the kind of a value that is none."""
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu()
        array = np.ascontiguousarray(value.toarray() if hasattr(value, "toarray") else value)
        if array.dtype.kind not in "biuf":
            raise ValueError
    except Exception:  # A foreign __array__ may raise anything.
        return a_kind(value)
    words = f"{array.shape}".encode()
    return hashlib.sha256(words + array.astype(np.float64).tobytes()).hexdigest()[:16]
