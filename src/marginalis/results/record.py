"""The record of a run, which every answer has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from .. import __version__
from ..checks import real_number, shown, whole
from ..display.card import Displayed
from ..engines.plan import Plan, model_digest
from .written import Written

_MOST = 2**53  # Largest number of variables, steps and so on that is accepted from a file.


@dataclass(frozen=True)
class Record:
    """Everything needed to repeat a run. Records of the same run are equal; times are not compared."""

    model: str  # Digest of the model.
    variables: int
    method: str
    steps: int
    schedule: str
    base: str
    transition: str
    engine: str
    precision: str
    runs: tuple[tuple[int, int, int], ...]  # (seed, first chain, number of chains) of each run.
    seconds: float = field(compare=False)
    draws: str = "words"  # Stream of random numbers that units are drawn with.
    populations: int = 0  # Number of populations that are resampled; 0 without resampling.
    version: str = __version__  # Version of the package.
    machines: str = field(default="", compare=False)  # Machines of the pool, with their processors.

    @classmethod
    def of(cls, plan: Plan, seconds: float, machines: str = "") -> Record:
        """Return the record of a run."""
        return cls(
            model=model_digest(plan.path.model),
            variables=plan.path.model.n_variables,
            method=plan.method_name,
            steps=plan.steps,
            schedule=plan.schedule,
            base=plan.path.name,
            transition=plan.move.kind,
            engine=plan.placement.engine,
            precision=plan.placement.precision,
            runs=((plan.chains.seed, plan.chains.first, plan.chains.count),),
            seconds=seconds,
            populations=plan.chains.populations,
            draws=plan.placement.draws,
            machines=machines,
        )

    def joined(self, other: Record) -> Record:
        """Return the record of two runs of one plan."""
        return replace(
            self,
            runs=self.runs + other.runs,
            engine=_together(self.engine, other.engine, "+"),
            seconds=self.seconds + other.seconds,
            populations=self.populations + other.populations,
            version=_together(self.version, other.version, ", "),
            machines=_together(self.machines, other.machines, "; ").removeprefix("; ").removesuffix("; "),
        )

    def to_plain(self) -> dict[str, Any]:
        """Return the record without its runs as plain data for `from_plain`; default draws are not included."""
        plain = {x.name: getattr(self, x.name) for x in fields(self) if x.name not in ("runs", "draws")}
        return plain if self.draws == "words" else {**plain, "draws": self.draws}

    @classmethod
    def from_plain(cls, data: dict[str, Any], runs: Sequence[Sequence[int]]) -> Record:
        """Return the record in the data of a file, or raise a ValueError that names what is wrong."""
        known = {x.name: x for x in fields(cls) if x.name != "runs"}
        for name in data:
            if name not in known:
                raise ValueError(f"provenance has {shown(name)}, which this version does not know")
        given: dict[str, Any] = {}
        for name, x in known.items():
            if name in data:
                given[name] = _checked(data[name], name, str(x.type))
            elif x.default is MISSING or name == "version":
                raise ValueError(f"provenance lacks {name!r}")
        return cls(runs=_checked_runs(runs), **given)

    @property
    def chains(self) -> int:
        """Number of chains, N."""
        return sum(count for _, _, count in self.runs)

    @property
    def weights_of(self) -> str:
        """What a log-weight belongs to: ``"chains"`` or ``"populations"``."""
        return "populations" if self.populations else "chains"

    @property
    def seed(self) -> int:
        """Seed (of the first run, when several were joined)."""
        return self.runs[0][0]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain data."""
        names = (
            "method",
            "steps",
            "schedule",
            "base",
            "chains",
            "transition",
            "seed",
            "engine",
            "precision",
            "populations",
        )
        plain = {name: getattr(self, name) for name in (*names, "seconds", "version", "model")}
        if self.draws != "words":
            plain["draws"] = self.draws
        if self.machines:
            plain["machines"] = self.machines.split("; ")
        return {**plain, "runs": [list(run) for run in self.runs]}

    def __str__(self) -> str:
        """Return the transition and the steps, and other choices that differ from the paper's."""
        steps = f"{self.steps} steps" if self.schedule == "linear" else f"{self.steps} {self.schedule} steps"
        resampled = f", resampled in {self.populations} populations" if self.populations else ""
        drawn = "" if self.draws == "words" else f", draws by {self.draws}"
        base = "" if self.base == "uniform" else f", base {self.base}"
        return f"{self.transition}, {steps}{base}{resampled}{drawn}"


def _together(a: str, b: str, mark: str) -> str:
    """Return the parts of both texts, separated by a mark, without duplicates."""
    return mark.join(dict.fromkeys(a.split(mark) + b.split(mark)))


def _checked(value: Any, name: str, kind: str) -> Any:
    """Return a value of a record after a check of its type, or raise a ValueError that names it."""
    if kind == "int":
        return whole(value, name, 0 if name == "populations" else 1, _MOST)
    if kind == "float":
        number = real_number(value, name)
        if number < 0.0:
            raise ValueError(f"{name} is {number!r}; it must not be negative")
        return number
    return printable(value, name)


def printable(value: Any, name: str) -> str:
    """Return a text from a file if it can be printed safely on a terminal, or raise a ValueError that names it."""
    if not (isinstance(value, str) and value.isprintable()):
        raise ValueError(f"{name} is {shown(value)}; it must be a line of text")
    return value


def _checked_runs(runs: Sequence[Sequence[int]]) -> tuple[tuple[int, int, int], ...]:
    """Return the runs after a check of their numbers; no two may hold the same chain."""
    found = []
    for seed, first, count in runs:
        chains = whole(count, "the number of chains of a run", 1, 2**32)
        run = whole(seed, "the seed of a run", 0, 2**64 - 1), whole(first, "first_chain", 0, 2**32 - chains), chains
        found.append(run)
    last = (-1, 0, 0)
    for run in sorted(found):
        if run[0] == last[0] and run[1] < last[1] + last[2]:
            raise ValueError(f"chain {run[1]} of seed {run[0]} is there twice")
        last = run
    return tuple(found)


class Answer(Written, Displayed):
    """Base class of the answers of a run, which have a record."""

    record: Record

    @property
    def variables(self) -> int:
        """Number of variables of the model."""
        return self.record.variables

    @property
    def method(self) -> str:
        """Method: ``"ais"``, ``"mais-v"``, ``"mais-h"``, or ``"mais"`` if the graph is not bipartite."""
        return self.record.method

    @property
    def steps(self) -> int:
        """Number of annealing steps, K."""
        return self.record.steps

    @property
    def schedule(self) -> str:
        """Schedule: ``"linear"``, ``"adaptive"`` or ``"given"``."""
        return self.record.schedule

    @property
    def base(self) -> str:
        """Name of the base, or ``"given"``."""
        return self.record.base

    @property
    def transition(self) -> str:
        """Transition: ``"gibbs"`` or ``"metropolis"``."""
        return self.record.transition

    @property
    def engine(self) -> str:
        """Name of the engine that ran the chains."""
        return self.record.engine

    @property
    def seed(self) -> int:
        """Seed (of the first run, when several were joined)."""
        return self.record.seed

    @property
    def chains(self) -> int:
        """Number of chains, N."""
        return self.record.chains

    @property
    def populations(self) -> int:
        """Number of populations in which the chains were resampled; 0 without resampling."""
        return self.record.populations

    @property
    def ess_of(self) -> str:
        """What a log-weight belongs to and `ess` counts: ``"chains"`` or ``"populations"``."""
        return self.record.weights_of

    @property
    def seconds(self) -> float:
        """Time of the run in seconds."""
        return self.record.seconds

    def with_seconds(self, seconds: float) -> Any:
        """Return the same answer with another time in its record."""
        return replace(self, record=replace(self.record, seconds=seconds))  # type: ignore[type-var]
