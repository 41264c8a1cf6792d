"""A population of chains that is carried from one model to the next, one model at a time.

The chains are annealed to the first model, and from each model to the next one. Their accumulated weights estimate
Z_t/Z_0 without bias at every model. A few pilot chains go ahead at every model and choose the number of steps to it,
so that nothing depends on later models and the memory does not depend on their number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..checks import Array
from ..engines.plan import Plan, make_plan
from ..engines.recorder import Recorder
from ..models.annealed import on_sides_of
from ..models.arrange import shared_split
from ..models.interacting import InteractingMRF
from ..models.model import MRF
from ..options import PlanOptions
from ..paths.base import coupled_base
from ..paths.narrow_base import unseen_share
from ..planning.pilots import plan_with_pilots
from ..random import PILOT, SEQUENCE, stream
from ..results.record import Record
from ..running.session import Session
from ..statistics.weights import Weights

# Pilots have this many chains, this many steps between two neighbours, and this many steps to the first model.
_PILOT_CHAINS, _PILOT_STEPS, _FIRST_STEPS = 64, 4, 32
_VARIANCE = 0.05  # The steps between two neighbours are chosen for this variance of ln w.
_FEWEST, _MOST = 2, 1000  # Least and largest number of steps between two neighbours.


@dataclass(frozen=True)
class Origin:
    """What the run to the first model decides for all later ones."""

    log_z0: float
    unseen: float  # See `Estimate.unseen`.
    record: Record  # Record of the run to the first model.


@dataclass(frozen=True, eq=False)
class Carried:
    """Chains at the latest of the models that they have passed, and the pilot chains at the same model."""

    origin: Origin
    model: MRF
    models: int  # Number of models so far.
    steps: int  # Number of annealing steps so far.
    states: Array  # States of the chains, one row each.
    log_weights: Array  # Log-weights of the chains.
    results: Array  # Log-weights of the populations, or of the chains without resampling; Z_0 is not included.
    pilots: Array  # States of the pilot chains.

    @property
    def weights(self) -> Weights:
        """The weights at the latest model, with its ln Z."""
        origin = self.origin
        return Weights(self.results, origin.log_z0, unseen=origin.unseen, of=origin.record.weights_of)

    def record(self, seconds: float, machines: str = "") -> Record:
        """Return the record of the run through all models so far."""
        return replace(self.origin.record, steps=self.steps, seconds=seconds, machines=machines)

    def to(self, model: MRF, given: PlanOptions, session: Session) -> Carried:
        """Return the chains after annealing them to the next model, which is `on_the_split_of` the present one."""
        steps, pilots = self.steps_to(model, given, session)
        return self.to_in(steps, model, given, session, pilots)

    def steps_to(self, model: MRF, given: PlanOptions, session: Session) -> tuple[int, Array]:
        """Return the number of steps to the next model, and the states of the pilot chains there, which choose it."""
        gap = _between(self, model, _PILOT_STEPS, given)
        log_weights, _, pilots = _pilot(gap, self.pilots, session)
        return _enough(log_weights, _PILOT_STEPS), pilots

    def to_in(self, steps: int, model: MRF, given: PlanOptions, session: Session, pilots: Array) -> Carried:
        """Return the chains after annealing them to the next model in so many steps."""
        plan = _between(self, model, steps, given)
        results, own, states = _run_on(plan.with_chains(start=self.states, start_log_weights=self.log_weights), session)
        return Carried(self.origin, model, self.models + 1, self.steps + plan.steps, states, own, results, pilots)


def carried_to_first(model: MRF, given: PlanOptions, session: Session) -> Carried:
    """Return the chains after annealing them to the first model.

    `given` are the options of all runs; if they have no steps, a pilot chooses those to this model.
    """
    to_first = given.copy()
    if given["steps"] is None:
        to_first["steps"], to_first["schedule"] = _steps_to(model, given, session), "adaptive"
    plan = plan_with_pilots(model, session, keep_whole=True, **to_first)
    _, _, pilots = _pilot(plan, None, session)
    results, own, states = _run_on(plan, session)
    origin = Origin(
        plan.path.log_z0,
        unseen_share(plan.path.part, plan.path.start, plan.chains.count),
        Record.of(plan, 0.0),
    )
    return Carried(origin, model, 1, plan.steps, states, own, results, pilots)


def carried_along(plan: Plan, model: MRF, session: Session) -> Carried:
    """Return the chains after annealing them to the first model along the path of a plan."""
    results, own, states = _run_on(plan, session)
    unseen = unseen_share(plan.path.end, plan.path.start, plan.chains.count)
    pilots = np.resize(states, (_PILOT_CHAINS, states.shape[1]))
    return Carried(
        Origin(plan.path.log_z0, unseen, Record.of(plan, 0.0)), model, 1, plan.steps, states, own, results, pilots
    )


def on_the_split_of(first: MRF, model: MRF, argument: str) -> MRF:
    """Return a model, arranged so that the same variables are summed out as in the first one."""
    if isinstance(first, InteractingMRF) or isinstance(model, InteractingMRF):
        if not isinstance(first, InteractingMRF):
            raise ValueError(f"{argument} has larger factors than the first: they must share one graph")
        try:
            return on_sides_of(first, model)
        except ValueError as error:
            raise ValueError(f"{argument} {error}") from None
    same, arranged = shared_split(first, model)
    if same is not first:
        raise ValueError(f"{argument} has other couplings than the first: they must share one graph")
    return arranged


def _between(carried: Carried, model: MRF, steps: int, given: PlanOptions) -> Plan:
    """Return the plan to the next model, with method and chains of the first run and new random numbers."""
    first = carried.origin.record
    options = given.copy()
    options["base"], options["steps"] = coupled_base(carried.model, model), steps
    options["method"] = first.method  # type: ignore[typeddict-item]
    plan = make_plan(model, keep_whole=True, **options)
    return plan.with_chains(seed=stream(first.seed, SEQUENCE + carried.models), count=first.chains)


def _run_on(plan: Plan, session: Session) -> tuple[Array, Array, Array]:
    """Run a plan; return the log-weights of its populations, and the log-weights and states of its chains."""
    recorder = Recorder.of_final_states(plan)
    results = session.run(plan, recorder).log_weights
    return results, recorder.log_weights[0] + plan.path.exact_log_ratio, recorder.values[0]


def _steps_to(model: MRF, given: PlanOptions, session: Session) -> int:
    """Return the number of steps to the first model, chosen from a pilot run."""
    options = given.copy()
    options["steps"] = _FIRST_STEPS
    log_weights, _, _ = _pilot(make_plan(model, keep_whole=True, **options), None, session)
    return max(_FIRST_STEPS, _enough(log_weights, _FIRST_STEPS))


def _pilot(plan: Plan, states: Array | None, session: Session) -> tuple[Array, Array, Array]:
    """Run a few chains of a plan with random numbers of their own; return the same as `_run_on`."""
    few = plan.pilot(PILOT, _PILOT_CHAINS, start=states)
    return _run_on(few, session.for_pilot(few))


def _enough(log_weights: Array, steps: int) -> int:
    """Return the number of steps for a variance of `_VARIANCE`; it is inversely proportional to the steps."""
    return int(np.clip(np.ceil(float(log_weights.var()) * steps / _VARIANCE), _FEWEST, _MOST))
