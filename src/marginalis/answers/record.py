"""Where an answer comes from: one record, which every answer carries, and how answers are written."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

from .. import __version__
from ..sampling.plan import Plan, model_digest


@dataclass(frozen=True)
class Record:
    """What was run: enough to run it again."""

    model: str  # digest
    variables: int
    method: str
    steps: int
    schedule: str
    base: str
    transition: str
    engine: str
    precision: str
    runs: tuple[tuple[int, int, int], ...]  # (seed, first chain, number of chains)
    seconds: float
    populations: int = 0  # that the chains were resampled in; 0 without resampling
    version: str = __version__  # of the package

    @classmethod
    def of(cls, plan: Plan, seconds: float) -> Record:
        """Return the record of a run."""
        return cls(
            model=model_digest(plan.model),
            variables=plan.model.n_variables,
            method=plan.method,
            steps=plan.steps,
            schedule=plan.schedule,
            base=plan.base_name,
            transition=plan.transition,
            engine=plan.engine,
            precision=plan.precision,
            runs=((plan.seed, plan.first_chain, plan.chains),),
            seconds=seconds,
            populations=plan.populations,
        )

    def joined(self, other: Record) -> Record:
        """Return the record of two runs of one plan."""
        engine = self.engine if self.engine == other.engine else f"{self.engine}+{other.engine}"
        return replace(
            self,
            runs=self.runs + other.runs,
            engine=engine,
            seconds=self.seconds + other.seconds,
            populations=self.populations + other.populations,
        )

    @property
    def chains(self) -> int:
        """Number of chains, N."""
        return sum(count for _, _, count in self.runs)

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
        return {name: getattr(self, name) for name in (*names, "seconds", "version", "model")}

    def __str__(self) -> str:
        """Transition, steps and base, as far as they are not the paper's."""
        steps = f"{self.steps} steps" if self.schedule == "linear" else f"{self.steps} {self.schedule} steps"
        resampled = f", resampled in {self.populations} populations" if self.populations else ""
        return f"{self.transition}, {steps}" + ("" if self.base == "uniform" else f", base {self.base}") + resampled


class Answer:
    """What all answers have: a record, and ways to be written."""

    record: Record

    @property
    def variables(self) -> int:
        """Number of variables of the model."""
        return self.record.variables

    @property
    def method(self) -> str:
        """Method: ``"ais"``, ``"mais-v"``, ``"mais-h"``, or ``"mais"`` where the graph is not bipartite."""
        return self.record.method

    @property
    def steps(self) -> int:
        """Number of annealing steps, K."""
        return self.record.steps

    @property
    def schedule(self) -> str:
        """``"linear"``, ``"adaptive"`` or ``"given"``."""
        return self.record.schedule

    @property
    def base(self) -> str:
        """Name of the base, or ``"given"``."""
        return self.record.base

    @property
    def transition(self) -> str:
        """``"gibbs"`` or ``"metropolis"``."""
        return self.record.transition

    @property
    def engine(self) -> str:
        """Engine that ran it."""
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
        """Number of populations that the chains were resampled in; 0 without resampling."""
        return self.record.populations

    @property
    def seconds(self) -> float:
        """Time it took."""
        return self.record.seconds

    def took(self, seconds: float) -> Any:
        """Return the same answer with another time on record."""
        return replace(self, record=replace(self.record, seconds=seconds))  # type: ignore[type-var]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return the answer as one JSON object."""
        return json.dumps(self.to_dict(), allow_nan=False)


def finite(x: float) -> float | None:
    """Return x, or None for what JSON cannot say."""
    return x if math.isfinite(x) else None


def decimals(error: float) -> int:
    """Decimals that show two significant digits of the error."""
    if not 0.0 < error < math.inf:
        return 6
    return min(12, max(0, 1 - math.floor(math.log10(error))))
